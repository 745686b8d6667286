package config_test

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

func TestOverlay(t *testing.T) {
	const good = `overlay:
  mode: static
  node: node-1
  address: '2001:db8::1'
  uplinks: [eth0]
  locator: 'fc00:0:1::/48'
  pod_prefixes: [10.244.1.0/24, 'fd00:10:244:1::/64']
  nodes:
    - {name: node-2, address: '2001:db8::2', locator: 'fc00:0:2::/48', prefixes: [10.244.2.0/24]}
    - {name: node-3, address: '2001:db8::3', ipv4: ['2001:db8::3', 'fd00::4'], prefixes: [10.244.3.0/24]}
`
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Overlay; o.SIDs != config.SIDsSingle || o.UsesKube() || o.Kube.Namespace != "" {
		t.Errorf("defaults: %+v", o)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"  mode: static\n", "", "overlay.mode: is missing"},
		{"mode: static", "mode: statik", `line 2: overlay.mode: "statik" is not known`},
		{"mode: static", "mode: kube", "overlay.nodes: the nodes come from kube"},
		{"mode: static", "flows: {sampling: 8}\n  mode: static", "overlay.flows.enabled: is missing"},
		{"mode: static", "flows: {enabled: true, sampling: 65536}\n  mode: static", "overlay.flows.sampling"},
		{"mode: static", "flows: {enabled: true, sampling: -1}\n  mode: static", "overlay.flows.sampling"},
		{"mode: static", "mode: bgp", "overlay.mode: the section bgp is missing"},
		{"node: node-1", "node: node_1", `line 3: overlay.node: "node_1" is not a valid node name`},
		{"'2001:db8::1'", "192.0.2.1", "line 4: overlay.address: 192.0.2.1 is an IPv4 address"},
		{"[eth0]", "[eth0, eth0]", "line 5: overlay.uplinks[1]: eth0 is already"},
		{"fc00:0:1::/48", "fc00:0:1::/120", "line 6: overlay.locator: fc00:0:1::/120 leaves no room"},
		{"locator: 'fc00:0:1::/48'\n  pod", "locator_pool: 'fc00::/32'\n  pod", "overlay.locator_pool: only the Kubernetes API"},
		{"10.244.1.0/24", "10.244.1.0/31", "line 7: overlay.pod_prefixes[0]: 10.244.1.0/31 has no room"},
		{"10.244.1.0/24", "10.244.1.1/24", "line 7: overlay.pod_prefixes[0]: 10.244.1.1/24 has bits"},
		{"fd00:10:244:1::/64", "fc00:0:1:1::/64", "overlaps the overlay's locator"},
		{"node-3", "node-2", "line 10: overlay.nodes[1].name: node-2 is already"},
		{"'2001:db8::2'", "'2001:db8::3'", "overlay.nodes[1].address: 2001:db8::3 is already"},
		{"locator: 'fc00:0:2::/48', ", "", "line 9: overlay.nodes[0].locator: is missing"},
		{"['2001:db8::3', 'fd00::4']", "['2001:db8::3', 'ff02::1']", "line 10: overlay.nodes[1].ipv4[1]: ff02::1"},
		{"'fd00::4']", "'fd00::4', 'fd00::5']", "line 10: overlay.nodes[1].ipv4: has 3 segments"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
}

func TestOverlayByKubernetes(t *testing.T) {
	c, err := config.Parse([]byte("overlay: {mode: kube, locator_pool: 'fc00::/32'}"))
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Overlay; !o.UsesKube() || o.Kube.Namespace != config.DefaultKubeNamespace || !o.EnforcesPolicies() {
		t.Errorf("defaults: %+v", o)
	}
	for yaml, want := range map[string]string{
		"overlay: {mode: kube}":                                                                                 "overlay.locator: is missing",
		"overlay: {mode: kube, locator_pool: 'fc00::/48'}":                                                      "overlay.locator_pool: fc00::/48 holds one",
		"overlay: {mode: kube, locator_pool: 'fc00::/32', locator: 'fc00::/48'}":                                "overlay.locator_pool: conflicts with overlay.locator",
		"overlay: {mode: kube, locator_pool: 'fc00::/32', kube: {network_policies: on}}":                        "overlay.kube.network_policies",
		"overlay: {mode: kube, locator_pool: 'fc00::/32', kube: {kubeconfig: k}}":                               "overlay.kube.kubeconfig: \"k\" depends",
		"overlay: {mode: kube, locator_pool: 'fc00::/32', uplinks: [e]}\ninterfaces: [{name: e, roles: [any]}]": "overlay.uplinks[0]: \"e\" is among the interfaces",
		"overlay: {mode: kube, locator_pool: 'fc00::/32', accept: {sids: ['fc00::1/32']}}":                      "overlay.accept.sids[0]: fc00::1/32 has bits",
		"overlay: {mode: static, accept: {addresses: ['2001:db8::/64']}}":                                       "overlay.accept.addresses: is for nodes that the Kubernetes API names",
		"overlay: {accept: {pod_prefixes: [10.0.0.0/8]}}":                                                       "overlay.mode: is missing",
		"overlay: {masquerade: true}":                                                                           "overlay.mode: is missing",
	} {
		if _, err := config.Parse([]byte(yaml)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", yaml, err, want)
		}
	}
}

// Only XDP serves all behaviours, and an uplink has none.
func TestSIDsOfUplinks(t *testing.T) {
	const member = "overlay: {mode: kube, locator_pool: 'fc00::/32'}\n"
	const served = member + `encapsulation: {source: '2001:db8::1'}
policies: [{name: p, segment_lists: [{segments: ['fc00:9::1']}]}, {name: full, behavior: H.Encaps, segment_lists: [{segments: ['fc00:9::1']}]}]
sids:
- {sid: 'fd00::1/128', behavior: End, flavors: [PSP, USD]}
- {sid: 'fd00::4/128', behavior: End.DT4, table: 254}
- {sid: 'fd00::6/128', behavior: End.DT6, table: 254}
- {sid: 'fd00::46/128', behavior: End.DT46, table: 10}
- {sid: 'fd00::b6/128', behavior: End.B6.Encaps.Red, policy: p}
- {sid: 'fd00::b7/128', behavior: End.B6.Encaps, policy: full}
`
	if _, err := config.Parse([]byte(served)); err != nil {
		t.Error(err)
	}
	const crossConnect = "sids: [{sid: 'fd00::2/128', behavior: End.X, next_hop: '2001:db8::9', interface: eth1}]\n"
	_, err := config.Parse([]byte(member + crossConnect))
	const want = "line 2: sids[0].behavior: End.X is not served on the overlay's uplinks, and there are no other interfaces " +
		"(fix: list the interface that its packets come in by under interfaces (not an uplink), " +
		"or use one of End, End.DT4, End.DT6, End.DT46, End.B6.Encaps, End.B6.Encaps.Red)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want\n%s", err, want)
	}
	for _, elsewhere := range []string{crossConnect, member + crossConnect + "interfaces: [{name: eth1, roles: [any]}]\n"} {
		if _, err := config.Parse([]byte(elsewhere)); err != nil {
			t.Errorf("%s: %v", elsewhere, err)
		}
	}
}

func TestTenants(t *testing.T) {
	const good = `overlay:
  mode: static
  node: node-1
  address: '2001:db8::1'
  locator: 'fc00:0:1::/48'
  pod_prefixes: [10.244.1.0/24]
  tenants:
    - {name: red, id: 7, namespaces: [shop, bank], pools: [10.9.0.0/16, 'fd09::/48'], routes: [192.0.2.0/24]}
    - {name: blue, id: 8, namespaces: [lab], pools: [10.9.0.0/16]}
steering: [{prefix: 10.9.3.0/24, tenant: 7, policy: gold}]
policies: [{name: gold, segment_lists: [{segments: ['fc00:9::1']}]}]
encapsulation: {source: '2001:db8::1'}
`
	if _, err := config.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"name: blue", "name: red", "line 9: overlay.tenants[1].name: red is already"},
		{"id: 8, ", "", "line 9: overlay.tenants[1].id: is missing"},
		{"id: 8", "id: 7", "line 9: overlay.tenants[1].id: 7 is already"},
		{"id: 8", "id: 256", "overlay.tenants[1].id"},
		{"namespaces: [lab], ", "", "line 9: overlay.tenants[1].namespaces: is missing"},
		{"[lab]", "['*']", `line 9: overlay.tenants[1].namespaces[0]: "*" is none`},
		{"namespaces: [lab], pools: [10.9.0.0/16]", "namespaces: [lab]", "line 9: overlay.tenants[1].pools: is missing"},
		{"[lab], pools: [10.9.0.0/16]", "[lab], pools: [10.9.1.0/16]", "overlay.tenants[1].pools[0]: 10.9.1.0/16 has bits"},
		{"[10.9.0.0/16, 'fd09::/48']", "[10.9.0.0/16, 10.9.8.0/24]", "overlay.tenants[0].pools[1]: 10.9.8.0/24 overlaps"},
		{"[lab], ", "[lab], import_targets: ['65001:8'], ", "line 9: overlay.tenants[1].route_distinguisher: is for BGP peers, and overlay.mode is static"},
		{"[lab], ", "[lab], export_targets: [x], ", `line 9: overlay.tenants[1].export_targets[0]: "x" begins with neither`},
		{"policies:", "traffic_classes: [{name: a, color: 263}]\npolicies:", "traffic_classes[0].color: 263 is reserved: policies of this color carry the packets of tenant red (fix: give a color"},
		{"policies:", "traffic_classes: [{name: a, color: 4}]\npolicies:", "traffic_classes[0].color: 4 is reserved: policies of this color carry IPv4 between pods (fix: give a color"},
		{"policies:", "traffic_classes: [{name: a, color: 6}, {name: b, color: 265, priority: 1}]\npolicies:", "traffic_classes[0].color: 6 is reserved"},
		{"tenant: 7", "tenant: 9", "line 10: steering[0].tenant: there is no tenant 9"},
		{"tenant: 7", "tenant: 7, interface: eth0", "steering[0].tenant: names who sends"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
}

func TestLiveness(t *testing.T) {
	const good = `encapsulation: {source: '2001:db8::1'}
liveness: {enabled: true, sid: 'fc00:1:0:f::', ends: [{locator: 'fc00:e::/48', sid: 'fc00:e:0:1::'}]}
`
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Liveness; l.Interval != 10 || l.Multiplier != 3 {
		t.Errorf("defaults: %+v", l)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"enabled: true, ", "", "liveness.enabled: is missing"},
		{"sid: 'fc00:1:0:f::', ", "", "liveness.sid: is missing"},
		{"sid: 'fc00:1:0:f::'", "sid: 192.0.2.1", "line 2: liveness.sid: 192.0.2.1 is an IPv4 address"},
		{"encapsulation: {source: '2001:db8::1'}\n", "", "encapsulation.source: is missing"},
		{"ends:", "interval: 2000, ends:", "line 2: liveness.interval: 2000 finds nothing in time"},
		{"ends:", "multiplier: 1, ends:", "line 2: liveness.multiplier: is 1"},
		{"'fc00:e:0:1::'", "'fc00:f:0:1::'", "line 2: liveness.ends[0].sid: fc00:f:0:1:: is not in fc00:e::/48"},
		{"'fc00:e::/48'", "10.0.0.0/8", "liveness.ends[0].locator"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
}

// What is chosen by delay has to be measured.
func TestDelayConstraints(t *testing.T) {
	const good = `encapsulation: {source: '2001:db8::1'}
liveness: {enabled: true, sid: 'fc00:1:0:f::', ends: [{locator: 'fc00:e::/48', sid: 'fc00:e:0:1::'}]}
policies:
  - {name: p, delay_bound: 15ms, lowest_delay: true, segment_lists: [{segments: ['fc00:e:0:6::']}, {segments: ['fc00:a:0:1::', 'fc00:9::6']}]}
candidate_paths:
  - {name: x, policy: p, segment_lists: [{segments: ['fc00:e:0:7::']}]}
`
	c, err := config.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Policies[0].DelayConstraint; d.DelayBound.String() != "15ms" || !d.LowestDelay {
		t.Errorf("%+v", d)
	}
	off := "liveness: {enabled: true, sid: 'fc00:1:0:f::', ends: [{locator: 'fc00:e::/48', sid: 'fc00:e:0:1::'}]}\n"
	for _, tt := range []struct{ old, new, want string }{
		{off, "", "line 3: policies[0].delay_bound: nothing measures delays: liveness is off (fix: give liveness: {enabled: true, sid: ADDRESS}, or remove it)"},
		{off + "policies:\n  - {name: p, delay_bound: 15ms, ", "policies:\n  - {name: p, ", "line 3: policies[0].lowest_delay: nothing measures"},
		{"15ms", "15", "give a time with its unit, such as 15ms or 800us"},
		{"15ms", "0s", "give a time with its unit"},
		{"15ms", "-15ms", "line 4: policies[0].delay_bound: is -15ms (fix: more than 0s, and at most 10s)"},
		{"15ms", "1h", "line 4: policies[0].delay_bound: is 1h0m0s"},
		{"'fc00:e::/48', sid: 'fc00:e:0:1::'", "'fc00:f::/48', sid: 'fc00:f:0:1::'", "policies[0].segment_lists[0].segments: no probe can measure the way to fc00:e:0:6::"},
		{"'fc00:e:0:7::'", "'fc00:9::6'", "candidate_paths[0].segment_lists[0].segments: no probe can measure the way to fc00:9::6"},
		{"policy: p,", "policy: p, delay_bound: 20s,", "candidate_paths[0].delay_bound: is 20s"},
	} {
		if !strings.Contains(good, tt.old) {
			t.Fatalf("there is no %q", tt.old)
		}
		if _, err := config.Parse([]byte(strings.Replace(good, tt.old, tt.new, 1))); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in place of %q: %v, want %s", tt.new, tt.old, err, tt.want)
		}
	}
}

func TestEnforcesPolicies(t *testing.T) {
	for yaml, want := range map[string]bool{
		"overlay: {mode: kube, locator_pool: 'fc00::/32'}":                                    true,
		"overlay: {mode: kube, locator_pool: 'fc00::/32', kube: {network_policies: enforce}}": true,
		"overlay: {mode: kube, locator_pool: 'fc00::/32', kube: {network_policies: off}}":     false,
		"overlay: {mode: static, locator: 'fc00:0:1::/48', pod_prefixes: ['fd00::/64']}":      false,
		"{}": false,
	} {
		c, err := config.Parse([]byte(yaml))
		if err != nil {
			t.Errorf("%s: %v", yaml, err)
			continue
		}
		if got := c.Overlay.EnforcesPolicies(); got != want {
			t.Errorf("%s: %v", yaml, got)
		}
	}
}
