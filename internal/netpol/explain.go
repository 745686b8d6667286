package netpol

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Question is about packets from one party to another, and the answers to them.
type Question struct {
	From, To Party
	// Protocol is a protocol's number; 0: packets of any.
	Protocol uint8
	Port     uint16
	PortName string // in place of Port: a name that To's containers give a port
}

// Party is one end of a flow: a pod, or else an address.
type Party struct {
	Pod     *Pod
	Address netip.Addr
}

// Verdict is whether packets pass, and who decides that. It is for addresses of one family
// and tenant.
type Verdict struct {
	From     VerdictParty `json:"from"`
	To       VerdictParty `json:"to"`
	Tenant   uint8        `json:"tenant,omitempty"`
	Protocol string       `json:"protocol"`
	Port     uint16       `json:"port,omitempty"`
	Allowed  bool         `json:"allowed"`
	// Egress is what From's policies say, Ingress what To's.
	Egress  Decision `json:"egress"`
	Ingress Decision `json:"ingress"`
}

// VerdictParty is a party by the address that counts.
type VerdictParty struct {
	Pod     string     `json:"pod,omitempty"`  // namespace/name
	Node    string     `json:"node,omitempty"` // whose address it is
	Address netip.Addr `json:"address"`
}

func (p VerdictParty) String() string {
	switch {
	case p.Pod != "":
		return fmt.Sprintf("%s (%s)", p.Pod, p.Address)
	case p.Node != "":
		return fmt.Sprintf("node %s (%s)", p.Node, p.Address)
	}
	return p.Address.String()
}

// Decision is what the policies of one end say.
type Decision struct {
	Allowed bool `json:"allowed"`
	// IsolatedBy are the policies that select the pod for this direction.
	IsolatedBy []string `json:"isolated_by,omitempty"`
	// Policy and Rule are the first that allow it. Rule is where the policy has it, such as
	// spec.ingress[0].
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Why    string `json:"why"`
	// Problems are what of the policies that isolate it cannot be used.
	Problems []string `json:"problems,omitempty"`
}

// Errors of questions that have no answer.
var (
	ErrNoPod      = errors.New("no such pod")
	ErrNoAddress  = errors.New("no addresses to talk by")
	ErrNoPort     = errors.New("no such port")
	ErrNoProtocol = errors.New("no such protocol")
)

// Party finds who is meant by NAMESPACE/POD, by POD (of the namespace default, or else of the
// only namespace with a pod of that name), or by an address. An address of a pod is that pod.
func (s *State) Party(text string) (Party, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return Party{Pod: s.owner(Address{Addr: a}), Address: a}, nil
	}
	namespace, name, full := strings.Cut(text, "/")
	if !full {
		namespace, name = "", text
	}
	var found []*Pod
	for _, p := range s.Pods {
		if p.Name == name && (!full || p.Namespace == namespace) {
			found = append(found, p)
		}
	}
	if i := slices.IndexFunc(found, func(p *Pod) bool { return p.Namespace == "default" }); !full && i >= 0 {
		found = found[i : i+1]
	}
	switch {
	case len(found) == 1:
		return Party{Pod: found[0]}, nil
	case len(found) > 1:
		var names []string
		for _, p := range found {
			names = append(names, p.Key())
		}
		slices.Sort(names)
		return Party{}, fmt.Errorf("%w: %s is one of %s: give its namespace", ErrNoPod, text, strings.Join(names, ", "))
	}
	if slices.ContainsFunc(s.Local, func(l Local) bool { return l.Name == name && (!full || l.Namespace == namespace) }) {
		return Party{}, fmt.Errorf("%w: %s is on this node, but the Kubernetes API has not reported it: until then it talks to its own node only", ErrNoPod, text)
	}
	return Party{}, fmt.Errorf("%w: the cluster has no pod %s: give NAMESPACE/POD, POD or an address", ErrNoPod, text)
}

// owner is the pod that has an address; nil: none.
func (s *State) owner(a Address) *Pod {
	for i := range s.Local {
		l := &s.Local[i]
		if !slices.Contains(l.Addresses, a) {
			continue
		}
		at := slices.IndexFunc(s.Pods, func(p *Pod) bool { return p.Namespace == l.Namespace && p.Name == l.Name && l.is(p) })
		if at < 0 {
			return nil
		}
		return s.Pods[at]
	}
	var owner *Pod
	for _, p := range s.Pods {
		if !p.HostNetwork && !p.Finished && slices.Contains(p.Addresses, a) && (owner == nil || p.before(owner)) {
			owner = p
		}
	}
	return owner
}

// addresses are those of a party. A pod on this node has those that the node gave it.
func (s *State) addresses(p Party) (out []Address) {
	switch {
	case p.Address.IsValid():
		return []Address{{Addr: p.Address}}
	case p.Pod.HostNetwork:
		return p.Pod.Addresses
	}
	for i := range s.Local {
		l := &s.Local[i]
		if l.Namespace == p.Pod.Namespace && l.Name == p.Pod.Name && l.is(p.Pod) {
			out = append(out, l.Addresses...)
		}
	}
	if out == nil && !p.Pod.Finished {
		out = p.Pod.Addresses
	}
	return out
}

// SetPort reads a number or a name.
func (q *Question) SetPort(text string) error {
	if text == "" {
		return fmt.Errorf("%w: %s needs a port", ErrNoPort, ProtocolName(q.Protocol))
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		q.PortName = text
	case n < 1 || n > maxPort:
		return fmt.Errorf("%w: %d is not within 1 to %d", ErrNoPort, n, maxPort)
	default:
		q.Port = uint16(n)
	}
	return nil
}

// Explain says which policies and rules decide, for each family and tenant that the two have
// in common.
func (s *State) Explain(q Question) ([]Verdict, error) {
	if q.PortName != "" {
		if q.To.Pod == nil {
			return nil, fmt.Errorf("%w: %s is no pod, so no container names its ports: give a number", ErrNoPort, q.To.Address)
		}
		ports := q.To.Pod.named(namedPort{q.PortName, q.Protocol})
		if len(ports) == 0 {
			return nil, fmt.Errorf("%w: no container of %s has a port %s of %s", ErrNoPort, q.To.Pod.Key(), q.PortName, ProtocolName(q.Protocol))
		}
		q.Port = ports[0].First
	}
	var out []Verdict
	for _, from := range s.addresses(q.From) {
		for _, to := range s.addresses(q.To) {
			if from.Is4() != to.Is4() || from.Tenant != to.Tenant {
				continue
			}
			out = append(out, s.verdict(q, from, to))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: they have no addresses of one family", ErrNoAddress)
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), a.From.Address.Compare(b.From.Address))
	})
	return out, nil
}

func (s *State) verdict(q Question, from, to Address) Verdict {
	v := Verdict{Tenant: from.Tenant, Protocol: ProtocolName(q.Protocol), Port: q.Port}
	if q.Protocol == 0 {
		v.Protocol = "any"
	}
	a, b := s.end(q.From, from), s.end(q.To, to)
	v.From, v.To = a.named(), b.named()
	v.Egress = s.decide(egress, a, b, q)
	v.Ingress = s.decide(ingress, b, a, q)
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

// end is a party by one address, and what it is there.
type end struct {
	address Address
	pod     *Pod   // not one with the node's addresses
	node    string // whose address it is
	on      string // the node that it is on
	name    string
	closed  bool // a pod of this node that the API has not reported
}

func (s *State) end(p Party, a Address) end {
	e := end{address: a, pod: s.owner(a)}
	if a.Tenant == 0 {
		e.node = s.Nodes[a.Addr]
	}
	if p.Pod != nil && p.Pod.HostNetwork {
		e.node, e.name = cmp.Or(e.node, p.Pod.Node), p.Pod.Key()
	}
	if e.pod != nil {
		e.on, e.name = e.pod.Node, e.pod.Key()
	}
	for i := range s.Local {
		if l := &s.Local[i]; e.pod == nil && l.Name != "" && slices.Contains(l.Addresses, a) {
			e.closed, e.name = true, l.Namespace+"/"+l.Name
		}
	}
	return e
}

func (e end) named() VerdictParty {
	return VerdictParty{Pod: e.name, Node: e.node, Address: e.address.Addr}
}

// decide says what the policies of an end say of packets from the other (ingress) or to it.
func (s *State) decide(d direction, own, other end, q Question) (out Decision) {
	pod := own.pod
	switch {
	case own.closed:
		return Decision{Why: "the Kubernetes API has not reported this pod: until then it talks to its own node only"}
	case pod == nil && own.node != "":
		return Decision{Allowed: true, Why: "it has a node's address, and policies are for pods that have their own"}
	case pod == nil:
		return Decision{Allowed: true, Why: "it is no pod, and policies are for pods"}
	case pod == other.pod:
		return Decision{Allowed: true, Why: "a pod always reaches itself"}
	case other.node != "" && other.node == own.on:
		return Decision{Allowed: true, Why: "a pod and its own node always reach each other"}
	}
	policies := slices.SortedFunc(slices.Values(s.Policies), func(a, b *Policy) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range policies {
		if !p.selects(d, pod) {
			continue
		}
		key := p.Namespace + "/" + p.Name
		out.IsolatedBy = append(out.IsolatedBy, key)
		for _, problem := range p.Problems {
			out.Problems = append(out.Problems, key+": "+problem)
		}
		for i := range p.rules[d] {
			r := &p.rules[d][i]
			if out.Allowed || !s.means(r, other) || !r.opens(d, pod, other.pod, q) {
				continue
			}
			out.Allowed, out.Policy, out.Rule = true, key, fmt.Sprintf("spec.%s[%d]", d, r.index)
			out.Why = fmt.Sprintf("%s of %s allows it", out.Rule, key)
		}
	}
	switch {
	case out.IsolatedBy != nil && s.Closed[pod.Namespace]:
		out.Allowed, out.Policy, out.Rule = false, "", ""
		out.Why = fmt.Sprintf("there is no room for the policies of namespace %s: its isolated pods are closed (culvert status)", pod.Namespace)
	case out.IsolatedBy == nil:
		out.Allowed, out.Why = true, fmt.Sprintf("no policy isolates it for %s", d)
	case !out.Allowed:
		out.Why = fmt.Sprintf("none of the policies that isolate it for %s allows it", d)
	}
	return out
}

// means says whether a rule is for an end.
func (s *State) means(r *rule, e end) bool {
	return r.everybody || slices.ContainsFunc(r.peers, func(p peer) bool {
		if !p.pods {
			return p.block.Contains(e.address.Addr) && !slices.ContainsFunc(p.except, func(x netip.Prefix) bool { return x.Contains(e.address.Addr) })
		}
		if e.pod == nil || !p.selected.matches(e.pod.Labels) {
			return false
		}
		if p.namespace != "" {
			return e.pod.Namespace == p.namespace
		}
		n := s.Namespaces[e.pod.Namespace]
		return n != nil && p.namespaces.matches(n.Labels)
	})
}

// opens says whether a rule has the port asked about. A name is one of the pod that the
// packets go to.
func (r *rule) opens(d direction, own, other *Pod, q Question) bool {
	ports := r.ports
	to := own
	if d == egress {
		to = other
	}
	if to != nil {
		for _, n := range r.named {
			ports = append(ports[:len(ports):len(ports)], to.named(n)...)
		}
	}
	return slices.ContainsFunc(ports, func(p Ports) bool { return p.Allow(q.Protocol, q.Port) })
}

// String is the verdict for people, in a few lines.
func (v Verdict) String() string {
	var b strings.Builder
	word := map[bool]string{true: "allowed", false: "denied"}
	what := v.Protocol
	switch {
	case v.Port != 0:
		what += fmt.Sprintf(" port %d", v.Port)
	case v.Protocol == "any":
		what = "any protocol and port"
	}
	fmt.Fprintf(&b, "%s: %s to %s, %s", word[v.Allowed], v.From, v.To, what)
	if v.Tenant != 0 {
		fmt.Fprintf(&b, ", in tenant %d", v.Tenant)
	}
	b.WriteByte('\n')
	for _, d := range []struct {
		name string
		Decision
	}{{"egress", v.Egress}, {"ingress", v.Ingress}} {
		fmt.Fprintf(&b, "  %-8s %s: %s\n", d.name, word[d.Allowed], d.Why)
		if len(d.IsolatedBy) > 0 {
			fmt.Fprintf(&b, "           isolated by %s\n", strings.Join(d.IsolatedBy, ", "))
		}
		for _, problem := range d.Problems {
			fmt.Fprintf(&b, "           %s\n", problem)
		}
	}
	return b.String()
}
