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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/pfcp/smf"
)

// SMF is one `culvert smf run`, which speaks to one UPF.
type SMF struct {
	Name string `json:"name"` // one of its kind in the lab
	// Scenario is its scenario file. Steps in it are done at the start; what
	// needs to know another UPF's F-TEIDs is done by events.
	Scenario map[string]any `json:"scenario"`

	node     *Node
	scenario *smf.Scenario
}

// smf returns the one called name, or nil.
func (t *Topology) smf(name string) *SMF {
	for _, n := range t.Nodes {
		for _, s := range n.SMFs {
			if s.Name == name {
				return s
			}
		}
	}
	return nil
}

// group returns a group of sessions of an SMF.
func (t *Topology) group(name, sessions string) (*smf.Spec, error) {
	s := t.smf(name)
	if s == nil {
		return nil, fmt.Errorf("no SMF is called %q", name)
	}
	i := slices.IndexFunc(s.scenario.Sessions, func(g smf.Spec) bool { return g.Name == sessions })
	if i < 0 {
		return nil, fmt.Errorf("SMF %s has no sessions %q", name, sessions)
	}
	return &s.scenario.Sessions[i], nil
}

func (t *Topology) validateSMFs() error {
	seen := map[string]bool{}
	for i, n := range t.Nodes {
		for j, s := range n.SMFs {
			if err := s.validate(n); err != nil {
				return fmt.Errorf("nodes[%d]: smfs[%d]: %w", i, j, err)
			}
			if seen[s.Name] {
				return fmt.Errorf("nodes[%d]: smfs[%d]: name: %q is there twice", i, j, s.Name)
			}
			seen[s.Name] = true
		}
	}
	return nil
}

func (s *SMF) validate(n *Node) error {
	if !nameForm.MatchString(s.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", s.Name)
	}
	text, err := yaml.Marshal(s.Scenario)
	if err != nil {
		return err
	}
	s.node = n
	if s.scenario, err = smf.ParseScenario(text); err != nil {
		return err
	}
	_, err = s.scenario.Options()
	return err
}

// reference is an F-TEID of a UPF's, as "SMF/sessions/side", where side is
// access or core.
type reference struct {
	smf, sessions, side string
}

func (t *Topology) reference(text string) (r reference, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[2] != "access" && parts[2] != "core" {
		return r, fmt.Errorf("fteid: %q: give SMF, sessions and side, as in smf1/ue/access or smf1/ue/core", text)
	}
	r = reference{parts[0], parts[1], parts[2]}
	if _, err := t.group(r.smf, r.sessions); err != nil {
		return r, fmt.Errorf("fteid: %w", err)
	}
	return r, nil
}

// resolve returns a step with the F-TEIDs that it refers to: a tunnel
// {fteid: smf1/ue/core} becomes {address: ..., teid: ...}, with ipv6: true of
// that family where the UPF has both.
func resolve(value any, lookup func(text string, ipv6 bool) (netip.Addr, uint32, error)) (any, error) {
	m, ok := value.(map[string]any)
	if !ok {
		return value, nil
	}
	m = maps.Clone(m)
	if text, ok := m["fteid"].(string); ok {
		ipv6, _ := m["ipv6"].(bool)
		address, teid, err := lookup(text, ipv6)
		if err != nil {
			return nil, err
		}
		delete(m, "fteid")
		delete(m, "ipv6")
		m["address"], m["teid"] = address.String(), teid
		return m, nil
	}
	for key, v := range m {
		var err error
		if m[key], err = resolve(v, lookup); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// onSMF wants a step that the SMF can read.
func (t *Topology) onSMF(e *Event) error {
	s := t.smf(e.SMF)
	if s == nil {
		return fmt.Errorf("no SMF is called %q", e.SMF)
	}
	step, err := resolve(e.Step, func(text string, _ bool) (netip.Addr, uint32, error) {
		_, err := t.reference(text)
		return netip.IPv6Unspecified(), 1, err
	})
	if err != nil {
		return err
	}
	line, err := json.Marshal(step)
	if err != nil {
		return err
	}
	_, err = s.scenario.ParseStep(line)
	return err
}

func (in *instance) smfInput(s *SMF) string  { return in.file(s.node, s.Name+".in") }
func (in *instance) smfOutput(s *SMF) string { return in.file(s.node, s.Name+".out") }

// startSMFs starts a node's processes. They take steps from a named pipe, which
// they hold open themselves, so that they outlive this process.
func (in *instance) startSMFs(ctx context.Context, n *Node) error {
	for _, s := range n.SMFs {
		text, err := yaml.Marshal(s.Scenario)
		if err != nil {
			return err
		}
		scenario := in.file(n, s.Name+".yaml")
		if err := os.WriteFile(scenario, text, 0o644); err != nil {
			return err
		}
		if err := unix.Mkfifo(in.smfInput(s), 0o600); err != nil {
			return fmt.Errorf("%s: %w", in.smfInput(s), err)
		}
		if err := in.startSMF(n, s, scenario); err != nil {
			return err
		}
		// It answers once the steps of its scenario are done.
		if _, err := in.step(ctx, s, map[string]any{"do": "wait", "for": "1ns"}); err != nil {
			return err
		}
	}
	return nil
}

func (in *instance) startSMF(n *Node, s *SMF, scenario string) error {
	input, err := os.OpenFile(in.smfInput(s), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer input.Close()
	out, err := os.OpenFile(in.smfOutput(s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	return in.startWith(n, s.Name, input, out, in.culvert, "smf", "run", scenario, "--control", "-o", "json")
}

// step lets an SMF do a step, and waits for the result.
func (in *instance) step(ctx context.Context, s *SMF, step map[string]any) (result smf.StepResult, err error) {
	resolved, err := resolve(step, func(text string, ipv6 bool) (netip.Addr, uint32, error) { return in.fteid(ctx, text, ipv6) })
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
	at := in.outputEnd(s)
	if err := in.tell(s, append(text, '\n')); err != nil {
		return result, err
	}
	p, _ := in.process(s.node, s.Name)
	const limit = 30 * time.Second
	answered := waitFor(limit, func() bool {
		for _, l := range in.said(s, at) {
			if l.ID == id {
				result = l.StepResult
				return true
			}
		}
		return ctx.Err() != nil || !p.alive()
	})
	switch {
	case result.ID == id && !result.OK:
		return result, errors.New(result.Error)
	case result.ID == id:
		return result, nil
	case ctx.Err() != nil:
		return result, ctx.Err()
	case answered:
		return result, fmt.Errorf("SMF %s ended: %s", s.Name, in.logTail(s.node, s.Name))
	}
	return result, fmt.Errorf("SMF %s did not answer within %v", s.Name, limit)
}

// tell writes to an SMF's pipe; one that nobody reads is an error, not a wait.
func (in *instance) tell(s *SMF, line []byte) error {
	pipe, err := os.OpenFile(in.smfInput(s), os.O_WRONLY|unix.O_NONBLOCK, 0)
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
func (in *instance) outputEnd(s *SMF) int64 {
	info, err := os.Stat(in.smfOutput(s))
	if err != nil {
		return 0 // nothing is said yet
	}
	return info.Size()
}

// said are the whole lines that an SMF wrote since its output ended there.
func (in *instance) said(s *SMF, since int64) (lines []smfLine) {
	text, err := os.ReadFile(in.smfOutput(s))
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
func (in *instance) fteid(ctx context.Context, text string, ipv6 bool) (a netip.Addr, teid uint32, err error) {
	r, err := in.reference(text)
	if err != nil {
		return a, 0, err
	}
	result, err := in.step(ctx, in.smf(r.smf), map[string]any{"do": "show", "sessions": r.sessions})
	if err != nil {
		return a, 0, err
	}
	for _, info := range result.Sessions {
		f := info.Access
		if r.side == "core" {
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

func (r *runner) smfEvent(ctx context.Context, e *Event, _ *outcome) error {
	_, err := r.step(ctx, r.smf(e.SMF), e.Step)
	return err
}

// moveTunnel tells a GTP-U endpoint a tunnel's other end.
func (r *runner) moveTunnel(ctx context.Context, e *Event, _ *outcome) error {
	address, teid, err := r.fteid(ctx, e.FTEID, e.IPv6)
	if err != nil {
		return err
	}
	_, err = gtpulink.Ask(r.control(r.node(e.Node)), gtpulink.Request{Op: "tunnel", Device: e.Device, To: address, TEID: teid})
	return err
}
