package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// TraceFilter says which packets are traced: those for which everything that
// is set holds. The addresses are those of the outer header as it came.
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
	Adjacency       AdjacencyKey
	Session         uint64 // and its rule, where Session is not 0
	Rule            uint16
	Reason          Reason
	Verdict         string // XDP action
	// In and Out are the first bytes of the frame as received and as sent, of
	// InLength and OutLength bytes.
	InLength, OutLength int
	In, Out             []byte
}

// SetTrace lets the data path record the packets that a filter takes; nil:
// none.
func (d *DataPlane) SetTrace(f *TraceFilter) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f == nil {
		d.storeSettings(func(s *abi.Settings) { s.Trace = 0 })
		return nil
	}
	var e abi.TraceFilter
	e.Source, e.SourceMask = valueAndMask(f.Source)
	e.Destination, e.DestinationMask = valueAndMask(f.Destination)
	e.Ifindex = uint32(f.Ifindex)
	if f.DropsOnly {
		e.DropsOnly = 1
	}
	if d.settings.Get(0).Trace == 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		d.traceSince = now
	}
	if err := d.maps[abi.MapTraceFilter].Put(uint32(0), &e); err != nil {
		return fmt.Errorf("write table trace_filter: %w", err)
	}
	d.storeSettings(func(s *abi.Settings) { s.Trace = 1 })
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

// monotonic is the data path's clock.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return uint64(now.Nano()), nil
}

// Trace calls f for each packet that the filter takes, until ctx ends. What an
// earlier trace left unread is skipped. There is one reader at a time.
func (d *DataPlane) Trace(ctx context.Context, f func(TraceEvent)) error {
	return readRing(ctx, d, abi.MapTraceEvents, func(r *abi.TraceEvent) {
		if e, ok := d.traceEvent(r); ok {
			f(e)
		}
	})
}

func (d *DataPlane) traceEvent(r *abi.TraceEvent) (TraceEvent, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Time < d.traceSince {
		return TraceEvent{}, false
	}
	e := TraceEvent{
		Time: r.Time, Ifindex: int(r.Ifindex), Egress: int(r.Egress),
		Reason: Reason(r.Reason), Verdict: VerdictName(r.Verdict), List: -1,
		InLength: int(r.InLength), OutLength: int(r.OutLength),
		In:  append([]byte(nil), r.In[:min(int(r.InCaptured), len(r.In))]...),
		Out: append([]byte(nil), r.Out[:min(int(r.OutCaptured), len(r.Out))]...),
	}
	switch abi.TargetKind(r.TargetKind) {
	case abi.TargetKindTARGET_PASS:
		e.Target = "pass"
	case abi.TargetKindTARGET_POLICY:
		e.Target = "policy"
	case abi.TargetKindTARGET_TUNNEL:
		e.Target = "tunnel"
	case abi.TargetKindTARGET_LINK:
		e.Target = "link"
	case abi.TargetKindTARGET_GTP4D:
		e.Target = "H.M.GTP4.D"
	case abi.TargetKindTARGET_PDR:
		e.Target = "UE"
	}
	e.Session, e.Rule = d.Sessions.ruleAt(r.Pdr)
	d.nameEvent(&e, r)
	return e, true
}

// nameEvent says what the indices in a record mean. Only while somebody
// traces are they looked for, so nothing is kept to find them fast.
func (d *DataPlane) nameEvent(e *TraceEvent, r *abi.TraceEvent) {
	for p, s := range d.sids {
		if r.Sid != 0 && s.index == r.Sid {
			e.SID = p
		}
	}
	for name, p := range d.policies {
		if r.Policy != 0 && p.index == r.Policy {
			e.Policy = name
		}
		for i, index := range p.lists {
			if r.List != 0 && index == r.List {
				e.Policy, e.List = name, i
			}
		}
	}
	for name, t := range d.tunnels {
		if r.Tunnel != 0 && (t.receive == r.Tunnel || t.send == r.Tunnel) {
			e.Tunnel = name
		}
	}
	for _, s := range d.steerings {
		if r.Tunnel != 0 && s.slot == r.Tunnel {
			e.Tunnel = s.model.Tunnel
		}
	}
	for k, a := range d.adjacencies {
		if r.Adjacency != 0 && a.index == r.Adjacency {
			e.Adjacency = k
		}
	}
}
