package class

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestWithin(t *testing.T) {
	outer := Match{Namespaces: []string{"shop", "bank"}, PodLabels: map[string]string{"tier": "front"}, DSCP: []uint16{10, 46}, Destinations: []netip.Prefix{prefix("10.0.0.0/8")}}
	m := Match{Namespaces: []string{"shop"}, PodLabels: map[string]string{"app": "web"}, DSCP: []uint16{46}, Destinations: []netip.Prefix{prefix("10.7.0.0/16")}}
	want := m
	want.PodLabels = map[string]string{"tier": "front", "app": "web"}
	if got, errs := m.Within(outer); len(errs) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, errs)
	}
	if got, errs := (Match{}).Within(outer); len(errs) > 0 || !reflect.DeepEqual(got, outer) {
		t.Errorf("what asks for nothing: %+v, %v", got, errs)
	}
	if got, errs := m.Within(Match{}); len(errs) > 0 || !reflect.DeepEqual(got, m) {
		t.Errorf("in what has everything: %+v, %v", got, errs)
	}
	for words, wide := range map[string]Match{
		"namespaces[0]: other is beyond":          {Namespaces: []string{"other"}},
		"dscp[1]: 12 is beyond":                   {DSCP: []uint16{46, 12}},
		"destinations[0]: 10.0.0.0/7 is beyond":   {Destinations: []netip.Prefix{prefix("10.0.0.0/7")}},
		`pod_labels.tier: "back" is not what the`: {PodLabels: map[string]string{"tier": "back"}},
	} {
		if _, errs := wide.Within(outer); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), words) {
			t.Errorf("want %q, got %v", words, errs)
		}
	}
}

func TestWithinVLANsAndSources(t *testing.T) {
	outer := Match{Interfaces: []string{"eth1"}, VLANs: []uint16{100, 200}, Sources: []netip.Prefix{prefix("10.1.0.0/16")}}
	m := Match{VLANs: []uint16{200}, Sources: []netip.Prefix{prefix("10.1.7.0/24")}}
	want := Match{Interfaces: outer.Interfaces, VLANs: m.VLANs, Sources: m.Sources}
	if got, errs := m.Within(outer); len(errs) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, errs)
	}
	if _, errs := (Match{VLANs: []uint16{300}, Sources: []netip.Prefix{prefix("10.0.0.0/8")}}).Within(outer); len(errs) != 2 {
		t.Errorf("want two, got %v", errs)
	}
}
