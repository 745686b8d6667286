package observe

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Compare looks again until the counters are as the check wants them, or do
// not become so.
func Compare(ctx context.Context, r *instance.Instance, c *topology.Check, before Observation, o *report.Outcome) {
	if len(c.Counters)+len(c.Accounts) == 0 {
		return
	}
	var found report.Outcome
	instance.WaitFor(2*time.Second, func() bool {
		found = report.Outcome{Sent: o.Sent, Received: o.Received}
		after, err := Observe(ctx, r, c.Accounts)
		if err != nil {
			found.Fail("%v", err)
			return true
		}
		for _, x := range c.Counters {
			if !x.Concern(r.State.Variant) {
				continue
			}
			compareCounter(x, before[x.Node], after[x.Node], &found)
		}
		for _, name := range c.Accounts {
			compareAccount(name, before[name], after[name], &found)
		}
		return len(found.Problems) == 0
	})
	o.Detail = append(o.Detail, found.Detail...)
	o.Problems = append(o.Problems, found.Problems...)
}

func compareCounter(x topology.CounterExpect, before, after nodeView, o *report.Outcome) {
	name, got, lists := "", uint64(0), []uint64(nil)
	switch {
	case x.SID != "":
		if _, ok := after.Sids[x.SID]; !ok {
			o.Fail("%s has no SID %s", x.Node, x.SID)
			return
		}
		name, got = "SID "+x.SID, after.Sids[x.SID].Packets-before.Sids[x.SID].Packets
	case x.Policy != "":
		p, was := after.Policies[x.Policy], before.Policies[x.Policy]
		if p.Key == "" {
			o.Fail("%s has no policy %s", x.Node, x.Policy)
			return
		}
		name, got = "policy "+x.Policy, p.Packets-was.Packets
		for i, l := range p.Lists {
			if i < len(was.Lists) { // else the list is new
				l.Packets -= was.Lists[i].Packets
			}
			lists = append(lists, l.Packets)
		}
	case x.NFT != "":
		if _, ok := after.named[x.NFT]; !ok {
			o.Fail("%s has no counter %s", x.Node, x.NFT)
			return
		}
		name, got = "counter "+x.NFT, after.named[x.NFT].Packets-before.named[x.NFT].Packets
	case x.Metric != "":
		if _, ok := after.metrics[x.Metric]; !ok {
			o.Fail("%s has no metric %s", x.Node, x.Metric)
			return
		}
		name, got = x.Metric, after.metrics[x.Metric]-before.metrics[x.Metric]
	case x.Slice != "":
		s, ok := after.slices[x.Slice]
		if !ok {
			o.Fail("%s has no slice %s", x.Node, x.Slice)
			return
		}
		name, got = "slice "+x.Slice+" "+x.Direction, s.direction(x.Direction)-before.slices[x.Slice].direction(x.Direction)
	default:
		name, got = x.Outcome, after.Outcomes[x.Outcome].Packets-before.Outcomes[x.Outcome].Packets
	}
	want := o.Sent
	if x.Packets == "received" {
		want = o.Received
	}
	switch {
	case x.Packets == "none" && got != 0:
		o.Fail("%s: %s counted %d packets: none should be", x.Node, name, got)
	case x.Packets == "none":
		return
	case x.Packets == "some" && got == 0:
		o.Fail("%s: %s did not count", x.Node, name)
	case x.Packets != "some" && got != uint64(want):
		o.Fail("%s: %s counted %d packets: %d were %s", x.Node, name, got, want, cmp.Or(x.Packets, "sent"))
	default:
		o.Say("%s: %s %d packets", x.Node, name, got)
	}
	if x.Shares != nil {
		compareShares(x, name, got, lists, o)
	}
}

func compareShares(x topology.CounterExpect, name string, sum uint64, lists []uint64, o *report.Outcome) {
	if len(lists) != len(x.Shares) || sum == 0 {
		o.Fail("%s: %s has %d lists with %d packets: want %d lists", x.Node, name, len(lists), sum, len(x.Shares))
		return
	}
	var parts []string
	for i, n := range lists {
		share := 100 * float64(n) / float64(sum)
		parts = append(parts, fmt.Sprintf("%.1f%%", share))
		if math.Abs(share-x.Shares[i]) > x.Tolerance {
			o.Fail("%s: %s: list %d got %.1f%%: want %.0f%% +- %.0f", x.Node, name, i, share, x.Shares[i], x.Tolerance)
		}
	}
	o.Say("lists %s", strings.Join(parts, ", "))
}

// compareAccount closes the sum: every frame that was sent to the node has
// one outcome.
func compareAccount(name string, before, after nodeView, o *report.Outcome) {
	in, out := after.sentTo-before.sentTo, after.total()-before.total()
	if in != out {
		o.Fail("%s: %d frames were sent to it, %d have an outcome", name, in, out)
		return
	}
	var drops uint64
	for reason, x := range after.Outcomes {
		if x.Drop {
			drops += x.Packets - before.Outcomes[reason].Packets
		}
	}
	o.Say("%s: in %d = out %d + drops %d", name, in, out-drops, drops)
}
