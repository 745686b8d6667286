package dataplane

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/inventory"
)

// TestInventory compares what inventory says of the pins with what is loaded: every map and
// program with its sizes, and nothing else.
func TestInventory(t *testing.T) {
	w, path := newWire(t), pinPath(t)
	d := openPinned(t, path)
	w.do(t, func() { // there is a link among the pins, which is no object of its list
		_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
		must(t, err)
	})
	list, err := inventory.Read(path)
	must(t, err)
	found := map[string]inventory.Object{}
	for _, o := range list {
		if strings.HasPrefix(o.Path, "/") || strings.HasPrefix(o.Path, "..") {
			t.Errorf("%s is no path below %s", o.Path, path)
		}
		found[filepath.Base(o.Path)] = o
	}
	if len(found) != len(list) {
		t.Errorf("%d objects have %d names", len(list), len(found))
	}
	spec, err := loadSpec()
	must(t, err)
	for name := range spec.Maps {
		m := d.maps[name]
		if m == nil || strings.HasPrefix(name, ".") {
			continue // constants: they have no pin
		}
		o, is := found[name], *m
		if o.Kind != "map" || o.Type != is.Type().String() || o.KeySize != is.KeySize() || o.ValueSize != is.ValueSize() || o.MaxEntries != is.MaxEntries() || !strings.HasPrefix(name, o.Name) || o.Name == "" {
			t.Errorf("map %s: %+v", name, o)
		}
		if least := uint64(is.MaxEntries()) * uint64(is.ValueSize()); is.Type() == ebpf.Array && o.Memory < least {
			t.Errorf("map %s: %d octets of memory, its entries alone have %d", name, o.Memory, least)
		}
		delete(found, name)
	}
	if o := found[abi.ProgCulvertXdp]; o.Kind != "program" || o.Type != "XDP" || o.Jited == 0 || o.Memory < uint64(o.Jited) {
		t.Errorf("program: %+v", o)
	}
	for name, o := range found {
		if o.Kind != "program" || spec.Programs[name] == nil {
			t.Errorf("%s is in no object: %+v", name, o)
		}
	}
	must(t, d.Close())
	// Where nothing is pinned there is nothing, as JSON []; elsewhere it says so.
	if none, err := inventory.Read(pinParent(t)); err != nil || none == nil || len(none) != 0 {
		t.Errorf("an empty directory: %v, %v", none, err)
	}
	if _, err := inventory.Read(t.TempDir()); err == nil {
		t.Error("a directory that is on no bpffs is read")
	}
	if _, err := inventory.Read(filepath.Join(path, "none")); err == nil {
		t.Error("a directory that is not there is read")
	}
}
