package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/smf"
)

func smfInput(in *instance.Instance, s *topology.SMF) string { return in.File(s.Node, s.Name+".in") }

func smfOutput(in *instance.Instance, s *topology.SMF) string { return in.File(s.Node, s.Name+".out") }

// startSMFs starts a node's processes. They take steps from a named pipe, which
// they hold open themselves, so that they outlive this process.
func startSMFs(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	for _, s := range n.SMFs {
		text, err := yaml.Marshal(s.Scenario)
		if err != nil {
			return err
		}
		scenario := in.File(n, s.Name+".yaml")
		if err := os.WriteFile(scenario, text, 0o644); err != nil {
			return err
		}
		if err := unix.Mkfifo(smfInput(in, s), 0o600); err != nil {
			return fmt.Errorf("%s: %w", smfInput(in, s), err)
		}
		if err := startSMF(in, n, s, scenario); err != nil {
			return err
		}
		// It answers once the steps of its scenario are done.
		if _, err := step(ctx, in, s, map[string]any{"do": "wait", "for": "1ns"}); err != nil {
			return err
		}
	}
	return nil
}

func startSMF(in *instance.Instance, n *topology.Node, s *topology.SMF, scenario string) error {
	input, err := os.OpenFile(smfInput(in, s), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer input.Close()
	out, err := os.OpenFile(smfOutput(in, s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	self, err := os.Executable() // culvert-lab has the command smf
	if err != nil {
		return err
	}
	return in.StartWith(n, s.Name, input, out, self, "smf", "run", scenario, "--control", "-o", "json")
}

// step lets an SMF do a step, and waits for the result.
func step(ctx context.Context, in *instance.Instance, s *topology.SMF, step map[string]any) (result smf.StepResult, err error) {
	resolved, err := topology.Resolve(step, func(text string, ipv6 bool) (netip.Addr, uint32, error) { return fteid(ctx, in, text, ipv6) })
	if err != nil {
		return result, err
	}
	line := maps.Clone(resolved.(map[string]any)) // a step is a mapping
	id := rand.Text()
	line["id"] = id
	text, err := json.Marshal(line)
	if err != nil {
		return result, err
	}
	at := outputEnd(in, s)
	if err := tell(in, s, append(text, '\n')); err != nil {
		return result, err
	}
	p, _ := in.Process(s.Node, s.Name)
	const limit = 30 * time.Second
	answered := instance.WaitFor(limit, func() bool {
		for _, l := range said(in, s, at) {
			if l.ID == id {
				result = l.StepResult
				return true
			}
		}
		return ctx.Err() != nil || !p.Alive()
	})
	switch {
	case result.ID == id && !result.OK:
		return result, errors.New(result.Error)
	case result.ID == id:
		return result, nil
	case ctx.Err() != nil:
		return result, ctx.Err()
	case answered:
		return result, fmt.Errorf("SMF %s ended: %s", s.Name, in.LogTail(s.Node, s.Name))
	}
	return result, fmt.Errorf("SMF %s did not answer within %v", s.Name, limit)
}

// tell writes to an SMF's pipe; one that nobody reads is an error, not a wait.
func tell(in *instance.Instance, s *topology.SMF, line []byte) error {
	pipe, err := os.OpenFile(smfInput(in, s), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("SMF %s does not run: %w", s.Name, err)
	}
	_, err = pipe.Write(line)
	return errors.Join(err, pipe.Close())
}

// smfLine is a line of an SMF's: a step's result, or a report.
type smfLine struct {
	smf.StepResult
	smf.Report
}

// outputEnd is where an SMF's output ends now.
func outputEnd(in *instance.Instance, s *topology.SMF) int64 {
	info, err := os.Stat(smfOutput(in, s))
	if err != nil {
		return 0 // nothing is said yet
	}
	return info.Size()
}

// said are the whole lines that an SMF wrote since its output ended there.
func said(in *instance.Instance, s *topology.SMF, since int64) (lines []smfLine) {
	text, err := os.ReadFile(smfOutput(in, s))
	if err != nil || int64(len(text)) < since {
		return nil
	}
	for line := range bytes.Lines(text[since:]) {
		var l smfLine
		if json.Unmarshal(line, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// fteid is what a reference is now: what the UPF chose, or was given.
func fteid(ctx context.Context, in *instance.Instance, text string, ipv6 bool) (a netip.Addr, teid uint32, err error) {
	r, err := in.Reference(text)
	if err != nil {
		return a, 0, err
	}
	result, err := step(ctx, in, in.SMF(r.SMF), map[string]any{"do": "show", "sessions": r.Sessions})
	if err != nil {
		return a, 0, err
	}
	for _, info := range result.Sessions {
		f := info.Access
		if r.Side == "core" {
			f = info.Core
		}
		if f == nil {
			continue
		}
		if a = f.Addr4; ipv6 || !a.IsValid() {
			a = f.Addr6
		}
		return a, f.TEID, nil
	}
	return a, 0, fmt.Errorf("fteid: %s: the session has none yet", text)
}

func (r *runner) smfEvent(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	_, err := step(ctx, r.Instance, r.SMF(e.SMF), e.Step)
	return err
}

// moveTunnel tells a GTP-U endpoint a tunnel's other end.
func (r *runner) moveTunnel(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	address, teid, err := fteid(ctx, r.Instance, e.FTEID, e.IPv6)
	if err != nil {
		return err
	}
	_, err = gtpulink.Ask(control(r.Instance, r.Node(e.Node)), gtpulink.Request{Op: "tunnel", Device: e.Device, To: address, TEID: teid})
	return err
}
