package dataplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
