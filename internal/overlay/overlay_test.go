package overlay

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, addr(s))
	}
	return out
}

var self = Self{Name: "node-1", Address: addr("2001:db8::1"), Locator: prefixes("fc00:0:1::/48")[0], Prefixes: prefixes("10.244.1.0/24", "fd00:1::/64")}

// node is number n of a cluster, in the single form.
func node(n int) Node {
	return Complete(Node{
		Name: fmt.Sprintf("node-%d", n), Address: addr(fmt.Sprintf("2001:db8::%x", n)), Locator: prefixes(fmt.Sprintf("fc00:0:%x::/48", n))[0],
		Prefixes: prefixes(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:%x::/64", n)),
	}, false)
}

func TestSelf(t *testing.T) {
	double, chosen, ipv4, long, both := self, self, self, self, self
	both.DT46 = addr("fcdd::46")
	double.Double = true
	chosen.DT4, chosen.DT6 = addr("fcdd::44"), addr("fcdd::66")
	ipv4.Prefixes = ipv4.Prefixes[:1]
	long.Locator = prefixes("fc00:0:1:a::/60")[0]
	for name, tt := range map[string]struct {
		self       Self
		sids       string
		ipv4, ipv6 []netip.Addr
		end        netip.Addr
	}{
		"single": {self, "fc00:0:1:4::/64 End.DT4, fc00:0:1:6::/64 End.DT6, fc00:0:1:1::/64 End", addrs("fc00:0:1:4::"), addrs("fc00:0:1:6::"), addr("fc00:0:1:1::")},
		"double": {double, "fc00:0:1:4::/64 End.DT4, fc00:0:1:6::/64 End.DT6, 2001:db8::1/128 End",
			addrs("2001:db8::1", "fc00:0:1:4::"), addrs("2001:db8::1", "fc00:0:1:6::"), addr("2001:db8::1")},
		"chosen by hand":    {chosen, "fcdd::44/128 End.DT4, fcdd::66/128 End.DT6", addrs("fcdd::44"), addrs("fcdd::66"), netip.Addr{}},
		"one for both":      {both, "fcdd::46/128 End.DT46", addrs("fcdd::46"), addrs("fcdd::46"), netip.Addr{}},
		"IPv4 only":         {ipv4, "fc00:0:1:4::/64 End.DT4, fc00:0:1:1::/64 End", addrs("fc00:0:1:4::"), nil, addr("fc00:0:1:1::")},
		"no multiple of 16": {long, "fc00:0:1:0:40::/76 End.DT4, fc00:0:1:0:60::/76 End.DT6, fc00:0:1:0:10::/76 End", addrs("fc00:0:1:0:40::"), addrs("fc00:0:1:0:60::"), addr("fc00:0:1:0:10::")},
	} {
		var sids []string
		for _, s := range tt.self.SIDs() {
			sids = append(sids, fmt.Sprintf("%s %s", s.SID, s.Behavior))
			if errs := s.Validate(); len(errs) > 0 {
				t.Errorf("%s: %v", name, errs)
			}
		}
		n := tt.self.Node()
		if got := strings.Join(sids, ", "); got != tt.sids || !slices.Equal(n.IPv4, tt.ipv4) || !slices.Equal(n.IPv6, tt.ipv6) || n.End() != tt.end {
			t.Errorf("%s: %s; lists %v, %v, %v", name, got, n.IPv4, n.IPv6, n.End())
		}
	}
	for want, change := range map[string]func(*Self){
		"":                             func(*Self) {},
		"an IPv6 address of an uplink": func(s *Self) { s.Address = netip.Addr{} },
		"prefixes for pods":            func(s *Self) { s.Prefixes = nil },
		"a locator":                    func(s *Self) { s.Locator = netip.Prefix{} },
	} {
		s := self
		change(&s)
		if got := s.Missing(); got != want {
			t.Errorf("missing %q, want %q", got, want)
		}
	}
}

// words writes w in a few words.
func words(w Wanted) string {
	var out []string
	for _, p := range w.Policies {
		lists := ""
		for _, l := range p.SegmentLists {
			lists += fmt.Sprint(l.Segments)
		}
		out = append(out, fmt.Sprintf("policy %s %d %s %s", p.Name, p.Color, p.Endpoint, lists))
	}
	for _, p := range w.Paths {
		out = append(out, fmt.Sprintf("path %s of %s %s", p.Name, p.Policy, p.SegmentLists[0].Segments))
	}
	for _, s := range w.Steering {
		out = append(out, fmt.Sprintf("%s > %s", s.Prefix, s.Policy))
	}
	for _, r := range w.Routes {
		out = append(out, fmt.Sprintf("%s via %s", r.Prefix, r.Via))
	}
	for _, p := range w.Peers {
		for _, why := range p.Problems {
			out = append(out, fmt.Sprintf("! %s %s", p.Name, why))
		}
	}
	return strings.Join(out, "\n")
}

const node2 = `policy node-2:ipv4 4 2001:db8::2 [fc00:0:2:4::]
policy node-2:ipv6 6 2001:db8::2 [fc00:0:2:6::]
10.244.2.0/24 > node-2:ipv4
fd00:2::/64 > node-2:ipv6
fc00:0:2::/48 via 2001:db8::2`

func TestRemote(t *testing.T) {
	changed := func(n Node, change func(*Node)) Node { change(&n); return n }
	reach := func(prefix, address string, segments ...string) Reach {
		return Reach{Prefix: prefixes(prefix)[0], Address: addr(address), Segments: addrs(segments...)}
	}
	known := map[Color]Known{{4, addr("2001:db8::2")}: {Ends: addrs("fc00:0:2:4::"), Direct: addrs("fc00:0:2:4::")}}
	for name, tt := range map[string]struct {
		nodes   []Node
		reaches []Reach
		known   map[Color]Known
		rivals  []Rival
		want    string
	}{
		"nobody":  {},
		"itself":  {nodes: []Node{node(1)}},
		"another": {nodes: []Node{node(1), node(2)}, want: node2},
		"one family less": {nodes: []Node{Complete(changed(node(2), func(n *Node) { n.Prefixes, n.IPv6 = n.Prefixes[:1], nil }), false)}, want: `policy node-2:ipv4 4 2001:db8::2 [fc00:0:2:4::]
10.244.2.0/24 > node-2:ipv4
fc00:0:2::/48 via 2001:db8::2`},
		"a prefix without a SID for it": {nodes: []Node{changed(node(2), func(n *Node) { n.IPv6 = nil })}, want: `policy node-2:ipv4 4 2001:db8::2 [fc00:0:2:4::]
10.244.2.0/24 > node-2:ipv4
fc00:0:2::/48 via 2001:db8::2
! node-2 prefix fd00:2::/64: there is no path for IPv6 to it`},
		"two with one prefix": {nodes: []Node{node(2), changed(node(3), func(n *Node) { n.Prefixes[0] = node(2).Prefixes[0] })}, want: `policy node-2:ipv4 4 2001:db8::2 [fc00:0:2:4::]
policy node-2:ipv6 6 2001:db8::2 [fc00:0:2:6::]
policy node-3:ipv4 4 2001:db8::3 [fc00:0:3:4::]
policy node-3:ipv6 6 2001:db8::3 [fc00:0:3:6::]
10.244.2.0/24 > node-2:ipv4
fd00:2::/64 > node-2:ipv6
fd00:3::/64 > node-3:ipv6
fc00:0:2::/48 via 2001:db8::2
fc00:0:3::/48 via 2001:db8::3
! node-3 prefix 10.244.2.0/24 is already claimed by node-2`},
		"a prefix in another":  {nodes: []Node{node(2), {Name: "x", Address: addr("2001:db8::9"), IPv4: addrs("fd09::4"), Prefixes: prefixes("10.244.2.128/25")}}, want: "! x prefix 10.244.2.128/25 is already claimed by node-2"},
		"a prefix around ours": {nodes: []Node{{Name: "x", Address: addr("2001:db8::9"), IPv4: addrs("fd09::4"), Prefixes: prefixes("10.244.0.0/16")}}, want: "! x prefix 10.244.0.0/16 is already claimed by this node"},
		"two with one locator": {nodes: []Node{node(2), changed(node(3), func(n *Node) { n.Locator = node(2).Locator })}, want: node2 + "\n! node-3 locator fc00:0:2::/48 is already claimed by node-2"},
		"two with one SID":     {nodes: []Node{node(2), {Name: "x", Address: addr("2001:db8::9"), IPv4: addrs("fc00:0:2:4::")}}, want: node2 + "\n! x SID fc00:0:2:4:: is already that of node-2"},
		"a SID in our locator": {nodes: []Node{{Name: "x", Address: addr("2001:db8::9"), IPv4: addrs("fc00:0:1:9::")}}, want: "! x SID fc00:0:1:9:: is in the locator of this node"},
		"our address":          {nodes: []Node{{Name: "x", Address: self.Address, IPv4: addrs("fd09::4")}}, want: "! x address 2001:db8::1 is already that of this node"},
		"double, one SID behind two nodes": {nodes: []Node{
			{Name: "a", Address: addr("2001:db8::a"), IPv4: addrs("2001:db8::a", "fd00::4"), Prefixes: prefixes("10.0.1.0/24")},
			{Name: "b", Address: addr("2001:db8::b"), IPv4: addrs("2001:db8::b", "fd00::4"), Prefixes: prefixes("10.0.2.0/24")}},
			want: "policy a:ipv4 4 2001:db8::a [2001:db8::a fd00::4]\npolicy b:ipv4 4 2001:db8::b [2001:db8::b fd00::4]\n10.0.1.0/24 > a:ipv4\n10.0.2.0/24 > b:ipv4"},
		"a policy of somebody's own": {nodes: []Node{node(2)}, known: map[Color]Known{{4, addr("2001:db8::2")}: {Name: "gold"}}, want: `policy node-2:ipv6 6 2001:db8::2 [fc00:0:2:6::]
path node-2:ipv4 of gold [fc00:0:2:4::]
10.244.2.0/24 > gold
fd00:2::/64 > node-2:ipv6
fc00:0:2::/48 via 2001:db8::2`},
		"told by BGP, prefix only": {reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2")}, want: "!  prefix 10.244.2.0/24: there is no path for IPv4 to it"},
		"told by BGP": {reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2"), reach("fc00:0:2::/48", "2001:db8::2")}, known: known,
			want: "policy c4:2001:db8::2 4 2001:db8::2 \n10.244.2.0/24 > c4:2001:db8::2\nfc00:0:2:4::/128 via 2001:db8::2\nfc00:0:2::/48 via 2001:db8::2"},
		"two told of one prefix": {reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2"), reach("10.244.2.0/24", "2001:db8::3")}, known: known,
			want: "policy c4:2001:db8::2 4 2001:db8::2 \n10.244.2.0/24 > c4:2001:db8::2\nfc00:0:2:4::/128 via 2001:db8::2\n!  prefix 10.244.2.0/24 is already claimed by 2001:db8::2"},
		"rivals": {nodes: []Node{node(2)}, rivals: []Rival{
			{reach("10.244.2.0/24", "2001:db8::3"), addr("2001:db8::2"), "lowest router ID"},
			{reach("10.244.1.0/24", "2001:db8::3"), netip.Addr{}, "it is of this node"},
			{reach("10.244.1.0/24", "2001:db8::1"), netip.Addr{}, "it is of this node"}},
			want: node2 + "\n!  prefix 10.244.2.0/24 is used as that of node-2, which claims it too: lowest router ID" +
				"\n!  prefix 10.244.1.0/24 is used as that of this node, which claims it too: it is of this node"},
		"a locator before its paths": {reaches: []Reach{reach("fc00:0:2::/48", "2001:db8::2"), reach("fc00:0:2::/48", "2001:db8::3")}, known: known,
			want: "policy c4:2001:db8::2 4 2001:db8::2 \nfc00:0:2:4::/128 via 2001:db8::2\nfc00:0:2::/48 via 2001:db8::2\n!  locator fc00:0:2::/48 is already claimed by 2001:db8::2"},
		"our locator, told by another": {reaches: []Reach{reach("fc00:0:1::/48", "2001:db8::2")}, want: "!  locator fc00:0:1::/48 is already claimed by this node"},
		"a part of our locator":        {reaches: []Reach{reach("fc00:0:1:4::/64", "2001:db8::2")}, want: "!  locator fc00:0:1:4::/64 is already claimed by this node"},
		"two told of one SID": {reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2"), reach("10.244.3.0/24", "2001:db8::3")},
			known: map[Color]Known{{4, addr("2001:db8::2")}: known[Color{4, addr("2001:db8::2")}], {4, addr("2001:db8::3")}: known[Color{4, addr("2001:db8::2")}]},
			want: "policy c4:2001:db8::2 4 2001:db8::2 \n10.244.2.0/24 > c4:2001:db8::2\nfc00:0:2:4::/128 via 2001:db8::2\n" +
				"!  SID fc00:0:2:4:: is already that of 2001:db8::2\n!  prefix 10.244.3.0/24: there is no path for IPv4 to it"},
		"told of a SID of ours": {reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2")}, known: map[Color]Known{{4, addr("2001:db8::2")}: {Direct: addrs("fc00:0:1:9::")}},
			want: "!  SID fc00:0:1:9:: is in the locator of this node\n!  prefix 10.244.2.0/24: there is no path for IPv4 to it"},
		"a locator that services end in": {reaches: []Reach{reach("fc00:0:2::/48", "2001:db8::2"), reach("10.9.0.0/24", "2001:db8::2", "fc00:0:2:4::")},
			want: "policy vpn:fc00:0:2:4:: 0 fc00:0:2:4:: [fc00:0:2:4::]\n10.9.0.0/24 > vpn:fc00:0:2:4::\nfc00:0:2::/48 via 2001:db8::2"},
		"this node's, reflected":   {reaches: []Reach{reach("10.244.1.0/24", "2001:db8::1")}},
		"told by BGP and the node": {nodes: []Node{node(2)}, reaches: []Reach{reach("10.244.2.0/24", "2001:db8::2")}, want: node2},
		"a service of outside": {nodes: []Node{node(2)}, reaches: []Reach{reach("0.0.0.0/0", "2001:db8::99", "fc00:99::4"), reach("10.244.2.0/25", "2001:db8::99", "fc00:99::4")},
			want: `policy node-2:ipv4 4 2001:db8::2 [fc00:0:2:4::]
policy node-2:ipv6 6 2001:db8::2 [fc00:0:2:6::]
policy vpn:fc00:99::4 0 fc00:99::4 [fc00:99::4]
10.244.2.0/24 > node-2:ipv4
fd00:2::/64 > node-2:ipv6
0.0.0.0/0 > vpn:fc00:99::4
fc00:0:2::/48 via 2001:db8::2
!  prefix 10.244.2.0/25 is already claimed by node-2`},
	} {
		got := Remote(Cluster{Self: self, Nodes: tt.nodes, Reaches: tt.reaches, Rivals: tt.rivals, Known: tt.known})
		if text := words(got); text != tt.want && !(strings.HasPrefix(tt.want, "!") && strings.HasSuffix(text, tt.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, tt.want)
		}
		for _, p := range got.Policies {
			if p.Source != self.Address || len(p.SegmentLists) > 0 && len(p.Validate()) > 0 {
				t.Errorf("%s: policy %+v: %v", name, p, p.Validate())
			}
		}
	}
}

func TestBindingSIDs(t *testing.T) {
	twice, ours := node(3), node(4)
	twice.BSID4, ours.BSID4 = node(2).BSID4, self.Node().BSID4
	got := Remote(Cluster{Self: self, Nodes: []Node{node(2), twice, ours}})
	var bsids []string
	for _, p := range got.Policies {
		if p.Color == ColorIPv4 {
			bsids = append(bsids, p.BindingSID.String())
		}
	}
	if want := []string{"fc00:0:2:b4::", "invalid IP", "invalid IP"}; !slices.Equal(bsids, want) {
		t.Errorf("binding SIDs %q, want %q", bsids, want)
	}
}

// What pods send to nodes goes as what they send to pods there.
func TestToNodes(t *testing.T) {
	two, three, four := node(2), node(3), node(4)
	two.Addresses = addrs("192.0.2.2", "2001:db8::2", "2001:db8:f::2")
	three.IPv4, three.Addresses = nil, addrs("192.0.2.3", "192.0.2.2", "2001:db8:f::2", "2001:db8::1", "fd00:2::7")
	four.Locator, four.Addresses = two.Locator, addrs("192.0.2.4") // refused
	known := map[Color]Known{{4, addr("2001:db8::5")}: {Direct: addrs("fc00:0:5:4::")}, {6, addr("2001:db8::5")}: {Direct: addrs("fc00:0:5:6::")}}
	got := Remote(Cluster{Self: self, Nodes: []Node{two, three, four}, Known: known,
		Reaches: []Reach{{Prefix: prefixes("10.244.5.0/24")[0], Address: addr("2001:db8::5")}}})
	var text []string
	for _, s := range got.ToNodes {
		text = append(text, fmt.Sprintf("%s > %s", s.Prefix, s.Policy))
	}
	const want = `2001:db8::2/128 > node-2:ipv6
192.0.2.2/32 > node-2:ipv4
2001:db8:f::2/128 > node-2:ipv6
2001:db8::3/128 > node-3:ipv6
2001:db8::5/128 > c6:2001:db8::5`
	if text := strings.Join(text, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// A flood of what cannot be used is told in a few lines.
func TestManyProblems(t *testing.T) {
	var reaches []Reach
	for i := range 10000 {
		reaches = append(reaches, Reach{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Address: addr("2001:db8::2")})
	}
	got := Remote(Cluster{Self: self, Reaches: reaches}).Peers[0]
	if n := len(got.Problems); n != 11 || got.Problems[10] != "and 9990 more" || len(got.Prefixes) != 10000 {
		t.Errorf("%d prefixes, %d problems: %q", len(got.Prefixes), n, got.Problems)
	}
}

// What somebody chose with a candidate path goes before what the node suggests,
// and may be in this one's locator.
func TestChosenBindingSIDs(t *testing.T) {
	chosen, taken := addr("fc00:0:1:b1::"), self.Node().IPv6[0]
	got := Remote(Cluster{Self: self, Nodes: []Node{node(2)}, Known: map[Color]Known{
		{ColorIPv4, node(2).Address}: {BindingSID: chosen}, {ColorIPv6, node(2).Address}: {BindingSID: taken},
	}})
	if four, six := got.Policies[0].BindingSID, got.Policies[1].BindingSID; four != chosen || six.IsValid() {
		t.Errorf("binding SIDs %v, %v: want %v, and none in place of a SID of the node", four, six, chosen)
	}
}

func TestLongNames(t *testing.T) {
	n := node(2)
	n.Name = strings.Repeat("x", 60)
	got := Remote(Cluster{Self: self, Nodes: []Node{n}})
	if name := got.Policies[0].Name; name != "c4:2001:db8::2" {
		t.Errorf("policy %s", name)
	}
}

// A thousand nodes are an event's work, not a minute's.
func BenchmarkRemote(b *testing.B) {
	c := Cluster{Self: self}
	for i := range 1000 {
		n := Node{Name: fmt.Sprintf("n%d", i), Address: addr(fmt.Sprintf("2001:db8:1::%x", i)), Locator: prefixes(fmt.Sprintf("fc01:0:%x::/48", i))[0],
			Prefixes: prefixes(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), fmt.Sprintf("fd02:%x::/64", i))}
		c.Nodes = append(c.Nodes, Complete(n, false))
	}
	for b.Loop() {
		if w := Remote(c); len(w.Steering) != 2000 {
			b.Fatal(len(w.Steering))
		}
	}
}
