package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// probe is a packet, as a UE or the network sends it.
type probe struct {
	uplink   bool
	teid     uint32 // 0: it came without GTP-U
	ue, peer netip.Addr
	protocol uint8
	uePort   uint16
	peerPort uint16
	qfi      uint8
}

// asSaid finds the PDR of a packet, and what becomes of it, by what the SMF
// said: straight from TS 29.244, rule by rule.
func asSaid(s *session.Session, p probe) (pdr uint16, what string) {
	var best *session.PDR
	for i := range s.PDRs {
		r := &s.PDRs[i]
		if (r.PDI.Source == session.Access) != p.uplink || r.PDI.TEID != p.teid || !among(r.PDI.UE, p.ue) ||
			p.teid != 0 && len(r.PDI.QFIs) > 0 && !slices.Contains(r.PDI.QFIs, p.qfi) {
			continue
		}
		matches := len(r.PDI.Filters) == 0
		for _, f := range r.PDI.Filters {
			matches = matches || (!f.Remote.IsValid() || f.Remote.Contains(p.peer)) && (!f.Local.IsValid() || f.Local.Contains(p.ue)) &&
				(f.AnyProtocol || f.Protocol == p.protocol) && inPorts(f.RemotePorts, p.peerPort) && inPorts(f.LocalPorts, p.uePort)
		}
		if matches && (best == nil || r.Precedence < best.Precedence) {
			best = r
		}
	}
	if best == nil {
		return 0, "none"
	}
	far := s.FAR(best.FAR)
	closed := false
	for _, id := range best.QERs {
		q := s.QER(id)
		closed = closed || p.uplink && q.UplinkClosed || !p.uplink && q.DownlinkClosed
	}
	switch {
	case far.Action&session.Drop != 0:
		return best.ID, "drop"
	case closed:
		return best.ID, "gate"
	case far.Action&session.Buffer != 0:
		return best.ID, "buffer"
	case far.Forwarding.Outer != nil:
		return best.ID, fmt.Sprint("to ", far.Forwarding.Outer.Addr, " ", far.Forwarding.Outer.TEID)
	case far.Forwarding.Destination == session.Access:
		return best.ID, "drop"
	}
	return best.ID, "out"
}

// asPut does it by what the data path is given.
func asPut(s datapath.Session, p probe) (rule uint16, what string) {
	var best *datapath.Rule
	for i := range s.Rules {
		r := &s.Rules[i]
		if r.TEID != p.teid || p.teid == 0 && !among(r.Destinations, p.ue) || p.teid != 0 && !among(r.Sources, p.ue) ||
			r.QFIs != 0 && r.QFIs>>p.qfi&1 == 0 {
			continue
		}
		matches := len(r.Filters) == 0
		for _, f := range r.Filters {
			matches = matches || (!f.Remote.IsValid() || f.Remote.Contains(p.peer)) && (!f.Local.IsValid() || f.Local.Contains(p.ue)) &&
				(f.AnyProtocol || f.Protocol == p.protocol) && f.RemotePorts[0] <= p.peerPort && p.peerPort <= f.RemotePorts[1] &&
				f.LocalPorts[0] <= p.uePort && p.uePort <= f.LocalPorts[1]
		}
		if matches && (best == nil || r.Precedence < best.Precedence) {
			best = r
		}
	}
	if best == nil {
		return 0, "none"
	}
	switch best.Action {
	case datapath.ActionDrop:
		return best.ID, "drop"
	case datapath.ActionGate:
		return best.ID, "gate"
	case datapath.ActionBuffer:
		return best.ID, "buffer"
	}
	if best.Forward.Kind == datapath.ForwardGTPU {
		return best.ID, fmt.Sprint("to ", best.Forward.Remote, " ", best.Forward.TEID)
	}
	return best.ID, "out"
}

func among(list []netip.Prefix, a netip.Addr) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

func inPorts(list []session.PortRange, port uint16) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(r session.PortRange) bool { return r.From <= port && port <= r.To })
}

// randomSession has up to eight PDRs each way, few enough addresses and ports
// for packets to hit them.
func randomSession(r *rand.Rand) *session.Session {
	s := &session.Session{SEID: 1}
	ports := func() []session.PortRange {
		var out []session.PortRange
		for range r.IntN(3) {
			from := uint16(r.IntN(6))
			out = append(out, session.PortRange{From: from, To: from + uint16(r.IntN(3))})
		}
		return out
	}
	ues := sample.Prefixes("10.0.0.1/32", "10.0.0.2/32")
	precedence := r.Perm(64)
	for i := range 2 + r.IntN(14) {
		p := session.PDR{ID: uint16(i + 1), Precedence: uint32(precedence[i]), FAR: uint32(r.IntN(5) + 1)}
		p.PDI.UE = ues[:1+r.IntN(2)]
		if i%2 == 0 {
			p.PDI.TEID = uint32(r.IntN(2) + 1)
			if r.IntN(3) == 0 {
				p.PDI.QFIs = []uint8{uint8(r.IntN(3)), 5}
			}
		} else {
			p.PDI.Source = session.Core
		}
		for range r.IntN(3) {
			f := session.Filter{AnyProtocol: r.IntN(2) == 0, Protocol: 6 + 11*uint8(r.IntN(2)), RemotePorts: ports(), LocalPorts: ports()}
			if r.IntN(2) == 0 {
				f.Remote = sample.Prefixes("192.0.2.0/31", "192.0.2.2/32", "0.0.0.0/0")[r.IntN(3)]
			}
			if r.IntN(4) == 0 {
				f.Local = ues[r.IntN(2)]
			}
			p.PDI.Filters = append(p.PDI.Filters, f)
		}
		if r.IntN(3) == 0 {
			p.QERs = []uint32{uint32(r.IntN(3) + 1)}
		}
		s.PDRs = append(s.PDRs, p)
	}
	s.FARs = []session.FAR{
		{ID: 1, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Core}},
		{ID: 2, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Access, Outer: &session.OuterHeader{Addr: addr("192.0.2.77"), TEID: 4}}},
		{ID: 3, Action: session.Drop},
		{ID: 4, Action: session.Buffer, Forwarding: &session.Forwarding{Destination: session.Access}},
		{ID: 5, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Access}},
	}
	s.QERs = []session.QER{{ID: 1}, {ID: 2, UplinkClosed: true}, {ID: 3, DownlinkClosed: true}}
	return s
}

// For random rules and random packets the data path does what the SMF said.
func TestRulesAgreeWithTheSMF(t *testing.T) {
	hits := map[string]int{}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := randomSession(r)
		put, err := compiled(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			p := probe{
				uplink: r.IntN(2) == 0, ue: addr("10.0.0.1"), peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))}),
				protocol: 6 + 11*uint8(r.IntN(2)), uePort: uint16(r.IntN(9)), peerPort: uint16(r.IntN(9)),
			}
			if r.IntN(2) == 0 {
				p.ue = addr("10.0.0.2")
			}
			if p.uplink {
				p.teid, p.qfi = uint32(r.IntN(2)+1), uint8(r.IntN(6))
			}
			pdr, said := asSaid(s, p)
			rule, done := asPut(put, p)
			if pdr != rule || said != done {
				t.Fatalf("seed %d, %+v: PDR %d %s, but rule %d %s", seed, p, pdr, said, rule, done)
			}
			hits[said]++
		}
	}
	for _, what := range []string{"none", "drop", "gate", "buffer", "out", "to 192.0.2.77 4"} {
		if hits[what] < 100 {
			t.Errorf("%q came %d times only", what, hits[what])
		}
	}
}
