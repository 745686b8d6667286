package netpol

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
)

// List is what the policies of a pod allow in one direction, together.
type List struct {
	key   string
	rules []listRule
	terms *terms
	// What Allows looks at: rules that are not for blocks alone, and blocks by their prefixes.
	others []*listRule
	blocks map[netip.Prefix][]ruleBlock
	where  blocks
}

// ruleBlock is an ipBlock of a rule.
type ruleBlock struct {
	rule   *listRule
	except blocks
}

// listRule is a rule without the policy that it is from. Ingress rules have no named ports:
// they are the pod's own, and known.
type listRule struct {
	key       string
	everybody bool
	pods      []peer
	blocks    []peer
	ports     []Ports
	named     []namedPort
}

// Key is the same for lists that allow the same, and for no others.
func (l *List) Key() string { return l.key }

// Nothing is the list that allows nothing.
func Nothing() *List { return newList(nil) }

// newList joins rules. Their order does not count, nor how often one is there.
func newList(rules []listRule) *List {
	slices.SortFunc(rules, func(a, b listRule) int { return strings.Compare(a.key, b.key) })
	rules = slices.CompactFunc(rules, func(a, b listRule) bool { return a.key == b.key })
	l := &List{rules: rules, terms: newTerms(), blocks: map[netip.Prefix][]ruleBlock{}}
	b := appendCount(nil, len(rules))
	known := map[netip.Prefix]bool{}
	for i := range rules {
		r := &rules[i]
		b = appendText(b, r.key)
		l.terms.add(r)
		if r.everybody || len(r.pods) > 0 {
			l.others = append(l.others, r)
		}
		for _, p := range r.blocks {
			known[p.block] = true
			l.blocks[p.block] = append(l.blocks[p.block], ruleBlock{r, blocksOf(setOf(p.except))})
		}
	}
	l.key, l.where = string(b), blocksOf(known)
	return l
}

// newListRule is a rule as it is for a pod.
func newListRule(r *rule, d direction, pod *Pod) (out listRule, some bool) {
	out = listRule{everybody: r.everybody, ports: slices.Clone(r.ports)}
	for _, p := range r.peers {
		if p.pods {
			out.pods = append(out.pods, p)
		} else {
			out.blocks = append(out.blocks, p)
		}
	}
	switch d {
	case ingress:
		for _, n := range r.named {
			out.ports = append(out.ports, pod.named(n)...)
		}
	case egress:
		out.named = r.named
	}
	out.ports = joined(out.ports)
	if len(out.ports)+len(out.named) == 0 {
		return out, false // the pod has no port of that name
	}
	var b []byte
	b = appendBool(b, r.everybody)
	peers := make([]string, len(r.peers))
	for i, p := range r.peers {
		peers[i] = string(p.appendKey(nil))
	}
	slices.Sort(peers)
	b = appendCount(b, len(peers))
	for _, p := range peers {
		b = appendText(b, p)
	}
	b = appendCount(b, len(out.ports))
	for _, p := range out.ports {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(b, p.Protocol), p.First), p.Last)
	}
	named := slices.SortedFunc(slices.Values(out.named), namedPort.compare)
	b = appendCount(b, len(named))
	for _, n := range named {
		b = append(appendText(b, n.name), n.protocol)
	}
	out.key = string(b)
	return out, true
}

func (n namedPort) compare(o namedPort) int {
	return cmp.Or(strings.Compare(n.name, o.name), cmp.Compare(n.protocol, o.protocol))
}

func (p peer) appendKey(b []byte) []byte {
	b = appendBool(b, p.pods)
	if p.pods {
		return p.selected.appendKey(p.namespaces.appendKey(appendText(b, p.namespace)))
	}
	b = appendPrefix(b, p.block)
	for _, e := range p.except {
		b = appendPrefix(b, e)
	}
	return b
}

// Allows says what packets of a peer (ingress) or to it (egress) are allowed: ranges in
// order that do not overlap. Without an identity it is what everybody is allowed.
func (l *List) Allows(who *Identity) []Ports {
	var out []Ports
	take := func(r *listRule) {
		out = append(out, r.ports...)
		for _, n := range r.named {
			if who != nil {
				out = append(out, portsOf(who.ports, n)...)
			}
		}
	}
	for _, r := range l.others {
		if r.everybody || who != nil && who.pod && slices.ContainsFunc(r.pods, who.is) {
			take(r)
		}
	}
	if who == nil || !who.block.IsValid() {
		return joined(out)
	}
	for block := range l.where.covering(who.block) {
		for _, b := range l.blocks[block] {
			if !b.except.cover(who.block) {
				take(b.rule)
			}
		}
	}
	return joined(out)
}

// is says whether a rule's peer means the pod.
func (i *Identity) is(p peer) bool {
	if !i.pod || !p.selected.matches(i.labels) {
		return false
	}
	if p.namespace != "" {
		return p.namespace == i.namespace
	}
	return i.namespaceKnown && p.namespaces.matches(i.namespaceLabels)
}

// joined are the same ports as ranges in order that neither overlap nor touch.
func joined(list []Ports) []Ports {
	if len(list) == 0 {
		return nil
	}
	if slices.ContainsFunc(list, func(p Ports) bool { return p.Protocol == 0 }) {
		return []Ports{everything}
	}
	list = slices.SortedFunc(slices.Values(list), func(a, b Ports) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First))
	})
	out := list[:1]
	for _, p := range list[1:] {
		last := &out[len(out)-1]
		if p.Protocol == last.Protocol && int(p.First) <= int(last.Last)+1 {
			last.Last = max(last.Last, p.Last)
			continue
		}
		out = append(out, p)
	}
	return out
}
