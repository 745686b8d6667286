package overlay_test

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/overlay"
)

// vouchedNode is a node all of which the cluster vouches for.
func vouchedNode() (overlay.Node, overlay.Vouched) {
	n := overlay.Complete(overlay.Node{
		Name: "node-2", Address: netip.MustParseAddr("2001:db8::2"), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.2.0/24"), netip.MustParsePrefix("fd00:10:244:2::/64")},
		Locator:  netip.MustParsePrefix("fc00:0:2::/48"),
	}, false)
	held := map[netip.Prefix]string{}
	for text, node := range map[string]string{"2001:db8::3/128": "node-3", "10.244.3.0/24": "node-3", "fc00:0:3::/48": "node-3"} {
		held[netip.MustParsePrefix(text)] = node
	}
	return n, overlay.Vouched{
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), n.Address}, PodCIDRs: n.Prefixes, Pool: netip.MustParsePrefix("fc00::/32"), Locator: n.Locator,
		Holder: func(p netip.Prefix) string {
			for q, node := range held {
				if q.Overlaps(p) {
					return node
				}
			}
			return ""
		},
	}
}

// A node changes one thing that it says of itself to what is not its own.
func TestVouch(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	good, by := vouchedNode()
	if got := overlay.Vouch(good, by, overlay.Accept{}); got.Refused != "" || len(got.Faults) > 0 || !reflect.DeepEqual(got.Prefixes, good.Prefixes) || got.BSID4 != good.BSID4 {
		t.Fatalf("a good node: %+v", got)
	}
	const all = "::/0"
	for what, tt := range map[string]struct {
		change          func(*overlay.Node)
		refused, faults string
		accept          string // a prefix with which it is no fault; "": none
	}{
		"the API server's address":        {func(n *overlay.Node) { n.Address = addr("2001:db8::10") }, "address 2001:db8::10 is no InternalIP of its Node", "", all},
		"another node's address":          {func(n *overlay.Node) { n.Address = addr("2001:db8::3") }, "address 2001:db8::3 is that of node-3", "", ""},
		"an address in another's locator": {func(n *overlay.Node) { n.Address = addr("fc00:0:3::1") }, "address fc00:0:3::1 is that of node-3", "", ""},
		"an address in its locator":       {func(n *overlay.Node) { n.Address = addr("fc00:0:2::1") }, "", "", ""},
		"another's further address":       {func(n *overlay.Node) { n.Addresses = append(n.Addresses, addr("2001:db8::3")) }, "", "address 2001:db8::3 is that of node-3", ""},
		"a further address":               {func(n *overlay.Node) { n.Addresses = []netip.Addr{addr("8.8.8.8")} }, "", "address 8.8.8.8 is no InternalIP", "8.0.0.0/8"},
		"a prefix of the internet":        {func(n *overlay.Node) { n.Prefixes = append(n.Prefixes, prefix("8.8.8.0/24")) }, "", "prefix 8.8.8.0/24 is not in the podCIDRs", "8.0.0.0/8"},
		"a prefix around its own":         {func(n *overlay.Node) { n.Prefixes = []netip.Prefix{prefix("10.244.2.0/23")} }, "", "prefix 10.244.2.0/23 is that of node-3", ""},
		"a part of its own prefix":        {func(n *overlay.Node) { n.Prefixes = []netip.Prefix{prefix("10.244.2.128/25")} }, "", "", ""},
		"another's prefix":                {func(n *overlay.Node) { n.Prefixes = append(n.Prefixes, prefix("10.244.3.0/24")) }, "", "prefix 10.244.3.0/24 is that of node-3", ""},
		"the default route":               {func(n *overlay.Node) { n.Prefixes = append(n.Prefixes, prefix("::/0")) }, "", "prefix ::/0 is that of node-3", ""},
		"a locator that nobody claimed":   {func(n *overlay.Node) { n.Locator = prefix("fc00:0:7::/48") }, "locator fc00:0:7::/48 is not claimed", "", all},
		"a locator outside of the pool":   {func(n *overlay.Node) { n.Locator = prefix("2001:db8:7::/48") }, "locator 2001:db8:7::/48 is not in overlay.locator_pool", "", all},
		"another's locator":               {func(n *overlay.Node) { n.Locator = prefix("fc00:0:3::/48") }, "locator fc00:0:3::/48 is that of node-3", "", ""},
		"a part of another's locator":     {func(n *overlay.Node) { n.Locator = prefix("fc00:0:3:4::/64") }, "locator fc00:0:3:4::/64 is that of node-3", "", ""},
		"the pool":                        {func(n *overlay.Node) { n.Locator = prefix("fc00::/32") }, "locator fc00::/32 is that of node-3", "", ""},
		"a SID that is a server's":        {func(n *overlay.Node) { n.IPv6 = []netip.Addr{addr("2001:db8::10")} }, "SID 2001:db8::10 is not in its locator", "", all},
		"another's SID":                   {func(n *overlay.Node) { n.IPv4 = []netip.Addr{addr("fc00:0:3:4::")} }, "SID fc00:0:3:4:: is that of node-3", "", ""},
		"a list through another node":     {func(n *overlay.Node) { n.IPv4 = []netip.Addr{addr("2001:db8::3"), n.IPv4[0]} }, "segment 2001:db8::3 in front of SID", "", ""},
		"a list through itself":           {func(n *overlay.Node) { n.IPv4 = []netip.Addr{n.Address, addr("fd55::4")} }, "", "", ""},
		"a long list":                     {func(n *overlay.Node) { n.IPv4 = []netip.Addr{n.Address, n.Address, n.IPv4[0]} }, "has 3 segments", "", ""},
		"a binding SID elsewhere":         {func(n *overlay.Node) { n.BSID4 = addr("2001:db8::10") }, "", "binding SID 2001:db8::10 is not in its locator", all},
	} {
		n := good
		n.Addresses, n.Prefixes = slices.Clone(n.Addresses), slices.Clone(n.Prefixes)
		tt.change(&n)
		if n.Locator != good.Locator {
			n.IPv4, n.IPv6, n.BSID4, n.BSID6 = nil, nil, netip.Addr{}, netip.Addr{}
		}
		got := overlay.Vouch(n, by, overlay.Accept{})
		if got.Refused == "" != (tt.refused == "") || !strings.Contains(got.Refused, tt.refused) {
			t.Errorf("%s: refused %q, want %q", what, got.Refused, tt.refused)
		}
		if faults := strings.Join(got.Faults, "; "); tt.refused == "" && (faults == "" != (tt.faults == "") || !strings.Contains(faults, tt.faults)) {
			t.Errorf("%s: faults %q, want %q", what, faults, tt.faults)
		}
		wide := overlay.Accept{}
		for _, list := range []*[]netip.Prefix{&wide.Addresses, &wide.PodPrefixes, &wide.SIDs} {
			if *list = []netip.Prefix{prefix(all), prefix("0.0.0.0/0")}; tt.accept != "" {
				*list = []netip.Prefix{prefix(tt.accept)}
			}
		}
		isFault := tt.refused != "" || tt.faults != ""
		got = overlay.Vouch(n, by, wide)
		if faulty := got.Refused != "" || len(got.Faults) > 0; faulty != (isFault && tt.accept == "") {
			t.Errorf("%s, accepted: %q, %q", what, got.Refused, got.Faults)
		}
	}
}

// A node that says it has thousands of addresses and prefixes, all of them its own, has no more than
// the first ones, and two faults.
func TestVouchedAtMost(t *testing.T) {
	n, by := vouchedNode()
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, 244, 2, byte(i)})
		by.Addresses = append(by.Addresses, a)
		n.Addresses, n.Prefixes = append(n.Addresses, a), append(n.Prefixes, netip.PrefixFrom(a, 32))
	}
	got := overlay.Vouch(n, by, overlay.Accept{})
	if got.Refused != "" || len(got.Addresses) != overlay.MaxAnnounced || len(got.Prefixes) != overlay.MaxAnnounced || !slices.Equal(got.Prefixes[:3], n.Prefixes[:3]) {
		t.Errorf("%d addresses, %d prefixes, refused %q", len(got.Addresses), len(got.Prefixes), got.Refused)
	}
	if want := []string{"9937 of its 10001 addresses are not used: a node may have 64", "9938 of its 10002 prefixes are not used: a node may have 64"}; !slices.Equal(got.Faults, want) {
		t.Errorf("faults %q, want %q", got.Faults, want)
	}
}

// What a node had and nobody vouches for any more stays the node's until another one holds it.
func TestVouchedBefore(t *testing.T) {
	n, by := vouchedNode()
	by.Before, by.Addresses, by.Locator = n, []netip.Addr{netip.MustParseAddr("2001:db8::22")}, netip.Prefix{}
	if got := overlay.Vouch(n, by, overlay.Accept{}); got.Refused != "" {
		t.Errorf("refused: %s", got.Refused)
	}
	holder := by.Holder
	for _, taken := range []string{"2001:db8::2/128", "fc00:0:2::/48"} {
		by.Holder = func(p netip.Prefix) string {
			if p == netip.MustParsePrefix(taken) {
				return "node-4"
			}
			return holder(p)
		}
		if got := overlay.Vouch(n, by, overlay.Accept{}); !strings.HasSuffix(got.Refused, "is that of node-4") {
			t.Errorf("%s is another's: refused %q", taken, got.Refused)
		}
	}
	by.Holder, by.Before = holder, overlay.Node{}
	if got := overlay.Vouch(n, by, overlay.Accept{}); got.Refused == "" {
		t.Error("a stranger has what nobody vouches for")
	}
}

// A node that is refused gets nothing on this node: no policy, no route, no membership.
func TestRefused(t *testing.T) {
	n, _ := vouchedNode()
	self := overlay.Self{Name: "node-1", Address: netip.MustParseAddr("2001:db8::1"), Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Locator: netip.MustParsePrefix("fc00:0:1::/48")}
	n.Refused = "address 2001:db8::2 is no InternalIP of its Node"
	w := overlay.Remote(overlay.Cluster{Self: self, Nodes: []overlay.Node{n}})
	if len(w.Policies) > 0 || len(w.Steering) > 0 || len(w.ToNodes) > 0 || len(w.Routes) > 0 || len(w.Peers) != 1 || !slices.Equal(w.Peers[0].Problems, []string{n.Refused}) {
		t.Errorf("%+v", w)
	}
	for _, m := range w.Members(self, nil, netip.Prefix{}, nil) {
		if m.Prefix.Contains(n.Address) || m.Prefix.Overlaps(n.Locator) {
			t.Errorf("%s is a member", m)
		}
	}
	n.Refused, n.Faults = "", []string{"prefix 8.8.8.0/24 is not in the podCIDRs of its Node"}
	if w = overlay.Remote(overlay.Cluster{Self: self, Nodes: []overlay.Node{n}}); len(w.Steering) != 2 || !slices.Equal(w.Peers[0].Problems, n.Faults) {
		t.Errorf("%+v", w)
	}
}

// Until others know a node's new address, its packets come from the former one, and both are members.
func TestFormerAddress(t *testing.T) {
	addr := netip.MustParseAddr
	n, _ := vouchedNode()
	n.Former = addr("2001:db8::99")
	self := overlay.Self{Name: "node-1", Address: addr("2001:db8::1"), Former: addr("2001:db8::98"), Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}, Locator: netip.MustParsePrefix("fc00:0:1::/48")}
	w := overlay.Remote(overlay.Cluster{Self: self, Nodes: []overlay.Node{n}})
	for _, p := range w.Policies {
		if p.Source != self.Former || p.Endpoint != n.Address {
			t.Errorf("policy %s: from %s to %s", p.Name, p.Source, p.Endpoint)
		}
	}
	if len(w.Policies) != 2 {
		t.Errorf("%d policies", len(w.Policies))
	}
	members := w.Members(self, nil, netip.Prefix{}, nil)
	for _, a := range []netip.Addr{self.Address, self.Former, n.Address, n.Former} {
		if !slices.ContainsFunc(members, func(m overlay.Member) bool { return !m.SIDs && m.Prefix.Addr() == a }) {
			t.Errorf("%s is no member", a)
		}
	}
}
