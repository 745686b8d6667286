package counter

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Counter counts packets and bytes (which bytes: docs/reference/semantics.md section 1).
type Counter struct{ Packets, Bytes uint64 }

// Add adds what o counted.
func (c *Counter) Add(o Counter) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}

// Read sums an entry of a per-CPU array over the CPUs.
func Read(m *ebpf.Map, index uint32) (Counter, error) {
	var sum Counter
	each, err := readCPUs(m, index)
	for _, c := range each {
		sum.Add(Counter{c.Packets, c.Bytes})
	}
	return sum, err
}

func readCPUs(m *ebpf.Map, index uint32) (each []abi.Counter, err error) {
	if err := m.Lookup(index, &each); err != nil {
		return nil, fmt.Errorf("read %s: %w", m, err)
	}
	return each, nil
}

// Zero sets an entry to zero on all CPUs.
func Zero(m *ebpf.Map, index uint32) error {
	return Write(m, index, make([]abi.Counter, ebpf.MustPossibleCPU()))
}

// Copy lets one entry go on counting where another stopped.
func Copy(m *ebpf.Map, from, to uint32) error {
	each, err := readCPUs(m, from)
	if err != nil {
		return err
	}
	return Write(m, to, each)
}

// Write sets an entry on each CPU.
func Write(m *ebpf.Map, index uint32, each []abi.Counter) error {
	if err := m.Put(index, each); err != nil {
		return fmt.Errorf("write %s: %w", m, err)
	}
	return nil
}
