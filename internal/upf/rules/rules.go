package upf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// maxFilters bounds the SDF filters of a direction, with the lists of ports
// that are in them written out.
const maxFilters = 64

// otherID is set in the ID of a second rule of a PDR, or cleared where the PDR
// itself has it.
const otherID = 0x8000

// compiler makes what the data path holds of one session. It looks at nothing
// else.
type compiler struct {
	s     *session.Session
	slice *slice.Slice // nil: of none
	index uint32       // of the slice in the data path
	// instead is the FAR that holds for a PDR whose quota is used up.
	instead map[uint16]uint32

	out     dataplane.Session
	filters [2]int // by direction
}

// compile resolves what the rules of a session refer to.
func (c *compiler) compile() (dataplane.Session, error) {
	c.out = dataplane.Session{ID: c.s.SEID, Rules: make([]dataplane.Rule, 0, len(c.s.PDRs))}
	for i := range c.s.PDRs {
		if err := c.pdr(&c.s.PDRs[i]); err != nil {
			return dataplane.Session{}, err
		}
	}
	if err := c.rates(); err != nil {
		return dataplane.Session{}, err
	}
	return c.out, nil
}

// direction of a PDR's packets: Access is where the UE is (TS 29.244 section
// 8.2.2), whatever the 3GPP Interface Type.
func direction(p *session.PDR) dataplane.Direction {
	if p.PDI.Source == session.Access {
		return dataplane.Uplink
	}
	return dataplane.Downlink
}

// pdr appends the rule of a PDR. One whose packets come by N9 has a second one,
// for what comes by SRv6 instead of GTP-U.
func (c *compiler) pdr(p *session.PDR) error {
	fail := func(err error) error { return &pfcp.RuleError{Kind: pfcp.RulePDR, ID: uint32(p.ID), Err: err} }
	ethernet := isEthernet(c.s)
	if len(p.PDI.Ethernet) > 0 && (!ethernet || len(p.PDI.Filters) > 0) {
		return fail(fmt.Errorf("ethernet packet filters beside SDF filters, or in a session that is not of PDN type Ethernet: %w", pfcp.ErrUnsupported))
	}
	far, err := c.farOf(p)
	if err != nil {
		return err
	}
	r := dataplane.Rule{
		ID: p.ID, Precedence: p.Precedence, Direction: direction(p),
		TEID: p.PDI.TEID, QFIs: qfis(p.PDI.QFIs), Ethernet: ethernet,
	}
	if r.Filters, err = c.filtersOf(p, maxFilters-c.filters[r.Direction]); err != nil {
		return fail(err)
	}
	if ethernet && r.TEID == 0 {
		if r.Link, err = c.link(); err != nil {
			return fail(err)
		}
	}
	c.filters[r.Direction] += len(r.Filters)
	c.addresses(&r, p, far)
	if err := c.action(&r, p, far); err != nil {
		return &pfcp.RuleError{Kind: pfcp.RuleFAR, ID: far.ID, Err: err}
	}
	c.out.Rules = append(c.out.Rules, r)
	if c.alsoByUE(p) && !ethernet {
		r.ID ^= otherID
		if byID(c.s.PDRs, r.ID, pdrID) != nil {
			return fail(fmt.Errorf("a PDR has the ID %d that its way by SRv6 needs: %w", r.ID, pfcp.ErrNoResources))
		}
		r.TEID, r.Sources, r.QFIs = 0, nil, 0
		r.Destinations = c.ue(p)
		if len(r.Destinations) > 0 {
			c.out.Rules = append(c.out.Rules, r)
		}
	}
	return nil
}

// alsoByUE: what another UPF sends to the slice's SID has no TEID.
func (c *compiler) alsoByUE(p *session.PDR) bool {
	n9 := c.n9()
	return n9 != nil && n9.LocalSID.IsValid() && p.PDI.TEID != 0 &&
		(p.PDI.Source == session.Core || p.PDI.Source == session.SGiLAN)
}

func (c *compiler) n9() *slice.N9 {
	if c.slice == nil {
		return nil
	}
	return c.slice.N9
}

func (c *compiler) farOf(p *session.PDR) (*session.FAR, error) {
	id := p.FAR
	if instead, ok := c.instead[p.ID]; ok {
		id = instead
	}
	far := byID(c.s.FARs, id, farID)
	if far == nil {
		return nil, &pfcp.RuleError{Kind: pfcp.RulePDR, ID: uint32(p.ID), Err: fmt.Errorf("there is no FAR %d", id)}
	}
	return far, nil
}

// addresses says where a rule's packets come from or go to. What a UE sends to
// the control plane is not held to its address: it may have none yet (RFC 4861
// section 4.1).
func (c *compiler) addresses(r *dataplane.Rule, p *session.PDR, far *session.FAR) {
	switch {
	case r.Ethernet: // its UE has no addresses that we know
	case r.TEID == 0:
		r.Destinations = c.ue(p)
	case r.Direction == dataplane.Uplink:
		toCP := far.Forwarding != nil && far.Forwarding.Destination == session.CPFunction
		if len(p.PDI.UE) > 0 || !toCP {
			r.Sources = c.ue(p)
		}
	}
}

// ue are the addresses of the UE that a PDR says, or else all of the session's,
// and the networks behind the UE.
func (c *compiler) ue(p *session.PDR) []netip.Prefix {
	var out []netip.Prefix
	add := func(list []netip.Prefix) {
		for _, prefix := range list {
			if prefix = prefix.Masked(); !slices.Contains(out, prefix) {
				out = append(out, prefix)
			}
		}
	}
	if add(p.PDI.UE); len(p.PDI.UE) == 0 {
		for i := range c.s.PDRs {
			add(c.s.PDRs[i].PDI.UE)
		}
	}
	if add(p.PDI.FramedRoutes); len(p.PDI.FramedRoutes) == 0 {
		for i := range c.s.PDRs {
			add(c.s.PDRs[i].PDI.FramedRoutes)
		}
	}
	return out
}

// action says what is done: what drops comes before what keeps, and closed
// gates in between.
func (c *compiler) action(r *dataplane.Rule, p *session.PDR, far *session.FAR) error {
	closed := false
	for _, id := range p.QERs {
		q := byID(c.s.QERs, id, qerID)
		if q == nil {
			continue
		}
		closed = closed || r.Direction == dataplane.Uplink && q.UplinkClosed || r.Direction == dataplane.Downlink && q.DownlinkClosed
		if q.QFI != nil {
			r.QFI = *q.QFI
			r.Container = dataplane.ContainerUplink
			if r.Direction == dataplane.Downlink {
				r.Container, r.RQI = dataplane.ContainerDownlink, r.RQI || q.Reflective
			}
		}
	}
	forwarding, ok, err := c.forwarding(r.Direction, far)
	switch {
	case err != nil:
		return err
	case far.Action&session.Drop != 0:
		r.Action = dataplane.ActionDrop
	case closed:
		r.Action = dataplane.ActionGate
	case far.Action&session.Buffer != 0:
		r.Action = dataplane.ActionBuffer
	case far.Action&session.Forward != 0 && ok:
		r.Action = dataplane.ActionForward
		r.Forward = forwarding
		r.Duplicate = far.Action&session.Duplicate != 0 && len(far.Duplicates) > 0
	}
	if r.Action != dataplane.ActionForward || forwarding.Kind != dataplane.ForwardGTPU || far.Forwarding.Destination == session.CPFunction {
		r.Container = dataplane.ContainerNone
		if forwarding.ArgsOffset == 0 || r.Action != dataplane.ActionForward {
			r.QFI, r.RQI = 0, false
		}
	}
	return nil
}

// forwarding resolves Forwarding Parameters; false: they do not say yet where
// packets go.
func (c *compiler) forwarding(d dataplane.Direction, far *session.FAR) (f dataplane.Forwarding, ok bool, err error) {
	to := far.Forwarding
	if to == nil {
		return f, false, nil
	}
	f.Slice = c.index
	f.ToS, f.ToSMask = to.ToS&to.ToSMask, to.ToSMask
	if to.Destination == session.LIFunction {
		return f, false, fmt.Errorf("forwarding to an LI function: %w", pfcp.ErrUnsupported)
	}
	if to.Outer != nil && to.Outer.Kind != session.OuterGTPU {
		return f, false, fmt.Errorf("an outer header other than GTP-U: %w", pfcp.ErrUnsupported)
	}
	if to.Destination != session.CPFunction && (to.Outer != nil || !isEthernet(c.s)) && c.bySRv6(&f, to.Destination) {
		if isEthernet(c.s) {
			err = c.argument(&f, to.Outer)
		}
		return f, err == nil, err
	}
	if to.Outer != nil {
		f.Kind, f.Remote, f.TEID = dataplane.ForwardGTPU, to.Outer.Addr, to.Outer.TEID
		return f, true, nil
	}
	if to.Destination == session.Access || to.Destination == session.CPFunction {
		return f, false, nil
	}
	if isEthernet(c.s) {
		f.Kind = dataplane.ForwardLink
		f.Link, err = c.link()
		return f, err == nil, err
	}
	f.Kind, f.Internal = dataplane.ForwardTable, to.InterfaceType != nil && *to.InterfaceType == session.TypeN19
	if c.slice != nil {
		f.Table = c.slice.Table
	}
	return f, true, nil
}

// bySRv6 is the slice's own way between user plane functions, which stands
// before what the SMF says of N9.
func (c *compiler) bySRv6(f *dataplane.Forwarding, to session.Interface) bool {
	n9 := c.n9()
	if n9 == nil || n9.Transport != slice.SRv6 {
		return false
	}
	sid, policy := n9.Uplink, n9.UplinkPolicy
	if to == session.Access {
		sid, policy = n9.Downlink, n9.DownlinkPolicy
	}
	if n9.Mode == slice.Enhanced {
		f.Kind, f.Policy = dataplane.ForwardPolicy, policy
		return policy != ""
	}
	f.Kind, f.Remote = dataplane.ForwardSRv6, sid
	return sid.IsValid()
}

// rates gives each rule the limits of its QERs. A QER that only one rule of a
// direction has is that rule's own limit, which costs nothing more; others are
// meters that rules share.
func (c *compiler) rates() error {
	for _, d := range []dataplane.Direction{dataplane.Uplink, dataplane.Downlink} {
		for i := range c.s.QERs {
			c.qer(d, &c.s.QERs[i])
		}
	}
	for i := range c.out.Rules {
		if len(c.out.Rules[i].Meters) > maxMeters {
			return &pfcp.RuleError{Kind: pfcp.RulePDR, ID: uint32(c.pdrOf(c.out.Rules[i].ID).ID), Err: fmt.Errorf("more than %d QERs: %w", maxMeters, pfcp.ErrNoResources)}
		}
	}
	return nil
}

// maxMeters bounds what one packet may have to ask.
const maxMeters = 8

func (c *compiler) qer(d dataplane.Direction, q *session.QER) {
	var rate uint64
	var packets session.PacketRate
	if q.MBR != nil {
		rate = pick(d, q.MBR.Uplink, q.MBR.Downlink)
	}
	if q.PacketRate != nil {
		packets = pick(d, q.PacketRate.Uplink, q.PacketRate.Downlink)
	}
	if rate == 0 && packets.Packets == 0 {
		return
	}
	var rules []*dataplane.Rule
	for i := range c.out.Rules {
		r := &c.out.Rules[i]
		if r.Direction == d && slices.Contains(c.pdrOf(r.ID).QERs, q.ID) {
			rules = append(rules, r)
		}
	}
	if rate != 0 && len(rules) == 1 {
		if r := rules[0]; r.Rate == 0 || rate < r.Rate {
			r.Rate = rate
		}
		rate = 0
	}
	for _, m := range []dataplane.Meter{{Rate: rate}, {Packets: packets.Packets, Period: packets.Per}} {
		if m.Rate == 0 && m.Packets == 0 || len(rules) == 0 {
			continue
		}
		for _, r := range rules {
			r.Meters = append(r.Meters, len(c.out.Meters))
		}
		c.out.Meters = append(c.out.Meters, m)
	}
}

// pdrOf is the PDR that a rule of the data path was made of.
func (c *compiler) pdrOf(rule uint16) *session.PDR { return pdrOf(c.s, rule) }

// pdrOf is the PDR of a rule; nil where the session has none.
func pdrOf(s *session.Session, rule uint16) *session.PDR {
	if p := byID(s.PDRs, rule, pdrID); p != nil {
		return p
	}
	return byID(s.PDRs, rule^otherID, pdrID)
}

// pick is the one of a direction.
func pick[T any](d dataplane.Direction, up, down T) T {
	if d == dataplane.Uplink {
		return up
	}
	return down
}

func qfis(list []uint8) uint64 {
	var out uint64
	for _, q := range list {
		out |= 1 << (q & 63)
	}
	return out
}

// expand writes filters out. Where one takes every packet there are none: the
// rule is then found without.
func expand(list []session.Filter, most int) ([]dataplane.Filter, error) {
	for i := range list {
		if takesAll(&list[i]) {
			return nil, nil
		}
	}
	return writeOut(list, most)
}

// writeOut is one filter for each pair of ranges of ports: the data path
// compares one a side.
func writeOut(list []session.Filter, most int) ([]dataplane.Filter, error) {
	var out []dataplane.Filter
	anyPort := []session.PortRange{{From: 0, To: 65535}}
	for i := range list {
		f := &list[i]
		remote, local := f.RemotePorts, f.LocalPorts
		if len(remote) == 0 {
			remote = anyPort
		}
		if len(local) == 0 {
			local = anyPort
		}
		if len(out)+len(remote)*len(local) > most {
			return nil, fmt.Errorf("more than %d SDF filters in a direction: %w", maxFilters, pfcp.ErrNoResources)
		}
		for _, r := range remote {
			for _, l := range local {
				out = append(out, filter(f, r, l))
			}
		}
	}
	return out, nil
}

func takesAll(f *session.Filter) bool {
	return !f.Remote.IsValid() && !f.Local.IsValid() && f.AnyProtocol && len(f.RemotePorts) == 0 && len(f.LocalPorts) == 0 &&
		f.ToSMask == 0 && f.FlowLabel == nil && f.SPI == nil
}

func filter(f *session.Filter, remote, local session.PortRange) dataplane.Filter {
	out := dataplane.Filter{
		Remote: f.Remote, Local: f.Local, AnyProtocol: f.AnyProtocol, Protocol: f.Protocol,
		RemotePorts: [2]uint16{remote.From, remote.To}, LocalPorts: [2]uint16{local.From, local.To},
		ToS: f.ToS & f.ToSMask, ToSMask: f.ToSMask,
	}
	if f.FlowLabel != nil {
		out.HasFlowLabel, out.FlowLabel = true, *f.FlowLabel
	}
	if f.SPI != nil {
		out.HasSPI, out.SPI = true, *f.SPI
	}
	return out
}

// byID finds a rule in a list that is sorted by ID; nil: there is none.
func byID[T any, K uint8 | uint16 | uint32](list []T, id K, of func(*T) K) *T {
	low, high := 0, len(list)
	for low < high {
		if mid := (low + high) / 2; of(&list[mid]) < id {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < len(list) && of(&list[low]) == id {
		return &list[low]
	}
	return nil
}

func pdrID(p *session.PDR) uint16 { return p.ID }
func farID(f *session.FAR) uint32 { return f.ID }
func qerID(q *session.QER) uint32 { return q.ID }
func urrID(u *session.URR) uint32 { return u.ID }
func barID(b *session.BAR) uint8  { return b.ID }

// matchSlice finds the slice of a session: of those whose S-NSSAI and network
// instance do not contradict it the one that says most. 0 and nil: none.
func matchSlice(list []slice.Slice, s *session.Session) (index int, found *slice.Slice) {
	best := -1
	for i := range list {
		l := &list[i]
		score := 0
		switch snssai, ok := l.SNSSAI.Value(); {
		case !ok: // of any
		case s.SNSSAI == (session.SNSSAI{}):
			if l.NetworkInstance == "" {
				continue
			}
		case snssai == s.SNSSAI:
			score += 2
		default:
			continue
		}
		if l.NetworkInstance != "" {
			if !hasInstance(s, l.NetworkInstance) {
				continue
			}
			score++
		}
		if score > best {
			best, index, found = score, i, l
		}
	}
	return index, found
}

// hasInstance: a session is of the network instances of its rules, or of its
// data network.
func hasInstance(s *session.Session, name string) bool {
	if strings.EqualFold(s.DNN, name) {
		return true
	}
	for i := range s.PDRs {
		if strings.EqualFold(s.PDRs[i].PDI.NetworkInstance, name) {
			return true
		}
	}
	return slices.ContainsFunc(s.FARs, func(f session.FAR) bool {
		return f.Forwarding != nil && strings.EqualFold(f.Forwarding.NetworkInstance, name)
	})
}
