package pod

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// directions are entries of flow_budget of a pod.
const directions = uint32(abi.FlowLimitsFLOW_DIRECTIONS)

// beginRecords makes a new pod's budget: nobody's records.
func (t *Table) beginRecords(p *pod) error {
	for i := range directions {
		if err := t.counts.Records.Put(p.index*directions+i, make([]abi.FlowBudget, ebpf.MustPossibleCPU())); err != nil {
			return fmt.Errorf("write table flow_budget: %w", err)
		}
	}
	return nil
}

// LeftOut is how many records of flows were left out, by the ifindex of the pods that made too
// many; 0: those of the node's own packets.
func (t *Table) LeftOut() (map[int]uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[int]uint64{}
	add := func(ifindex int, index uint32) error {
		for i := range directions {
			var each []abi.FlowBudget
			if err := t.counts.Records.Lookup(index*directions+i, &each); err != nil {
				return fmt.Errorf("read table flow_budget: %w", err)
			}
			for _, b := range each {
				out[ifindex] += b.LeftOut
			}
		}
		return nil
	}
	err := add(0, 0)
	for ifindex, p := range t.pods {
		if err == nil {
			err = add(ifindex, p.index)
		}
	}
	return out, err
}
