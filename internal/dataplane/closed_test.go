package dataplane

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

var ssh = port.Access{Services: []port.Service{{Protocol: 6, Port: 22}}}

// newRouter is a wire whose near end is a host's that forwards to a second network.
func newRouter(t *testing.T) *wire {
	t.Helper()
	w := newWire(t)
	netns.Veth(t, w.ns, "out", w.ns, "beyond")
	for _, a := range [][2]string{{"near", "192.0.2.1/24"}, {"near", "2001:db8:1::1/64"}, {"out", "198.51.100.1/24"}, {"out", "2001:db8:2::1/64"}} {
		w.ns.Addr(t, a[0], a[1])
	}
	forward(t, w, "1")
	return w
}

func forward(t *testing.T, w *wire, value string) {
	t.Helper()
	w.ns.Sysctl(t, "net.ipv4.conf.all.forwarding", value)
	w.ns.Sysctl(t, "net.ipv6.conf.all.forwarding", value)
}

func openClosed(t *testing.T, path string, ports ...ClosedPort) *Closed {
	t.Helper()
	c, err := OpenClosed(path, ports, nil)
	must(t, err)
	return c
}

// closedRow is a frame that comes in by a closed interface; dropped: 0 if the kernel has it.
type closedRow struct {
	name    string
	frame   []byte
	dropped abi.Reason
}

func closedRows() []closedRow {
	const host, role, tags, passed = abi.ReasonREASON_HOST, abi.ReasonREASON_ROLE, abi.ReasonREASON_TAGS, abi.Reason(0)
	frame := func(l ...packet.Layer) []byte {
		return packet.Frame(append([]packet.Layer{packet.Ethernet{}}, l...)...)
	}
	arp, body := uint16(0x0806), packet.Payload{Count: 64}
	peer, peer6 := ip4("192.0.2.2", "192.0.2.1"), ip6("2001:db8:1::2", "2001:db8:1::1")
	away, away6 := ip4("192.0.2.2", "198.51.100.9"), ip6("2001:db8:1::2", "2001:db8:2::9")
	login := packet.TCP{Sport: 40000, Dport: 22}
	srh := packet.SRH{Segments: []netip.Addr{addr("2001:db8:2::9"), addr("2001:db8:1::1")}}
	solicit := packet.ICMP{V6: true, Type: 135}
	gtpu := []packet.Layer{packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: 1}, ip4("10.45.0.2", "198.51.100.9"), packet.UDP{Sport: 1, Dport: 2}}
	return []closedRow{
		{"ARP", packet.Frame(packet.Ethernet{Type: &arp}, body), passed},
		{"neighbour solicitation", frame(hops6(ip6("2001:db8:1::2", "ff02::1:ff00:1"), 255), solicit, body), passed},
		{"neighbour solicitation through a router", frame(hops6(peer6, 254), solicit, body), host},
		{"SSH", frame(peer, login), passed},
		{"SSH, IPv6", frame(peer6, login), passed},
		{"SSH, tagged", packet.Frame(packet.Ethernet{VLAN: []uint16{100}}, peer, login), passed},
		{"SSH behind three tags", packet.Frame(packet.Ethernet{VLAN: []uint16{0, 0, 0}}, peer, login), tags},
		{"another service", frame(peer, packet.TCP{Sport: 40000, Dport: 80}), host},
		{"another service, IPv6", frame(peer6, packet.TCP{Sport: 40000, Dport: 80}), host},
		{"an error about the host's own packet", frame(peer, packet.ICMP{Type: 3, Code: 3}, body), passed},
		{"SSH to another host", frame(away, login), role},
		{"SSH to another host, IPv6", frame(away6, login), role},
		{"SSH to another host, tagged", packet.Frame(packet.Ethernet{VLAN: []uint16{100}}, away, login), role},
		{"forwarded", frame(away, packet.UDP{Sport: 1, Dport: 2}, body), role},
		{"forwarded, IPv6", frame(away6, packet.UDP{Sport: 1, Dport: 2}, body), role},
		{"GTP-U", frame(append([]packet.Layer{peer}, gtpu...)...), host},
		{"GTP-U, IPv6", frame(append([]packet.Layer{peer6}, gtpu...)...), host},
		{"PFCP", frame(peer, packet.UDP{Sport: 8805, Dport: 8805}, body), host},
		{"GTP-U to another host", frame(append([]packet.Layer{away}, gtpu...)...), role},
		{"PFCP, IPv6", frame(peer6, packet.UDP{Sport: 8805, Dport: 8805}, body), host},
		{"SRv6 to this host", frame(peer6, srh, away6, body), host},
		{"SRv6 to another host", frame(away6, srh, away6, body), role},
		{"IPv4 in IPv6", frame(peer6, away, body), host},
	}
}

// TestClosedPasses has each frame counted once, under what becomes of it.
func TestClosedPasses(t *testing.T) {
	w := newRouter(t)
	w.do(t, func() {
		c := openClosed(t, pinPath(t), ClosedPort{Ifindex: w.near.Index, Mode: attach.ModeGeneric, Access: ssh})
		defer c.Close()
		must(t, c.XDP.Detach(w.near.Index)) // the frames of the test alone
		prog := xdp.New(c.coll.Programs[abi.ProgCulvertClosed])
		for _, row := range closedRows() {
			before, err := c.Outcomes()
			must(t, err)
			verdict, _, err := prog.Test(row.frame, w.near.Index)
			must(t, err)
			after, err := c.Outcomes()
			must(t, err)
			want, outcome := uint32(xdp.VerdictPass), abi.ReasonREASON_PASSED
			if row.dropped != 0 {
				want, outcome = xdp.VerdictDrop, row.dropped
			}
			if verdict != want {
				t.Errorf("%s: %s, want %s", row.name, xdp.VerdictName(verdict), xdp.VerdictName(want))
			}
			for i := range after {
				n := uint64(0)
				if i == int(outcome) {
					n = 1
				}
				if got := after[i].Packets - before[i].Packets; got != n {
					t.Errorf("%s: counter %d rose by %d, want %d", row.name, i, got, n)
				}
			}
		}
	})
}

// closedDrops says which frames of closedRows an interface that is closed so drops.
func (w *wire) closedDrops(t *testing.T, a port.Access, mac [6]byte) map[string]bool {
	t.Helper()
	drops := map[string]bool{}
	w.do(t, func() {
		c := openClosed(t, pinPath(t), ClosedPort{Ifindex: w.near.Index, Mode: attach.ModeGeneric, Access: a, MAC: mac})
		defer c.Close()
		prog := xdp.New(c.coll.Programs[abi.ProgCulvertClosed])
		for _, row := range closedRows() {
			verdict, _, err := prog.Test(row.frame, w.near.Index)
			must(t, err)
			drops[row.name] = verdict == xdp.VerdictDrop
		}
	})
	return drops
}

// TestClosedWithHostAny: `any` and `forward` leave only GTP-U and PFCP to be dropped, and what may
// hide them.
func TestClosedWithHostAny(t *testing.T) {
	refused := map[string]bool{"GTP-U": true, "GTP-U, IPv6": true, "PFCP": true, "PFCP, IPv6": true, "SSH behind three tags": true}
	for name, drops := range newRouter(t).closedDrops(t, port.Access{HostAny: true, HostForward: true}, [6]byte{}) {
		if drops != refused[name] {
			t.Errorf("%s: dropped %t", name, drops)
		}
	}
}

// TestClosedWithoutForwarding: the kernel says nothing of its addresses where it does not
// forward; services are found all the same.
func TestClosedWithoutForwarding(t *testing.T) {
	w := newRouter(t)
	forward(t, w, "0")
	drops := w.closedDrops(t, ssh, [6]byte{})
	for name, want := range map[string]bool{"SSH": false, "SSH, IPv6": false, "SSH, tagged": false, "another service": true, "forwarded": true, "forwarded, IPv6": true} {
		if drops[name] != want {
			t.Errorf("%s: dropped %t", name, drops[name])
		}
	}
}

// TestClosedForOtherDevices: a macvlan or a bridge on the interface has frames of its own.
func TestClosedForOtherDevices(t *testing.T) {
	drops := newRouter(t).closedDrops(t, ssh, [6]byte{2, 0, 0, 0, 0, 0x55})
	for name, want := range map[string]bool{"SSH to another host": false, "forwarded": false, "forwarded, IPv6": false,
		"SSH": false, "another service": true, "another service, IPv6": true, "GTP-U": true} {
		if drops[name] != want {
			t.Errorf("%s: dropped %t", name, drops[name])
		}
	}
}

// TestClosedLetsNothingThrough sends what passes and what does not while one process after
// another closes the interface, and the data path takes it over and ends: none of the former
// is lost, and none of the latter arrives.
func TestClosedLetsNothingThrough(t *testing.T) {
	w := newRouter(t)
	path := pinPath(t)
	near := ClosedPort{Ifindex: w.near.Index, Mode: attach.ModeNative, Access: ssh}
	w.do(t, func() {
		login, away := w.loginAndAway()
		c := openClosed(t, path, near)
		tx, rx := packetSocket(t, w.far.Index), packetSocket(t, w.near.Index)
		stop, sent := make(chan struct{}), make(chan int)
		go func() { sent <- sendUntil(stop, tx, w.far.Index, login, away) }()
		for range 3 { // as processes that end without a word
			must(t, c.Close())
			time.Sleep(20 * time.Millisecond)
			c = openClosed(t, path, near)
		}
		must(t, c.Close())
		d := openGuarded(t, w, path, near)
		attachTo(t, d, w.near.Index, attach.ModeAuto, attach.ModeNative)
		if got := d.Closed.XDP.Attached(); len(got) != 0 {
			t.Errorf("still closed: %v", got)
		}
		time.Sleep(50 * time.Millisecond)
		if got := list(t, path, "links"); len(got) != 1 {
			t.Errorf("the data path's links: %v", got)
		}
		if got := list(t, path+pin.ClosedSuffix, "links"); len(got) != 0 {
			t.Errorf("links of closed interfaces: %v", got)
		}
		must(t, d.Close())
		// The data path stays where the next process would close.
		c = openClosed(t, path, near)
		if got := c.XDP.Attached(); len(got) != 0 {
			t.Errorf("closed under the data path: %v", got)
		}
		must(t, c.Close())
		close(stop)
		n := <-sent
		logins, leaked := receiveBoth(rx, login, away)
		if n < 100 || logins != n || leaked != 0 {
			t.Errorf("of %d of each sent, %d arrived and %d leaked", n, logins, leaked)
		}
	})
}

// loginAndAway are frames that host allows, and that the kernel would forward.
func (w *wire) loginAndAway() (login, away []byte) {
	mac := packet.Ethernet{Dst: packet.Hex(w.near.HardwareAddr)}
	return packet.Frame(mac, ip4("192.0.2.2", "192.0.2.1"), packet.TCP{Sport: 40000, Dport: 22}),
		packet.Frame(mac, ip4("192.0.2.2", "198.51.100.9"), packet.UDP{Sport: 1, Dport: 2}, packet.Payload{Count: 64})
}

// openGuarded is a data path that closes an interface first.
func openGuarded(t *testing.T, w *wire, path string, near ClosedPort) *DataPlane {
	t.Helper()
	d := openWith(t, Options{PinPath: path, Limits: smallLimits, Closed: []ClosedPort{near}})
	must(t, d.SetSettings(testSettings()))
	must(t, d.Steering.PutLocal(single(addr("192.0.2.1"))))
	must(t, d.Ports.Set(near.Ifindex, port.Port{Roles: port.N6, Access: ssh}))
	return d
}

func attachTo(t *testing.T, d *DataPlane, ifindex int, mode, want attach.Mode) {
	t.Helper()
	if got, err := d.XDP.Attach(ifindex, mode); err != nil || got != want {
		t.Fatalf("attach in mode %s: %s, %v", mode, got, err)
	}
}

// TestClosedInAnotherMode has the data path attached in another mode than the interface is
// closed in, and then change its own. The kernel forwards nothing.
func TestClosedInAnotherMode(t *testing.T) {
	w := newRouter(t)
	w.ns.IP(t, "neigh add 198.51.100.9 lladdr 02:00:00:00:00:99 dev out")
	path := pinPath(t)
	w.do(t, func() {
		_, away := w.loginAndAway()
		beyond, err := net.InterfaceByName("beyond")
		must(t, err)
		tx, rx := packetSocket(t, w.far.Index), packetSocket(t, beyond.Index)
		send := func(change func()) (sent, forwarded int) {
			stop, done := make(chan struct{}), make(chan int)
			go func() { done <- sendUntil(stop, tx, w.far.Index, away, away) }()
			change()
			time.Sleep(20 * time.Millisecond)
			close(stop)
			return <-done, receiveUDP(rx, 2)
		}
		if sent, forwarded := send(func() {}); forwarded == 0 {
			t.Fatalf("of %d frames sent to an open interface the kernel forwards none", sent)
		}
		d := openGuarded(t, w, path, ClosedPort{Ifindex: w.near.Index, Mode: attach.ModeGeneric, Access: ssh})
		receiveUDP(rx, 2)
		sent, forwarded := send(func() {
			for range 5 {
				attachTo(t, d, w.near.Index, attach.ModeNative, attach.ModeNative)
				attachTo(t, d, w.near.Index, attach.ModeGeneric, attach.ModeGeneric)
			}
		})
		if sent < 100 || forwarded != 0 {
			t.Errorf("of %d frames sent the kernel forwarded %d", sent, forwarded)
		}
		must(t, d.Close())
	})
}

// TestClosedWhereItCannotBeAttached: a bridge runs no program in the driver. It stays closed,
// however often the data path tries.
func TestClosedWhereItCannotBeAttached(t *testing.T) {
	w := newRouter(t)
	for _, command := range []string{"link add br0 type bridge", "link set near master br0", "link set br0 up"} {
		w.ns.IP(t, command)
	}
	w.ns.IP(t, "neigh add 198.51.100.9 lladdr 02:00:00:00:00:99 dev out")
	path := pinPath(t)
	w.do(t, func() {
		bridge, err := net.InterfaceByName("br0")
		must(t, err)
		beyond, err := net.InterfaceByName("beyond")
		must(t, err)
		away := packet.Frame(packet.Ethernet{Dst: packet.Hex(bridge.HardwareAddr)}, ip4("192.0.2.2", "198.51.100.9"), packet.UDP{Sport: 1, Dport: 2}, packet.Payload{Count: 64})
		tx, rx := packetSocket(t, w.far.Index), packetSocket(t, beyond.Index)
		stop, done := make(chan struct{}), make(chan int)
		d := openGuarded(t, w, path, ClosedPort{Ifindex: bridge.Index, Mode: attach.ModeNative, Access: ssh})
		go func() { done <- sendUntil(stop, tx, w.far.Index, away, away) }()
		for range 5 {
			if mode, err := d.XDP.Attach(bridge.Index, attach.ModeNative); err == nil {
				t.Errorf("attached in mode %s", mode)
			}
			time.Sleep(5 * time.Millisecond)
		}
		close(stop)
		if sent, forwarded := <-done, receiveUDP(rx, 2); sent < 10 || forwarded != 0 {
			t.Errorf("of %d frames sent the kernel forwarded %d", sent, forwarded)
		}
		if got := d.Closed.XDP.Attached()[bridge.Index]; got != attach.ModeGeneric {
			t.Errorf("closed: %q", got)
		}
		must(t, d.Closed.Delete(bridge.Index))
		stop = make(chan struct{})
		go func() { done <- sendUntil(stop, tx, w.far.Index, away, away) }()
		time.Sleep(20 * time.Millisecond)
		close(stop)
		if sent, forwarded := <-done, receiveUDP(rx, 2); forwarded == 0 {
			t.Errorf("of %d frames sent to an open interface the kernel forwards none", sent)
		}
		must(t, d.Close())
	})
}

// receiveUDP counts the IPv4 packets to a UDP port that have arrived.
func receiveUDP(fd int, to byte) (count int) {
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err != nil {
			return count
		}
		if n > 38 && buf[12] == 8 && buf[13] == 0 && buf[23] == 17 && buf[37] == to {
			count++
		}
	}
}

// sendUntil sends both frames in turn, and says how often.
func sendUntil(stop chan struct{}, fd, ifindex int, a, b []byte) (n int) {
	for {
		select {
		case <-stop:
			return n
		default:
		}
		to := &unix.SockaddrLinklayer{Ifindex: ifindex}
		if unix.Sendto(fd, a, 0, to) == nil {
			n++
		}
		_ = unix.Sendto(fd, b, 0, to)
		time.Sleep(100 * time.Microsecond)
	}
}

// receiveBoth counts what has arrived of two frames.
func receiveBoth(fd int, a, b []byte) (ofA, ofB int) {
	buf := make([]byte, 16<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		switch {
		case err != nil:
			return ofA, ofB
		case bytes.Equal(buf[:n], a):
			ofA++
		case bytes.Equal(buf[:n], b):
			ofB++
		}
	}
}
