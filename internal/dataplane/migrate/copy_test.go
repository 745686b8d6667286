package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

func integer(octets uint32) btf.Type {
	return &btf.Int{Name: fmt.Sprintf("__u%d", 8*octets), Size: octets}
}

// structure lays fields out as they come: names and types in turn.
func structure(name string, fields ...any) *btf.Struct {
	s := &btf.Struct{Name: name}
	for i := 0; i < len(fields); i += 2 {
		t := fields[i+1].(btf.Type)
		size, err := btf.Sizeof(t)
		if err != nil {
			panic(err)
		}
		s.Members = append(s.Members, btf.Member{Name: fields[i].(string), Type: t, Offset: btf.Bits(8 * s.Size)})
		s.Size += uint32(size)
	}
	return s
}

func array(of btf.Type, n uint32) btf.Type { return &btf.Array{Index: integer(4), Type: of, Nelems: n} }

// The former value and this build's: `a` moved, `b` became wider, `c` is gone, `d` has an
// element more and its elements another field, `e` is narrower, `new` is new.
var (
	formerValue = structure("value", "c", integer(8), "a", integer(4), "b", integer(2), "e", integer(2),
		"d", array(structure("pair", "x", integer(4), "y", integer(4)), 2))
	nextValue = structure("value", "d", array(structure("pair", "new", integer(4), "y", integer(4), "x", integer(4)), 3),
		"b", integer(8), "a", integer(4), "e", integer(1), "new", array(integer(1), 7))
)

// value is what a former entry has, and what this build's is to have: of number n.
func values(n uint32) (former, next []byte) {
	le := binary.LittleEndian
	former = le.AppendUint64(nil, 0xdead)
	former = le.AppendUint32(former, n)
	former = le.AppendUint16(former, 0xfff0)
	former = le.AppendUint16(former, 0xbeef)
	for _, v := range []uint32{10, 11, 20, 21} {
		former = le.AppendUint32(former, v)
	}
	for _, v := range []uint32{0, 11, 10, 0, 21, 20, 0, 0, 0} {
		next = le.AppendUint32(next, v)
	}
	next = le.AppendUint64(next, 0xfff0)
	next = le.AppendUint32(next, n)
	return former, append(next, make([]byte, 8)...)
}

func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the test makes eBPF maps (CAP_BPF)")
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func spec(kind ebpf.MapType, key, value btf.Type, n, flags uint32) *ebpf.MapSpec {
	k, _ := btf.Sizeof(key)
	v, _ := btf.Sizeof(value)
	return &ebpf.MapSpec{Name: "table", Type: kind, Key: key, Value: value, KeySize: uint32(k), ValueSize: uint32(v), MaxEntries: n, Flags: flags}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCopyArray(t *testing.T) {
	t.Run("by system calls", func(t *testing.T) { testCopyArray(t, 0) })
	t.Run("in memory", func(t *testing.T) { testCopyArray(t, unix.BPF_F_MMAPABLE) })
}

func testCopyArray(t *testing.T, flags uint32) {
	const n = 3 * batch / 2 // which no number of batches fills
	from := newMap(t, spec(ebpf.Array, integer(4), formerValue, n, flags))
	for _, i := range []uint32{0, 1, batch - 1, batch, n - 1} {
		former, _ := values(i + 1)
		must(t, from.Put(i, former))
	}
	next := spec(ebpf.Array, integer(4), nextValue, n+7, flags)
	to := newMap(t, next)
	table := &Table{Map: to, Spec: next, From: from}
	must(t, table.Copy())
	for i := range uint32(n + 7) {
		var got []byte
		must(t, to.Lookup(i, &got))
		want := make([]byte, nextValue.Size)
		switch i {
		case 0, 1, batch - 1, batch, n - 1:
			_, want = values(i + 1)
		}
		if string(got) != string(want) {
			t.Fatalf("entry %d is %x, want %x", i, got, want)
		}
	}
	small := spec(ebpf.Array, integer(4), nextValue, n-1, flags)
	if err := (&Table{Map: newMap(t, small), Spec: small, From: from}).Copy(); !errors.Is(err, ErrTooSmall) {
		t.Errorf("into an array that is too small: %v", err)
	}
	must(t, from.Put(uint32(n-1), make([]byte, formerValue.Size)))
	must(t, (&Table{Map: newMap(t, small), Spec: small, From: from}).Copy())
}

// Entries of keys: the key has a field more, which is 0 in what was there.
func TestCopyEntries(t *testing.T) {
	formerKey := structure("key", "prefixlen", integer(4), "addr", array(integer(1), 4))
	nextKey := structure("key", "prefixlen", integer(4), "addr", array(integer(1), 4), "more", integer(4))
	for _, kind := range []ebpf.MapType{ebpf.Hash, ebpf.LRUHash, ebpf.LPMTrie} {
		flags := uint32(0)
		if kind == ebpf.LPMTrie {
			flags = unix.BPF_F_NO_PREALLOC
		}
		from := newMap(t, spec(kind, formerKey, formerValue, 64, flags))
		for i := range byte(20) {
			former, _ := values(uint32(i))
			must(t, from.Put([]byte{32, 0, 0, 0, 10, 0, 0, i}, former))
		}
		next := spec(kind, nextKey, nextValue, 64, flags)
		to := newMap(t, next)
		must(t, (&Table{Map: to, Spec: next, From: from}).Copy())
		for i := range byte(20) {
			var got []byte
			must(t, to.Lookup([]byte{32, 0, 0, 0, 10, 0, 0, i, 0, 0, 0, 0}, &got))
			if _, want := values(uint32(i)); string(got) != string(want) {
				t.Errorf("%s: entry %d is %x, want %x", kind, i, got, want)
			}
		}
		if kind == ebpf.LRUHash { // which forgets the oldest
			continue
		}
		small := spec(kind, nextKey, nextValue, 10, flags)
		if err := (&Table{Map: newMap(t, small), Spec: small, From: from}).Copy(); !errors.Is(err, ErrTooSmall) {
			t.Errorf("%s: into a table that is too small: %v", kind, err)
		}
	}
}

func TestCopyOfCPUs(t *testing.T) {
	former := structure("counter", "packets", integer(8))
	next := structure("counter", "bytes", integer(8), "packets", integer(8))
	cpus := ebpf.MustPossibleCPU()
	from := newMap(t, spec(ebpf.PerCPUArray, integer(4), former, 3, 0))
	put := make([]uint64, cpus)
	for i := range put {
		put[i] = uint64(i + 1)
	}
	must(t, from.Put(uint32(1), put))
	of := spec(ebpf.PerCPUArray, integer(4), next, 3, 0)
	to := newMap(t, of)
	must(t, (&Table{Map: to, Spec: of, From: from}).Copy())
	got := make([][2]uint64, cpus)
	must(t, to.Lookup(uint32(1), &got))
	for i, v := range got {
		if v != [2]uint64{0, uint64(i + 1)} {
			t.Errorf("CPU %d has %v", i, v)
		}
	}
}

// Entries get other indices, and what refers to them is changed; others are left out.
func TestMoves(t *testing.T) {
	t.Run("by system calls", func(t *testing.T) { testMoves(t, 0) })
	t.Run("in memory", func(t *testing.T) { testMoves(t, unix.BPF_F_MMAPABLE) })
}

func testMoves(t *testing.T, flags uint32) {
	const n = 8
	number := structure("number", "n", integer(4), "pad", integer(4))
	from := newMap(t, spec(ebpf.Array, integer(4), number, n, flags))
	for i := range uint32(n) {
		must(t, from.Put(i, uint64(100+i)))
	}
	moves := make(Moves, n)
	moves.Shift(Range{1, 3}, 2)
	if used := moves.Fit(Range{4, n}, Range{4, 6}, func(i uint32) bool { return i != 4 }, []uint32{3}); used != 4 {
		t.Errorf("%d entries are to fit, want 4", used)
	}
	if want := fmt.Sprint([]uint32{0, 2, 3, 0, 0, 5, 4, 0}); fmt.Sprint(moves) != want { // two fit
		t.Errorf("they move to %v, want %s", moves, want)
	}
	next := spec(ebpf.Array, integer(4), number, 6, flags)
	set := Set{"table": {Map: newMap(t, next), Spec: next, From: from}}
	set.Move(moves, "table", "missing")
	set.Edit("table", func(index uint32, _, value []byte) bool {
		*As[uint32](value) += 1000
		return index != 2
	})
	must(t, set["table"].Copy())
	for i, want := range []uint64{1100, 0, 1101, 0, 1106, 1105} {
		var got uint64
		if must(t, set["table"].Map.Lookup(uint32(i), &got)); got != want {
			t.Errorf("entry %d is %d, want %d", i, got, want)
		}
	}
	seen := 0
	must(t, set.Each("table", func(index uint32, _, value []byte) {
		if seen++; *As[uint32](value) != 100+index {
			t.Errorf("formerly entry %d was %d", index, *As[uint32](value))
		}
	}))
	must(t, set.Each("missing", nil))
	if seen != n {
		t.Errorf("there were %d entries, want %d", seen, n)
	}
}

// Keys can be edited, entries added and left out.
func TestEditEntries(t *testing.T) {
	of := spec(ebpf.Hash, integer(4), integer(4), 8, unix.BPF_F_NO_PREALLOC)
	from := newMap(t, of)
	for i := range uint32(3) {
		must(t, from.Put(i, i))
	}
	set := Set{"table": {Map: newMap(t, of), Spec: of, From: from}}
	Add(set, "table", uint32(7), uint32(70))
	Add(set, "missing", uint32(7), uint32(70))
	set.Edit("table", func(_ uint32, key, value []byte) bool {
		*As[uint32](key) += 10
		return *As[uint32](value) != 1
	})
	must(t, set["table"].Copy())
	var key, value uint32
	got := map[uint32]uint32{}
	for it := set["table"].Map.Iterate(); it.Next(&key, &value); {
		got[key] = value
	}
	if want := "map[7:70 10:0 12:2]"; fmt.Sprint(got) != want {
		t.Errorf("the table has %v, want %s", got, want)
	}
}

// What each CPU counts after the copy is added, also where the entry has moved.
func TestCounts(t *testing.T) {
	count := structure("counter", "packets", integer(8), "bytes", integer(8))
	of, next := spec(ebpf.PerCPUArray, integer(4), count, 4, 0), spec(ebpf.PerCPUArray, integer(4), count, 3, 0)
	from, to := newMap(t, of), newMap(t, next)
	cpus := ebpf.MustPossibleCPU()
	put := func(m *ebpf.Map, i uint32, packets uint64) {
		each := make([][2]uint64, cpus)
		for c := range each {
			each[c] = [2]uint64{packets + uint64(c), 100 * packets}
		}
		must(t, m.Put(i, each))
	}
	sum := func(m *ebpf.Map, i uint32) (out [2]uint64) {
		var each [][2]uint64
		must(t, m.Lookup(i, &each))
		for _, c := range each {
			out[0], out[1] = out[0]+c[0], out[1]+c[1]
		}
		return out
	}
	put(from, 1, 5)
	put(from, 3, 7)
	table := &Table{Map: to, Spec: next, From: from, Moves: Moves{0, 1, 0, 2}}
	var c Counts
	if counting, err := c.Note(table); err != nil || !counting {
		t.Fatalf("it counts: %t, %v", counting, err)
	}
	must(t, table.Copy())
	if got, want := sum(to, 2), sum(from, 3); got != want {
		t.Errorf("copied %v, want %v", got, want)
	}
	put(from, 3, 9)
	put(from, 2, 1) // which has no place
	put(to, 1, 6)   // by a packet that met the new table
	must(t, c.Add())
	must(t, c.Add())
	if got, want := sum(to, 2), sum(from, 3); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got, want := sum(to, 1)[1], uint64(600*cpus); got != want {
		t.Errorf("counted %d octets, want %d", got, want)
	}
	other := spec(ebpf.PerCPUArray, integer(4), structure("other", "a", integer(8), "b", integer(8)), 4, 0)
	if counting, err := c.Note(&Table{Map: newMap(t, other), Spec: other, From: newMap(t, other)}); err != nil || counting {
		t.Errorf("values of another kind count: %t, %v", counting, err)
	}
	must(t, c.Close())
}

func TestUnlikeTables(t *testing.T) {
	from := newMap(t, spec(ebpf.Array, integer(4), formerValue, 3, 0))
	renamed := structure("other", "a", integer(4))
	for what, next := range map[string]*ebpf.MapSpec{
		"another kind":      spec(ebpf.Hash, integer(4), nextValue, 3, 0),
		"another structure": spec(ebpf.Array, integer(4), renamed, 3, 0),
		"a ring":            {Name: "ring", Type: ebpf.RingBuf, MaxEntries: 4096},
	} {
		if err := (&Table{Map: newMap(t, next), Spec: next, From: from}).Copy(); !errors.Is(err, ErrUnlike) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is counted between the copy and Add is added, also where the word turns.
func TestVolumes(t *testing.T) {
	volume := structure("volume", "word", integer(8), "byte_halves", integer(4), "packet_halves", integer(4))
	former := structure("pdr", "volume", volume, "rate", integer(8))
	next := structure("pdr", "rate", integer(8), "volume", volume)
	from := newMap(t, spec(ebpf.Array, integer(4), former, 4, unix.BPF_F_MMAPABLE))
	of := spec(ebpf.Array, integer(4), next, 4, unix.BPF_F_MMAPABLE)
	table := &Table{Map: newMap(t, of), Spec: of, From: from}
	was, err := open(from, 0)
	must(t, err)
	before := counter.Counter{Packets: 1<<24 - 3, Bytes: 1<<40 - 100}
	setVolume(was.volume(2), before)
	must(t, table.Copy())
	var v Volumes
	must(t, v.Note(table))
	to, err := open(table.Map, 1)
	must(t, err)

	counter.AddVolume(was.volume(2), 5<<counter.VolumeByteBits+5000)
	counter.AddVolume(to.volume(2), 1<<counter.VolumeByteBits+64) // a packet that met the new one
	v.Add()
	v.Add()
	if got, want := counter.ReadVolume(to.volume(2)), (counter.Counter{Packets: before.Packets + 6, Bytes: before.Bytes + 5064}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	much := counter.Counter{Packets: 3 << 23, Bytes: 5 << 40}
	setVolume(was.volume(3), much)
	v.Add()
	if got := counter.ReadVolume(to.volume(3)); got != much {
		t.Errorf("counted %+v, want %+v", got, much)
	}
	must(t, v.Close())
}

func setVolume(at []uint64, c counter.Counter) {
	v := counter.VolumeOf(c)
	at[0], at[1] = v.Word, uint64(v.ByteHalves)|uint64(v.PacketHalves)<<32
}
