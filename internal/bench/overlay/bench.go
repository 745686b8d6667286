package overlay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/overlay/policies"
	"github.com/culvert-net/culvert/internal/bench/overlay/services"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/lab"
)

// topology is the laboratory, and instance its name here: the same for all runs, so
// that each run removes what a killed one left.
const (
	topology = "overlay-bench"
	instance = "bench-overlay"
)

// podInterface is the interface of every pod, and uplink that of a node to the other.
const (
	podInterface = "eth0"
	uplink       = "eth0"
)

// rig is the laboratory, with what sends through it. Close takes everything away.
type rig struct {
	node.Undo
	params   *Params
	setting  experiment.Setting
	core     core
	second   core // for flows on two CPUs
	network  *lab.Network
	services int      // as many nodes have
	gso      string   // how the pods are set: on, off, or not yet
	cluster  *cluster // nil until it is measured
	policies *policies.Rig
}

// Open builds the laboratory, and sees that packets go the ways that they are to.
func (p *Params) Open(ctx context.Context, set experiment.Setting) (experiment.Bench, error) {
	return p.open(ctx, set, instance)
}

func (p *Params) open(ctx context.Context, set experiment.Setting, instance string) (_ *rig, err error) {
	cpu, err := proc.Chosen(set.CPU)
	if err != nil {
		return nil, err
	}
	r := &rig{params: p, setting: set}
	if r.core, err = newCore(cpu); err != nil {
		return nil, err
	}
	if slices.Contains(p.Traffic, tcpFlows) {
		if r.second, err = beside(cpu); err != nil {
			return nil, err
		}
	}
	defer r.OnError(&err)
	if len(p.Traffic) > 0 || len(p.agentNodes()) > 0 {
		err = r.openNetwork(ctx, instance)
	}
	return r, err
}

// openNetwork builds the laboratory, and looks at a packet of each variant.
func (r *rig) openNetwork(ctx context.Context, instance string) (err error) {
	r.network, err = lab.Open(ctx, topology, instance, r.setting.Culvert, "", io.Discard)
	if errors.Is(err, lab.ErrBusy) {
		return fmt.Errorf("another `culvert bench overlay` is running in the laboratory %s: wait until it has ended", instance)
	}
	if err != nil {
		return err
	}
	r.Later(r.network.Close)
	for _, name := range []string{hostRouted, ipInIP} {
		if !slices.Contains(r.params.Variants, name) {
			continue
		}
		if err := r.routeHosts(variantOf(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, v := range r.params.measured() {
		for _, family := range r.params.Families {
			if err := r.proveWay(ctx, v, family); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, family, err)
			}
		}
	}
	return nil
}

// Environment is what is measured.
func (r *rig) Environment(ctx context.Context) (e result.Environment, err error) {
	if r.network == nil {
		if err := r.openPolicies(ctx); err != nil {
			return e, err
		}
		e.Version, e.DataPath, err = r.policies.Version(ctx)
		return e, err
	}
	e.Version, e.DataPath, err = r.network.Status(ctx, variantOf(ours).node(1))
	return e, err
}

// node and pod are the laboratory's names.
func (v variant) node(number int) string { return fmt.Sprintf("%s-%d", v.name, number) }
func (v variant) pod(end string) string  { return v.name + "-" + end }

func (r *rig) pods(v variant, family string) (pods, error) {
	to, err := r.network.Address(v.pod("b"), family == ipv4)
	return pods{r.network, v.pod("a"), v.pod("b"), to}, err
}

// proveWay looks at a packet of a variant where it comes to the second node.
func (r *rig) proveWay(ctx context.Context, v variant, family string) error {
	p, err := r.pods(v, family)
	if err != nil {
		return err
	}
	var fd int
	err = r.network.Do(v.node(2), func() (err error) {
		fd, err = watch(uplink)
		return err
	})
	if err != nil {
		return err
	}
	w, err := seen(ctx, p, fd, fmt.Appendf(nil, "culvert bench overlay %d", time.Now().UnixNano()))
	if err == nil && w != v.way {
		err = fmt.Errorf("packets have %s: want %s", w, v.way)
	}
	return errors.Join(err, unix.Close(fd))
}

// setGSO has the pods hand on large packets, or those of their MTU.
func (r *rig) setGSO(value string) error {
	if r.gso == value {
		return nil
	}
	features := map[string]bool{}
	for _, name := range []string{"tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "rx-gro"} {
		features[name] = value == on
	}
	for _, v := range r.params.measured() {
		for _, end := range []string{"a", "b"} {
			err := r.network.Do(v.pod(end), func() error {
				tool, err := ethtool.NewEthtool()
				if err != nil {
					return err
				}
				defer tool.Close()
				return tool.Change(podInterface, features)
			})
			if err != nil {
				return fmt.Errorf("GSO %s at pod %s: %w", value, v.pod(end), err)
			}
		}
	}
	r.gso = value
	return nil
}

// Measure takes a sample at a point.
func (r *rig) Measure(ctx context.Context, which experiment.Point, round int) ([]experiment.Sample, error) {
	for _, p := range r.params.points() {
		if p.id() == which.ID {
			return r.measureTraffic(ctx, p, round)
		}
	}
	for _, n := range r.params.agentNodes() {
		if agentPoint(n) == which.ID {
			return r.measureAgent(ctx, n)
		}
	}
	for _, d := range r.params.directions() {
		if policyPoint(d) == which.ID {
			return r.measurePolicies(ctx, d, round)
		}
	}
	return nil, fmt.Errorf("there is no point %q", which.ID)
}

// setServices has the nodes of all variants as many Services.
func (r *rig) setServices(n int) error {
	if r.services == n {
		return nil
	}
	rules := services.Rules(n)
	var group sync.WaitGroup
	nodes := r.serviceNodes()
	errs := make([]error, len(nodes))
	for i, node := range nodes { // the kernel waits most of the time
		group.Go(func() {
			if err := r.network.Do(node, func() error { return services.Load(rules) }); err != nil {
				errs[i] = fmt.Errorf("%d Services at node %s: %w (fix: install nftables, or --services 0)", n, node, err)
			}
		})
	}
	group.Wait()
	r.services = n
	return errors.Join(errs...)
}

// serviceNodes are those of all variants that are measured.
func (r *rig) serviceNodes() (names []string) {
	for _, v := range r.params.measured() {
		names = append(names, v.node(1), v.node(2))
	}
	return names
}

// measureTraffic has each variant send `passes` times, there and back through the
// list of them, which each round begins at another: what the machine does meets all
// alike.
func (r *rig) measureTraffic(ctx context.Context, p point, round int) (_ []experiment.Sample, err error) {
	if err := errors.Join(r.setGSO(p.gso()), r.setServices(p.services)); err != nil {
		return nil, err
	}
	list := r.params.measured()
	flows := make([]flow, len(list))
	defer func() {
		for _, f := range flows {
			if f != nil {
				err = errors.Join(err, f.close())
			}
		}
	}()
	for i, v := range list {
		if flows[i], err = r.openFlow(v, p); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	before, err := r.network.Counters(ctx)
	if err != nil {
		return nil, err
	}
	sums := make([]amount, len(list))
	for _, i := range thereAndBack(len(list), round, passes) {
		a, err := r.serve(flows[i])
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("%s: %w", list[i].name, err)
		}
		sums[i].add(a)
	}
	after, err := r.network.Counters(ctx)
	if err != nil {
		return nil, err
	}
	for i, v := range list {
		if err := v.proof.check(p, sums[i], before, after); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		if sums[i].lost > 0 {
			r.setting.Warn("%s: of %s %d datagrams of %d were lost: the receiver's buffer was too small for what this CPU put off", p.id(), v.name, sums[i].lost, sums[i].packets)
		}
	}
	return r.samples(p, list, sums), nil
}

func (r *rig) openFlow(v variant, p point) (flow, error) {
	between, err := r.pods(v, p.family)
	if err != nil {
		return nil, err
	}
	switch p.traffic {
	case udp:
		return openUDP(between, r.params.Datagram)
	case tcpRR:
		return openTCPExchange(between)
	case udpRR:
		return openUDPExchange(between)
	case tcpCRR:
		return openConnections(between)
	case tcpFlows:
		return openFlows(between, r.params.Connections)
	}
	return openTCP(between)
}

// serve serves a flow on the chosen CPU, or its halves on two.
func (r *rig) serve(f flow) (amount, error) {
	if both, ok := f.(*halves); ok {
		return both.serve(r.core, r.second, time.Duration(r.params.Trial))
	}
	return r.core.serve(f, time.Duration(r.params.Trial))
}

// passes are how often all send in a round.
const passes = 4

// thereAndBack are all of n, from `first` on, then backwards, and so on.
func thereAndBack(n, first, passes int) (order []int) {
	pass := make([]int, n)
	for i := range pass {
		pass[i] = (first + i) % n
	}
	for range passes {
		order = append(order, pass...)
		slices.Reverse(pass)
	}
	return order
}

// proof are the counters that must have counted all of a variant's packets. In names
// the verb is the family's number, or its name.
type proof struct {
	node, policy string
	sids         map[string]string // by node; the sender's counts what comes back
}

// check looks at what was counted while an amount was sent.
func (f proof) check(p point, a amount, before, after map[string]lab.Counters) error {
	verbs := strings.NewReplacer("%s", p.family, "%d", strings.TrimPrefix(p.family, "ipv"))
	if f.node != "" {
		name := verbs.Replace(f.policy)
		if n := after[f.node].Policies[name] - before[f.node].Policies[name]; n < a.packets {
			return fmt.Errorf("policy %s of %s counted %d of %d packets: they went another way", name, f.node, n, a.packets)
		}
	}
	for node, format := range f.sids {
		sid := verbs.Replace(format)
		n := after[node].SIDs[sid] - before[node].SIDs[sid]
		if n == 0 && (p.traffic != udp || !strings.HasSuffix(node, "-1")) {
			return fmt.Errorf("SID %s of %s counted nothing: packets went another way", sid, node)
		}
	}
	return nil
}
