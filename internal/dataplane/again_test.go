package dataplane

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// idle are data paths of tests that are over, by their limits: the verifier takes a second
// for each that is loaded.
var idle = struct {
	sync.Mutex
	of map[string][]*loaded
}{of: map[string][]*loaded{}}

// loaded is a data path in the kernel, with the programs that some tests load later.
type loaded struct {
	*ebpf.Collection
	later map[string]*ebpf.Program
}

// again lets Open take the maps and the program of an earlier test with the same limits.
// They are emptied before. A data path that is pinned, or of another build, is loaded.
func again(t testing.TB, opts Options) Options {
	t.Helper()
	if opts.PinPath != "" || opts.edit != nil {
		return opts
	}
	var coll *loaded
	opts.collect = func(spec *ebpf.CollectionSpec, more ebpf.CollectionOptions) (_ *ebpf.Collection, err error) {
		if len(more.MapReplacements) > 0 {
			return coll.loadLater(spec, more)
		}
		key := idleKey(opts)
		if coll, err = takeIdle(key, spec); err != nil {
			return nil, err
		}
		t.Cleanup(func() { // after Close
			idle.Lock()
			defer idle.Unlock()
			idle.of[key] = append(idle.of[key], coll)
		})
		return clone(coll.Collection)
	}
	return opts
}

func idleKey(opts Options) string { return fmt.Sprintf("%+v %d", opts.Limits, opts.N4Places) }

// takeIdle returns one that is idle, emptied, or else a new one.
func takeIdle(key string, spec *ebpf.CollectionSpec) (*loaded, error) {
	idle.Lock()
	defer idle.Unlock()
	list := idle.of[key]
	if len(list) == 0 {
		coll, err := ebpf.NewCollection(spec)
		return &loaded{coll, map[string]*ebpf.Program{}}, err
	}
	coll := list[len(list)-1]
	idle.of[key] = list[:len(list)-1]
	for name, m := range coll.Maps {
		if err := empty(m); err != nil {
			return nil, fmt.Errorf("empty %s: %w", name, err)
		}
	}
	return coll, nil
}

// loadLater loads programs beside those that run, once for each data path. Those that have
// maps of their own are not kept.
func (l *loaded) loadLater(spec *ebpf.CollectionSpec, more ebpf.CollectionOptions) (*ebpf.Collection, error) {
	for name := range spec.Maps {
		if more.MapReplacements[name] == nil {
			return ebpf.NewCollectionWithOptions(spec, more)
		}
	}
	out := &ebpf.Collection{Programs: map[string]*ebpf.Program{}}
	for name := range spec.Programs {
		if l.later[name] == nil {
			coll, err := ebpf.NewCollectionWithOptions(spec, more)
			if err != nil {
				return nil, err
			}
			maps.Copy(l.later, coll.Programs)
			coll.Programs = nil
			coll.Close()
		}
		own, err := l.later[name].Clone()
		if err != nil {
			return nil, err
		}
		out.Programs[name] = own
	}
	return out, nil
}

// clone has file descriptors of its own, which the data path closes.
func clone(coll *ebpf.Collection) (*ebpf.Collection, error) {
	out := &ebpf.Collection{Programs: map[string]*ebpf.Program{}, Maps: map[string]*ebpf.Map{}}
	for name, p := range coll.Programs {
		own, err := p.Clone()
		if err != nil {
			return nil, err
		}
		out.Programs[name] = own
	}
	for name, m := range coll.Maps {
		own, err := m.Clone()
		if err != nil {
			return nil, err
		}
		out.Maps[name] = own
	}
	return out, nil
}

// fill writes an entry that is not zero into a map. What only the program can write, a
// packet wrote before.
func fill(t *testing.T, d *DataPlane, m *ebpf.Map) {
	t.Helper()
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	switch m.Type() {
	case ebpf.RingBuf:
	case ebpf.ProgramArray:
		must(t, m.Put(uint32(1), d.prog))
	case ebpf.DevMap:
		must(t, m.Put(uint32(1), uint32(1)))
	case ebpf.CPUMap:
		value[0] = 64 // entries of its queue
		must(t, m.Put(key, value))
	case ebpf.Array, ebpf.PerCPUArray:
		ones := make([]byte, m.MaxEntries()*stride(m))
		for i := range ones {
			ones[i] = 0xff
		}
		must(t, writeArray(m, ones))
	default:
		value[len(value)-1] = 1
		must(t, m.Put(key, value)) // of a trie the shortest prefix
	}
}

// TestDataPathOfAnEarlierTestIsEmpty fills every map of a data path: whoever gets it next
// finds nothing of that.
func TestDataPathOfAnEarlierTestIsEmpty(t *testing.T) {
	limits := sessionLimits
	limits.Filters++ // so that no other test has it
	opts := Options{Limits: limits, N4Places: 64}
	t.Run("fill", func(t *testing.T) {
		d := sessionRig(t, opts)
		wantReason(t, d, "of no session", uplinkFrame(99, "10.45.0.5", "192.0.2.1", 80), "teid_unknown")
		for name, m := range d.maps {
			fill(t, d, m)
			if m.Type() != ebpf.RingBuf && len(contents(t, m)) == 0 {
				t.Errorf("nothing is in %s (%v)", name, m.Type())
			}
		}
		if unread(t, d.maps[abi.MapSlowPath]) == 0 {
			t.Error("no record is on the way to the daemon")
		}
	})
	coll, err := takeIdle(idleKey(opts), nil) // without a specification none can be made
	must(t, err)
	defer coll.Close()
	for name, m := range coll.Maps {
		if found := contents(t, m); len(found) > 0 {
			t.Errorf("%s (%v): %d entries are left, the first %x", name, m.Type(), len(found), found[0])
		}
		if m.Type() == ebpf.RingBuf && unread(t, m) != 0 {
			t.Errorf("%s: %d octets are left", name, unread(t, m))
		}
	}
}
