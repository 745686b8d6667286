package traffic

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
)

// faults are what is wrong with a template.
type faults config.Errors

// want adds a fault unless a field is right.
func (f *faults) want(right bool, field, fix, format string, args ...any) {
	if !right {
		*f = append(*f, config.Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
	}
}

// Check says all that is wrong with a template as one to send, as config.Errors.
func (t Template) Check() error {
	f := t.faults()
	if len(f) == 0 {
		f.checkLength(t)
	}
	if len(f) > 0 {
		return config.Errors(f)
	}
	return nil
}

// faults are what is wrong with the headers.
func (t Template) faults() (f faults) {
	f.checkInner(t.Inner)
	switch o := t.Outer; o.Kind {
	case Plain:
		f.want(!o.Source.IsValid() && !o.Destination.IsValid() && o.TEID == 0 && len(o.Segments) == 0,
			"outer.kind", "gtpu or srv6", "is missing, and outer has other fields")
	case GTPU:
		f.checkEnds(o, "GTP-U")
		f.checkGTPU(o)
	case SRv6:
		f.checkSRv6(o)
	case VXLAN:
		f.checkEnds(o, "VXLAN")
		f.want(o.VNI < 1<<24, "outer.vni", "0 to 16777215", "%d has more than 24 bits (RFC 7348)", o.VNI)
		f.want(o.TEID == 0 && o.Container == NoContainer && len(o.Segments) == 0 && o.NumberAt == 0,
			"outer.kind", "gtpu or srv6, or leave teid, container, segments and number_at out", "VXLAN has none of them")
	default:
		f.want(false, "outer.kind", "gtpu, srv6, vxlan, or leave it out", "%q is none", o.Kind)
	}
	f.want(t.Inner.Source.IsValid() || t.Outer.Kind == Plain,
		"inner.source", "an address such as 192.0.2.1 or 2001:db8::1", "is missing: a tunnel carries IP")
	for field, label := range map[string]*uint32{"outer.flow_label": t.Outer.FlowLabel, "inner.flow_label": t.Inner.FlowLabel} {
		l := *cmp.Or(label, new(uint32))
		f.want(l <= 0xfffff, field, "0 to 0xfffff", "%#x has more than 20 bits", l)
	}
	f.checkCounts(t)
	return f
}

func (f *faults) checkInner(i Inner) {
	if i.Source.IsValid() != i.Destination.IsValid() {
		f.want(false, "inner", "give source and destination, or neither for Ethernet only", "has one address")
		return
	}
	f.checkPair("inner", i.Source, i.Destination)
	f.want(slices.Contains([]End{"", Source, Destination}, i.UE),
		"inner.ue", "source or destination", "%q is none of a packet's addresses", i.UE)
	f.want(!i.NoChecksum || i.Source.Is4(),
		"inner.no_checksum", "leave it out", "UDP over IPv6 wants a checksum (RFC 8200 section 8.1)")
}

// checkPair wants two addresses of one family.
func (f *faults) checkPair(field string, a, b netip.Addr) {
	for name, addr := range map[string]netip.Addr{"source": a, "destination": b} {
		f.want(addr.Zone() == "" && !addr.Is4In6(),
			field+"."+name, "write it without a zone and not as ::ffff:", "%s is no address of a packet", addr)
	}
	f.want(!a.IsValid() || !b.IsValid() || a.Is4() == b.Is4(),
		field+".destination", "take both of IPv4 or both of IPv6", "%s and %s are of two families", a, b)
}

// checkEnds wants a tunnel's two addresses.
func (f *faults) checkEnds(o Outer, tunnel string) {
	f.want(o.Source.IsValid() && o.Destination.IsValid(),
		"outer", "give outer.source and outer.destination", "%s goes between two addresses", tunnel)
	f.checkPair("outer", o.Source, o.Destination)
}

func (f *faults) checkGTPU(o Outer) {
	f.want(o.Container != NoContainer || o.QFI == 0,
		"outer.qfi", "give outer.container too: uplink or downlink", "a QFI stands in a PDU Session Container")
	f.want(slices.Contains([]Container{NoContainer, Uplink, Downlink}, o.Container),
		"outer.container", "uplink, downlink, or leave it out", "%q is none", o.Container)
	f.want(o.QFI <= 63, "outer.qfi", "0 to 63", "%d has more than 6 bits (TS 38.415)", o.QFI)
	f.want(len(o.Segments) == 0 && o.NumberAt == 0 && !o.Reduced && o.SegmentsLeft == nil,
		"outer.kind", "srv6, or leave segments, segments_left, reduced and number_at out", "GTP-U has no segments")
}

func (f *faults) checkSRv6(o Outer) {
	f.want(o.Source.Is6() && !o.Source.Is4In6(), "outer.source", "an IPv6 address", "%s is none", o.Source)
	f.want(len(o.Segments) >= 1 && len(o.Segments) <= maxSegments,
		"outer.segments", fmt.Sprintf("1 to %d SIDs, in the order of travel", maxSegments), "there are %d", len(o.Segments))
	for i, s := range o.Segments {
		f.want(s.Is6() && !s.Is4In6() && s.Zone() == "", fmt.Sprintf("outer.segments[%d]", i), "an IPv6 address", "%s is none", s)
	}
	f.want(!o.Destination.IsValid() || len(o.Segments) == 0,
		"outer.destination", "leave it out", "is the segment that segments_left says")
	left := *cmp.Or(o.SegmentsLeft, new(int))
	f.want(left >= 0 && left < max(1, len(o.Segments)),
		"outer.segments_left", "less than the number of segments", "is %d of %d segments", left, len(o.Segments))
	for field, at := range map[string]int{"outer.number_at": o.NumberAt, "outer.source_number_at": o.SourceNumberAt} {
		f.want(at >= 0 && at <= 12, field, "0 to 12", "32 bits at octet %d are not in an address", at)
	}
	f.want(o.TEID == 0 && o.Container == NoContainer && o.QFI == 0 && o.SourcePort == 0,
		"outer.kind", "gtpu, or leave teid, container, qfi and source_port out", "SRv6 has none of GTP-U's fields")
}

// checkCounts looks at how many there are of what.
func (f *faults) checkCounts(t Template) {
	for _, c := range []struct {
		field    string
		count    int
		most     int
		possible bool
		fix      string
	}{
		{"teids", t.TEIDs, 1 << 24, t.Outer.Kind == GTPU || t.Outer.NumberAt > 0, "outer.kind gtpu, or outer.number_at"},
		{"ues", t.UEs, 1 << 24, t.Inner.UE != "" && t.Inner.Source.IsValid(), "inner.ue: source or destination"},
		{"sources", t.Sources, 1 << 24, t.Outer.Source.IsValid() || t.Inner.Source.IsValid(), "outer.source or inner.source"},
		{"flows", t.Flows, 1 << 16, t.Inner.Source.IsValid(), "inner.source and inner.destination"},
	} {
		f.want(c.count >= 0 && c.count <= c.most, c.field, fmt.Sprintf("0 to %d", c.most), "is %d", c.count)
		f.want(c.count <= 1 || c.possible, c.field, "give "+c.fix, "there is nothing that counts")
	}
	f.want(t.TEIDs <= 1 || t.UEs <= 1 || t.TEIDs == t.UEs,
		"ues", "the same number as teids, or leave one out", "%d UEs and %d TEIDs: the n-th tunnel is the n-th UE's", t.UEs, t.TEIDs)
	most := 1<<16 - t.Inner.sourcePort()
	f.want(t.Flows <= max(1, most), "flows", fmt.Sprintf("at most %d", most), "%d from inner.source_port on are past 65535", t.Flows)
	f.want(slices.Contains([]Order{"", Sequential, Random}, t.Order), "order", "sequential or random", "%q is none", t.Order)
}

// checkLength needs right headers.
func (f *faults) checkLength(t Template) {
	if t.Size != 0 && t.Payload != 0 || t.IMIX && (t.Size != 0 || t.Payload != 0) {
		f.want(false, "size", "keep one of size, payload and imix", "there is more than one length")
		return
	}
	field := "size"
	if t.Payload != 0 {
		field = "payload"
	}
	least := max(minFrame, t.headers()+lenTag+lenFCS)
	for _, size := range t.sizes() {
		f.want(size >= least && size <= MaxFrame, field, fmt.Sprintf("frames of %d to %d octets with FCS", least, MaxFrame),
			"frames of %d octets, and Ethernet, headers and tag want %d", size, least)
	}
}
