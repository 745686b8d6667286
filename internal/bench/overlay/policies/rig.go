package policies

import (
	"context"
	"fmt"
	"strconv"
	"time"

	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// Pods by what isolates them, beside those that have a number of rules.
const (
	Off    = "off"    // on a node that does not enforce NetworkPolicies
	None   = "none"   // on a node that enforces them, and has no pod that a policy selects
	First  = "first"  // the same pod, while one policy selects another pod of that node
	Others = "others" // beside pods with many rules, but no policy selects this one
	Many   = "many"   // all pods beside, of which no policy selects any: each packet is for another one
)

// Plan is what is measured.
type Plan struct {
	Culvert, BPFFS string
	CPU            int
	Rules          []int // of the pods' policies, in each direction
	Flows          int   // of each pod
	Packets        int   // of a run
	Pods           int   // of the node that enforces, beside those
	Services       int   // that each node has the rules of, as kube-proxy makes them
}

// Rig has pods without policies and with them.
type Rig struct {
	node.Undo
	plan Plan
	// Nodes that do not enforce, that have one policy at most, and that have many rules.
	off, few, open *host
	first          bool // the policy of few selects a pod
	l2             *progrun.Program
}

// neighbour is the pod that the first policy of a node selects, and the policy.
const neighbour = "neighbour"

// knownTime is how long an agent may take to have all rules in its tables.
const knownTime = 5 * time.Minute

// Open starts the nodes.
func Open(ctx context.Context, plan Plan) (_ *Rig, err error) {
	r := &Rig{plan: plan}
	defer r.OnError(&err)
	start := func(h **host, suffix, enforce string, pods []string) error {
		if *h, err = openHost(ctx, plan, node.RunName()+suffix, enforce, pods); err == nil {
			r.Later((*h).Close)
		}
		return err
	}
	if err := start(&r.off, "-off", config.PoliciesOff, []string{Off}); err != nil {
		return nil, err
	}
	if err := start(&r.few, "-few", config.PoliciesEnforce, []string{None, neighbour}); err != nil {
		return nil, err
	}
	names := append([]string{Others}, plan.rules()...)
	for _, n := range plan.Rules {
		names = append(names, sender(strconv.Itoa(n)))
	}
	for i := range plan.Pods {
		names = append(names, beside(i))
	}
	if err := start(&r.open, "-pol", config.PoliciesEnforce, names); err != nil {
		return nil, err
	}
	for _, n := range plan.Rules {
		name := strconv.Itoa(n)
		putPolicy(r.open.api, name, name, n, plan.Flows, remote)
		putPolicy(r.open.api, sender(name), sender(name), n, plan.Flows, outside)
	}
	err = r.open.Net.Node.Do(func() (err error) {
		r.l2, err = r.open.Bench.Baseline(r.open.Hop())
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := r.open.awaitPolicies(ctx, 2*len(plan.Rules)); err != nil {
		return nil, err
	}
	for _, name := range plan.names() {
		h, p := r.podOf(Forwarded, name)
		if err := h.establish(plan, p); err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return r, r.prove(ctx)
}

// setFirst has the node without policies get its first one, or has that select no pod.
func (r *Rig) setFirst(ctx context.Context, first bool) error {
	if r.first == first {
		return nil
	}
	r.first = first
	selected, isolated := "nobody", 0
	if first {
		selected, isolated = neighbour, 1
	}
	putPolicy(r.few.api, neighbour, selected, 1, 1, remote)
	return r.few.awaitPolicies(ctx, isolated)
}

// prove looks whether the policies are those that are to be measured: flows begin, and what no rule
// allows does not pass.
func (r *Rig) prove(ctx context.Context) error {
	for _, n := range r.plan.Rules {
		p := r.open.pods[strconv.Itoa(n)]
		if _, err := r.open.live(r.plan, r.open.load(Ingress, p, r.plan.Flows)); err != nil {
			return fmt.Errorf("a pod with %d rules: %w", n, err)
		}
		before, err := r.open.daemon.Outcomes(ctx)
		if err != nil {
			return err
		}
		if _, err := r.open.live(r.plan, r.open.foreign(p)); err == nil {
			return fmt.Errorf("a pod with %d rules takes what none of them allows", n)
		}
		after, err := r.open.daemon.Outcomes(ctx)
		if err != nil {
			return err
		}
		if dropped := after[droppedIngress] - before[droppedIngress]; dropped != uint64(r.plan.Packets) {
			return fmt.Errorf("a pod with %d rules: policies dropped %d of %d packets that no rule allows", n, dropped, r.plan.Packets)
		}
	}
	return nil
}

// droppedIngress is the outcome of a packet that no policy allows.
const droppedIngress = "policy_ingress"

// awaitPolicies waits until so many pods are isolated, by rules that are in the tables.
func (h *host) awaitPolicies(ctx context.Context, pods int) error {
	ctx, cancel := context.WithTimeout(ctx, knownTime)
	defer cancel()
	for {
		s, err := h.daemon.Client.Status(ctx, &pb.StatusRequest{})
		if err == nil && int(s.Overlay.GetIsolated()) == pods && s.Overlay.GetClosed() == 0 {
			return nil
		}
		if wait := node.Wait(ctx, 20*time.Millisecond); wait != nil {
			return fmt.Errorf("%d of %d pods are isolated by their policies: %w: %s", s.GetOverlay().GetIsolated(), pods, wait, h.daemon.Tail())
		}
	}
}

// Sample is the CPU time of a packet, in ns.
type Sample struct {
	L2   float64            // of L2 forwarding
	Pods map[string]float64 // by what isolates them: Plan.Names
}

// sender is the name of the pod that sends to outside of the cluster, by rules as those of another pod.
func sender(name string) string { return name + "-outside" }

// beside is the name of a pod beside those that are measured by themselves.
func beside(number int) string { return fmt.Sprintf("beside-%d", number) }

// Names are those of the pods that are measured in a direction.
func (p Plan) Names(direction string) []string {
	names := p.names()
	if direction == Ingress && p.Pods > 0 {
		names = append(names, Many)
	}
	return names
}

func (p Plan) names() []string {
	return append([]string{Off, None, First, Others}, p.rules()...)
}

// rules are the names of pods that policies select.
func (p Plan) rules() (names []string) {
	for _, n := range p.Rules {
		names = append(names, strconv.Itoa(n))
	}
	return names
}

// Measure takes a sample of all in a direction. The order has the numbers of Names, and what comes
// after the last for L2 forwarding, each as often as the others.
func (r *Rig) Measure(ctx context.Context, direction string, order []int) (s Sample, err error) {
	s.Pods = map[string]float64{}
	names := r.plan.Names(direction)
	passes := float64(len(order)) / float64(len(names)+1)
	for _, i := range order {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if i == len(names) {
			ns, err := r.open.live(r.plan, r.open.forwarding(r.l2))
			if err != nil {
				return s, fmt.Errorf("L2 forwarding: %w", err)
			}
			s.L2 += ns / passes
			continue
		}
		h, l := r.loadOf(direction, names[i])
		if h == r.few {
			if err := r.setFirst(ctx, names[i] == First); err != nil {
				return s, err
			}
		}
		ns, err := h.live(r.plan, l)
		if err != nil {
			return s, fmt.Errorf("%s, policy %s: %w", direction, names[i], err)
		}
		s.Pods[names[i]] += ns / passes
	}
	return s, nil
}

// loadOf is what is sent for a name, and where.
func (r *Rig) loadOf(direction, name string) (*host, rig.Load) {
	if name == Many {
		return r.open, r.open.toMany(r.open.pods[beside(0)], r.plan.Pods)
	}
	h, p := r.podOf(direction, name)
	return h, h.load(direction, p, r.plan.Flows)
}

// podOf is the pod that is measured in a direction for a name, and its node.
func (r *Rig) podOf(direction, name string) (*host, pod) {
	switch name {
	case Off:
		return r.off, r.off.pods[Off]
	case None, First:
		return r.few, r.few.pods[None]
	case Others:
		return r.open, r.open.pods[Others]
	}
	if direction == Forwarded {
		name = sender(name)
	}
	return r.open, r.open.pods[name]
}

// Added is how long the CNI plugin took for each pod of the node that enforces, in order.
func (r *Rig) Added() []time.Duration { return r.open.added }

// Version says what is measured.
func (r *Rig) Version(ctx context.Context) (version, dataPath string, err error) {
	return r.open.daemon.Version(ctx)
}
