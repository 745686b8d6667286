package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func associationCommand(a *app) *cobra.Command {
	return noun[agent.AssociationStatus]{
		kind: "association", aliases: []string{"associations"}, keyName: "NODE",
		short:  "PFCP associations with SMFs",
		fetch:  (*api.Client).Associations,
		key:    func(s agent.AssociationStatus) string { return s.Node },
		header: []any{"NODE", "ADDRESSES", "STATE", "SESSIONS", "SINCE", "SMF STARTED"},
		row: func(s agent.AssociationStatus) []any {
			state := "up"
			if !s.Up {
				state = "no heartbeats"
			}
			return []any{s.Node, textsOf(s.Addrs), state, s.Sessions, s.Since.UTC().Format(time.DateTime), s.Recovery.UTC().Format(time.DateTime)}
		},
	}.command(a)
}
