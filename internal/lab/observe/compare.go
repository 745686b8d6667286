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

// counterOf is the counter that x is about.
func counterOf(x topology.CounterExpect) (kind Kind, name string) {
	for kind, name := range map[Kind]string{SID: x.SID, Policy: x.Policy, NFT: x.NFT, Metric: x.Metric} {
		if name != "" {
			return kind, name
		}
	}
	if x.Slice != "" {
		return Slice, x.Slice + " " + x.Direction
	}
	return Outcome, x.Outcome
}

// compareCounter wants a counter to grow by what x says.
func compareCounter(x topology.CounterExpect, before, after Node, o *report.Outcome) {
	kind, key := counterOf(x)
	name := string(kind) + " " + key
	if _, ok := after.Packets[kind][key]; !ok && kind != Outcome {
		o.Fail("%s has no %s", x.Node, name)
		return
	}
	if kind == Metric || kind == Outcome {
		name = key
	}
	got, want := after.Packets[kind][key]-before.Packets[kind][key], uint64(o.Sent)
	if x.Packets == "received" {
		want = uint64(o.Received)
	}
	switch {
	case x.Packets == "none" && got != 0:
		o.Fail("%s: %s counted %d packets: none should be", x.Node, name, got)
	case x.Packets == "none":
		return
	case x.Packets == "some" && got == 0:
		o.Fail("%s: %s did not count", x.Node, name)
	case x.Packets != "some" && got != want:
		o.Fail("%s: %s counted %d packets: %d were %s", x.Node, name, got, want, cmp.Or(x.Packets, "sent"))
	default:
		o.Say("%s: %s %d packets", x.Node, name, got)
	}
	if x.Shares != nil {
		compareShares(x, name, got, before.lists[key], after.lists[key], o)
	}
}

// compareShares wants the policy's segment lists to have got their shares of sum.
func compareShares(x topology.CounterExpect, name string, sum uint64, before, after []uint64, o *report.Outcome) {
	if len(after) != len(x.Shares) || sum == 0 {
		o.Fail("%s: %s has %d lists with %d packets: want %d lists", x.Node, name, len(after), sum, len(x.Shares))
		return
	}
	var parts []string
	for i, n := range after {
		if i < len(before) { // else the list is new
			n -= before[i]
		}
		share := 100 * float64(n) / float64(sum)
		parts = append(parts, fmt.Sprintf("%.1f%%", share))
		if math.Abs(share-x.Shares[i]) > x.Tolerance {
			o.Fail("%s: %s: list %d got %.1f%%: want %.0f%% +- %.0f", x.Node, name, i, share, x.Shares[i], x.Tolerance)
		}
	}
	o.Say("lists %s", strings.Join(parts, ", "))
}

// compareAccount closes the sum: every frame that was sent to the node has one
// outcome, and so has every frame that its daemon sent through the data path.
func compareAccount(name string, before, after Node, o *report.Outcome) {
	in, injected, out := after.sentTo-before.sentTo, after.injected-before.injected, after.total()-before.total()
	if in+injected != out {
		o.Fail("%s: %d frames were sent to it, its daemon injected %d, %d have an outcome", name, in, injected, out)
		return
	}
	var drops uint64
	for reason := range after.drops {
		if after.drops[reason] {
			drops += after.Packets[Outcome][reason] - before.Packets[Outcome][reason]
		}
	}
	again := ""
	if injected > 0 {
		again = fmt.Sprintf(" + injected %d", injected)
	}
	o.Say("%s: in %d%s = out %d + drops %d", name, in, again, out-drops, drops)
}
