package request

import (
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// toPDI is a PDI that is being read, and what it leaves to the user plane.
type toPDI struct {
	*session.PDI
	want *Want
}

// readPDI reads a PDI. It replaces an old one as a whole.
func readPDI(x in, p *session.PDR) {
	b := x.b
	old := p.PDI
	p.PDI = session.PDI{}
	b.want = Want{PDR: p.ID, Created: x.u == create}
	w := &b.want
	s := pdiIEs.read(b, toPDI{&p.PDI, w}, x.Value, x.u)
	if x.u == changes {
		pdiIEs.complete(b, s)
	}
	b.checkPDI(&p.PDI)
	if x.u == changes {
		keepChosen(&p.PDI, &old, w)
	}
	if w.FTEID.Choose || w.Choose4 || w.Choose6 {
		b.Wants = append(b.Wants, *w)
	}
}

// keepChosen keeps the F-TEID that the user plane has chosen, if an update asks
// for one with the same CHOOSE ID or names it.
func keepChosen(pdi, old *session.PDI, w *Want) {
	if old.TEID != 0 && pdi.TEID == old.TEID {
		pdi.ChooseID = old.ChooseID
	}
	if w.FTEID.Choose && w.FTEID.ChooseID != nil && old.ChooseID != nil && *w.FTEID.ChooseID == *old.ChooseID {
		pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = old.TEID, old.TEID4, old.TEID6, old.ChooseID
		w.FTEID.Choose = false
	}
}

var pdiIEs = newGroup(nil, []row[toPDI]{
	{ie.SourceInterface, mandatory | once, func(x in, p toPDI) { p.Source = readSource(x) }, nil},
	{ie.FTEID, once, func(x in, p toPDI) {
		f := x.FTEID()
		p.want.FTEID = f
		p.TEID, p.TEID4, p.TEID6 = f.TEID, f.V4, f.V6
	}, nil},
	{ie.NetworkInstance, 0, func(x in, p toPDI) { p.NetworkInstance = x.Name() }, nil},
	{ie.TGPPInterfaceType, 0, func(x in, p toPDI) { p.InterfaceType = new(session.InterfaceType(x.U8() & 0x3f)) }, nil},
	{ie.UEIPAddress, 0, func(x in, p toPDI) {
		ue := x.UEAddress(p.UE)
		p.UE = ue.Prefixes
		p.want.Choose4, p.want.Choose6 = p.want.Choose4 || ue.Choose4, p.want.Choose6 || ue.Choose6
	}, nil},
	{ie.FramedRoute, 0, readFramedRoute, nil},
	{ie.FramedIPv6Route, 0, readFramedRoute, nil},
	{ie.SDFFilter, 0, func(x in, p toPDI) { p.Filters = append(p.Filters, x.SDFFilter(x.b.filter)) }, nil},
	{ie.ApplicationID, 0, func(x in, p toPDI) { p.ApplicationID = string(x.Value); x.Need(1) }, nil},
	{ie.QFI, 0, func(x in, p toPDI) { p.QFIs = append(p.QFIs, x.U8()&0x3f) }, nil},
	{ie.EthernetPacketFilter, 0, func(x in, p toPDI) {
		p.Ethernet = append(p.Ethernet, session.EthernetFilter{})
		ethernetIEs.read(x.b, &p.Ethernet[len(p.Ethernet)-1], x.Value, create)
		x.feature(x.b.Features.Ethernet)
	}, nil},
	{ie.EthernetPDUSessionInformation, 0, func(x in, _ toPDI) { x.U8(); x.feature(x.b.Features.Ethernet) }, nil},
	{ie.FramedRouting, 0, func(x in, _ toPDI) {
		x.feature(x.U32() == 0) // routing messages to the UE, or from it (RFC 2865 section 5.10)
	}, nil},
	{ie.TrafficEndpointID, 0, nil, nil},
	{ie.RedundantTransmissionParameters, 0, nil, nil},
	{ie.IPMulticastAddressingInfo, 0, nil, nil},
}...)

func readFramedRoute(x in, p toPDI) {
	if x.feature(x.b.Features.FramedRouting) {
		p.FramedRoutes = append(p.FramedRoutes, x.FramedRoute())
	}
}

func readSource(x in) session.Interface {
	i := x.U8() & 0x0f
	switch {
	case i == 4: // 5G VN Internal
		x.Unsupported()
	case i > 4:
		x.Incorrect()
	}
	return session.Interface(i)
}

// filter returns the session's filter with a bidirectional ID.
func (b *Builder) filter(id uint32) (session.Filter, bool) {
	for i := range b.To.PDRs {
		for _, f := range b.To.PDRs[i].PDI.Filters {
			if f.ID != nil && *f.ID == id {
				return f, true
			}
		}
	}
	return session.Filter{}, false
}

// checkPDI checks the IEs of a PDI together, and gives an application's PDI its
// filters.
func (b *Builder) checkPDI(pdi *session.PDI) {
	if b.Err != nil {
		return
	}
	if !b.Features.PrefixLength {
		for _, ue := range pdi.UE {
			if ue.Addr().Is6() && ue.Bits() != 64 {
				b.Fail(wire.Unsupported(ie.UEIPAddress))
			}
		}
	}
	if pdi.ApplicationID == "" {
		return
	}
	if len(pdi.Filters) > 0 { // both would have to match
		b.Fail(wire.Unsupported(ie.ApplicationID))
		return
	}
	filters, ok := b.Apps(pdi.ApplicationID)
	if !ok {
		b.Fail(&wire.Refusal{Cause: CauseUnknownApplication, Offending: ie.ApplicationID})
		return
	}
	pdi.Filters = filters
}

var ethernetIEs = newGroup(nil, []row[*session.EthernetFilter]{
	{ie.MACAddress, 0, func(x in, f *session.EthernetFilter) { x.MACAddresses(f) }, nil},
	{ie.EthernetFilterProperties, 0, func(x in, _ *session.EthernetFilter) {
		x.feature(x.U8()&1 == 0) // BIDE: another PDR names the filter by its ID alone
	}, nil},
	{ie.Ethertype, 0, func(x in, f *session.EthernetFilter) { f.EtherType = x.U16() }, nil},
	{ie.CTAG, 0, func(x in, f *session.EthernetFilter) { f.CVLAN = x.VLAN() }, nil},
	{ie.STAG, 0, func(x in, f *session.EthernetFilter) { f.SVLAN = x.VLAN() }, nil},
	{ie.SDFFilter, 0, func(x in, f *session.EthernetFilter) { f.Filters = append(f.Filters, x.SDFFilter(x.b.filter)) }, nil},
}...)
