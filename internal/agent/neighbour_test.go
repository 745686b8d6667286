package agent

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// customerConfig: the right host is a customer's, in a table of its own. What
// comes from the left host by layer 3 is the customer's too.
const customerConfig = `
interfaces: [{name: d0, roles: [n3, n6, sr], peers: any, host: any}, {name: d1, roles: [n3, n6, sr], peers: any, host: any}]
domain: ['fc00::/16']
encapsulation: {source: 'fc00:1::1'}
locators: [{name: main, prefix: 'fc00:1::/48'}]
sids:
  - {sid: 'fc00:1:0:4::/64', behavior: End.DT46, table: 100}
  - {sid: 'fc00:1:0:5::/64', behavior: End.DT46, table: 254}
tunnels: [{name: gnb, remote: 10.20.0.1, remote_teid: 77, source: 10.20.0.254}]
steering: [{prefix: 10.78.0.0/16, tunnel: gnb}]
`

// customer is a site whose hosts have packet sockets: what arrives is looked at
// there, and nothing has made the right host speak.
type customer struct {
	*site
	atLeft, atRight int
	daemon          *daemonProcess
}

func newCustomer(t *testing.T, wrap ...string) *customer {
	t.Helper()
	c := &customer{site: newSite(t)}
	c.wrap = wrap
	c.node.Sysctl(t, "net.ipv4.ip_forward", "1")
	c.node.Addr(t, "d0", "192.0.2.254/24")
	c.node.Addr(t, "d1", "10.20.0.254/24")
	c.right.Addr(t, "r0", "10.20.0.1/24")
	for _, route := range []string{
		"route add 10.20.0.0/24 dev d1 table 100",
		"-6 route add fc00:20::/64 dev d1 table 100",
		"route add 10.99.0.0/16 dev d0", // known to main, not to the customer's table
	} {
		c.node.IP(t, route)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "culvert.yaml"), []byte(customerConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c.daemon = c.site.daemon(t, os.Args[0])
	c.atLeft, c.atRight = packetSocket(t, c.left, c.in.Index), packetSocket(t, c.right, c.out.Index)
	return c
}

func packetSocket(t *testing.T, ns *netns.NS, ifindex int) int {
	t.Helper()
	fd := -1
	const all = 0x0300 // ETH_P_ALL in network order
	ns.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			t.Fatal(err)
		}
		if err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: all}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// arrives waits for a frame that holds; nil if none comes in time.
func arrives(t *testing.T, fd int, within time.Duration, holds func([]byte) bool) []byte {
	t.Helper()
	limit := unix.NsecToTimeval(int64(20 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	for end := time.Now().Add(within); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			continue
		}
		if sll, ok := from.(*unix.SockaddrLinklayer); ok && sll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if holds(b[:n]) {
			return bytes.Clone(b[:n])
		}
	}
	return nil
}

// send sends one packet from the left host.
func (c *customer) send(t *testing.T, kind layers.EthernetType, l ...gopacket.SerializableLayer) {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: c.in.HardwareAddr, DstMAC: c.nodeIn.HardwareAddr, EthernetType: kind}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, append([]gopacket.SerializableLayer{eth}, l...)...); err != nil {
		t.Fatal(err)
	}
	if err := unix.Send(c.atLeft, b.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
}

func inner4(src, dst string, ttl uint8) []gopacket.SerializableLayer {
	ip := &layers.IPv4{
		Version: 4, TTL: ttl, Protocol: layers.IPProtocolUDP,
		SrcIP: netip.MustParseAddr(src).AsSlice(), DstIP: netip.MustParseAddr(dst).AsSlice(),
	}
	udp := gopacket.Payload{0, 7, 39, 15, 0, 13, 0, 0} // without a checksum
	return []gopacket.SerializableLayer{ip, udp, gopacket.Payload("first")}
}

func inner6(src, dst string) []gopacket.SerializableLayer {
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolNoNextHeader,
		SrcIP: netip.MustParseAddr(src).AsSlice(), DstIP: netip.MustParseAddr(dst).AsSlice(),
	}
	return []gopacket.SerializableLayer{ip, gopacket.Payload("first")}
}

// toSID sends a packet in a packet to the customer's SID.
func (c *customer) toSID(t *testing.T, next layers.IPProtocol, inner []gopacket.SerializableLayer) {
	t.Helper()
	c.toSIDOf(t, "fc00:1:0:4::", next, inner)
}

func (c *customer) toSIDOf(t *testing.T, sid string, next layers.IPProtocol, inner []gopacket.SerializableLayer) {
	t.Helper()
	outer := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: next,
		SrcIP: netip.MustParseAddr("fc00:10::1").AsSlice(), DstIP: netip.MustParseAddr(sid).AsSlice(),
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, inner...); err != nil {
		t.Fatal(err)
	}
	c.send(t, layers.EthernetTypeIPv6, outer, gopacket.Payload(b.Bytes()))
}

func isFrom(addr string, kind uint8) func([]byte) bool {
	return func(f []byte) bool {
		src := netip.MustParseAddr(addr)
		if src.Is4() {
			return len(f) >= 34 && binary.BigEndian.Uint16(f[12:]) == 0x0800 && f[23] == kind && bytes.Equal(f[26:30], src.AsSlice())
		}
		return len(f) >= 54 && binary.BigEndian.Uint16(f[12:]) == 0x86dd && f[20] == kind && bytes.Equal(f[22:38], src.AsSlice())
	}
}

// The first packet to a host that has never spoken arrives: nobody but the
// daemon would ask for it in a table other than main.
func TestSilentHostInATableGetsTheFirstPacket(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.toSID(t, layers.IPProtocolIPv4, inner4("10.50.0.1", "10.20.0.1", 64))
	got := arrives(t, c.atRight, 3*time.Second, isFrom("10.50.0.1", 17))
	if got == nil {
		t.Fatalf("the IPv4 packet is lost\n%s", c.daemon.log)
	}
	if ttl := got[22]; ttl != 63 || !bytes.HasSuffix(got, []byte("first")) {
		t.Errorf("TTL %d: %x", ttl, got)
	}
	c.toSID(t, layers.IPProtocolIPv6, inner6("fc00:50::1", "fc00:20::1"))
	if arrives(t, c.atRight, 3*time.Second, isFrom("fc00:50::1", 59)) == nil {
		t.Errorf("the IPv6 packet is lost\n%s", c.daemon.log)
	}
	c.daemon.end(t, syscall.SIGTERM)
}

// A strict reverse path filter where packets come out of a tunnel drops none to a host that has
// never spoken.
func TestStrictFilterLosesNoFirstPacket(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.node.Sysctl(t, "net.ipv4.conf.d0.rp_filter", "1")
	c.right.Addr(t, "r0", "10.20.0.2/24") // the daemon keeps the tunnel's peer resolved
	c.toSIDOf(t, "fc00:1:0:5::", layers.IPProtocolIPv4, inner4("10.50.0.1", "10.20.0.2", 64))
	got := arrives(t, c.atRight, 3*time.Second, isFrom("10.50.0.1", 17))
	if got == nil {
		t.Fatalf("the packet is lost\n%s", c.daemon.log)
	}
	if ttl := got[22]; ttl != 63 {
		t.Errorf("TTL %d", ttl)
	}
	c.daemon.end(t, syscall.SIGTERM)
}

// The first packet to a gNB that has never spoken arrives: what is finished has
// our own address as its source, which the kernel would not send on.
func TestSilentPeerOfATunnelGetsTheFirstPacket(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	for _, of := range []string{"all", "d0", "d1"} {
		c.node.Sysctl(t, "net.ipv4.conf."+of+".accept_local", "0")
	}
	// The gNB does not answer yet when the packet comes.
	c.right.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "8")
	for known := true; known; known = arrives(t, c.atRight, 100*time.Millisecond, isFrom("10.20.0.254", 17)) != nil {
		c.node.IP(t, "neigh flush dev d1") // which the daemon has to observe
		c.send(t, layers.EthernetTypeIPv4, inner4("192.0.2.9", "10.78.0.1", 64)...)
	}
	c.right.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "0")
	got := arrives(t, c.atRight, 3*time.Second, isFrom("10.20.0.254", 17))
	if got == nil {
		t.Fatalf("the packet is lost\n%s", c.daemon.log)
	}
	if teid := binary.BigEndian.Uint32(got[46:]); teid != 77 || !bytes.HasSuffix(bytes.TrimRight(got, "\x00"), []byte("first")) {
		t.Errorf("TEID %d: %x", teid, got)
	}
	c.daemon.end(t, syscall.SIGTERM)
}

// Where nobody answers the sender gets an error, by the table of the packet. In
// main it is Linux that says so of IPv6: ours is the same error.
func TestSilentHostIsUnreachable(t *testing.T) {
	t.Parallel()
	c := newCustomer(t)
	c.node.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	for _, table := range []string{"100", "254"} {
		c.node.IP(t, "route add 10.50.0.0/16 via 10.20.0.1 dev d1 table "+table)
		c.node.IP(t, "-6 route add fc00:50::/64 via fc00:20::1 dev d1 table "+table)
	}
	// The way back is known before: an error does not wait for a neighbour.
	c.node.Run(t, "ping", "-c", "1", "-W", "3", "10.20.0.1")
	c.node.Run(t, "ping", "-c", "1", "-W", "3", "fc00:20::1")
	for _, family := range []struct {
		next         layers.IPProtocol
		inner        []gopacket.SerializableLayer
		icmp         uint8
		protocol, at int // offsets of the protocol's number, and of the error
		want         []byte
	}{
		{layers.IPProtocolIPv4, inner4("10.50.0.2", "10.20.0.99", 64), 1, 23, 34, []byte{3, 1}},
		{layers.IPProtocolIPv6, inner6("fc00:50::2", "fc00:20::99"), 58, 20, 54, []byte{1, 3}},
	} {
		isError := func(f []byte) bool {
			return len(f) > family.at && f[family.protocol] == family.icmp && bytes.HasSuffix(f, []byte("first"))
		}
		c.toSIDOf(t, "fc00:1:0:5::", family.next, family.inner)
		linux := arrives(t, c.atRight, 6*time.Second, isError)
		c.toSID(t, family.next, family.inner)
		ours := arrives(t, c.atRight, 6*time.Second, isError)
		if linux == nil || ours == nil {
			t.Fatalf("%v: Linux sends %x, we send %x\n%s", family.next, linux, ours, c.daemon.log)
		}
		if !bytes.Equal(ours[family.at:][:2], family.want) || !bytes.Equal(linux[family.at:][:2], family.want) {
			t.Errorf("%v: Linux sends %x, we send %x", family.next, linux[family.at:], ours[family.at:])
		}
		if len(ours) != len(linux) {
			t.Errorf("%v: Linux sends %d bytes, we send %d", family.next, len(linux), len(ours))
		}
	}
	c.daemon.end(t, syscall.SIGTERM)
}

// An error goes to the customer that it is for, with a packet socket and by
// XDP_REDIRECT.
func TestErrorsStayWithTheirCustomer(t *testing.T) {
	for name, wrap := range map[string][]string{
		"root":             nil,
		"rights of a unit": asService,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCustomer(t, wrap...)
			// The source is an address that main has on the right: the error
			// nevertheless goes back to the left.
			c.send(t, layers.EthernetTypeIPv4, inner4("10.20.0.1", "10.78.0.1", 1)...)
			got := arrives(t, c.atLeft, 3*time.Second, isFrom("192.0.2.254", 1))
			if got == nil {
				t.Fatalf("no error on the left\n%s", c.daemon.log)
			}
			if got[34] != 11 || !bytes.Equal(got[30:34], []byte{10, 20, 0, 1}) || !bytes.Equal(got[:6], c.in.HardwareAddr) {
				t.Errorf("the error: %x", got)
			}
			// About what was inside: by the customer's table. The neighbour may
			// have to be asked for first.
			for range 20 {
				c.toSID(t, layers.IPProtocolIPv4, inner4("10.20.0.1", "10.20.0.7", 1))
				if got = arrives(t, c.atRight, 200*time.Millisecond, isFrom("10.20.0.254", 1)); got != nil {
					break
				}
			}
			if got == nil || got[34] != 11 || !bytes.Equal(got[30:34], []byte{10, 20, 0, 1}) {
				t.Errorf("the error by the table: %x\n%s", got, c.daemon.log)
			}
			// Only main knows the way to that one.
			c.toSID(t, layers.IPProtocolIPv4, inner4("10.99.0.1", "10.20.0.7", 1))
			leak := func(f []byte) bool { return len(f) >= 34 && bytes.Equal(f[30:34], []byte{10, 99, 0, 1}) }
			if got := arrives(t, c.atLeft, 300*time.Millisecond, leak); got != nil {
				t.Errorf("the error leaks to the left: %x", got)
			}
			c.daemon.end(t, syscall.SIGTERM)
		})
	}
}
