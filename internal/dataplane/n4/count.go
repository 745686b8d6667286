package n4

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Counts are what became of PFCP messages to this node, by ports with the role n4.
type Counts struct {
	Heartbeats    uint64 `json:"heartbeats"`    // answered by the data path
	Modifications uint64 `json:"modifications"` // answered by the data path
	Repeated      uint64 `json:"repeated"`      // modifications that it answered again
	Left          uint64 `json:"left"`          // to the daemon
}

// ReadCounts reads the map n4_count.
func ReadCounts(m *ebpf.Map) (Counts, error) {
	var sums [abi.N4FateN4COUNTS]uint64
	for i := range sums {
		var each []uint64
		if err := m.Lookup(uint32(i), &each); err != nil {
			return Counts{}, fmt.Errorf("read %s: %w", m, err)
		}
		for _, n := range each {
			sums[i] += n
		}
	}
	return Counts{
		Heartbeats: sums[abi.N4FateN4HEARTBEATS], Modifications: sums[abi.N4FateN4MODIFICATIONS],
		Repeated: sums[abi.N4FateN4REPEATED], Left: sums[abi.N4FateN4LEFT],
	}, nil
}
