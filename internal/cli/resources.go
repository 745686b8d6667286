package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func rolesOf(roles []config.Role) string {
	var words []string
	for _, r := range roles {
		words = append(words, string(r))
	}
	return strings.Join(words, ",")
}

var interfaces = noun[agent.InterfaceStatus]{
	kind: desired.KindInterface, aliases: []string{"interfaces", "if"}, keyName: "NAME",
	short:  "Interfaces that the data path is attached to",
	fetch:  (*api.Client).Interfaces,
	header: []any{"INTERFACE", "INDEX", "LINK", "ATTACHED", "MTU", "LOST", "ROLES"},
	row: func(s agent.InterfaceStatus) []any {
		return []any{s.Name, s.Ifindex, s.Link, s.Attached, s.MTU, s.Lost, rolesOf(s.Roles)}
	},
	section: "interfaces",
	fields: []field{
		{name: "mode", about: "auto (the default), native or generic", words: []string{"auto", "native", "generic"}},
		{name: "roles", about: "`list` of what may enter: n3, n9, n6, n4, sr, edge, or any", list: true},
		{name: "peers", about: "`list` of prefixes of those who may send GTP-U, or any", list: true},
		{name: "host", about: "`list` of services of this host that can be reached, forward, any", list: true},
		{name: "fail_open", about: "the kernel gets every frame while the data path is not on the interface", flag: true},
	},
	example: "  culvert interface add eth1 --roles n6 --host ping",
}

var locators = noun[agent.LocatorStatus]{
	kind: desired.KindLocator, aliases: []string{"locators"}, keyName: "NAME",
	short:   "Locators: the prefixes of SIDs",
	fetch:   (*api.Client).Locators,
	header:  []any{"NAME", "PREFIX", "FUNCTION BITS", "SIDS", "ORIGIN"},
	row:     func(s agent.LocatorStatus) []any { return []any{s.Name, s.Prefix, s.FunctionBits, s.SIDs, s.Origin} },
	section: "locators",
	fields: []field{
		{name: "prefix", about: "IPv6 prefix of the locator"},
		{name: "function_bits", about: "bits of the function after the prefix (default 16)"},
	},
	example: "  culvert locator add main --prefix 2001:db8:101::/48",
}

var sids = noun[agent.SIDStatus]{
	kind: desired.KindSID, aliases: []string{"sids"}, keyName: "PREFIX",
	short:  "Local SIDs and their behaviours",
	fetch:  (*api.Client).SIDs,
	header: []any{"SID", "BEHAVIOR", "FLAVORS", "PARAMETERS", "ORIGIN", "PACKETS", "BYTES", "NEXT HOP"},
	row: func(s agent.SIDStatus) []any {
		return []any{s.SID, s.Behavior, textsOf(s.Flavors), parameters(s.LocalSID, s.Slice), s.Origin, s.Counter.Packets, s.Counter.Bytes, s.NextHop}
	},
	section: "sids", addKey: "sid", fields: sidFields(),
	example: `  culvert sid add 2001:db8:1:d46::/64 --behavior End.DT46 --table 100
  culvert sid add 2001:db8:1:400::/56 --behavior End.M.GTP4.E --source-prefix-length 64 --pdu-session-container uplink`,
}

// parameters are what a behaviour was given, in one cell.
func parameters(s srv6.LocalSID, slice string) string {
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
	add(s.IgnoreTag, "%s", "tag ignored")
	add(slice != "", "slice %s", slice)
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
		{name: "behavior", about: "`name` of the endpoint behaviour", words: behaviors},
		{name: "flavors", about: "`list` of PSP, USP, USD, NEXT-C-SID", list: true, words: namesOf(srv6.Flavors())},
	}
	choices := map[string][]string{"pdu_type": namesOf(srv6.PDUTypes()), "pdu_session_container": namesOf(srv6.ContainerTypes())}
	for _, p := range srv6.Parameters() {
		fields = append(fields, field{name: p.Name, about: p.Description, flag: p.Name == "allow_upper_layer" || p.Name == "ignore_tag", words: choices[p.Name]})
	}
	return fields
}

// Flags of segment lists, of the preference and of the choice by delay, which policies share with
// their candidate paths.
var (
	segmentsField    = field{name: "segments", about: "segment `list`, first segment first; repeat the flag for a second list", list: true, other: true}
	weightField      = field{name: "weight", about: "`weight` of each --segments, in their order (default 1)", list: true, other: true}
	delayBoundField  = field{name: "delay_bound", about: "longest round trip of a segment list that carries packets, as a `duration` such as 15ms"}
	lowestDelayField = field{name: "lowest_delay", about: "only the segment lists with the lowest round trip carry packets", flag: true}
	preferenceField  = field{name: "preference", about: "preference of this candidate path: the valid path with the highest is active (default 100)"}
)

func policyCommand(a *app) *cobra.Command {
	c := noun[agent.PolicyStatus]{
		kind: desired.KindPolicy, aliases: []string{"policies"}, keyName: "NAME",
		short:  "SR policies, their segment lists, and the active candidate path",
		fetch:  (*api.Client).Policies,
		header: []any{"NAME", "BEHAVIOR", "SEGMENT LISTS", "BINDING SID", "ORIGIN", "ACTIVE PATH", "PACKETS", "BYTES"},
		row: func(s agent.PolicyStatus) []any {
			return []any{s.Name, s.Behavior, listStates(s), valid(s.BindingSID), s.Origin, activePath(s.Paths), s.Counter.Packets, s.Counter.Bytes}
		},
		section: "policies",
		fields: []field{
			{name: "behavior", about: "H.Encaps, H.Encaps.Red (the default), H.Encaps.L2 or H.Encaps.L2.Red", words: namesOf(srpolicy.Behaviors())},
			segmentsField, weightField, preferenceField, delayBoundField, lowestDelayField,
			{name: "source", about: "outer IPv6 source (default: the node's)"},
			{name: "color", about: "the policy's color"},
			{name: "endpoint", about: "the policy's endpoint"},
			{name: "binding_sid", about: "SID that stands for the policy"},
		},
		finish: setSegmentLists,
		example: `  culvert policy add gold --segments 2001:db8:11:1::,2001:db8:2:d46::
  culvert policy add gold --segments 2001:db8:11:1::,2001:db8:2:d46:: --weight 3 --segments 2001:db8:12:1::,2001:db8:2:d46:: --weight 1`,
	}.command(a)
	c.AddCommand(injectCommand(a))
	return c
}

var candidatePaths = noun[agent.CandidatePathStatus]{
	kind: desired.KindCandidatePath, aliases: []string{"candidate-paths"}, keyName: "NAME",
	short:  "Candidate paths of SR policies, besides the policies' own segment lists",
	fetch:  (*api.Client).CandidatePaths,
	header: []any{"NAME", "POLICY", "PREFERENCE", "SEGMENT LISTS", "ORIGIN", "STATE", "WHY"},
	row: func(s agent.CandidatePathStatus) []any {
		return []any{s.Name, s.Policy, s.Verdict.Preference, segmentLists(s.SegmentLists), s.Origin, pathState(s.Verdict), s.Verdict.Why}
	},
	section: "candidate_paths",
	fields: []field{
		{name: "policy", about: "name of the policy that the path belongs to"}, segmentsField, weightField, preferenceField,
		delayBoundField, lowestDelayField,
	},
	finish:  setSegmentLists,
	example: `  culvert candidate-path add gold-south --policy gold --preference 50 --segments 2001:db8:13:1::,2001:db8:2:d46::`,
}

func pathState(v srpolicy.Verdict) string {
	switch {
	case v.Active && v.Valid:
		return "active"
	case v.Active:
		return "active, not valid"
	case v.Protects:
		return "valid, held ready"
	case v.Valid:
		return "valid"
	}
	return "not valid"
}

// activePath names the first of the verdicts, if there is a choice or something
// to say of it.
func activePath(paths []srpolicy.Verdict) string {
	switch {
	case len(paths) == 0:
		return "none"
	case len(paths) == 1 && paths[0].Valid:
		return ""
	}
	best := paths[0]
	name := cmp.Or(best.Path, "own")
	if !best.Valid {
		return name + " (not valid)"
	}
	return fmt.Sprintf("%s (%d)", name, best.Preference)
}

// setSegmentLists makes a segment list of the resource from each --segments and its
// --weight.
func setSegmentLists(c *config.Config, resource string, flags *pflag.FlagSet) error {
	lists, err := flags.GetStringArray("segments")
	if err != nil {
		return err
	}
	weights, err := flags.GetStringArray("weight")
	if err != nil {
		return err
	}
	if len(lists) == 0 {
		return cmdline.Usagef("--segments is missing: give the SIDs to visit, the first one first")
	}
	if len(weights) > 0 && len(weights) != len(lists) {
		return cmdline.Usagef("--weight is given %d times for %d --segments: give one for each", len(weights), len(lists))
	}
	for i, list := range lists {
		at := fmt.Sprintf("%s.segment_lists[%d]", resource, i)
		err := config.Set(c, at+".segments", list)
		if err == nil && len(weights) > 0 {
			err = config.Set(c, at+".weight", weights[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func segmentLists(lists []srpolicy.SegmentList) string {
	out := make([]string, len(lists))
	for i, l := range lists {
		if out[i] = textsOf(l.Segments); len(lists) > 1 {
			out[i] = fmt.Sprintf("%d: %s", max(1, l.Weight), out[i])
		}
	}
	return strings.Join(out, "; ")
}

// listStates are a policy's lists, how long probes of them take, why packets do not take
// some of them, and what routers said of their MTU.
func listStates(s agent.PolicyStatus) string {
	if len(s.Down) == 0 && len(s.Slow) == 0 && len(s.Delays) == 0 && len(s.Protection) == 0 && len(s.PathMTUs) == 0 {
		return segmentLists(s.SegmentLists)
	}
	var out []string
	for i, l := range s.SegmentLists {
		var delay agent.Delay
		if i < len(s.Delays) {
			delay = s.Delays[i]
		}
		var path agent.PathMTU
		if i < len(s.PathMTUs) {
			path = s.PathMTUs[i]
		}
		out = append(out, listState(l, s.DownAt(i), s.SlowAt(i), delay)+pathMTU(path))
	}
	for _, l := range s.Protection {
		out = append(out, "protection "+listState(l.SegmentList, l.Down, l.Slow, l.Delay)+pathMTU(l.PathMTU))
	}
	return strings.Join(out, "; ")
}

// pathMTU is empty where the links say.
func pathMTU(p agent.PathMTU) string {
	if p.MTU == 0 {
		return ""
	}
	return fmt.Sprintf(" (path MTU %d, said %s ago)", p.MTU, time.Duration(p.Age)*time.Second)
}

func listState(l srpolicy.SegmentList, down, slow string, delay agent.Delay) string {
	var state []string
	switch {
	case down != "":
		state = append(state, "down: "+down)
	case slow != "":
		state = append(state, "not in use: "+slow)
	}
	if down == "" && delay.Mean > 0 {
		state = append(state, fmt.Sprintf("%s there and back", time.Duration(delay.Mean)*time.Microsecond))
	}
	text := fmt.Sprintf("%d: %s", max(1, l.Weight), textsOf(l.Segments))
	if len(state) == 0 {
		return text
	}
	return text + " (" + strings.Join(state, "; ") + ")"
}

var steerings = noun[agent.SteeringStatus]{
	kind: desired.KindSteering, keyName: "MATCH",
	short:  "Steering of packets into policies, tunnels and H.M.GTP4.D",
	fetch:  (*api.Client).Steerings,
	header: []any{"MATCH", "INTO", "ORIGIN"},
	row: func(s agent.SteeringStatus) []any {
		match := s.Key()
		if s.VPN != "" {
			match = s.Prefix.String() + " from slice " + s.VPN
		}
		into := steeringTarget(s.Steering)
		if s.Problem != "" {
			into += ", not taken: " + s.Problem
		}
		return []any{match, into, s.Origin}
	},
	section: "steering", addName: "[PREFIX]", addKey: "prefix",
	fields: []field{
		{name: "interface", about: "match packets received on this interface; with a PREFIX, those to it"},
		{name: "tenant", about: "match what pods of the tenant with this `ID` send to PREFIX"},
		{name: "vlans", about: "`list` of VLAN tags for --interface, outermost first", list: true},
		{name: "policy", about: "steer into this SR policy; with --sid-prefix, its segments come first"},
		{name: "tunnel", about: "steer into this GTP-U tunnel"},
		{name: "sid_prefix", path: "h_m_gtp4_d.sid_prefix", about: "H.M.GTP4.D: LOC:FUNC of the tail end's End.M.GTP4.E"},
		{name: "source_prefix", path: "h_m_gtp4_d.source_prefix", about: "H.M.GTP4.D: prefix of the outer source"},
		{name: "pdu_type", path: "h_m_gtp4_d.pdu_type", about: "H.M.GTP4.D: type of the sessions' PDUs", words: namesOf(srv6.PDUTypes())},
	},
	// --policy is H.M.GTP4.D's where its fields are set.
	finish: func(c *config.Config, _ string, _ *pflag.FlagSet) error {
		if s := &c.Steering[0]; s.GTP4D != nil {
			s.GTP4D.Policy, s.Policy = s.Policy, ""
		}
		return nil
	},
	args: func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return cmdline.Usagef("%q takes one PREFIX, --interface, or both: see %s --help", c.CommandPath(), c.CommandPath())
		}
		return nil
	},
	example: `  culvert steering add 203.0.113.0/24 --policy gold
  culvert steering add 203.0.113.0/24 --interface eth1 --policy silver
  culvert steering add --interface eth1 --vlans 7 --policy wire
  culvert steering add 198.51.100.0/24 --sid-prefix 2001:db8:b:400::/56 --source-prefix 2001:db8:a:4000::/64 --pdu-type ipv4`,
}

func steeringTarget(s srpolicy.Steering) string {
	switch {
	case s.Policy != "":
		return "policy " + s.Policy
	case s.Tunnel != "":
		return "tunnel " + s.Tunnel
	case s.GTP4D == nil:
		return ""
	}
	g := s.GTP4D
	text := fmt.Sprintf("H.M.GTP4.D sid %s, source %s, pdu %s", g.SIDPrefix, g.SourcePrefix, g.PDUType)
	return strings.TrimSuffix(text+", policy "+g.Policy, ", policy ")
}

var tunnels = noun[agent.TunnelStatus]{
	kind: desired.KindTunnel, aliases: []string{"tunnels"}, keyName: "NAME",
	short:  "GTP-U tunnels",
	fetch:  (*api.Client).Tunnels,
	header: []any{"NAME", "LOCAL TEID", "RECEIVED IS", "REMOTE", "REMOTE TEID", "QFI", "ORIGIN", "RX PACKETS", "RX BYTES", "TX PACKETS", "TX BYTES"},
	row: func(s agent.TunnelStatus) []any {
		qfi := ""
		if s.PDUSessionContainer != srv6.ContainerNone {
			qfi = fmt.Sprintf("%d %s", s.QFI, s.PDUSessionContainer)
		}
		return []any{s.Name, teid(s.LocalTEID), tunnelAction(s.Tunnel), valid(s.Remote) + pathMTU(s.PathMTU), teid(s.RemoteTEID), qfi, s.Origin,
			s.Received.Packets, s.Received.Bytes, s.Sent.Packets, s.Sent.Bytes}
	},
	section: "tunnels",
	fields: []field{
		{name: "local_teid", about: "TEID to receive on"},
		{name: "decapsulate", about: "forward received packets by the routing table", flag: true},
		{name: "table", about: "routing table for --decapsulate, by the kernel's number"},
		{name: "switch_to", about: "name of the tunnel that received packets go on in"},
		{name: "policy", about: "SR policy that encapsulates received packets"},
		{name: "remote", about: "address to send to"},
		{name: "remote_teid", about: "TEID to send with"},
		{name: "source", about: "outer source (default: the first GTP-U address)"},
		{name: "qfi", about: "QFI in the PDU Session Container"},
		{name: "pdu_session_container", about: "none, downlink or uplink", words: namesOf(srv6.ContainerTypes())},
	},
	example: `  culvert tunnel add ue1 --local-teid 0x1001 --decapsulate --remote 192.0.2.100 --remote-teid 0x2001 --qfi 9 --pdu-session-container downlink`,
}

func teid(t uint32) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("0x%x", t)
}

func tunnelAction(t gtpu.Tunnel) string {
	switch {
	case t.Decapsulate && t.Table != 0:
		return fmt.Sprintf("decapsulated, table %d", t.Table)
	case t.Decapsulate:
		return "decapsulated"
	case t.SwitchTo != "":
		return "switched to " + t.SwitchTo
	case t.Policy != "":
		return "into policy " + t.Policy
	}
	return ""
}

var networkSlices = noun[agent.SliceStatus]{
	kind: desired.KindSlice, aliases: []string{"slices"}, keyName: "NAME",
	short:  "Network slices of a user plane function, and their transport",
	fetch:  (*api.Client).Slices,
	header: []any{"NAME", "S-NSSAI", "INSTANCE", "N9", "SESSIONS", "UP PACKETS", "UP BYTES", "DOWN PACKETS", "DOWN BYTES", "ORIGIN"},
	row: func(s agent.SliceStatus) []any {
		n9 := "as the SMF says"
		if s.N9 != nil {
			n9 = strings.TrimSpace(fmt.Sprintf("%s %s", s.N9.Transport, s.N9.Mode))
		}
		return []any{s.Name, s.SNSSAI, s.NetworkInstance, n9, s.Sessions,
			s.Uplink.Packets, s.Uplink.Bytes, s.Downlink.Packets, s.Downlink.Bytes, s.Origin}
	},
	section: "slices",
	fields: []field{
		{name: "sst", path: "snssai.sst", about: "`number` of the slice/service type, 1 to 255, of the sessions (default: any)"},
		{name: "sd", path: "snssai.sd", about: "slice differentiator of the sessions, six hex `digits`"},
		{name: "network_instance", about: "`name` of the network instance (DNN) of the sessions (default: any)"},
		{name: "table", about: "`number` of the kernel's routing table by which packets leave (default 254, main)"},
		{name: "ue_to_ue", about: "what becomes of packets between UEs, by `name`: drop, route or n6", words: []string{string(slice.UEToUEDrop), string(slice.UEToUERoute), string(slice.UEToUEN6)}},
		{name: "uplink", path: "rate_limit.uplink", about: "limit of all sessions together, in `kbit/s` (default: none)"},
		{name: "downlink", path: "rate_limit.downlink", about: "limit of all sessions together, in `kbit/s` (default: none)"},
		{name: "transport", path: "n9.transport", about: "`name` of what leads to the next UPF: gtpu or srv6 (default: as the SMF says)", words: []string{string(slice.GTPU), string(slice.SRv6)}},
		{name: "mode", path: "n9.mode", about: "`name` of the mode of srv6: traditional (one SID) or enhanced (policies)", words: []string{string(slice.Traditional), string(slice.Enhanced)}},
		{name: "uplink_sid", path: "n9.uplink", about: "SID of the next UPF, an `address`"},
		{name: "downlink_sid", path: "n9.downlink", about: "SID of the UPF toward the gNB, an `address`"},
		{name: "uplink_policy", path: "n9.uplink_policy", about: "`name` of the SR policy that leads to the next UPF"},
		{name: "downlink_policy", path: "n9.downlink_policy", about: "`name` of the SR policy that leads toward the gNB"},
		{name: "local_sid", path: "n9.local_sid", about: "`prefix` of this node's SID at which the slice's sessions receive"},
	},
	example: `  culvert slice add internet --network-instance internet
  culvert slice add factory --sst 1 --sd 000002 --uplink 1000000 --downlink 1000000
  culvert slice add far --sst 2 --transport srv6 --mode traditional --uplink-sid 2001:db8:2:d46::1`,
}

// namesOf is the text of each value.
func namesOf[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

// textsOf are values as text, with commas.
func textsOf[T fmt.Stringer](list []T) string { return strings.Join(namesOf(list), ",") }

// valid shows an address or prefix that is given, and else nothing.
func valid[T interface {
	fmt.Stringer
	IsValid() bool
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}
