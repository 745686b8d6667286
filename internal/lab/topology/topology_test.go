package topology

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/config"
)

func TestTopologies(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list {
		names = append(names, l.Name)
		if l.Summary == "" || len(l.Checks) == 0 {
			t.Errorf("%s: no summary or no checks", l.Name)
		}
	}
	for _, want := range []string{"gateway", "edge", "frr", "kernel", "slices", "ethernet", "overlay", "overlay-bench", "backbone", "cluster", "single-stack", "attack", "spread", "n4-fast", "te", "l3vpn"} {
		if !slices.Contains(names, want) {
			t.Errorf("no lab %s among %v", want, names)
		}
	}
}

// TestConfigurations holds the culvert configurations against the daemon's
// own validation.
func TestConfigurations(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		for _, n := range l.Nodes {
			if !n.Daemon() {
				continue
			}
			variants := l.VariantNames()
			if len(l.Modes) == 0 { // a mode completes the configuration
				variants = append(variants, "")
			}
			for _, variant := range variants {
				for _, overlay := range append(slices.Sorted(maps.Keys(n.Overlays)), "") {
					if appliedIn(l, n, overlay, variant) {
						checkConfiguration(t, l, n, variant, overlay)
					}
				}
			}
		}
	}
}

// appliedIn says whether an overlay is for a variant: those that only checks of
// other variants apply are not.
func appliedIn(l *Topology, n *Node, overlay, variant string) bool {
	used := false
	for _, c := range l.Checks {
		for _, e := range slices.Concat(c.Before, c.AllEvents(), c.After) {
			if overlay == "" || e.Do != "apply" || e.Node != n.Name || e.Overlay != overlay {
				continue
			}
			if c.Concern(variant) {
				return true
			}
			used = true
		}
	}
	return !used
}

func checkConfiguration(t *testing.T, l *Topology, n *Node, variant, overlay string) {
	t.Helper()
	text, err := yaml.Marshal(n.ConfigIn(variant, overlay))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Decode(text)
	if err != nil {
		t.Errorf("%s: %s: %q, %q: %v", l.Name, n.Name, variant, overlay, err)
		return
	}
	c.SetDefaults()
	if err := c.Validate(); err != nil {
		t.Errorf("%s: %s: %q, %q: %v", l.Name, n.Name, variant, overlay, err)
	}
	for _, i := range c.Interfaces {
		if !slices.Contains(l.Devices(n), i.Name) {
			t.Errorf("%s: %s: no link is called %s", l.Name, n.Name, i.Name)
		}
	}
}

func TestParse(t *testing.T) {
	if _, err := Parse([]byte(small)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"unknown field", "summary:", "sumary:", []string{"sumary"}},
		{"name", "name: small", "name: Small", []string{"name", "lower-case"}},
		{"node twice", "name: right, kind", "name: left, kind", []string{"nodes[1]", "twice"}},
		{"kind", "name: right, kind: host", "name: right, kind: gate", []string{"nodes[1]", "kind", "gate"}},
		{"config missing", "name: right, kind: host", "name: right, kind: culvert", []string{"nodes[1]", "config"}},
		{"frr missing", "name: right, kind: host", "name: right, kind: frr", []string{"nodes[1]", "frr"}},
		{"unknown node of a link", "{node: right", "{node: wrong", []string{"links[0]", "wrong"}},
		{"one end", ", {node: right, name: eth0, addresses: [10.0.0.2/24]}", "", []string{"links[0]", "two"}},
		{"interface twice", "node: right, name: eth0", "node: left, name: eth0", []string{"links[0]", "left", "eth0"}},
		{"long interface", "right, name: eth0", "right, name: ethernet0123456789", []string{"links[0]", "15"}},
		{"address", "10.0.0.2/24", "10.0.0.2", []string{"links[0]", "addresses", "10.0.0.2"}},
		{"check kind", "kind: ping", "kind: pong", []string{"checks[0]", "pong", "ping"}},
		{"check node", "from: left", "from: lift", []string{"checks[0]", "lift"}},
		{"OSPF of a host", "kind: ping, from: left, to: 10.0.0.2", "kind: ospf, from: left", []string{"checks[0]", "left", "ospf6d"}},
		{"check name", "name: ping, ", "", []string{"checks[0]", "name"}},
		{"duration", "to: 10.0.0.2", "to: 10.0.0.2, interval: 5", []string{"5", "20ms"}},
		{"event", "to: 10.0.0.2", "to: 10.0.0.2, event: {do: explode, node: left}", []string{"event", "explode"}},
		{"event without device", "to: 10.0.0.2", "to: 10.0.0.2, event: {do: link_down, node: left}", []string{"event", "device"}},
		{"event of no daemon", "to: 10.0.0.2", "to: 10.0.0.2, event: {do: kill, node: left}", []string{"left", "culvert"}},
		{"counter of no daemon", "to: 10.0.0.2", "to: 10.0.0.2, counters: [{node: right, sid: x}]", []string{"right", "culvert"}},
		{"device without a type", "name: right, kind: host", "name: right, kind: host, devices: [{name: d}]", []string{"nodes[1]", "devices[0]", "type"}},
		{"device's name", "name: right, kind: host", "name: right, kind: host, devices: [{name: ethernet0123456789, type: dummy}]", []string{"devices[0]", "15"}},
		{"rate of no router", "  - ends:", "  - kbit_s: 1000\n    ends:", []string{"links[0]", "left is no router of the kernel"}},
		{"engine without FRR", "name: right, kind: host", "name: right, kind: host, engine: {}", []string{"nodes[1]", "engine"}},
		{"event of no engine", "to: 10.0.0.2", "to: 10.0.0.2, event: {do: engine_start, node: left}", []string{"left", "no engine"}},
		{"P99 of a ping", "to: 10.0.0.2", "to: 10.0.0.2, expect: {p99: 1ms}", []string{"p99", "udp"}},
		{"rounds without a limit", "to: 10.0.0.2", "to: 10.0.0.2, rounds: 5", []string{"rounds", "loss_for"}},
		{"no median of two", "to: 10.0.0.2", "to: 10.0.0.2, rounds: 2, expect: {loss_for: 1s}", []string{"rounds", "3 rounds at least"}},
		{"loss_for of a ping", "to: 10.0.0.2", "to: 10.0.0.2, rounds: 5, expect: {loss_for: 1s}", []string{"loss_for", "udp"}},
		{"tenant of no pod", "name: right, kind: host", "name: right, kind: host, tenant: red", []string{"tenant", "right is no pod"}},
		{"failure of no router", "to: 10.0.0.2", "to: 10.0.0.2, event: {do: node_down, node: left}", []string{"left", "frr"}},
		{"gtpu", "name: right, kind: host", "name: right, kind: host, gtpu: [{device: g, local: 10.0.0.2}]", []string{"nodes[1]", "gtpu[0]", "remote"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(small, tt.old, tt.new, 1)
			if text == small {
				t.Fatalf("%q is not there", tt.old)
			}
			_, err := Parse([]byte(text))
			wantError(t, err, tt.want...)
		})
	}
}

func TestLoadUnknown(t *testing.T) {
	_, err := Load("../kernel")
	if wantError(t, err, "no lab", "../kernel"); !errors.Is(err, ErrUnknown) { // for which the command has a proposal
		t.Errorf("%v is not ErrUnknown", err)
	}
}

// A topology inherits everything from its base that it does not state itself.
func TestBase(t *testing.T) {
	base, err := Load("slices")
	if err != nil {
		t.Fatal(err)
	}
	over, err := Load("slices-bench")
	if err != nil {
		t.Fatal(err)
	}
	if len(over.Nodes) != len(base.Nodes)+2 || len(over.Links) != len(base.Links)+6 {
		t.Errorf("%d nodes and %d links over %d and %d", len(over.Nodes), len(over.Links), len(base.Nodes), len(base.Links))
	}
	if got := over.Node("func1").Kind; got != Culvert {
		t.Errorf("func1 is of kind %q: the base's was not replaced", got)
	}
	if len(over.Setup) != len(base.Setup) || len(over.Checks) == len(base.Checks) {
		t.Errorf("setup %v, %d checks: want the base's setup and checks of its own", over.Setup, len(over.Checks))
	}
	before, after := base.SMF("a1").scenario.Sessions[0], over.SMF("a1").scenario.Sessions[0]
	if *after.URR.VolumeThreshold.Total <= *before.URR.VolumeThreshold.Total || after.QFI != before.QFI {
		t.Errorf("session %+v over %+v", after, before)
	}
}

func TestBaseErrors(t *testing.T) {
	for text, words := range map[string]string{
		"{name: x, base: nowhere}":                       `no lab "nowhere"`,
		"{name: x, base: slices, name: y}":               "name",
		"{name: x, base: slices, without: [upf2, upf2]}": `slices has no node "upf2"`,
	} {
		_, err := onBase([]byte(text))
		wantError(t, err, words)
	}
	if text, err := onBase([]byte("name: x\n")); err != nil || string(text) != "name: x\n" {
		t.Errorf("without a base: %q, %v", text, err)
	}
}
