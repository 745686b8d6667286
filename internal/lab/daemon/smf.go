package daemon

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
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/smf"
)

func smfInput(in *instance.Instance, s *topology.SMF) string { return in.File(s.Node, s.Name+".in") }

func smfOutput(in *instance.Instance, s *topology.SMF) string { return in.File(s.Node, s.Name+".out") }

// StartSMFs starts a node's processes. They take steps from a named pipe, which
// they hold open themselves, so that they outlive this process.
func StartSMFs(ctx context.Context, in *instance.Instance, n *topology.Node) error {
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
		if _, err := Step(ctx, in, s, map[string]any{"do": "wait", "for": "1ns"}); err != nil {
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
	cmd := exec.Command(self, "smf", "run", scenario, "--control", "-o", "json")
	cmd.Stdin, cmd.Stdout = input, out
	return in.StartCommand(n, s.Name, cmd)
}

// Step lets an SMF do a step, and waits for the result.
func Step(ctx context.Context, in *instance.Instance, s *topology.SMF, step map[string]any) (result smf.StepResult, err error) {
	resolved, err := topology.Resolve(step, func(text string, ipv6 bool) (netip.Addr, uint32, error) { return FTEID(ctx, in, text, ipv6) })
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
	at := OutputEnd(in, s)
	if err := write(in, s, append(text, '\n')); err != nil {
		return result, err
	}
	p, _ := in.Process(s.Node, s.Name)
	const limit = 30 * time.Second
	answered := instance.WaitFor(limit, func() bool {
		for _, l := range Lines(in, s, at) {
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
		return result, fmt.Errorf("SMF %s ended: %s", s.Name, instance.Tail(in.File(s.Node, s.Name+".log")))
	}
	return result, fmt.Errorf("SMF %s did not answer within %v", s.Name, limit)
}

// write writes to an SMF's pipe; one that nobody reads is an error, not a wait.
func write(in *instance.Instance, s *topology.SMF, line []byte) error {
	pipe, err := os.OpenFile(smfInput(in, s), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("SMF %s does not run: %w", s.Name, err)
	}
	_, err = pipe.Write(line)
	return errors.Join(err, pipe.Close())
}

// SMFLine is a line of an SMF's: a step's result, or a report.
type SMFLine struct {
	smf.StepResult
	smf.Report
}

// OutputEnd is where an SMF's output ends now.
func OutputEnd(in *instance.Instance, s *topology.SMF) int64 {
	info, err := os.Stat(smfOutput(in, s))
	if err != nil {
		return 0 // nothing is said yet
	}
	return info.Size()
}

// Lines are the whole lines that an SMF wrote since its output ended there.
func Lines(in *instance.Instance, s *topology.SMF, since int64) (lines []SMFLine) {
	text, err := os.ReadFile(smfOutput(in, s))
	if err != nil || int64(len(text)) < since {
		return nil
	}
	for line := range bytes.Lines(text[since:]) {
		var l SMFLine
		if json.Unmarshal(line, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// FTEID is what a reference is now: what the UPF chose, or was given.
func FTEID(ctx context.Context, in *instance.Instance, text string, ipv6 bool) (a netip.Addr, teid uint32, err error) {
	r, err := in.ParseReference(text)
	if err != nil {
		return a, 0, err
	}
	result, err := Step(ctx, in, in.SMF(r.SMF), map[string]any{"do": "show", "sessions": r.Sessions})
	if err != nil {
		return a, 0, err
	}
	for _, info := range result.Sessions {
		f := map[string]*smf.Created{"access": info.Access, "core": info.Core, "cp": info.CPFunction}[r.Side]
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
