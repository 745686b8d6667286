package slowpath

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/checksum"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// capture opens a packet socket on an interface: what it receives are whole
// frames, what it sends goes out there.
func capture(t *testing.T, ns *netns.NS, name string) int {
	t.Helper()
	fd := -1
	index := ns.Interface(t, name).Index
	ns.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x0300); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: index}); err != nil {
			t.Fatal(err)
		}
	})
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// receive returns the next frame that wanted holds for.
func receive(t *testing.T, fd int, wanted func([]byte) bool) []byte {
	t.Helper()
	buf := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatalf("no such frame came: %v", err)
		}
		if ll := from.(*unix.SockaddrLinklayer); ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if wanted(buf[:n]) {
			return bytes.Clone(buf[:n])
		}
	}
}

// lone is a namespace whose kernel knows a neighbour that is not there: what it
// sends to it, a packet socket on the other end reads.
func lone(t *testing.T) (ns, other *netns.NS, fd int, end net.Interface) {
	ns, other = netns.New(t), netns.New(t)
	end, _ = netns.Veth(t, ns, "a0", other, "b0")
	ns.Addr(t, "a0", "192.0.2.1/24")
	ns.Addr(t, "a0", "2001:db8::1/64")
	ns.IP(t, "neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a0 nud permanent")
	ns.IP(t, "neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev a0 nud permanent")
	return ns, other, capture(t, other, "b0"), end
}

// background runs a command that is not waited for before the test ends.
func background(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// The kernel's own fragments become the kernel's own packet.
func TestKernelFragmentsArePutTogether(t *testing.T) {
	for _, c := range []struct {
		to   string
		l4   int
		kind byte
	}{{"192.0.2.2", 14 + 20, 8}, {"2001:db8::2", 14 + 40, 128}} {
		t.Run(c.to, func(t *testing.T) {
			ns, _, fd, _ := lone(t)
			background(t, ns.Command("ping", "-c", "1", "-s", "3000", "-p", "c3", c.to))
			b := newBench(Options{})
			for len(b.injected) == 0 {
				frame := receive(t, fd, func(f []byte) bool {
					ip, _, is4 := parseIPv4(f[14:])
					return is4 && ip.flags()&0x3fff != 0 || f[14]>>4 == 6 && f[14+6] == headerFragment
				})
				b.handle(Packet{Kind: Reassemble, L3: 14, Data: frame})
			}
			whole := b.injected[0]
			if len(whole) != c.l4+8+3000 || whole[c.l4] != c.kind || !bytes.HasSuffix(whole, bytes.Repeat([]byte{0xc3}, 2900)) {
				t.Fatalf("%d bytes, type %d", len(whole), whole[c.l4])
			}
			var sum uint32
			if ip, _, is6 := parseIPv6(whole[14:]); is6 {
				sum = checksum.Pseudo(ip.src(), ip.dst(), protocolICMPv6, len(whole)-c.l4)
			} else if checksum.Of(whole[14:34], 0) != 0 {
				t.Error("IPv4 header checksum")
			}
			if checksum.Of(whole[c.l4:], sum) != 0 {
				t.Error("ICMP checksum of the whole packet")
			}
		})
	}
}

// Our fragments become one packet in the kernel: it answers the ping in them.
func TestKernelPutsOurFragmentsTogether(t *testing.T) {
	_, _, fd, end := lone(t)
	eth := &layers.Ethernet{SrcMAC: macB, DstMAC: end.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: 1, Protocol: layers.IPProtocolICMPv4, SrcIP: b4.AsSlice(), DstIP: a4.AsSlice()}
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 77, Seq: 3}
	b := newBench(Options{})
	b.handle(Packet{Kind: Fragment, L3: 14, Info: 404, Data: serialize(t, eth, ip, echo, payload(1300))})
	if len(b.injected) != 4 {
		t.Fatalf("%d parts", len(b.injected))
	}
	for _, f := range b.injected {
		if err := unix.Send(fd, f, 0); err != nil {
			t.Fatal(err)
		}
	}
	reply := receive(t, fd, func(f []byte) bool { return f[12] == 8 && f[13] == 0 && f[14+9] == protocolICMP })
	if got := reply[34:]; got[0] != 0 || binary.BigEndian.Uint16(got[4:]) != 77 || !bytes.Equal(got[8:], payload(1300)) {
		t.Errorf("the kernel answers %x", got)
	}
}

// routed is a namespace with routes through a router, and the router.
func routed(t *testing.T) (a, b *netns.NS) {
	a, b = netns.New(t), netns.New(t)
	netns.Veth(t, a, "a0", b, "b0")
	a.Addr(t, "a0", "192.0.2.1/24")
	a.Addr(t, "a0", "2001:db8::1/64")
	b.Addr(t, "b0", "192.0.2.2/24")
	b.Addr(t, "b0", "2001:db8::2/64")
	a.IP(t, "route add 198.51.100.0/24 via 192.0.2.2")
	a.IP(t, "-6 route add 2001:db8:5::/48 via 2001:db8::2")
	return a, b
}

// The kernel takes our Packet Too Big and Fragmentation Needed for what they
// are: it learns the path's MTU. They come from the source that the kernel
// chooses, by the kernel's routes.
func TestKernelLearnsMTU(t *testing.T) {
	a, b := routed(t)
	atA, atB := capture(t, a, "a0"), capture(t, b, "b0")
	s := New(Options{Injector: newBench(Options{}), Sender: rawSender(t, b)})
	link := b.Interface(t, "b0")
	for _, c := range []struct {
		to, from string
		mtu      uint32
	}{{"198.51.100.7", "192.0.2.2", 1333}, {"2001:db8:5::7", "2001:db8::2", 1344}} {
		frame := tooBigFor(t, a, atB, c.to)
		b.Do(t, func() {
			s.Handle(Packet{Kind: ICMPError, Ifindex: link.Index, L3: 14, Type: packetTooBig, Info: c.mtu, Data: frame})
		})
		got := receive(t, atA, func(f []byte) bool {
			return f[14]>>4 == 4 && f[14+9] == protocolICMP && f[34] == 3 ||
				f[14]>>4 == 6 && f[14+6] == protocolICMPv6 && f[54] == packetTooBig
		})
		if src := source(got[14:]); src != c.from {
			t.Errorf("the error comes from %s, want %s", src, c.from)
		}
		learns(t, a, c.to, c.mtu)
	}
	if s.Counters.ICMPSent.Load() != 2 || s.Counters.SendFailed.Load() != 0 {
		t.Errorf("%d sent, %d failed", s.Counters.ICMPSent.Load(), s.Counters.SendFailed.Load())
	}
}

// tooBigFor makes the kernel send 1400 bytes and returns the frame.
func tooBigFor(t *testing.T, a *netns.NS, at int, to string) []byte {
	t.Helper()
	var conn net.Conn
	a.Do(t, func() {
		var err error
		if conn, err = net.Dial("udp", net.JoinHostPort(to, "4000")); err != nil {
			t.Fatal(err)
		}
	})
	// It stays: the kernel learns from errors about sockets that it has.
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(make([]byte, 1400)); err != nil {
		t.Fatal(err)
	}
	return receive(t, at, func(f []byte) bool {
		_, _, l4, ok := datagram(f[14:])
		return ok && binary.BigEndian.Uint16(l4[2:]) == 4000
	})
}

func learns(t *testing.T, ns *netns.NS, to string, mtu uint32) {
	t.Helper()
	route := ""
	for range 1000 {
		if route = ns.IP(t, "route get "+to); strings.Contains(route, fmt.Sprint("mtu ", mtu)) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("the kernel did not learn MTU %d: %s", mtu, route)
}

func rawSender(t *testing.T, ns *netns.NS) Sender {
	t.Helper()
	var sender *RawSender
	ns.Do(t, func() {
		var err error
		if sender, err = NewRawSender(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = sender.Close() })
	return plainSender{sender}
}

// plainSender goes back where it is told to, and else by the main table. The
// choice of addresses is the kernel's.
type plainSender struct{ *RawSender }

func (s plainSender) Source(dst netip.Addr, way Way) (netip.Addr, error) {
	return KernelSource(dst, way.Ifindex)
}

func (s plainSender) Send(packet []byte, way Way) error {
	if way.Back != nil {
		return s.Transmit(append(bytes.Clone(way.Back), packet...), way.Ifindex)
	}
	return s.RawSender.Send(packet, way.Ifindex)
}

func source(packet []byte) string {
	if ip, _, ok := parseIPv4(packet); ok {
		return ip.src().String()
	}
	ip, _, _ := parseIPv6(packet)
	return ip.src().String()
}

func TestRunEndsAndExpires(t *testing.T) {
	b := newBench(Options{Timeout: 20 * time.Millisecond})
	b.SlowPath = New(Options{Injector: b, Sender: b, Timeout: 20 * time.Millisecond})
	b.handle(part(whole6(t, 2000), 14, 800, 1600, 9))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	end := time.Now().Add(5 * time.Second)
	for b.count("reassembly_timeout") == 0 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil || b.count("reassembly_timeout") != 1 {
		t.Errorf("Run: %v, %d timeouts", err, b.count("reassembly_timeout"))
	}
}
