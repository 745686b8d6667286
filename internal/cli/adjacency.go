package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func adjacencyCommand(a *app) *cobra.Command {
	return noun[agent.AdjacencyStatus]{
		kind: "adjacency", aliases: []string{"adjacencies"}, keyName: "KEY",
		short:  "Next hops, and whether each is ready",
		fetch:  (*api.Client).Adjacencies,
		key:    func(s agent.AdjacencyStatus) string { return s.Key },
		header: []any{"KEY", "STATE", "INTERFACE", "MAC", "VLANS", "MTU"},
		row: func(s agent.AdjacencyStatus) []any {
			return []any{s.Key, s.State, s.Interface, s.MAC, numbers(s.VLANs), s.MTU}
		},
	}.command(a)
}

func numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", "."), "[]")
}
