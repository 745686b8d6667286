package traffic

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
)

// faults are what is wrong with a template.
type faults config.Errors

func (f *faults) add(field, fix, format string, args ...any) {
	*f = append(*f, config.Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
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
	switch t.Outer.Kind {
	case Plain:
		if t.Outer.Source.IsValid() || t.Outer.Destination.IsValid() || t.Outer.TEID != 0 || len(t.Outer.Segments) > 0 {
			f.add("outer.kind", "gtpu or srv6", "is missing, and outer has other fields")
		}
	case GTPU:
		f.checkEnds(t.Outer, "GTP-U")
		f.checkGTPU(t.Outer)
	case SRv6:
		f.checkSRv6(t.Outer)
	case VXLAN:
		f.checkEnds(t.Outer, "VXLAN")
		if o := t.Outer; o.VNI >= 1<<24 {
			f.add("outer.vni", "0 to 16777215", "%d has more than 24 bits (RFC 7348)", o.VNI)
		}
		if o := t.Outer; o.TEID != 0 || o.Container != NoContainer || len(o.Segments) > 0 || o.NumberAt != 0 {
			f.add("outer.kind", "gtpu or srv6, or leave teid, container, segments and number_at out", "VXLAN has none of them")
		}
	default:
		f.add("outer.kind", "gtpu, srv6, vxlan, or leave it out", "%q is none", t.Outer.Kind)
	}
	if !t.Inner.Source.IsValid() && t.Outer.Kind != Plain {
		f.add("inner.source", "an address such as 192.0.2.1 or 2001:db8::1", "is missing: a tunnel carries IP")
	}
	for field, l := range map[string]*uint32{"outer.flow_label": t.Outer.FlowLabel, "inner.flow_label": t.Inner.FlowLabel} {
		if l != nil && *l > 0xfffff {
			f.add(field, "0 to 0xfffff", "%#x has more than 20 bits", *l)
		}
	}
	f.checkCounts(t)
	return f
}

func (f *faults) checkInner(i Inner) {
	if i.Source.IsValid() != i.Destination.IsValid() {
		f.add("inner", "give source and destination, or neither for Ethernet only", "has one address")
		return
	}
	f.checkPair("inner", i.Source, i.Destination)
	if !slices.Contains([]End{"", Source, Destination}, i.UE) {
		f.add("inner.ue", "source or destination", "%q is none of a packet's addresses", i.UE)
	}
	if i.NoChecksum && !i.Source.Is4() {
		f.add("inner.no_checksum", "leave it out", "UDP over IPv6 wants a checksum (RFC 8200 section 8.1)")
	}
}

// checkPair wants two addresses of one family.
func (f *faults) checkPair(field string, a, b netip.Addr) {
	for name, addr := range map[string]netip.Addr{"source": a, "destination": b} {
		if addr.Zone() != "" || addr.Is4In6() {
			f.add(field+"."+name, "write it without a zone and not as ::ffff:", "%s is no address of a packet", addr)
		}
	}
	if a.IsValid() && b.IsValid() && a.Is4() != b.Is4() {
		f.add(field+".destination", "take both of IPv4 or both of IPv6", "%s and %s are of two families", a, b)
	}
}

// checkEnds wants a tunnel's two addresses.
func (f *faults) checkEnds(o Outer, tunnel string) {
	if !o.Source.IsValid() || !o.Destination.IsValid() {
		f.add("outer", "give outer.source and outer.destination", "%s goes between two addresses", tunnel)
	}
	f.checkPair("outer", o.Source, o.Destination)
}

func (f *faults) checkGTPU(o Outer) {
	if o.Container == NoContainer && o.QFI != 0 {
		f.add("outer.qfi", "give outer.container too: uplink or downlink", "a QFI stands in a PDU Session Container")
	}
	if !slices.Contains([]Container{NoContainer, Uplink, Downlink}, o.Container) {
		f.add("outer.container", "uplink, downlink, or leave it out", "%q is none", o.Container)
	}
	if o.QFI > 63 {
		f.add("outer.qfi", "0 to 63", "%d has more than 6 bits (TS 38.415)", o.QFI)
	}
	if len(o.Segments) > 0 || o.NumberAt != 0 || o.Reduced || o.SegmentsLeft != nil {
		f.add("outer.kind", "srv6, or leave segments, segments_left, reduced and number_at out", "GTP-U has no segments")
	}
}

func (f *faults) checkSRv6(o Outer) {
	if !o.Source.Is6() || o.Source.Is4In6() {
		f.add("outer.source", "an IPv6 address", "%s is none", o.Source)
	}
	if len(o.Segments) < 1 || len(o.Segments) > maxSegments {
		f.add("outer.segments", fmt.Sprintf("1 to %d SIDs, in the order of travel", maxSegments), "there are %d", len(o.Segments))
	}
	for i, s := range o.Segments {
		if !s.Is6() || s.Is4In6() || s.Zone() != "" {
			f.add(fmt.Sprintf("outer.segments[%d]", i), "an IPv6 address", "%s is none", s)
		}
	}
	if o.Destination.IsValid() && len(o.Segments) > 0 {
		f.add("outer.destination", "leave it out", "is the segment that segments_left says")
	}
	if left := o.SegmentsLeft; left != nil && (*left < 0 || *left >= max(1, len(o.Segments))) {
		f.add("outer.segments_left", "less than the number of segments", "is %d of %d segments", *left, len(o.Segments))
	}
	for field, at := range map[string]int{"outer.number_at": o.NumberAt, "outer.source_number_at": o.SourceNumberAt} {
		if at < 0 || at > 12 {
			f.add(field, "0 to 12", "32 bits at octet %d are not in an address", at)
		}
	}
	if o.TEID != 0 || o.Container != NoContainer || o.QFI != 0 || o.SourcePort != 0 {
		f.add("outer.kind", "gtpu, or leave teid, container, qfi and source_port out", "SRv6 has none of GTP-U's fields")
	}
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
		if c.count < 0 || c.count > c.most {
			f.add(c.field, fmt.Sprintf("0 to %d", c.most), "is %d", c.count)
		}
		if c.count > 1 && !c.possible {
			f.add(c.field, "give "+c.fix, "there is nothing that counts")
		}
	}
	if t.TEIDs > 1 && t.UEs > 1 && t.TEIDs != t.UEs {
		f.add("ues", "the same number as teids, or leave one out", "%d UEs and %d TEIDs: the n-th tunnel is the n-th UE's", t.UEs, t.TEIDs)
	}
	if last := t.Inner.sourcePort() + t.Flows; t.Flows > 1 && last > 1<<16 {
		f.add("flows", fmt.Sprintf("at most %d", 1<<16-t.Inner.sourcePort()), "%d from inner.source_port on are past 65535", t.Flows)
	}
	if !slices.Contains([]Order{"", Sequential, Random}, t.Order) {
		f.add("order", "sequential or random", "%q is none", t.Order)
	}
}

// checkLength needs right headers.
func (f *faults) checkLength(t Template) {
	if t.Size != 0 && t.Payload != 0 || t.IMIX && (t.Size != 0 || t.Payload != 0) {
		f.add("size", "keep one of size, payload and imix", "there is more than one length")
		return
	}
	field := "size"
	if t.Payload != 0 {
		field = "payload"
	}
	least := max(minFrame, t.headers()+lenTag+lenFCS)
	for _, size := range t.sizes() {
		if size < least || size > MaxFrame {
			f.add(field, fmt.Sprintf("frames of %d to %d octets with FCS", least, MaxFrame),
				"frames of %d octets, and Ethernet, headers and tag want %d", size, least)
		}
	}
}
