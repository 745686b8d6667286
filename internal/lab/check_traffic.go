package lab

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// How long answers may take to arrive after the last packet.
const answerTime = time.Second

// ping sends ICMP Echo Requests from a node and wants every answer.
func (r *runner) ping(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	outerBefore, err := r.endpointStats(c)
	if err != nil {
		return err
	}
	p := probe.Ping{
		From: r.Namespace(r.Node(c.From)), Source: c.Source, To: c.To, Device: c.Device, Count: max(c.Count, 1),
		Interval: c.Interval.Or(5 * time.Millisecond), Size: c.Size, HopLimit: c.HopLimit, DF: c.DF, Wait: answerTime,
	}
	if c.Expect.Nothing || c.Expect.Error != "" || c.Expect.Outer != nil {
		p.Wait = answerTime / 3
	}
	result, err := p.Run(ctx)
	if err != nil {
		return err
	}
	o.Sent, o.Received = result.Sent, result.Received
	if result.Corrupt+result.Duplicates > 0 {
		o.Fail("%d corrupt, %d duplicates", result.Corrupt, result.Duplicates)
	}
	switch {
	case c.Expect.Error != "":
		wantErrors(o, c.Expect.Error, c.Expect.MTU, result.Errors)
		if result.Received > 0 {
			o.Fail("%d answers came", result.Received)
		}
	case c.Expect.Nothing:
		if result.Received > 0 {
			o.Fail("%d answers came: none should", result.Received)
		}
	case c.Expect.Outer == nil:
		wantAll(o, c.Expect.MaxLost)
		for _, e := range result.Errors {
			o.Fail("%s from %v", e.Kind(), e.From)
		}
	}
	return r.wantFromEndpoint(c, o, outerBefore)
}

// wantAll fails unless all but at most maxLost arrived.
func wantAll(o *report.Outcome, maxLost int) {
	if lost := o.Sent - o.Received; lost > maxLost {
		o.Fail("%d of %d lost", lost, o.Sent)
	}
	if o.Sent == 0 {
		o.Fail("nothing was sent")
	}
}

// wantErrors fails unless there is an error of that kind (with that MTU), and
// none of another.
func wantErrors(o *report.Outcome, kind string, mtu uint32, list []probe.ICMPError) {
	found := 0
	for _, e := range list {
		if e.Kind() != kind || mtu != 0 && e.MTU != mtu {
			o.Fail("%s (MTU %d) from %v", e.Kind(), e.MTU, e.From)
			continue
		}
		if found++; found == 1 {
			o.Say("%s from %v", kind, e.From)
			if e.MTU != 0 {
				o.Say("MTU %d", e.MTU)
			}
		}
	}
	if found == 0 {
		o.Fail("no %q reached the sender", kind)
	}
}

// streams are what a check of kind udp sends.
func (r *runner) streams(c *topology.Check) (list []probe.Stream) {
	for _, w := range c.AllWays() {
		from, at := r.Namespace(r.Node(w.From)), r.Namespace(r.Node(w.At))
		stream := probe.Stream{
			From: from, At: at, Source: w.Source, To: w.To, Device: w.Device, Flows: c.Flows, Count: max(c.Count, 1),
			Interval: c.Interval.Or(2 * time.Millisecond), Size: c.Size, Wait: answerTime, Port: c.Port, Listen: c.Listen,
		}
		if c.Expect.Rate != nil { // what is held back does not come later
			stream.Settle, stream.Wait = settleTime, answerTime/3
		}
		list = append(list, stream)
		if w.Both {
			stream.From, stream.At, stream.Source, stream.To, stream.Device = at, from, w.To, w.Source, ""
			stream.Port, stream.Listen = 0, netip.AddrPort{}
			list = append(list, stream)
		}
	}
	return list
}

// udp sends numbered datagrams, one way or both, and maybe more of them.
func (r *runner) udp(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	outerBefore, err := r.endpointStats(c)
	if err != nil {
		return err
	}
	since, err := r.usageView(ctx, c.Expect.Usage)
	if err != nil {
		return err
	}
	streams := r.streams(c)
	results, errs := make([]probe.StreamResult, len(streams)), make([]error, len(streams))
	err = r.during(ctx, c, o, func(busy func() bool) error {
		var wg sync.WaitGroup
		for i, s := range streams {
			s.While = busy
			wg.Go(func() { results[i], errs[i] = s.Run(ctx) })
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	for _, result := range results {
		judgeStream(c, result, o)
	}
	if c.Expect.Rate == nil {
		wantAll(o, c.Expect.MaxLost)
	}
	if err := r.wantFromEndpoint(c, o, outerBefore); err != nil {
		return err
	}
	return r.wantUsage(ctx, c.Expect.Usage, since, streams, results, o)
}

func judgeStream(c *topology.Check, s probe.StreamResult, o *report.Outcome) {
	o.Sent += s.Sent
	o.Received += s.Received
	if s.Corrupt+s.Duplicates > 0 {
		o.Fail("%d corrupt, %d duplicates", s.Corrupt, s.Duplicates)
	}
	if len(c.AllEvents()) > 0 {
		o.Say("longest gap %.1f ms", float64(s.Gap.Microseconds())/1000)
	}
	switch {
	case c.Expect.InOrder && s.Overtaking > 0:
		o.Fail("%d arrived ahead of earlier ones", s.Overtaking)
	case s.Reordered > 0:
		o.Say("%d arrived ahead of earlier ones, %d behind later ones", s.Overtaking, s.Reordered)
	}
	if least := time.Duration(c.Expect.MinGap); s.Gap < least {
		o.Fail("the longest gap was %v: want %v", s.Gap, least)
	}
	if c.Expect.Rate != nil {
		wantRate(c.Expect.Rate, s, o)
	}
}

// tcp moves data there and back. Sent and received are kilobytes: what TCP
// loses it sends again, and the detail counts that.
func (r *runner) tcp(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	return r.during(ctx, c, o, func(busy func() bool) error {
		t := probe.Transfer{
			From: r.Namespace(r.Node(c.From)), At: r.Namespace(r.Node(c.At)), Source: c.Source, To: c.To, Device: c.Device,
			Port: c.Port, Listen: c.Listen, Bytes: c.Bytes, Limit: 20 * time.Second, While: busy,
		}
		if t.Bytes == 0 {
			t.Bytes = 1 << 20
		}
		if c.Expect.Nothing {
			t.Limit = answerTime
		}
		result, err := t.Run(ctx)
		if c.Expect.Nothing {
			wantNoConnection(c, err, o)
			return nil
		}
		if err != nil {
			return err
		}
		const kilo = 1 << 10
		o.Sent, o.Received = int(result.Sent/kilo), int(result.Received/kilo)
		wantAll(o, 0)
		o.Say("KiB of TCP, %.0f Mbit/s, %d segments sent again",
			float64(result.Received)*8/1e6/result.Duration.Seconds(), result.Retransmitted)
		return r.wantClient(c, result.Client, o)
	})
}

// wantNoConnection wants nobody to answer.
func wantNoConnection(c *topology.Check, err error, o *report.Outcome) {
	o.Sent = 1
	if err == nil {
		o.Received = 1
		o.Fail("%v answers: it should not", c.To)
	}
}

// wantClient wants the receiver to see who connects, where the check says who.
func (r *runner) wantClient(c *topology.Check, seen netip.Addr, o *report.Outcome) error {
	if c.Expect.Client == "" {
		return nil
	}
	want, err := r.Address(c.Expect.Client, topology.FamilyOf(c.To))
	if err != nil {
		return err
	}
	if seen != want {
		o.Fail("%v connects: want %s, %v", seen, c.Expect.Client, want)
	}
	o.Say("from %v", seen)
	return nil
}

// echo sends GTP-U Echo Requests from the endpoint of a node.
func (r *runner) echo(_ context.Context, c *topology.Check, o *report.Outcome) error {
	response, err := gtpulink.Ask(control(r.Instance, r.Node(c.From)), gtpulink.Request{
		Op: "echo", Device: c.Device, To: c.To, Count: max(c.Count, 1), Wait: answerTime,
	})
	if err != nil {
		return err
	}
	o.Sent, o.Received = max(c.Count, 1), response.Received
	wantAll(o, c.Expect.MaxLost)
	return nil
}

// endMarker sends End Markers on a link, and wants them at the same device of
// the node at the other end.
func (r *runner) endMarker(_ context.Context, c *topology.Check, o *report.Outcome) error {
	markers := func() (uint64, error) {
		response, err := gtpulink.Ask(control(r.Instance, r.Node(c.At)), gtpulink.Request{Op: "stats"})
		return response.Stats.Links[c.Device].EndMarkers, err
	}
	before, err := markers()
	if err != nil {
		return err
	}
	o.Sent = max(c.Count, 1)
	if _, err := gtpulink.Ask(control(r.Instance, r.Node(c.From)), gtpulink.Request{Op: "end_marker", Device: c.Device, Count: o.Sent}); err != nil {
		return err
	}
	instance.WaitFor(answerTime, func() bool {
		after, e := markers()
		err = e
		o.Received = int(after - before)
		return e != nil || o.Received >= o.Sent
	})
	if err != nil {
		return err
	}
	wantAll(o, 0)
	if o.Received > o.Sent {
		o.Fail("%d arrived, %d were sent", o.Received, o.Sent)
	}
	return nil
}

// endpointStats returns the counters of the endpoints that a check looks at.
func (r *runner) endpointStats(c *topology.Check) (map[string]gtpulink.Stats, error) {
	stats := map[string]gtpulink.Stats{}
	var nodes []string
	if c.Expect.Outer != nil {
		nodes = append(nodes, c.Expect.Outer.Node)
	}
	if c.Expect.Container != nil {
		nodes = append(nodes, c.Expect.Container.Node)
	}
	if c.Expect.Handover != nil {
		nodes = append(nodes, c.Expect.Handover.Node)
	}
	for _, name := range nodes {
		response, err := gtpulink.Ask(control(r.Instance, r.Node(name)), gtpulink.Request{Op: "stats"})
		if err != nil {
			return nil, err
		}
		stats[name] = response.Stats
	}
	return stats, nil
}

// wantFromEndpoint compares what the endpoints saw since before.
func (r *runner) wantFromEndpoint(c *topology.Check, o *report.Outcome, before map[string]gtpulink.Stats) error {
	after, err := r.endpointStats(c)
	if err != nil {
		return err
	}
	if x := c.Expect.Outer; x != nil {
		wantErrors(o, x.Error, x.MTU, after[x.Node].Errors[len(before[x.Node].Errors):])
	}
	if x := c.Expect.Container; x != nil {
		was, is := before[x.Node].Links[x.Device], after[x.Node].Links[x.Device]
		if got := is.Containers - was.Containers; got != uint64(o.Sent) {
			o.Fail("%d PDU Session Containers at %s, %d T-PDUs", got, x.Node, o.Sent)
		}
		if is.QFI != x.QFI || is.RQI != x.RQI {
			o.Fail("QFI %d, RQI %v at %s: want %d, %v", is.QFI, is.RQI, x.Node, x.QFI, x.RQI)
		}
		o.Say("QFI %d at %s", is.QFI, x.Node)
	}
	if h := c.Expect.Handover; h != nil {
		wantHandover(h, before[h.Node].Links, after[h.Node].Links, o)
	}
	return nil
}

// wantHandover wants the old tunnel to have ended, and the new one to carry.
func wantHandover(h *topology.HandoverExpect, before, after map[string]gtpulink.LinkStats, o *report.Outcome) {
	markers := after[h.From].EndMarkers - before[h.From].EndMarkers
	late := after[h.From].Late - before[h.From].Late
	moved := after[h.To].Received - before[h.To].Received
	switch {
	case markers == 0:
		o.Fail("no End Marker at %s of %s", h.From, h.Node)
	case late > 0:
		o.Fail("%d T-PDUs at %s of %s behind its End Marker", late, h.From, h.Node)
	case moved == 0:
		o.Fail("no T-PDU at %s of %s", h.To, h.Node)
	default:
		o.Say("%d T-PDUs by %s, %d End Marker, %d T-PDUs by %s", after[h.From].Received-before[h.From].Received, h.From, markers, moved, h.To)
	}
}
