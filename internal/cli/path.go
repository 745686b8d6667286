package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube/operator"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// podPath is the way that packets of a pod of this node take to another, in one
// family.
type podPath struct {
	From netip.Addr `json:"from,omitzero"`
	// Interface that the packets arrive by, where they are no pod's.
	Interface string     `json:"interface,omitempty"`
	VLAN      uint16     `json:"vlan,omitempty"` // of their outermost tag
	Host      bool       `json:"host,omitempty"` // this node itself sends them
	To        netip.Addr `json:"to"`
	DSCP      uint8      `json:"dscp"`
	// Way is pod (of the same node), policy, drop (of a strict class, or of a tenant that has
	// nothing there) or kernel (no entry: the host's routes).
	Way    string       `json:"way"`
	Prefix netip.Prefix `json:"prefix,omitzero"` // of the steering entry
	// Class and Color are of the packet's traffic class; empty: best effort. Fallback: no
	// valid policy of the color leads there, or packets would be Lost in it.
	Class    string `json:"class,omitempty"`
	Color    uint32 `json:"color,omitempty"`
	Fallback bool   `json:"fallback,omitempty"`
	Lost     string `json:"lost,omitempty"`
	Policy   string `json:"policy,omitempty"`
	// Path is the policy's active candidate path; empty: its own segment lists.
	Path       string     `json:"path,omitempty"`
	Preference uint32     `json:"preference,omitempty"`
	Why        string     `json:"why,omitempty"`
	Lists      []pathList `json:"lists,omitempty"`
}

// pathList is a segment list that flows are hashed over.
type pathList struct {
	Share     float64    `json:"share"` // of the flows, in percent
	Packets   uint64     `json:"packets"`
	Interface string     `json:"interface,omitempty"` // that packets leave by
	Segments  []pathStep `json:"segments"`
	// Down is why packets do not take it; empty: they do.
	Down string `json:"down,omitempty"`
	// Slow is why they do not take it for its delay, though they could.
	Slow string `json:"slow,omitempty"`
	// Protects says that packets take it where none of the others is up.
	Protects bool `json:"protects,omitempty"`
}

// pathStep is a segment, and what this node knows about it.
type pathStep struct {
	SID  netip.Addr `json:"sid"`
	Node string     `json:"node,omitempty"` // that has the SID
	Does string     `json:"does,omitempty"`
	// Problem is why packets are likely to be lost there.
	Problem string `json:"problem,omitempty"`
}

// known is the state of this node from which paths are computed.
type known struct {
	pods        []pods.Status
	nodes       []agent.NodeStatus
	steering    []agent.SteeringStatus
	policies    []agent.PolicyStatus
	adjacencies []agent.AdjacencyStatus
	interfaces  []agent.InterfaceStatus
	classes     []agent.ClassStatus
	packets     asked // about
	tenant      uint8 // its id; 0: none
}

// asked is what a user says of the packets, beside where they come from and go to.
type asked struct {
	dscp   uint8
	vlan   uint16     // by an interface; 0: no tag
	source netip.Addr // by an interface; not valid: in no class's sources
	tenant string
	byName bool
}

func (q *asked) flags(c *cobra.Command) {
	c.Flags().Uint8Var(&q.dscp, "dscp", 0, "differentiated services `code` point of the packets, 0 to 63")
	c.Flags().Uint16Var(&q.vlan, "vlan", 0, "`ID` of the outermost tag of packets by an interface; 0: no tag")
	c.Flags().TextVar(&q.source, "source", netip.Addr{}, "source `address` of packets by an interface")
	c.Flags().StringVar(&q.tenant, "tenant", "", "`name` of the tenant that the packets are of")
	c.Flags().BoolVar(&q.byName, "kube", false, "ask the cluster where the pods are, and the agent there")
}

// check says what does not go together.
func (q *asked) check() error {
	switch {
	case q.dscp > class.MaxDSCP:
		return cmdline.Usagef("--dscp %d: give 0 to %d", q.dscp, class.MaxDSCP)
	case q.vlan > class.MaxVLAN:
		return cmdline.Usagef("--vlan %d: give 1 to %d, or 0 for packets without a tag", q.vlan, class.MaxVLAN)
	case q.byName && q.tenant != "":
		return cmdline.Usagef("--tenant does not go with --kube: Kubernetes knows no addresses of tenants")
	case q.byName && (q.vlan != 0 || q.source.IsValid()):
		return cmdline.Usagef("--vlan and --source do not go with --kube: they are of packets that arrive by an interface")
	}
	return nil
}

func pathCommand(a *app) *cobra.Command {
	var where operator.Options
	var packets asked
	c := &cobra.Command{
		Use:   "path FROM TO",
		Short: "Show the path of packets from a pod or an interface, SID by SID",
		Long: `Shows the path of packets from a pod of this node, or that arrive by an interface of
it: the steering entry, the traffic class, the policy and its active candidate path,
and for each segment the node that has the SID. FROM is the name of a pod of this
node (namespace/name), its address, an interface that the data path is attached to,
or "host" for this node itself. TO is a pod of this node, or any address. --dscp is that of the packets, and
--vlan and --source say which ones of an interface. With --tenant FROM and TO are in
the tenant's network.

With --kube the command works from anywhere, with your own rights in the cluster.
PODs are then names of any pods; it asks the agent on the first pod's node.`,
		Example: "  culvert path default/web-1 10.244.2.7\n  culvert path default/web-1 default/db-0 --kube\n  culvert path eth1 203.0.113.7 --dscp 46 --vlan 100 --source 10.1.2.3",
		Args:    cmdline.Exactly(2, "where packets come from, and where to"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := packets.check(); err != nil {
				return err
			}
			if packets.byName {
				return a.pathByName(c, where, args[0], args[1], packets.dscp)
			}
			return show(a, c, func(client *api.Client, ctx context.Context) ([]podPath, error) {
				k, err := knows(ctx, client)
				if err != nil {
					return nil, err
				}
				if k, err = k.of(packets.tenant); err != nil {
					return nil, err
				}
				k.packets = packets
				return k.between(args[0], args[1])
			}, pathRows)
		},
	}
	packets.flags(c)
	a.agentFlags(c, &where)
	return a.printing(c)
}

// pathByName asks the agent of the node that a pod is on.
func (a *app) pathByName(c *cobra.Command, where operator.Options, from, to string, dscp uint8) error {
	cluster, err := operator.New(where)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
	defer cancel()
	source, err := cluster.FindPod(ctx, from)
	if err != nil {
		return err
	}
	target, err := cluster.FindPod(ctx, to)
	if err != nil {
		return err
	}
	agent, err := cluster.AgentOn(ctx, source.Node)
	if err != nil {
		return err
	}
	var paths []podPath
	for _, s := range source.Addresses {
		for _, t := range target.Addresses {
			if s.Is4() != t.Is4() {
				continue
			}
			text, err := cluster.Exec(ctx, agent, nil, connectivity.Program, "path", s.String(), t.String(), "--dscp", strconv.Itoa(int(dscp)), "--output", "json")
			if err != nil {
				return fmt.Errorf("agent of %s: %w", source.Node, err)
			}
			var one []podPath
			if err := json.Unmarshal(text, &one); err != nil {
				return fmt.Errorf("agent of %s: %w", source.Node, err)
			}
			paths = append(paths, one...)
		}
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s and %s have no address family in common", from, to)
	}
	return a.print(c, paths, func(g *printer.Grid) { pathRows(g, paths) })
}

func knows(ctx context.Context, client *api.Client) (k known, err error) {
	s, err := client.Status(ctx)
	if err != nil {
		return k, err
	}
	var errs [7]error
	k.pods, errs[0] = client.Pods(ctx, "")
	k.nodes, errs[1] = client.Nodes(ctx, "")
	k.steering, errs[2] = client.Steerings(ctx, "")
	k.policies, errs[3] = client.Policies(ctx, "")
	k.adjacencies, errs[4] = client.Adjacencies(ctx, "")
	k.interfaces, errs[5] = client.Interfaces(ctx, "")
	k.classes, errs[6] = client.Classes(ctx, "")
	if s.Overlay != nil && s.Overlay.Self.Address.IsValid() { // a path may come back
		k.nodes = append(k.nodes, agent.NodeStatus{Node: s.Overlay.Self})
	}
	return k, cmp.Or(errs[:]...)
}

// of is what pods of a tenant meet; without a name what the cluster's own pods do.
func (k known) of(tenant string) (known, error) {
	k.pods = slices.DeleteFunc(slices.Clone(k.pods), func(p pods.Status) bool { return p.Tenant != tenant })
	if tenant != "" && len(k.pods) == 0 {
		return k, fmt.Errorf("tenant %q has no pod on this node: see culvert pod", tenant)
	}
	if tenant != "" {
		k.tenant = k.pods[0].TenantID
	}
	k.steering = slices.DeleteFunc(slices.Clone(k.steering), func(s agent.SteeringStatus) bool { return s.Tenant != k.tenant })
	return k, nil
}

// hostName stands for this node as a sender.
const hostName = "host"

// between finds the paths of all families that both pods have.
func (k known) between(from, to string) (list []podPath, err error) {
	if slices.ContainsFunc(k.interfaces, func(i agent.InterfaceStatus) bool { return i.Name == from }) {
		targets, err := k.addresses(to)
		for _, target := range targets {
			list = append(list, k.find(podPath{Interface: from, VLAN: k.packets.vlan, From: k.packets.source, To: target}))
		}
		return list, err
	}
	if k.packets.vlan != 0 || k.packets.source.IsValid() {
		return nil, fmt.Errorf("%s is not an interface of the data path: --vlan and --source are of packets that arrive by one", from)
	}
	if from == hostName && k.tenant == 0 {
		targets, err := k.addresses(to)
		for _, target := range targets {
			list = append(list, k.find(podPath{Host: true, To: target}))
		}
		return list, err
	}
	sources, err := k.addresses(from)
	if err != nil {
		return nil, err
	}
	targets, err := k.addresses(to)
	if err != nil {
		return nil, err
	}
	for _, source := range sources {
		if !k.isPod(source) {
			return nil, fmt.Errorf("%s is not a pod of this node: run this on the pod's node, or give --kube or an interface", from)
		}
		for _, target := range targets {
			if source.Is4() == target.Is4() {
				list = append(list, k.find(podPath{From: source, To: target}))
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s and %s have no address family in common", from, to)
	}
	return list, nil
}

// addresses returns the addresses of a pod, which is named by one of them or by its name.
func (k known) addresses(pod string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(pod); err == nil {
		return []netip.Addr{a}, nil
	}
	i := slices.IndexFunc(k.pods, func(p pods.Status) bool { return p.Key() == pod })
	if i < 0 {
		return nil, fmt.Errorf("%q is neither an address nor a pod of this node: see culvert pod, or give --kube", pod)
	}
	return k.pods[i].Addresses, nil
}

func (k known) isPod(a netip.Addr) bool {
	return slices.ContainsFunc(k.pods, func(p pods.Status) bool { return slices.Contains(p.Addresses, a) })
}

// find completes a path that has its ends.
func (k known) find(p podPath) podPath {
	p.Way, p.DSCP = "kernel", k.packets.dscp
	if k.isPod(p.To) {
		p.Way = "pod"
		return p
	}
	k.steer(&p)
	best := k.policy(p.Policy)
	if best == nil {
		if k.tenant != 0 {
			p.Way = "drop" // the kernel has no part in it
		}
		return p
	}
	policy := k.classify(&p, best)
	if policy == nil {
		return p
	}
	if j := slices.IndexFunc(policy.Paths, func(v srpolicy.Verdict) bool { return v.Active }); j >= 0 {
		p.Path, p.Preference, p.Why = policy.Paths[j].Path, policy.Paths[j].Preference, policy.Paths[j].Why
	}
	p.Lists = k.lists(*policy, p.To)
	return p
}

// steer finds the entry: of the interface's own before the node's, the longest prefix, and
// then that of the interface alone. What has a tag does not meet the interface's own.
func (k known) steer(p *podPath) {
	own := false
	for _, s := range k.steering {
		switch {
		case s.Policy == "" || !s.Prefix.Contains(p.To) || s.Interface != "" && (s.Interface != p.Interface || p.VLAN != 0):
		case own && s.Interface == "", own == (s.Interface != "") && p.Policy != "" && s.Prefix.Bits() < p.Prefix.Bits():
		default:
			p.Way, p.Prefix, p.Policy, own = "policy", s.Prefix, s.Policy, s.Interface != ""
		}
	}
	for _, s := range k.steering {
		if p.Policy == "" && s.Policy != "" && !s.Prefix.IsValid() && s.Interface == p.Interface && slices.Equal(s.VLANs, p.tags()) {
			p.Way, p.Policy = "policy", s.Policy
		}
	}
}

// classify returns the policy that packets take by their class, or nil where they are
// dropped.
func (k known) classify(p *podPath, best *agent.PolicyStatus) *agent.PolicyStatus {
	all := make([]class.Class, len(k.classes))
	for i, c := range k.classes {
		all[i] = c.Class
	}
	table, err := class.Compile(all, nil)
	if err != nil { // of such classes the agent has none
		return best
	}
	source := class.Source{Kind: class.SourceInterface, Interface: p.Interface, VLAN: p.VLAN}
	switch {
	case p.Host:
		source = class.Source{Kind: class.SourceHost}
	case p.Interface == "":
		from := k.pod(p.From)
		source = class.Source{Kind: class.SourcePod, Namespace: from.Namespace, Labels: from.Labels}
	case p.From.IsValid():
		source.Prefix = netip.PrefixFrom(p.From, p.From.BitLen())
	}
	to := netip.PrefixFrom(p.To, p.To.BitLen())
	if !p.Prefix.IsValid() {
		to = netip.Prefix{}
	}
	c := table.Apply(source, uint16(p.DSCP), to)
	if c == nil {
		return best
	}
	p.Class, p.Color, p.Fallback = c.Name, c.Color, true
	for i := range k.policies {
		if o := &k.policies[i]; o.Color == c.Color && o.Endpoint.IsValid() && o.Endpoint == best.Endpoint && !o.L2() && len(o.Paths) > 0 && o.Paths[0].Valid {
			if why := class.Lost(o.Whole(), best.Whole(), srpolicy.Steering{Prefix: p.Prefix, Tenant: k.tenant}, k.ends().Lost); why != "" {
				p.Lost = fmt.Sprintf("policy %s: %s", o.Name, why)
				break
			}
			p.Policy, p.Fallback = o.Name, false
			return o
		}
	}
	if c.Strict {
		p.Way, p.Policy = "drop", ""
		return nil
	}
	return best
}

// ends are the SIDs at which nodes take packets for pods.
func (k known) ends() *overlay.Ends {
	nodes := make([]overlay.Node, len(k.nodes))
	for i, n := range k.nodes {
		nodes[i] = n.Node
	}
	return overlay.NewEnds(nodes)
}

// tags are those of the packets, as steering by interface names them.
func (p *podPath) tags() []uint16 {
	if p.VLAN == 0 {
		return nil
	}
	return []uint16{p.VLAN}
}

func (k known) policy(name string) *agent.PolicyStatus {
	i := slices.IndexFunc(k.policies, func(s agent.PolicyStatus) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &k.policies[i]
}

// pod is the one with an address; the zero value: none has it.
func (k known) pod(a netip.Addr) pods.Status {
	i := slices.IndexFunc(k.pods, func(p pods.Status) bool { return slices.Contains(p.Addresses, a) })
	if i < 0 {
		return pods.Status{}
	}
	return k.pods[i]
}

// lists are a policy's, for packets to an address.
func (k known) lists(policy agent.PolicyStatus, to netip.Addr) (lists []pathList) {
	var sum uint32
	for i, l := range policy.SegmentLists {
		if policy.DownAt(i) == "" && policy.SlowAt(i) == "" {
			sum += max(l.Weight, 1)
		}
	}
	for i, l := range policy.SegmentLists {
		list := pathList{Down: policy.DownAt(i), Slow: policy.SlowAt(i)}
		if list.Down == "" && list.Slow == "" {
			list.Share = 100 * float64(max(l.Weight, 1)) / float64(sum)
		}
		if i < len(policy.Lists) {
			list.Packets = policy.Lists[i].Packets
		}
		k.follow(&list, l, policy, to)
		lists = append(lists, list)
	}
	for _, l := range policy.Protection {
		list := pathList{Down: l.Down, Slow: l.Slow, Protects: true, Packets: l.Counter.Packets}
		k.follow(&list, l.SegmentList, policy, to)
		lists = append(lists, list)
	}
	return lists
}

// follow says where a segment list leads.
func (k known) follow(list *pathList, l srpolicy.SegmentList, policy agent.PolicyStatus, to netip.Addr) {
	for _, sid := range l.Segments {
		list.Segments = append(list.Segments, k.step(sid))
	}
	if len(l.Segments) == 0 {
		return
	}
	first, end := l.Segments[0].String(), &list.Segments[len(l.Segments)-1]
	if j := slices.IndexFunc(k.adjacencies, func(n agent.AdjacencyStatus) bool { return n.Key == first }); j >= 0 {
		list.Interface = k.adjacencies[j].Interface
	}
	// BGP does not carry a node's SIDs: the node is the one with the policy's endpoint.
	byBGP := func(n agent.NodeStatus) bool {
		return n.Address.IsValid() && n.Address == policy.Endpoint && len(n.IPv4)+len(n.IPv6) == 0
	}
	if j := slices.IndexFunc(k.nodes, byBGP); end.Node == "" && j >= 0 {
		end.Node = k.nodes[j].Key()
	}
	end.Problem = cmp.Or(end.Problem, end.wrongFor(to))
}

// step finds the node that has a SID, from what the nodes have advertised.
func (k known) step(sid netip.Addr) pathStep {
	s := pathStep{SID: sid}
	for _, n := range k.nodes {
		name := cmp.Or(n.Name, n.Address.String())
		switch {
		case last(n.IPv4) == sid && last(n.IPv6) == sid:
			s.Node, s.Does = name, "End.DT46"
		case last(n.IPv4) == sid:
			s.Node, s.Does = name, "End.DT4"
		case last(n.IPv6) == sid:
			s.Node, s.Does = name, "End.DT6"
		case n.Address == sid, n.End() == sid:
			s.Node, s.Does = name, "End"
		case n.Locator.Contains(sid):
			s.Node = name
			if len(n.IPv4)+len(n.IPv6) > 0 {
				s.Problem = "it reports no such SID"
			}
		}
	}
	return s
}

// wrongFor says why a list must not end here for packets to an address.
func (s pathStep) wrongFor(to netip.Addr) string {
	switch {
	case to.Is4() && (s.Does == "End.DT6" || s.Does == "End"):
		return "it takes no IPv4"
	case to.Is6() && (s.Does == "End.DT4" || s.Does == "End"):
		return "it takes no IPv6"
	}
	return ""
}

func last(list []netip.Addr) netip.Addr {
	if len(list) == 0 {
		return netip.Addr{}
	}
	return list[len(list)-1]
}

const noPolicy = "no valid policy of this color leads there"

func pathRows(g *printer.Grid, paths []podPath) {
	g.Row("FROM", "TO", "STEP", "WHAT")
	for _, p := range paths {
		from := p.Interface
		switch {
		case p.Host:
			from = hostName
		case from == "":
			from = p.From.String()
		}
		row := func(step, format string, args ...any) { g.Row(from, p.To, step, fmt.Sprintf(format, args...)) }
		switch p.Way {
		case "pod":
			row("pod", "straight into it: it is on this node")
		case "kernel":
			row("kernel", "by the host's routes: no pod of the cluster has this address")
		case "drop":
			if p.Class == "" {
				row("tenant", "dropped: no pod and no prefix of the tenant is there")
				break
			}
			row("class", "%s, color %d, DSCP %d: strict, and no valid policy of this color leads there: dropped", p.Class, p.Color, p.DSCP)
		default:
			match := "all of the interface"
			if p.Prefix.IsValid() {
				match = p.Prefix.String()
			}
			row("steering", "%s into policy %s", match, p.Policy)
			switch {
			case p.Fallback:
				row("class", "%s, color %d, DSCP %d: %s: best effort", p.Class, p.Color, p.DSCP, cmp.Or(p.Lost, noPolicy))
			case p.Class != "":
				row("class", "%s, color %d, DSCP %d", p.Class, p.Color, p.DSCP)
			}
			row("path", "%s, preference %d: %s", cmp.Or(p.Path, "its own"), p.Preference, p.Why)
			for i, l := range p.Lists {
				switch {
				case l.Down != "":
					row(fmt.Sprintf("list %d", i), "down: %s", l.Down)
					continue
				case l.Slow != "":
					row(fmt.Sprintf("list %d", i), "not in use: %s", l.Slow)
					continue
				}
				share := fmt.Sprintf("%.0f%% of the flows", l.Share)
				if l.Protects {
					share = "held ready, where none of the others is up"
				}
				row(fmt.Sprintf("list %d", i), "%s, by %s, %s", share, cmp.Or(l.Interface, "the kernel's route"), plural.Of(int(l.Packets), "packet"))
				for _, s := range l.Segments {
					row("SID", "%s", s)
				}
			}
		}
	}
}

// String is the step in a line.
func (s pathStep) String() string {
	text := s.SID.String()
	if s.Does != "" {
		text += " " + s.Does
	}
	if s.Node != "" {
		text += " of " + s.Node
	}
	if s.Problem != "" {
		text += ": " + s.Problem
	}
	return text
}
