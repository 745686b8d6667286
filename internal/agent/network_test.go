package agent

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/netdev"
)

// withRoute adds an address, a neighbour and a route through it.
func withRoute(s *netdev.Snapshot) *netdev.Snapshot {
	s.Addresses = append(s.Addresses, netdev.Address{Ifindex: 1, Prefix: prefix("192.0.2.1/24")})
	s.Routes = append(s.Routes,
		netdev.Route{Table: netdev.TableMain, Prefix: prefix("192.0.2.0/24"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Ifindex: 1, Weight: 1}}},
		netdev.Route{Table: netdev.TableMain, Prefix: prefix("203.0.113.0/24"), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Gateway: addr("192.0.2.9"), Ifindex: 1, Weight: 1}}})
	s.Neighbours = append(s.Neighbours,
		netdev.Neighbour{Ifindex: 1, Addr: addr("192.0.2.9"), MAC: net.HardwareAddr{2, 9, 9, 9, 9, 9}, State: netdev.NUDReachable})
	return s
}

func TestNetworkIsFollowed(t *testing.T) {
	d := start(t)
	d.change(t, withRoute(links("eth0", "eth1")), "the route is mirrored, its next hop resolved and kept alive", func() bool {
		hop := d.dp.hops[adjacency.Key{NextHop: addr("192.0.2.9"), Interface: "eth0"}]
		return len(d.dp.routes[netdev.RouteKey{Table: netdev.TableMain, Prefix: prefix("203.0.113.0/24")}]) == 1 &&
			hop != nil && hop.Ifindex == 1 && hop.Dst.String() == "02:09:09:09:09:09" && d.dp.locals[prefix("192.0.2.1/32")] &&
			slices.Contains(d.watcher.kept, netdev.Key{NextHop: addr("192.0.2.9"), Interface: "eth0"})
	})
	moved := withRoute(links("eth0", "eth1"))
	moved.Neighbours[0].MAC = net.HardwareAddr{2, 8, 8, 8, 8, 8}
	d.dp.log()
	d.change(t, moved, "the neighbour's new address is known", func() bool {
		hop := d.dp.hops[adjacency.Key{NextHop: addr("192.0.2.9"), Interface: "eth0"}]
		return hop != nil && hop.Dst.String() == "02:08:08:08:08:08"
	})
	if calls := d.dp.log(); len(calls) != 1 {
		t.Errorf("one neighbour changed, and the calls are %q", calls)
	}
	failed := withRoute(links("eth0", "eth1"))
	failed.Neighbours[0].State = netdev.NUDFailed
	d.change(t, failed, "a neighbour that does not answer is not ready", func() bool {
		hop, there := d.dp.hops[adjacency.Key{NextHop: addr("192.0.2.9"), Interface: "eth0"}]
		return there && hop == nil
	})
	d.change(t, links("eth0", "eth1"), "what went away is deleted", func() bool {
		return len(d.dp.routes) == 0 && len(d.dp.locals) == 0
	})
}

// A route that there is no room for must not be led by a shorter one: the
// kernel is asked for all of those around it, until there is room.
func TestRouteThatDoesNotFit(t *testing.T) {
	d := start(t)
	via := func(p string) netdev.Route {
		return netdev.Route{Table: netdev.TableMain, Prefix: prefix(p), Type: netdev.RouteUnicast, Hops: []netdev.Hop{{Gateway: addr("192.0.2.9"), Ifindex: 1, Weight: 1}}}
	}
	s := withRoute(links("eth0", "eth1"))
	s.Routes = append(s.Routes, via("0.0.0.0/0"), via("203.0.0.0/16"), via("203.0.113.128/25"), via("198.51.0.0/16"))
	d.dp.mu.Lock()
	d.dp.failOn = func(c string) error {
		if c == "route 254 203.0.113.128/25" {
			return errors.New("the table is full")
		}
		return nil
	}
	d.dp.mu.Unlock()
	hops := func(p string) int {
		via, there := d.dp.routes[netdev.RouteKey{Table: netdev.TableMain, Prefix: prefix(p)}]
		if !there {
			return -1
		}
		return len(via)
	}
	asks := func() bool {
		return hops("203.0.113.128/25") == -1 && hops("203.0.113.0/24") == 0 && hops("203.0.0.0/16") == 0 && hops("0.0.0.0/0") == 0 &&
			hops("198.51.0.0/16") == 1
	}
	d.change(t, s, "what is around it asks the kernel, the rest does not", asks)
	d.dp.log()
	if g := d.Gauges(); g.Failures == 0 {
		t.Error("the metric counts no failure")
	}
	if s, err := d.Status(); err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "203.0.113.128/25 in table 254: the table is full") {
		t.Errorf("the status says %q, %v", s.Problems, err)
	}
	d.core.retry()
	if calls := d.dp.log(); len(calls) != 1 || !asks() {
		t.Errorf("another try: calls are %q", calls)
	}
	d.dp.mu.Lock()
	d.dp.failOn = nil
	d.dp.mu.Unlock()
	d.core.retry()
	d.core.retry()
	for _, p := range []string{"203.0.113.128/25", "203.0.113.0/24", "203.0.0.0/16", "0.0.0.0/0"} {
		if hops(p) != 1 {
			t.Errorf("with room for all %s has %d next hops", p, hops(p))
		}
	}
	if s, err := d.Status(); d.core.network.Failed() || err != nil || len(s.Problems) > 0 || d.Gauges().Failures != 0 {
		t.Errorf("failures are left: %q, %v", s.Problems, err)
	}
}

func TestInterfacesComeAndGo(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway+"  \n", newFake()).start(t, links("eth0"))
	state := func(name string) string {
		list, err := d.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if i.Name == name {
				return i.Attached
			}
		}
		return "not in the list"
	}
	if got := state("eth1"); !strings.Contains(got, "no such interface") {
		t.Errorf("eth1 is missing, its state is %q", got)
	}
	d.change(t, links("eth0", "eth1"), "eth1 is attached when it appears", func() bool {
		return d.dp.attached[2] == "native" && d.dp.ports[2].Roles == port.Edge
	})
	if got := state("eth1"); got != "native" {
		t.Errorf("eth1's state is %q", got)
	}
	moved := links("eth0", "eth1")
	moved.Links[1].MAC = net.HardwareAddr{2, 0, 0, 0, 9, 9}
	d.change(t, moved, "eth1's new MAC address is known", func() bool {
		return d.dp.ports[2].MAC == [6]byte{2, 0, 0, 0, 9, 9}
	})
	again := links("eth0")
	again.Links = append(again.Links, link(7, "eth1"))
	d.change(t, again, "eth1 is attached again when it was made anew", func() bool {
		_, old := d.dp.attached[2]
		return !old && d.dp.attached[7] == "native"
	})
	d.dp.mu.Lock()
	d.dp.failOn = func(c string) error {
		if strings.HasPrefix(c, "attach") {
			return errors.New("the driver says no")
		}
		return nil
	}
	d.dp.mu.Unlock()
	d.change(t, links("eth0", "eth1"), "a driver that refuses is reported", func() bool {
		return d.core.writer.Failures[desired.Ref{Kind: desired.KindInterface, Key: "eth1"}] != nil
	})
	if got := state("eth1"); !strings.Contains(got, "the driver says no") {
		t.Errorf("eth1's state is %q", got)
	}
	d.dp.mu.Lock()
	d.dp.failOn = nil
	d.dp.mu.Unlock()
	d.core.retry()
	if got := state("eth1"); got != "native" {
		t.Errorf("after another try eth1's state is %q", got)
	}
}

// The data path addresses to culvert0 what the kernel is to get: it follows whoever sets the MAC.
func TestEntryGetsAnotherMAC(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.core.update(d.routed())
	attached := func() bool { return slices.Contains(d.dp.log(), fmt.Sprintf("entry %d", fakeExit)) }
	attached() // what the start did
	d.core.update(d.routed())
	if attached() {
		t.Error("nothing changed, and the data path is given the MAC again")
	}
	d.kernel.mu.Lock()
	d.kernel.mac = netdev.MAC{2, 0, 0, 0, 9, 9}
	d.kernel.mu.Unlock()
	d.core.update(d.routed())
	if !attached() {
		t.Error("the data path has the MAC of before")
	}
}

func TestAskedForIsKeptAlive(t *testing.T) {
	d := start(t)
	key := netdev.Key{NextHop: addr("192.0.2.77")}
	d.core.network.Ask(key)
	d.core.network.Ask(key)
	d.watcher.mu.Lock()
	defer d.watcher.mu.Unlock()
	n := 0
	for _, k := range d.watcher.kept {
		if k == key {
			n++
		}
	}
	if n != 1 || len(d.watcher.kept) < 2 {
		t.Errorf("kept alive: %v", d.watcher.kept)
	}
}
