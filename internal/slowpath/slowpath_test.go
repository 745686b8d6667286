package slowpath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	a4   = netip.MustParseAddr("192.0.2.1")
	b4   = netip.MustParseAddr("192.0.2.2")
	a6   = netip.MustParseAddr("2001:db8::1")
	b6   = netip.MustParseAddr("2001:db8::2")
	own4 = netip.MustParseAddr("198.51.100.9")
	own6 = netip.MustParseAddr("2001:db8:9::9")
)

// bench is a SlowPath whose surroundings are lists.
type bench struct {
	*SlowPath
	now      time.Time
	injected [][]byte
	ifindex  []int
	sent     [][]byte
	ways     []Way
	fail     error
}

func (b *bench) Inject(frame []byte, ifindex int) error {
	if b.fail != nil {
		return b.fail
	}
	b.injected, b.ifindex = append(b.injected, bytes.Clone(frame)), append(b.ifindex, ifindex)
	return nil
}

func (b *bench) Send(packet []byte, way Way) error {
	if b.fail != nil {
		return b.fail
	}
	b.sent, b.ways = append(b.sent, bytes.Clone(packet)), append(b.ways, way)
	return nil
}

func (b *bench) Source(dst netip.Addr, _ Way) (netip.Addr, error) {
	if dst.Is4() {
		return own4, nil
	}
	return own6, nil
}

func newBench(o Options) *bench {
	b := &bench{now: time.Unix(1000, 0)}
	o.Injector, o.Sender, o.Now = b, b, func() time.Time { return b.now }
	if o.Resolve == nil {
		o.Resolve, o.Resolved = func(Neighbour) {}, func(Neighbour) bool { return false }
	}
	b.SlowPath = New(o)
	return b
}

// ethernet is a frame header with VLAN tags.
func ethernet(kind layers.EthernetType, tags ...uint16) []gopacket.SerializableLayer {
	eth := &layers.Ethernet{SrcMAC: macA, DstMAC: macB, EthernetType: kind}
	out := []gopacket.SerializableLayer{eth}
	for i, t := range tags {
		if i == 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
		} else {
			out[i].(*layers.Dot1Q).Type = layers.EthernetTypeDot1Q
		}
		out = append(out, &layers.Dot1Q{VLANIdentifier: t, Type: kind})
	}
	return out
}

func serialize(t testing.TB, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func ip4(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 77, Protocol: protocol, SrcIP: a4.AsSlice(), DstIP: b4.AsSlice()}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: a6.AsSlice(), DstIP: b6.AsSlice()}
}

func udp(ip gopacket.NetworkLayer) *layers.UDP {
	u := &layers.UDP{SrcPort: 40000, DstPort: 2152}
	if err := u.SetNetworkLayerForChecksum(ip); err != nil {
		panic(err)
	}
	return u
}

func payload(n int) gopacket.Payload {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/256)
	}
	return b
}

// whole4 and whole6 are UDP datagrams of n bytes of payload in a frame.
func whole4(t testing.TB, n int, tags ...uint16) []byte {
	ip := ip4(layers.IPProtocolUDP)
	return serialize(t, append(ethernet(layers.EthernetTypeIPv4, tags...), ip, udp(ip), payload(n))...)
}

func whole6(t testing.TB, n int, tags ...uint16) []byte {
	ip := ip6(layers.IPProtocolUDP)
	return serialize(t, append(ethernet(layers.EthernetTypeIPv6, tags...), ip, udp(ip), payload(n))...)
}

// part cuts the bytes from to to out of a frame's fragmentable part. It is not
// the code that is tested.
func part(frame []byte, l3, from, to int, id uint32) Packet {
	version := frame[l3] >> 4
	var out []byte
	if version == 4 {
		data := frame[l3+20:]
		out = append(bytes.Clone(frame[:l3+20]), data[from:to]...)
		flags := uint16(from / 8)
		if to < len(data) {
			flags |= 0x2000
		}
		binary.BigEndian.PutUint16(out[l3+2:], uint16(20+to-from))
		binary.BigEndian.PutUint16(out[l3+4:], uint16(id))
		binary.BigEndian.PutUint16(out[l3+6:], flags)
	} else {
		data := frame[l3+40:]
		out = bytes.Clone(frame[:l3+40])
		out[l3+6] = 44
		word := uint16(from)
		if to < len(data) {
			word |= 1
		}
		h := []byte{frame[l3+6], 0, byte(word >> 8), byte(word)}
		out = append(binary.BigEndian.AppendUint32(append(out, h...), id), data[from:to]...)
		binary.BigEndian.PutUint16(out[l3+4:], uint16(8+to-from))
	}
	return Packet{Kind: Reassemble, Ifindex: 5, L3: l3, Data: out}
}

func (b *bench) handle(packets ...Packet) {
	for _, p := range packets {
		b.Handle(p)
	}
}

func TestReassembly(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		l3    int
	}{
		"IPv4":      {whole4(t, 2000), 14},
		"IPv4 VLAN": {whole4(t, 2000, 100), 18},
		"IPv6":      {whole6(t, 2000), 14},
		"IPv6 QinQ": {whole6(t, 2000, 100, 7), 22},
	} {
		for order, indices := range map[string][]int{
			"in order": {0, 1, 2}, "last first": {2, 1, 0}, "first last": {1, 2, 0}, "twice": {0, 0, 1, 1, 2},
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				b := newBench(Options{})
				parts := []Packet{
					part(c.frame, c.l3, 0, 800, 9), part(c.frame, c.l3, 800, 1600, 9), part(c.frame, c.l3, 1600, 2008, 9),
				}
				parts[0].Ifindex = 6
				for _, i := range indices {
					if len(b.injected) != 0 {
						t.Fatal("whole before the last fragment")
					}
					b.handle(parts[i])
				}
				if len(b.injected) != 1 || b.ifindex[0] != 6 {
					t.Fatalf("%d frames on %v, want 1 on the first fragment's interface", len(b.injected), b.ifindex)
				}
				want := bytes.Clone(c.frame)
				if want[c.l3]>>4 == 4 { // the ID is the fragments', and so is the checksum
					binary.BigEndian.PutUint16(want[c.l3+4:], 9)
					ipv4(want[c.l3:]).finish(len(want) - c.l3)
				}
				if !bytes.Equal(b.injected[0], want) {
					t.Errorf("got\n%x\nwant\n%x", b.injected[0], want)
				}
				if b.reassembler.bytes != 0 || len(b.reassembler.table) != 0 {
					t.Errorf("%d bytes, %d datagrams are left", b.reassembler.bytes, len(b.reassembler.table))
				}
			})
		}
	}
}

func TestReassemblyKeepsHeaderChain(t *testing.T) {
	ip := ip6(layers.IPProtocolIPv6Routing)
	inner := whole6(t, 1200)[14:]
	srh := []byte{41, 2, 4, 0, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}
	want := serialize(t, append(ethernet(layers.EthernetTypeIPv6), ip, gopacket.Payload(append(srh, inner...)))...)
	// Fragment header behind the SRH: take its place from a frame without one.
	cutAt := 14 + 40 + len(srh)
	make := func(from, to int) Packet {
		data := want[cutAt:]
		f := bytes.Clone(want[:cutAt])
		f[14+40] = 44
		word := uint16(from)
		if to < len(data) {
			word |= 1
		}
		f = append(f, 41, 0, byte(word>>8), byte(word), 0, 0, 0, 1)
		f = append(f, data[from:to]...)
		binary.BigEndian.PutUint16(f[14+4:], uint16(len(f)-14-40))
		return Packet{Kind: Reassemble, L3: 14, Data: f}
	}
	b := newBench(Options{})
	b.handle(make(0, 640), make(640, len(inner)))
	if len(b.injected) != 1 || !bytes.Equal(b.injected[0], want) {
		t.Errorf("got  %x\nwant %x", b.injected, want)
	}
}

func TestReassemblyRefuses(t *testing.T) {
	f4, f6 := whole4(t, 2000), whole6(t, 2000)
	changed := func(p Packet, at int, v byte) Packet {
		p.Data = bytes.Clone(p.Data)
		p.Data[at] = v
		return p
	}
	odd := func(frame []byte) Packet { return part(frame, 14, 0, 804, 9) }
	long := whole6(t, 3500)
	mark := func(p Packet, ecn byte) Packet { return changed(p, 15, ecn) }
	for name, c := range map[string]struct {
		packets []Packet
		counter string
		errors  string // ICMP type, code, pointer
	}{
		"IPv4 overlap":       {[]Packet{part(f4, 14, 0, 800, 9), part(f4, 14, 792, 1600, 9), part(f4, 14, 1600, 2008, 9)}, "reassembly_overlap", ""},
		"IPv6 overlap":       {[]Packet{part(f6, 14, 0, 800, 9), part(f6, 14, 792, 1600, 9), part(f6, 14, 800, 1600, 9), part(f6, 14, 1600, 2008, 9)}, "reassembly_overlap", ""},
		"IPv6 inside":        {[]Packet{part(f6, 14, 0, 1600, 9), part(f6, 14, 8, 16, 9), part(f6, 14, 1600, 2008, 9)}, "reassembly_overlap", ""},
		"same, other bytes":  {[]Packet{part(f6, 14, 0, 1600, 9), changed(part(f6, 14, 0, 1600, 9), 200, 1), part(f6, 14, 1600, 2008, 9)}, "reassembly_overlap", ""},
		"behind the end":     {[]Packet{part(f6, 14, 1600, 2008, 9), part(whole6(t, 2400), 14, 2008, 2104, 9), part(f6, 14, 0, 1600, 9)}, "reassembly_overlap", ""},
		"two ends":           {[]Packet{part(f6, 14, 1600, 2008, 9), part(whole6(t, 2100), 14, 2008, 2108, 9), part(f6, 14, 0, 1600, 9)}, "reassembly_overlap", ""},
		"IPv4 odd length":    {[]Packet{odd(f4)}, "reassembly_malformed", ""},
		"IPv6 odd length":    {[]Packet{odd(f6)}, "reassembly_malformed", "4 0 4"},
		"IPv6 too far":       {[]Packet{changed(changed(part(f6, 14, 1600, 2008, 9), 14+42, 0xff), 14+43, 0xf8)}, "reassembly_malformed", "4 0 42"},
		"IPv6 header chain":  {[]Packet{changed(part(f6, 14, 0, 16, 9), 14+40, 6)}, "reassembly_malformed", "4 3 40"},
		"IPv6 no fragment":   {[]Packet{{Kind: Reassemble, L3: 14, Data: f6}}, "reassembly_malformed", ""},
		"IPv4 cut short":     {[]Packet{{Kind: Reassemble, L3: 14, Data: f4[:200]}}, "reassembly_malformed", ""},
		"too long":           {[]Packet{part(long, 14, 0, 1600, 9), part(long, 14, 1600, 3200, 9), part(long, 14, 3200, 3508, 9)}, "reassembly_too_long", ""},
		"CE and not ECT":     {[]Packet{mark(part(f4, 14, 0, 800, 9), 3), part(f4, 14, 800, 2008, 9)}, "reassembly_ecn", ""},
		"other IPv4 id":      {[]Packet{part(f4, 14, 0, 800, 9), part(f4, 14, 800, 2008, 10)}, "fragments", ""},
		"other IPv6 id":      {[]Packet{part(f6, 14, 0, 800, 9), part(f6, 14, 800, 2008, 65545)}, "fragments", ""},
		"other IPv4 proto":   {[]Packet{part(f4, 14, 0, 800, 9), changed(part(f4, 14, 800, 2008, 9), 14+9, 6)}, "fragments", ""},
		"offset of L3 wrong": {[]Packet{{Kind: Reassemble, L3: 3000, Data: f4}}, "malformed", ""},
		"no kind":            {[]Packet{{L3: 14, Data: f4}}, "malformed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(Options{})
			b.handle(c.packets...)
			if len(b.injected) != 0 {
				t.Errorf("was sent in: %x", b.injected)
			}
			if b.count(c.counter) == 0 {
				t.Errorf("%s is 0", c.counter)
			}
			if got := b.errors(t); got != c.errors {
				t.Errorf("errors sent: %q, want %q", got, c.errors)
			}
		})
	}
}

func (b *bench) count(name string) uint64 {
	for n, v := range b.Counters.All() {
		if n == name {
			return v
		}
	}
	panic("no counter " + name)
}

// errors are the ICMPv6 errors sent: type, code, and what follows.
func (b *bench) errors(t *testing.T) string {
	t.Helper()
	var out []string
	for _, p := range b.sent {
		at := 40
		if p[0]>>4 == 4 {
			at = 20
		}
		out = append(out, fmt.Sprintf("%d %d %d", p[at], p[at+1], binary.BigEndian.Uint32(p[at+4:])))
	}
	return strings.Join(out, ", ")
}

func TestAtomicFragment(t *testing.T) {
	want := whole6(t, 500)
	b := newBench(Options{})
	// Another datagram of the same id is not disturbed.
	b.handle(part(whole6(t, 2000), 14, 0, 800, 9))
	b.handle(part(want, 14, 0, 508, 9))
	if len(b.injected) != 1 || !bytes.Equal(b.injected[0], want) {
		t.Fatalf("got  %x\nwant %x", b.injected, want)
	}
	if b.count("atomic_fragments") != 1 || b.count("reassembly_overlap") != 0 || len(b.reassembler.table) != 1 {
		t.Error("the atomic fragment met the other datagram")
	}
}

func TestECNOfFragments(t *testing.T) {
	for _, frame := range [][]byte{whole4(t, 1000), whole6(t, 1000)} {
		tos := func(p Packet, ecn byte) Packet {
			if frame[14]>>4 == 4 {
				p.Data[15] = ecn
			} else {
				p.Data[15] = ecn << 4
			}
			return p
		}
		b := newBench(Options{})
		b.handle(tos(part(frame, 14, 0, 504, 9), 2), tos(part(frame, 14, 504, 1008, 9), 3))
		if len(b.injected) != 1 {
			t.Fatal("ECT(0) and CE were not put together")
		}
		got := b.injected[0][15]
		if frame[14]>>4 == 6 {
			got >>= 4
		}
		if got&3 != 3 {
			t.Errorf("mark %d, want CE", got&3)
		}
	}
}

func TestReassemblyTimeout(t *testing.T) {
	for _, c := range []struct {
		frame []byte
		first bool
		want  string
	}{
		{whole4(t, 2000), true, "11 1 0"}, {whole6(t, 2000), true, "3 1 0"},
		{whole4(t, 2000), false, ""}, {whole6(t, 2000), false, ""},
	} {
		b := newBench(Options{})
		if c.first {
			b.handle(part(c.frame, 14, 0, 800, 9))
		}
		b.handle(part(c.frame, 14, 800, 1600, 9))
		b.now = b.now.Add(59 * time.Second)
		b.Expire()
		if b.count("reassembly_timeout") != 0 {
			t.Error("given up after 59 seconds")
		}
		b.now = b.now.Add(time.Second)
		b.Expire()
		if b.count("reassembly_timeout") != 1 || b.reassembler.bytes != 0 {
			t.Errorf("not given up after 60 seconds: %d bytes", b.reassembler.bytes)
		}
		if got := b.errors(t); got != c.want {
			t.Errorf("error %q, want %q", got, c.want)
		}
		b.handle(part(c.frame, 14, 1600, 2008, 9))
		if len(b.injected) != 0 {
			t.Error("whole in spite of the timeout")
		}
	}
}

func TestReassemblyIsBounded(t *testing.T) {
	b := newBench(Options{MaxBytes: 100_000, MaxDatagrams: 50})
	frame := whole6(t, 2000)
	for id := range uint32(1000) {
		b.handle(part(frame, 14, 0, 800, id))
		if b.reassembler.bytes > 100_000 || len(b.reassembler.table) > 50 {
			t.Fatalf("%d bytes, %d datagrams", b.reassembler.bytes, len(b.reassembler.table))
		}
	}
	if b.count("reassembly_evicted") < 900 {
		t.Errorf("evicted %d", b.count("reassembly_evicted"))
	}
	b.handle(part(frame, 14, 800, 2008, 999))
	if len(b.injected) != 1 {
		t.Error("the newest datagram gave way")
	}
	b.handle(part(frame, 14, 800, 2008, 0))
	if len(b.injected) != 1 {
		t.Error("the oldest datagram is still there")
	}
}

// TestReassemblyIsFair: fragments that nobody completes take the room of the interface that they come by, and
// of their sources there.
func TestReassemblyIsFair(t *testing.T) {
	frame := whole4(t, 2000)
	for name, stranger := range map[string]func(n int) (ifindex int, source byte){
		"by another interface":              func(int) (int, byte) { return 6, 9 },
		"by another interface, from many":   func(n int) (int, byte) { return 6, byte(n) },
		"from another source":               func(int) (int, byte) { return 5, 9 },
		"by two other interfaces, by turns": func(n int) (int, byte) { return 6 + n%2, byte(n) },
	} {
		b := newBench(Options{MaxBytes: 100_000, MaxDatagrams: 50})
		const ours = 12
		for id := range uint32(ours) {
			b.handle(part(frame, 14, 0, 800, id))
		}
		for n := range 1000 {
			p := part(frame, 14, 0, 800, 5000+uint32(n))
			p.Ifindex, p.Data[14+15] = stranger(n)
			b.handle(p)
			if b.reassembler.bytes > 100_000 || len(b.reassembler.table) > 50 {
				t.Fatalf("%s: %d bytes, %d datagrams", name, b.reassembler.bytes, len(b.reassembler.table))
			}
		}
		for id := range uint32(ours) {
			b.handle(part(frame, 14, 800, 2008, id))
		}
		if len(b.injected) != ours {
			t.Errorf("%s: %d of %d datagrams became whole", name, len(b.injected), ours)
		}
		b.now = b.now.Add(time.Minute)
		b.Expire()
		for ifindex, p := range b.reassembler.ports {
			if p.share != (share{}) || len(p.sources) != 0 || len(p.of) != 0 {
				t.Errorf("%s: interface %d still has %+v of %d sources", name, ifindex, p.share, len(p.sources))
			}
		}
	}
}

func TestOwnErrorsAreLimited(t *testing.T) {
	b := newBench(Options{ErrorsPerSecond: 10})
	bad := part(whole6(t, 2000), 14, 0, 804, 9)
	for range 100 {
		b.handle(bad)
	}
	if len(b.sent) != 10 || b.count("icmp_limited") != 90 {
		t.Errorf("%d sent, %d limited", len(b.sent), b.count("icmp_limited"))
	}
	b.now = b.now.Add(500 * time.Millisecond)
	for range 100 {
		b.handle(bad)
	}
	if len(b.sent) != 15 {
		t.Errorf("%d sent after half a second more, want 15", len(b.sent))
	}
}

func TestFailuresAreCounted(t *testing.T) {
	b := newBench(Options{})
	b.fail = errors.New("no")
	frame := whole6(t, 500)
	b.handle(part(frame, 14, 0, 508, 9), Packet{Kind: ICMPError, Type: 3, L3: 14, Data: frame})
	if b.count("inject_failed") != 1 || b.count("send_failed") != 1 || b.count("reassembled") != 0 || b.count("icmp_sent") != 0 {
		t.Error("failures are not counted as such")
	}
}
