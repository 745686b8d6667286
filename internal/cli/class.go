package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/class"
)

var classes = noun[agent.ClassStatus]{
	kind: desired.KindClass, aliases: []string{"classes"}, keyName: "NAME",
	short:  "Traffic classes: which packets take policies of which color",
	fetch:  (*api.Client).Classes,
	header: []any{"NAME", "COLOR", "PRIORITY", "MATCH", "POLICIES", "PACKETS", "BYTES", "ORIGIN", "STATE"},
	row: func(s agent.ClassStatus) []any {
		state := "ready"
		if s.Problem != "" {
			state = s.Problem
		}
		return []any{s.Name, s.Color, s.Priority, matchText(&s.Match), strings.Join(s.Policies, " "), s.Counter.Packets, s.Counter.Bytes, s.Origin, state}
	},
	section: "traffic_classes",
	fields: []field{
		{name: "color", about: "color of the policies that its packets take"},
		{name: "priority", about: "the class with the highest one has a packet that several match (default 0)"},
		{name: "strict", about: "drop packets to where no valid policy of the color leads", flag: true},
		{name: "dscp", path: "match.dscp", about: "`list` of DSCPs, 0 to 63", list: true},
		{name: "interfaces", path: "match.interfaces", about: "`list` of interfaces that the packets arrive by", list: true},
		{name: "vlans", path: "match.vlans", about: "`list` of VLANs of --interfaces, 1 to 4094", list: true},
		{name: "sources", path: "match.sources", about: "`list` of prefixes that packets come from which arrive by interfaces", list: true},
		{name: "host", path: "match.host", about: "packets that this node itself sends into the overlay", flag: true},
		{name: "namespaces", path: "match.namespaces", about: "`list` of namespaces of the pods that send", list: true},
		{name: "slices", path: "match.slices", about: "`list` of slices whose sessions the packets are of", list: true},
		{name: "qfis", path: "match.qfis", about: "`list` of QFIs of the QoS flows of sessions, 0 to 63", list: true},
		{name: "destinations", path: "match.destinations", about: "`list` of prefixes that the packets are for", list: true},
	},
	example: `  culvert class add voice --color 100 --dscp 46 --priority 10
  culvert class add bank --color 200 --interfaces eth1 --destinations 10.7.0.0/16 --strict`,
}

// matchText says in a line what a class matches.
func matchText(m *class.Match) string {
	var out []string
	add := func(name string, values ...string) {
		if len(values) > 0 {
			out = append(out, name+" "+strings.Join(values, ","))
		}
	}
	if m.Host {
		out = append(out, "host")
	}
	add("interface", m.Interfaces...)
	add("vlan", texts(m.VLANs)...)
	add("from", texts(m.Sources)...)
	add("namespace", m.Namespaces...)
	for _, key := range slices.Sorted(maps.Keys(m.PodLabels)) {
		add("label", key+"="+m.PodLabels[key])
	}
	add("slice", m.Slices...)
	add("qfi", texts(m.QFIs)...)
	add("dscp", texts(m.DSCP)...)
	add("to", texts(m.Destinations)...)
	if len(out) == 0 {
		return "any"
	}
	return strings.Join(out, "; ")
}

func texts[V any](list []V) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}
