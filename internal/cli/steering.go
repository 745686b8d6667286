package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func steeringCommand(a *app) *cobra.Command {
	return noun[agent.SteeringStatus]{
		kind: agent.KindSteering, keyName: "MATCH",
		short:  "Steering of packets into policies, tunnels and H.M.GTP4.D",
		fetch:  (*api.Client).Steerings,
		key:    func(s agent.SteeringStatus) string { return s.Key() },
		header: []any{"MATCH", "INTO", "ORIGIN"},
		row: func(s agent.SteeringStatus) []any {
			return []any{s.Key(), steeringTarget(s.Steering), s.Origin}
		},
		add: &adder{
			section: "steering", keyName: "[PREFIX]", key: "prefix",
			fields: []field{
				{name: "interface", about: "match packets received on this interface, instead of a PREFIX"},
				{name: "vlans", about: "`LIST` of VLAN tags for --interface, outermost first", list: true},
				{name: "policy", about: "steer into this SR policy; with --sid-prefix, its segments come first"},
				{name: "tunnel", about: "steer into this GTP-U tunnel"},
				{name: "sid_prefix", path: "h_m_gtp4_d.sid_prefix", about: "H.M.GTP4.D: LOC:FUNC of the tail end's End.M.GTP4.E"},
				{name: "source_prefix", path: "h_m_gtp4_d.source_prefix", about: "H.M.GTP4.D: prefix of the outer source"},
				{name: "pdu_type", path: "h_m_gtp4_d.pdu_type", about: "H.M.GTP4.D: type of the sessions' PDUs", words: namesOf(srv6.PDUTypes())},
			},
			finish: translationPolicy, args: oneOrNone,
			example: `  culvert steering add 203.0.113.0/24 --policy gold
  culvert steering add --interface eth1 --vlans 7 --policy wire
  culvert steering add 198.51.100.0/24 --sid-prefix 2001:db8:b:400::/56 --source-prefix 2001:db8:a:4000::/64 --pdu-type ipv4`,
		},
	}.command(a)
}

func oneOrNone(c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cmdline.Usagef("%q takes one PREFIX, or --interface: see %s --help", c.CommandPath(), c.CommandPath())
	}
	return nil
}

// translationPolicy gives --policy to H.M.GTP4.D where its fields are set.
func translationPolicy(c *config.Config, _ *pflag.FlagSet) error {
	if s := &c.Steering[0]; s.GTP4D != nil {
		s.GTP4D.Policy, s.Policy = s.Policy, ""
	}
	return nil
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
