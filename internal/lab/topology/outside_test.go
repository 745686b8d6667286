package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The UPF of lab core obeys an SMF of the user's beside its own, and has a route to it.
func TestUseSMF(t *testing.T) {
	core := func() *Topology {
		t.Helper()
		l, err := Load("core")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := core()
	if err := UseSMF(l, netip.MustParseAddr("203.0.113.7")); err != nil {
		t.Fatal(err)
	}
	upf := l.Node("upf")
	if got := fmt.Sprint(upf.Config["upf"].(map[string]any)["smfs"]); got != "[10.4.0.2/32 203.0.113.7/32]" {
		t.Errorf("smfs: %s", got)
	}
	for _, item := range upf.Config["interfaces"].([]any) {
		got := fmt.Sprint(item.(map[string]any)["peers"])
		if want := map[string]string{"n4": "[10.4.0.2/32 203.0.113.7/32]", "n3": "[10.1.0.0/24]", "n6": "<nil>"}[NameOf(item)]; got != want {
			t.Errorf("peers of %s: %s, want %s", NameOf(item), got, want)
		}
	}
	if !slices.Contains(upf.Routes, "203.0.113.7/32 via 10.4.0.2") {
		t.Errorf("routes %q", upf.Routes)
	}
	l = core()
	routes := len(l.Node("upf").Routes)
	if err := UseSMF(l, l.Outside.Via); err != nil || len(l.Node("upf").Routes) != routes {
		t.Errorf("the lab's own: %v, routes %q", err, l.Node("upf").Routes)
	}
	for text, want := range map[string]string{
		"127.0.0.1": "no address that the UPF can reach", "224.0.0.1": "no address that", "0.0.0.0": "no address that",
		"2001:db8::1": "different families", "10.4.0.1": "the UPF itself", "192.0.2.254": "the UPF itself",
	} {
		if err := UseSMF(core(), netip.MustParseAddr(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	other, err := Load("slices")
	if err != nil {
		t.Fatal(err)
	}
	if err := UseSMF(other, netip.MustParseAddr("203.0.113.7")); err == nil || !strings.Contains(err.Error(), "lab core has one") {
		t.Errorf("another lab: %v", err)
	}
}

func TestOutsideMistakes(t *testing.T) {
	text, err := read("core")
	if err != nil {
		t.Fatal(err)
	}
	const right = "outside: {node: upf, interface: n4, via: 10.4.0.2}"
	for over, want := range map[string]string{
		"outside: {node: core, interface: n4, via: 10.4.0.2}":   `"core" is no node of kind culvert`,
		"outside: {node: nobody, interface: n4, via: 10.4.0.2}": `"nobody" is no node of kind culvert`,
		"outside: {node: upf, interface: n5, via: 10.4.0.2}":    "has no interface of that name",
		"outside: {node: upf, interface: n4}":                   "via: missing",
	} {
		if _, err := Parse([]byte(strings.Replace(string(text), right, over, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", over, err, want)
		}
	}
	for _, part := range []string{", at: core", `command: ["198.51.100.9", --upf, 10.4.0.1, --n3, 10.1.0.1, --ue, 10.45.0.2],`} {
		broken := strings.ReplaceAll(string(text), part, "")
		if _, err := Parse([]byte(broken)); err == nil || !strings.Contains(err.Error(), "at, command: give the node that reaches N4") {
			t.Errorf("without %s: %v", part, err)
		}
	}
}
