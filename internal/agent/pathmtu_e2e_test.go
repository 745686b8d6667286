package agent

import (
	"net"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// farConfig: what the left host sends goes into a list or a tunnel, whose end is behind a router
// of the kernel's, at the right, with a link of 1400 octets.
const farConfig = `
interfaces: [{name: d0, roles: [n6, edge]}, {name: d1, roles: [sr, n3], peers: [10.20.0.0/24]}]
domain: ['fc00:1::/32', 'fc00:20::/32', 'fc00:e::/32']
encapsulation: {source: 'fc00:1::1'}
policies:
  - {name: far, segment_lists: [{segments: ['fc00:e::1', 'fc00:e::2']}]}
  - {name: alike, segment_lists: [{segments: ['fc00:e::1', 'fc00:e::3']}]}
gtpu: {addresses: [10.20.0.254]}
tunnels: [{name: gnb, remote: 10.50.0.1, remote_teid: 77}]
steering:
  - {prefix: 'fc00:30::/64', policy: far}
  - {prefix: 'fc00:31::/64', policy: alike}
  - {prefix: 10.78.0.0/16, tunnel: gnb}
  - {prefix: 'fc00:32::/64', tunnel: gnb}
`

// newRouted is a site whose right host is a router. Behind it, by a link of 1400 octets, is another
// host, 10.50.0.1.
func newRouted(t *testing.T) (s *site, far *netns.NS) {
	t.Helper()
	s, far = newSite(t), netns.New(t)
	s.wrap = asService
	netns.Veth(t, s.right, "r1", far, "f0")
	s.right.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	s.right.Sysctl(t, "net.ipv4.ip_forward", "1")
	s.left.Addr(t, "l0", "192.0.2.1/24")
	s.node.Addr(t, "d0", "192.0.2.254/24")
	s.node.Addr(t, "d1", "10.20.0.254/24")
	s.right.Addr(t, "r0", "10.20.0.1/24")
	s.right.Addr(t, "r1", "10.50.0.254/24")
	far.Addr(t, "f0", "10.50.0.1/24")
	s.node.IP(t, "route add 10.50.0.0/24 via 10.20.0.1")
	s.right.IP(t, "link set r1 mtu 1400")
	return s, far
}

// newFar returns the site, and the end of list and tunnel.
func newFar(t *testing.T) (*site, *netns.NS) {
	t.Helper()
	s, far := newRouted(t)
	s.node.Sysctl(t, "net.ipv4.ip_forward", "1")
	s.right.Addr(t, "r1", "fc00:40::1/64")
	far.Addr(t, "f0", "fc00:40::2/64")
	s.left.IP(t, "route add default via 192.0.2.254")
	s.left.IP(t, "-6 route add default via fc00:10::ff")
	s.node.IP(t, "-6 route add fc00:e::/32 via fc00:20::1")
	s.right.IP(t, "-6 route add fc00:e::/32 via fc00:40::2")
	s.configure(t, farConfig)
	return s, far
}

var learnedMTU = regexp.MustCompile(`mtu ([0-9]+)`)

// mtuTo is what the left host knows of the path to a destination: 0, that of its link.
func (s *site) mtuTo(t *testing.T, to string) int {
	t.Helper()
	m := learnedMTU.FindStringSubmatch(s.left.IP(t, "route get "+to))
	if m == nil {
		return 0
	}
	mtu, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return mtu
}

// ping sends one packet of so many octets that must not be cut. Nobody answers.
func (s *site) ping(t *testing.T, to string, octets int) {
	t.Helper()
	headers := 28
	if addr(to).Is6() {
		headers = 48
	}
	_ = s.left.Command("ping", "-M", "do", "-c", "1", "-W", "1", "-s", strconv.Itoa(octets-headers), to).Run() // which fails
}

// becomes sends packets until the left host knows an MTU.
func (s *site) becomes(t *testing.T, to string, octets, want int) {
	t.Helper()
	for range 5 {
		s.ping(t, to, octets)
		if s.mtuTo(t, to) != 0 {
			break
		}
	}
	if got := s.mtuTo(t, to); got != want {
		t.Errorf("the left host knows an MTU of %d to %s, want %d", got, to, want)
	}
}

// A router behind the SR domain's first link says that packets are too big: the source hears of
// it, with what is left for its own packets. With the rights of the service.
func TestRouterLowersAPath(t *testing.T) {
	s, _ := newFar(t)
	p := s.daemon(t, os.Args[0])
	s.becomes(t, "fc00:30::1", 1430, 1400-64)
	s.becomes(t, "10.78.0.1", 1450, 1400-36)
	if mtu := s.mtuTo(t, "fc00:31::1"); mtu != 0 {
		t.Errorf("the other list that begins with the same segment has an MTU of %d", mtu)
	}
	s.right.IP(t, "link set r1 mtu 1500")
	s.ping(t, "fc00:31::1", 1430)
	if mtu := s.mtuTo(t, "fc00:31::1"); mtu != 0 {
		t.Errorf("without a link that is too small the other list has an MTU of %d", mtu)
	}
	if t.Failed() {
		t.Log(p.log)
	}
}

// IPv6 of 1280 octets passes a tunnel whose path has 1300, as its sender relies on: in fragments of
// the tunnel's packet, which the kernel at its end puts together. With the rights of the service.
func TestLeastOfIPv6PassesATunnel(t *testing.T) {
	s, far := newFar(t)
	s.right.IP(t, "link set r1 mtu 1300")
	var gnb net.PacketConn
	far.Do(t, func() {
		var err error
		if gnb, err = net.ListenPacket("udp4", "10.50.0.1:2152"); err != nil {
			t.Fatal(err)
		}
	})
	defer gnb.Close()
	p := s.daemon(t, os.Args[0])
	want := 8 + 1280
	for range 5 { // the first one teaches the node what the path has
		s.ping(t, "fc00:32::1", 1280)
		b := make([]byte, 2000)
		if err := gnb.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, _, err := gnb.ReadFrom(b)
		if err == nil && n == want && b[1] == 0xff {
			return
		}
	}
	t.Errorf("no G-PDU of %d octets arrives:\n%s", want, p.log)
}

// tooBig are errors about packets of a list and of a tunnel that there are, as hosts forge them.
func tooBig(t *testing.T, from string) (six, four []gopacket.SerializableLayer) {
	t.Helper()
	quoted := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolIPv6, Length: 1460, SrcIP: addr("fc00:1::1").AsSlice(), DstIP: addr("fc00:e::2").AsSlice()}
	outer := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolICMPv6, SrcIP: addr(from).AsSlice(), DstIP: addr("fc00:1::1").AsSlice()}
	icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}
	if err := icmp.SetNetworkLayerForChecksum(outer); err != nil {
		t.Fatal(err)
	}
	six = []gopacket.SerializableLayer{outer, icmp, gopacket.Payload(append([]byte{0, 0, 1390 >> 8, 1390 & 0xff}, headerOf(t, quoted)...))}
	quoted4 := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Length: 1500, Protocol: layers.IPProtocolUDP, SrcIP: addr("10.20.0.254").AsSlice(), DstIP: addr("10.50.0.1").AsSlice()}
	udp := []byte{0xc3, 0x50, 2152 >> 8, 2152 & 0xff, 5, 200, 0, 0}
	four = []gopacket.SerializableLayer{
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: addr("10.20.0.1").AsSlice(), DstIP: addr("10.20.0.254").AsSlice()},
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1390}, gopacket.Payload(append(headerOf(t, quoted4), udp...)),
	}
	return six, four
}

// Hosts at the edge and in the data network forge what a router would say: nothing is lowered.
// From where the router is the same has its effect.
func TestHostsLowerNoPath(t *testing.T) {
	s, _ := newFar(t)
	s.right.IP(t, "link set r1 mtu 1500")
	c := &customer{site: s, daemon: s.daemon(t, os.Args[0])}
	c.atLeft = packetSocket(t, c.left, c.in.Index)
	for _, from := range []string{"fc00:20::1", "fc00:10::1"} {
		six, four := tooBig(t, from)
		c.send(t, layers.EthernetTypeIPv6, six...)
		c.send(t, layers.EthernetTypeIPv4, four...)
	}
	time.Sleep(300 * time.Millisecond)
	both := map[string]int{"fc00:30::1": 1390 - 64, "10.78.0.1": 1390 - 36}
	for to := range both {
		s.ping(t, to, 1430)
		if mtu := s.mtuTo(t, to); mtu != 0 {
			t.Errorf("to %s the left host knows an MTU of %d\n%s", to, mtu, c.daemon.log)
		}
	}
	six, four := tooBig(t, "fc00:20::1")
	c.atLeft, c.in, c.nodeIn = packetSocket(t, c.right, c.out.Index), c.out, c.node.Interface(t, "d1")
	c.send(t, layers.EthernetTypeIPv6, six...)
	c.send(t, layers.EthernetTypeIPv4, four...)
	for to, mtu := range both {
		s.becomes(t, to, 1430, mtu)
	}
}

// headerOf is a header as it stands, with no payload behind it.
func headerOf(t *testing.T, l gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := l.SerializeTo(b, gopacket.SerializeOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
