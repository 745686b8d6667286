package netdev

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// watch runs a Watcher inside a namespace until the test ends.
func watch(t *testing.T, ns *netns.NS, o Options) *Watcher {
	t.Helper()
	var w *Watcher
	var err error
	ns.Do(t, func() { w, err = NewWatcher(o) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// eventually waits until what becomes true and returns the snapshot in which it
// is.
func eventually(t *testing.T, w *Watcher, what string, true_ func(*Snapshot) bool) *Snapshot {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for time.Now().Before(end) {
		if s := w.Snapshot(); s != nil && true_(s) {
			return s
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("never came true: %s\n%+v", what, w.Snapshot())
	return nil
}

func ready(k Key) func(*Snapshot) bool {
	return func(s *Snapshot) bool {
		nh, err := Resolve(s, k)
		return err == nil && nh.Dst != nil
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// pair makes two namespaces joined by a veth that can be redirected to.
func pair(t *testing.T) (a, b *netns.NS) {
	t.Helper()
	a, b = netns.New(t), netns.New(t)
	netns.Veth(t, a, "a0", b, "b0")
	a.Addr(t, "a0", "10.0.0.1/24")
	a.Addr(t, "a0", "2001:db8::1/64")
	b.Run(t, "ethtool", "-K", "b0", "gro", "on")
	return a, b
}

func TestLateNeighbourIsResolved(t *testing.T) {
	for _, c := range []struct{ gateway, address string }{
		{"10.0.0.2", "10.0.0.2/24"},
		{"2001:db8::2", "2001:db8::2/64"},
	} {
		t.Run(c.gateway, func(t *testing.T) {
			a, b := pair(t)
			w := watch(t, a, Options{ProbeInterval: 50 * time.Millisecond})
			key := Key{NextHop: addr(c.gateway)}
			s := eventually(t, w, "a snapshot", func(*Snapshot) bool { return true })
			if nh, err := Resolve(s, key); err == nil {
				t.Fatalf("resolved without a neighbour: %+v", nh)
			}
			w.KeepAlive([]Key{key})
			time.Sleep(100 * time.Millisecond)
			b.Addr(t, "b0", c.address)
			s = eventually(t, w, "the late neighbour is resolved", ready(key))
			nh, _ := Resolve(s, key)
			if want := b.Interface(t, "b0").HardwareAddr.String(); nh.Dst.String() != want {
				t.Errorf("destination MAC %s, want %s", nh.Dst, want)
			}
			if nh.Pass {
				t.Errorf("only the kernel: %s", nh.Why)
			}
		})
	}
}

// A peer that changes its MAC address in silence is noticed without any packet
// that the kernel sees.
func TestNeighbourMovesToAnotherMAC(t *testing.T) {
	for _, c := range []struct{ family, gateway, address string }{
		{"ipv4", "10.0.0.2", "10.0.0.2/24"},
		{"ipv6", "2001:db8::2", "2001:db8::2/64"},
	} {
		t.Run(c.family, func(t *testing.T) {
			a, b := pair(t)
			b.Addr(t, "b0", c.address)
			neigh := "net." + c.family + ".neigh.a0."
			a.Sysctl(t, neigh+"base_reachable_time_ms", "300")
			a.Sysctl(t, neigh+"delay_first_probe_time", "1")
			a.Sysctl(t, neigh+"retrans_time_ms", "100")
			w := watch(t, a, Options{ProbeInterval: 100 * time.Millisecond})
			key := Key{NextHop: addr(c.gateway)}
			w.KeepAlive([]Key{key})
			eventually(t, w, "resolved", ready(key))

			// With ARP off the link says nothing while its address changes.
			b.IP(t, "link set b0 arp off")
			b.IP(t, "link set b0 address 02:00:00:00:00:99")
			b.IP(t, "link set b0 arp on")
			eventually(t, w, "the new MAC address", func(s *Snapshot) bool {
				nh, err := Resolve(s, key)
				return err == nil && nh.Dst.String() == "02:00:00:00:00:99"
			})
		})
	}
}

func TestKeepAliveIsGivenBack(t *testing.T) {
	a, b := pair(t)
	b.Addr(t, "b0", "10.0.0.2/24")
	w := watch(t, a, Options{ProbeInterval: 50 * time.Millisecond})
	key := Key{NextHop: addr("10.0.0.2"), Interface: "a0"}
	managed := func(want bool) func(*Snapshot) bool {
		return func(*Snapshot) bool {
			return strings.Contains(a.IP(t, "neigh show dev a0 10.0.0.2"), "managed") == want
		}
	}
	w.KeepAlive([]Key{key})
	eventually(t, w, "resolved", ready(key))
	eventually(t, w, "managed", managed(true))
	w.KeepAlive(nil)
	eventually(t, w, "not managed", managed(false))

	a.IP(t, "neigh replace 10.0.0.7 lladdr 02:00:00:00:00:07 dev a0 nud permanent")
	permanent := Key{NextHop: addr("10.0.0.7"), Interface: "a0"}
	w.KeepAlive([]Key{permanent})
	eventually(t, w, "permanent one is ready", ready(permanent))
	time.Sleep(200 * time.Millisecond)
	if got := a.IP(t, "neigh show dev a0 10.0.0.7"); !strings.Contains(got, "PERMANENT") {
		t.Errorf("the permanent neighbour is now %q", got)
	}
}

func TestOnlyKernel(t *testing.T) {
	a, b := pair(t)
	b.Addr(t, "b0", "10.0.0.2/24")
	a.IP(t, "link add br0 type bridge")
	a.IP(t, "link set br0 up")
	a.IP(t, "tuntap add dev tun0 mode tun")
	w := watch(t, a, Options{ProbeInterval: 50 * time.Millisecond})
	key := Key{NextHop: addr("10.0.0.2")}
	w.KeepAlive([]Key{key})
	s := eventually(t, w, "resolved", ready(key))
	if nh, err := Resolve(s, Key{Interface: "lo"}); err != nil || !nh.Pass {
		t.Errorf("lo: %+v, %v", nh, err)
	}
	if _, err := Resolve(s, Key{Interface: "tun0"}); err == nil {
		t.Error("tun0 is down and resolved")
	}
	if nh, err := Resolve(s, Key{NextHop: addr("10.0.0.1")}); err != nil || !nh.Pass {
		t.Errorf("our own address: %+v, %v", nh, err)
	}

	// A veth can be redirected to only while its peer has NAPI.
	b.Run(t, "ethtool", "-K", "b0", "gro", "off")
	eventually(t, w, "without GRO only the kernel", func(s *Snapshot) bool {
		nh, err := Resolve(s, key)
		return err == nil && nh.Pass && strings.Contains(nh.Why, "GRO")
	})
	b.Run(t, "ethtool", "-K", "b0", "gro", "on")
	eventually(t, w, "with GRO again", func(s *Snapshot) bool {
		nh, err := Resolve(s, key)
		return err == nil && !nh.Pass
	})
	b.IP(t, "link set b0 down")
	eventually(t, w, "no carrier", func(s *Snapshot) bool {
		_, err := Resolve(s, key)
		return err != nil
	})
}

// Both ends of a veth are up, then one, then the other.
func TestLinkState(t *testing.T) {
	a, b := pair(t)
	w := watch(t, a, Options{})
	for _, step := range []struct {
		of    *netns.NS
		set   string
		state LinkState
		words string
	}{
		{b, "link set b0 up", LinkUp, ""},
		{a, "link set a0 down", LinkDown, "is down"},
		{a, "link set a0 up", LinkUp, ""},
		{b, "link set b0 down", LinkNoCarrier, "has no carrier"},
		{a, "link set a0 down", LinkDown, "is down"},
		{a, "link set a0 up", LinkNoCarrier, "has no carrier"},
		{b, "link set b0 up", LinkUp, ""},
	} {
		step.of.IP(t, step.set)
		eventually(t, w, step.set, func(s *Snapshot) bool {
			l, there := s.Link("a0")
			return there && l.State() == step.state && l.State().Problem() == step.words
		})
	}
}

// kernelRoutes are one of each sort.
var kernelRoutes = []string{
	"route add default via 10.0.0.2",
	"route add 10.1.0.0/16 nexthop via 10.0.0.2 weight 1 nexthop via 10.0.0.3 weight 2",
	"route add 10.2.0.0/16 via 10.0.0.2 metric 20",
	"route add 10.2.0.0/16 via 10.0.0.3 metric 10",
	"route add blackhole 10.3.0.0/16",
	"route add 10.4.0.0/16 encap seg6 mode encap segs fc00::1 dev a0",
	"route add 10.5.0.0/16 via 10.0.0.2 mtu 1400",
	"route add 10.6.0.0/16 via inet6 2001:db8::3 dev a0",
	"route add 10.7.0.0/16 via 10.0.0.2 tos 0x10",
	"nexthop add id 1 via 10.0.0.2 dev a0",
	"nexthop add id 2 via 10.0.0.3 dev a0",
	"nexthop add id 10 group 1,3/2,1",
	"route add 10.8.0.0/16 nhid 10",
	"route add 10.9.0.0/16 dev a0 table 100",
	"route add 10.0.0.0/24 dev a0 table 100",
	"route add 10.10.0.0/16 via 10.0.0.3 table 100",
	"-6 route add 2001:db8:1::/48 nexthop via 2001:db8::3 nexthop via 2001:db8::4",
	"-6 route add unreachable 2001:db8:2::/48",
	"-6 route add 2001:db8:3::/48 from 2001:db8:9::/48 via 2001:db8::3",
}

// routesOfAllSorts is a namespace with kernelRoutes, seen by a Watcher.
func routesOfAllSorts(t *testing.T) (*netns.NS, *Watcher, *Snapshot) {
	t.Helper()
	a, b := pair(t)
	b.Addr(t, "b0", "10.0.0.2/24")
	a.IP(t, "neigh add 10.0.0.3 lladdr 02:00:00:00:00:03 dev a0 nud permanent")
	a.IP(t, "neigh add 2001:db8::3 lladdr 02:00:00:00:00:03 dev a0 nud permanent")
	for _, r := range kernelRoutes {
		a.IP(t, r)
	}
	w := watch(t, a, Options{Tables: []uint32{100}})
	s := eventually(t, w, "all routes", func(s *Snapshot) bool {
		return s.lookup().tables[TableMain].routes[prefix("2001:db8:3::/48")] != nil
	})
	return a, w, s
}

func TestMirrorOfKernelRoutes(t *testing.T) {
	_, _, s := routesOfAllSorts(t)
	m := Mirror(s, []uint32{TableMain, 100})
	hop := func(addrs ...string) []Key {
		var keys []Key
		for _, x := range addrs {
			keys = append(keys, Key{NextHop: addr(x), Interface: "a0"})
		}
		return keys
	}
	for _, c := range []struct {
		table uint32
		p     string
		want  []Key
	}{
		{254, "0.0.0.0/0", hop("10.0.0.2")},
		{254, "10.1.0.0/16", hop("10.0.0.2", "10.0.0.3", "10.0.0.3")},
		{254, "10.2.0.0/16", hop("10.0.0.3")},
		{254, "10.3.0.0/16", nil},
		{254, "10.4.0.0/16", nil},
		{254, "10.5.0.0/16", nil},
		{254, "10.6.0.0/16", hop("2001:db8::3")},
		{254, "10.7.0.0/16", nil},
		{254, "10.8.0.0/16", hop("10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3")},
		{254, "10.0.0.0/24", nil},
		{254, "10.0.0.3/32", hop("10.0.0.3")},
		{254, "10.0.0.1/32", nil},
		{100, "10.9.0.0/16", nil},
		{100, "10.0.0.3/32", hop("10.0.0.3")},
		{100, "10.10.0.0/16", hop("10.0.0.3")},
		{254, "2001:db8::/64", nil},
		{254, "2001:db8::3/128", hop("2001:db8::3")},
		{254, "2001:db8:1::/48", hop("2001:db8::3", "2001:db8::4")},
		{254, "2001:db8:2::/48", nil},
		{254, "2001:db8:3::/48", nil},
	} {
		got, ok := m[RouteKey{c.table, prefix(c.p)}]
		if !ok || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("table %d %s: %v (there: %v), want %v", c.table, c.p, got, ok, c.want)
		}
	}
	if _, ok := m[RouteKey{100, prefix("10.0.0.1/32")}]; ok {
		t.Error("table 100 has the local table's addresses")
	}
}

func TestMirrorWithRules(t *testing.T) {
	a, w, _ := routesOfAllSorts(t)
	a.IP(t, "rule add from 10.99.0.0/16 table 100")
	s := eventually(t, w, "the rule", func(s *Snapshot) bool { return s.ExtraRules(false) })
	m := Mirror(s, []uint32{TableMain, 100})
	for k, via := range m {
		if k.Table == TableMain && k.Prefix.Addr().Is4() && len(via) > 0 {
			t.Errorf("with an IPv4 rule %v is not asked of the kernel: %v", k, via)
		}
	}
	if len(m[RouteKey{TableMain, prefix("2001:db8:1::/48")}]) == 0 {
		t.Error("the IPv4 rule took IPv6 along")
	}
	if len(m[RouteKey{100, prefix("10.10.0.0/16")}]) == 0 {
		t.Error("the rule took table 100 along, which is looked up by number")
	}
}

func TestMirrorWithoutNexthopObjects(t *testing.T) {
	a, w, _ := routesOfAllSorts(t)
	a.Sysctl(t, "net.ipv4.nexthop_compat_mode", "0")
	w.touch(dirtyRoutes)
	s := eventually(t, w, "routes without their nexthop objects", func(s *Snapshot) bool {
		routes := s.lookup().tables[TableMain].routes[prefix("10.8.0.0/16")]
		return len(routes) == 1 && routes[0].KernelOnly != ""
	})
	if via := Mirror(s, []uint32{0})[RouteKey{TableMain, prefix("10.8.0.0/16")}]; via != nil {
		t.Errorf("next hops that the kernel does not show: %v", via)
	}
}

// IPv4 routes go with their link without a notification of their own.
func TestRoutesGoWithTheLink(t *testing.T) {
	a, _ := pair(t)
	a.IP(t, "route add 10.1.0.0/16 via 10.0.0.2")
	w := watch(t, a, Options{})
	has := func(s *Snapshot) bool {
		_, ok := Mirror(s, []uint32{0})[RouteKey{TableMain, prefix("10.1.0.0/16")}]
		return ok
	}
	eventually(t, w, "the route", has)
	a.IP(t, "link set a0 down")
	eventually(t, w, "no route", func(s *Snapshot) bool { return !has(s) })
	a.IP(t, "link set a0 up")
	a.IP(t, "route add 10.1.0.0/16 via 10.0.0.2")
	eventually(t, w, "the route again", has)
	own := func(p string) func(*Snapshot) bool {
		return func(s *Snapshot) bool { return slices.Contains(s.Own(), prefix(p)) }
	}
	eventually(t, w, "a broadcast address", own("10.0.0.255/32"))
	a.IP(t, "route add local 10.9.0.0/16 dev lo")
	eventually(t, w, "a prefix of own addresses", own("10.9.0.0/16"))
	a.IP(t, "addr del 10.0.0.1/24 dev a0")
	eventually(t, w, "no address, no route", func(s *Snapshot) bool {
		return !has(s) && !slices.Contains(s.Local(), addr("10.0.0.1"))
	})
}

func TestManyRoutes(t *testing.T) {
	const routes = 10000
	a, b := pair(t)
	b.Addr(t, "b0", "10.0.0.2/24")
	var batch strings.Builder
	for i := range routes {
		fmt.Fprintf(&batch, "route add 10.%d.%d.0/24 via 10.0.0.2\n", 1+i/256, i%256)
	}
	file := t.TempDir() + "/routes"
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var snapshots atomic.Int32
	w := watch(t, a, Options{OnChange: func(*Snapshot) { snapshots.Add(1) }})
	eventually(t, w, "a snapshot", func(*Snapshot) bool { return true })
	a.IP(t, "-batch "+file)
	s := eventually(t, w, "all routes", func(s *Snapshot) bool { return len(s.Routes) > routes })

	if n := snapshots.Load(); n < 2 || n > 200 {
		t.Errorf("%d snapshots for %d changes in a burst", n, routes)
	}

	start := time.Now()
	fresh, err := w.read(s, dirtyRoutes)
	if err != nil {
		t.Fatal(err)
	}
	m := Mirror(fresh, []uint32{0})
	keys := nextHops(m)
	for range 1000 {
		_, _ = Resolve(fresh, Key{NextHop: addr("10.7.7.7")})
	}
	took := time.Since(start)
	if len(m) < routes || len(keys) != 1 {
		t.Errorf("%d routes mirrored with next hops %v", len(m), keys)
	}
	if took > time.Second {
		t.Errorf("%d routes took %v", routes, took)
	}
	t.Logf("read, index and mirror %d routes: %v", routes, took)
}

// When the kernel had to drop notifications, everything is read again.
func TestLostNotifications(t *testing.T) {
	a, _ := pair(t)
	var w *Watcher
	var err error
	a.Do(t, func() { w, err = NewWatcher(Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	routes := w.events[0]
	if err := unix.SetsockoptInt(routes.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	var batch strings.Builder
	for i := range 200 {
		fmt.Fprintf(&batch, "route add 10.9.%d.0/24 dev a0\n", i)
	}
	file := t.TempDir() + "/routes"
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	a.IP(t, "-batch "+file)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.listen(ctx, routes) }()
	end := time.Now().Add(5 * time.Second)
	for w.dirty.Load() != dirtyAll && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	routes.Close()
	if err := <-done; err != nil {
		t.Errorf("listen: %v", err)
	}
	if w.dirty.Load() != dirtyAll {
		t.Errorf("after the loss %b is out of date, want all", w.dirty.Load())
	}
}

func TestFacts(t *testing.T) {
	a, b := pair(t)
	b.Run(t, "ethtool", "-K", "b0", "gro", "on", "tx", "off", "rxvlan", "off")
	var i *Inspector
	var err error
	b.Do(t, func() { i, err = NewInspector() })
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	f, err := i.Facts("b0")
	if err != nil {
		t.Fatal(err)
	}
	if f.Driver != "veth" || !f.GRO || f.TxChecksum || f.RxVLAN || !f.TxVLAN || f.LRO {
		t.Errorf("facts of b0: %+v", f)
	}
	if want := a.Interface(t, "a0").Index; f.PeerIfindex != want {
		t.Errorf("peer of b0: %d, want %d", f.PeerIfindex, want)
	}
	if _, err := i.Facts("none"); err == nil {
		t.Error("facts of a device that is not there")
	}
	s, err := i.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	l, _ := s.Link("b0")
	if !l.Virtual() || l.XDP&XDPBasic == 0 || !l.ParentElsewhere {
		t.Errorf("b0: %+v", l)
	}
}
