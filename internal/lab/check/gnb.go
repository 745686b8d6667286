package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/gnb"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// gnbPing runs `culvert gnb ping` with N3 in one node, and N4 in another: this program
// again, as a user would.
func gnbPing(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"gnb", "ping", "--pings", "10", "--interval", "20ms", "--wait", "1s", "-o", "json", "--name", fmt.Sprintf("l%d-", os.Getpid()),
		"--netns", r.Namespace(r.Node(c.From)).Name, "--n4-netns", r.Namespace(r.Node(c.At)).Name}, c.Command...)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it cleans up
	cmd.WaitDelay = instance.ReadyTime
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && stdout.Len() == 0 {
		return fmt.Errorf("culvert gnb ping %s: %w: %s", strings.Join(c.Command, " "), err, lastLine(stderr.String()))
	}
	return wantPings(stdout.Bytes(), &c.Expect, o)
}

// wantPings compares lines of `culvert gnb ping -o json`, one of each UE, with what is
// expected.
func wantPings(output []byte, x *topology.Expect, o *report.Outcome) error {
	for line := range bytes.Lines(output) {
		var result gnb.PingResult
		var got any
		if err := errors.Join(json.Unmarshal(line, &result), json.Unmarshal(line, &got)); err != nil {
			return fmt.Errorf("culvert gnb ping printed %q: %w", line, err)
		}
		o.Sent += result.Sent
		o.Received += result.Received
		if !x.Nothing {
			o.Problems = append(o.Problems, result.Findings...)
		}
		if x.Shows == nil {
			continue
		}
		if err := observe.Includes(got, x.Shows); err != nil {
			o.Fail("%v", err)
		}
	}
	if o.Sent == 0 {
		o.Fail("culvert gnb ping sent nothing")
	}
	wantAll(o, x)
	return nil
}
