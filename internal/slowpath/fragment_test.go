package slowpath

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/culvert-net/culvert/internal/checksum"
)

// innerPacket is an IPv4 UDP packet of n bytes of payload.
func innerPacket(t testing.TB, n int, edit func(*layers.IPv4)) []byte {
	ip := ip4(layers.IPProtocolUDP)
	if edit != nil {
		edit(ip)
	}
	return serialize(t, ip, udp(ip), payload(n))
}

// outers are the headers that an inner packet may come in.
func outers(t testing.TB) map[string]func(inner []byte) []byte {
	gtp := func(inner []byte) []byte {
		h := []byte{0x34, 255, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0x10, 9, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)-8+len(inner)))
		return append(h, inner...)
	}
	return map[string]func([]byte) []byte{
		"Ethernet": func(inner []byte) []byte {
			return serialize(t, append(ethernet(layers.EthernetTypeIPv4), gopacket.Payload(inner))...)
		},
		"QinQ": func(inner []byte) []byte {
			return serialize(t, append(ethernet(layers.EthernetTypeIPv4, 5, 6), gopacket.Payload(inner))...)
		},
		"IPv6": func(inner []byte) []byte {
			return serialize(t, append(ethernet(layers.EthernetTypeIPv6, 5), ip6(layers.IPProtocolIPv4), gopacket.Payload(inner))...)
		},
		"SRH": func(inner []byte) []byte {
			srh := []byte{4, 2, 4, 0, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}
			return serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6Routing),
				gopacket.Payload(append(srh, inner...)))...)
		},
		"GTP-U over IPv4": func(inner []byte) []byte {
			ip := ip4(layers.IPProtocolUDP)
			return serialize(t, append(ethernet(layers.EthernetTypeIPv4), ip, udp(ip), gopacket.Payload(gtp(inner)))...)
		},
		"GTP-U over IPv6": func(inner []byte) []byte {
			ip := ip6(layers.IPProtocolUDP)
			return serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip, udp(ip), gopacket.Payload(gtp(inner)))...)
		},
	}
}

// Each part must come in headers that are right for it: equal to those that a
// library makes around the same part. And all parts together are the packet.
func TestFragmentation(t *testing.T) {
	inner := innerPacket(t, 1500, nil)
	for name, wrap := range outers(t) {
		t.Run(name, func(t *testing.T) {
			frame := wrap(inner)
			l3 := len(frame) - len(inner)
			b := newBench(Options{})
			// Padding behind the packet is not part of it.
			b.handle(Packet{Kind: Fragment, Ifindex: 3, Info: 576, L3: l3, Data: append(bytes.Clone(frame), 0, 0, 0)})
			if len(b.injected) != 3 || b.count("fragments_made") != 3 || b.count("fragmented") != 1 {
				t.Fatalf("%d parts", len(b.injected))
			}
			whole := newBench(Options{})
			for i, f := range b.injected {
				if got := f[l3:]; len(got) > 576 || !bytes.Equal(f, wrap(got)) {
					t.Errorf("part %d: got\n%x\nwant\n%x", i, f, wrap(got))
				}
				whole.handle(Packet{Kind: Reassemble, L3: 14, Data: serialize(t,
					append(ethernet(layers.EthernetTypeIPv4), gopacket.Payload(f[l3:]))...)})
			}
			if len(whole.injected) != 1 || !bytes.Equal(whole.injected[0][14:], inner) {
				t.Errorf("together: %x", whole.injected)
			}
		})
	}
}

func TestFragmentationRefuses(t *testing.T) {
	df := innerPacket(t, 1500, func(ip *layers.IPv4) { ip.Flags = layers.IPv4DontFragment })
	plain := outers(t)["Ethernet"]
	srv6 := outers(t)["SRH"]
	good := srv6(innerPacket(t, 1500, nil))
	l3 := len(good) - len(innerPacket(t, 1500, nil))
	far := innerPacket(t, 1504, func(ip *layers.IPv4) { ip.FragOffset = 8191 })
	for name, p := range map[string]Packet{
		"DF":              {Info: 576, L3: 14, Data: plain(df)},
		"no room":         {Info: 27, L3: 14, Data: plain(innerPacket(t, 1500, nil))},
		"IPv6":            {Info: 576, L3: 14, Data: whole6(t, 1500)},
		"cut short":       {Info: 576, L3: 14, Data: plain(innerPacket(t, 1500, nil))[:1000]},
		"inside an outer": {Info: 576, L3: l3 - 8, Data: append(good[:l3-8:l3-8], good[l3:]...)},
		"offset too far":  {Info: 576, L3: 14, Data: plain(far)},
	} {
		p.Kind = Fragment
		b := newBench(Options{})
		b.handle(p)
		if len(b.injected) != 0 || b.count("fragmentation_refused") != 1 {
			t.Errorf("%s: %d parts, %d refused", name, len(b.injected), b.count("fragmentation_refused"))
		}
	}
}

func TestFragmentOfFragment(t *testing.T) {
	middle := innerPacket(t, 1000, func(ip *layers.IPv4) {
		ip.FragOffset, ip.Flags = 100, layers.IPv4MoreFragments
	})
	b := newBench(Options{})
	b.handle(Packet{Kind: Fragment, Info: 576, L3: 14, Data: outers(t)["Ethernet"](middle)})
	if len(b.injected) != 2 {
		t.Fatalf("%d parts", len(b.injected))
	}
	for i, want := range []uint16{0x2000 | 100, 0x2000 | (100 + 552/8)} {
		if got := ipv4(b.injected[i][14:]).flags(); got != want {
			t.Errorf("part %d: flags and offset %x, want %x", i, got, want)
		}
	}
}

func TestFragmentOptions(t *testing.T) {
	p := innerPacket(t, 1000, func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{
			{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}, // record route: first only
			{OptionType: 1}, // no operation
			{OptionType: 0x94, OptionLength: 4, OptionData: []byte{0x00, 0x00}}, // router alert: in all
		}
	})
	b := newBench(Options{})
	b.handle(Packet{Kind: Fragment, Info: 576, L3: 14, Data: outers(t)["Ethernet"](p)})
	if len(b.injected) != 2 {
		t.Fatalf("%d parts", len(b.injected))
	}
	first, second := ipv4(b.injected[0][14:]), ipv4(b.injected[1][14:])
	if first.headerLength() != 32 || second.headerLength() != 24 || second[20] != 0x94 {
		t.Errorf("options of the parts: %x and %x", first[20:first.headerLength()], second[20:second.headerLength()])
	}
	if checksum.Of(second[:24], 0) != 0 {
		t.Error("header checksum of the second part")
	}
}

// A checksum that a local stack left to hardware is completed before the
// packet is cut; a complete one, and a wrong one, are left alone.
func TestFragmentCompletesPartialChecksum(t *testing.T) {
	right := innerPacket(t, 1000, nil)
	for name, c := range map[string]struct{ sum, want []byte }{
		"complete": {right[26:28], right[26:28]},
		"partial":  {partial(right), right[26:28]},
		"wrong":    {[]byte{1, 2}, []byte{1, 2}},
		"none":     {[]byte{0, 0}, []byte{0, 0}},
	} {
		packet := bytes.Clone(right)
		copy(packet[26:], c.sum)
		b := newBench(Options{})
		b.handle(Packet{Kind: Fragment, Info: 576, L3: 14, Data: outers(t)["Ethernet"](packet)})
		if got := b.injected[0][14+26 : 14+28]; !bytes.Equal(got, c.want) {
			t.Errorf("%s: checksum %x, want %x", name, got, c.want)
		}
	}
}

// partial is the folded sum of the pseudo-header, not complemented.
func partial(packet []byte) []byte {
	sum := 0
	for i := 12; i < 20; i += 2 {
		sum += int(packet[i])<<8 | int(packet[i+1])
	}
	sum += 17 + len(packet) - 20
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return []byte{byte(sum >> 8), byte(sum)}
}
