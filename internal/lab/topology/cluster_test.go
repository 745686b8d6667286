package topology

import (
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
		{"{name: no name,", "{name: no name, event: {do: attach, node: y},", []string{"event", "attach", "kind pod"}},
		{"{name: no name,", "{name: no name, event: {do: object, object: {kind: Pod}},", []string{"object", "apiVersion"}},
		{"{name: no name,", "{name: no name, event: {do: inject, node: p},", []string{"inject", "kind host"}},
		{"{name: no name,", "{name: no name, event: {do: active, node: x},", []string{"active", "policy"}},
		{"{name: no name,", "{name: no name, event: {do: pause, node: y},", []string{"pause", "kind apiserver, culvert, cluster"}},
		{"{name: no name,", "{name: no name, event: {do: stop, node: y},", []string{"stop", "kind apiserver, culvert, cluster"}},
		{"{name: no name,", "{name: no name, event: {do: collect, node: y},", []string{"collect", "kind pod"}},
		{"{name: both, kind: ping,", "{name: both, kind: one_family,", []string{"checks[0]", "families"}},
		{"{name: no name,", "{name: no name, event: {do: route, node: x},", []string{"route", "missing"}},
		{"{name: no name,", "{name: no name, event: {do: route, node: z, route: a b},", []string{"route", "no node"}},
		{"{name: no name,", "{name: no name, event: {do: mtu, node: x, mtu: 1400},", []string{"mtu", "kind pod"}},
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
	for _, p := range parse(t, clusterOfOne).Plan([]string{"static", "kube"}, nil) {
		names = append(names, p.Title())
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

func TestObjectPath(t *testing.T) {
	for _, tt := range []struct {
		object map[string]any
		want   string
	}{
		{objectOf("v1", "Node", "n", ""), "/api/v1/nodes/n"},
		{objectOf("v1", "ConfigMap", "c", "kube-system"), "/api/v1/namespaces/kube-system/configmaps/c"},
		{objectOf("culvert.net/v1alpha1", "SRv6Policy", "s", ""), "/apis/culvert.net/v1alpha1/srv6policies/s"},
	} {
		if got, err := ObjectPath(tt.object); got != tt.want || err != nil {
			t.Errorf("%s, %v: want %s", got, err, tt.want)
		}
	}
	_, err := ObjectPath(objectOf("v1", "Secret", "p", "default"))
	wantError(t, err, "kind")
}

func objectOf(version, kind, name, namespace string) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}}
}

func TestParseKubelets(t *testing.T) {
	const asked = "kubectl, kubectl: {args: [get, nodes], output: x}"
	for _, tt := range []struct {
		old, new string
		want     []string
	}{
		{", proxy: nftables", "", []string{"nodes[1]", "proxy", "nftables or iptables"}},
		{"proxy: nftables", "proxy: ipvs", []string{"nodes[1]", "proxy", "ipvs"}},
		{"kind: switch", "kind: switch, proxy: nftables", []string{"nodes[4]", "kubelet"}},
		{"args: [get, nodes], ", "", []string{"checks[0]", "args"}},
		{"output: x", "output: '('", []string{"checks[0]", "missing closing"}},
		{"program: kubelet", "program: systemd", []string{"checks[1]", "containerd", "kube-proxy"}},
		{"do: reboot, node: x", "do: collect, node: p", []string{"checks[1]", "by its kubelet"}},
		{"do: reboot, node: x", "do: reboot, node: p", []string{"checks[1]", "kind kubelet"}},
		{"output: x", "refused: '('", []string{"checks[0]", "missing closing"}},
		{"output: x", "output: x, refused: x", []string{"checks[0]", "give one of them"}},
		{"output: x", "agent: p", []string{"checks[0]", "kubelet"}},
		{asked, "suite, suite: {focus: a}", []string{"checks[0]", "workers"}},
		{asked, "suite, suite: {focus: '(', workers: 1}", []string{"checks[0]", "missing closing"}},
		{asked, "suite, suite: {focus: a, skip: b, workers: 1}", []string{"checks[0]", "because"}},
		{asked, "dead, from: p, to_name: x", []string{"checks[0]", "kind pod"}},
		{asked, "isolated, at: x, count: 2", []string{"checks[0]", "kind pod"}},
		{asked, "isolated, at: p, count: 1", []string{"checks[0]", "2 or more pods"}},
		{asked, "isolated, count: 2", []string{"checks[0]", "pod"}},
		{asked, "frame, from: p, frame: [{udp: {}}]", []string{"checks[0]", "at: missing"}},
		{asked, "frame, from: p, at: q", []string{"checks[0]", "frame: missing"}},
		{asked, "frame, from: p, at: q, frame: [{sctp: {}}]", []string{"checks[0]", "no such layer"}},
		{asked, "frame, from: p, at: q, frame: [{ipv6: {src: '{z.ipv6}', dst: '::'}}]", []string{"checks[0]", "z"}},
		{asked, "frame, from: x, at: q, frame: [{udp: {}}]", []string{"checks[0]", "next: missing"}},
		{asked, "frame, from: x, at: q, next: p, frame: [{udp: {}}]", []string{"checks[0]", "p has no link"}},
		{asked, "frame, from: x, at: q, next: x, next_device: nowhere, frame: [{udp: {}}]", []string{"checks[0]", `x has no "nowhere"`}},
		{asked, "frame, from: p, at: q, next_device: n6, frame: [{udp: {}}]", []string{"checks[0]", "say who is next"}},
	} {
		text := strings.Replace(kubeletsOfOne, tt.old, tt.new, 1)
		if text == kubeletsOfOne {
			t.Fatalf("%q is not there", tt.old)
		}
		_, err := Parse([]byte(text))
		wantError(t, err, tt.want...)
	}
}

// The configuration of IS-IS fits the node.
func TestParseISIS(t *testing.T) {
	const ring = `name: i
summary: s
nodes:
  - {name: a, kind: frr, frr: {isis: {system: 7, metrics: {b: 30}, kernel: ["fc00:0:1::/48"]}}}
  - {name: b, kind: frr, frr: {isis: {system: 8}}}
links:
  - ends: [{node: a, name: b}, {node: b, name: a}]
checks: [{name: r, kind: route, from: a, to: "fc00:0:1::", expect: {interface: b}}]
`
	parse(t, ring)
	for _, tt := range []struct{ old, new, want string }{
		{"system: 7", "system: 0", "system"},
		{"metrics: {b: 30}", "metrics: {d: 30}", "metrics"},
		{"fc00:0:1::/48", "fc00:0:1::", "kernel"},
	} {
		_, err := Parse([]byte(strings.Replace(ring, tt.old, tt.new, 1)))
		wantError(t, err, "nodes[0]", "isis", tt.want)
	}
}
