package check

import (
	"cmp"
	"context"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// echo sends GTP-U Echo Requests from the endpoint of a node.
func echo(_ context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	response, err := daemon.AskEndpoint(r.Instance, r.Node(c.From), gtpulink.Request{
		Op: "Echo", Device: c.Device, To: c.To, Count: max(c.Count, 1), Wait: AnswerTime,
	})
	if err != nil {
		return err
	}
	o.Sent, o.Received = max(c.Count, 1), response.Received
	wantAll(o, &c.Expect)
	return nil
}

// endMarker sends End Markers on a link, and wants them at a device of the node at the
// other end, or nothing there.
func endMarker(_ context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	markers := func() (uint64, error) {
		stats, err := linkStats(r, c.At, cmp.Or(c.AtDevice, c.Device))
		return stats.EndMarkers, err
	}
	before, err := markers()
	if err != nil {
		return err
	}
	o.Sent = max(c.Count, 1)
	if _, err := daemon.AskEndpoint(r.Instance, r.Node(c.From), gtpulink.Request{Op: "EndMarker", Device: c.Device, Count: o.Sent}); err != nil {
		return err
	}
	wait := AnswerTime
	if c.Expect.Nothing {
		wait /= 3
	}
	instance.WaitFor(wait, func() bool {
		after, e := markers()
		err = e
		o.Received = int(after - before)
		return e != nil || o.Received >= o.Sent
	})
	if err != nil {
		return err
	}
	wantAll(o, &c.Expect)
	if o.Received > o.Sent {
		o.Fail("%d arrived, %d were sent", o.Received, o.Sent)
	}
	return nil
}

// endpointStats returns the counters of all endpoints, for a check that expects
// something of one.
func endpointStats(r *disturb.Runner, c *topology.Check) (map[string]gtpulink.Stats, error) {
	if c.Expect.Outer == nil && c.Expect.Container == nil && c.Expect.Handover == nil {
		return nil, nil
	}
	stats := map[string]gtpulink.Stats{}
	for _, n := range r.Select(func(n *topology.Node) bool { return len(n.GTPU) > 0 }) {
		response, err := daemon.AskEndpoint(r.Instance, n, gtpulink.Request{Op: "Stats"})
		if err != nil {
			return nil, err
		}
		stats[n.Name] = response.Stats
	}
	return stats, nil
}

// wantFromEndpoint compares the endpoints' counters with those from before the check.
func wantFromEndpoint(r *disturb.Runner, c *topology.Check, o *report.Outcome, before map[string]gtpulink.Stats) error {
	after, err := endpointStats(r, c)
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
		// The old tunnel has ended, and the new one carries packets.
		was, is := before[h.Node].Links, after[h.Node].Links
		markers, late := is[h.From].EndMarkers-was[h.From].EndMarkers, is[h.From].Late-was[h.From].Late
		moved := is[h.To].Received - was[h.To].Received
		switch {
		case markers == 0:
			o.Fail("no End Marker at %s of %s", h.From, h.Node)
		case late > 0:
			o.Fail("%d T-PDUs at %s of %s behind its End Marker", late, h.From, h.Node)
		case moved == 0:
			o.Fail("no T-PDU at %s of %s", h.To, h.Node)
		default:
			o.Say("%d T-PDUs by %s, %d End Marker, %d T-PDUs by %s", is[h.From].Received-was[h.From].Received, h.From, markers, moved, h.To)
		}
	}
	return nil
}
