package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/overlay"
)

// policing is what the agent has to do with NetworkPolicies.
type policing struct {
	core   *core
	keeper *isolation.Keeper
	// patience is how long an ADD waits; isolation.DefaultPatience unless set.
	patience time.Duration
}

// begin makes the keeper, once the data path and the pods are there.
func (p *policing) begin(source isolation.Source) {
	p.keeper = isolation.New(isolation.Settings{Path: p.core.dp.NetworkPolicies, Source: source, Pods: p.core.pods, Log: p.core.log, Patience: p.patience})
}

// enforce follows the configuration.
func (p *policing) enforce(o *config.Overlay) error {
	if err := p.keeper.Enforce(o.EnforcesPolicies()); err != nil {
		return fmt.Errorf("NetworkPolicies: %w (overlay.kube.network_policies: \"off\" does without them)", err)
	}
	return nil
}

// added waits until the data path has what policies say of a pod that was put.
func (p *policing) added(v pods.Pod) {
	if err := p.keeper.Wait(p.core.ending, v.HostIfindex, v.UID); err != nil {
		p.core.log.Warn("what NetworkPolicies say of a pod is not known yet: it reaches this node only", "event", logevent.NetPolUnknown, "pod", v.Namespace+"/"+v.Name, "error", err)
	}
}

// changed has the data path follow what the cluster and this node's pods are now.
func (p *policing) changed() {
	if p.keeper != nil {
		p.keeper.Changed()
	}
}

// explain answers people, who know nodes by their addresses.
func (p *policing) explain(a isolation.Ask) ([]netpol.Verdict, error) {
	c := p.core
	nodes := nodeNames{names: map[netip.Addr]string{}, senders: map[string][]netip.Addr{}}
	if err := c.read(func() error {
		self := c.goal.Self
		nodes.add(overlay.Node{Name: self.Name, Address: self.Address, Addresses: self.Addresses, Prefixes: self.Prefixes}, true)
		for _, peer := range c.goal.Wanted.Peers {
			nodes.add(peer.Node, !peer.Unused)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	verdicts, err := p.keeper.Explain(a, nodes.names)
	nodes.hint(verdicts)
	return verdicts, err
}

// nodeNames are the names of nodes by their addresses.
type nodeNames struct {
	names map[netip.Addr]string
	// senders are, by node, the addresses from which it sends to pods of other nodes: the first of
	// each prefix of its pods.
	senders map[string][]netip.Addr
}

// add adds a node. isUsed: packets to its prefixes go to it.
func (n nodeNames) add(v overlay.Node, isUsed bool) {
	for _, a := range append([]netip.Addr{v.Address}, v.Addresses...) {
		n.names[a] = v.Name
	}
	for _, p := range v.Prefixes {
		a := p.Masked().Addr().Next()
		if _, taken := n.names[a]; isUsed && !taken {
			n.names[a] = v.Name
			n.senders[v.Name] = append(n.senders[v.Name], a)
		}
	}
}

// hint says in verdicts on another address of a node what that sends to the pod from.
func (n nodeNames) hint(verdicts []netpol.Verdict) {
	for i := range verdicts {
		v := &verdicts[i]
		j := slices.IndexFunc(n.senders[v.From.Node], func(a netip.Addr) bool { return a.Is4() == v.From.Address.Is4() })
		if j < 0 || len(v.Ingress.IsolatedBy) == 0 || slices.Contains(n.senders[v.From.Node], v.From.Address) {
			continue
		}
		v.Ingress.Why += fmt.Sprintf("; but node %s sends to pods of other nodes from %s: ask about that address", v.From.Node, n.senders[v.From.Node][j])
	}
}

// IsolatedPod is what NetworkPolicies did with the packets of a pod of this node.
type IsolatedPod struct {
	Namespace, Name string
	pod.PolicyCounts
}

// isolated are the pods of which policies have dropped packets, or allowed flows.
func (p *policing) isolated() (out []IsolatedPod) {
	counts, err := p.core.dp.Counters.Isolated()
	if err != nil {
		p.core.log.Warn("what NetworkPolicies did with packets cannot be read", "event", logevent.NetPolUncounted, "error", err)
	}
	for _, v := range p.core.pods.List() {
		if n := counts[v.HostIfindex]; n != (pod.PolicyCounts{}) {
			out = append(out, IsolatedPod{v.Namespace, v.Name, n})
		}
	}
	return out
}

// isolationStatus fills in how NetworkPolicies are enforced. problems: what of them cannot be.
// core.mu is held.
func (p *policing) isolationStatus(o *OverlayStatus) (problems []string) {
	s := p.keeper.Status()
	o.Isolated, o.Closed = s.Isolated, s.Closed
	switch {
	case !s.Enforced && p.core.goal.Desired.Process.Overlay.UsesKube():
		o.NetworkPolicy = "off"
	case !s.Enforced:
		o.NetworkPolicy = "not enforced"
	case s.Applied.IsZero():
		o.NetworkPolicy = "enforced as before a restart"
	default:
		o.NetworkPolicy = "enforced"
	}
	if _, there := p.core.links.Link(netdev.IPVSName); there && s.Enforced {
		problems = append(problems, "NetworkPolicies do not count for what pods send to Services: kube-proxy uses IPVS, set its mode to nftables or iptables")
	}
	if s.Closed > 0 {
		problems = append(problems, fmt.Sprintf("NetworkPolicies: the Kubernetes API has not reported %d pods of this node: they reach this node only", s.Closed))
	}
	if s.Problem != "" {
		problems = append(problems, "NetworkPolicies are as before: "+s.Problem)
	}
	problems = append(problems, s.Exceeded...)
	const most = 10
	problems = append(problems, s.Problems[:min(most, len(s.Problems))]...)
	if more := len(s.Problems) - most; more > 0 {
		problems = append(problems, fmt.Sprintf("and %d more of NetworkPolicies", more))
	}
	return problems
}
