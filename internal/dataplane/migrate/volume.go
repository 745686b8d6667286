package migrate

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Volumes are what entries of copied tables had counted (struct volume in
// bpf/def/tables.h) when they were copied. The zero value has none.
type Volumes struct {
	tables []volumes
}

type volumes struct {
	to, from side
	moves    Moves
	counted  []counter.Counter // by former entry
}

// side is a table in our memory.
type side struct {
	words      []uint64
	stride, at int // words
}

func (s *side) volume(i int) []uint64 { return s.words[i*s.stride+s.at:][:counter.VolumeWords] }

// Note notes what the entries of a table that was just copied have counted, if they do.
func (v *Volumes) Note(t *Table) (err error) {
	at, counts := volumeOf(t.Spec.Value)
	was, counted := volumeOf(t.FormerValue)
	if !counts || !counted || t.Map.Flags()&t.From.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return nil
	}
	n := volumes{moves: t.Moves}
	if n.to, err = open(t.Map, at); err != nil {
		return err
	}
	v.tables = append(v.tables, n)
	last := &v.tables[len(v.tables)-1]
	if last.from, err = open(t.From, was); err != nil {
		return err
	}
	last.counted = make([]counter.Counter, t.From.MaxEntries())
	for i := range last.counted {
		if at := last.volume(i); at != nil {
			last.counted[i] = counter.ReadVolume(at)
		}
	}
	return nil
}

// volume is that of a former entry, where it is now; nil: nowhere.
func (v *volumes) volume(i int) []uint64 {
	at := v.moves.To(uint32(i))
	if at == 0 && i != 0 || int(at) >= len(v.to.words)/v.to.stride {
		return nil
	}
	return v.to.volume(int(at))
}

// volumeOf is where the entries of a table have their volume, in words.
func volumeOf(value btf.Type) (at int, counts bool) {
	s, ok := value.(*btf.Struct)
	if !ok {
		return 0, false
	}
	for _, m := range s.Members {
		if m.Type.TypeName() == "volume" && m.Offset.Bytes()%8 == 0 {
			return int(m.Offset.Bytes() / 8), true
		}
	}
	return 0, false
}

func open(m *ebpf.Map, at int) (s side, err error) {
	s = side{stride: int(m.ValueSize() / 8), at: at}
	s.words, err = table.Map(m)
	return s, err
}

// Add adds what the former entries counted since Note, or since the last Add.
func (v *Volumes) Add() {
	for _, t := range v.tables {
		for i := range t.counted {
			at := t.volume(i)
			if at == nil {
				continue
			}
			now := counter.ReadVolume(t.from.volume(i))
			rest := counter.Counter{Packets: now.Packets - t.counted[i].Packets, Bytes: now.Bytes - t.counted[i].Bytes}
			t.counted[i] = now
			for rest != (counter.Counter{}) { // a volume takes so much at once
				part := counter.Counter{Packets: min(rest.Packets, 1<<20), Bytes: min(rest.Bytes, 1<<36)}
				counter.AddVolume(at, part.Packets<<counter.VolumeByteBits+part.Bytes)
				rest.Packets, rest.Bytes = rest.Packets-part.Packets, rest.Bytes-part.Bytes
			}
		}
	}
}

// Close ends the use of the tables.
func (v *Volumes) Close() error {
	var errs []error
	for _, t := range v.tables {
		errs = append(errs, table.Unmap(t.to.words), table.Unmap(t.from.words))
	}
	v.tables = nil
	return errors.Join(errs...)
}
