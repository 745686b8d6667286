package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Pace says how fast a conversation is played.
type Pace string

// The paces.
const (
	Fast     Pace = "fast"     // the next request goes out when the last one is answered
	Captured Pace = "captured" // and not before its time in the capture
)

// Paces are all of them.
func Paces() []string { return []string{string(Fast), string(Captured)} }

// Settings say what is played, and what it is made into.
type Settings struct {
	// Capture is a file, or the name of one that is built in.
	Capture string `json:"capture"`
	// From is the SMF and To the UPF whose conversation it is: needed only where the
	// capture has several.
	From netip.Addr `json:"from,omitzero"`
	To   netip.Addr `json:"to,omitzero"`
	// Times each session is played, at once; 1 unless set.
	Times int `json:"times,omitempty"`
	// Access is the gNB's address in place of the capture's, GTPU the address on
	// which the UPF takes GTP-U, for F-TEIDs that the SMF chooses.
	Access netip.Addr `json:"access,omitzero"`
	GTPU   netip.Addr `json:"gtpu,omitzero"`
	// Map has other addresses of tunnels, or several gNBs': captured ones to those
	// in their place.
	Map  map[netip.Addr]netip.Addr `json:"map,omitempty"`
	Pace Pace                      `json:"pace,omitempty"` // fast unless set
	// NodeID of the SMF; its address unless set, where the capture has no name.
	NodeID string `json:"node_id,omitempty"`
}

// mostTimes bounds the copies: a UPF's limit comes long before.
const mostTimes = 1 << 20

// Complete fills in what is not set, and says what makes no sense.
func (s *Settings) Complete() error {
	s.Times, s.Pace = cmp.Or(s.Times, 1), cmp.Or(s.Pace, Fast)
	switch {
	case s.Capture == "":
		return errors.New("capture: missing: give a capture file")
	case s.Times < 1 || s.Times > mostTimes:
		return fmt.Errorf("times: %d: give 1 to %d", s.Times, mostTimes)
	case s.Pace != Fast && s.Pace != Captured:
		return fmt.Errorf("pace: %q: give %s or %s", s.Pace, Fast, Captured)
	}
	return nil
}

// address is what stands in the place of a tunnel's address, by Map.
func (s *Settings) address(a netip.Addr) netip.Addr {
	if to, mapped := s.Map[a]; mapped {
		return to
	}
	return a
}

// one is an error if a single address would stand for several of the capture.
func (s *Settings) one(field string, to netip.Addr, captured []netip.Addr) error {
	left := slices.DeleteFunc(slices.Clone(captured), func(a netip.Addr) bool { return s.address(a) != a })
	if !to.IsValid() || len(left) < 2 {
		return nil
	}
	return fmt.Errorf("%s: %s would stand for %s of the capture: give each with map", field, to, left)
}

// known is an error if Map names an address that no tunnel of the capture has.
func (s *Settings) known(captured []netip.Addr) error {
	for _, a := range slices.SortedFunc(maps.Keys(s.Map), netip.Addr.Compare) {
		if !slices.Contains(captured, a) {
			return fmt.Errorf("map: no tunnel of the capture is at %s: they are at %s", a, captured)
		}
	}
	return nil
}
