package pfcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// refusing is a socket whose way out makes no datagrams of longer messages.
type refusing struct{ *ipv4.PacketConn }

func (r refusing) WriteBatch(ms []ipv4.Message, flags int) (int, error) {
	whole := slices.IndexFunc(ms, func(m ipv4.Message) bool { return len(m.OOB) > 0 })
	switch {
	case whole == 0:
		return -1, unix.EIO
	case whole > 0:
		ms = ms[:whole]
	}
	return r.PacketConn.WriteBatch(ms, flags)
}

// TestListenElsewhere: who cannot start for an address of another machine hears what to do.
func TestListenElsewhere(t *testing.T) {
	c, err := listen(0, netip.MustParseAddr("192.0.2.99"))
	if err == nil {
		_ = c.udp.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "no interface of this machine has 192.0.2.99 (fix: ip address add 192.0.2.99 dev INTERFACE") {
		t.Error(err)
	}
}

// What the kernel drops because nobody reads is counted.
func TestOverrun(t *testing.T) {
	addr := loopbacks()
	c, err := listen(0, addr(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.udp.Close()
	peer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(1), Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	send := func(datagrams int) {
		for range datagrams {
			if _, err := peer.Write([]byte("datagram")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if send(10_000); c.overrun() != 0 {
		t.Errorf("a burst of 10000 does not fit: %d are lost", c.overrun())
	}
	if send(60_000); c.overrun() == 0 {
		t.Error("nothing was lost of 70000, which do not fit")
	}
}

// TestOutbox: each peer gets its messages as they are, in order and once, however
// they go through the kernel.
func TestOutbox(t *testing.T) {
	for name, refuses := range map[string]bool{"as one": false, "where that is refused": true} {
		t.Run(name, func(t *testing.T) {
			addr := loopbacks()
			c, err := listen(0, addr(1))
			if err != nil {
				t.Fatal(err)
			}
			defer c.udp.Close()
			if refuses {
				c.batch = refusing{ipv4.NewPacketConn(c.udp)}
			}
			var peers [2]*net.UDPConn
			for i := range peers {
				if peers[i], err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr(2), 0))); err != nil {
					t.Fatal(err)
				}
				defer peers[i].Close()
			}
			var o outbox
			var want [len(peers)][]string
			add := func(peer int, text string) {
				to := *peers[peer].LocalAddr().(*net.UDPAddr)
				o.add(c, &to, []byte(text))
				want[peer] = append(want[peer], text)
			}
			for i := range 3 * mostSegments {
				add(0, fmt.Sprintf("message %03d", i))
			}
			add(1, "another")
			add(0, "a longer message")
			add(0, string(make([]byte, segmentMost+1)))
			add(0, string(make([]byte, segmentMost+1)))
			for i := range 20 {
				add(i%2, fmt.Sprint("by turns ", i%10))
			}
			o.flush([]*conn{c}, func(err error) { t.Error(err) })
			o.flush([]*conn{c}, func(err error) { t.Error(err) }) // of nothing
			b := make([]byte, 65536)
			for i, peer := range peers {
				for _, text := range want[i] {
					_ = peer.SetReadDeadline(time.Now().Add(5 * time.Second))
					if n, err := peer.Read(b); err != nil || string(b[:n]) != text {
						t.Fatalf("peer %d got %q (%v), want %q", i, b[:n], err, text)
					}
				}
				_ = peer.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				if n, err := peer.Read(b); err == nil {
					t.Errorf("peer %d got %q too", i, b[:n])
				}
			}
			if c.single.Load() != refuses {
				t.Errorf("single is %v", c.single.Load())
			}
		})
	}
}
