package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// hasSessions is an error unless an SMF has a group of sessions.
func (t *Topology) hasSessions(name, sessions string) error {
	s := t.SMF(name)
	if s == nil {
		return fmt.Errorf("no SMF is called %q", name)
	}
	if s.scenario.Replay != nil {
		return nil // what the capture has is known once it is read
	}
	if !slices.ContainsFunc(s.scenario.Sessions, func(g smf.Spec) bool { return g.Name == sessions }) {
		return fmt.Errorf("SMF %s has no sessions %q", name, sessions)
	}
	return nil
}

// read reads the scenario of an SMF in a node.
func (s *SMF) read(n *Node) error {
	var err error
	s.Node = n
	if s.scenario, err = smf.ScenarioOf(s.Scenario); err == nil {
		_, err = s.scenario.Options()
	}
	return err
}

// Reference names an F-TEID of a UPF: that of an SMF's group of sessions, on the
// access or core side, or that for the SMF's own packets (cp).
type Reference struct {
	SMF, Sessions, Side string
}

// ParseReference reads "SMF/sessions/side".
func (t *Topology) ParseReference(text string) (r Reference, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || !slices.Contains([]string{"access", "core", "cp"}, parts[2]) {
		return r, fmt.Errorf("fteid: %q: give SMF, sessions and side (access, core or cp), as in smf1/ue/access", text)
	}
	if err := t.hasSessions(parts[0], parts[1]); err != nil {
		return r, fmt.Errorf("fteid: %w", err)
	}
	return Reference{parts[0], parts[1], parts[2]}, nil
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

// step wants a step that the SMF can read.
func (v validator) step(e *Event) {
	s := v.t.SMF(e.SMF)
	if !v.want(s != nil, "no SMF is called %q", e.SMF) {
		return
	}
	step, err := Resolve(e.Step, func(text string, _ bool) (netip.Addr, uint32, error) {
		_, err := v.t.ParseReference(text)
		return netip.IPv6Unspecified(), 1, err
	})
	if !v.none(err) {
		return
	}
	line, err := json.Marshal(step)
	if v.none(err) {
		_, err = s.scenario.ParseStep(line)
		v.none(err)
	}
}
