package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Observation is what the nodes of a laboratory count, by their names.
type Observation map[string]Node

// Kind of a counter.
type Kind string

// Kinds of counters. A slice has two, "NAME uplink" and "NAME downlink".
const (
	Outcome Kind = "outcome"
	SID     Kind = "SID"
	Policy  Kind = "policy"
	Slice   Kind = "slice"
	Metric  Kind = "metric"  // for Prometheus, with its labels
	NFT     Kind = "counter" // a named one of nft
)

// Node is what a node counts.
type Node struct {
	Packets  map[Kind]map[string]uint64
	lists    map[string][]uint64 // packets of a policy's segment lists
	drops    map[string]bool     // outcomes that are drops
	sentTo   uint64              // frames that neighbours sent to the node
	injected uint64              // frames that its daemon sent through the data path, such as those that waited for a neighbour
}

func newNode() Node {
	n := Node{Packets: map[Kind]map[string]uint64{}, lists: map[string][]uint64{}, drops: map[string]bool{}}
	for _, k := range []Kind{Outcome, SID, Policy, Slice, Metric, NFT} {
		n.Packets[k] = map[string]uint64{}
	}
	return n
}

// total is the sum of all outcomes.
func (n Node) total() (sum uint64) {
	for _, packets := range n.Packets[Outcome] {
		sum += packets
	}
	return sum
}

// Observe looks at all nodes that count at once. What was sent to them is only of
// those whose account is to be closed.
func Observe(ctx context.Context, r *instance.Instance, accounts []string) (Observation, error) {
	nodes := r.Select(func(n *topology.Node) bool { return n.Culvert() || n.Counts() })
	views, errs := make([]Node, len(nodes)), make([]error, len(nodes))
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
// its way.
func observeNode(ctx context.Context, r *instance.Instance, n *topology.Node, account bool) (v Node, err error) {
	look := func() (Node, error) { return counters(ctx, r, n) }
	switch {
	case n.Counts():
		return kernelCounters(r, n)
	case !account:
		return look()
	}
	v, sent, err := quiet(func() (uint64, error) { return framesSentTo(r, n) }, look)
	v.sentTo = sent
	return v, err
}

// mostLooks is how often a node is looked at until it is quiet. A look takes a tenth of a second, and
// ten times as long on a busy machine, while there is a frame of the node's neighbours each second or so.
const mostLooks = 20

// quiet looks until as many frames were sent before as after. If that never is, it settles for what it
// saw last.
func quiet(sent func() (uint64, error), look func() (Node, error)) (v Node, now uint64, err error) {
	before, err := sent()
	if err != nil {
		return v, 0, err
	}
	for range mostLooks {
		if v, err = look(); err != nil {
			return v, 0, err
		}
		if now, err = sent(); err != nil || now == before {
			return v, now, err
		}
		before = now
	}
	return v, now, nil
}

// packets is a counter as commands show it.
type packets struct {
	Packets uint64 `json:"packets"`
}

// counters reads what a culvert node counts.
func counters(ctx context.Context, in *instance.Instance, n *topology.Node) (Node, error) {
	v := newNode()
	var all struct {
		Outcomes []struct {
			Reason string `json:"reason"`
			Drop   bool   `json:"drop"`
			packets
		} `json:"outcomes"`
		Injected uint64 `json:"injected"`
		SIDs     []struct {
			Key string `json:"key"`
			packets
		} `json:"sids"`
		Policies []struct {
			Key string `json:"key"`
			packets
			Lists []packets `json:"lists"`
		} `json:"policies"`
	}
	if err := daemon.AskJSON(ctx, in, n, &all, "counters"); err != nil {
		return v, err
	}
	v.injected = all.Injected
	for _, o := range all.Outcomes {
		v.Packets[Outcome][o.Reason], v.drops[o.Reason] = o.Packets, o.Drop
	}
	for _, s := range all.SIDs {
		v.Packets[SID][s.Key] = s.Packets
	}
	for _, p := range all.Policies {
		v.Packets[Policy][p.Key] = p.Packets
		for _, l := range p.Lists {
			v.lists[p.Key] = append(v.lists[p.Key], l.Packets)
		}
	}
	if err := metrics(ctx, in, n, v.Packets[Metric]); err != nil || n.Config["slices"] == nil {
		return v, err
	}
	var slices []struct {
		Name     string  `json:"name"`
		Uplink   packets `json:"uplink"`
		Downlink packets `json:"downlink"`
	}
	err := daemon.AskJSON(ctx, in, n, &slices, "slice")
	for _, s := range slices {
		v.Packets[Slice][s.Name+" uplink"], v.Packets[Slice][s.Name+" downlink"] = s.Uplink.Packets, s.Downlink.Packets
	}
	return v, err
}

// framesSentTo counts what the other ends of the node's links sent, of those that
// culvert is attached to.
func framesSentTo(in *instance.Instance, n *topology.Node) (sum uint64, err error) {
	attached, _ := n.Config["interfaces"].([]any)
	for _, l := range in.LinksOf(n) {
		here, there := l.From(n.Name)
		if !slices.ContainsFunc(attached, func(item any) bool { return topology.NameOf(item) == here.Name }) {
			continue
		}
		var links []struct {
			Stats struct {
				TX packets `json:"tx"`
			} `json:"stats64"`
		}
		if err := network.JSON(in, in.Node(there.Node), &links, "-s", "link", "show", "dev", there.Name); err != nil || len(links) != 1 {
			return 0, errors.Join(fmt.Errorf("ip shows %d links %s", len(links), there.Name), err)
		}
		sum += links[0].Stats.TX.Packets
	}
	return sum, nil
}

// kernelCounters reads what the kernel of a node counts: at SIDs whose routes say
// so, and in the named counters of nft.
func kernelCounters(in *instance.Instance, n *topology.Node) (Node, error) {
	v := newNode()
	if n.HasSIDs() {
		var routes []struct {
			Destination string  `json:"dst"`
			Encap       string  `json:"encap"`
			Stats       packets `json:"stats64"`
		}
		if err := network.JSON(in, n, &routes, "-6", "-s", "route", "show"); err != nil {
			return v, err
		}
		for _, r := range routes {
			if r.Encap == "seg6local" {
				v.Packets[SID][r.Destination] = r.Stats.Packets
			}
		}
	}
	if !strings.Contains(n.NFT, "counter ") {
		return v, nil
	}
	var list struct {
		NFTables []struct {
			Counter struct {
				Name string `json:"name"`
				packets
			} `json:"counter"`
		} `json:"nftables"`
	}
	err := in.Namespace(n).JSON(&list, "nft", "-j", "list", "counters")
	for _, item := range list.NFTables {
		v.Packets[NFT][item.Counter.Name] = item.Counter.Packets
	}
	return v, err
}

// metrics reads the counters that a node exports to Prometheus, by name and labels;
// none where its configuration does not say where.
func metrics(ctx context.Context, in *instance.Instance, n *topology.Node, into map[string]uint64) error {
	settings, _ := n.Config["metrics"].(map[string]any)
	listen, _ := settings["listen"].(string)
	if listen == "" {
		return nil
	}
	response, err := network.Get(ctx, in, n, listen, "/metrics")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return fmt.Errorf("metrics of %s: %w", n.Name, err)
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetType() == dto.MetricType_COUNTER {
				into[name+labelText(m)] = uint64(m.GetCounter().GetValue())
			}
		}
	}
	return nil
}

// labelText is as in {policy="gold",list="0"}, in the order of their names.
func labelText(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}
