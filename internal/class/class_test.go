package class

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func valid() Class {
	return Class{Name: "gold", Color: 100, Match: Match{Interfaces: []string{"eth1"}, DSCP: []uint16{46}, Destinations: []netip.Prefix{prefix("10.0.0.0/8")}}}
}

func TestInvalidClasses(t *testing.T) {
	if errs := valid().Validate(); len(errs) != 0 {
		t.Fatal(errs)
	}
	for want, change := range map[string]func(*Class){
		"name: is missing":           func(c *Class) { c.Name = "" },
		"color: is missing":          func(c *Class) { c.Color = 0 },
		"match: a packet comes by":   func(c *Class) { c.Match.Host = true },
		"match: a packet comes":      func(c *Class) { c.Match.Namespaces = []string{"prod"} },
		"match.vlans: no interfaces": func(c *Class) { c.Match.Interfaces, c.Match.VLANs = nil, []uint16{100} },
		"match.vlans[1]: 4095 is":    func(c *Class) { c.Match.VLANs = []uint16{4094, 4095} },
		"match.vlans[0]: 0 is not":   func(c *Class) { c.Match.VLANs = []uint16{0} },
		"match.sources[0]: 10.":      func(c *Class) { c.Match.Sources = []netip.Prefix{prefix("10.0.0.1/8")} },
		"match.dscp[1]: 64 is not":   func(c *Class) { c.Match.DSCP = []uint16{63, 64} },
		"match.destinations[0]: 10.": func(c *Class) { c.Match.Destinations[0] = prefix("10.0.0.1/8") },
	} {
		c := valid()
		change(&c)
		if errs := c.Validate(); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
}

// Each pair has the same priority. An empty example: they have no packet in common.
func TestConflicts(t *testing.T) {
	of := func(f func(*Match)) Class {
		c := Class{Name: "x", Color: 1}
		f(&c.Match)
		return c
	}
	any := of(func(*Match) {})
	ef := of(func(m *Match) { m.DSCP = []uint16{46} })
	eth1 := of(func(m *Match) { m.Interfaces = []string{"eth1", "eth2"} })
	prod := of(func(m *Match) { m.Namespaces = []string{"prod"} })
	web := of(func(m *Match) { m.PodLabels = map[string]string{"app": "web"} })
	ten := of(func(m *Match) { m.Destinations = []netip.Prefix{prefix("10.0.0.0/8")} })
	blue := of(func(m *Match) { m.Interfaces, m.VLANs = []string{"eth1"}, []uint16{100, 200} })
	host := of(func(m *Match) { m.Host = true })
	branch := of(func(m *Match) { m.Sources = []netip.Prefix{prefix("10.1.0.0/16")} })
	for _, tt := range []struct {
		a, b Class
		want string
	}{
		{any, any, "packets of any source"},
		{any, ef, "packets of any source with DSCP 46"},
		{ef, of(func(m *Match) { m.DSCP = []uint16{10} }), ""},
		{ef, eth1, "packets of interface eth1 with DSCP 46"},
		{eth1, of(func(m *Match) { m.Interfaces = []string{"eth2"} }), "packets of interface eth2"},
		{eth1, prod, ""},
		{prod, web, "packets of pods of namespace prod"},
		{web, of(func(m *Match) { m.PodLabels = map[string]string{"app": "db"} }), ""},
		{ten, of(func(m *Match) { m.Destinations = []netip.Prefix{prefix("10.1.0.0/16")} }), "packets of any source to 10.1.0.0/16"},
		{ten, of(func(m *Match) { m.Destinations = []netip.Prefix{prefix("11.0.0.0/8")} }), ""},
		{blue, eth1, "packets of interface eth1, VLAN 100"},
		{blue, of(func(m *Match) { m.Interfaces, m.VLANs = []string{"eth1"}, []uint16{300} }), ""},
		{blue, of(func(m *Match) { m.Interfaces, m.VLANs = []string{"eth2"}, []uint16{100} }), ""},
		{blue, branch, "packets of interface eth1, VLAN 100, from 10.1.0.0/16"},
		{branch, of(func(m *Match) { m.Sources = []netip.Prefix{prefix("10.1.7.0/24")} }), "packets of any interface, from 10.1.7.0/24"},
		{branch, of(func(m *Match) { m.Sources = []netip.Prefix{prefix("10.2.0.0/16")} }), ""},
		{branch, prod, ""},
		{host, host, "packets of this node"},
		{host, ef, "packets of this node with DSCP 46"},
		{host, prod, ""},
		{host, branch, ""},
	} {
		got := ""
		if c := Conflicts([]Class{tt.a, tt.b}); len(c) > 0 {
			got = c[0].Example
		}
		if got != tt.want {
			t.Errorf("%+v and %+v: %q, want %q", tt.a.Match, tt.b.Match, got, tt.want)
		}
		tt.b.Priority = 1
		if c := Conflicts([]Class{tt.a, tt.b}); len(c) > 0 {
			t.Errorf("with another priority %+v and %+v conflict", tt.a.Match, tt.b.Match)
		}
	}
}

// classes: EF of everybody, all of namespace prod, what is for 10/8, and for one interface
// what is for 10.1/16, which must not take another path.
func classes() []Class {
	return []Class{
		{Name: "bulk", Color: 10, Match: Match{Destinations: []netip.Prefix{prefix("10.0.0.0/8")}}},
		{Name: "prod", Color: 20, Priority: 1, Match: Match{Namespaces: []string{"prod"}}},
		{Name: "near", Color: 30, Priority: 2, Strict: true, Match: Match{Interfaces: []string{"eth1"}, Destinations: []netip.Prefix{prefix("10.1.0.0/16")}}},
		{Name: "voice", Color: 40, Priority: 3, Match: Match{DSCP: []uint16{46}}},
		{Name: "branch", Color: 20, Priority: 4, Match: Match{Sources: []netip.Prefix{prefix("10.9.0.0/16"), prefix("2001:db8:9::/48")}, DSCP: []uint16{10, 46}}},
		{Name: "blue", Color: 10, Priority: 5, Match: Match{Interfaces: []string{"eth1"}, VLANs: []uint16{100}, Sources: []netip.Prefix{prefix("10.9.7.0/24")}}},
		{Name: "own", Color: 20, Priority: -1, Match: Match{Host: true}},
		{Name: "red", Color: 40, Priority: 6, Match: Match{Interfaces: []string{"eth1"}, VLANs: []uint16{200}}},
	}
}

// The classifier's column in the row gives what Apply finds by comparing.
func TestRowsAgreeWithApply(t *testing.T) {
	table, err := Compile(classes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	policies := map[uint32]string{10: "p10", 20: "p20", 40: "p40"}
	for _, s := range []Source{
		{Kind: SourceInterface, Interface: "eth1"}, {Kind: SourceInterface, Interface: "eth2"},
		{Kind: SourcePod, Namespace: "prod"}, {Kind: SourcePod}, {Kind: SourceHost},
		{Kind: SourceInterface, Interface: "eth1", VLAN: 100, Prefix: prefix("10.9.7.0/24")},
		{Kind: SourceInterface, Interface: "eth1", VLAN: 200}, {Kind: SourceInterface, Interface: "eth2", Prefix: prefix("2001:db8:9::/48")},
	} {
		classifier := table.Classifier(s)
		for _, to := range []string{"10.1.2.0/24", "10.2.0.0/16", "0.0.0.0/0", "2001:db8::/32"} {
			row, _ := table.Row(prefix(to), "best", policies)
			for dscp := range uint16(64) {
				want := Way{Policy: "best"}
				if c := table.Apply(s, dscp, prefix(to)); c != nil {
					want.Class = c.Name
					if p, ok := policies[c.Color]; ok || c.Strict {
						want.Policy = p
					}
				}
				if got := row[classifier[dscp]]; got != want {
					t.Fatalf("%+v, DSCP %d, to %s: %+v, want %+v", s, dscp, to, got, want)
				}
			}
		}
	}
	if _, needed := table.Row(prefix("192.0.2.0/24"), "best", map[uint32]string{30: "p30"}); needed {
		t.Error("a destination whose classes have no policy has a row")
	}
	if got := table.destinations(prefix("10.0.0.0/9")); !slices.Equal(got, []netip.Prefix{prefix("10.1.0.0/16")}) {
		t.Errorf("destinations in 10.0.0.0/9: %v", got)
	}
}

func TestLabelsOfPods(t *testing.T) {
	table, err := Compile([]Class{
		{Name: "a", Color: 1, Priority: 2, Match: Match{PodLabels: map[string]string{"app": "web"}, Destinations: []netip.Prefix{prefix("10.0.0.0/8")}}},
		{Name: "b", Color: 2, Priority: 1, Match: Match{PodLabels: map[string]string{"tier": "front"}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	column := func(labels map[string]string) uint8 {
		return table.Classifier(Source{Kind: SourcePod, Labels: labels})[0]
	}
	none, web, front := column(nil), column(map[string]string{"app": "web"}), column(map[string]string{"tier": "front"})
	both := column(map[string]string{"app": "web", "tier": "front"})
	if none != 0 || len(distinct([]uint8{none, web, front, both})) != 4 {
		t.Errorf("columns %d, %d, %d, %d: want 0 and three others", none, web, front, both)
	}
	if c := table.Classifier(Source{Kind: SourceInterface, Interface: "eth1"}); c != (Classifier{}) {
		t.Error("classes of pods have packets of an interface")
	}
}

func TestTooManyClasses(t *testing.T) {
	var many []Class
	for i := range MaxColumns + 1 {
		many = append(many, Class{Name: fmt.Sprintf("c%02d", i), Color: uint32(i + 1), Match: Match{DSCP: []uint16{uint16(i)}}})
	}
	if _, err := Compile(many, nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("%d columns: %v", len(many), err)
	}
	if _, err := Compile(many[1:], nil); err != nil {
		t.Error(err)
	}
}

// A class keeps its column while others come and go, and a new one does not get that of
// one that goes.
func TestColumnsStay(t *testing.T) {
	all := classes()
	before, err := Compile(all[2:], nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Compile(append(all[:2:2], all[3]), before)
	if err != nil {
		t.Fatal(err)
	}
	source := Source{Kind: SourceInterface, Interface: "eth1"}
	if a, b := before.Classifier(source)[46], after.Classifier(source)[46]; a == 0 || a != b {
		t.Errorf("column of voice was %d and is %d", a, b)
	}
	if near, bulk := before.Classifier(source)[0], after.Classifier(source)[0]; near == bulk || bulk == 0 {
		t.Errorf("bulk has column %d, which near had (%d)", bulk, near)
	}
}

// A class of a part of a steered prefix gets an entry of its own, by the longest steered
// prefix that holds the part. Other entries stay as they are.
func TestSteer(t *testing.T) {
	table, err := Compile(classes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	end := netip.MustParseAddr("2001:db8:e::1")
	policies := []srpolicy.Policy{
		{Name: "best", Color: 1, Endpoint: end}, {Name: "fast", Color: 40, Endpoint: end}, {Name: "down", Color: 10, Endpoint: end},
		{Name: "other", Color: 1, Endpoint: netip.MustParseAddr("2001:db8:e::2")},
		{Name: "wire", Color: 20, Endpoint: end, Behavior: srv6.HEncapsL2},
	}
	byName := map[string]srpolicy.Policy{}
	for _, p := range policies {
		byName[p.Name] = p
	}
	entries := []srpolicy.Steering{
		{Prefix: prefix("0.0.0.0/0"), Policy: "other"}, {Prefix: prefix("10.0.0.0/8"), Policy: "best"},
		{Prefix: prefix("192.0.2.0/24"), Tunnel: "t"}, {Interface: "eth1", Policy: "best"},
	}
	got := map[string]*Row{}
	for _, e := range table.Steer(entries, byName, func(p string) bool { return p != "down" }, nil) {
		got[e.Key()] = e.Row
	}
	if len(got) != 5 || got["0.0.0.0/0"] != nil || got["192.0.2.0/24"] != nil {
		t.Fatalf("entries %v", got)
	}
	for key, near := range map[string]Way{"10.0.0.0/8": {"best", ""}, "10.1.0.0/16": {"", "near"}, "eth1": {"best", ""}} {
		eth1 := table.Classifier(Source{Kind: SourceInterface, Interface: "eth1"})
		row := got[key]
		if row == nil {
			t.Errorf("%s has no row", key)
			continue
		}
		if near == (Way{"best", ""}) && key != "eth1" {
			near.Class = "bulk" // whose policy is not valid
		}
		if w := row[eth1[46]]; w != (Way{"fast", "voice"}) {
			t.Errorf("%s: voice takes %+v", key, w)
		}
		if w := row[eth1[0]]; w != near {
			t.Errorf("%s: DSCP 0 takes %+v, want %+v", key, w, near)
		}
	}
}

// Packets take a class's policy where it ends at a SID that takes them: a tenant's at the tenant's own
// only, the cluster's where nothing is known against it, by the family of the destination.
func TestSteerByLastSegment(t *testing.T) {
	table, err := Compile([]Class{{Name: "gold", Color: 100, Strict: true}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	via := netip.MustParseAddr("fc00:a::1")
	policy := func(name string, color uint32, ends ...string) srpolicy.Policy {
		p := srpolicy.Policy{Name: name, Color: color, Endpoint: netip.MustParseAddr("2001:db8::2")}
		for _, end := range ends {
			p.SegmentLists = append(p.SegmentLists, srpolicy.SegmentList{Segments: []netip.Addr{via, netip.MustParseAddr(end)}})
		}
		return p
	}
	const dt4, dt6, red, blue, other = "fc00:2:4::", "fc00:2:6::", "fc00:2:107::", "fc00:2:108::", "fc00:9::"
	lost := func(sid netip.Addr, to netip.Prefix) string {
		switch {
		case sid.String() == other, sid.String() == dt4 && to.IsValid() && to.Addr().Is4(), sid.String() == dt6 && to.IsValid() && to.Addr().Is6():
			return ""
		}
		return "lost"
	}
	four, six := srpolicy.Steering{Prefix: prefix("10.244.2.0/24"), Policy: "4"}, srpolicy.Steering{Prefix: prefix("fd00:2::/64"), Policy: "6"}
	tenant := srpolicy.Steering{Prefix: prefix("10.244.2.0/24"), Tenant: 7, Policy: "red"}
	for _, tt := range []struct {
		name string
		e    srpolicy.Steering
		gold srpolicy.Policy
		want string
	}{
		{"IPv4 to End.DT4", four, policy("gold", 100, dt4), "gold"},
		{"IPv6 to End.DT4", six, policy("gold", 100, dt4), ""},
		{"IPv6 to End.DT6", six, policy("gold", 100, dt6), "gold"},
		{"IPv4 to either", four, policy("gold", 100, dt4, dt6), ""},
		{"IPv4 to somebody else's network", four, policy("gold", 100, other), "gold"},
		{"IPv4 to a tenant", four, policy("gold", 100, red), ""},
		{"a tenant to the cluster", tenant, policy("gold", 100, dt4), ""},
		{"a tenant to somebody else's network", tenant, policy("gold", 100, other), ""},
		{"a tenant to another one", tenant, policy("gold", 100, blue), ""},
		{"a tenant to itself", tenant, policy("gold", 100, red), "gold"},
		{"all of an interface to what takes IPv4 only", srpolicy.Steering{Interface: "eth1", Policy: "6"}, policy("gold", 100, dt4), ""},
		{"all of an interface to where it goes anyway", srpolicy.Steering{Interface: "eth1", Policy: "4"}, policy("gold", 100, dt4), "gold"},
		{"a list that is held ready ends elsewhere", four, func() srpolicy.Policy {
			p := policy("gold", 100, dt4)
			p.Protection = policy("", 0, dt6).SegmentLists
			return p
		}(), ""},
	} {
		byName := map[string]srpolicy.Policy{"gold": tt.gold}
		for _, p := range []srpolicy.Policy{policy("4", 4, dt4), policy("6", 6, dt6), policy("red", 0x107, red)} {
			byName[p.Name] = p
		}
		entries := table.Steer([]srpolicy.Steering{tt.e}, byName, func(string) bool { return true }, lost)
		way := Way{Policy: tt.e.Policy}
		if row := entries[0].Row; row != nil {
			way = row[table.Classifier(Source{Kind: SourcePod})[0]]
		}
		if way != (Way{tt.want, "gold"}) {
			t.Errorf("%s: %+v, want policy %q", tt.name, way, tt.want)
		}
	}
}
