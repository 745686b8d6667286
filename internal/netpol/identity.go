package netpol

import (
	"encoding/binary"
	"iter"
	"maps"
	"net/netip"
	"slices"
)

// Identity is all that a rule can know a peer by: a pod's namespace, labels and named
// ports, and the longest prefix of an ipBlock that holds its address.
//
// It has only what the rules in use could ask for (terms), so that pods which they cannot
// tell apart share one.
type Identity struct {
	key string

	pod bool // not only an address
	// namespace is its name, "" unless a rule means it by name.
	namespace       string
	namespaceKnown  bool // and so its labels
	namespaceLabels map[string]string
	labels          map[string]string
	ports           []ContainerPort
	block           netip.Prefix
}

// Key is the same for identities that are the same, and for no others.
func (i *Identity) Key() string { return i.key }

// setKey makes a text of its content.
func (i *Identity) setKey(salt string) {
	b := appendText(nil, salt)
	b = appendBool(b, i.pod)
	b = appendText(b, i.namespace)
	b = appendBool(b, i.namespaceKnown)
	b = appendLabels(b, i.namespaceLabels)
	b = appendLabels(b, i.labels)
	b = appendCount(b, len(i.ports))
	for _, p := range i.ports {
		b = binary.BigEndian.AppendUint16(append(appendText(b, p.Name), p.Protocol), p.Port)
	}
	i.key = string(appendPrefix(b, i.block))
}

// terms are all that lists ask of peers. Nothing else needs to be in an identity.
type terms struct {
	pods            bool // there are rules for pods
	namespaces      map[string]bool
	namespaceLabels map[string]bool
	labels          map[string]bool
	ports           map[string]bool
	prefixes        map[netip.Prefix]bool
	tenants         map[uint8]bool // of the addresses of isolated pods
}

func newTerms() *terms {
	return &terms{
		namespaces: map[string]bool{}, namespaceLabels: map[string]bool{}, labels: map[string]bool{}, ports: map[string]bool{},
		prefixes: map[netip.Prefix]bool{}, tenants: map[uint8]bool{},
	}
}

// add adds what a rule asks for.
func (t *terms) add(r *listRule) {
	for _, p := range r.blocks {
		t.prefixes[p.block] = true
		for _, e := range p.except {
			t.prefixes[e] = true
		}
	}
	for _, p := range r.pods {
		t.pods = true
		if p.namespace != "" {
			t.namespaces[p.namespace] = true
		}
		for _, q := range p.namespaces {
			t.namespaceLabels[q.Key] = true
		}
		for _, q := range p.selected {
			t.labels[q.Key] = true
		}
	}
	for _, n := range r.named {
		t.pods, t.ports[n.name] = true, true
	}
}

// with adds all that other terms have.
func (t *terms) with(o *terms) {
	t.pods = t.pods || o.pods
	maps.Copy(t.namespaces, o.namespaces)
	maps.Copy(t.namespaceLabels, o.namespaceLabels)
	maps.Copy(t.labels, o.labels)
	maps.Copy(t.ports, o.ports)
	maps.Copy(t.prefixes, o.prefixes)
	maps.Copy(t.tenants, o.tenants)
}

func (t *terms) same(o *terms) bool {
	return t.pods == o.pods && maps.Equal(t.namespaces, o.namespaces) && maps.Equal(t.namespaceLabels, o.namespaceLabels) &&
		maps.Equal(t.labels, o.labels) && maps.Equal(t.ports, o.ports) && maps.Equal(t.prefixes, o.prefixes) &&
		maps.Equal(t.tenants, o.tenants)
}

// blocks finds those of some prefixes that hold an address.
type blocks struct {
	prefixes map[netip.Prefix]bool
	lengths  [2][]int // of IPv4 and IPv6, the longest first
}

func setOf(list []netip.Prefix) map[netip.Prefix]bool {
	out := make(map[netip.Prefix]bool, len(list))
	for _, p := range list {
		out[p] = true
	}
	return out
}

func blocksOf(prefixes map[netip.Prefix]bool) blocks {
	b := blocks{prefixes: prefixes}
	for p := range prefixes {
		f := family(p.Addr())
		b.lengths[f] = append(b.lengths[f], p.Bits())
	}
	for f, list := range b.lengths {
		slices.Sort(list)
		list = slices.Compact(list)
		slices.Reverse(list)
		b.lengths[f] = list
	}
	return b
}

// covering are the prefixes that have all addresses of another one, the longest first.
func (b blocks) covering(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, bits := range b.lengths[family(p.Addr())] {
			if bits > p.Bits() {
				continue
			}
			if q, err := p.Addr().Prefix(bits); err == nil && b.prefixes[q] && !yield(q) {
				return
			}
		}
	}
}

// cover says whether one of them has all addresses of another prefix.
func (b blocks) cover(p netip.Prefix) bool {
	for range b.covering(p) {
		return true
	}
	return false
}

// holding is the longest prefix that holds an address; not valid: none does.
func (b blocks) holding(a netip.Addr) netip.Prefix {
	for _, bits := range b.lengths[family(a)] {
		if p, err := a.Prefix(bits); err == nil && b.prefixes[p] {
			return p
		}
	}
	return netip.Prefix{}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// some are the labels with the given keys.
func some(labels map[string]string, keys map[string]bool) map[string]string {
	var out map[string]string
	put := func(k, v string) {
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	if len(keys) < len(labels) {
		for k := range keys {
			if v, there := labels[k]; there {
				put(k, v)
			}
		}
		return out
	}
	for k, v := range labels {
		if keys[k] {
			put(k, v)
		}
	}
	return out
}

// The parts of keys: each says how long it is, so that no two contents have the same key.

func appendCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }

func appendText(b []byte, s string) []byte { return append(appendCount(b, len(s)), s...) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendLabels(b []byte, labels map[string]string) []byte {
	b = appendCount(b, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b = appendText(appendText(b, k), labels[k])
	}
	return b
}

func appendPrefix(b []byte, p netip.Prefix) []byte {
	if !p.IsValid() {
		return append(b, 0)
	}
	a := p.Addr().AsSlice()
	return append(append(append(b, byte(len(a))), a...), byte(p.Bits()))
}
