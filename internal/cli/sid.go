package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/srv6"
)

func sidCommand(a *app) *cobra.Command {
	return noun[agent.SIDStatus]{
		kind: agent.KindSID, aliases: []string{"sids"}, keyName: "PREFIX",
		short:  "Local SIDs and their behaviours",
		fetch:  (*api.Client).SIDs,
		key:    func(s agent.SIDStatus) string { return s.SID.String() },
		header: []any{"SID", "BEHAVIOR", "FLAVORS", "PARAMETERS", "ORIGIN", "PACKETS", "BYTES", "NEXT HOP"},
		row: func(s agent.SIDStatus) []any {
			return []any{s.SID, s.Behavior, strings.Join(namesOf(s.Flavors), ","), parameters(s.LocalSID), s.Origin, s.Counter.Packets, s.Counter.Bytes, s.NextHop}
		},
		add: &adder{
			section: "sids", keyName: "PREFIX", key: "sid", fields: sidFields(),
			example: `  culvert sid add 2001:db8:1:d46::/64 --behavior End.DT46 --table 100
  culvert sid add 2001:db8:1:400::/56 --behavior End.M.GTP4.E --source-prefix-length 64 --pdu-session-container uplink`,
		},
	}.command(a)
}

// parameters are what a behaviour was given, in one cell.
func parameters(s srv6.LocalSID) string {
	var out []string
	add := func(set bool, format string, value any) {
		if set {
			out = append(out, fmt.Sprintf(format, value))
		}
	}
	add(s.Table != 0, "table %d", s.Table)
	add(s.NextHop.IsValid(), "via %s", s.NextHop)
	add(s.Interface != "", "dev %s", s.Interface)
	add(s.Policy != "", "policy %s", s.Policy)
	add(s.Map.IsValid(), "map %s", s.Map)
	add(s.Source.IsValid(), "source %s", s.Source)
	add(s.SourcePrefixLength != 0, "source /%d", s.SourcePrefixLength)
	add(s.PDUType != srv6.PDUTypeNone, "pdu %s", s.PDUType)
	add(s.PDUSessionContainer != srv6.ContainerNone, "container %s", s.PDUSessionContainer)
	add(s.ArgsOffset != 0, "args at %d", s.ArgsOffset)
	add(s.GroupBits != 0, "group %d", s.GroupBits)
	add(s.RateBits != 0, "rate %d", s.RateBits)
	add(s.RateUnit > 1, "x %d kbit/s", s.RateUnit)
	add(s.BlockLength != 0, "block /%d", s.BlockLength)
	add(s.AllowUpperLayer, "%s", "upper layer to kernel")
	return strings.Join(out, ", ")
}

// sidFields are the flags of `sid add`: the behaviour table describes them.
func sidFields() []field {
	var behaviors []string
	for _, row := range srv6.Table() {
		if !row.Headend {
			behaviors = append(behaviors, row.Name)
		}
	}
	fields := []field{
		{name: "behavior", about: "`NAME` of the endpoint behaviour", words: behaviors},
		{name: "flavors", about: "`LIST` of PSP, USP, USD, NEXT-C-SID", list: true, words: namesOf(srv6.Flavors())},
	}
	choices := map[string][]string{
		"pdu_type":              namesOf(srv6.PDUTypes()),
		"pdu_session_container": namesOf(srv6.ContainerTypes()),
	}
	for _, p := range srv6.Parameters() {
		fields = append(fields, field{name: p.Name, about: p.Description, flag: p.Name == "allow_upper_layer", words: choices[p.Name]})
	}
	return fields
}

// namesOf is the text of each value.
func namesOf[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}
