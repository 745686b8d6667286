package check

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// settleTime is how long a limit may let a burst pass.
const settleTime = 400 * time.Millisecond

// AnswerTime is how long answers may take to arrive after the last packet.
const AnswerTime = time.Second

// ping sends ICMP Echo Requests from a node and wants every answer.
func ping(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	outerBefore, err := endpointStats(r, c)
	if err != nil {
		return err
	}
	p := probe.Ping{
		From: r.Namespace(r.Node(c.From)), Source: c.Source, To: c.To, Device: c.Device, Count: max(c.Count, 1),
		Interval: c.Interval.Or(5 * time.Millisecond), Size: c.Size, HopLimit: c.HopLimit, DF: c.DF, Wait: AnswerTime,
	}
	if c.Expect.Nothing || c.Expect.Error != "" || c.Expect.Outer != nil {
		p.Wait = AnswerTime / 3
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
		wantAll(o, &c.Expect)
		for _, e := range result.Errors {
			o.Fail("%s from %v", e.Kind(), e.From)
		}
	}
	return wantFromEndpoint(r, c, o, outerBefore)
}

// wantAll fails unless all but those that may be lost arrived, or nothing where
// nothing should.
func wantAll(o *report.Outcome, x *topology.Expect) {
	switch lost := o.Sent - o.Received; {
	case x.Nothing && o.Received > 0:
		o.Fail("%d of %d arrived: none should", o.Received, o.Sent)
	case !x.Nothing && (x.MinLost == 0 || x.MaxLost > 0) && lost > x.MaxLost:
		o.Fail("%d of %d lost: want %d at most", lost, o.Sent, x.MaxLost)
	case lost < x.MinLost:
		o.Fail("%d of %d lost: want %d at least", lost, o.Sent, x.MinLost)
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
func streams(r *disturb.Runner, c *topology.Check) (list []probe.Stream) {
	first := topology.Way{From: c.From, At: c.At, Source: c.Source, To: c.To, Device: c.Device, Both: c.Both, DSCP: c.DSCP}
	for _, w := range append([]topology.Way{first}, c.Also...) {
		from, at := r.Namespace(r.Node(w.From)), r.Namespace(r.Node(w.At))
		pace, interval, after := c.Interval.Or(2*time.Millisecond), w.Interval.Or(c.Interval.Or(2*time.Millisecond)), time.Duration(w.After)
		stream := probe.Stream{
			From: from, At: at, Source: w.Source, To: w.To, Device: w.Device, Flows: cmp.Or(w.Flows, c.Flows), DSCP: w.DSCP,
			Count: max(1, int((time.Duration(c.Count)*pace-after)/interval)), After: after, Interval: interval, Size: cmp.Or(w.Size, c.Size), Wait: AnswerTime, Port: c.Port, Listen: c.Listen,
		}
		if c.Expect.Rate != nil { // what is held back does not come later
			stream.Settle, stream.Wait = settleTime, AnswerTime/3
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
func udp(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	outerBefore, err := endpointStats(r, c)
	if err != nil {
		return err
	}
	var since int64 // where the reports of usage begin
	if u := c.Expect.Usage; u != nil {
		// What was used before counts no more.
		if err := query(ctx, r, u, volumes{}); err != nil {
			return err
		}
		since = daemon.OutputEnd(r.Instance, r.SMF(u.SMF))
	}
	queues, err := network.Queues(r.Instance)
	if err != nil {
		return err
	}
	streams := streams(r, c)
	var results []probe.StreamResult
	err = disturb.During(ctx, r, c, o, func(busy func() bool) (err error) {
		results, err = sendAll(ctx, streams, busy)
		return err
	})
	if err != nil {
		return err
	}
	var gap, took time.Duration
	for _, result := range results {
		judgeStream(c, result, o)
		gap, took = max(gap, result.Gap), max(took, result.Took)
	}
	if len(c.AllEvents()) > 0 {
		o.Say("longest gap %.1f ms", milliseconds(gap))
	}
	if c.Expect.Rate == nil {
		wantAll(o, &c.Expect)
	}
	if err := wantLinks(r, c, o, queues, took); err != nil {
		return err
	}
	wantActed(c, o)
	wantQuick(c, results[0], o)
	wantClasses(c, results, o)
	wantSettled(c, results, o)
	if err := wantFromEndpoint(r, c, o, outerBefore); err != nil {
		return err
	}
	first := 1 // streams that are not of Also
	if c.Both {
		first = 2
	}
	if c.Expect.AlsoWhole {
		wantWhole(results[first:], o)
	}
	return wantUsage(ctx, r, c.Expect.Usage, since, streams[:first], results, o)
}

// sendAll sends streams at once, for as long as busy holds unless it is nil.
func sendAll(ctx context.Context, streams []probe.Stream, busy func() bool) ([]probe.StreamResult, error) {
	results, errs := make([]probe.StreamResult, len(streams)), make([]error, len(streams))
	var wg sync.WaitGroup
	for i, s := range streams {
		s.While = busy
		wg.Go(func() { results[i], errs[i] = s.Run(ctx) })
	}
	wg.Wait()
	return results, errors.Join(errs...)
}

// wantLinks fails unless the fullest of the links with a rate is as full as it should be.
func wantLinks(r *disturb.Runner, c *topology.Check, o *report.Outcome, before []network.Queue, over time.Duration) error {
	x := c.Expect.Busiest
	if x == nil {
		return nil
	}
	after, err := network.Queues(r.Instance)
	if err != nil {
		return err
	}
	var fullest float64
	var name string
	for i, q := range after {
		if used := float64(q.Bytes-before[i].Bytes) * 8 / 10 / float64(q.Kbits) / over.Seconds(); used > fullest {
			fullest, name = used, q.Node+"-"+q.Device
		}
	}
	o.Busiest = fullest
	o.Say("busiest link %s, %.1f %%", name, fullest)
	if fullest < x.Min || fullest > x.Max {
		o.Fail("the busiest link is %.1f %% full: want %v to %v %%", fullest, x.Min, x.Max)
	}
	return nil
}

// wantActed fails where engine or headend answered too late, or nobody was asked.
func wantActed(c *topology.Check, o *report.Outcome) {
	switch limit := milliseconds(time.Duration(c.Expect.ActsWithin)); {
	case limit > 0 && o.ActedAfter == 0:
		o.Fail("no event says when engine or headend answered")
	case limit > 0 && o.ActedAfter > limit:
		o.Fail("answered after %.0f ms: want %.0f ms", o.ActedAfter, limit)
	}
}

// milliseconds of a duration, as reports have them.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// wantQuick fails where the first stream took too long.
func wantQuick(c *topology.Check, s probe.StreamResult, o *report.Outcome) {
	if c.Expect.P99 == 0 {
		return
	}
	o.Say("99 %% of the first stream in %.1f ms", milliseconds(s.P99))
	if limit := time.Duration(c.Expect.P99); s.P99 > limit {
		o.Fail("99 %% of the first stream took up to %v: want %v", s.P99, limit)
	}
}

// wantClasses sums the streams of each class, and fails where one is not as it should be.
func wantClasses(c *topology.Check, results []probe.StreamResult, o *report.Outcome) {
	of := []string{c.Class}
	if c.Both {
		of = append(of, c.Class)
	}
	for _, w := range c.Also {
		if of = append(of, w.Class); w.Both {
			of = append(of, w.Class)
		}
	}
	for _, name := range c.Classes() {
		class, x := report.Class{Name: name}, c.Expect.Classes[name]
		for i, s := range results {
			if of[i] == name {
				class.Sent, class.Lost = class.Sent+s.Sent, class.Lost+s.Sent-s.Received
				class.P99 = max(class.P99, milliseconds(s.P99))
			}
		}
		o.Classes = append(o.Classes, class)
		if _, wanted := c.Expect.Classes[name]; !wanted {
			continue
		}
		switch limit, least := milliseconds(time.Duration(x.P99)), milliseconds(time.Duration(x.MinP99)); {
		case x.MinLost == 0 && class.Lost > x.MaxLost:
			o.Fail("%d of %d of class %s lost: want %d at most", class.Lost, class.Sent, name, x.MaxLost)
		case class.Lost < x.MinLost:
			o.Fail("%d of %d of class %s lost: want %d at least", class.Lost, class.Sent, name, x.MinLost)
		case limit > 0 && class.P99 > limit:
			o.Fail("99 %% of class %s took up to %.1f ms: want %v ms", name, class.P99, limit)
		case class.P99 < least:
			o.Fail("99 %% of class %s took up to %.1f ms: want %v ms at least", name, class.P99, least)
		}
	}
}

// wantSettled fails where loss lasted too long, or goes on.
func wantSettled(c *topology.Check, results []probe.StreamResult, o *report.Outcome) {
	var lasted time.Duration
	for _, s := range results {
		if s.Received == s.Sent {
			continue
		}
		lasted = max(lasted, s.LossUntil-s.LossFrom)
		if c.Expect.Settles > 0 && s.Took-s.LossUntil < time.Second {
			o.Fail("packets are lost until %v before the end", s.Took-s.LossUntil)
		}
	}
	o.LossFor = milliseconds(lasted)
	if limit := time.Duration(c.Expect.Settles); limit > 0 && lasted > limit {
		o.Fail("packets were lost for %v: want %v", lasted, limit)
	}
}

// wantWhole fails where a stream lost something.
func wantWhole(results []probe.StreamResult, o *report.Outcome) {
	sent, lost := 0, 0
	for _, s := range results {
		sent += s.Sent
		lost += s.Sent - s.Received
	}
	if lost > 0 {
		o.Fail("%d of %d of the other streams lost", lost, sent)
	} else {
		o.Say("nothing lost of %d of the other streams", sent)
	}
}

func judgeStream(c *topology.Check, s probe.StreamResult, o *report.Outcome) {
	o.Sent += s.Sent
	o.Received += s.Received
	if s.Corrupt+s.Duplicates > 0 {
		o.Fail("%d corrupt, %d duplicates", s.Corrupt, s.Duplicates)
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
	if x := c.Expect.Rate; x != nil { // what the stream shall be held to
		off := 100 * (s.Rate - x.Kbits) / x.Kbits
		if off < -x.Tolerance || off > x.Tolerance {
			o.Fail("%.0f kbit/s arrived: want %.0f +- %.1f %%", s.Rate, x.Kbits, x.Tolerance)
		} else {
			o.Say("%.0f kbit/s (%+.1f %%)", s.Rate, off)
		}
		if s.Received >= s.Sent {
			o.Fail("nothing was held back: less was sent than the rate")
		}
	}
}

// tcp moves data there and back. Sent and received are kilobytes: what TCP
// loses it sends again, and the detail counts that.
func tcp(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	return disturb.During(ctx, r, c, o, func(busy func() bool) error {
		t := probe.Transfer{
			From: r.Namespace(r.Node(c.From)), At: r.Namespace(r.Node(c.At)), Source: c.Source, To: c.To, Device: c.Device,
			Port: c.Port, Listen: c.Listen, Bytes: cmp.Or(c.Bytes, 1<<20), Limit: 20 * time.Second, While: busy,
		}
		if c.Expect.Nothing {
			t.Limit = AnswerTime
		}
		result, err := t.Run(ctx)
		if c.Expect.Nothing {
			o.Sent = 1
			if err == nil {
				o.Received = 1
				o.Fail("%v answers: it should not", c.To)
			}
			return nil
		}
		if err != nil {
			return err
		}
		const kilo = 1 << 10
		o.Sent, o.Received = int(result.Sent/kilo), int(result.Received/kilo)
		wantAll(o, &topology.Expect{})
		o.Say("KiB of TCP, %.0f Mbit/s, %d segments sent again",
			float64(result.Received)*8/1e6/result.Duration.Seconds(), result.Retransmitted)
		if c.Expect.Client == "" {
			return nil
		}
		want, err := r.Address(c.Expect.Client, topology.FamilyOf(c.To))
		if err != nil {
			return err
		}
		if result.Client != want {
			o.Fail("%v connects: want %s, %v", result.Client, c.Expect.Client, want)
		}
		o.Say("from %v", result.Client)
		return nil
	})
}
