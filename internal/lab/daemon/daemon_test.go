package daemon

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// The configuration of a node about its cluster differs by mode.
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

// TestConfigurations: `culvert check` finds no mistake in what the laboratories give their daemons in
// any mode, and no address that a node lacks or that a pool holds.
func TestConfigurations(t *testing.T) {
	list, err := topology.List()
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, l := range list {
		variants := l.VariantNames()
		if len(variants) == 0 {
			variants = []string{""}
		}
		for _, variant := range variants {
			in := &instance.Instance{Topology: l, Name: l.Name, State: instance.State{Variant: variant}}
			for _, n := range in.Select(func(n *topology.Node) bool { return n.Kind == topology.Culvert || n.Kind == topology.Cluster }) {
				text, err := configText(in, n, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := config.Check(text, false); err != nil {
					t.Errorf("%s: %s: %q: %v", l.Name, n.Name, variant, err)
				}
				if err := checkAddresses(text, l.Addresses(n)); err != nil {
					t.Errorf("%s: %s: %q: on its node: %v", l.Name, n.Name, variant, err)
				}
				checked[l.Name+" "+variant] = true
			}
		}
	}
	for _, want := range []string{"overlay static", "overlay bgp", "overlay kube", "backbone bgp", "backbone kube", "tenants kube", "slices enhanced", "gateway "} {
		if !checked[want] {
			t.Errorf("%s is not among %v", want, checked)
		}
	}
}

func checkAddresses(text []byte, of []netip.Addr) error {
	c, err := config.Decode(text)
	if err != nil {
		return err
	}
	own := map[netip.Addr]string{}
	for _, a := range of {
		own[a] = "an interface"
	}
	return config.CheckAddresses(c, own)
}

// A node that is not as it should be shows what it was asked for, and ends with a code of its own.
func TestAsksANodeWithProblems(t *testing.T) {
	in := inCluster(t)
	in.Culvert = filepath.Join(t.TempDir(), "culvert")
	for script, ok := range map[string]bool{
		`echo '{"version": "v1"}'`: true, `echo '{"version": "v1"}'; exit 3`: true, "exit 3": false, `echo '{"version": "v1"}'; exit 1`: false, "echo nonsense; exit 3": false,
	} {
		if err := os.WriteFile(in.Culvert, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := Status(t.Context(), in, in.Node("x"))
		if ok != (err == nil) || ok != (s.Version == "v1") {
			t.Errorf("%s: %+v, %v", script, s, err)
		}
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
	text := isisText(a.FRR.ISIS, l, a)
	for _, want := range []string{"interface b\n", "isis metric 30", "0000.0007.00", "permit fc00:0:1::/48"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "interface c\n") || strings.Index(text, "prefix-list") > strings.Index(text, "\nrouter isis") {
		t.Errorf("configuration\n%s", text)
	}
}
