package wire

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// flow reads a Flow Description. It reports false for one that it cannot read.
func (i IE) flow(text []byte) (session.Filter, bool) {
	if !i.OK() {
		return session.Filter{}, false
	}
	f, err := session.ParseFilter(string(text))
	if err != nil {
		i.incorrect(err)
		return session.Filter{}, false
	}
	return f, true
}

// SDFFilter reads an SDF Filter. A filter may name another PDR's filter by its
// bidirectional ID alone: known finds that one. Local and Remote are the same
// in both, whichever way packets go.
func (i IE) SDFFilter(known func(id uint32) (session.Filter, bool)) (f session.Filter) {
	if !i.Need(2) {
		return f
	}
	flags := i.Value()[0]
	c := cursor{i, 2}
	f.AnyProtocol = true
	if flags&0x01 != 0 { // FD
		var ok bool
		if f, ok = i.flow(c.take(int(c.u16()))); !ok {
			return f
		}
	}
	if flags&0x02 != 0 { // TTC
		f.ToS, f.ToSMask = c.u8(), c.u8()
	}
	if flags&0x04 != 0 { // SPI
		f.SPI = new(c.u32())
	}
	if flags&0x08 != 0 { // FL
		f.FlowLabel = new(uint32(c.u8()&0x0f)<<16 | uint32(c.u16()))
	}
	if flags&0x10 != 0 { // BID
		id := c.u32()
		if flags&0x0f == 0 {
			var ok bool
			if f, ok = known(id); !ok {
				i.Incorrect()
			}
		}
		f.ID = &id
	}
	if flags&0x1f == 0 {
		i.Incorrect()
	}
	return f
}

// Flags of PFD Contents (TS 29.244 section 8.2.39).
const (
	pfdFlow      = 1 << 0 // FD
	pfdMoreFlows = 1 << 5 // AFD
)

// PFDContents reads the flow descriptions of PFD Contents. It refuses URLs and
// domain names: the data path cannot see them.
func (i IE) PFDContents() (filters []session.Filter) {
	if !i.Need(2) {
		return nil
	}
	flags := i.Value()[0]
	if flags&^(pfdFlow|pfdMoreFlows) != 0 || flags == 0 {
		i.Unsupported()
		return nil
	}
	add := func(text []byte) {
		if f, ok := i.flow(text); ok {
			filters = append(filters, f)
		}
	}
	c := cursor{i, 2}
	if flags&pfdFlow != 0 {
		add(c.take(int(c.u16())))
	}
	if flags&pfdMoreFlows != 0 {
		list := c.take(int(c.u16()))
		for more := (cursor{i: IE{append(i.octets[:ieHeader:ieHeader], list...), i.d}}); more.at < len(list) && i.OK(); {
			add(more.take(int(more.u16())))
		}
	}
	return filters
}

// FramedRoute reads the prefix of a Framed-Route (RFC 2865 section 5.22) or
// Framed-IPv6-Route. The next hop and the metrics behind it mean nothing here.
func (i IE) FramedRoute() netip.Prefix {
	words := strings.Fields(string(i.Value()))
	if !i.Need(1) || len(words) == 0 {
		i.Incorrect()
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(words[0])
	if a, err2 := netip.ParseAddr(words[0]); err2 == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if err != nil || p.Addr().Is4() != (i.Type() == ie.FramedRoute) {
		i.Incorrect()
	}
	return p.Masked()
}

// MACAddresses reads a MAC Address: those of a frame, or the first and last of
// a range.
func (i IE) MACAddresses(f *session.EthernetFilter) {
	c := cursor{i: i}
	flags := c.u8()
	has := func(flag int) bool { return flags>>flag&1 != 0 }
	for flag, to := range []*[6]byte{&f.Source, &f.Destination, &f.SourceTo, &f.DestinationTo} {
		if has(flag) {
			*to = [6]byte(c.take(6))
		}
	}
	for flag, ends := range [][2]*[6]byte{{&f.Source, &f.SourceTo}, {&f.Destination, &f.DestinationTo}} {
		if has(flag+2) && (!has(flag) || bytes.Compare(ends[0][:], ends[1][:]) > 0) {
			i.Incorrect()
		}
	}
}

// VLAN reads the VLAN ID of a C-TAG or S-TAG. It refuses a tag with a priority
// or drop eligibility: no filter matches them.
func (i IE) VLAN() *uint16 {
	if !i.Need(3) {
		return nil
	}
	if i.Value()[0]&7 != 4 {
		i.Unsupported()
		return nil
	}
	return new(uint16(i.Value()[1]&0xf0)<<4 | uint16(i.Value()[2]))
}
