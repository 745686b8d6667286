package check

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// procedure does its events one after another: one that fails says what is wrong.
func procedure(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	return disturb.Do(ctx, r, c.AllEvents(), o)
}

// captured looks, with tshark, for frames that match a filter in what a program captured: at
// least Count of them, or none. tshark reads the file twice: only then it knows of a request
// which frame answers it.
func captured(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	file := filepath.Join(r.Dir(), c.From, c.Capture)
	var frames int
	var first []byte
	look := func() error {
		out, err := namespace.Output(exec.CommandContext(ctx, "tshark", "-2", "-r", file, "-Y", c.Filter))
		frames = bytes.Count(out, []byte("\n"))
		first, _, _ = bytes.Cut(out, []byte("\n"))
		return err
	}
	if c.Expect.Nothing {
		if err := look(); err != nil {
			return err
		}
		if frames > 0 {
			o.Fail("%d frames match %q, the first is %s", frames, c.Filter, first)
		}
		return nil
	}
	// What is captured is written after a while.
	const writeTime = 3 * time.Second
	var err error
	instance.WaitFor(writeTime, func() bool {
		if err = look(); frames < c.Count {
			time.Sleep(AnswerTime / 5)
		}
		return err == nil && frames >= c.Count
	})
	switch {
	case err != nil:
		return err
	case frames < c.Count:
		o.Fail("%d frames match %q: want %d", frames, c.Filter, c.Count)
	default:
		o.Say("%d frames match %q", frames, c.Filter)
	}
	return nil
}
