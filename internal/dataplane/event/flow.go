package event

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/flow"
)

// flowPeriod is how often records of flows are looked for: what the ring holds is enough for
// 80,000 records in a second.
const flowPeriod = 100 * time.Millisecond

// Flows are records of pods' flows.
type Flows struct {
	mu    *sync.Mutex
	rings *Rings
	list  func(index uint32) (policy string, list int)
	class func(index uint32) string

	lists   map[uint32]listName
	classes map[uint32]string
}

type listName struct {
	policy string
	list   int
}

// NewFlows takes what gives names to segment lists and traffic classes, under the data path's
// lock, mu.
func NewFlows(mu *sync.Mutex, rings *Rings, list func(uint32) (string, int), class func(uint32) string) *Flows {
	return &Flows{mu: mu, rings: rings, list: list, class: class}
}

// Read calls f for each record until ctx ends, and now and then after, when it has read all.
// There is one reader at a time.
func (f *Flows) Read(ctx context.Context, each func(flow.Record), after func()) error {
	var boot time.Time // when the clock of records began
	forget := func() {
		f.lists, f.classes, boot = map[uint32]listName{}, map[uint32]string{}, time.Time{}
	}
	forget()
	return read(ctx, f.rings, abi.MapFlowRecords, flowPeriod, func(r *abi.FlowRecord) {
		if boot.IsZero() {
			now, err := table.Monotonic()
			if err != nil {
				now = r.Time
			}
			boot = time.Now().Add(-time.Duration(now))
		}
		each(f.record(r, boot))
	}, func() {
		after()
		forget()
	})
}

// record says what the numbers mean.
func (f *Flows) record(r *abi.FlowRecord, boot time.Time) flow.Record {
	why := reason.Reason(r.Reason)
	out := flow.Record{
		Time: boot.Add(time.Duration(r.Time)), Protocol: r.Protocol, Flags: r.TcpFlags, Tenant: abi.TenantOf(r.Tenant),
		Where: flow.Where(r.Where), Pod: int(r.Pod), Packets: uint64(r.Packets), Octets: uint64(r.Bytes), Sampling: r.Sampling,
		Dropped: why.Drop(), Reason: why.String(),
	}
	if r.Version != 0 {
		out.Source, out.Destination = flowEnd(r.Src, r.SrcPort), flowEnd(r.Dst, r.DstPort)
	}
	if r.List != 0 {
		name, known := f.lists[r.List]
		if !known {
			f.mu.Lock()
			name.policy, name.list = f.list(r.List)
			f.mu.Unlock()
			f.lists[r.List] = name
		}
		out.Policy, out.List = name.policy, name.list
	}
	if index := uint32(r.ClassIndex); index != 0 {
		name, known := f.classes[index]
		if !known {
			f.mu.Lock()
			name = f.class(index)
			f.mu.Unlock()
			f.classes[index] = name
		}
		out.Class = name
	}
	return out
}

// flowEnd is an address and a port, which is in network byte order.
func flowEnd(a abi.In6, port uint16) netip.AddrPort {
	b := binary.NativeEndian.AppendUint16(nil, port)
	return netip.AddrPortFrom(netip.AddrFrom16(a.B).Unmap(), binary.BigEndian.Uint16(b))
}
