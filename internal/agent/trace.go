package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/frame"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/session"
)

// Trace calls f for each packet that matches until the context ends (which is
// no error) or f fails. There is one trace at a time: the data path has one
// filter.
func (a *Agent) Trace(ctx context.Context, filter TraceFilter, f func(TraceEvent) error) error {
	if !a.tracing.TryLock() {
		return fmt.Errorf("%w: another trace is running: end that one first", ErrBusy)
	}
	defer a.tracing.Unlock()
	if err := a.core.isReady(); err != nil {
		return err
	}
	kernel := &event.TraceFilter{Source: filter.Source, Destination: filter.Destination, DropsOnly: filter.Drops}
	if filter.Interface != "" {
		ifindex, err := a.core.ifindexOf(filter.Interface)
		if err != nil {
			return err
		}
		kernel.Ifindex = ifindex
	}
	if err := a.core.dp.Trace.Set(kernel); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	defer func() {
		if err := a.core.dp.Trace.Set(nil); err != nil {
			a.log.Error("cannot end the trace in the data path: it goes on costing time", "event", logevent.TraceStuck, "error", err)
		}
	}()
	failed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-a.core.ending:
			cancel(fmt.Errorf("%w: the daemon is ending", pods.ErrNotReady))
		case <-failed.Done():
		}
	}()
	err := a.core.dp.Trace.Read(failed, func(e event.TraceEvent) {
		event := a.core.traceEvent(e)
		if failed.Err() != nil || !filter.Matches(event) || filter.asksForSession() && !filter.isOf(event, a.core.sessionOf(event)) {
			return
		}
		if err := f(event); err != nil {
			cancel(err)
		}
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case failed.Err() != nil:
		return context.Cause(failed)
	}
	return err
}

// Explain has the data path run on copies of what packets change. It takes a second, in
// which the kernel verifies the program.
func (a *Agent) Explain(name string, frames [][]byte) ([]TraceEvent, error) {
	if !a.explaining.TryLock() {
		return nil, fmt.Errorf("%w: other packets are being explained: try again", ErrBusy)
	}
	defer a.explaining.Unlock()
	if err := a.core.isReady(); err != nil {
		return nil, err
	}
	ifindex, err := a.core.ifindexOf(name)
	if err != nil {
		return nil, err
	}
	a.core.mu.RLock()
	_, attached := a.core.writer.Modes[name]
	a.core.mu.RUnlock()
	if !attached {
		return nil, fmt.Errorf("%w: the data path is not on interface %q: name one that `culvert interface` shows as attached", desired.ErrNotFound, name)
	}
	events, err := a.core.dp.Explain(frames, ifindex)
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	out := make([]TraceEvent, len(events))
	for i, e := range events {
		out[i] = a.core.traceEvent(e)
	}
	return out, nil
}

func (c *core) ifindexOf(name string) (int, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	l, there := c.links.Link(name)
	if !there {
		return 0, fmt.Errorf("%w: there is no interface %q", desired.ErrNotFound, name)
	}
	return l.Index, nil
}

// Matches says whether a packet is one of those that the filter means, as far as the
// data path does not decide that.
func (f TraceFilter) Matches(e TraceEvent) bool {
	if f.SID.IsValid() && !(e.SID.IsValid() && f.SID.Bits() <= e.SID.Bits() && f.SID.Contains(e.SID.Addr())) {
		return false
	}
	return f.TEID == nil || slices.Contains(frame.Decode(e.In).TEIDs, *f.TEID) || slices.Contains(frame.Decode(e.Out).TEIDs, *f.TEID)
}

// sessionOf returns the session that handled a packet, or nil.
func (c *core) sessionOf(e TraceEvent) *session.Session {
	c.mu.RLock()
	u := c.upf.upf
	c.mu.RUnlock()
	if u == nil || e.Session == 0 {
		return nil
	}
	return u.Session(e.Session)
}

// asksForSession says whether the filter means the packets of one UE, user or session.
func (f TraceFilter) asksForSession() bool { return f.UE.IsValid() || f.User != "" || f.SEID != nil }

// isOf says whether a packet that a session handled, if any did, is of the session, the UE or the user
// that the filter means.
func (f TraceFilter) isOf(e TraceEvent, s *session.Session) bool {
	if f.SEID != nil && *f.SEID != e.Session {
		return false
	}
	if f.User != "" && (s == nil || s.UserID != f.User && !strings.HasSuffix(s.UserID, "-"+f.User)) {
		return false
	}
	switch {
	case !f.UE.IsValid():
		return true
	case s != nil:
		return SessionFilter{UE: f.UE}.match(s, "")
	}
	in, out := frame.Decode(e.In).Addresses, frame.Decode(e.Out).Addresses
	return slices.Contains(in, f.UE) || slices.Contains(out, f.UE)
}

// traceEvent gives names to what the data path says in numbers.
func (c *core) traceEvent(e event.TraceEvent) TraceEvent {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var now unix.Timespec // of the clock that the data path reads
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	out := TraceEvent{
		Time: time.Now().Add(time.Duration(int64(e.Time) - now.Nano())), Interface: c.linkName(e.Ifindex), Egress: c.linkName(e.Egress),
		SID: e.SID, Target: e.Target, Tunnel: e.Tunnel, Policy: e.Policy,
		Reason: e.Reason.String(), Drop: e.Reason.Drop(), Text: e.Reason.Text(), Verdict: e.Verdict,
		InLength: e.InLength, OutLength: e.OutLength, In: e.In, Out: e.Out,
	}
	if e.Reason == reason.Passed && bytes.Equal(e.In, e.Out) { // the kernel has it as received: nothing was sent
		out.Out, out.OutLength = nil, 0
	}
	if e.Session != 0 {
		out.Session, out.PDR = e.Session, e.Rule
		if c.upf.upf != nil {
			out.PDR = c.upf.upf.PDR(e.Session, e.Rule)
		}
	}
	if p, ok := c.writer.Tables.Policies[e.Policy]; ok && e.List >= 0 && e.List < len(p.Lists()) {
		out.SegmentList = p.Lists()[e.List].Segments
	}
	if e.Adjacency != (adjacency.Key{}) {
		out.Adjacency = apply.KeyName(e.Adjacency)
	}
	return out
}

func (c *core) linkName(ifindex int) string {
	if ifindex == 0 {
		return ""
	}
	if l, ok := c.links.LinkByIndex(ifindex); ok {
		return l.Name
	}
	return fmt.Sprintf("#%d", ifindex)
}
