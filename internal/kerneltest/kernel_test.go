package kerneltest

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// kernel is a router between two links, of which the test has the far ends:
// what it sends on one leaves, or does not, on the other.
type kernel struct {
	router  *netns.NS
	in, out int // packet sockets
	mac     packet.Hex
	sent    uint64
}

// Addresses of the router's neighbour on the far link: every route leads there.
const (
	gateway6 = "fc00:2::2"
	gateway4 = "10.2.0.2"
	nextHop4 = "10.3.0.1"  // behind gateway4
	source   = "fc00:a::1" // of what the router encapsulates
)

func newKernel(t *testing.T) *kernel {
	t.Helper()
	router, hosts := netns.New(t), netns.New(t)
	for _, name := range []string{
		"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
		"net.ipv6.conf.all.seg6_enabled", "net.ipv6.conf.default.seg6_enabled",
	} {
		router.Sysctl(t, name, "1")
	}
	for _, name := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter"} {
		router.Sysctl(t, name, "0")
	}
	for _, ns := range []*netns.NS{router, hosts} {
		ns.Sysctl(t, "net.ipv6.conf.default.router_solicitations", "0")
	}
	in, near := netns.Veth(t, router, "in", hosts, "near")
	_, far := netns.Veth(t, router, "out", hosts, "far")
	router.Sysctl(t, "net.ipv6.conf.in.seg6_enabled", "1")
	router.Sysctl(t, "net.ipv6.conf.out.seg6_enabled", "1")
	router.Addr(t, "in", "fc00:1::1/64")
	router.Addr(t, "in", "10.1.0.1/24")
	router.Addr(t, "out", "fc00:2::1/64")
	router.Addr(t, "out", "10.2.0.1/24")
	for _, line := range []string{
		"sr tunsrc set " + source,
		"neigh add " + gateway6 + " dev out nud permanent lladdr " + far.HardwareAddr.String(),
		"neigh add " + gateway4 + " dev out nud permanent lladdr " + far.HardwareAddr.String(),
		// End.DX* without a next hop find the packet's destination on the link
		"neigh add 10.2.0.9 dev out nud permanent lladdr " + far.HardwareAddr.String(),
		// errors go back, or end here: they must not be taken for what is forwarded
		"-6 route add 2001:db8:1::/64 dev in",
		"addr add " + source + "/128 dev lo",
		// End.DX4 to a next hop on the link would ask for the packet's destination
		"-4 route add " + nextHop4 + " via " + gateway4 + " dev out",
		"-6 route add default via " + gateway6 + " dev out",
		"-4 route add default via " + gateway4 + " dev out",
		"-6 route add default via " + gateway6 + " dev out table 100",
	} {
		router.IP(t, line)
	}
	k := &kernel{router: router, mac: packet.Hex(in.HardwareAddr)}
	hosts.Do(t, func() {
		k.in = packetSocket(t, near)
		k.out = packetSocket(t, far)
	})
	return k
}

func packetSocket(t *testing.T, on net.Interface) int {
	t.Helper()
	all := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)))
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		t.Fatalf("packet socket: %v", err)
	}
	t.Cleanup(func() { unix.Close(s) })
	if err := unix.Bind(s, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: on.Index}); err != nil {
		t.Fatalf("packet socket on %s: %v", on.Name, err)
	}
	wait := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatalf("packet socket on %s: %v", on.Name, err)
	}
	return s
}

// route adds what the kernel is to do, until the test ends.
func (k *kernel) route(t *testing.T, line string) {
	t.Helper()
	k.router.IP(t, line)
	t.Cleanup(func() { k.router.IP(t, strings.Replace(line, "route add", "route del", 1)) })
}

// forward sends a frame into the router and returns the frame that left on the
// other side, or nil. A second packet, which the router only forwards, says
// that there is nothing to wait for.
func (k *kernel) forward(t *testing.T, frame []byte) []byte {
	t.Helper()
	k.sent++
	mark := binary.BigEndian.AppendUint64([]byte("that was all: "), k.sent)
	end := packet.Frame(packet.Ethernet{Dst: k.mac}, packet.IPv4{Src: addr("10.1.0.8"), Dst: addr("198.51.100.1")},
		packet.UDP{Sport: 9, Dport: 9}, packet.Payload{Data: mark})
	for _, f := range [][]byte{frame, end} {
		if _, err := unix.Write(k.in, f); err != nil {
			t.Fatalf("send %d bytes: %v", len(f), err)
		}
	}
	var out []byte
	buffer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(k.out, buffer, 0)
		if err != nil {
			t.Fatalf("the router forwards nothing: %v", err)
		}
		got := buffer[:n]
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING || ofTheLink(got) {
			continue
		}
		if bytes.HasSuffix(got, mark) {
			return out
		}
		if out != nil {
			t.Fatalf("two packets came out of one:\n%x\n%x", out, got)
		}
		out = bytes.Clone(got)
	}
}

// ofTheLink says that the kernel speaks for itself: neighbour discovery, MLD,
// ARP.
func ofTheLink(frame []byte) bool {
	if len(frame) < 14+40 {
		return len(frame) >= 14 && frame[12] == 0x08 && frame[13] == 0x06
	}
	p := frame[14:]
	switch {
	case frame[12] != 0x86 || frame[13] != 0xdd:
		return frame[12] == 0x08 && frame[13] == 0x06
	case p[6] == 58:
		return p[40] >= 133 && p[40] <= 137
	default:
		return p[6] == 0 && p[24] == 0xff
	}
}

// supports fails the test where the kernel or its ip(8) lacks what is
// compared: a comparison that is not made must not look like one that held.
func supports(t *testing.T, k *kernel) {
	t.Helper()
	out, _ := k.router.Command("ip", "route", "help").CombinedOutput()
	for _, word := range []string{"seg6local", "l2encap.red", "flavors", "next-csid"} {
		if !strings.Contains(string(out), word) {
			t.Fatalf("ip(8) does not know %q: iproute2 6.1 or newer is needed", word)
		}
	}
}
