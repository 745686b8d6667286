package class

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// MaxClasses is how many classes a node can have.
const MaxClasses = 63

// MaxColumns is how many columns rows have besides that of best effort: a column is a
// list of classes that are candidates for a packet.
const MaxColumns = 15

// MaxVLAN is the highest VLAN ID (IEEE 802.1Q).
const MaxVLAN = 4094

// MaxQFI is the highest QoS Flow Identifier (TS 38.415).
const MaxQFI = 63

// MaxDSCP is the highest differentiated services code point (RFC 2474).
const MaxDSCP = 63

// Class is a traffic class. A packet is in the class of the highest priority that matches
// it, and in none otherwise: then it is best effort.
type Class struct {
	Name string `json:"name"`
	// Color of the policies that packets of the class take (RFC 9256 section 2.1).
	Color uint32 `json:"color"`
	Match Match  `json:"match,omitzero"`
	// Strict drops packets for an endpoint to which no policy of the color leads, or none
	// that is valid. Otherwise they take the best effort path.
	Strict bool `json:"strict,omitempty"`
	// Priority decides where several classes match: the highest. Default 0.
	Priority int `json:"priority,omitempty"`
}

// Match says which packets a class has: those that meet all of the fields that are set. Of
// a list one entry has to match. Only one kind of source may be set: what arrives by
// interfaces, with its vlans and sources; or pods, by namespaces or pod_labels; or host; or
// sessions of a user plane function, by slices or qfis. Without a source it is any of these
// but sessions.
type Match struct {
	// Host is this node itself: what it sends into the overlay from its own addresses.
	Host bool `json:"host,omitempty"`
	// Interfaces by which packets arrive, whatever their VLAN tags.
	Interfaces []string `json:"interfaces,omitempty"`
	// VLANs are the IDs of their outermost tags, 1 to 4094. They need interfaces.
	VLANs []uint16 `json:"vlans,omitempty" jsonschema:"minimum=1,maximum=4094"`
	// Sources are prefixes that the packets come from. Without interfaces: by any.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// Namespaces of the pods that send.
	Namespaces []string `json:"namespaces,omitempty"`
	// PodLabels that the sending pods have, all of them.
	PodLabels map[string]string `json:"pod_labels,omitempty"`
	// Slices whose sessions' packets leave by an SR policy.
	Slices []string `json:"slices,omitempty"`
	// QFIs of the QoS flows of sessions, 0 to 63: what the QER of a PDR says, or else the only
	// one of its PDI (TS 29.244 section 8.2.89).
	QFIs []uint16 `json:"qfis,omitempty" jsonschema:"maximum=63"`
	// DSCP are the code points of the packets, 0 to 63. Of a packet in a tunnel that
	// begins here it is that of the packet, not that of an outer header.
	DSCP []uint16 `json:"dscp,omitempty" jsonschema:"maximum=63"`
	// Destinations are prefixes that the packets are for.
	Destinations []netip.Prefix `json:"destinations,omitempty"`
}

// SourceKind is what sends packets into a policy.
type SourceKind uint8

// The kinds of sources. SourceAny, of a Match only, is all of them but SourceSession.
const (
	SourceAny SourceKind = iota
	SourceInterface
	SourcePod
	SourceHost
	SourceSession // see SessionFlow
)

// Source is a sender of packets, as this node can tell them apart before it reads them.
type Source struct {
	Kind SourceKind
	// Of SourceInterface. VLAN 0: none, or one that no class names. Without a prefix: an
	// address that is in no prefix that classes name.
	Interface string
	VLAN      uint16
	Prefix    netip.Prefix
	// Of SourcePod. What this node forwards for others is a pod's without a namespace and
	// labels.
	Namespace string
	Labels    map[string]string
}

// kinds lists the kinds of sources that a match names.
func (m *Match) kinds() (out []SourceKind) {
	for _, k := range []struct {
		kind SourceKind
		set  bool
	}{
		{SourceInterface, len(m.Interfaces)+len(m.VLANs)+len(m.Sources) > 0},
		{SourcePod, len(m.Namespaces)+len(m.PodLabels) > 0},
		{SourceHost, m.Host},
		{SourceSession, len(m.Slices)+len(m.QFIs) > 0},
	} {
		if k.set {
			out = append(out, k.kind)
		}
	}
	return out
}

// Kind returns the kind of source that a valid match names.
func (m *Match) Kind() SourceKind {
	if kinds := m.kinds(); len(kinds) > 0 {
		return kinds[0]
	}
	return SourceAny
}

// From says whether a source's packets can be in the class.
func (m *Match) From(s Source) bool {
	switch m.Kind() {
	case SourceInterface:
		return s.Kind == SourceInterface && has(m.Interfaces, s.Interface) && has(m.VLANs, s.VLAN) && holds(m.Sources, s.Prefix)
	case SourceHost:
		return s.Kind == SourceHost
	case SourcePod:
		if s.Kind != SourcePod || !has(m.Namespaces, s.Namespace) {
			return false
		}
		for key, value := range m.PodLabels {
			if v, ok := s.Labels[key]; !ok || v != value {
				return false
			}
		}
		return true
	case SourceSession:
		return false
	}
	return true
}

// To says whether packets for all addresses of a prefix can be in the class.
func (m *Match) To(p netip.Prefix) bool {
	return holds(m.Destinations, p)
}

// holds says whether a list of prefixes is empty, and so matches anything, or one of them
// has all addresses of p.
func holds(list []netip.Prefix, p netip.Prefix) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(q netip.Prefix) bool {
		return q.Bits() <= p.Bits() && q.Contains(p.Addr())
	})
}

// has says whether a list is empty, and so matches anything, or holds v.
func has[V comparable](list []V, v V) bool { return len(list) == 0 || slices.Contains(list, v) }

// Validate checks a class. It looks up nothing.
func (c Class) Validate() []srv6.FieldError {
	errs := faults(srv6.CheckName("name", c.Name))
	if c.Color == 0 {
		errs.add("color", "give the color of the class's policies, 1 or above", "is missing")
	}
	m := &c.Match
	if kinds := m.kinds(); len(kinds) > 1 {
		errs.add("match", "write a class for each, of the same color", "a packet comes by an interface (interfaces, vlans, sources), from a pod (namespaces, pod_labels), from this node (host) or from a session (slices, qfis): these do not go together")
	}
	if m.Kind() == SourceSession && len(m.DSCP)+len(m.Destinations) > 0 {
		errs.add("match", "remove dscp and destinations, and have the SMF give these packets a QoS flow", "packets of sessions are told apart by their slices and QFIs only")
	}
	for i, q := range m.QFIs {
		if q > MaxQFI {
			errs.add(fmt.Sprintf("match.qfis[%d]", i), "give 0 to 63", "%d is not a QFI", q)
		}
	}
	if len(m.VLANs) > 0 && len(m.Interfaces) == 0 {
		errs.add("match.vlans", "give the interfaces by which the frames arrive", "no interfaces go with it")
	}
	for i, v := range m.VLANs {
		if v < 1 || v > MaxVLAN {
			errs.add(fmt.Sprintf("match.vlans[%d]", i), "give 1 to 4094; what has no tag is in classes without vlans", "%d is not a VLAN ID", v)
		}
	}
	for i, p := range m.Sources {
		errs = append(errs, srv6.CheckPrefix(fmt.Sprintf("match.sources[%d]", i), p)...)
	}
	for i, d := range m.DSCP {
		if d > MaxDSCP {
			errs.add(fmt.Sprintf("match.dscp[%d]", i), "give 0 to 63 (RFC 2474); the DSCP is the upper six bits of the octet", "%d is not a DSCP", d)
		}
	}
	for i, d := range m.Destinations {
		errs = append(errs, srv6.CheckPrefix(fmt.Sprintf("match.destinations[%d]", i), d)...)
	}
	return errs
}

// faults collects what is wrong with a class.
type faults []srv6.FieldError

func (f *faults) add(field, fix, format string, args ...any) {
	*f = append(*f, srv6.FieldError{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

// Conflict is a pair of classes of which nobody can say which one a packet has.
type Conflict struct {
	First, Second int // indices
	Example       string
}

// Conflicts lists the pairs of classes with the same priority that can match the same
// packet.
func Conflicts(classes []Class) (out []Conflict) {
	for j := range classes {
		for i := range j {
			if classes[i].Priority != classes[j].Priority {
				continue
			}
			if example, meet := meets(&classes[i].Match, &classes[j].Match); meet {
				out = append(out, Conflict{i, j, example})
			}
		}
	}
	return out
}

// meets says whether two matches have a packet in common, and describes one.
func meets(a, b *Match) (string, bool) {
	source, ok := sourceOfBoth(a, b)
	if !ok {
		return "", false
	}
	dscp, ok := common(a.DSCP, b.DSCP)
	if !ok {
		return "", false
	}
	to, ok := prefixOfBoth(a.Destinations, b.Destinations)
	if !ok {
		return "", false
	}
	example := "packets of " + source
	if len(a.DSCP)+len(b.DSCP) > 0 {
		example += fmt.Sprintf(" with DSCP %d", dscp)
	}
	if to.IsValid() {
		example += " to " + to.String()
	}
	return example, true
}

// sourceOfBoth describes a source that both matches have.
func sourceOfBoth(a, b *Match) (string, bool) {
	if a.Kind() == SourceAny {
		a, b = b, a
	}
	switch {
	case a.Kind() == SourceAny:
		return "any source", true
	case a.Kind() == SourceSession && b.Kind() == SourceAny:
		return "", false
	case b.Kind() != SourceAny && a.Kind() != b.Kind():
		return "", false
	case a.Kind() == SourceInterface:
		return arrivalOfBoth(a, b)
	case a.Kind() == SourceHost:
		return "this node", true
	case a.Kind() == SourceSession:
		return flowOfBoth(a, b)
	}
	namespace, ok := common(a.Namespaces, b.Namespaces)
	for _, key := range slices.Sorted(maps.Keys(a.PodLabels)) {
		if v, also := b.PodLabels[key]; also && v != a.PodLabels[key] {
			return "", false
		}
	}
	if namespace == "" {
		return "pods", ok
	}
	return "pods of namespace " + namespace, ok
}

// arrivalOfBoth describes how packets of both matches arrive.
func arrivalOfBoth(a, b *Match) (string, bool) {
	name, ok := common(a.Interfaces, b.Interfaces)
	vlan, also := common(a.VLANs, b.VLANs)
	from, too := prefixOfBoth(a.Sources, b.Sources)
	text := "interface " + name
	if name == "" {
		text = "any interface"
	}
	if vlan != 0 {
		text += fmt.Sprintf(", VLAN %d", vlan)
	}
	if from.IsValid() {
		text += ", from " + from.String()
	}
	return text, ok && also && too
}

// common returns what two lists have in common, of which an empty one holds everything.
func common[V comparable](a, b []V) (v V, ok bool) {
	for _, v := range a {
		if has(b, v) {
			return v, true
		}
	}
	if len(a) > 0 {
		return v, false
	}
	if len(b) > 0 {
		return b[0], true
	}
	return v, true
}

// prefixOfBoth returns the longest prefix that both lists have.
func prefixOfBoth(a, b []netip.Prefix) (netip.Prefix, bool) {
	if len(a) == 0 || len(b) == 0 {
		for _, p := range append(a[:len(a):len(a)], b...) {
			return p, true
		}
		return netip.Prefix{}, true
	}
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return slices.MaxFunc([]netip.Prefix{p, q}, func(x, y netip.Prefix) int { return cmp.Compare(x.Bits(), y.Bits()) }), true
			}
		}
	}
	return netip.Prefix{}, false
}
