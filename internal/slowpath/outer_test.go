package slowpath

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// outerFrames are finished frames whose outer packet is 1416 octets long or a little longer.
func outerFrames(t testing.TB) map[string]struct {
	frame []byte
	l3    int
} {
	inner := innerPacket(t, 1340, nil)
	frames := map[string]struct {
		frame []byte
		l3    int
	}{}
	for name, wrap := range outers(t) {
		l3 := map[string]int{"Ethernet": 14, "QinQ": 22, "IPv6": 18}[name]
		frames[name] = struct {
			frame []byte
			l3    int
		}{wrap(inner), max(14, l3)}
	}
	return frames
}

// Each fragment fits, and leaves under the frame's own Ethernet header and by its interface; all
// together are the outer packet, whose segments each fragment has.
func TestOuterFragments(t *testing.T) {
	for name, f := range outerFrames(t) {
		t.Run(name, func(t *testing.T) {
			b, whole := newBench(Options{}), newBench(Options{})
			outer := bytes.Clone(f.frame[f.l3:])
			data := append(bytes.Clone(f.frame), 0, 0, 0) // padding is not part of it
			b.handle(Packet{Kind: FragmentOuter, Info: 600, L3: f.l3, Data: data, NextHop: Neighbour{Ifindex: 7}})
			if len(b.sent) != 3 || b.count("fragments_made") != 3 || b.count("fragmented") != 1 {
				t.Fatalf("%d fragments", len(b.sent))
			}
			for i, part := range slices.Backward(b.sent) {
				if len(part) > 600 || !sound(part) {
					t.Errorf("fragment %d: %x", i, part)
				}
				if way := b.ways[i]; way.Ifindex != 7 || !bytes.Equal(way.Back, f.frame[:f.l3]) {
					t.Errorf("fragment %d goes by %d under %x", i, way.Ifindex, way.Back)
				}
				if name == "SRH" && !bytes.Equal(part[41:64], outer[41:64]) {
					t.Errorf("fragment %d has SRH %x", i, part[40:64])
				}
				whole.handle(Packet{Kind: Reassemble, L3: f.l3, Data: append(f.frame[:f.l3:f.l3], part...)})
			}
			if len(whole.injected) != 1 {
				t.Fatalf("together: %d packets", len(whole.injected))
			}
			got := whole.injected[0][f.l3:]
			if outer[0]>>4 == 4 { // an identification, and its checksum
				copy(got[4:6], outer[4:6])
				copy(got[10:12], outer[10:12])
			}
			if !bytes.Equal(got, outer) {
				t.Errorf("together:\n%x\nwant\n%x", got, outer)
			}
		})
	}
}

// Fragments of packets that leave one after another are told apart.
func TestOuterFragmentsHaveIdentifications(t *testing.T) {
	b := newBench(Options{})
	for range 8 {
		b.handle(Packet{Kind: FragmentOuter, Info: 1300, L3: 14, Data: whole6(t, 1400)})
	}
	ids := map[uint32]int{}
	for _, part := range b.sent {
		ids[binary.BigEndian.Uint32(part[44:])]++
	}
	if len(b.sent) != 16 || len(ids) != 8 {
		t.Errorf("%d fragments with %d identifications, want 16 with 8", len(b.sent), len(ids))
	}
}

func TestOuterFragmentsRefused(t *testing.T) {
	for name, p := range map[string]Packet{
		"no room":           {Info: 48 + 7, L3: 14, Data: whole6(t, 1400)},
		"no room over IPv4": {Info: 27, L3: 14, Data: whole4(t, 1400)},
		"cut short":         {Info: 600, L3: 14, Data: whole6(t, 1400)[:1000]},
		"no IP packet":      {Info: 600, L3: 14, Data: make([]byte, 1400)},
		"a routing header longer than the packet": {Info: 600, L3: 14, Data: withoutSegments(t)},
	} {
		p.Kind = FragmentOuter
		b := newBench(Options{})
		b.handle(p)
		if len(b.sent) != 0 || b.count("fragmentation_refused") != 1 {
			t.Errorf("%s: %d fragments, %d refused", name, len(b.sent), b.count("fragmentation_refused"))
		}
	}
}

// withoutSegments says that its routing header is longer than the packet.
func withoutSegments(t testing.TB) []byte {
	return serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6Routing), gopacket.Payload([]byte{4, 255, 4, 0, 0, 0, 0, 0}), payload(900))...)
}

// The kernel puts fragments of IPv6 together: it answers the ping in them.
func TestKernelPutsOuterFragmentsTogether(t *testing.T) {
	_, _, fd, end := lone(t)
	eth := &layers.Ethernet{SrcMAC: macB, DstMAC: end.HardwareAddr, EthernetType: layers.EthernetTypeIPv6}
	ip := ip6(layers.IPProtocolICMPv6)
	ip.SrcIP, ip.DstIP = b6.AsSlice(), a6.AsSlice()
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
	if err := icmp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := newBench(Options{})
	b.handle(Packet{Kind: FragmentOuter, L3: 14, Info: 404, Data: serialize(t, eth, ip, icmp, gopacket.Payload(append([]byte{0, 77, 0, 3}, payload(1200)...)))})
	if len(b.sent) != 4 {
		t.Fatalf("%d fragments", len(b.sent))
	}
	for i, part := range b.sent {
		if err := unix.Send(fd, append(b.ways[i].Back, part...), 0); err != nil {
			t.Fatal(err)
		}
	}
	reply := receive(t, fd, func(f []byte) bool { return f[12] == 0x86 && f[14+6] == protocolICMPv6 && f[54] == 129 })
	if !bytes.Equal(reply[62:], payload(1200)) || binary.BigEndian.Uint16(reply[58:]) != 77 {
		t.Errorf("the kernel answers %x", reply[54:])
	}
}
