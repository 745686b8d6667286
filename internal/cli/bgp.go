package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func bgpCommand(a *app) *cobra.Command {
	return noun[agent.BGPPeerStatus]{
		kind: "bgp", keyName: "PEER",
		short:  "BGP sessions, which carry candidate paths of SR policies",
		fetch:  (*api.Client).BGPPeers,
		key:    func(s agent.BGPPeerStatus) string { return s.Address.String() },
		header: []any{"PEER", "ASN", "ROUTER ID", "STATE", "UP FOR", "PATHS", "WENT DOWN BECAUSE"},
		row: func(s agent.BGPPeerStatus) []any {
			up := ""
			if s.Since > 0 {
				up = s.Since.Round(time.Second).String()
			}
			return []any{s.Address, s.ASN, valid(s.RouterID), s.State, up, s.Received, s.Reason}
		},
	}.command(a)
}
