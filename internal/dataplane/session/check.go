package session

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// ErrRules says that a session is sound, but asks for rules that the tables cannot
// hold together.
var ErrRules = errors.New("not rules of one session")

// check says what is wrong with a session.
func (s *Sessions) check(session *Session) error {
	if len(session.Rules) > maxRules {
		return fmt.Errorf("%d rules: %w", len(session.Rules), &table.FullError{Table: "rules of a session", Max: maxRules})
	}
	if err := checkEthernet(session); err != nil {
		return err
	}
	for i := range session.Rules {
		r := &session.Rules[i]
		err := checkRule(r, s.node)
		if err == nil && r.Action.forwards() {
			err = s.forwardings.check(&r.Forward)
		}
		if err != nil {
			return fmt.Errorf("rule %d: %w", r.ID, err)
		}
		for n := range i {
			if session.Rules[n].ID == r.ID {
				return fmt.Errorf("rule %d: two rules have this ID", r.ID)
			}
		}
	}
	if err := checkQuotas(session); err != nil {
		return err
	}
	return checkMeters(session)
}

func checkRule(r *Rule, n Node) error {
	if r.Ethernet {
		if err := checkEthernetRule(r, n); err != nil {
			return err
		}
	} else if r.TEID == 0 && len(r.Destinations) == 0 {
		return fmt.Errorf("%w: want a TEID or a destination", ErrRules)
	}
	isInvalid := func(p netip.Prefix) bool { return !p.IsValid() }
	switch {
	case slices.ContainsFunc(r.Destinations, isInvalid):
		return errors.New("destination: want a prefix")
	case slices.ContainsFunc(r.Sources, isInvalid):
		return errors.New("source: want a prefix")
	case r.AtSID.Slice >= MaxSlices:
		return fmt.Errorf("slice %d: want less than %d", r.AtSID.Slice, MaxSlices)
	case slices.ContainsFunc(r.AtSID.UEs, func(p netip.Prefix) bool { return !isUE(p) }):
		return errors.New("UE at a SID: want an IPv4 /32 or an IPv6 /64")
	case r.QFI > 63:
		return fmt.Errorf("QFI %d: want at most 63", r.QFI)
	case r.Action > ActionHold:
		return fmt.Errorf("action %d", r.Action)
	}
	return nil
}

// checkEthernet says whether the rules of a session go together.
func checkEthernet(s *Session) error {
	var link Link
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.Ethernet != s.Rules[0].Ethernet {
			return fmt.Errorf("rule %d: %w: want all rules of an Ethernet session, or none", r.ID, ErrRules)
		}
		for _, l := range []Link{r.Link, r.Forward.Link} {
			if link != (Link{}) && l != (Link{}) && l != link {
				return fmt.Errorf("rule %d: %w: link %s: want one for the session, which has %s", r.ID, ErrRules, l, link)
			}
			if l != (Link{}) {
				link = l
			}
		}
	}
	return nil
}

func checkEthernetRule(r *Rule, n Node) error {
	f := &r.Forward
	carriesFrames := f.Kind == ForwardGTPU || f.Kind == ForwardLink && r.Direction == Uplink ||
		(f.Kind == ForwardSRv6 || f.Kind == ForwardPolicy) && f.ArgsOffset != 0 && f.TEID != 0
	switch {
	case len(r.Sources)+len(r.Destinations)+len(r.AtSID.UEs) > 0:
		return fmt.Errorf("%w: want no UE addresses in an Ethernet session", ErrRules)
	case r.TEID == 0 && r.Direction != Downlink:
		return fmt.Errorf("%w: want a TEID", ErrRules)
	case r.TEID == 0 && n.LinkNumber(r.Link) == 0:
		return fmt.Errorf("link %s is missing", r.Link)
	case r.Action.forwards() && !carriesFrames:
		return fmt.Errorf("%w: want frames forwarded by GTP-U, by SRv6 with an argument, or from the UE to a link", ErrRules)
	}
	return nil
}

// checkMeters says whether each meter has a rate, and each rule names the
// session's.
func checkMeters(s *Session) error {
	for i, m := range s.Meters {
		if m.Rate == 0 && (m.Packets == 0 || m.Period <= 0) {
			return fmt.Errorf("meter %d: want a rate, or packets and a period", i)
		}
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if len(r.Meters) > maxMeters {
			return fmt.Errorf("rule %d: %d meters: at most %d", r.ID, len(r.Meters), maxMeters)
		}
		for n, m := range r.Meters {
			if m < 0 || m >= len(s.Meters) || slices.Contains(r.Meters[:n], m) {
				return fmt.Errorf("rule %d: meter %d: want one of the session's %d, once", r.ID, m, len(s.Meters))
			}
		}
	}
	return nil
}
