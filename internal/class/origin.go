package class

import (
	"fmt"
	"net/netip"
	"slices"
)

// MaxOrigins is how many origins the interfaces of a node can have in all, and
// maxOriginsOfOne how many one can have.
const (
	MaxOrigins      = 65536
	maxOriginsOfOne = 4096
)

// Origin is where packets come from that arrive by an interface: those of a VLAN whose
// source address is in a prefix, and in no longer one. They have a classifier of their own.
type Origin struct {
	VLAN       uint16 // 0: all that have no origin of their own, with or without a tag
	Prefix     netip.Prefix
	Classifier Classifier
}

// Origins lists the origins of an interface. Packets of none have the classifier of the
// interface itself.
func (t *Table) Origins(iface string) (out []Origin) {
	untagged := t.originsIn(iface, 0)
	own := t.Classifier(Source{Kind: SourceInterface, Interface: iface})
	for _, o := range untagged {
		if o.Prefix.Bits() > 0 || o.Classifier != own {
			out = append(out, o)
		}
	}
	for _, vlan := range t.vlans(iface) {
		same := func(a, b Origin) bool { return a.Prefix == b.Prefix && a.Classifier == b.Classifier }
		if in := t.originsIn(iface, vlan); !slices.EqualFunc(in, untagged, same) {
			out = append(out, in...)
		}
	}
	return out
}

// CountOrigins is how many Origins can be, at most.
func (t *Table) CountOrigins(iface string) int {
	n := 0
	for _, vlan := range append(t.vlans(iface), 0) {
		if p := t.prefixes(iface, vlan); len(p) > 0 || vlan != 0 {
			n += len(everything) + len(p)
		}
	}
	return n
}

// checkOrigins says which interface would have too many, one that no class names among them.
func (t *Table) checkOrigins() error {
	interfaces := []string{""}
	for i := range t.classes {
		interfaces = append(interfaces, t.classes[i].Match.Interfaces...)
	}
	for _, name := range distinct(interfaces) {
		if n := t.CountOrigins(name); n > maxOriginsOfOne {
			return fmt.Errorf("%w: their vlans and sources combine in up to %d ways on interface %q, at most %d", ErrTooMany, n, name, maxOriginsOfOne)
		}
	}
	return nil
}

// everything is the shortest prefix of each family.
var everything = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// originsIn are those of a VLAN of an interface: of everything, and of each prefix whose
// classifier differs from that of the longest one around it.
func (t *Table) originsIn(iface string, vlan uint16) (out []Origin) {
	for _, p := range slices.Concat(everything, t.prefixes(iface, vlan)) {
		o := Origin{vlan, p, t.Classifier(Source{Kind: SourceInterface, Interface: iface, VLAN: vlan, Prefix: p})}
		around := len(out) - 1
		for around >= 0 && !out[around].Prefix.Contains(p.Addr()) { // the longest is the last
			around--
		}
		if around < 0 || out[around].Classifier != o.Classifier {
			out = append(out, o)
		}
	}
	return out
}

// vlans are those that classes name on an interface.
func (t *Table) vlans(iface string) (out []uint16) {
	for _, c := range t.Classes() {
		if has(c.Match.Interfaces, iface) {
			out = append(out, c.Match.VLANs...)
		}
	}
	return distinct(out)
}

// prefixes are the sources that classes name in a VLAN of an interface, without everything;
// the shortest are first.
func (t *Table) prefixes(iface string, vlan uint16) (out []netip.Prefix) {
	for _, c := range t.Classes() {
		if has(c.Match.Interfaces, iface) && has(c.Match.VLANs, vlan) {
			out = append(out, c.Match.Sources...)
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	return slices.DeleteFunc(slices.Compact(out), func(p netip.Prefix) bool { return p.Bits() == 0 })
}
