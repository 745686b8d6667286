package overlay

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/lab"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// The laboratory's nodes for this.
const (
	agentNode   = "agent"
	speakerNode = "speaker"
)

// Colors of the policies to a node, by what they carry.
var colors = map[string]uint32{ipv4: 4, ipv6: 6}

// Preferences of the candidate paths: a node's own has 100.
const (
	preferenceOfAll = 200 // one to each node, by BGP
	preferenceByBGP = 300
	preferenceByAPI = 400
)

// cluster is the agent of a node that knows many others, each with two prefixes, two policies and two more candidate paths, which came by BGP.
type cluster struct {
	node.Undo
	network *lab.Network
	client  culvertv1connect.CulvertClient
	address netip.Addr // the node's
	speaker *speaker
	pods    []*os.File // the networks of pods to be
	nodes   int        // that it knows
}

func openCluster(network *lab.Network, pods int) (_ *cluster, err error) {
	c := &cluster{network: network, client: node.Dial(network.Socket(agentNode))}
	defer c.OnError(&err)
	ends := map[string]netip.Addr{}
	for _, name := range []string{agentNode, speakerNode} {
		if ends[name], err = network.Address(name, false); err != nil {
			return nil, err
		}
	}
	c.address = ends[agentNode]
	if c.speaker, err = startSpeaker(network, ends[speakerNode], ends[agentNode]); err != nil {
		return nil, err
	}
	c.Later(c.speaker.stop)
	for range pods {
		ns, err := proc.NewNamespace(func() error { return nil })
		if err != nil {
			return nil, err
		}
		c.pods = append(c.pods, ns)
		c.Later(ns.Close)
	}
	return c, nil
}

// other is a node that is not there.
type other struct {
	number  int
	address netip.Addr
}

func otherNode(number int) other {
	return other{number, netip.MustParseAddr(fmt.Sprintf("2001:db8:100::%x", number+1))}
}

func (o other) name() string { return fmt.Sprintf("other-%d", o.number) }

func (o other) policy(family string) string { return o.name() + ":" + family }

// nodePolicy is the policy that the agent makes for the node by itself.
func nodePolicy(o other) string { return o.policy(ipv4) }

// by returns the segment list to a node through another node.
func (o other) by(hop other, family string) []netip.Addr {
	return []netip.Addr{hop.address, netip.MustParseAddr(fmt.Sprintf("fc00:1:%x:%d::", o.number, colors[family]))}
}

func (o other) path(family string, preference, distinguisher uint32, hop other) srpolicy.Advertised {
	return srpolicy.Advertised{
		Color: colors[family], Endpoint: o.address, Distinguisher: distinguisher, Preference: preference,
		SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: o.by(hop, family)}},
	}
}

// knownTime is how long it may take until all of a number of nodes are known.
const knownTime = 3 * time.Minute

// become configures so many nodes at the agent, and no others.
func (c *cluster) become(ctx context.Context, nodes int) error {
	if c.nodes == nodes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, knownTime)
	defer cancel()
	list := make([]any, nodes)
	for i := range list {
		o := otherNode(i)
		list[i] = map[string]any{
			"name": o.name(), "address": o.address.String(), "locator": fmt.Sprintf("fc00:1:%x::/48", i),
			"prefixes": []any{fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), fmt.Sprintf("fd00:1:%x::/64", i)},
		}
	}
	if err := c.network.Apply(ctx, agentNode, map[string]any{"overlay": map[string]any{"nodes": list}}); err != nil {
		return fmt.Errorf("tell of %d nodes: %w", nodes, err)
	}
	for i := min(nodes, c.nodes); i < max(nodes, c.nodes); i++ {
		for _, family := range Families() {
			path := otherNode(i).path(family, preferenceOfAll, 1, otherNode((i+1)%nodes))
			if err := c.speaker.do(order{Withdraw: i >= nodes, Path: path}); err != nil {
				return err
			}
		}
	}
	c.nodes = nodes
	for i := range nodes {
		for _, family := range Families() {
			if err := c.awaitActive(ctx, otherNode(i).policy(family), preferenceOfAll); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitActive asks until the policy's active path has the preference: whoever reads
// waits for a change that is under way, whose end is in the tables.
func (c *cluster) awaitActive(ctx context.Context, policy string, preference uint32) error {
	for {
		active, err := c.active(ctx, policy)
		if err != nil || active == preference {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("policy %s: the active path has preference %d, want %d: %w", policy, active, preference, ctx.Err())
		case <-time.After(look):
		}
	}
}

// look is how often.
const look = time.Millisecond

func (c *cluster) active(ctx context.Context, policy string) (preference uint32, err error) {
	found, err := c.client.ListPolicies(ctx, &pb.ListPoliciesRequest{Key: policy})
	if err != nil {
		return 0, fmt.Errorf("policy %s: %w", policy, err)
	}
	for _, p := range found.Policies {
		i := slices.IndexFunc(p.Paths, func(v *pb.Verdict) bool { return v.Active })
		if i >= 0 {
			return p.Paths[i].Preference, nil
		}
	}
	return 0, nil
}

// changeTime is how long a change may take.
const changeTime = 30 * time.Second

// source is who says that a path changes.
type source struct {
	name       string
	policy     func(other) string // that leads to a node then
	preference uint32
	// set puts the path to a node by another, or drops it.
	set func(c *cluster, ctx context.Context, to, hop other, drop bool) error
}

var sources = []source{
	{"api", ownPolicy, preferenceByAPI, (*cluster).setPolicy},
	{"bgp", nodePolicy, preferenceByBGP, func(c *cluster, _ context.Context, to, hop other, drop bool) error {
		return c.speaker.do(order{Withdraw: drop, Path: to.path(ipv4, preferenceByBGP, 2, hop)})
	}},
}

// setPolicy makes the policy to a node one of the operator's: its steering goes over.
func (c *cluster) setPolicy(ctx context.Context, to, hop other, drop bool) error {
	if drop {
		_, err := c.client.Delete(ctx, &pb.DeleteRequest{Refs: []*pb.Ref{{Kind: "policy", Key: ownPolicy(to)}}})
		return err
	}
	var segments []string
	for _, s := range to.by(hop, ipv4) {
		segments = append(segments, s.String())
	}
	_, err := c.client.Add(ctx, &pb.AddRequest{Config: &pb.Config{Policies: []*pb.Policy{{
		Name: ownPolicy(to), Color: colors[ipv4], Endpoint: to.address.String(), Preference: preferenceByAPI, Source: c.address.String(),
		SegmentLists: []*pb.SegmentList{{Weight: 1, Segments: segments}},
	}}}})
	return err
}

func ownPolicy(to other) string { return "bench-" + to.name() }

// change puts a path, or takes it away, and says how long it took until the tables
// had it.
func (c *cluster) change(ctx context.Context, s source, number int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	n := number / 2
	to, hop := otherNode(n%c.nodes), otherNode((n+2)%c.nodes)
	drop, policy, want := number%2 == 1, s.policy(to), s.preference
	if drop {
		policy, want = nodePolicy(to), preferenceOfAll
	}
	begun := time.Now()
	if err := s.set(c, ctx, to, hop, drop); err != nil {
		return 0, fmt.Errorf("a change by %s: %w", s.name, err)
	}
	err := c.awaitActive(ctx, policy, want)
	return time.Since(begun), err
}

// timed are the times of many of a thing, and the CPU time of the agent in all of
// them.
type timed struct {
	took []time.Duration
	cpu  time.Duration
}

// samples are their quantiles, in ms.
func (t timed) samples(metric string, labels result.Labels) (out []experiment.Sample) {
	ms := make([]float64, len(t.took))
	for i, d := range t.took {
		ms[i] = d.Seconds() * 1e3
	}
	slices.Sort(ms)
	add := func(quantile string, value float64) {
		out = append(out, experiment.Sample{Metric: metric, Labels: labels.With(labelQuantile, quantile), Unit: "ms", Value: value})
	}
	add(p50, stats.Quantile(ms, 0.5))
	add(p99, stats.Quantile(ms, 0.99))
	if t.cpu > 0 {
		add(perEach, t.cpu.Seconds()*1e3/float64(len(ms)))
	}
	return out
}

// perEach stands in the place of a quantile: the agent's CPU time.
const perEach = "CPU"

// during measures the agent's CPU time.
func (c *cluster) during(t *timed, do func() error) (err error) {
	pid := c.network.Daemons()[agentNode]
	t.cpu, err = proc.During(func() (time.Duration, error) { return proc.TimeOfAll(pid) }, do)
	return err
}

func (c *cluster) changes(ctx context.Context, s source, n int) (t timed, err error) {
	err = c.during(&t, func() error {
		for i := range 2 * ((n + 1) / 2) { // each path that is added is withdrawn
			took, err := c.change(ctx, s, i)
			if err != nil {
				return err
			}
			t.took = append(t.took, took)
		}
		return nil
	})
	return t, err
}

// measureAgent takes what a number of nodes makes of the agent.
func (r *rig) measureAgent(ctx context.Context, nodes int) (out []experiment.Sample, err error) {
	if r.cluster == nil {
		if r.cluster, err = openCluster(r.network, r.params.Pods); err != nil {
			return nil, err
		}
		r.Later(r.cluster.Close)
	}
	c := r.cluster
	if err := c.become(ctx, nodes); err != nil {
		return nil, err
	}
	known := result.Labels{labelNodes: fmt.Sprint(nodes)}
	if r.params.Pods > 0 {
		plugin, agent, err := c.addPods(ctx, filepath.Dir(r.setting.Culvert))
		if err != nil {
			return nil, err
		}
		out = append(out, agent.samples(metricPod, known.With(labelBy, "agent"))...)
		out = append(out, plugin.samples(metricPod, known.With(labelBy, "plugin"))...)
	}
	if r.params.Changes > 0 {
		for _, s := range sources {
			t, err := c.changes(ctx, s, r.params.Changes)
			if err != nil {
				return nil, err
			}
			out = append(out, t.samples(metricChange, known.With(labelBy, s.name))...)
		}
	}
	p, err := procfs.NewProc(r.network.Daemons()[agentNode])
	if err != nil {
		return nil, err
	}
	s, err := p.NewStatus()
	return append(out, experiment.Sample{Metric: metricMemory, Labels: known, Unit: "MiB", Value: float64(s.VmRSS) / (1 << 20)}), err
}
