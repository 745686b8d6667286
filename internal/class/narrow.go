package class

import (
	"fmt"
	"maps"
	"slices"

	"github.com/culvert-net/culvert/srv6"
)

// Within returns the packets of m that outer has too. A field that m leaves open is outer's.
// It is an error if m asks for what outer does not have: a match only narrows another one.
func (m Match) Within(outer Match) (Match, []srv6.FieldError) {
	var errs faults
	m.Host = m.Host || outer.Host
	m.Interfaces = within(&errs, "interfaces", m.Interfaces, outer.Interfaces, slices.Contains)
	m.VLANs = within(&errs, "vlans", m.VLANs, outer.VLANs, slices.Contains)
	m.Sources = within(&errs, "sources", m.Sources, outer.Sources, holds)
	m.Namespaces = within(&errs, "namespaces", m.Namespaces, outer.Namespaces, slices.Contains)
	m.Slices = within(&errs, "slices", m.Slices, outer.Slices, slices.Contains)
	m.QFIs = within(&errs, "qfis", m.QFIs, outer.QFIs, slices.Contains)
	m.DSCP = within(&errs, "dscp", m.DSCP, outer.DSCP, slices.Contains)
	m.Destinations = within(&errs, "destinations", m.Destinations, outer.Destinations, holds)
	labels := maps.Clone(outer.PodLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(m.PodLabels)) {
		if v, there := outer.PodLabels[key]; there && v != m.PodLabels[key] {
			errs.add("pod_labels."+key, "give "+v+", or leave the label out", "%q is not what the class has: %q", m.PodLabels[key], v)
		}
		labels[key] = m.PodLabels[key]
	}
	if m.PodLabels = labels; len(labels) == 0 {
		m.PodLabels = nil
	}
	return m, errs
}

// within returns list, or outer where that is empty, and notes what outer does not have.
func within[V any](errs *faults, field string, list, outer []V, has func([]V, V) bool) []V {
	if len(list) == 0 || len(outer) == 0 {
		return append(list, outer...)
	}
	for i, v := range list {
		if !has(outer, v) {
			errs.add(fmt.Sprintf("%s[%d]", field, i), "give one of these", "%v is beyond what the class has: %v", v, outer)
		}
	}
	return list
}
