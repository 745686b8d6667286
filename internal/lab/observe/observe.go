package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Observation is what the culvert nodes count, and what was sent to them; and
// what kernels are told to count.
type Observation map[string]nodeView

type nodeView struct {
	Outcomes map[string]outcomeView
	Sids     map[string]counterView
	Policies map[string]policyView
	slices   map[string]sliceView
	named    map[string]counterView // of nft
	metrics  map[string]uint64      // for Prometheus
	// sentTo are the frames that neighbours sent to the node.
	sentTo uint64
}

// total is the sum of all outcomes.
func (v nodeView) total() (n uint64) {
	for _, o := range v.Outcomes {
		n += o.Packets
	}
	return n
}

// Observe looks at all nodes that count at once. What was sent to them is only of
// those whose account is to be closed.
func Observe(ctx context.Context, r *instance.Instance, accounts []string) (Observation, error) {
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
	seen := Observation{}
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
	v := nodeView{Outcomes: map[string]outcomeView{}, Sids: map[string]counterView{}, Policies: map[string]policyView{}, slices: map[string]sliceView{}}
	var all countersView
	if err := daemon.AskJSON(ctx, r, n, &all, "counters"); err != nil {
		return v, err
	}
	for _, o := range all.Outcomes {
		v.Outcomes[o.Reason] = o
	}
	for _, s := range all.SIDs {
		v.Sids[s.Key] = s.counterView
	}
	for _, p := range all.Policies {
		v.Policies[p.Key] = p
	}
	var err error
	if v.metrics, err = metrics(ctx, r, n); err != nil || n.Config["slices"] == nil {
		return v, err
	}
	var list []sliceView
	err = daemon.AskJSON(ctx, r, n, &list, "slice")
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
