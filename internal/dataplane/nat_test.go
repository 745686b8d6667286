package dataplane

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/packet"
)

// natOf is the NAT of the tests' pool, 64 UEs: sixteen of them share an address.
var natOf = nat.NAT{Addresses: prefix("198.51.100.0/30"), PortsPerUE: 4032}.WithDefaults()

const natHost = "203.0.113.1" // in the Internet

// natRig is a data path whose UEs 5 and 21 are behind a NAT, with the TEIDs 7 and 8.
func natRig(t *testing.T, opts Options) *DataPlane {
	t.Helper()
	opts.Limits = sessionLimits
	opts.Limits.NATAddresses = 4
	d := sessionRig(t, opts)
	natSettings(t, d, natOf)
	must(t, d.Sessions.Put(plain(5, 7)))
	must(t, d.Sessions.Put(plain(21, 8)))
	resolve(t, d)
	return d
}

func natSettings(t *testing.T, d *DataPlane, list ...nat.NAT) {
	t.Helper()
	s := d.settings.Want
	s.NATs = nil
	for _, n := range list {
		s.NATs = append(s.NATs, settings.NAT{Pool: prefix("10.45.0.0/26"), NAT: n})
	}
	must(t, d.SetSettings(s))
}

// through is the frame that leaves, or nil and the reason why none does.
func through(t *testing.T, d *DataPlane, frame []byte) ([]byte, reason.Reason) {
	t.Helper()
	before, err := d.Outcomes()
	must(t, err)
	_, out, err := d.Frames.Test(frame, 1)
	must(t, err)
	after, err := d.Outcomes()
	must(t, err)
	for r := range after {
		if after[r] != before[r] && reason.Reason(r).String() == "forwarded" {
			return out, reason.Reason(r)
		} else if after[r] != before[r] {
			return nil, reason.Reason(r)
		}
	}
	t.Fatal("the frame was not counted")
	return nil, 0
}

// gpdu is a UE's packet as its gNB sends it.
func gpdu(teid uint32, layers ...packet.Layer) []byte {
	return packet.Frame(append([]packet.Layer{packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: teid}}, layers...)...)
}

// natLook is one direction of a flow. Ports of ICMP are identifiers.
type natLook struct {
	src, dst     string
	sport, dport uint16
}

// natLayers are an IP packet of a flow.
func natLayers(protocol string, l natLook, ttl uint8) []packet.Layer {
	ip := packet.IPv4{Src: addr(l.src), Dst: addr(l.dst), TTL: &ttl}
	switch protocol {
	case "tcp":
		return []packet.Layer{ip, packet.TCP{Sport: l.sport, Dport: l.dport}, packet.Payload{Count: 33}}
	case "udp":
		return []packet.Layer{ip, packet.UDP{Sport: l.sport, Dport: l.dport}, packet.Payload{Count: 33}}
	}
	return nil
}

// natID is what becomes of an identification of a UE: sixteen UEs share those of an address.
func natID(ue uint32, id uint16) uint16 { return uint16(ue)%16*4096 + id%4096 }

// sentBy are the layers of an IPv4 packet with the identification of a UE.
func sentBy(ue uint32, layers []packet.Layer) []packet.Layer {
	ip := layers[0].(packet.IPv4)
	ip.ID = natID(ue, ip.ID)
	layers[0] = ip
	return layers
}

// A UE's packets leave with its public address and a port of its block, whole and with right
// checksums; what comes to that port reaches the UE, whoever sends it (RFC 4787: mapping and
// filtering do not depend on the other end).
func TestNATThereAndBack(t *testing.T) {
	d := natRig(t, Options{})
	for _, protocol := range []string{"udp", "tcp"} {
		for ue, teid := range map[uint32]uint32{5: 7, 21: 8} {
			private := ue4(ue).String()
			block, _ := natOf.BlockOf(prefix("10.45.0.0/26"), ue4(ue))
			out, why := through(t, d, gpdu(teid, natLayers(protocol, natLook{private, natHost, 4711, 53}, 64)...))
			if out == nil {
				t.Fatalf("%s of UE %d: %s", protocol, ue, why)
			}
			port := uint16(out[34])<<8 | uint16(out[35])
			if port < block.First || port > block.Last || port%2 != 1 {
				t.Errorf("%s of UE %d: port %d, want an odd one of %d to %d", protocol, ue, port, block.First, block.Last)
			}
			want := packet.Frame(append([]packet.Layer{packet.Ethernet{}}, sentBy(ue, natLayers(protocol, natLook{block.Address.String(), natHost, port, 53}, 63))...)...)
			if !bytes.Equal(out[14:], want[14:]) {
				t.Errorf("%s of UE %d leaves as\n%x, want\n%x", protocol, ue, out[14:], want[14:])
			}
			for _, host := range []string{natHost, "192.0.2.99"} {
				in, why := through(t, d, packet.Frame(append([]packet.Layer{packet.Ethernet{}}, natLayers(protocol, natLook{host, block.Address.String(), 1053, port}, 60)...)...))
				if in == nil {
					t.Fatalf("%s to UE %d: %s", protocol, ue, why)
				}
				want := packet.Frame(append([]packet.Layer{packet.Ethernet{}}, natLayers(protocol, natLook{host, private, 1053, 4711}, 59)...)...)
				if !bytes.HasSuffix(in, want[14:]) {
					t.Errorf("%s to UE %d arrives as\n%x, want at its end\n%x", protocol, ue, in, want[14:])
				}
			}
		}
	}
}

// The same port of a UE is the same public port for every destination, another port another.
func TestNATMappingIsTheEndpoints(t *testing.T) {
	d := natRig(t, Options{})
	ports := map[uint16]uint16{}
	for _, sport := range []uint16{5000, 5001, 5002, 5000} {
		for _, to := range []string{natHost, "203.0.113.2"} {
			out, why := through(t, d, gpdu(7, natLayers("udp", natLook{ue4(5).String(), to, sport, 53}, 64)...))
			if out == nil {
				t.Fatal(why)
			}
			port := uint16(out[34])<<8 | uint16(out[35])
			if had, ok := ports[sport]; ok && had != port {
				t.Errorf("port %d is %d to one and %d to another", sport, had, port)
			}
			ports[sport] = port
		}
	}
	if ports[5000] == ports[5001] || ports[5001] == ports[5002] || ports[5000] == ports[5002] {
		t.Errorf("ports share a public one: %v", ports)
	}
}

// Nobody reaches what no UE has opened, the private addresses, or by a public source.
func TestNATRefuses(t *testing.T) {
	d := natRig(t, Options{})
	block, _ := natOf.BlockOf(prefix("10.45.0.0/26"), ue4(5))
	udp := func(src, dst string, dport uint16) []byte {
		return packet.Frame(append([]packet.Layer{packet.Ethernet{}}, natLayers("udp", natLook{src, dst, 53, dport}, 64)...)...)
	}
	for what, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"to a port that nobody has":      {udp(natHost, block.Address.String(), block.First), "nat_no_mapping"},
		"to a port below all blocks":     {udp(natHost, block.Address.String(), 80), "nat_no_mapping"},
		"to the private address":         {udp(natHost, ue4(5).String(), 4711), "nat_behind"},
		"from a public address":          {udp(block.Address.String(), "198.51.100.3", 4711), "ue_source"},
		"of a protocol without ports":    {gpdu(7, packet.IPv4{Src: ue4(5), Dst: addr(natHost), Protocol: new(uint8(47))}, packet.Payload{Count: 20}), "nat_protocol"},
		"cut short":                      {gpdu(7, packet.IPv4{Src: ue4(5), Dst: addr(natHost), Protocol: new(uint8(6))}, packet.Payload{Count: 4}), "nat_protocol"},
		"to another's port by hairpin":   {gpdu(7, natLayers("udp", natLook{ue4(5).String(), "198.51.100.1", 1, 2000}, 64)...), "nat_no_mapping"},
		"an error about nothing of ours": {packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr(natHost), Dst: block.Address}, packet.ICMP{Type: 3, Code: 3}), "nat_protocol"},
	} {
		wantReason(t, d, what, c.frame, c.want)
	}
}

// A UE that sends to another's public port reaches it, from its own public port (RFC 4787,
// REQ-9).
func TestNATHairpin(t *testing.T) {
	d := natRig(t, Options{})
	out, why := through(t, d, gpdu(8, natLayers("udp", natLook{ue4(21).String(), natHost, 6000, 53}, 64)...))
	if out == nil {
		t.Fatal(why)
	}
	theirs := netip.AddrFrom4([4]byte(out[26:30]))
	port := uint16(out[34])<<8 | uint16(out[35])
	out, why = through(t, d, gpdu(7, natLayers("udp", natLook{ue4(5).String(), theirs.String(), 7000, port}, 64)...))
	if out == nil {
		t.Fatal(why)
	}
	inner := out[len(out)-61:]
	own, _ := natOf.BlockOf(prefix("10.45.0.0/26"), ue4(5))
	sport := uint16(inner[20])<<8 | uint16(inner[21])
	want := packet.Frame(append([]packet.Layer{packet.Ethernet{}}, sentBy(5, natLayers("udp", natLook{own.Address.String(), ue4(21).String(), sport, 6000}, inner[8]))...)...)
	if !bytes.Equal(inner, want[14:]) || sport < own.First || sport > own.Last {
		t.Errorf("arrives as\n%x, want\n%x", inner, want[14:])
	}
}

// opened is the public side of what a UE has sent.
func opened(t *testing.T, d *DataPlane, teid uint32, layers ...packet.Layer) (address string, out []byte) {
	t.Helper()
	out, why := through(t, d, gpdu(teid, layers...))
	if out == nil {
		t.Fatal(why)
	}
	return netip.AddrFrom4([4]byte(out[26:30])).String(), out
}

// onN6 is an IP packet on N6.
func onN6(layers ...packet.Layer) []byte {
	return packet.Frame(append([]packet.Layer{packet.Ethernet{}}, layers...)...)
}

// Echo: the identifier is what a port is elsewhere, both for a UE that asks and for one that
// answers.
func TestNATEcho(t *testing.T) {
	d := natRig(t, Options{})
	echo := func(kind uint8, src, dst string, id uint16, ttl uint8) []packet.Layer {
		return []packet.Layer{packet.IPv4{Src: addr(src), Dst: addr(dst), TTL: &ttl}, packet.ICMP{Type: kind, Rest: uint32(id)<<16 | 1}, packet.Payload{Count: 56}}
	}
	ue := ue4(5).String()
	public, out := opened(t, d, 7, echo(8, ue, natHost, 77, 64)...)
	id := uint16(out[38])<<8 | uint16(out[39])
	if want := onN6(sentBy(5, echo(8, public, natHost, id, 63))...); !bytes.Equal(out[14:], want[14:]) {
		t.Errorf("the request leaves as\n%x, want\n%x", out[14:], want[14:])
	}
	for _, kind := range []uint8{0, 8} { // an answer, and a request of the other side
		in, why := through(t, d, onN6(echo(kind, natHost, public, id, 60)...))
		if in == nil {
			t.Fatal(why)
		}
		if want := onN6(echo(kind, natHost, ue, 77, 59)...); !bytes.HasSuffix(in, want[14:]) {
			t.Errorf("type %d arrives as\n%x, want\n%x", kind, in, want[14:])
		}
	}
}

// An ICMP error is about a packet that was translated: what it quotes is translated back, with
// every checksum (RFC 5508). One that a UE sends is translated, too.
func TestNATErrors(t *testing.T) {
	d := natRig(t, Options{})
	ue := ue4(5).String()
	fault := func(src, dst string, ttl uint8, quoted ...packet.Layer) []packet.Layer {
		return append([]packet.Layer{packet.IPv4{Src: addr(src), Dst: addr(dst), TTL: &ttl}, packet.ICMP{Type: 3, Code: 1}}, quoted...)
	}
	for _, protocol := range []string{"udp", "tcp"} {
		public, out := opened(t, d, 7, natLayers(protocol, natLook{ue, natHost, 4711, 53}, 64)...)
		port := uint16(out[34])<<8 | uint16(out[35])
		in, why := through(t, d, onN6(fault("192.0.2.254", public, 60, natLayers(protocol, natLook{public, natHost, port, 53}, 62)...)...))
		if in == nil {
			t.Fatalf("%s: %s", protocol, why)
		}
		if want := onN6(fault("192.0.2.254", ue, 59, natLayers(protocol, natLook{ue, natHost, 4711, 53}, 62)...)...); !bytes.HasSuffix(in, want[14:]) {
			t.Errorf("%s: the error arrives as\n%x, want\n%x", protocol, in, want[14:])
		}
		out, why = through(t, d, gpdu(7, fault(ue, natHost, 64, natLayers(protocol, natLook{natHost, ue, 53, 4711}, 50)...)...))
		if out == nil {
			t.Fatalf("%s of the UE: %s", protocol, why)
		}
		if want := onN6(sentBy(5, fault(public, natHost, 63, natLayers(protocol, natLook{natHost, public, 53, port}, 50)...))...); !bytes.Equal(out[14:], want[14:]) {
			t.Errorf("%s: the UE's error leaves as\n%x, want\n%x", protocol, out[14:], want[14:])
		}
	}
	public, _ := opened(t, d, 7, natLayers("udp", natLook{ue, natHost, 4711, 53}, 64)...)
	wantReason(t, d, "about a packet of another", onN6(fault("192.0.2.254", public, 60, natLayers("udp", natLook{"192.0.2.1", natHost, 4711, 53}, 62)...)...), "nat_protocol")
	wantReason(t, d, "about a flow that is not", gpdu(7, fault(ue, natHost, 64, natLayers("udp", natLook{natHost, ue, 53, 9}, 50)...)...), "nat_no_mapping")
}

// A packet without a checksum stays without one; fragments of a UE follow the first one, and
// those from outside are put together first.
func TestNATFragments(t *testing.T) {
	d := natRig(t, Options{})
	none := uint16(0)
	_, out := opened(t, d, 7, packet.IPv4{Src: ue4(5), Dst: addr(natHost)}, packet.UDP{Sport: 1, Dport: 2, Checksum: &none}, packet.Payload{Count: 9})
	if out[40] != 0 || out[41] != 0 {
		t.Errorf("a checksum where there was none: %x", out[34:42])
	}
	public, out := opened(t, d, 7, packet.IPv4{Src: ue4(5), Dst: addr(natHost), ID: 9, Fragment: 185, Protocol: new(uint8(17))}, packet.Payload{Count: 40})
	want := onN6(packet.IPv4{Src: addr(public), Dst: addr(natHost), ID: natID(5, 9), Fragment: 185, Protocol: new(uint8(17)), TTL: new(uint8(63))}, packet.Payload{Count: 40})
	if !bytes.Equal(out[14:], want[14:]) {
		t.Errorf("a later fragment leaves as\n%x, want\n%x", out[14:], want[14:])
	}
	wantReason(t, d, "a fragment from outside", onN6(packet.IPv4{Src: addr(natHost), Dst: addr(public), ID: 9, Fragment: 185, Protocol: new(uint8(17))}, packet.Payload{Count: 40}), "slow_path")
}

// A packet that the daemon gets, for an error or to keep it, is as it was received.
func TestNATIsUndone(t *testing.T) {
	d := natRig(t, Options{})
	ue := ue4(5).String()
	public, out := opened(t, d, 7, natLayers("udp", natLook{ue, natHost, 4711, 53}, 64)...)
	port := uint16(out[34])<<8 | uint16(out[35])
	undone := func(what string, frame []byte) {
		_, why := through(t, d, frame)
		if punt := onePunt(t, d); !bytes.Equal(punt.Data, frame) {
			t.Errorf("%s (%s): the daemon gets\n%x, want\n%x", what, why, punt.Data, frame)
		}
	}
	undone("with a TTL of 1", onN6(natLayers("udp", natLook{natHost, public, 53, port}, 1)...))
	s := plain(5, 7)
	s.Rules[1].Action = ActionBuffer
	must(t, d.Sessions.Put(s))
	undone("kept", onN6(natLayers("udp", natLook{natHost, public, 53, port}, 64)...))
}

// A UE that has used up its ports gets no more, and takes none of others; the least ports that
// it can use are three quarters.
func TestNATPortsEnd(t *testing.T) {
	d := natRig(t, Options{})
	n := nat.NAT{Addresses: prefix("198.51.100.0/32"), PortsPerUE: 1008}.WithDefaults()
	natSettings(t, d, n)
	got := map[uint16]bool{}
	refused := 0
	for sport := uint16(2000); sport < 2000+2*1008; sport++ {
		out, why := through(t, d, gpdu(7, natLayers("udp", natLook{ue4(5).String(), natHost, sport, 53}, 64)...))
		if out == nil {
			if why.String() != "nat_ports" {
				t.Fatal(why)
			}
			if refused++; refused == 1 {
				t.Logf("the first flow without a port is after %d of 1008", len(got))
			}
			continue
		}
		port := uint16(out[34])<<8 | uint16(out[35])
		block, _ := n.BlockOf(prefix("10.45.0.0/26"), ue4(5))
		if got[port] || port < block.First || port > block.Last {
			t.Fatalf("port %d is given twice, or not of the block", port)
		}
		got[port] = true
	}
	if refused != 2*1008-len(got) || len(got) < 1008*3/4 {
		t.Errorf("%d ports of 1008 are used, %d flows refused", len(got), refused)
	}
	if out, why := through(t, d, gpdu(8, natLayers("udp", natLook{ue4(21).String(), natHost, 2000, 53}, 64)...)); out == nil {
		t.Errorf("another UE: %s", why)
	}
}

// Mappings survive a daemon that is killed, and other timeouts; a NAT with other ports begins
// without any.
func TestNATRestart(t *testing.T) {
	pins := filepath.Join(pinParent(t), "culvert")
	t.Cleanup(func() { must(t, Remove(pins)) })
	d := natRig(t, Options{PinPath: pins})
	_, before := opened(t, d, 7, natLayers("udp", natLook{ue4(5).String(), natHost, 4711, 53}, 64)...)
	must(t, d.Close())
	d = natRig(t, Options{PinPath: pins})
	public, after := opened(t, d, 7, natLayers("udp", natLook{ue4(5).String(), natHost, 4711, 53}, 64)...)
	if !bytes.Equal(before, after) {
		t.Errorf("the flow had %x, and has %x", before[26:36], after[26:36])
	}
	port := uint16(after[34])<<8 | uint16(after[35])
	in := onN6(natLayers("udp", natLook{natHost, public, 53, port}, 64)...)
	wantReason(t, d, "to the port", in, "forwarded")
	other := natOf
	other.Timeouts.UDP++
	natSettings(t, d, other)
	wantReason(t, d, "to the port, with other timeouts", in, "forwarded")
	other.PortsPerUE *= 2
	natSettings(t, d, other)
	wantReason(t, d, "to the port, with more ports for each UE", in, "nat_no_mapping")
	natSettings(t, d)
	_, out := opened(t, d, 7, natLayers("udp", natLook{ue4(5).String(), natHost, 4711, 53}, 64)...)
	if !bytes.Equal(out[26:30], ue4(5).AsSlice()) {
		t.Errorf("without NAT the source is %v", out[26:30])
	}
}

// A UE that gets the address of one whose session has ended has none of its ports. A change of
// a session, and a daemon that starts again, leave them.
func TestNATNextSession(t *testing.T) {
	pins := filepath.Join(pinParent(t), "culvert")
	t.Cleanup(func() { must(t, Remove(pins)) })
	d := natRig(t, Options{PinPath: pins})
	inbound := map[uint32][]byte{}
	for ue, teid := range map[uint32]uint32{5: 7, 21: 8} {
		for _, protocol := range []string{"tcp", "udp"} {
			public, out := opened(t, d, teid, natLayers(protocol, natLook{ue4(ue).String(), natHost, 4711, 53}, 64)...)
			port := uint16(out[34])<<8 | uint16(out[35])
			inbound[ue] = onN6(natLayers(protocol, natLook{natHost, public, 53, port}, 64)...)
		}
	}
	idle := plain(5, 7)
	idle.Rules[1].Action = ActionBuffer
	must(t, d.Sessions.Put(idle))
	must(t, d.Sessions.Put(plain(5, 7)))
	wantReason(t, d, "after changes of the session", inbound[5], "forwarded")
	want, limits := d.settings.Want, d.limits
	must(t, d.Close())
	d, err := Open(Options{PinPath: pins, Limits: limits})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	must(t, d.SetSettings(want))
	must(t, d.Sessions.Put(plain(5, 7)))
	must(t, d.Sessions.Put(plain(21, 8)))
	resolve(t, d)
	wantReason(t, d, "after a restart", inbound[5], "forwarded")

	must(t, d.Sessions.Drop(5))
	wantReason(t, d, "without a session", inbound[5], "no_pdr")
	next := plain(5, 7)
	next.ID = 105
	must(t, d.Sessions.Put(next))
	resolve(t, d)
	wantReason(t, d, "to the next session", inbound[5], "nat_no_mapping")
	if n := d.NAT.Counts(prefix("10.45.0.0/26")); n[nat.UDP] != 1 || n[nat.TCP] != 1 {
		t.Errorf("mappings left: %v, want those of the other UE", n)
	}
	wantReason(t, d, "to the other UE", inbound[21], "forwarded")
}

// What is behind a packet in its frame is none of it: a header is not read from there, and an
// ICMP error that quotes eight octets of TCP has no checksum of TCP.
func TestNATTrailer(t *testing.T) {
	d := natRig(t, Options{})
	short := gpdu(7, packet.IPv4{Src: ue4(5), Dst: addr(natHost), Protocol: new(uint8(6))}, packet.Payload{Count: 4})
	wantReason(t, d, "a header that goes on behind the packet", append(short, make([]byte, 30)...), "nat_protocol")
	public, out := opened(t, d, 7, natLayers("tcp", natLook{ue4(5).String(), natHost, 4711, 53}, 64)...)
	port := uint16(out[34])<<8 | uint16(out[35])
	quoting := func(outer, quoted packet.IPv4, sport uint16) []packet.Layer {
		return []packet.Layer{outer, packet.ICMP{Type: 3, Code: 1}, quoted, packet.Payload{Data: packet.Hex{byte(sport >> 8), byte(sport), 0, 53, 0, 0, 0, 1}}}
	}
	tcp, whole, trailer := new(uint8(6)), new(uint16(73)), make([]byte, 40)
	in, why := through(t, d, append(onN6(quoting(packet.IPv4{Src: addr("192.0.2.254"), Dst: addr(public)},
		packet.IPv4{Src: addr(public), Dst: addr(natHost), Protocol: tcp, Length: whole}, port)...), trailer...))
	if in == nil {
		t.Fatal(why)
	}
	want := append(onN6(quoting(packet.IPv4{Src: addr("192.0.2.254"), Dst: ue4(5), TTL: new(uint8(63))},
		packet.IPv4{Src: ue4(5), Dst: addr(natHost), Protocol: tcp, Length: whole}, 4711)...), trailer...)
	if !bytes.HasSuffix(in, want[14:]) {
		t.Errorf("the error arrives as\n%x, want\n%x", in, want[14:])
	}
}

// The daemon reaches a UE by its private address, as for ICMP errors; nobody else does.
func TestNATOwnPackets(t *testing.T) {
	d := natRig(t, Options{})
	frame := onN6(natLayers("udp", natLook{natHost, ue4(5).String(), 53, 4711}, 64)...)
	wantReason(t, d, "somebody's", frame, "nat_behind")
	before := volumes(t, d, 5)[2].Packets
	must(t, d.InjectToUE(5, frame[14:]))
	if got := volumes(t, d, 5)[2].Packets - before; got != 1 {
		t.Errorf("%d packets went to the UE, want 1", got)
	}
}
