package linkstate

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// router is one of AS 65001 by the last octet of its system ID.
func router(last byte) Router {
	return Router{Instance: 7, ASN: 65001, ID: string([]byte{0, 0, 0, 0, 0, last})}
}

// lan is a LAN of a router.
func lan(last, number byte) Router {
	r := router(last)
	r.ID += string([]byte{number})
	return r
}

func node(last byte, name string) Node {
	return Node{Protocol: ISISLevel2, Router: router(last), Name: name}
}

// link is a direction between interfaces whose addresses are numbered.
func link(from, to byte, local, remote string, metric uint32) Link {
	return Link{Protocol: ISISLevel2, From: router(from), To: router(to), Local: addr(local), Remote: addr(remote), HasMetric: true, Metric: metric, Bandwidth: 1.25e9}
}

// triangle is three routers; 1 and 2 have two links, and 3 is reached from 1.
func triangle() []Object {
	slow := link(1, 2, "2001:db8:2::1", "2001:db8:2::2", 30)
	slow.Delay, slow.MinDelay, slow.MaxDelay, slow.Affinity, slow.SRLG = 2*time.Millisecond, time.Millisecond, 9*time.Millisecond, 5, []uint32{3}
	slow.SIDs = []EndX{
		{SID: addr("fc00:1:0:e002::"), Behavior: 5}, {SID: addr("fc00:1:0:e001::"), Behavior: 8, Set: true},
		{SID: addr("fc00:1:0:e003::"), Behavior: 6}, {SID: addr("fc00:1:0:e000::"), Behavior: 5, Algorithm: 128},
	}
	return []Object{
		node(1, "r1"), node(2, "r2"), Node{Protocol: ISISLevel2, Router: router(3)},
		link(1, 2, "2001:db8:1::1", "2001:db8:1::2", 10), link(2, 1, "2001:db8:1::2", "2001:db8:1::1", 11),
		slow, link(2, 1, "2001:db8:2::2", "2001:db8:2::1", 30),
		link(1, 3, "2001:db8:3::1", "2001:db8:3::3", 10), link(3, 1, "2001:db8:3::3", "2001:db8:3::1", 10),
		SID{Protocol: ISISLevel2, Router: router(1), SID: addr("fc00:1:0:2::"), Behavior: 1, Block: 32, Node: 16},
		SID{Protocol: ISISLevel2, Router: router(1), SID: addr("fc00:1:0:1::"), Behavior: 28, Block: 32, Node: 16},
		SID{Protocol: ISISLevel2, Router: router(1), SID: addr("fc00:1::"), Behavior: 1, Algorithm: 128, Block: 32, Node: 16},
		SID{Protocol: ISISLevel2, Router: router(1), SID: addr("fc00:1:0:0:d::"), Behavior: 18, Block: 32, Node: 16},
		SID{Protocol: ISISLevel2, Router: router(2), SID: addr("fc00:2:0:1::"), Behavior: 43},
		Prefix{Protocol: ISISLevel2, Router: router(2), Prefix: netip.MustParsePrefix("fc00:2::/48")},
		Prefix{Protocol: ISISLevel2, Router: router(2), Prefix: netip.MustParsePrefix("fc00:2:0:1::/128")},
		Prefix{Protocol: ISISLevel2, Router: router(2), Prefix: netip.MustParsePrefix("fc00::/16")},
		Prefix{Protocol: ISISLevel2, Router: router(1), Prefix: netip.MustParsePrefix("fc00:2:0:1::/64")},
	}
}

func wanted() te.Topology {
	return te.Topology{
		Nodes: []te.Node{
			{Name: "0000.0000.0003"},
			{Name: "r1", SID: addr("fc00:1:0:1::"), Locator: netip.MustParsePrefix("fc00:1::/48")},
			{Name: "r2", SID: addr("fc00:2:0:1::"), Locator: netip.MustParsePrefix("fc00:2::/48")},
		},
		Links: []te.Link{
			{From: "0000.0000.0003", To: "r1", Name: "2001:db8:3::1", Metric: 10, Capacity: 1e10},
			{From: "r1", To: "0000.0000.0003", Name: "2001:db8:3::1", Metric: 10, Capacity: 1e10},
			{From: "r1", To: "r2", Name: "2001:db8:1::1", Metric: 10, Capacity: 1e10},
			{From: "r1", To: "r2", Name: "2001:db8:2::1", Metric: 30, Capacity: 1e10, Delay: 2 * time.Millisecond, Affinity: 5, SRLG: []uint32{3}, SID: addr("fc00:1:0:e002::")},
			{From: "r2", To: "r1", Name: "2001:db8:1::1", Metric: 11, Capacity: 1e10},
			{From: "r2", To: "r1", Name: "2001:db8:2::1", Metric: 30, Capacity: 1e10},
		},
	}
}

func TestTopology(t *testing.T) {
	for i := range 20 { // whatever the order
		objects := triangle()
		rand.New(rand.NewPCG(1, uint64(i))).Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		got, left := Topology(objects)
		if !reflect.DeepEqual(got, wanted()) || len(left) > 0 {
			t.Fatalf("%+v\nleft out %v\nwant %+v", got, left, wanted())
		}
	}
	if got, left := Topology(nil); len(got.Nodes)+len(got.Links)+len(left) > 0 {
		t.Errorf("of nothing: %+v, %v", got, left)
	}
}

// What describes the same again changes nothing.
func TestSaidTwice(t *testing.T) {
	objects := triangle()
	for _, o := range triangle() {
		switch v := o.(type) {
		case Node:
			v.Protocol = ISISLevel1
			objects = append(objects, v)
		case Link:
			v.Protocol, v.Topologies = ISISLevel1, []uint16{0}
			objects = append(objects, v)
		}
		objects = append(objects, o)
	}
	if got, left := Topology(objects); !reflect.DeepEqual(got, wanted()) || len(left) > 0 {
		t.Errorf("%+v\nleft out %v\nwant %+v", got, left, wanted())
	}
}

// A link of two levels has the metric of level 1; of two topologies, that of IPv6.
func TestWhichMetric(t *testing.T) {
	first := link(1, 2, "2001:db8:1::1", "2001:db8:1::2", 50)
	first.Protocol = ISISLevel1
	if got, left := Topology(append(triangle(), first)); got.Links[2].Metric != 50 || len(left) > 0 {
		t.Errorf("level 1: %+v, %v", got.Links[2], left)
	}
	objects := triangle()
	for _, o := range triangle() {
		if l, ok := o.(Link); ok && l.From != router(3) && l.To != router(3) {
			l.Topologies, l.Metric = []uint16{2}, 77
			objects = append(objects, l)
		}
	}
	ipv4 := link(1, 2, "2001:db8:9::1", "2001:db8:9::2", 5)
	multicast := link(1, 3, "2001:db8:8::1", "2001:db8:8::3", 5)
	multicast.Topologies = []uint16{4}
	got, left := Topology(append(objects, ipv4, multicast))
	for _, l := range got.Links {
		if want := map[bool]uint32{true: 77, false: 10}[l.From[0] == 'r' && l.To[0] == 'r']; l.Metric != want {
			t.Errorf("topology 2: %+v, want metric %d", l, want)
		}
	}
	if len(got.Links) != 6 || len(left) != 2 || !strings.Contains(left[0].String()+left[1].String(), "route IPv6 in topology 2") {
		t.Errorf("topology 2: %+v, left out %v", got.Links, left)
	}
}

// Each is one thing that is wrong, or strange, and what becomes of it.
func TestLeftOut(t *testing.T) {
	for want, change := range map[string]func(objects []Object) []Object{
		"link r1 to r2 (2001:db8:1::1) is left out: its other direction is missing":               func(o []Object) []Object { return slices.Delete(o, 4, 5) },
		"link r1 to r2 (2001:db8:1::1) is left out: it has no IGP metric":                         edit(3, func(l *Link) { l.HasMetric = false }),
		"link r2 to r1 (2001:db8:1::1) is left out: of its other direction, it has no IGP metric": edit(3, func(l *Link) { l.HasMetric = false }),
		"link r1 to r2 (2001:db8:1::1) is left out: its IGP metric is 0":                          edit(3, func(l *Link) { l.Metric = 0 }),
		"its metric, 16777215, takes it out of the IGP":                                           edit(3, func(l *Link) { l.Metric = 0xffffff }),
		"its bandwidth is NaN octets/s":                                                           edit(3, func(l *Link) { l.Bandwidth = math.NaN() }),
		"its bandwidth is -1 octets/s":                                                            edit(3, func(l *Link) { l.Bandwidth = -1 }),
		"link r1 to 0000.0000.0009 (2001:db8:1::1) is left out: an end of it is no node":          edit(3, func(l *Link) { l.To = router(9) }),
		"link r1 to r1 (2001:db8:1::1) is left out: it ends where it begins":                      edit(3, func(l *Link) { l.To = router(1) }),
		"what 2 objects advertise is left out: they are of OSPFv2, and not of an IGP of IPv6": func(o []Object) []Object {
			return append(o, Node{Protocol: OSPFv2, Router: Router{ID: "\x0a\x00\x00\x01"}}, SID{Protocol: OSPFv2})
		},
		"what 1 object advertise is left out: they are of BGP": func(o []Object) []Object { return append(o, Link{Protocol: BGP}) },
		"node r1 (router 0000.0000.0009, instance 7, AS 65001) is left out: router 0000.0000.0001 of instance 7 and AS 65001 has its name": func(o []Object) []Object {
			return append(o, node(9, "r1"))
		},
		`name "rx" of router 0000.0000.0001 is left out: it is called "r1", too`: func(o []Object) []Object { return append(o, node(1, "rx")) },
		`name "core 3" of router 0000.0000.0003 is left out: it has characters`:  func(o []Object) []Object { return append(o, node(3, "core 3")) },
		"SID ff02::1 of 0000.0000.0003 is left out": func(o []Object) []Object {
			return append(o, SID{Protocol: OSPFv3, Router: router(3), SID: addr("ff02::1"), Behavior: 1})
		},
		"the structure of SID fc00:3:: of 0000.0000.0003 is left out: its locator would have 160 bits": func(o []Object) []Object {
			return append(o, SID{Protocol: ISISLevel2, Router: router(3), SID: addr("fc00:3::"), Behavior: 1, Block: 80, Node: 80})
		},
		"octets is left out: they say nothing": func(o []Object) []Object { return append(o, Unreadable{"octets", "they say nothing"}) },
	} {
		got, left := Topology(change(triangle()))
		var all []string
		for _, l := range left {
			all = append(all, l.String())
		}
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("left out %q\nwant %q", all, want)
		}
		if len(got.Nodes) != 3 || len(got.Links) < 4 {
			t.Errorf("%s: the rest is gone, too: %+v", want, got)
		}
	}
}

// edit changes a link.
func edit(at int, change func(*Link)) func([]Object) []Object {
	return func(o []Object) []Object {
		l := o[at].(Link)
		change(&l)
		o[at] = l
		return o
	}
}

// Links without addresses are joined by the numbers of their interfaces, or as the only one.
func TestUnnumbered(t *testing.T) {
	a := Link{Protocol: ISISLevel2, From: router(1), To: router(2), LocalID: 11, RemoteID: 22, HasMetric: true, Metric: 1}
	b := Link{Protocol: ISISLevel2, From: router(2), To: router(1), LocalID: 22, RemoteID: 11, HasMetric: true, Metric: 2}
	nodes := []Object{node(1, "r1"), node(2, "r2")}
	got, left := Topology(append(nodes, a, b))
	if len(got.Links) != 2 || got.Links[0].Name != "11-22" || got.Links[1].Name != "11-22" || len(left) > 0 {
		t.Errorf("%+v, %v", got.Links, left)
	}
	a.RemoteID = 0
	if got, left = Topology(append(nodes, a, b)); len(got.Links) != 2 || got.Links[0].Name != "" || got.Links[1].Name != "" || len(left) > 0 {
		t.Errorf("one end unknown: %+v, %v", got.Links, left)
	}
	c := a
	c.LocalID = 12
	if got, left = Topology(append(nodes, a, b, c)); len(got.Links) != 0 || len(left) != 2 {
		t.Errorf("two that may be it: %+v, %v", got.Links, left)
	}
}

func TestOverloaded(t *testing.T) {
	objects := triangle()
	objects[0] = Node{Protocol: ISISLevel2, Router: router(1), Name: "r1", Overloaded: true}
	got, _ := Topology(objects)
	for _, l := range got.Links {
		if (l.From == "r1") != (l.Metric > detour) {
			t.Errorf("%+v", l)
		}
	}
}

func TestDelay(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		link Link
		want time.Duration
	}{
		{Link{}, 0}, {Link{Delay: 2 * ms, MinDelay: ms, MaxDelay: 9 * ms}, 2 * ms}, {Link{MinDelay: ms, MaxDelay: 9 * ms}, ms},
		{Link{Delay: 2 * ms, MaxDelay: 9 * ms, Anomalous: true}, 9 * ms}, {Link{Delay: 2 * ms, Anomalous: true}, 2 * ms},
	} {
		if got := tt.link.delay(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.link, got, tt.want)
		}
	}
}

// A LAN of two routers is a link; one of more is said to be left out.
func TestLAN(t *testing.T) {
	of := func(r byte, metric uint32) []Object {
		to := Link{Protocol: ISISLevel2, From: router(r), To: lan(1, 2), Local: addr("2001:db8:5::" + string('0'+rune(r))), HasMetric: true, Metric: metric, Bandwidth: 125}
		return []Object{to, Link{Protocol: ISISLevel2, From: lan(1, 2), To: router(r), HasMetric: true}}
	}
	objects := slices.Concat([]Object{node(1, "r1"), node(2, "r2"), node(3, "r3"), Node{Protocol: ISISLevel2, Router: lan(1, 2)}}, of(1, 10), of(2, 20))
	got, left := Topology(objects)
	want := []te.Link{
		{From: "r1", To: "r2", Name: "0000.0000.0001-02", Metric: 10, Capacity: 1000},
		{From: "r2", To: "r1", Name: "0000.0000.0001-02", Metric: 20, Capacity: 1000},
	}
	if !reflect.DeepEqual(got.Links, want) || len(got.Nodes) != 3 || len(left) > 0 {
		t.Errorf("%+v, %v\nwant %+v", got, left, want)
	}
	for want, objects := range map[string][]Object{
		"it joins 3 routers: a LAN of two counts": slices.Concat(objects, of(3, 30)),
		"it joins 1 router:":                      objects[:6],
		"its other direction is missing":          objects[:7],
		"it is no node":                           slices.Concat(objects[:3], objects[4:]),
	} {
		if got, left := Topology(objects); len(got.Links) > 0 || len(left) == 0 || !slices.ContainsFunc(left, func(l te.LeftOut) bool { return strings.Contains(l.Why, want) }) {
			t.Errorf("%s: %+v, %v", want, got.Links, left)
		}
	}
	// The same LAN, as level 1 describes it.
	other := lan(2, 9)
	again := slices.Clone(objects)
	for _, o := range objects {
		switch v := o.(type) {
		case Node:
			if v.Router.lan() {
				v.Router, v.Protocol = other, ISISLevel1
				again = append(again, v)
			}
		case Link:
			if v.Protocol = ISISLevel1; v.To.lan() {
				v.To = other
			} else {
				v.From = other
			}
			again = append(again, v)
		}
	}
	if got, left := Topology(again); !reflect.DeepEqual(got.Links, want) || len(left) != 1 || !strings.Contains(left[0].Why, "its interfaces are those of LAN 0000.0000.0001-02") {
		t.Errorf("of two levels: %+v, %v", got.Links, left)
	}
}

func TestRouterString(t *testing.T) {
	for id, want := range map[string]string{
		"\x19\x21\x68\x00\x10\x01": "1921.6800.1001", "\x19\x21\x68\x00\x10\x01\x02": "1921.6800.1001-02", "\x0a\x00\x00\x01": "10.0.0.1",
		"\x0a\x00\x00\x01\x0a\x01\x00\x01": "10.0.0.1-10.1.0.1", "\xab\xcd": "abcd", "": "",
	} {
		if got := (Router{ID: id}).String(); got != want {
			t.Errorf("%x: %q, want %q", id, got, want)
		}
	}
}
