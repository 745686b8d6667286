package watch

import (
	"fmt"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/agent"
)

// traffic is what an interface received and sent, as the kernel counts it: with all programs,
// and with what the kernel itself sends.
type traffic struct{ received, sent agent.Counter }

// ports returns the traffic of each interface, by name.
func ports() (map[string]traffic, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("counters of interfaces: %w", err)
	}
	list, err := fs.NetDev()
	if err != nil {
		return nil, fmt.Errorf("counters of interfaces: %w", err)
	}
	out := map[string]traffic{}
	for name, v := range list {
		out[name] = traffic{agent.Counter{Packets: v.RxPackets, Bytes: v.RxBytes}, agent.Counter{Packets: v.TxPackets, Bytes: v.TxBytes}}
	}
	return out, nil
}
