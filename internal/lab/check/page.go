package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/page"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// picturesIn is the environment's name of a directory for screenshots.
const picturesIn = "CULVERT_PICTURES"

// pageWalk lets a browser walk the page of a node, while a UE sends to a host, and to another UE.
func pageWalk(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	upf := r.Node(c.At)
	p, ok := r.Process(upf, daemon.CulvertProcess)
	if !ok {
		return fmt.Errorf("no daemon runs in %s", c.At)
	}
	var pings []*exec.Cmd
	quiet := func() (err error) {
		for _, cmd := range pings {
			err = errors.Join(err, cmd.Process.Signal(unix.SIGINT))
			_ = cmd.Wait() // ping fails where nothing came back, as is meant
		}
		pings = nil
		return err
	}
	defer func() { _ = quiet() }() // it was asked for, or an error is told
	for _, args := range [][]string{
		{"-q", "-I", c.Device, "-i", "0.01", "-s", "1000", c.To.String()},
		{"-q", "-I", c.Device, "-i", "0.1", c.Source.Next().Next().String()}, // a UE that is not there
	} {
		cmd := exec.CommandContext(ctx, "ping", args...)
		if err := r.Namespace(r.Node(c.From)).Do(cmd.Start); err != nil {
			return err
		}
		pings = append(pings, cmd)
	}
	w := page.Walk{
		Culvert: r.Culvert, Socket: daemon.Socket(r.Instance, upf), PID: p.PID, UE: c.Source.String(), Pictures: os.Getenv(picturesIn),
		Ask:   func(into any, command ...string) error { return daemon.AskJSON(ctx, r.Instance, upf, into, command...) },
		Quiet: quiet,
	}
	said, err := w.Run(ctx)
	for _, text := range said {
		o.Say("%s", text)
	}
	return err
}
