package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/class"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// Input is what the rules of a session depend on.
type Input struct {
	Session *session.Session
	Slice   *slice.Slice // nil: none
	Index   uint32       // of the slice in the data path
	UEToUE  slice.UEToUE // where the slice does not say; "": drop
	VPN     uint8        // number of the slice's VPN (slice.VPNNumbers)
}

// compiler makes the rules of one session.
type compiler struct {
	Input
	out     datapath.Session
	group   datapath.Group // of the UE
	filters [2]int         // by direction
}

// Compile returns what the data path holds of a session. An error is a
// *session.RuleError that names the rule at fault.
func Compile(in Input) (datapath.Session, error) {
	s := in.Session
	c := compiler{Input: in, out: datapath.Session{ID: s.SEID, Rules: make([]datapath.Rule, 0, len(s.PDRs))}}
	c.group = c.groupOfUE()
	for i := range s.PDRs {
		if err := c.compilePDR(&s.PDRs[i]); err != nil {
			return datapath.Session{}, err
		}
	}
	if err := c.compileQERs(); err != nil {
		return datapath.Session{}, err
	}
	return c.out, nil
}

// Direction is the direction of a PDR's packets. Access is where the UE is (TS
// 29.244 section 8.2.2), whatever the 3GPP Interface Type says.
func Direction(p *session.PDR) datapath.Direction {
	if p.PDI.Source == session.Access {
		return datapath.Uplink
	}
	return datapath.Downlink
}

// PDR returns the PDR that a rule of the data path was made of, or nil.
func PDR(s *session.Session, rule uint16) *session.PDR { return s.PDR(rule) }

// FAR returns the FAR of the PDR that a rule of the data path was made of, or nil.
func FAR(s *session.Session, rule uint16) *session.FAR {
	if p := PDR(s, rule); p != nil {
		return s.FAR(p.FAR)
	}
	return nil
}

func ruleError(kind session.RuleKind, id uint32, err error) error {
	return &session.RuleError{Kind: kind, ID: id, Err: err}
}

// compilePDR appends the rules of a PDR.
func (c *compiler) compilePDR(p *session.PDR) error {
	fail := func(err error) error { return ruleError(session.RulePDR, uint32(p.ID), err) }
	if len(p.PDI.Ethernet) > 0 && (!c.ethernet() || len(p.PDI.Filters) > 0) {
		return fail(fmt.Errorf("a PDR with Ethernet packet filters needs a session of PDN type Ethernet and may have no SDF filters: %w", pfcp.ErrUnsupported))
	}
	far := c.Session.FAR(p.FAR)
	if far == nil {
		return fail(fmt.Errorf("FAR %d does not exist", p.FAR))
	}
	r := datapath.Rule{
		ID: p.ID, Precedence: p.Precedence, Direction: Direction(p), TEID: p.PDI.TEID, Ethernet: c.ethernet(),
	}
	for _, q := range p.PDI.QFIs {
		r.QFIs |= 1 << (q & 63)
	}
	var err error
	if r.Filters, err = c.filtersOf(p, maxFilters-c.filters[r.Direction]); err != nil {
		return fail(err)
	}
	if r.Ethernet && r.TEID == 0 {
		if r.Link, err = c.link(); err != nil {
			return fail(err)
		}
	}
	c.filters[r.Direction] += len(r.Filters)
	c.setAddresses(&r, p, far)
	if err := c.setAction(&r, p, far); err != nil {
		return ruleError(session.RuleFAR, far.ID, err)
	}
	if c.n9() != nil && c.n9().LocalSID.IsValid() {
		c.setAtSID(&r, p)
	}
	c.out.Rules = append(c.out.Rules, r)
	return nil
}

// Flows returns the flows of PDRs whose packets Compile has forwarded by an SR policy, by PDR ID.
// Nil: the session's slice has none.
func Flows(in Input) (map[uint16]class.SessionFlow, error) {
	if in.Slice == nil || in.Slice.N9 == nil || in.Slice.N9.Mode != slice.Enhanced {
		return nil, nil
	}
	compiled, err := Compile(in)
	out := map[uint16]class.SessionFlow{}
	for i := range compiled.Rules {
		if r := &compiled.Rules[i]; r.Forward.Kind == datapath.ForwardPolicy {
			out[r.ID] = r.Forward.Flow
		}
	}
	return out, err
}

// setAtSID has a rule apply to packets at the slice's SID too, where another UPF may send
// those of the PDR: from the access, by N9, at the anchor; from the core, by N9, or where
// the slice's N6 goes by SRv6. Without an argument only the UE's address says whose such a
// packet is, and so which way it goes. A rule that may be N3's must not be found by it, or
// a packet from one UE to another, on its way back to them, would be taken for another
// one's uplink.
func (c *compiler) setAtSID(r *datapath.Rule, p *session.PDR) {
	relays, known := c.relays(), p.PDI.InterfaceType
	byUE, byTEID := false, false
	switch p.PDI.Source {
	case session.Access:
		byUE = r.TEID != 0 && (known != nil && *known == session.TypeN9 || !relays && !c.uplinkBySRv6())
		byTEID = r.TEID != 0 && known == nil
	case session.Core, session.SGiLAN:
		byUE = r.TEID != 0 || !relays && c.uplinkBySRv6()
	}
	if !byUE && !byTEID || r.Link != (datapath.Link{}) {
		return
	}
	r.AtSID.Slice = c.Index
	if byUE && !r.Ethernet {
		r.AtSID.UEs = slices.DeleteFunc(c.ue(p), func(p netip.Prefix) bool { return !isUE(p) })
	}
}

// isUE says whether a prefix is what a UE has, and not a network behind it.
func isUE(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() == 32 || p.Addr().Is6() && p.Bits() == 64
}

// relays says whether the SMF has the session go on to another UPF, by N9.
func (c *compiler) relays() bool {
	return c.hasOuterToCore() || slices.ContainsFunc(c.Session.PDRs, func(p session.PDR) bool {
		return (p.PDI.Source == session.Core || p.PDI.Source == session.SGiLAN) && p.PDI.TEID != 0
	})
}

// hasOuterToCore says whether a FAR sends by N9 as the SMF says.
func (c *compiler) hasOuterToCore() bool {
	return slices.ContainsFunc(c.Session.FARs, func(f session.FAR) bool {
		to := f.Forwarding
		return to != nil && to.Outer != nil && (to.Destination == session.Core || to.Destination == session.SGiLAN)
	})
}

func (c *compiler) ethernet() bool { return c.Session.PDNType == session.PDNEthernet }

func (c *compiler) n9() *slice.N9 {
	if c.Slice == nil {
		return nil
	}
	return c.Slice.N9
}

// setAddresses sets where a rule's packets come from, or go to. A UE may send to
// the control plane from any address: it may have none yet (RFC 4861 section 4.1).
func (c *compiler) setAddresses(r *datapath.Rule, p *session.PDR, far *session.FAR) {
	switch {
	case r.Ethernet: // the addresses of its UE are unknown
	case r.TEID == 0:
		r.Destinations, r.Group = c.ue(p), c.group
	case r.Direction == datapath.Uplink:
		toCP := far.Forwarding != nil && far.Forwarding.Destination == session.CPFunction
		if len(p.PDI.UE) > 0 || !toCP {
			r.Sources = c.ue(p)
		}
	}
}

// ue lists the addresses of the UE that a PDR names, or else those of the whole
// session, and in the same way the networks behind the UE.
func (c *compiler) ue(p *session.PDR) []netip.Prefix {
	var out []netip.Prefix
	add := func(of func(*session.PDI) []netip.Prefix) {
		list := of(&p.PDI)
		for i := 0; len(of(&p.PDI)) == 0 && i < len(c.Session.PDRs); i++ {
			list = append(list[:len(list):len(list)], of(&c.Session.PDRs[i].PDI)...)
		}
		for _, prefix := range list {
			if prefix = prefix.Masked(); !slices.Contains(out, prefix) {
				out = append(out, prefix)
			}
		}
	}
	add(func(p *session.PDI) []netip.Prefix { return p.UE })
	add(func(p *session.PDI) []netip.Prefix { return p.FramedRoutes })
	return out
}
