package event

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
)

// TraceFilter selects the packets to trace: those that match every field that is
// set. The addresses are those of the outer header on arrival.
type TraceFilter struct {
	Source, Destination netip.Prefix
	Ifindex             int
	DropsOnly           bool
}

// TraceEvent is one packet's journey. What it did not meet is left zero.
type TraceEvent struct {
	Time            uint64 // ns, CLOCK_MONOTONIC
	Ifindex, Egress int
	SID             netip.Prefix
	Target          string // pass, policy, tunnel, H.M.GTP4.D, UE or link
	Policy, Tunnel  string
	List            int // which of the policy's segment lists; -1: none
	Adjacency       adjacency.Key
	Session         uint64 // and its rule, where Session is not 0
	Rule            uint16
	Reason          reason.Reason
	Verdict         string // XDP action
	// In and Out are the first bytes of the frame as received and as sent, of
	// InLength and OutLength bytes.
	InLength, OutLength int
	In, Out             []byte
}

// Tracer records packets' journeys.
type Tracer struct {
	mu       *sync.Mutex
	settings *settings.Book
	filter   *ebpf.Map
	rings    *Rings
	since    uint64
	name     func(*TraceEvent, *abi.TraceEvent)
}

// NewTracer takes the map trace_filter. name says in an event what the indices in
// its record mean, under the lock; mu is the data path's.
func NewTracer(mu *sync.Mutex, book *settings.Book, filter *ebpf.Map, rings *Rings, name func(*TraceEvent, *abi.TraceEvent)) *Tracer {
	return &Tracer{mu: mu, settings: book, filter: filter, rings: rings, name: name}
}

// Set lets the data path record the packets that a filter takes; nil:
// none.
func (t *Tracer) Set(f *TraceFilter) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f == nil {
		t.settings.Change(func(s *abi.Settings) { s.Trace = 0 })
		return nil
	}
	var e abi.TraceFilter
	e.Source, e.SourceMask = valueAndMask(f.Source)
	e.Destination, e.DestinationMask = valueAndMask(f.Destination)
	e.Ifindex = uint32(f.Ifindex)
	abi.SetFlag(&e.DropsOnly, f.DropsOnly)
	if t.settings.Get().Trace == 0 {
		now, err := table.Monotonic()
		if err != nil {
			return err
		}
		t.since = now
	}
	if err := t.filter.Put(uint32(0), &e); err != nil {
		return fmt.Errorf("write table trace_filter: %w", err)
	}
	t.settings.Change(func(s *abi.Settings) { s.Trace = 1 })
	return nil
}

// valueAndMask is a prefix as the data path compares it; IPv4 as IPv4-mapped.
func valueAndMask(p netip.Prefix) (value, mask abi.In6) {
	if !p.IsValid() {
		return value, mask
	}
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	binary.BigEndian.PutUint64(mask.B[:8], abi.Ones(n))
	binary.BigEndian.PutUint64(mask.B[8:], abi.Ones(n-64))
	return abi.In6Of(p.Masked().Addr()), mask
}

// Read calls f for each packet that the filter takes, until ctx ends. What an
// earlier trace left unread is skipped. There is one reader at a time.
func (t *Tracer) Read(ctx context.Context, f func(TraceEvent)) error {
	return Read(ctx, t.rings, abi.MapTraceEvents, func(r *abi.TraceEvent) {
		if r.Time >= t.started() {
			f(t.Event(r))
		}
	})
}

var targetNames = map[abi.TargetKind]string{
	abi.TargetKindTARGET_PASS: "pass", abi.TargetKindTARGET_POLICY: "policy", abi.TargetKindTARGET_TUNNEL: "tunnel",
	abi.TargetKindTARGET_LINK: "link", abi.TargetKindTARGET_GTP4D: "H.M.GTP4.D", abi.TargetKindTARGET_PDR: "UE", abi.TargetKindTARGET_CLASSES: "classes",
}

// started is when this trace began.
func (t *Tracer) started() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Event is a record with the names of what its numbers mean now.
func (t *Tracer) Event(r *abi.TraceEvent) TraceEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := TraceEvent{
		Time: r.Time, Ifindex: int(r.Ifindex), Egress: int(r.Egress),
		Reason: reason.Reason(r.Reason), Verdict: xdp.VerdictName(r.Verdict), List: -1,
		InLength: int(r.InLength), OutLength: int(r.OutLength), Target: targetNames[abi.TargetKind(r.TargetKind)],
		In:  append([]byte(nil), r.In[:min(int(r.InCaptured), len(r.In))]...),
		Out: append([]byte(nil), r.Out[:min(int(r.OutCaptured), len(r.Out))]...),
	}
	t.name(&e, r)
	return e
}
