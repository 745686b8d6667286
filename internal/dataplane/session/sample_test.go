package session

import (
	"net/netip"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// gnb sends downlink packets of UE n to a gNB.
func gnb(n uint32, a string) Forwarding {
	return Forwarding{Kind: ForwardGTPU, Remote: addr(a), TEID: 0x1000 + n}
}

func ue4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 45, byte(n >> 8), byte(n)})
}

func ue6(n uint32) netip.Prefix {
	return netip.PrefixFrom(abi.FromHalves(0x20010db8_00450000|uint64(n), 0), 64)
}

// plain is the session that almost every UE has: a rule each way.
func plain(n, teid uint32) Session {
	four := netip.PrefixFrom(ue4(n), 32)
	return Session{ID: uint64(n), Rules: []Rule{
		{ID: 1, Precedence: 255, TEID: teid, Sources: []netip.Prefix{four}, Action: ActionForward},
		{ID: 2, Precedence: 255, Direction: Downlink, Destinations: []netip.Prefix{four}, Action: ActionForward,
			Forward: gnb(n, "10.0.0.2"), QFI: 9, Container: ContainerDownlink},
	}}
}

// both4and6 is a session of a UE with two addresses.
func both4and6(n, teid uint32) Session {
	s := plain(n, teid)
	s.Rules[0].Sources = append(s.Rules[0].Sources, ue6(n))
	s.Rules[1].Destinations = append(s.Rules[1].Destinations, ue6(n))
	return s
}

// rich is a session with filters both ways: DNS and a range of ports go by rules
// of their own, each with a meter that it shares with the rest.
func rich(n, teid uint32) Session {
	s := both4and6(n, teid)
	s.Meters = []Meter{{Rate: 100_000}, {Rate: 200_000}, {Packets: 60000, Period: time.Second}}
	dns, web := anyFilter, anyFilter
	dns.AnyProtocol, dns.Protocol, dns.RemotePorts = false, 17, [2]uint16{53, 53}
	web.AnyProtocol, web.Protocol, web.RemotePorts = false, 6, [2]uint16{443, 1000}
	for i, f := range []Filter{dns, web} {
		up, down := s.Rules[0], s.Rules[1]
		up.ID, up.Precedence, up.Filters, up.Meters = uint16(3+2*i), uint32(10+i), []Filter{f}, []int{0}
		down.ID, down.Precedence, down.Filters, down.Meters = uint16(4+2*i), uint32(10+i), []Filter{f}, []int{1}
		if i == 0 {
			down.Meters = []int{1, 2}
		}
		s.Rules = append(s.Rules, up, down)
	}
	return s
}

// variants are sessions of one UE, among which a test changes.
func variants() map[string]Session {
	const teid = 7
	with := func(s Session, change func(*Session)) Session {
		change(&s)
		return s
	}
	ever := func(r *Rule, f func(*Rule)) { f(r) }
	out := map[string]Session{
		"plain": plain(5, teid), "both": both4and6(5, teid), "rich": rich(5, teid),
		"handover": with(plain(5, teid), func(s *Session) { s.Rules[1].Forward = gnb(9, "10.0.0.3") }),
		"handover and QFI": with(plain(5, teid), func(s *Session) {
			s.Rules[1].Forward, s.Rules[1].QFI = gnb(8, "2001:db8::3"), 5
		}),
		"both, handover and QFI": with(both4and6(5, teid), func(s *Session) {
			s.Rules[1].Forward, s.Rules[1].QFI = gnb(8, "10.0.0.4"), 6
		}),
		"idle": with(plain(5, teid), func(s *Session) { s.Rules[1].Action = ActionBuffer }),
		"held": with(plain(5, teid), func(s *Session) { s.Rules[1].Action, s.Rules[1].Forward = ActionHold, gnb(5, "10.0.0.7") }),
		"nowhere yet": with(plain(5, teid), func(s *Session) {
			s.Rules[1].Action, s.Rules[1].Forward = ActionDrop, Forwarding{}
		}),
		"closed": with(plain(5, teid), func(s *Session) { s.Rules[0].Action = ActionGate }),
		"n9 policy": with(plain(5, teid), func(s *Session) {
			s.Rules[0].Forward = Forwarding{Kind: ForwardPolicy, Flow: class.SessionFlow{Policy: "n9"}}
		}),
		"n9 SRv6": with(plain(5, teid), func(s *Session) {
			s.Rules[0].Forward = Forwarding{Kind: ForwardSRv6, Remote: addr("fc00:d::1"), Slice: 3, ToS: 0xb8, ToSMask: 0xfc}
		}),
		"rates": with(plain(5, teid), func(s *Session) { s.Rules[0].Rate, s.Rules[1].Rate = 1e6, 2e6 }),
		"meters": with(plain(5, teid), func(s *Session) {
			s.Meters = []Meter{{Rate: 1e6}, {Packets: 60000, Period: time.Second}}
			s.Rules[0].Meters, s.Rules[1].Meters = []int{0}, []int{0, 1}
		}),
		"limits": with(plain(5, teid), func(s *Session) {
			s.Rules[0].NotifyAt, s.Rules[1].StopAt, s.Rules[1].NotifyAt = 1<<30, 1<<31, 1<<45
		}),
		"another TEID":     plain(5, 1<<24|9),
		"a TEID elsewhere": plain(5, 0xabcdef01),
		"another address": with(plain(5, teid), func(s *Session) {
			other := prefix("10.77.0.1/32")
			s.Rules[0].Sources, s.Rules[1].Destinations = []netip.Prefix{other}, []netip.Prefix{other}
		}),
		"framed": with(both4and6(5, teid), func(s *Session) {
			for _, p := range []netip.Prefix{prefix("192.168.7.0/24"), prefix("2001:db8:7::/48")} {
				s.Rules[0].Sources = append(s.Rules[0].Sources, p)
				s.Rules[1].Destinations = append(s.Rules[1].Destinations, p)
			}
		}),
		"rich, only DNS": with(rich(5, teid), func(s *Session) { s.Rules = s.Rules[2:4] }),
		"rich, turned round": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				ever(&s.Rules[i], func(r *Rule) { r.Precedence = 1000 - r.Precedence })
			}
		}),
		"rich, handover and QFI": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				if r := &s.Rules[i]; r.Direction == Downlink {
					r.Forward, r.QFI = gnb(20+uint32(r.ID), "10.0.0.3"), 7
				}
			}
		}),
		"rich, other filters and QFI": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				r := &s.Rules[i]
				r.Precedence = 1000 - r.Precedence
				if r.Direction == Downlink {
					r.QFI = 7
				} else if r.Action == ActionForward {
					r.Action = ActionGate
				}
			}
		}),
		"other rules": with(plain(5, teid), func(s *Session) { s.Rules[0].ID, s.Rules[1].ID = 11, 12 }),
		"at a SID": with(plain(5, teid), func(s *Session) {
			s.Rules[0].QFIs, s.Rules[0].AtSID = 1<<9, AtSID{Slice: 3, UEs: s.Rules[0].Sources}
		}),
		"at another SID": with(both4and6(5, teid), func(s *Session) {
			s.Rules[0].AtSID = AtSID{Slice: 4, UEs: s.Rules[0].Sources}
		}),
		"rich, at a SID": with(rich(5, teid), func(s *Session) {
			for i := range s.Rules {
				if r := &s.Rules[i]; r.Direction == Uplink {
					r.AtSID = AtSID{Slice: 3, UEs: r.Sources}
				}
			}
		}),
		"down to a SID": with(plain(5, teid), func(s *Session) {
			s.Rules[1].TEID, s.Rules[1].AtSID = 9, AtSID{Slice: 3, UEs: s.Rules[1].Destinations}
			s.Rules[1].Destinations = nil
		}),
		"nothing": {ID: 5},
	}
	return out
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
