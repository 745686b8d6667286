package dataplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// servicePort is that of Services and of the servers behind them.
const servicePort = 5300

// fromPort binds a socket to a port that others of the same host may have, too, and
// connects it.
func fromPort(t testing.TB, from *netns.NS, network string, port int, to netip.Addr) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	local := net.JoinHostPort("", fmt.Sprint(port))
	var addr net.Addr
	if network == "tcp" {
		addr, err = net.ResolveTCPAddr(network, local)
	} else {
		addr, err = net.ResolveUDPAddr(network, local)
	}
	must(t, err)
	dialer := net.Dialer{LocalAddr: addr, Timeout: 5 * time.Second, Control: reuse}
	from.Do(t, func() {
		conn, err = dialer.DialContext(context.Background(), network, netip.AddrPortFrom(to, servicePort).String())
	})
	if err != nil {
		t.Fatalf("%s from port %d to %s: %v", network, port, to, err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// reuse lets several sockets have a port.
func reuse(_, _ string, raw syscall.RawConn) error {
	var err error
	if failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); failed != nil {
		return failed
	}
	return err
}

// closeFirst closes a connection and waits until the other end has, too: the port is free for
// the same flow then.
func closeFirst(t testing.TB, conn net.Conn) {
	t.Helper()
	if stream, ok := conn.(*net.TCPConn); ok {
		must(t, stream.CloseWrite())
		_, err := io.Copy(io.Discard, stream)
		must(t, err)
	}
	must(t, conn.Close())
}

// ask sends something and wants it back.
func ask(t testing.TB, what string, conn net.Conn) {
	t.Helper()
	answer := make([]byte, 100)
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := conn.Write([]byte("question"))
	must(t, err)
	if n, err := conn.Read(answer); err != nil || string(answer[:n]) != "question" {
		t.Fatalf("%s: %q, %v", what, answer[:n], err)
	}
}

// echo answers at the Services' port of a pod, over UDP and TCP.
func (p *fabricPod) echo(t testing.TB) {
	t.Helper()
	p.Do(t, func() {
		packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", servicePort))
		must(t, err)
		t.Cleanup(func() { packets.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				n, from, err := packets.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = packets.WriteTo(b[:n], from)
			}
		}()
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", servicePort))
		must(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					b := make([]byte, 100)
					for {
						n, err := conn.Read(b)
						if err != nil {
							return
						}
						_, _ = conn.Write(b[:n])
					}
				}()
			}
		}()
	})
}

// TestServiceAndDirect: a client's port carries a flow to a pod and one through the Service
// in front of it, in any order, one after the other and at once. Each is answered by whom
// it asked.
func TestServiceAndDirect(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	a.IP(t, "-4 route add 10.96.0.0/16 dev culvert0")
	client, port := a.pods[0], 20000
	for _, backend := range []*fabricPod{b.pods[0], a.pods[1]} {
		backend.echo(t)
		for _, at := range backend.addresses() {
			service, family := addr("10.96.0.1"), "ip"
			if at.Is6() {
				service, family = addr("fd96::1"), "ip6"
			}
			a.Run(t, "nft", fmt.Sprintf("add table %[1]s nat; flush table %[1]s nat; "+
				"add chain %[1]s nat pre { type nat hook prerouting priority -100; }; "+
				"add rule %[1]s nat pre %[1]s daddr %[2]s dnat to %[3]s", family, service, at))
			for _, network := range []string{"udp", "tcp"} {
				for _, order := range [][]netip.Addr{{at, service}, {service, at}, {at, service, at}, {service, at, service}} {
					what := fmt.Sprintf("%s, %v", network, order)
					port++                     // an earlier client's flows are still known
					for _, to := range order { // the client closes first
						conn := fromPort(t, client.NS, network, port, to)
						ask(t, what+", one after the other: "+to.String(), conn)
						closeFirst(t, conn)
					}
					port++
					first, second := fromPort(t, client.NS, network, port, order[0]), fromPort(t, client.NS, network, port, order[1])
					for range 3 {
						ask(t, what+", at once, the first", first)
						ask(t, what+", at once, the second", second)
					}
				}
			}
		}
	}
	f.noDrops(t)
}

// TestServiceBegins: the answers about other flows end when a pod begins a flow that the kernel forwards, also on the
// ports of a connection that has just ended. They do not end while the flow goes on.
func TestServiceBegins(t *testing.T) {
	f := served(t, 1)
	n := f.nodes[0]
	client, backend := n.pods[0], n.pods[1]
	backend.echo(t)
	n.IP(t, "-4 route add 10.96.0.0/16 dev culvert0")
	n.Run(t, "nft", fmt.Sprintf("add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }; add rule ip nat pre ip daddr 10.96.0.1 dnat to %s", backend.addresses()[0]))
	begun := func() uint64 {
		var o abi.Overlay
		must(t, n.d.maps[abi.MapOverlay].Lookup(uint32(0), &o))
		return o.Generation
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, name := range []string{"the first flow", "another on the same ports"} {
			before := begun()
			conn := fromPort(t, client.NS, network, 20000, addr("10.96.0.1"))
			ask(t, network, conn)
			ask(t, network, conn)
			now := begun()
			if now == before && (network == "tcp" || name == "the first flow") { // a second UDP socket goes on with the flow
				t.Errorf("%s, %s: the generation stays", network, name)
			}
			for range 5 {
				ask(t, network, conn)
			}
			if begun() != now {
				t.Errorf("%s, %s: the generation changes while it goes on", network, name)
			}
			closeFirst(t, conn)
		}
	}
	settled := 0
	var set abi.CachedFlows
	var key uint32
	for it := n.d.maps[abi.MapFlowCache].Iterate(); it.Next(&key, &set); {
		for _, w := range set.Way {
			settled += int(w.State >> abi.FlowAnswerAtFLOW_SETTLED & 1)
		}
	}
	if settled != 2 {
		t.Errorf("%d flows are settled, want that of UDP and that of TCP", settled)
	}
}

// seen is how many packets of a node the router has seen, which it drops.
func (f *fabric) seen(t testing.TB) (packets int) {
	t.Helper()
	_, counter, _ := strings.Cut(f.router.Run(t, "nft", "list chain ip6 seen pre"), "counter packets ")
	_, err := fmt.Sscan(counter, &packets)
	must(t, err)
	return packets
}

// TestServiceOfSID: nobody reaches a SID by a Service whose endpoint it is, with
// NetworkPolicies and without: neither a pod nor, by a NodePort, who is no member. Their
// packets to other endpoints arrive, and so does a stranger's tunnel on its way through.
func TestServiceOfSID(t *testing.T) {
	f := served(t, 1)
	n := f.nodes[0]
	n.Do(t, func() { must(t, n.d.Members.Put(overlay.Member{Prefix: prefix("fd77::/48"), SIDs: true})) })
	f.router.Addr(t, "n1", "2001:db9::1/64")
	for _, to := range []string{"2001:db9:1::/64", "fc00:2::/48"} {
		f.router.IP(t, "-6 route add "+to+" via 2001:db8:1::1 src 2001:db9::1")
	}
	f.router.Run(t, "nft", "add table ip6 seen; add chain ip6 seen pre { type filter hook prerouting priority -500; }; add rule ip6 seen pre meta l4proto { udp, ipv6 } counter drop")
	rules := "add table ip6 nat; add chain ip6 nat pre { type nat hook prerouting priority -100; }; add chain ip6 nat post { type nat hook postrouting priority 100; }; add rule ip6 nat post oifname up masquerade; "
	services := []struct {
		endpoint string
		arrives  bool
	}{
		{"fc00:1:0:6::", false}, {"fc00:2:0:6::", false}, {"fc00:2:0:99::1", false}, {"fd77::6", false},
		{"2001:db9::1", true}, {"fd77:1::6", true}, // no locator's
	}
	for i, s := range services {
		rules += fmt.Sprintf("add rule ip6 nat pre ip6 daddr { fd96::%[1]d, 2001:db9:1::%[1]d } dnat to %[2]s; ", i, s.endpoint)
	}
	n.Run(t, "nft", rules)
	sends := func(what string, from *netns.NS, network, to string, arrives bool) {
		t.Helper()
		dropped, seen := n.count(t, abi.ReasonREASON_SR_DOMAIN_EDGE), f.seen(t)
		from.Do(t, func() {
			conn, err := net.Dial(network, to)
			must(t, err)
			defer conn.Close()
			_, err = conn.Write([]byte("question"))
			must(t, err)
		})
		var d uint64
		var s int
		for end := time.Now().Add(5 * time.Second); d == 0 && s == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			d, s = n.count(t, abi.ReasonREASON_SR_DOMAIN_EDGE)-dropped, f.seen(t)-seen
		}
		if arrives != (s == 1) || arrives != (d == 0) {
			t.Errorf("%s: %d dropped, %d arrive", what, d, s)
		}
	}
	for _, enforced := range []bool{false, true} {
		n.Do(t, func() { must(t, n.d.NetworkPolicies.Enforce(enforced)) })
		for i, s := range services {
			what := fmt.Sprintf("policies %v: Service of %s: ", enforced, s.endpoint)
			sends(what+"from a pod", n.pods[0].NS, "udp", fmt.Sprintf("[fd96::%d]:5300", i), s.arrives)
			sends(what+"from outside", f.router, "udp", fmt.Sprintf("[2001:db9:1::%d]:5300", i), s.arrives)
		}
		sends("a tunnel", f.router, "ip6:41", "fc00:2:0:6::", true)
	}
}
