package lab

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// inCluster is an instance whose pods have addresses; it is not up.
func inCluster(t *testing.T) *instance.Instance {
	a := netip.MustParseAddr
	return &instance.Instance{Topology: parse(t, clusterOfOne), Name: "l", State: instance.State{Pods: map[string][]netip.Addr{
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
		{"both", topology.IPv4, "10.244.1.3", 0, "", ""},
		{"both", topology.IPv6, "fd00:10:244:1::3", 0, "", ""},
		{"service", topology.IPv4, "10.96.0.1", 80, "10.244.1.3:8080", ""},
		{"port of a node", topology.IPv4, "10.0.0.1", 30080, "10.244.1.3:8080", ""},
		{"port of a pod", topology.IPv4, "10.0.0.1", 8080, "10.244.1.3:80", ""},
		{"there and back", topology.IPv6, "fd00:10:244:1::3", 0, "", "fd00:10:244:1::2"},
	} {
		i := slices.IndexFunc(in.Checks, func(c topology.Check) bool { return c.Name == tt.check })
		c, err := resolve(in, &in.Checks[i], tt.family)
		if err != nil {
			t.Errorf("%s: %v", tt.check, err)
			continue
		}
		listen, source := "", ""
		if c.Listen.IsValid() {
			listen = c.Listen.String()
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
	_, err := in.Address("web", topology.IPv6)
	wantError(t, err, "web", "ipv6")
	_, err = in.Address("nobody", topology.IPv4)
	wantError(t, err, "nobody")
}

// nft takes the rules, which translate one family's Service to the pod, and what
// needs the way back by the node is marked.
func TestTranslation(t *testing.T) {
	in := inCluster(t)
	rules := translation(in)
	for _, want := range []string{
		"ip daddr 10.96.0.1 tcp dport 80 dnat to 10.244.1.3:8080",
		"fib daddr type local udp dport 30080 meta mark set 0x4000 dnat to 10.244.1.3:8080",
		"ip saddr 10.244.1.3 meta mark set 0x4000",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %q in\n%s", want, rules)
		}
	}
	n := namespace.Named{Name: "culvert-" + unique("nft")}
	if err := n.Create("mark"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Delete("mark"); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second takes the first's place
		if err := n.Do(func() error { return namespace.Pipe(rules, "nft", "-f", "-") }); err != nil {
			t.Error(err)
		}
	}
	err := n.Do(func() error { return namespace.Pipe("no rule", "nft", "-f", "-") })
	wantError(t, err, "nft", "no rule")
}

// What a node is told of its cluster differs by mode.
func TestMembership(t *testing.T) {
	in := inCluster(t)
	in.State.Variant = "static"
	if m := membership(in, in.Node("x")); m["pod_prefixes"] == nil || m["kube"] != nil {
		t.Errorf("static: %v", m)
	}
	in.State.Variant = topology.KubeMode
	if m := membership(in, in.Node("x")); m["pod_prefixes"] != nil || m["kube"] == nil {
		t.Errorf("kube: %v", m)
	}
}

// Interfaces to routers without IS-IS have none, and routes are permitted before
// they are redistributed.
func TestISISConfig(t *testing.T) {
	l := parse(t, `name: i
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
	a := l.Node("a")
	text := text(a.FRR, l, a)
	for _, want := range []string{"interface b\n", "isis metric 30", "0000.0007.00", "permit fc00:0:1::/48"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "interface c\n") || strings.Index(text, "prefix-list") > strings.Index(text, "\nrouter isis") {
		t.Errorf("configuration\n%s", text)
	}
	for words, n := range map[string]topology.ISIS{
		"system":  {System: 0},
		"metrics": {System: 1, Metrics: map[string]int{"d": 30}},
		"kernel":  {System: 1, Kernel: []string{"fc00:0:1::"}},
	} {
		wantError(t, n.Validate(l, a), words)
	}
}
