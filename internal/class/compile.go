package class

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Classifier has the column of each DSCP of a source's packets.
type Classifier [MaxDSCP + 1]uint8

// Way is what a packet of a column does at a destination.
type Way struct {
	Policy string // name; empty: the packet is dropped
	Class  string // name; empty: best effort, which no class counts
}

// Row has a way for each column; column 0 is best effort.
type Row [MaxColumns + 1]Way

// Table is the compiled classes of a node. It never changes.
type Table struct {
	classes []Class // the highest priority first
	columns map[string]uint8
	lists   [MaxColumns + 1][]int // of candidates: indices of classes
}

// ErrTooMany says that classes need more columns than there are, or are too many.
var ErrTooMany = errors.New("too many traffic classes")

// Compile makes a table of valid classes without conflicts. A column that former (which
// may be nil) has keeps its number, so that packets never meet the column of another.
func Compile(classes []Class, former *Table) (*Table, error) {
	if len(classes) > MaxClasses {
		return nil, fmt.Errorf("%w: %d, at most %d", ErrTooMany, len(classes), MaxClasses)
	}
	t := &Table{classes: slices.Clone(classes), columns: map[string]uint8{}}
	slices.SortStableFunc(t.classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
	})
	if err := t.checkOrigins(); err != nil {
		return nil, err
	}
	all, sources := map[string][]int{}, t.sources()
	for dscp := range uint16(MaxDSCP + 1) {
		for _, s := range sources {
			t.candidates(s, dscp, 0, nil, all)
		}
	}
	keys := slices.Sorted(maps.Keys(all))
	if len(keys) > MaxColumns {
		return nil, fmt.Errorf("%w: their destinations and sources combine in %d ways, at most %d: drop destinations, or give classes disjoint DSCPs", ErrTooMany, len(keys), MaxColumns)
	}
	for _, key := range keys {
		if n := former.column(key); n != 0 {
			t.columns[key], t.lists[n] = n, all[key]
		}
	}
	next := uint8(1)
	for _, key := range keys {
		if t.columns[key] != 0 {
			continue
		}
		for t.lists[next] != nil || former.used(next) && len(keys)+former.count() <= MaxColumns {
			next++
		}
		t.columns[key], t.lists[next] = next, all[key]
	}
	return t, nil
}

// Fits says why the last one of some classes, of which the others fit together, does not fit
// with them; empty: it does.
func Fits(classes []Class) string {
	last := len(classes) - 1
	for i := range last {
		if classes[i].Priority != classes[last].Priority {
			continue
		}
		if example, meet := meets(&classes[i].Match, &classes[last].Match); meet {
			return fmt.Sprintf("%s are in class %q too, which has the same priority: give one of the two a higher priority", example, classes[i].Name)
		}
	}
	if _, err := Compile(classes, nil); err != nil {
		return err.Error()
	}
	return ""
}

func (t *Table) column(key string) uint8 {
	if t == nil {
		return 0
	}
	return t.columns[key]
}

// used says whether a former table has a column: another one better has another number.
func (t *Table) used(n uint8) bool { return t != nil && t.lists[n] != nil }

func (t *Table) count() int {
	if t == nil {
		return 0
	}
	return len(t.columns)
}

// sources are those that the classes can tell apart: one for each set of classes.
func (t *Table) sources() []Source {
	var interfaces, namespaces []string
	var vlans []uint16
	var prefixes []netip.Prefix
	for i := range t.classes {
		m := &t.classes[i].Match
		interfaces, namespaces = append(interfaces, m.Interfaces...), append(namespaces, m.Namespaces...)
		vlans, prefixes = append(vlans, m.VLANs...), append(prefixes, m.Sources...)
	}
	arriving := map[classSet]Source{}
	by := apart(t, interfaces, func(m *Match, v string) bool { return has(m.Interfaces, v) })
	in := apart(t, vlans, func(m *Match, v uint16) bool { return has(m.VLANs, v) })
	from := apart(t, prefixes, func(m *Match, v netip.Prefix) bool { return holds(m.Sources, v) })
	for a, name := range by {
		for b, vlan := range in {
			for c, prefix := range from {
				arriving[a&b&c] = Source{Kind: SourceInterface, Interface: name, VLAN: vlan, Prefix: prefix}
			}
		}
	}
	out := slices.Collect(maps.Values(arriving))
	for _, name := range distinct(append(namespaces, "")) {
		out = append(out, Source{Kind: SourcePod, Namespace: name})
	}
	return append(out, Source{Kind: SourceHost})
}

// classSet has a bit for each class.
type classSet uint64

// apart returns one of the values, or the zero value, for each set of classes that have it.
func apart[V comparable](t *Table, values []V, has func(*Match, V) bool) map[classSet]V {
	var none V
	out, seen := map[classSet]V{}, map[V]bool{}
	for _, v := range append(values, none) {
		if seen[v] {
			continue
		}
		seen[v] = true
		var set classSet
		for i := range t.classes {
			if has(&t.classes[i].Match, v) {
				set |= 1 << i
			}
		}
		out[set] = v
	}
	return out
}

func distinct[V cmp.Ordered](list []V) []V {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// candidates adds the lists of classes that packets of a source with a DSCP can have,
// from a class on: list, and what follows. Pods may have labels, or not.
func (t *Table) candidates(s Source, dscp uint16, from int, list []int, all map[string][]int) {
	for i := from; i < len(t.classes) && len(all) <= MaxColumns; i++ {
		m := &t.classes[i].Match
		open := s.Kind == SourcePod && len(m.PodLabels) > 0
		if open {
			s.Labels = m.PodLabels
		}
		if !m.From(s) || !has(m.DSCP, dscp) {
			continue
		}
		if open { // without these labels
			t.candidates(s, dscp, i+1, list, all)
		}
		list = append(list[:len(list):len(list)], i)
		if len(m.Destinations) == 0 {
			break // whatever follows is never asked
		}
	}
	if len(list) > 0 {
		all[t.key(list)] = list
	}
}

// key names a list of candidates.
func (t *Table) key(list []int) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = t.classes[c].Name
	}
	return strings.Join(names, " ")
}

// Classifier makes the classifier of a source. The zero value has best effort only, and
// needs no entry.
func (t *Table) Classifier(s Source) (out Classifier) {
	if t == nil {
		return out
	}
	for dscp := range out {
		var list []int
		for i := range t.classes {
			m := &t.classes[i].Match
			if !m.From(s) || !has(m.DSCP, uint16(dscp)) {
				continue
			}
			list = append(list, i)
			if len(m.Destinations) == 0 {
				break
			}
		}
		out[dscp] = t.columns[t.key(list)]
	}
	return out
}

// Row makes the row of a destination: of packets to a prefix that take the policy `best`,
// where policies are the valid ones with the same endpoint, by color. It says whether the
// destination needs a row: if a class that it is in has another policy here, or is strict.
func (t *Table) Row(to netip.Prefix, best string, policies map[uint32]string) (row Row, needed bool) {
	for i := range t.classes {
		c := &t.classes[i]
		policy, ok := policies[c.Color]
		needed = needed || c.Match.Kind() != SourceSession && c.Match.To(to) && (c.Strict || ok) && policy != best
	}
	for n := range row {
		row[n].Policy = best
		for _, i := range t.lists[n] {
			c := &t.classes[i]
			if !c.Match.To(to) {
				continue
			}
			row[n].Class = c.Name
			if policy, ok := policies[c.Color]; ok || c.Strict {
				row[n].Policy = policy
			}
			break
		}
	}
	return row, needed
}

// Apply returns the class of a packet, or nil.
func (t *Table) Apply(s Source, dscp uint16, to netip.Prefix) *Class {
	for i := range t.classes {
		if m := &t.classes[i].Match; m.From(s) && has(m.DSCP, dscp) && m.To(to) {
			return &t.classes[i]
		}
	}
	return nil
}

// destinations lists the destinations of classes that lie in a steered prefix and are
// longer: packets for them need a row of their own.
func (t *Table) destinations(steered netip.Prefix) (out []netip.Prefix) {
	for i := range t.classes {
		for _, d := range t.classes[i].Match.Destinations {
			if d.Bits() > steered.Bits() && steered.Contains(d.Addr()) && !slices.Contains(out, d) {
				out = append(out, d)
			}
		}
	}
	return out
}

// hasColor says whether a class has a color.
func (t *Table) hasColor(color uint32) bool {
	return slices.ContainsFunc(t.classes, func(c Class) bool { return c.Color == color })
}

// Classes lists the classes, the highest priority first.
func (t *Table) Classes() []Class {
	if t == nil {
		return nil
	}
	return t.classes
}
