package slowpath

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// gateway is a node with the real data path and a SlowPath behind it, between a
// and c, whose links packet sockets listen on.
type gateway struct {
	a, c   int
	path   *dataplane.DataPlane
	slow   *SlowPath
	toward []byte // Ethernet addresses from a to the gateway
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	a, g, c := netns.New(t), netns.New(t), netns.New(t)
	endA, endG := netns.Veth(t, a, "a0", g, "g0")
	endG1, endC := netns.Veth(t, g, "g1", c, "c0")
	a.Run(t, "ethtool", "-K", "a0", "gro", "on")
	c.Run(t, "ethtool", "-K", "c0", "gro", "on")
	for _, s := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		g.Sysctl(t, s, "1")
	}
	for name, addrs := range map[string][]string{
		"g0": {"192.0.2.2/24", "2001:db8::2/64"}, "g1": {"203.0.113.1/24", "2001:db8:c::1/64"},
	} {
		for _, addr := range addrs {
			g.Addr(t, name, addr)
		}
	}
	g.IP(t, "neigh add 192.0.2.1 nud permanent dev g0 lladdr "+endA.HardwareAddr.String())
	g.IP(t, "neigh add 2001:db8::1 nud permanent dev g0 lladdr "+endA.HardwareAddr.String())
	g.IP(t, "neigh add 203.0.113.2 nud permanent dev g1 lladdr "+endC.HardwareAddr.String())
	g.IP(t, "neigh add 2001:db8:c::2 nud permanent dev g1 lladdr "+endC.HardwareAddr.String())
	g.IP(t, "route add 198.51.100.0/24 via 203.0.113.2")
	g.IP(t, "-6 route add 2001:db8:e::/48 via 2001:db8:c::2")
	w := &gateway{
		a: capture(t, a, "a0"), c: capture(t, c, "c0"),
		toward: append(bytes.Clone(endG.HardwareAddr), endA.HardwareAddr...),
	}
	w.start(t, g, endG.Index, endG1.Index)
	return w
}

// start loads the data path and joins it with a SlowPath.
func (w *gateway) start(t *testing.T, g *netns.NS, ports ...int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%+v", err)
		}
	}
	var err error
	w.path, err = dataplane.Open(dataplane.Options{Limits: settings.Limits{
		SIDs: 64, Policies: 16, SegmentLists: 16, Tunnels: 64, Routes: 16, Adjacencies: 16,
	}})
	check(err)
	g.Do(t, func() {
		for _, p := range ports {
			_, err := w.path.XDP.Attach(p, attach.ModeNative)
			check(err)
			check(w.path.Ports.Set(p, port.Port{}))
			check(w.path.Ports.PutDevice(p))
		}
	})
	source := netip.MustParseAddr("2001:db8:c::1")
	check(w.path.SetSettings(settings.Settings{
		HopLimit: 64, Source: source, ErrorsPerSecond: 1000, GTPUAddresses: []netip.Addr{b4},
	}))
	check(w.path.SIDs.Put(srv6.LocalSID{SID: netip.MustParsePrefix("2001:db8:f::4/128"), Behavior: srv6.EndDT4, Table: 254}))
	check(w.path.SIDs.Put(srv6.LocalSID{SID: netip.MustParsePrefix("2001:db8:f::1/128"), Behavior: srv6.End}))
	check(w.path.Policies.Put(srpolicy.Policy{
		Name: "p", Behavior: srv6.HEncapsRed, Source: source,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{netip.MustParseAddr("2001:db8:e::1")}}},
	}))
	check(w.path.Steering.Put(srpolicy.Steering{Prefix: netip.MustParsePrefix("198.51.100.0/25"), Policy: "p"}))
	w.slow = New(Options{
		Injector: w.path.Frames, Sender: rawSender(t, g),
		Resolve: func(Neighbour) {}, Resolved: func(Neighbour) bool { return false },
	})
	w.serve(t, g)
}

// serve hands punts to the SlowPath, in the gateway's namespace: that is where
// the kernel looks for the interfaces that frames are sent in on.
func (w *gateway) serve(t *testing.T, g *netns.NS) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go g.Do(t, func() {
		done <- w.path.Punts.Read(ctx, func(p event.Punt) {
			w.slow.Handle(Packet{
				Kind: Kind(p.Kind), Ifindex: p.Ifindex, Info: p.Info, L3: p.L3, Type: p.Type, Code: p.Code, Data: p.Data,
			})
		})
	})
	t.Cleanup(func() {
		cancel()
		<-done
		if err := w.path.Close(); err != nil {
			t.Error(err)
		}
	})
}

// send sends a packet from a; its Ethernet addresses are put right.
func (w *gateway) send(t *testing.T, frame []byte) {
	t.Helper()
	frame = append(bytes.Clone(w.toward), frame[12:]...)
	if err := unix.Send(w.a, frame, 0); err != nil {
		t.Fatal(err)
	}
}

// frame is an Ethernet frame of layers.
func frame(t *testing.T, kind layers.EthernetType, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	return serialize(t, append(ethernet(kind), l...)...)
}

func to6(dst string, next layers.IPProtocol, hops uint8) *layers.IPv6 {
	ip := ip6(next)
	ip.DstIP, ip.HopLimit = net.ParseIP(dst), hops
	return ip
}

func to4(dst string) *layers.IPv4 {
	ip := ip4(layers.IPProtocolUDP)
	ip.DstIP = net.ParseIP(dst).To4()
	return ip
}

// spent is a packet one hop later.
func spent(packet []byte) []byte {
	p := ipv4(bytes.Clone(packet))
	p[8]--
	p.finish(len(p))
	return p
}

// Fragments of a packet to a SID go up, come back whole, and are decapsulated.
func TestDataPathReassembly(t *testing.T) {
	w := newGateway(t)
	ip := to4("198.51.100.200")
	inner := serialize(t, ip, udp(ip), payload(1400))
	whole := frame(t, layers.EthernetTypeIPv6, to6("2001:db8:f::4", layers.IPProtocolIPv4, 64), gopacket.Payload(inner))
	for _, span := range [][2]int{{800, len(inner)}, {0, 800}} {
		w.send(t, part(whole, 14, span[0], span[1], 9).Data)
	}
	got := receive(t, w.c, func(f []byte) bool { return f[14]>>4 == 4 && len(f) > 1000 })
	if want := spent(inner); !bytes.Equal(got[14:], want) {
		t.Errorf("got\n%x\nwant\n%x", got[14:], want)
	}
}

// A packet that the policy's headers make too big for the link is cut, each
// part goes through the policy, and the parts are the packet.
func TestDataPathFragmentation(t *testing.T) {
	w := newGateway(t)
	ip := to4("198.51.100.7")
	packet := serialize(t, ip, udp(ip), payload(1472))
	w.send(t, frame(t, layers.EthernetTypeIPv4, gopacket.Payload(packet)))
	b := newBench(Options{})
	for range 2 {
		f := receive(t, w.c, func(f []byte) bool { return f[14]>>4 == 6 && f[14+6] == protocolIPv4 })
		if len(f) > 1514 {
			t.Errorf("a frame of %d bytes", len(f))
		}
		b.handle(Packet{Kind: Reassemble, L3: 14, Data: frame(t, layers.EthernetTypeIPv4, gopacket.Payload(f[54:]))})
	}
	if want := spent(packet); len(b.injected) != 1 || !bytes.Equal(b.injected[0][14:], want) {
		t.Errorf("together\n%x\nwant\n%x", b.injected, want)
	}
}

// Errors reach the sender.
func TestDataPathErrors(t *testing.T) {
	w := newGateway(t)
	u := to6("2001:db8:f::1", layers.IPProtocolUDP, 1)
	srh := []byte{17, 2, 4, 1, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 0xe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	u.NextHeader = layers.IPProtocolIPv6Routing
	w.send(t, frame(t, layers.EthernetTypeIPv6, u, gopacket.Payload(append(srh, payload(16)...))))
	got := receive(t, w.a, func(f []byte) bool { return f[14]>>4 == 6 && f[20] == protocolICMPv6 && f[54] < 128 })
	if got[54] != timeExceeded || source(got[14:]) != "2001:db8::2" || !bytes.Equal(got[62+8:62+40], append(u.SrcIP, u.DstIP...)) {
		t.Errorf("hop limit: %x", got[14:])
	}

	df := to4("198.51.100.7")
	df.Flags = layers.IPv4DontFragment
	w.send(t, frame(t, layers.EthernetTypeIPv4, df, udp(df), payload(1472)))
	got = receive(t, w.a, func(f []byte) bool { return f[14]>>4 == 4 && f[23] == protocolICMP })
	if got[34] != 3 || got[35] != 4 || int(got[40])<<8|int(got[41]) != 1460 || source(got[14:]) != "192.0.2.2" {
		t.Errorf("too big: %x", got[14:])
	}

	ip := ip4(layers.IPProtocolUDP)
	w.send(t, frame(t, layers.EthernetTypeIPv4, ip, udp(ip), gopacket.Payload{0x30, 255, 0, 0, 0xde, 0xad, 0xbe, 0xef}))
	got = receive(t, w.a, func(f []byte) bool { return f[14]>>4 == 4 && f[23] == protocolUDP })
	fields := tshark(t, [][]byte{got[14:]}, "ip.src", "gtp.message", "gtp.teid_data", "gtp.ext_hdr.udp_port")
	if want := "192.0.2.2\t0x1a\t0xdeadbeef\t40000"; fields[0] != want {
		t.Errorf("Error Indication: %q, want %q", fields[0], want)
	}
}
