package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// observation is what the culvert nodes count, and what was sent to them; and
// what kernels are told to count.
type observation map[string]nodeView

type nodeView struct {
	outcomes map[string]outcomeView
	sids     map[string]counterView
	policies map[string]policyView
	slices   map[string]sliceView
	named    map[string]counterView // of nft
	metrics  map[string]uint64      // for Prometheus
	// sentTo are the frames that neighbours sent to the node.
	sentTo uint64
}

// total is the sum of all outcomes.
func (v nodeView) total() (n uint64) {
	for _, o := range v.outcomes {
		n += o.Packets
	}
	return n
}

// observe looks at all nodes that count at once. What was sent to them is only of
// those whose account is to be closed.
func observe(ctx context.Context, r *instance.Instance, accounts []string) (observation, error) {
	var nodes []*topology.Node
	for _, n := range r.Nodes {
		if n.Culvert() || n.Counts() {
			nodes = append(nodes, n)
		}
	}
	views, errs := make([]nodeView, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			if views[i], errs[i] = observeNode(ctx, r, n, slices.Contains(accounts, n.Name)); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", n.Name, errs[i])
			}
		})
	}
	wg.Wait()
	seen := observation{}
	for i, n := range nodes {
		seen[n.Name] = views[i]
	}
	return seen, errors.Join(errs...)
}

// observeNode reads the counters, of a node with an account while nothing is on
// its way: frames sent before are those sent after. On a busy node it settles
// for what it saw.
func observeNode(ctx context.Context, r *instance.Instance, n *topology.Node, account bool) (v nodeView, err error) {
	if n.Counts() {
		return kernelCounters(r, n)
	}
	if !account {
		return counters(ctx, r, n)
	}
	before, err := framesSentTo(r, n)
	if err != nil {
		return v, err
	}
	for range 4 {
		if v, err = counters(ctx, r, n); err != nil {
			return v, err
		}
		if v.sentTo, err = framesSentTo(r, n); err != nil || v.sentTo == before {
			return v, err
		}
		before = v.sentTo
	}
	return v, nil
}

// counters reads what a culvert node counts.
func counters(ctx context.Context, r *instance.Instance, n *topology.Node) (nodeView, error) {
	v := nodeView{outcomes: map[string]outcomeView{}, sids: map[string]counterView{}, policies: map[string]policyView{}, slices: map[string]sliceView{}}
	var all countersView
	if err := askJSON(ctx, r, n, &all, "counters"); err != nil {
		return v, err
	}
	for _, o := range all.Outcomes {
		v.outcomes[o.Reason] = o
	}
	for _, s := range all.SIDs {
		v.sids[s.Key] = s.counterView
	}
	for _, p := range all.Policies {
		v.policies[p.Key] = p
	}
	var err error
	if v.metrics, err = metrics(ctx, r, n); err != nil || n.Config["slices"] == nil {
		return v, err
	}
	var list []sliceView
	err = askJSON(ctx, r, n, &list, "slice")
	for _, s := range list {
		v.slices[s.Name] = s
	}
	return v, err
}

// attaches says whether the node's configuration names the interface.
func attaches(n *topology.Node, device string) bool {
	list, _ := n.Config["interfaces"].([]any)
	return slices.ContainsFunc(list, func(item any) bool { return topology.NameOf(item) == device })
}

// framesSentTo counts what the other ends of the node's links sent, of those that
// culvert is on.
func framesSentTo(r *instance.Instance, n *topology.Node) (sum uint64, err error) {
	for _, l := range r.Topology.Links {
		for i, e := range l.Ends {
			if e.Node != n.Name || !attaches(n, e.Name) {
				continue
			}
			peer := l.Ends[1-i]
			out, err := r.Namespace(r.Node(peer.Node)).Output("ip", "-j", "-s", "link", "show", "dev", peer.Name)
			if err != nil {
				return 0, err
			}
			var links []struct {
				Stats struct {
					TX struct {
						Packets uint64 `json:"packets"`
					} `json:"tx"`
				} `json:"stats64"`
			}
			if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
				return 0, fmt.Errorf("ip link of %s shows %q", peer.Name, out)
			}
			sum += links[0].Stats.TX.Packets
		}
	}
	return sum, nil
}

// compare looks again until the counters are as the check wants them, or do
// not become so.
func compare(ctx context.Context, r *instance.Instance, c *topology.Check, before observation, o *report.Outcome) {
	if len(c.Counters)+len(c.Accounts) == 0 {
		return
	}
	var found report.Outcome
	instance.WaitFor(2*time.Second, func() bool {
		found = report.Outcome{Sent: o.Sent, Received: o.Received}
		after, err := observe(ctx, r, c.Accounts)
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
		if _, ok := after.sids[x.SID]; !ok {
			o.Fail("%s has no SID %s", x.Node, x.SID)
			return
		}
		name, got = "SID "+x.SID, after.sids[x.SID].Packets-before.sids[x.SID].Packets
	case x.Policy != "":
		p, was := after.policies[x.Policy], before.policies[x.Policy]
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
		name, got = x.Outcome, after.outcomes[x.Outcome].Packets-before.outcomes[x.Outcome].Packets
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
	for reason, x := range after.outcomes {
		if x.Drop {
			drops += x.Packets - before.outcomes[reason].Packets
		}
	}
	o.Say("%s: in %d = out %d + drops %d", name, in, out-drops, drops)
}

// explain lists what the culvert nodes dropped or passed since they were looked
// at: where to look when a check fails.
func (r *checker) explain(ctx context.Context, before observation) (list []string) {
	after, err := observe(ctx, r.runner.Instance, nil)
	if err != nil {
		return nil // there is a problem to be told already
	}
	r.seen = after
	for _, n := range r.Nodes {
		for _, reason := range slices.Sorted(maps.Keys(after[n.Name].outcomes)) {
			x := after[n.Name].outcomes[reason]
			if d := x.Packets - before[n.Name].outcomes[reason].Packets; d > 0 {
				list = append(list, fmt.Sprintf("%s %s +%d", n.Name, reason, d))
			}
		}
	}
	return list
}

// adjacency wants a next hop of a culvert node to leave by an interface.
func (r *runner) adjacency(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	n := r.Node(c.From)
	var list []adjacencyView
	if err := askJSON(ctx, r.Instance, n, &list, "adjacency"); err != nil {
		return err
	}
	for _, a := range list {
		if !strings.Contains(a.Key, c.To.String()) {
			continue
		}
		o.Say("%s: %s by %s", a.Key, a.State, a.Interface)
		if a.Interface != c.Expect.Interface || a.State != "ready" {
			o.Fail("%s leaves by %q (%s): want %s", a.Key, a.Interface, a.State, c.Expect.Interface)
		}
		return nil
	}
	o.Fail("%s has no adjacency to %v", n.Name, c.To)
	return nil
}
