package check

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// captureIsClean ends the capture of a device, and wants PFCP in it that tshark reads
// without an expert warning. Sent are the messages, received those without.
func captureIsClean(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	file, err := disturb.EndCapture(r.Instance, r.Node(c.From), c.Device)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "tshark", "-n", "-r", file, "-Y", "pfcp", "-T", "fields",
		"-e", "frame.number", "-e", "_ws.expert.severity", "-e", "_ws.expert.message", "-e", "_ws.malformed").Output()
	if err != nil {
		return fmt.Errorf("tshark (package tshark) cannot read the capture: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		o.Sent++
		if len(f) == 4 && !isWarning(f[1]) && f[3] == "" {
			o.Received++
		} else if len(o.Problems) < 5 {
			o.Fail("frame %s: tshark says %q", f[0], f[1:])
		}
	}
	wantAll(o, &c.Expect)
	return nil
}

// isWarning says whether one of the expert severities is a warning or worse.
func isWarning(severities string) bool {
	const warn = 0x00600000
	for text := range strings.SplitSeq(severities, ",") {
		if n, err := strconv.Atoi(text); err == nil && n >= warn {
			return true
		}
	}
	return false
}
