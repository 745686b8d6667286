package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/smf"
)

// SMF is one `culvert smf run`, which speaks to one UPF.
type SMF struct {
	Name string `json:"name"` // one of its kind in the lab
	// Scenario is its scenario file. Steps in it are done at the start; what
	// needs to know another UPF's F-TEIDs is done by events.
	Scenario map[string]any `json:"scenario"`

	Node     *Node `json:"-"` // that it runs in
	scenario *smf.Scenario
}

// SMF returns the one called name, or nil.
func (t *Topology) SMF(name string) *SMF {
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
	s := t.SMF(name)
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
	if !NameForm.MatchString(s.Name) {
		return fmt.Errorf("name: %q: use lower-case letters, digits and '-'", s.Name)
	}
	text, err := yaml.Marshal(s.Scenario)
	if err != nil {
		return err
	}
	s.Node = n
	if s.scenario, err = smf.ParseScenario(text); err != nil {
		return err
	}
	_, err = s.scenario.Options()
	return err
}

// reference is an F-TEID of a UPF's, as "SMF/sessions/side", where side is
// access or core.
type reference struct {
	SMF, Sessions, Side string
}

func (t *Topology) Reference(text string) (r reference, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[2] != "access" && parts[2] != "core" {
		return r, fmt.Errorf("fteid: %q: give SMF, sessions and side, as in smf1/ue/access or smf1/ue/core", text)
	}
	r = reference{parts[0], parts[1], parts[2]}
	if _, err := t.group(r.SMF, r.Sessions); err != nil {
		return r, fmt.Errorf("fteid: %w", err)
	}
	return r, nil
}

// Resolve returns a step with the F-TEIDs that it refers to: a tunnel
// {fteid: smf1/ue/core} becomes {address: ..., teid: ...}, with ipv6: true of
// that family where the UPF has both.
func Resolve(value any, lookup func(text string, ipv6 bool) (netip.Addr, uint32, error)) (any, error) {
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
		if m[key], err = Resolve(v, lookup); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// onSMF wants a step that the SMF can read.
func (t *Topology) onSMF(e *Event) error {
	s := t.SMF(e.SMF)
	if s == nil {
		return fmt.Errorf("no SMF is called %q", e.SMF)
	}
	step, err := Resolve(e.Step, func(text string, _ bool) (netip.Addr, uint32, error) {
		_, err := t.Reference(text)
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
