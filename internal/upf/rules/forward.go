package rules

import (
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// setAction sets what a rule does with its packets. DROP comes first, then a
// closed gate, then BUFF, then FORW.
func (c *compiler) setAction(r *datapath.Rule, p *session.PDR, far *session.FAR) error {
	qos := c.qosOf(p, r.Direction)
	forwarding, known, err := c.forwarding(far, qos.flow(p))
	if err != nil {
		return err
	}
	switch {
	case far.Action&session.Drop != 0:
		r.Action = datapath.ActionDrop
	case qos.closed:
		r.Action = datapath.ActionGate
	case far.Action&session.Buffer != 0:
		r.Action = datapath.ActionBuffer
	case far.Action&session.Forward != 0 && known:
		r.Action = datapath.ActionForward
		r.Forward = forwarding
		r.Duplicate = far.Action&session.Duplicate != 0 && len(far.Duplicates) > 0
		qos.mark(r, far.Forwarding.Destination)
	}
	return nil
}

// qos is what the QERs of a PDR say in its direction, besides rates.
type qos struct {
	closed bool // the gate
	qfi    *uint8
	rqi    bool
}

// qosOf reads the QERs of a PDR. SMFs of free5GC and SD-Core give a QFI to the QER of the
// session's AMBR, too, which all PDRs have: the QER that fewest PDRs have names the flow.
func (c *compiler) qosOf(p *session.PDR, d datapath.Direction) (out qos) {
	fewest := 0
	for _, id := range p.QERs {
		q := c.Session.QER(id)
		if q == nil {
			continue
		}
		out.closed = out.closed || pick(d, q.UplinkClosed, q.DownlinkClosed)
		if q.QFI == nil {
			continue
		}
		out.rqi = out.rqi || q.Reflective
		if n := c.users(id); out.qfi == nil || n < fewest {
			out.qfi, fewest = q.QFI, n
		}
	}
	return out
}

// users counts the PDRs that have a QER.
func (c *compiler) users(qer uint32) (n int) {
	for i := range c.Session.PDRs {
		if slices.Contains(c.Session.PDRs[i].QERs, qer) {
			n++
		}
	}
	return n
}

// flow is the QFI of the packets of a PDR; nil: nothing says which one they have, or they may
// have several.
func (q qos) flow(p *session.PDR) *uint8 {
	if q.qfi == nil && len(p.PDI.QFIs) == 1 {
		return &p.PDI.QFIs[0]
	}
	return q.qfi
}

// mark sets the QFI of packets that are forwarded: in a PDU Session Container
// where they leave by GTP-U, but not to the control plane, or in the argument of
// a SID. Only downlink packets carry RQI.
func (q qos) mark(r *datapath.Rule, to session.Interface) {
	container := r.Forward.Kind == datapath.ForwardGTPU && to != session.CPFunction
	if q.qfi == nil || !container && r.Forward.ArgsOffset == 0 {
		return
	}
	r.QFI, r.RQI = *q.qfi, q.rqi && r.Direction == datapath.Downlink
	if container {
		r.Container = pick(r.Direction, datapath.ContainerUplink, datapath.ContainerDownlink)
	}
}

// forwarding resolves Forwarding Parameters, for packets with that QFI. known is false where
// they do not say yet where packets go.
func (c *compiler) forwarding(far *session.FAR, qfi *uint8) (f datapath.Forwarding, known bool, err error) {
	to := far.Forwarding
	if to == nil {
		return f, false, nil
	}
	f.Slice = c.Index
	f.ToS, f.ToSMask = to.ToS&to.ToSMask, to.ToSMask
	switch {
	case to.Destination == session.LIFunction:
		return f, false, fmt.Errorf("forwarding to an LI function: %w", pfcp.ErrUnsupported)
	case to.Outer != nil && to.Outer.Kind != session.OuterGTPU:
		return f, false, fmt.Errorf("an outer header other than GTP-U: %w", pfcp.ErrUnsupported)
	case c.mayBySRv6(to) && c.bySRv6(&f, to.Destination, qfi):
		// The argument has the F-TEID's number, as GTP-U would (RFC 9433 section 6.1).
		// Nothing else says which session a frame belongs to.
		if f.ArgsOffset = c.n9().ArgsOffset; f.ArgsOffset != 0 && to.Outer != nil {
			f.TEID = to.Outer.TEID
		}
		if c.ethernet() && f.ArgsOffset == 0 {
			return f, false, fmt.Errorf("the slice's n9 needs args_offset for Ethernet frames by SRv6: %w", pfcp.ErrUnsupported)
		}
		return f, true, nil
	case to.Outer != nil:
		f.Kind, f.Remote, f.TEID = datapath.ForwardGTPU, to.Outer.Addr, to.Outer.TEID
		f.Control = to.Destination == session.CPFunction
		return f, true, nil
	case to.Destination == session.Access || to.Destination == session.CPFunction:
		return f, false, nil
	case c.ethernet():
		f.Kind = datapath.ForwardLink
		f.Link, err = c.link()
		return f, err == nil, err
	}
	f.Kind, f.Internal = datapath.ForwardTable, to.InterfaceType != nil && *to.InterfaceType == session.TypeN19
	f.Group = c.group
	switch {
	case c.Slice != nil && c.Slice.Imports():
		f.Kind, f.VPN = datapath.ForwardVPN, c.VPN
	case c.Slice != nil:
		f.Table = c.Slice.Table
	}
	return f, true, nil
}

// mayBySRv6 says whether packets may take the SIDs that the slice has for its N9. Those
// that the SMF gives no outer header go there as well if the session has no other N9, or
// is it: beside one that has, as an uplink classifier does, they leave by N6 here.
func (c *compiler) mayBySRv6(to *session.Forwarding) bool {
	switch {
	case to.Destination == session.CPFunction:
		return false
	case to.Outer != nil:
		return true
	case c.ethernet():
		return false
	}
	isN9 := to.InterfaceType != nil && *to.InterfaceType == session.TypeN9
	return to.Destination == session.Access || isN9 || !c.hasOuterToCore()
}

// uplinkBySRv6 says whether the slice has a SID or a policy for uplink packets.
func (c *compiler) uplinkBySRv6() bool { return c.bySRv6(&datapath.Forwarding{}, session.Core, nil) }

// bySRv6 says whether the slice carries N9 by SRv6, and how. That takes
// precedence over what the SMF says of N9.
func (c *compiler) bySRv6(f *datapath.Forwarding, to session.Interface, qfi *uint8) bool {
	n9 := c.n9()
	if n9 == nil || n9.Transport != slice.SRv6 {
		return false
	}
	if n9.Mode == slice.Enhanced {
		policy := toward(to, n9.UplinkPolicy, n9.DownlinkPolicy)
		if policy == "" {
			return false
		}
		f.Kind, f.Flow = datapath.ForwardPolicy, class.SessionFlow{Slice: c.Slice.Name, Policy: policy, QFI: class.NoQFI}
		if qfi != nil {
			f.Flow.QFI = *qfi
		}
		return true
	}
	f.Kind, f.Remote = datapath.ForwardSRv6, toward(to, n9.Uplink, n9.Downlink)
	return f.Remote.IsValid()
}

// link returns the N6 link of an Ethernet session.
func (c *compiler) link() (ethernet.Link, error) {
	if c.Slice == nil || c.Slice.N6 == nil {
		return ethernet.Link{}, fmt.Errorf("the session's slice has no n6, by which Ethernet sessions leave: %w", pfcp.ErrUnsupported)
	}
	return ethernet.Link(*c.Slice.N6), nil
}

// toward returns the one of two values that is for packets to an interface.
func toward[T any](to session.Interface, up, down T) T {
	if to == session.Access {
		return down
	}
	return up
}

// pick returns the one of two values that is a direction's.
func pick[T any](d datapath.Direction, up, down T) T {
	if d == datapath.Uplink {
		return up
	}
	return down
}
