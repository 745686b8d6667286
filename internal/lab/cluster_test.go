package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseCluster(t *testing.T) {
	for _, tt := range []struct {
		old, new string
		want     []string
	}{
		{"kind: pod, host: x}", "kind: pod, host: y}", []string{"nodes[1]", "host", "kind cluster"}},
		{"{name: y, kind: host}", "{name: y, kind: host, host: x}", []string{"nodes[4]", "no pod"}},
		{"pod_cidrs: [10.244.1.0/24", "pod_cidrs: [10.244.1.0", []string{"nodes[0]", "pod_cidrs"}},
		{"{name: y, kind: host}", "{name: y, kind: host, pod_cidrs: [10.0.0.0/24]}", []string{"nodes[4]", "pod_cidrs"}},
		{"protocol: tcp", "protocol: sctp", []string{"host_ports", "udp"}},
		{"{name: p, kind: pod, host: x}", "{name: p, kind: pod, host: x, bandwidth: {ingress: 1}}", []string{"bandwidth", "egress"}},
		{"{name: y, kind: host}", "{name: y, kind: host, bandwidth: {ingress: 1, egress: 1}}", []string{"nodes[4]", "no pod"}},
		{"{name: y, kind: host}", "{name: y, kind: host, proxy: nftables}", []string{"nodes[4]", "proxy"}},
		{"kind: cluster", "kind: cluster\n    proxy: ipvs", []string{"proxy", "ipvs", "nftables or iptables"}},
		{"node_port: 30080, pod: q", "node_port: 30080, pod: q, also: [y]", []string{"services[0]", "pod"}},
		{"node_port: 30080, pod: q", "node_port: 30080, pod: y", []string{"services[0]", "pod"}},
		{"port: 80, target_port: 8080,", "port: 80,", []string{"services[0]", "target_port"}},
		{"modes: [kube], from", "modes: [bgp], from", []string{"checks[1]", "modes", "bgp", "static, kube"}},
		{"{name: no name,", "{name: no name, event: {do: attach, node: y},", []string{"event", "attach", "no pod"}},
		{"{name: no name,", "{name: no name, event: {do: object, object: {kind: Pod}},", []string{"object", "apiVersion"}},
		{"{name: no name,", "{name: no name, event: {do: inject, node: p},", []string{"inject", "kind host"}},
		{"{name: no name,", "{name: no name, event: {do: active, node: x},", []string{"active", "policy"}},
		{"{name: no name,", "{name: no name, event: {do: pause, node: x},", []string{"pause", "kind apiserver"}},
		{"{name: no name,", "{name: no name, event: {do: stop, node: y},", []string{"stop", "kind apiserver, culvert or cluster"}},
		{"{name: no name,", "{name: no name, event: {do: collect, node: y},", []string{"collect", "no pod"}},
		{"{name: both, kind: ping,", "{name: both, kind: one_family,", []string{"checks[0]", "families"}},
		{"{name: no name,", "{name: no name, event: {do: route, node: x},", []string{"route", "missing"}},
		{"{name: no name,", "{name: no name, event: {do: route, node: z, route: a b},", []string{"route", "no node"}},
		{"{name: no name,", "{name: no name, event: {do: mtu, node: x, mtu: 1400},", []string{"mtu", "no pod"}},
		{"{name: no name,", "{name: no name, event: {do: mtu, node: p},", []string{"mtu", "missing"}},
		{"{name: no name,", "{name: no name, event: {do: shows, node: x, command: [status]},", []string{"shows", "missing"}},
		{"{name: no name,", "{name: no name, event: {do: told, object: {apiVersion: v1, kind: Node, metadata: {name: x}}},", []string{"told", "state, says"}},
		{"modes: [static, kube]\nnodes", "modes: [static, kube]\nn9: [gtpu]\nnodes", []string{"n9, modes"}},
	} {
		text := strings.Replace(clusterOfOne, tt.old, tt.new, 1)
		if text == clusterOfOne {
			t.Fatalf("%q is not there", tt.old)
		}
		_, err := Parse([]byte(text))
		wantError(t, err, tt.want...)
	}
}

// Checks that name somebody are made in each family, those of a mode in that one.
func TestPlanOfFamilies(t *testing.T) {
	var names []string
	for _, p := range parse(t, clusterOfOne).plan([]string{"static", "kube"}, nil) {
		names = append(names, p.name())
	}
	for _, want := range []string{"static: both, IPv4", "static: both, IPv6", "kube: one, IPv6", "static: no name"} {
		if !slices.Contains(names, want) {
			t.Errorf("no check %q among %q", want, names)
		}
	}
	if slices.Contains(names, "static: one, IPv6") || slices.Contains(names, "kube: one, IPv4") {
		t.Errorf("checks %q", names)
	}
}

// inCluster is an instance whose pods have addresses; it is not up.
func inCluster(t *testing.T) *instance {
	a := netip.MustParseAddr
	return &instance{Topology: parse(t, clusterOfOne), name: "l", state: state{Pods: map[string][]netip.Addr{
		"p": {a("10.244.1.2"), a("fd00:10:244:1::2")}, "q": {a("10.244.1.3"), a("fd00:10:244:1::3")}}}}
}

func TestResolveNames(t *testing.T) {
	in := inCluster(t)
	for _, tt := range []struct {
		check, family string
		to            string
		port          uint16
		listen        string
		source        string
	}{
		{"both", ipv4, "10.244.1.3", 0, "", ""},
		{"both", ipv6, "fd00:10:244:1::3", 0, "", ""},
		{"service", ipv4, "10.96.0.1", 80, "10.244.1.3:8080", ""},
		{"port of a node", ipv4, "10.0.0.1", 30080, "10.244.1.3:8080", ""},
		{"port of a pod", ipv4, "10.0.0.1", 8080, "10.244.1.3:80", ""},
		{"there and back", ipv6, "fd00:10:244:1::3", 0, "", "fd00:10:244:1::2"},
	} {
		i := slices.IndexFunc(in.Checks, func(c Check) bool { return c.Name == tt.check })
		c, err := in.resolve(&in.Checks[i], tt.family)
		if err != nil {
			t.Errorf("%s: %v", tt.check, err)
			continue
		}
		listen, source := "", ""
		if c.listen.IsValid() {
			listen = c.listen.String()
		}
		if c.Source.IsValid() {
			source = c.Source.String()
		}
		if c.To.String() != tt.to || c.Port != tt.port || listen != tt.listen || source != tt.source {
			t.Errorf("%s: to %v port %d, %s listens, from %s", tt.check, c.To, c.Port, listen, source)
		}
		if in.Checks[i].To.IsValid() {
			t.Errorf("%s: the topology's check was changed", tt.check)
		}
	}
	_, err := in.address("web", ipv6)
	wantError(t, err, "web", "ipv6")
	_, err = in.address("nobody", ipv4)
	wantError(t, err, "nobody")
}

// nft takes the rules, which translate one family's Service to the pod, and what
// needs the way back by the node is marked.
func TestTranslation(t *testing.T) {
	in := inCluster(t)
	rules := in.translation()
	for _, want := range []string{
		"ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.1.3:8080",
		"fib daddr type local udp dport 30080 meta mark set 0x4000 dnat to 10.244.1.3:8080",
		"ip saddr 10.244.1.3 meta mark set 0x4000",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q in\n%s", want, rules)
		}
	}
	n := namespace{"culvert-" + unique("nft")}
	if err := n.create("mark"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.delete("mark"); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second takes the first's place
		if err := n.Do(func() error { return pipe(rules, "nft", "-f", "-") }); err != nil {
			t.Error(err)
		}
	}
	err := n.Do(func() error { return pipe("no rule", "nft", "-f", "-") })
	wantError(t, err, "nft", "no rule")
}

func TestObjectPath(t *testing.T) {
	for _, tt := range []struct {
		object map[string]any
		want   string
	}{
		{objectOf("v1", "Node", "n", ""), "/api/v1/nodes/n"},
		{objectOf("v1", "ConfigMap", "c", "kube-system"), "/api/v1/namespaces/kube-system/configmaps/c"},
		{objectOf("culvert.net/v1alpha1", "SRv6Policy", "s", ""), "/apis/culvert.net/v1alpha1/srv6policies/s"},
	} {
		if got, err := objectPath(tt.object); got != tt.want || err != nil {
			t.Errorf("%s, %v: want %s", got, err, tt.want)
		}
	}
	_, err := objectPath(objectOf("v1", "Pod", "p", "default"))
	wantError(t, err, "kind")
}

func objectOf(version, kind, name, namespace string) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}}
}

// What a node is told of its cluster differs by mode.
func TestMembership(t *testing.T) {
	in := inCluster(t)
	in.state.Variant = "static"
	if m := in.membership(in.node("x")); m["pod_prefixes"] == nil || m["kube"] != nil {
		t.Errorf("static: %v", m)
	}
	in.state.Variant = kubeMode
	if m := in.membership(in.node("x")); m["pod_prefixes"] != nil || m["kube"] == nil {
		t.Errorf("kube: %v", m)
	}
}

// Interfaces to routers without IS-IS have none, and routes are permitted before
// they are redistributed.
func TestISISConfig(t *testing.T) {
	topology := parse(t, `name: i
summary: s
nodes:
  - {name: a, kind: frr, frr: {isis: {system: 7, metrics: {b: 30}, kernel: ["fc00:0:1::/48"]}}}
  - {name: b, kind: frr, frr: {isis: {system: 8}}}
  - {name: c, kind: host}
links:
  - ends: [{node: a, name: b}, {node: b, name: a}]
  - ends: [{node: a, name: c}, {node: c, name: a}]
checks: [{name: r, kind: route, from: a, to: "fc00:0:1::", expect: {interface: b}}]
`)
	a := topology.node("a")
	text := a.FRR.text(topology, a)
	for _, want := range []string{"interface b\n", "isis metric 30", "0000.0007.00", "permit fc00:0:1::/48"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "interface c\n") || strings.Index(text, "prefix-list") > strings.Index(text, "\nrouter isis") {
		t.Errorf("configuration\n%s", text)
	}
	for words, n := range map[string]ISIS{
		"system":  {System: 0},
		"metrics": {System: 1, Metrics: map[string]int{"d": 30}},
		"kernel":  {System: 1, Kernel: []string{"fc00:0:1::"}},
	} {
		wantError(t, n.validate(topology, a), words)
	}
}
