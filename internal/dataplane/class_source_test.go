package dataplane

import (
	"testing"

	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// The origins of a port are there until it is set without them, deleted, or swept; equal
// classifiers are one entry, which is free when nothing names it.
func TestOriginsOfPorts(t *testing.T) {
	classifier := func(column uint8) (c class.Classifier) {
		for i := range c {
			c[i] = column
		}
		return c
	}
	origins := []class.Origin{
		{Prefix: prefix("10.1.0.0/16"), Classifier: classifier(1)}, {Prefix: prefix("2001:db8::/32"), Classifier: classifier(1)},
		{VLAN: 100, Prefix: prefix("0.0.0.0/0"), Classifier: classifier(2)}, {VLAN: 100, Prefix: prefix("::/0"), Classifier: classifier(2)},
	}
	path := pinPath(t)
	d := openPinned(t, path)
	expect := func(when string, want, classifiers int) {
		t.Helper()
		if got := d.Usage()[abi.MapClassBySource].Used; got != want {
			t.Errorf("%s: %d origins, want %d", when, got, want)
		}
		named := map[uint32]bool{}
		var k abi.Lpm6Key
		var index uint32
		for it := d.maps[abi.MapClassBySource].Iterate(); it.Next(&k, &index); {
			var c abi.Classifier
			if named[index] = true; d.maps[abi.MapClassifier].Lookup(index, &c) != nil || c.Column[7] == 0 {
				t.Errorf("%s: %+v has classifier %d: %v", when, k, index, c)
			}
		}
		if len(named) != classifiers {
			t.Errorf("%s: %d classifiers, want %d", when, len(named), classifiers)
		}
	}
	must(t, d.Ports.Set(7, port.Port{Roles: port.Edge, Origins: origins}))
	must(t, d.Ports.Set(8, port.Port{Roles: port.Edge, Origins: origins[:2]}))
	expect("set", 6, 2)
	must(t, d.Ports.Set(7, port.Port{Roles: port.Edge, Origins: origins[1:]}))
	expect("set without the first", 5, 2)
	must(t, d.Close())

	d = openPinned(t, path)
	expect("opened again", 5, 2)
	must(t, d.Ports.Set(7, port.Port{Roles: port.Edge, Origins: origins[2:]}))
	expect("set with fewer", 4, 2)
	must(t, d.SetSettings(testSettings()))
	must(t, d.Sweep())
	expect("swept", 2, 1)
	must(t, d.Ports.Delete(7))
	expect("deleted", 0, 0)
	for i := range 300 { // more than there are entries: none is lost
		must(t, d.Ports.Set(7, port.Port{Roles: port.Edge, Origins: []class.Origin{{Prefix: prefix("10.0.0.0/8"), Classifier: classifier(uint8(1 + i%15))}}}))
		d.grace.Wait()
	}
	expect("changed", 1, 1)
}
