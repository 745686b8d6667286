package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const userPlaneFile = `interfaces:
- {name: n3, roles: [n3], peers: [10.3.0.0/24]}
- {name: n6, roles: [n6], host: [ping]}
- {name: n4, roles: [n4, n3], peers: [10.4.0.2/32]}
gtpu: {addresses: [10.3.0.1]}
upf:
  n4: [10.4.0.1]
  smfs: [10.4.0.2/32]
  protected: [10.4.0.0/24]
`

// Each way by which others reach N4 is found, and fixed by what the check suggests.
func TestUserPlane(t *testing.T) {
	ns, others := netns.New(t), netns.New(t)
	for i, name := range []string{"n3", "n4", "n6"} {
		netns.Veth(t, ns, name, others, name)
		ns.Addr(t, name, []string{"10.3.0.1/24", "10.4.0.1/24", "10.6.0.1/24"}[i])
	}
	ns.IP(t, "route add default via 10.6.0.2")
	ns.Sysctl(t, "net.ipv4.conf.n4.rp_filter", "0")
	examine := func(from, to string) []Check {
		c, err := config.Parse([]byte(strings.Replace(userPlaneFile, from, to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		return inside(t, ns, Options{Interfaces: c.InterfaceNames(), Config: c})
	}
	netns.Veth(t, ns, "mgmt", others, "mgmt")
	ns.Addr(t, "mgmt", "10.9.9.1/24")
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	const forward, filter, other = "net.ipv4.ip_forward", "n4: reverse path filter of N4", "other interfaces"
	for name, level := range map[string]Level{forward: Fail, filter: Warn} {
		if c := find(t, examine("", ""), name); c.Level != level {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{forward, filter, other} { // forwarding is on at all interfaces then
		c := find(t, examine("", ""), name)
		if c.Level == OK || len(c.Command) == 0 {
			t.Fatalf("%+v", c)
		}
		ns.Run(t, c.Command[0], c.Command[1:]...)
	}
	for _, name := range []string{"N4: senders", "N4: UEs", "N4: 10.4.0.1", forward, filter, other,
		"n3: senders", "n3: this host", "n6: senders", "n6: this host", "n4: senders", "n4: this host"} {
		if c := find(t, examine("", ""), name); c.Level != OK {
			t.Errorf("%+v", c)
		}
	}
	for _, tt := range []struct {
		from, to, name, detail string
		level                  Level
	}{
		{"smfs: [10.4.0.2/32]", "smfs: any", "N4: senders", "every sender", Fail},
		{"  protected: [10.4.0.0/24]\n", "", "N4: UEs", "reach neither", OK},
		{"  protected: [10.4.0.0/24]", "  ue_may_reach: [10.5.0.0/16]", "N4: UEs", "reach neither", OK},
		{"  protected: [10.4.0.0/24]", "  ue_may_reach: [10.4.0.0/16]", "N4: UEs", "10.4.0.2/32", Fail},
		{"  protected: [10.4.0.0/24]", "  ue_may_reach: [10.3.0.7/32]", "N4: UEs", "[10.3.0.0/24]", Fail},
		{"n4: [10.4.0.1]", "n4: [10.3.0.1]", "N4: 10.3.0.1", "shares n3 with a GTP-U address", Fail},
		{"n4: [10.4.0.1]", "n4: [10.6.0.1]", "N4: 10.6.0.1", "PFCP that comes by n6 is dropped", Fail},
		{"roles: [n6]", "roles: [n6, n4]", "n6: senders", "reach N4", Fail},
		{"roles: [n6], host: [ping]", "roles: [any]", "n6: senders", "everybody may send", Fail},
		{"peers: [10.3.0.0/24]", "peers: any", "n3: senders", "every sender's GTP-U", Fail},
		{"roles: [n6]", "roles: [n6, n3], peers: any", "n6: senders", "of the data network", Fail},
		{"host: [ping]", "host: [any]", "n6: this host", "all its services", Fail},
		{"host: [ping]", "host: [ping, forward]", "n6: this host", "forwards to all networks", Warn},
		{"- {name: n4, roles: [n4, n3], peers: [10.4.0.2/32]}\n", "", "N4: 10.4.0.1", "router advertisements", Warn},
		{"n4: [10.4.0.1]", "n4: [10.9.0.1]", "N4: 10.9.0.1", "no interface has the address", Fail},
	} {
		if c := find(t, examine(tt.from, tt.to), tt.name); c.Level != tt.level || !strings.Contains(c.Detail, tt.detail) {
			t.Errorf("%s: %+v", tt.to, c)
		}
	}
	ns.IP(t, "address add 10.9.0.1/32 dev lo")
	if c := find(t, examine("n4: [10.4.0.1]", "n4: [10.9.0.1]"), "N4: 10.9.0.1"); c.Level != Fail || !strings.Contains(c.Detail, "is on lo") {
		t.Errorf("on the loopback: %+v", c)
	}
}

// doctor says nothing about what is not configured: no segments without SRv6, no GTP-U
// where none is sent, and no IPv6 without IPv6 addresses.
func TestOnlyWhatIsConfigured(t *testing.T) {
	ns := netns.New(t)
	for _, name := range []string{"n3", "n6", "n4"} {
		netns.Veth(t, ns, name, ns, name+"p")
	}
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "0")
	c, err := config.Parse([]byte(`
interfaces: [{name: n3, roles: [n3], peers: [10.1.0.0/24]}, {name: n6, roles: [n6]}, {name: n4, roles: [n4]}]
gtpu: {addresses: [10.1.0.2]}
upf: {n4: [10.4.0.2], smfs: [10.4.0.0/24], ue_pools: [{prefixes: [10.45.0.0/16]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Config: c, Interfaces: c.InterfaceNames(), GTPUOverIPv4: true}
	checks := inside(t, ns, o)
	for _, check := range checks {
		if strings.Contains(check.Detail, "segment") && !strings.Contains(check.Name, "segmentation") || strings.Contains(check.Name, "ipv6") {
			t.Errorf("%+v", check)
		}
	}
	if c := find(t, checks, "n3: MTU headroom"); c.Level != OK {
		t.Errorf("%+v", c)
	}
	for _, check := range checks {
		if check.Name == "n6: MTU headroom" || check.Name == "n4: MTU headroom" {
			t.Errorf("nothing is pushed there: %+v", check)
		}
	}

	// One line for what three interfaces have in common, and one command that fixes all.
	own := find(t, checks, "n3, n6, n4: own source addresses")
	if own.Level != Warn || len(own.Command) != 5 {
		t.Fatalf("%+v", own)
	}
	ns.Run(t, own.Command[0], own.Command[1:]...)
	if c := find(t, inside(t, ns, o), "n6: own source addresses"); c.Level != OK {
		t.Errorf("after %v: %+v", own.Command, c)
	}
}

// The room for segments is that of the longest list.
func TestRoomForSegments(t *testing.T) {
	for text, want := range map[string]int{
		"{}":                                     0,
		"encapsulation: {source: '2001:db8::1'}": 1,
		"encapsulation: {source: '2001:db8::1'}\npolicies: [{name: a, segment_lists: [{segments: ['fc00::1']}, {segments: ['fc00::1', 'fc00::2', 'fc00::3']}]}]": 3,
		"encapsulation: {source: '2001:db8::1'}\nbgp: {asn: 65001, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, asn: 65001}]}":                             mostSegments,
	} {
		c, err := config.Parse([]byte("interfaces: [{name: x, roles: [any]}]\n" + strings.TrimPrefix(text, "{}")))
		if err != nil {
			t.Fatal(err)
		}
		n := &network{Options: Options{Config: c}}
		if gtpu, segments := pushed(n, "x"); !gtpu || segments != want {
			t.Errorf("%s: %v, %d segments, want %d", text, gtpu, segments, want)
		}
	}
}

// Forwarding is not asked for in a family that no session uses.
func TestFamiliesOfSessions(t *testing.T) {
	for _, c := range []struct {
		pool, gtpu string
		v4, v6     bool
	}{{"10.45.0.0/16", "10.1.0.1", true, false}, {"2001:db8::/48", "2001:db8::1", false, true}, {"2001:db8::/48", "10.1.0.1", true, true}} {
		config := &config.Config{
			UPF:  config.UPF{N4: []netip.Addr{netip.MustParseAddr("10.4.0.1")}, UEPools: []config.UEPool{{Prefixes: []netip.Prefix{netip.MustParsePrefix(c.pool)}}}},
			GTPU: config.GTPU{Addresses: []netip.Addr{netip.MustParseAddr(c.gtpu)}},
		}
		if v4, v6 := families(config); v4 != c.v4 || v6 != c.v6 {
			t.Errorf("%s by %s: IPv4 %v, IPv6 %v", c.pool, c.gtpu, v4, v6)
		}
	}
	if v4, v6 := families(nil); !v4 || !v6 {
		t.Error("without a configuration: not both")
	}
}
