package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// red has addresses that the cluster's own pods have, too.
var red = Tenant{Name: "red", ID: 7, Pools: prefixes("10.0.0.0/8", "fd00::/16")}

func TestTenantPrefixes(t *testing.T) {
	of := prefixes("10.244.3.0/24", "fd00:3::/64")
	for _, tt := range []struct{ pool, want string }{
		{"10.9.0.0/16", "10.9.3.0/24"},
		{"192.0.0.0/8", "192.244.3.0/24"},
		{"10.9.0.0/24", ""}, // there is nothing behind it that says which node it is
		{"10.9.8.0/21", "10.9.11.0/24"},
		{"fd09::/16", "fd09:3::/64"},
		{"fd09:1::/32", "fd09:1::/64"}, // a pool of which every node has the same part: see TestTenants
		{"fd09:1:2:3:4::/80", ""},
	} {
		var got []string
		for _, p := range (Tenant{Pools: prefixes(tt.pool)}).Prefixes(of) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", tt.pool, got, tt.want)
		}
	}
}

// ofTenants is what a node wants for tenants, in words.
func ofTenants(w Wanted) (out []string) {
	for _, p := range w.Policies {
		if p.Color >= tenantFunction {
			out = append(out, fmt.Sprintf("policy %s %d %s %s", p.Name, p.Color, p.Endpoint, p.SegmentLists[0].Segments))
		}
	}
	for _, s := range w.Steering {
		if s.Tenant != 0 {
			out = append(out, fmt.Sprintf("%s > %s", s.Key(), s.Policy))
		}
	}
	for _, p := range w.Peers {
		for _, why := range p.Problems {
			out = append(out, "! "+p.Name+" "+why)
		}
	}
	return out
}

// reachOf is a prefix that a router outside of the cluster advertised.
func reachOf(tenant uint8, prefix, sid string) Reach {
	return Reach{Tenant: tenant, Prefix: prefixes(prefix)[0], Address: addr("2001:db8::99"), Segments: addrs(sid)}
}

func TestDestination(t *testing.T) {
	for _, text := range []string{"10.9.2.0/24", "10.9.2.0/24@tenant/7", "::/0@tenant/255"} {
		if d, err := ParseDestination(text); err != nil || d.String() != text {
			t.Errorf("%s is read as %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "10.9.2.0", "10.9.2.0/24@tenant/256", "10.9.2.0/24@tenant/", "10.9.2.0/24@eth0"} {
		if d, err := ParseDestination(text); err == nil {
			t.Errorf("%q is read as %s", text, d)
		}
	}
}

func TestTenants(t *testing.T) {
	member := self
	member.Tenants = []Tenant{red, {Name: "blue", ID: 255, Pools: red.Pools}}
	double := Complete(Node{Name: "node-3", Address: addr("2001:db8::3"), Locator: prefixes("fc00:0:3::/48")[0], Prefixes: prefixes("10.244.3.0/24")}, true)
	byHand := Node{Name: "node-4", Address: addr("2001:db8::4"), IPv4: addrs("fcdd::4"), Prefixes: prefixes("10.244.4.0/24")}
	narrow := member
	narrow.Tenants = []Tenant{{Name: "red", ID: 7, Pools: prefixes("fd09:1::/32")}}
	for name, tt := range map[string]struct {
		self    Self
		nodes   []Node
		reaches []Reach
		known   map[Color]Known
		want    string
	}{
		"no tenants": {self: self, nodes: []Node{node(2)}},
		"two": {self: member, nodes: []Node{node(2)}, want: `policy node-2:red 263 2001:db8::2 [fc00:0:2:107::]
policy node-2:blue 511 2001:db8::2 [fc00:0:2:1ff::]
10.244.2.0/24@tenant/7 > node-2:red
fd00:2::/64@tenant/7 > node-2:red
10.244.2.0/24@tenant/255 > node-2:blue
fd00:2::/64@tenant/255 > node-2:blue`},
		"in the double form": {self: member, nodes: []Node{double}, want: `policy node-3:red 263 2001:db8::3 [2001:db8::3 fc00:0:3:107::]
policy node-3:blue 511 2001:db8::3 [2001:db8::3 fc00:0:3:1ff::]
10.244.3.0/24@tenant/7 > node-3:red
10.244.3.0/24@tenant/255 > node-3:blue`},
		"without a locator": {self: member, nodes: []Node{byHand}, want: `! node-4 tenant red: the node has no locator, so its SID of the tenant is not known
! node-4 tenant blue: the node has no locator, so its SID of the tenant is not known`},
		"by a path of somebody's own": {self: member, nodes: []Node{double}, known: map[Color]Known{{263, double.Address}: {Name: "gold"}},
			want: `policy node-3:blue 511 2001:db8::3 [2001:db8::3 fc00:0:3:1ff::]
10.244.3.0/24@tenant/7 > gold
10.244.3.0/24@tenant/255 > node-3:blue`},
		"a pool of which all have the same part": {self: narrow, nodes: []Node{node(2)}, want: `policy node-2:red 263 2001:db8::2 [fc00:0:2:107::]
! node-2 tenant red: prefix fd09:1::/64 is already that of this node: is the pool longer than the prefix of all pods?`},
		"told by BGP": {self: member, reaches: []Reach{reachOf(7, "10.9.0.0/16", "fc00:99::d"), reachOf(255, "0.0.0.0/0", "fc00:99::e"), reachOf(8, "10.9.0.0/16", "fc00:99::f")},
			want: `10.9.0.0/16@tenant/7 > vpn:fc00:99::d
0.0.0.0/0@tenant/255 > vpn:fc00:99::e`},
		"told by BGP and the node": {self: member, nodes: []Node{double}, reaches: []Reach{{Tenant: 7, Prefix: prefixes("10.244.3.0/24")[0], Address: double.Address, Segments: addrs("fc00:0:3:107::")}},
			want: `policy node-3:red 263 2001:db8::3 [2001:db8::3 fc00:0:3:107::]
policy node-3:blue 511 2001:db8::3 [2001:db8::3 fc00:0:3:1ff::]
10.244.3.0/24@tenant/7 > node-3:red
10.244.3.0/24@tenant/255 > node-3:blue`},
		"our own part, told by another": {self: member, reaches: []Reach{reachOf(7, "10.244.1.0/24", "fc00:99::d")},
			want: "!  tenant red: prefix 10.244.1.0/24 is already that of this node: is the pool longer than the prefix of all pods?"},
		"a node that is refused": {self: member, nodes: []Node{{Name: "x", Address: member.Address, IPv4: addrs("fd09::4"), Locator: prefixes("fc00:0:9::/48")[0], Prefixes: prefixes("10.244.9.0/24")}},
			want: "! x address 2001:db8::1 is already that of this node"},
	} {
		got := strings.Join(ofTenants(Remote(Cluster{Self: tt.self, Nodes: tt.nodes, Reaches: tt.reaches, Known: tt.known})), "\n")
		if got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
	}
}

func TestTenantSIDs(t *testing.T) {
	member := self
	member.Tenants = []Tenant{red}
	for name, change := range map[string]func(*Self){
		"single":      func(*Self) {},
		"double":      func(s *Self) { s.Double = true },
		"by hand":     func(s *Self) { s.DT4, s.DT6 = addr("fcdd::44"), addr("fcdd::66") },
		"no locator ": func(s *Self) { s.DT4, s.DT6, s.Locator = addr("fcdd::44"), addr("fcdd::66"), netip.Prefix{} },
	} {
		s := member
		change(&s)
		var got []string
		for _, l := range s.SIDs() {
			if l.Tenant != 0 {
				got = append(got, fmt.Sprintf("%s %s %d", l.SID, l.Behavior, l.Tenant))
			}
		}
		var want []string
		if s.Locator.IsValid() {
			want = []string{"fc00:0:1:107::/64 End.DT46 7"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
