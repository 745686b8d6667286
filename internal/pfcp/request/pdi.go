package request

import (
	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/pfcp/wire"
	"github.com/culvert-net/culvert/internal/session"
)

// readPDI reads a PDI. It replaces an old one as a whole (TS 29.244 table 7.5.4.2-1), but
// keepWhose says what stays.
func readPDI(b *Builder, i wire.IE, p *session.PDR) {
	old := p.PDI
	p.PDI = session.PDI{}
	b.want = Want{PDR: p.ID, Created: b.update == create}
	w := &b.want
	s := pdiIEs.read(b, &p.PDI, i.Value(), b.update)
	pdiIEs.complete(b, s)
	b.checkPDI(&p.PDI)
	if b.update == changes {
		keepWhose(&p.PDI, &old, s)
		// An update that names the F-TEID which the user plane has chosen, or asks
		// for one that it shares with what it had, keeps it.
		pdi := &p.PDI
		if old.TEID != 0 && pdi.TEID == old.TEID {
			pdi.ChooseID = old.ChooseID
		}
		if w.FTEID.Choose && SharesTEID(pdi, &w.FTEID, &old) {
			pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = old.TEID, old.TEID4, old.TEID6, old.ChooseID
			w.FTEID.Choose = false
		}
	}
	if w.FTEID.Choose || w.Choose4 || w.Choose6 {
		b.Wants = append(b.Wants, *w)
	}
}

// keepWhose keeps whose packets an old PDI is about where the new one does not say it. Open5GS
// (since 2.7.5) sends Source Interface and SDF Filters alone where the filters of a QoS flow change.
func keepWhose(pdi, old *session.PDI, s seen) {
	has := func(ieType uint16) bool { return pdiIEs.has(s, ieType) }
	if pdi.Source != old.Source || has(ie.FTEID) || has(ie.UEIPAddress) {
		return
	}
	pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = old.TEID, old.TEID4, old.TEID6, old.ChooseID
	pdi.UE = old.UE
	if !has(ie.FramedRoute) && !has(ie.FramedIPv6Route) {
		pdi.FramedRoutes = old.FramedRoutes
	}
	if !has(ie.NetworkInstance) {
		pdi.NetworkInstance = old.NetworkInstance
	}
	if !has(ie.QFI) {
		pdi.QFIs = old.QFIs
	}
}

// SharesTEID says whether a PDI that wants an F-TEID gets the one that other, of its session,
// has: both have the same CHOOSE ID, or the SMF leaves the sharing to us.
func SharesTEID(pdi *session.PDI, wanted *wire.FTEID, other *session.PDI) bool {
	switch {
	case other.TEID == 0:
		return false
	case wanted.Shared:
		return pdi.Source == other.Source && pdi.NetworkInstance == other.NetworkInstance
	}
	return wanted.ChooseID != nil && other.ChooseID != nil && *other.ChooseID == *wanted.ChooseID
}

var pdiIEs = newGroup(nil, []row[*session.PDI]{
	{ie.SourceInterface, mandatory | once, func(_ *Builder, i wire.IE, p *session.PDI) { p.Source = readInterface(i, 4) }, nil},
	{ie.FTEID, once, func(b *Builder, i wire.IE, p *session.PDI) {
		f := i.FTEID()
		b.want.FTEID = f
		p.TEID, p.TEID4, p.TEID6 = f.TEID, f.V4, f.V6
	}, nil},
	{ie.NetworkInstance, 0, func(_ *Builder, i wire.IE, p *session.PDI) { p.NetworkInstance = i.Name() }, nil},
	{ie.TGPPInterfaceType, 0, func(_ *Builder, i wire.IE, p *session.PDI) {
		p.InterfaceType = new(session.InterfaceType(i.U8() & 0x3f))
	}, nil},
	{ie.UEIPAddress, 0, func(b *Builder, i wire.IE, p *session.PDI) {
		ue := i.UEAddress(p.UE)
		p.UE = ue.Prefixes
		b.want.Choose4, b.want.Choose6 = b.want.Choose4 || ue.Choose4, b.want.Choose6 || ue.Choose6
	}, nil},
	{ie.FramedRoute, 0, readFramedRoute, nil},
	{ie.FramedIPv6Route, 0, readFramedRoute, nil},
	{ie.SDFFilter, 0, func(b *Builder, i wire.IE, p *session.PDI) { p.Filters = append(p.Filters, i.SDFFilter(b.filter)) }, nil},
	{ie.ApplicationID, 0, func(_ *Builder, i wire.IE, p *session.PDI) { p.ApplicationID = string(i.Value()); i.Need(1) }, nil},
	{ie.QFI, 0, func(_ *Builder, i wire.IE, p *session.PDI) { p.QFIs = append(p.QFIs, i.U8()&0x3f) }, nil},
	{ie.EthernetPacketFilter, 0, func(b *Builder, i wire.IE, p *session.PDI) {
		p.Ethernet = append(p.Ethernet, session.EthernetFilter{})
		ethernetIEs.read(b, &p.Ethernet[len(p.Ethernet)-1], i.Value(), create)
		i.Supported(b.Features.Ethernet)
	}, nil},
	{ie.EthernetPDUSessionInformation, 0, func(b *Builder, i wire.IE, _ *session.PDI) { i.U8(); i.Supported(b.Features.Ethernet) }, nil},
	{ie.FramedRouting, 0, func(_ *Builder, i wire.IE, _ *session.PDI) {
		i.Supported(i.U32() == 0) // routing messages to the UE, or from it (RFC 2865 section 5.10)
	}, nil},
}, refused[*session.PDI](0, ie.TrafficEndpointID, ie.RedundantTransmissionParameters, ie.IPMulticastAddressingInfo))

func readFramedRoute(b *Builder, i wire.IE, p *session.PDI) {
	if i.Supported(b.Features.FramedRouting) {
		p.FramedRoutes = append(p.FramedRoutes, i.FramedRoute())
	}
}

// readInterface reads a Source or Destination Interface. vn, the last one, is
// 5G VN Internal.
func readInterface(i wire.IE, vn session.Interface) session.Interface {
	is := session.Interface(i.U8() & 0x0f)
	if is > vn {
		i.Incorrect()
	}
	i.Supported(is != vn)
	return is
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
	{ie.MACAddress, 0, func(_ *Builder, i wire.IE, f *session.EthernetFilter) { i.MACAddresses(f) }, nil},
	{ie.EthernetFilterProperties, 0, func(_ *Builder, i wire.IE, _ *session.EthernetFilter) {
		i.Supported(i.U8()&1 == 0) // BIDE: another PDR names the filter by its ID alone
	}, nil},
	{ie.Ethertype, 0, func(_ *Builder, i wire.IE, f *session.EthernetFilter) { f.EtherType = i.U16() }, nil},
	{ie.CTAG, 0, func(_ *Builder, i wire.IE, f *session.EthernetFilter) { f.CVLAN = i.VLAN() }, nil},
	{ie.STAG, 0, func(_ *Builder, i wire.IE, f *session.EthernetFilter) { f.SVLAN = i.VLAN() }, nil},
	{ie.SDFFilter, 0, func(b *Builder, i wire.IE, f *session.EthernetFilter) {
		f.Filters = append(f.Filters, i.SDFFilter(b.filter))
	}, nil},
})
