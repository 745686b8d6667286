package bgp

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Each row is better than what it is compared with, for one reason.
func TestBestRoute(t *testing.T) {
	plain := func() candidate {
		c := candidate{localPref: 100, pathLength: 1, origin: 1, med: 5, clusters: 1}
		c.Node, c.Peer, c.Distinguisher = addr("10.0.0.5"), addr("127.0.0.5"), ""
		return c
	}
	vpn := func(c *candidate) { c.Distinguisher = "65000:2" }
	for why, better := range map[string]func(*candidate){
		"highest local preference":   func(c *candidate) { c.localPref = 101; c.pathLength = 9 },
		"shortest AS path":           func(c *candidate) { c.pathLength = 0; c.origin = 2 },
		"lowest origin":              func(c *candidate) { c.origin = 0; c.med = 9 },
		"lowest MED":                 func(c *candidate) { c.med = 4 },
		"external before internal":   func(c *candidate) { c.external = true; c.Node = addr("10.0.0.9") },
		"lowest router ID":           func(c *candidate) { c.Node = addr("10.0.0.4"); c.clusters = 9 },
		"shortest cluster list":      func(c *candidate) { c.clusters = 0; c.Peer = addr("127.0.0.9") },
		"lowest address of the peer": func(c *candidate) { c.Peer = addr("127.0.0.4") },
	} {
		one, other := plain(), plain()
		better(&one)
		for _, pair := range [][2]candidate{{one, other}, {other, one}} {
			table := rib{}
			table.put(to("10.244.1.0/24"), routeKey{peer: addr("127.0.0.1")}, pair[0])
			table.put(to("10.244.1.0/24"), routeKey{peer: addr("127.0.0.2")}, pair[1])
			got := table.routes(to("10.244.1.0/24"), nil)
			if !sameRoute(withoutVerdict(got[0]), one.Route) || !got[0].Best || got[0].Why != why || got[1].Best {
				t.Errorf("%s: %+v", why, got)
			}
			if tie := strings.HasPrefix(why, "lowest router") || strings.HasPrefix(why, "shortest cluster") || strings.HasPrefix(why, "lowest address"); got[0].Equal || got[1].Equal != tie {
				t.Errorf("%s: equal %t, want %t", why, got[1].Equal, tie)
			}
		}
	}
	cluster, outside := plain(), plain()
	cluster.localPref = 1
	vpn(&outside)
	table := rib{to("10.244.1.0/24"): {{rd: "65000:2"}: &outside, {}: &cluster}}
	if got := table.routes(to("10.244.1.0/24"), nil); got[0].Distinguisher != "" || got[0].Why != "of the cluster before those of a VPN" {
		t.Errorf("%+v", got)
	}
	another := outside
	another.Distinguisher = "65000:1"
	table = rib{to("10.244.1.0/24"): {{rd: "65000:2"}: &outside, {rd: "65000:1"}: &another}}
	if got := table.routes(to("10.244.1.0/24"), nil); got[0].Distinguisher != "65000:1" || got[0].Why != "lowest route distinguisher" {
		t.Errorf("%+v", got)
	}
}

func withoutVerdict(r Route) Route {
	r.Best, r.Equal, r.Why = false, false, ""
	return r
}

// What is not for this node is sent apart from what is malformed.
func TestRoutesThatAreNotTaken(t *testing.T) {
	r := reader{asn: 65001, takesSIDs: func(peer netip.Addr) bool { return peer == addr("127.0.0.1") }, prefixes: []netip.Prefix{prefix("10.244.0.0/16"), prefix("::/0")}}
	read := func(peer, of, nextHop string, more ...bgp.PathAttributeInterface) (candidate, error) {
		t.Helper()
		nlri, err := bgp.NewIPAddrPrefix(prefix(of))
		if err != nil {
			t.Fatal(err)
		}
		attrs, err := routeAttrs(bgp.RF_IPv4_UC, nlri, addr(nextHop))
		if err != nil {
			t.Fatal(err)
		}
		p := &apiutil.Path{Nlri: nlri, Attrs: append(attrs, more...), PeerASN: 65001, PeerAddress: addr(peer)}
		at, key, label, _ := r.nlri(p)
		return r.route(nil, p, at, key, label)
	}
	for of, want := range map[string]string{
		"0.0.0.0/0": "default route", "::/0": "default route", "10.245.0.0/24": "in none", "10.0.0.0/8": "in none",
		"ff02::/16": "cannot be a prefix of pods", "fe80::/64": "cannot be a prefix", "127.0.0.0/8": "cannot be a prefix", "::ffff:10.244.1.0/120": "cannot be a prefix",
	} {
		if c, err := read("127.0.0.1", of, "2001:db8::2"); !errors.Is(err, errNotForUs) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", of, c, err, want)
		}
	}
	if _, err := read("127.0.0.1", "10.244.1.0/24", "192.0.2.1"); !errors.Is(err, errNotForUs) || !strings.Contains(err.Error(), "next hop") {
		t.Errorf("an IPv4 next hop: %v", err)
	}
	s := writeService(service{SID: addr("fc00:0:1:4::"), Behavior: 19})
	if c, err := read("127.0.0.1", "10.244.1.0/24", "192.0.2.1", s); err != nil || !slices.Equal(c.Segments, []netip.Addr{addr("fc00:0:1:4::")}) {
		t.Errorf("with a SID: %+v, %v", c, err)
	}
	if c, err := read("127.0.0.2", "10.244.1.0/24", "2001:db8::2", s); err != nil || c.Segments != nil || c.Address != addr("2001:db8::2") {
		t.Errorf("a SID of who is not of the SR domain: %+v, %v", c, err)
	}
}

// FuzzPrefixSID gives a peer's octets to what reads Prefix-SIDs: it does not fail,
// and what it takes can be written and read again.
func FuzzPrefixSID(f *testing.F) {
	for _, seed := range []string{transposed, whole, "c0 28 04 05 0001 00", "c0 28 0a 01 0007 00 0000 00000064"} {
		b, err := parseHex(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint32(0x00010), true)
	}
	f.Fuzz(func(t *testing.T, octets []byte, label uint32, labelled bool) {
		attr, err := bgp.GetPathAttribute(octets)
		if err != nil || attr.DecodeFromBytes(octets) != nil {
			return
		}
		of := &label
		if !labelled {
			of = nil
		}
		got, err := readService([]bgp.PathAttributeInterface{attr}, of)
		if err != nil {
			return
		}
		again, err := readService([]bgp.PathAttributeInterface{writeService(got)}, nil)
		if got.Block == 0 { // without it no structure is written
			got.Node, got.Function, got.Argument = 0, 0, 0
		}
		if err != nil || again != got {
			t.Errorf("%+v was written and read as %+v (%v)", got, again, err)
		}
	})
}
