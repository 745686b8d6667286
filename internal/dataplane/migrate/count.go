package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/culvert-net/culvert/internal/dataplane/counter"
)

// Counts are what the counters of copied tables, which have one for each CPU (struct counter
// in bpf/def/tables.h), had counted when they were copied. The zero value has none.
type Counts struct {
	tables []counts
}

type counts struct {
	table *Table
	adder *ebpf.Program
}

// octetsOfCounter are packets and bytes, of 8 octets each.
const octetsOfCounter = 16

func counterOf(value []byte) counter.Counter {
	return counter.Counter{Packets: binary.NativeEndian.Uint64(value), Bytes: binary.NativeEndian.Uint64(value[8:])}
}

// Note has Copy note what the entries of a table have counted, and says whether they do.
func (c *Counts) Note(t *Table) (counting bool, err error) {
	if t.Spec.Type != ebpf.PerCPUArray || t.Spec.Value.TypeName() != "counter" || t.Spec.ValueSize != octetsOfCounter || t.From.ValueSize() != octetsOfCounter {
		return false, nil
	}
	adder, err := newAdder(t.Map)
	if err != nil {
		return false, err
	}
	t.counted = make([]counter.Counter, t.From.MaxEntries())
	c.tables = append(c.tables, counts{t, adder})
	return true, nil
}

// newAdder makes a program that adds packets and bytes to an entry: what it runs on is the
// index, 4 octets, the packets and the bytes. It adds to the counter of the CPU that it runs
// on, in two instructions, so that no packet there comes between.
func newAdder(m *ebpf.Map) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "culvert_add", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), // data
			asm.LoadMem(asm.R7, asm.R1, 4, asm.Word), // data_end
			asm.Mov.Reg(asm.R2, asm.R6),
			asm.Add.Imm(asm.R2, octetsOfAddition),
			asm.JGT.Reg(asm.R2, asm.R7, "out"),
			asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord),
			asm.LoadMem(asm.R9, asm.R6, 16, asm.DWord),
			asm.LoadMem(asm.R2, asm.R6, 0, asm.Word),
			asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.StoreXAdd(asm.R0, asm.R8, asm.DWord),
			asm.Add.Imm(asm.R0, 8),
			asm.StoreXAdd(asm.R0, asm.R9, asm.DWord),
			asm.Mov.Imm(asm.R0, 2).WithSymbol("out"), // XDP_PASS
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load what adds to counters: %w", err)
	}
	return p, nil
}

const octetsOfAddition = 24

// Add adds what the former entries counted since the tables were copied, or since the last Add.
func (c *Counts) Add() error {
	for _, of := range c.tables {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		t := of.table
		err = t.readArray(cpus, func(keys []uint32, values reflect.Value) error {
			for i, key := range keys {
				var now counter.Counter
				for cpu := range cpus {
					now.Add(counterOf(values.Index(i*cpus + cpu).Bytes()))
				}
				was := t.counted[key]
				index := t.Moves.To(key)
				if now == was || index == 0 && key != 0 || index >= t.Map.MaxEntries() {
					continue
				}
				t.counted[key] = now
				in := binary.NativeEndian.AppendUint64(nil, uint64(index))
				in = binary.NativeEndian.AppendUint64(in, now.Packets-was.Packets)
				in = binary.NativeEndian.AppendUint64(in, now.Bytes-was.Bytes)
				if _, err := of.adder.Run(&ebpf.RunOptions{Data: in}); err != nil {
					return fmt.Errorf("add to a counter: %w", err)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("table %s: %w", t.Spec.Name, err)
		}
	}
	return nil
}

// Close ends the use of the tables.
func (c *Counts) Close() error {
	var errs []error
	for _, of := range c.tables {
		errs = append(errs, of.adder.Close())
	}
	c.tables = nil
	return errors.Join(errs...)
}
