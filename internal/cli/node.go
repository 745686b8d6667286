package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func nodeCommand(a *app) *cobra.Command {
	return noun[agent.NodeStatus]{
		kind: "node", keyName: "NODE",
		short:  "The other nodes of the cluster, and the policies that lead to them",
		fetch:  (*api.Client).Nodes,
		key:    agent.NodeStatus.Key,
		header: []any{"NODE", "FROM", "ADDRESS", "PODS", "POLICIES", "STATE", "NOT USED"},
		row: func(s agent.NodeStatus) []any {
			prefixes := make([]string, len(s.Prefixes))
			for i, p := range s.Prefixes {
				prefixes[i] = p.String()
			}
			return []any{s.Key(), s.Origin, s.Address, strings.Join(prefixes, ","), strings.Join(s.Policies, ","), s.State, strings.Join(s.Problems, "; ")}
		},
	}.command(a)
}
