package packet

import (
	"encoding/binary"
	"net/netip"

	"github.com/culvert-net/culvert/internal/checksum"
)

var be = binary.BigEndian

func or[T any](set *T, otherwise T) T {
	if set != nil {
		return *set
	}
	return otherwise
}

func protocolOf(l Layer) uint8 {
	if l == nil {
		return 59
	}
	return l.protocol()
}

func (Ethernet) protocol() uint8    { return 143 }
func (IPv6) protocol() uint8        { return 41 }
func (IPv4) protocol() uint8        { return 4 }
func (SRH) protocol() uint8         { return 43 }
func (e Extension) protocol() uint8 { return e.Kind }
func (UDP) protocol() uint8         { return 17 }
func (TCP) protocol() uint8         { return 6 }
func (GTPU) protocol() uint8        { return 0 }
func (VXLAN) protocol() uint8       { return 0 }

func (i ICMP) protocol() uint8 {
	if i.V6 {
		return 58
	}
	return 1
}

func (p Payload) protocol() uint8 {
	if p.Proto != 0 {
		return p.Proto
	}
	return 59
}

func (e Ethernet) build(payload []byte, _ []Layer, inner Layer) []byte {
	dst, src := e.Dst, e.Src
	if dst == nil {
		dst = Hex{2, 0, 0, 0, 0, 2}
	}
	if src == nil {
		src = Hex{2, 0, 0, 0, 0, 1}
	}
	b := append(append([]byte{}, dst...), src...)
	for i, id := range e.VLAN {
		tpid := uint16(0x8100)
		if i+1 < len(e.VLAN) {
			tpid = 0x88a8
		}
		b = be.AppendUint16(be.AppendUint16(b, tpid), id)
	}
	kind := uint16(0x88b5) // local experimental
	switch inner.(type) {
	case IPv6:
		kind = 0x86dd
	case IPv4:
		kind = 0x0800
	}
	return append(be.AppendUint16(b, or(e.Type, kind)), payload...)
}

func (p IPv6) build(payload []byte, _ []Layer, inner Layer) []byte {
	b := be.AppendUint32(nil, uint32(or(p.Version, 6))<<28|uint32(p.Class)<<20|p.FlowLabel&0xfffff)
	b = be.AppendUint16(b, or(p.Length, uint16(len(payload))))
	b = append(b, or(p.Next, protocolOf(inner)), or(p.HopLimit, 64))
	b = append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...)
	return append(b, payload...)
}

func (p IPv4) build(payload []byte, _ []Layer, inner Layer) []byte {
	header := 20 + len(p.Options)
	b := []byte{0x40 | or(p.IHL, uint8(header/4)), p.TOS}
	b = be.AppendUint16(b, or(p.Length, uint16(header+len(payload))))
	b = be.AppendUint16(be.AppendUint16(b, p.ID), p.Fragment)
	b = append(b, or(p.TTL, 64), or(p.Protocol, protocolOf(inner)), 0, 0)
	b = append(append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...), p.Options...)
	be.PutUint16(b[10:], or(p.Checksum, checksum.Of(b, 0)))
	return append(b, payload...)
}

func (s SRH) build(payload []byte, _ []Layer, inner Layer) []byte {
	last := or(s.Last, uint8(len(s.Segments)-1))
	b := []byte{or(s.Next, protocolOf(inner)), or(s.Length, uint8(2*len(s.Segments)+len(s.TLV)/8)),
		or(s.Type, 4), or(s.Left, last), last, s.Flags}
	b = be.AppendUint16(b, s.Tag)
	for _, a := range s.Segments {
		b = append(b, a.AsSlice()...)
	}
	return append(append(b, s.TLV...), payload...)
}

func (e Extension) build(payload []byte, _ []Layer, inner Layer) []byte {
	length := (len(e.Data) + 2 + 7) / 8 * 8
	b := make([]byte, max(length, 8))
	b[0], b[1] = or(e.Next, protocolOf(inner)), or(e.Length, uint8(len(b)/8-1))
	copy(b[2:], e.Data)
	return append(b, payload...)
}

func (u UDP) build(payload []byte, around []Layer, _ Layer) []byte {
	length := or(u.Length, uint16(8+len(payload)))
	b := be.AppendUint16(be.AppendUint16(nil, u.Sport), u.Dport)
	b = append(be.AppendUint16(b, length), 0, 0)
	b = append(b, payload...)
	pseudo := pseudoSum(around, 17, len(b))
	sum := checksum.Of(b, pseudo)
	if sum == 0 {
		sum = 0xffff
	}
	if u.Partial {
		sum = checksum.Partial(pseudo)
	}
	be.PutUint16(b[6:], or(u.Checksum, sum))
	return b
}

func (t TCP) build(payload []byte, around []Layer, _ Layer) []byte {
	b := be.AppendUint16(be.AppendUint16(nil, t.Sport), t.Dport)
	options := append([]byte{}, t.Options...)
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	length := or(t.Length, uint8(5+len(options)/4))
	b = append(be.AppendUint32(b, t.Sequence), 0, 0, 0, 0, length<<4, or(t.Flags, 0x10), 0xff, 0xff, 0, 0, 0, 0)
	b = append(append(b, options...), payload...)
	pseudo := pseudoSum(around, 6, len(b))
	sum := checksum.Of(b, pseudo)
	if t.Partial {
		sum = checksum.Partial(pseudo)
	}
	be.PutUint16(b[16:], or(t.Checksum, sum))
	return b
}

func (i ICMP) build(payload []byte, around []Layer, _ Layer) []byte {
	b := be.AppendUint32([]byte{i.Type, i.Code, 0, 0}, i.Rest)
	b = append(b, payload...)
	pseudo := uint32(0)
	if i.V6 {
		pseudo = pseudoSum(around, 58, len(b))
	}
	be.PutUint16(b[2:], or(i.Checksum, checksum.Of(b, pseudo)))
	return b
}

func (g GTPU) build(payload []byte, _ []Layer, _ Layer) []byte {
	extensions := append([]GTPUExt{}, g.Extensions...)
	if c := g.Container; c != nil {
		second := c.QFI & 0x3f
		if c.RQI {
			second |= 0x40
		}
		extensions = append(extensions, GTPUExt{Type: 0x85, Content: append(Hex{c.Type << 4, second}, c.More...)})
	}
	flags := uint8(0x30)
	var options []byte
	if len(extensions) > 0 || g.Sequence != nil || g.NPDU != nil {
		options = append(be.AppendUint16(nil, or(g.Sequence, 0)), or(g.NPDU, 0), 0)
	}
	if g.Sequence != nil {
		flags |= 2
	}
	if g.NPDU != nil {
		flags |= 1
	}
	for _, e := range extensions {
		flags |= 4
		options[len(options)-1] = e.Type
		options = append(options, or(e.Length, uint8((len(e.Content)+2)/4)))
		options = append(append(options, e.Content...), 0)
	}
	b := []byte{or(g.Flags, flags), or(g.Type, 255)}
	b = be.AppendUint16(b, or(g.Length, uint16(len(options)+len(payload))))
	b = be.AppendUint32(b, g.TEID)
	return append(append(b, options...), payload...)
}

func (v VXLAN) build(payload []byte, _ []Layer, _ Layer) []byte {
	const valid = 8 << 24 // the VNI is
	return append(be.AppendUint32(be.AppendUint32(nil, valid), v.VNI<<8), payload...)
}

func (p Payload) build(_ []byte, _ []Layer, _ Layer) []byte {
	b := append([]byte{}, p.Data...)
	for i := range p.Count {
		b = append(b, byte(i))
	}
	return b
}

// pseudoSum returns the pseudo-header sum of the nearest IP header around. Behind
// an SRH the destination is the last segment (RFC 8200 section 8.1).
func pseudoSum(around []Layer, protocol uint8, length int) uint32 {
	var final netip.Addr
	for i := len(around) - 1; i >= 0; i-- {
		var src, dst netip.Addr
		switch l := around[i].(type) {
		case SRH:
			if !final.IsValid() && or(l.Left, 1) > 0 && len(l.Segments) > 0 {
				final = l.Segments[0]
			}
			continue
		case IPv6:
			src, dst = l.Src, l.Dst
			if final.IsValid() {
				dst = final
			}
		case IPv4:
			src, dst = l.Src, l.Dst
		default:
			continue
		}
		return checksum.Pseudo(src, dst, protocol, length)
	}
	return 0
}
