package netpol

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Compiler makes Desired of States that follow each other. It keeps what has not changed.
//
// While the data path goes from one Desired to the next, it asks old lists about new
// identities. So identities also have what the lists ask for that the data path may still
// hold: those of everything compiled since Applied was called.
type Compiler struct {
	salt   string
	held   *terms // what lists in the data path may ask for
	before *terms // held before the last Compile
	last   *terms // of the lists compiled last
	terms  *terms // that known are made by
	blocks blocks

	round      uint64 // counts calls of Compile
	known      map[*Pod]*knownPod
	identities map[string]*Identity
	lists      map[string]*List
	joined     map[string]*List // by the policies that they join, and by named ports of pods
}

// knownPod is a pod as a peer.
type knownPod struct {
	namespace  *Namespace
	identities []*Identity // by each of its addresses
	round      uint64      // when it was last in a state
}

// NewCompiler returns a compiler that knows nothing. What a data path holds of an earlier
// compiler is of terms that this one does not know: with another salt no identity has the key
// of one of those, which may mean other pods.
func NewCompiler(salt string) *Compiler {
	return &Compiler{salt: salt, held: newTerms(), last: newTerms(), terms: newTerms(), known: map[*Pod]*knownPod{}, identities: map[string]*Identity{}, lists: map[string]*List{}}
}

// Compile is for a state that follows no other.
func Compile(s State) Desired { return NewCompiler("").Compile(s) }

// Applied says that the data path has all of what was compiled last, and nothing else.
func (c *Compiler) Applied() { c.held = c.last }

// Refused says that the data path has nothing of what was compiled last.
func (c *Compiler) Refused() { c.held = c.before }

// Compile says what the data path is to hold. A pod on this node that the state does not have
// yet, or has no more, is isolated from everybody.
func (c *Compiler) Compile(s State) Desired {
	d := Desired{Pods: make(map[int]Isolation, len(s.Local)), Prefixes: map[string]int{}}
	here := s.here()
	last := c.isolate(&s, here, &d)
	all := newTerms()
	all.with(c.held)
	all.with(last)
	c.before, c.held, c.last = c.held, all, last
	if !all.same(c.terms) {
		c.terms, c.blocks = all, blocksOf(all.prefixes)
		c.forget()
	}
	size := len(all.prefixes)
	if all.pods {
		size += 2 * len(s.Pods)
	}
	d.Peers = make(map[Peer]*Identity, size)
	for p := range all.prefixes {
		for t := range all.tenants {
			d.Peers[Peer{t, p}] = c.identity(Identity{block: p})
		}
	}
	if all.pods {
		c.putPods(&s, here, d.Peers)
	}
	if len(c.identities) > 2*len(d.Peers)+spare {
		c.forget()
	}
	return d
}

// spare is how many identities may be kept that nobody has any more, beside as many as there
// are peers.
const spare = 1000

func (c *Compiler) forget() {
	clear(c.known)
	clear(c.identities)
}

// here are the pods of this node's interfaces, by their keys; nil: the API has none of it.
func (s *State) here() map[podKey]*Pod {
	out := make(map[podKey]*Pod, len(s.Local))
	for i := range s.Local {
		out[s.Local[i].key()] = nil
	}
	for _, p := range s.Pods {
		key := podKey{p.Namespace, p.Name}
		if _, wanted := out[key]; wanted {
			out[key] = p
		}
	}
	return out
}

// isolate fills in what policies say of the pods of this node. It returns what their lists
// ask for.
func (c *Compiler) isolate(s *State, here map[podKey]*Pod, d *Desired) *terms {
	policies := map[string][]*Policy{}
	for _, p := range s.Policies {
		policies[p.Namespace] = append(policies[p.Namespace], p)
	}
	closed := d.exceeding(s, policies)
	lists, used := map[string]*List{}, newTerms()
	intern := func(l *List) *List {
		if l == nil {
			return nil
		}
		if same := lists[l.key]; same != nil {
			return same
		}
		if old := c.lists[l.key]; old != nil {
			l = old
		}
		lists[l.key] = l
		used.with(l.terms)
		return l
	}
	joined := map[string]*List{}
	of := func(pod *Pod, way direction) *List {
		selected := selecting(pod, policies[pod.Namespace], way)
		switch {
		case len(selected) == 0:
			return nil
		case closed[pod.Namespace]:
			return intern(Nothing())
		}
		key := joinedKey(pod, selected, way)
		if joined[key] == nil {
			if joined[key] = c.joined[key]; joined[key] == nil {
				joined[key] = listOf(pod, selected, way)
			}
		}
		joined[key] = intern(joined[key])
		return joined[key]
	}
	for _, l := range s.Local {
		i := Isolation{Namespace: l.Namespace}
		switch pod := here[l.key()]; {
		case l.Name == "": // no pod of Kubernetes
		case l.is(pod):
			i.Ingress, i.Egress = of(pod, ingress), of(pod, egress)
		default:
			d.Unknown = append(d.Unknown, l.Ifindex)
			i.Ingress, i.Egress = intern(Nothing()), intern(Nothing())
		}
		d.Pods[l.Ifindex] = i
		if i.Ingress != nil || i.Egress != nil {
			for _, a := range l.Addresses {
				used.tenants[a.Tenant] = true
			}
		}
	}
	c.lists, c.joined = lists, joined
	return used
}

// selecting are the policies that isolate a pod in the direction.
func selecting(pod *Pod, policies []*Policy, d direction) (out []*Policy) {
	for _, p := range policies {
		if p.selects(d, pod) {
			out = append(out, p)
		}
	}
	return out
}

// joinedKey is the same for lists of the same policies for pods with the same named ports, which
// rules for ingress may ask for.
func joinedKey(pod *Pod, policies []*Policy, d direction) string {
	b := appendCount([]byte{byte(d)}, len(policies))
	for _, p := range policies {
		b = binary.BigEndian.AppendUint64(b, p.id)
	}
	if d == ingress {
		for _, p := range pod.Ports {
			b = binary.BigEndian.AppendUint16(append(appendText(b, p.Name), p.Protocol), p.Port)
		}
	}
	return string(b)
}

// listOf is the list of a pod that policies isolate in the direction.
func listOf(pod *Pod, policies []*Policy, d direction) *List {
	var rules []listRule
	for _, p := range policies {
		for i := range p.rules[d] {
			if r, some := newListRule(&p.rules[d][i], d, pod); some {
				rules = append(rules, r)
			}
		}
	}
	return newList(rules)
}

// putPods fills in the addresses of pods. What this node gave its own pods is so, whatever
// the API says of these addresses, or does not say yet.
func (c *Compiler) putPods(s *State, here map[podKey]*Pod, out map[Peer]*Identity) {
	c.round++
	again := map[Address]bool{} // somebody else is there, if only a block of that length
	for _, p := range s.Pods {
		list := p.peers()
		if len(list) == 0 {
			continue
		}
		k := c.pod(p, s.Namespaces[p.Namespace])
		for i, a := range list {
			if !a.IsValid() || !c.terms.tenants[a.Tenant] {
				continue
			}
			before := len(out)
			out[a.peer()] = k.identities[i]
			if len(out) == before {
				again[a] = true
			}
		}
	}
	for a, p := range claims(s.Pods, again) {
		k := c.pod(p, s.Namespaces[p.Namespace])
		out[a.peer()] = k.identities[slices.Index(p.Addresses, a)]
	}
	for i := range s.Local {
		c.putLocal(s, &s.Local[i], here[s.Local[i].key()], out)
	}
	for p, k := range c.known {
		if k.round != c.round {
			delete(c.known, p)
		}
	}
}

// claims says whose some addresses are that several pods may claim.
func claims(pods []*Pod, some map[Address]bool) map[Address]*Pod {
	owners := map[Address]*Pod{}
	if len(some) == 0 {
		return owners
	}
	for _, p := range pods {
		for _, a := range p.peers() {
			if o := owners[a]; some[a] && (o == nil || p.before(o)) {
				owners[a] = p
			}
		}
	}
	return owners
}

// putLocal fills in the addresses that this node gave a pod. They are nobody's but of the
// blocks that hold them as long as the API does not know the pod.
func (c *Compiler) putLocal(s *State, l *Local, p *Pod, out map[Peer]*Identity) {
	for _, a := range l.Addresses {
		if !a.IsValid() || !c.terms.tenants[a.Tenant] {
			continue
		}
		if l.is(p) {
			out[a.peer()] = c.make(p, s.Namespaces[p.Namespace], a.Addr)
			continue
		}
		delete(out, a.peer())
		if block := a.peer().Prefix; c.terms.prefixes[block] {
			out[a.peer()] = c.identity(Identity{block: block})
		}
	}
}

// pod is a pod as it is known already, or else now.
func (c *Compiler) pod(p *Pod, n *Namespace) *knownPod {
	k := c.known[p]
	if k == nil || k.namespace != n {
		k = &knownPod{namespace: n, identities: make([]*Identity, len(p.Addresses))}
		for i, a := range p.Addresses {
			k.identities[i] = c.make(p, n, a.Addr)
		}
		c.known[p] = k
	}
	k.round = c.round
	return k
}

// make makes the identity of a pod by one of its addresses.
func (c *Compiler) make(p *Pod, n *Namespace, a netip.Addr) *Identity {
	i := Identity{pod: true, labels: some(p.Labels, c.terms.labels), ports: p.hasNamed(c.terms.ports), block: c.blocks.holding(a)}
	if c.terms.namespaces[p.Namespace] {
		i.namespace = p.Namespace
	}
	if n != nil {
		i.namespaceKnown, i.namespaceLabels = true, some(n.Labels, c.terms.namespaceLabels)
	}
	return c.identity(i)
}

// identity is the one with the same content.
func (c *Compiler) identity(i Identity) *Identity {
	i.setKey(c.salt)
	if old := c.identities[i.key]; old != nil {
		return old
	}
	c.identities[i.key] = &i
	return &i
}
