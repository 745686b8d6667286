// Package frame tells in one line what is in an Ethernet frame, for people who
// read a trace. It knows what the data path knows: VLAN tags, IPv4, IPv6 with
// its extension headers, SRH, UDP, GTP-U, and what is inside of them.
package frame

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/srv6"
)

// Protocol numbers and EtherTypes.
const (
	hopByHop    = 0
	icmp        = 1
	ipInIP      = 4
	tcp         = 6
	udp         = 17
	ipv6        = 41
	routing     = 43
	fragment    = 44
	icmp6       = 58
	noNext      = 59
	destination = 60
	sctp        = 132
	ethernet    = 143

	typeIPv4  = 0x0800
	typeARP   = 0x0806
	typeVLAN  = 0x8100
	typeIPv6  = 0x86dd
	typeQinQ  = 0x88a8
	sidLength = 16
)

// Frame is what was found.
type Frame struct {
	Layers []string // in words, the outermost first
	TEIDs  []uint32 // of all GTP-U headers
	// Addresses are the sources and destinations of all IP headers.
	Addresses []netip.Addr
}

// String joins the layers.
func (f Frame) String() string { return strings.Join(f.Layers, " | ") }

// Decode reads a frame as far as it goes: what is cut short, or is not known,
// ends it.
func Decode(data []byte) Frame {
	f := &Frame{}
	f.ethernet(data)
	return *f
}

func (f *Frame) add(format string, args ...any) {
	f.Layers = append(f.Layers, fmt.Sprintf(format, args...))
}

// rest notes what is not decoded further.
func (f *Frame) rest(what string, data []byte) {
	if len(data) > 0 {
		f.add("%s (%d bytes)", what, len(data))
	}
}

func (f *Frame) ethernet(b []byte) {
	if len(b) < 14 {
		f.rest("short frame", b)
		return
	}
	text := fmt.Sprintf("%s > %s", net.HardwareAddr(b[6:12]), net.HardwareAddr(b[0:6]))
	etherType, at := binary.BigEndian.Uint16(b[12:]), 14
	for (etherType == typeVLAN || etherType == typeQinQ) && len(b) >= at+4 {
		text += fmt.Sprintf(" vlan %d", binary.BigEndian.Uint16(b[at:])&0xfff)
		etherType, at = binary.BigEndian.Uint16(b[at+2:]), at+4
	}
	f.add("%s", text)
	switch etherType {
	case typeIPv4:
		f.ipv4(b[at:])
	case typeIPv6:
		f.ipv6(b[at:])
	case typeARP:
		f.add("ARP")
	default:
		f.add("EtherType 0x%04x", etherType)
	}
}

func (f *Frame) ipv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 || int(b[0]&15)*4 < 20 || int(b[0]&15)*4 > len(b) {
		f.rest("broken IPv4", b)
		return
	}
	src, _ := netip.AddrFromSlice(b[12:16])
	dst, _ := netip.AddrFromSlice(b[16:20])
	f.Addresses = append(f.Addresses, src, dst)
	f.add("IPv4 %s > %s ttl %d%s", src, dst, b[8], trafficClass(b[1]))
	offset := binary.BigEndian.Uint16(b[6:])
	payload := cut(b, int(binary.BigEndian.Uint16(b[2:])))[int(b[0]&15)*4:]
	if offset&0x3fff != 0 {
		f.add("fragment at %d%s", int(offset&0x1fff)*8, more(offset&0x2000 != 0))
		if offset&0x1fff != 0 {
			return
		}
	}
	f.upper(b[9], payload)
}

// cut cuts b to length where b is longer; at least to the IPv4 header.
func cut(b []byte, length int) []byte {
	if length >= int(b[0]&15)*4 && length < len(b) {
		return b[:length]
	}
	return b
}

func more(m bool) string {
	if m {
		return ", more follow"
	}
	return ""
}

// trafficClass shows DSCP and ECN where there is something to show.
func trafficClass(tc uint8) string {
	text := ""
	if tc>>2 != 0 {
		text += fmt.Sprintf(" dscp %d", tc>>2)
	}
	if tc&3 != 0 {
		text += " ecn " + [...]string{"", "ECT(1)", "ECT(0)", "CE"}[tc&3]
	}
	return text
}

func (f *Frame) ipv6(b []byte) {
	if len(b) < 40 || b[0]>>4 != 6 {
		f.rest("broken IPv6", b)
		return
	}
	src, _ := netip.AddrFromSlice(b[8:24])
	dst, _ := netip.AddrFromSlice(b[24:40])
	f.Addresses = append(f.Addresses, src, dst)
	word := binary.BigEndian.Uint32(b)
	f.add("IPv6 %s > %s hop %d%s label 0x%05x", src, dst, b[7], trafficClass(uint8(word>>20)), word&0xfffff)
	payload := b[40:]
	if n := int(binary.BigEndian.Uint16(b[4:])); n < len(payload) {
		payload = payload[:n]
	}
	f.extensions(b[6], payload)
}

// extensions walks the chain of IPv6 extension headers.
func (f *Frame) extensions(next uint8, b []byte) {
	for {
		switch next {
		case hopByHop, destination, routing:
			if len(b) < 8 || (int(b[1])+1)*8 > len(b) {
				f.rest("extension header cut short", b)
				return
			}
			if next == routing {
				f.routing(b)
			} else {
				f.add("%s", map[uint8]string{hopByHop: "Hop-by-Hop", destination: "Destination Options"}[next])
			}
			next, b = b[0], b[(int(b[1])+1)*8:]
		case fragment:
			if len(b) < 8 {
				f.rest("Fragment header cut short", b)
				return
			}
			offset := binary.BigEndian.Uint16(b[2:])
			f.add("fragment at %d%s", offset&^7, more(offset&1 != 0))
			if offset&^7 != 0 {
				return
			}
			next, b = b[0], b[8:]
		default:
			f.upper(next, b)
			return
		}
	}
}

func (f *Frame) routing(b []byte) {
	srh, ok := srv6.ParseSRH(b)
	if !ok {
		f.add("Routing type %d, Segments Left %d", b[2], b[3])
		return
	}
	text := make([]string, 0, len(b)/sidLength)
	for _, s := range srh.SegmentList() {
		text = append(text, s.String())
	}
	f.add("SRH [%s] sl %d%s", strings.Join(text, ", "), srh.SegmentsLeft(), tag(srh.Tag()))
}

func tag(t uint16) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf(" tag 0x%x", t)
}

func (f *Frame) upper(protocol uint8, b []byte) {
	switch protocol {
	case ipInIP:
		f.ipv4(b)
	case ipv6:
		f.ipv6(b)
	case ethernet:
		f.ethernet(b)
	case udp:
		f.udp(b)
	case tcp, sctp:
		if len(b) >= 4 {
			f.add("%s %d > %d", map[uint8]string{tcp: "TCP", sctp: "SCTP"}[protocol], binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]))
		}
	case icmp, icmp6:
		if len(b) >= 2 {
			f.add("%s %s", map[uint8]string{icmp: "ICMP", icmp6: "ICMPv6"}[protocol], message(protocol, b[0], b[1]))
		}
	case noNext:
		f.add("no next header")
	default:
		f.add("protocol %d", protocol)
	}
}

// message names the ICMP messages that one meets with tunnels.
func message(protocol, typ, code uint8) string {
	names := map[uint8]string{0: "echo reply", 3: "destination unreachable", 8: "echo request", 11: "time exceeded"}
	if protocol == icmp6 {
		names = map[uint8]string{1: "destination unreachable", 2: "packet too big", 3: "time exceeded", 4: "parameter problem",
			128: "echo request", 129: "echo reply", 133: "router solicitation", 134: "router advertisement",
			135: "neighbor solicitation", 136: "neighbor advertisement"}
	}
	name, ok := names[typ]
	if !ok {
		name = fmt.Sprintf("type %d", typ)
	}
	if code != 0 {
		name += fmt.Sprintf(" code %d", code)
	}
	return name
}

func (f *Frame) udp(b []byte) {
	if len(b) < 8 {
		f.rest("UDP cut short", b)
		return
	}
	src, dst := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	f.add("UDP %d > %d", src, dst)
	if dst == gtpu.Port || src == gtpu.Port {
		f.gtpu(b[8:])
	}
}

// gtpu reads a GTP-U message, also one of which the trace holds the beginning
// only: its length is then beyond what is there.
func (f *Frame) gtpu(b []byte) {
	if len(b) >= 8 {
		if n := len(b) - 8; int(binary.BigEndian.Uint16(b[2:])) > n {
			b = append([]byte(nil), b...)
			binary.BigEndian.PutUint16(b[2:], uint16(n))
		}
	}
	h, ok := gtpu.ParseHeader(b)
	if !ok {
		f.rest("broken GTP-U", b)
		return
	}
	f.TEIDs = append(f.TEIDs, h.TEID())
	text := fmt.Sprintf("GTP-U %s teid 0x%x", h.Type(), h.TEID())
	if sequence, ok := h.Sequence(); ok {
		text += fmt.Sprintf(" seq %d", sequence)
	}
	if c, ok := h.Container(); ok {
		text += fmt.Sprintf(" %s qfi %d", c.Type, c.QFI)
		if c.RQI {
			text += " rqi"
		}
	}
	f.add("%s", text)
	if h.Type() == gtpu.GPDU {
		f.tpdu(h.Payload())
	}
}

func (f *Frame) tpdu(b []byte) {
	switch {
	case len(b) == 0:
	case b[0]>>4 == 4:
		f.ipv4(b)
	case b[0]>>4 == 6:
		f.ipv6(b)
	default:
		f.rest("T-PDU", b)
	}
}
