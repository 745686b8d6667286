package cli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func podCommand(a *app) *cobra.Command {
	return noun[agent.PodStatus]{
		kind: "pod", aliases: []string{"pods"}, keyName: "NAMESPACE/NAME",
		short:  "Pods on this node, with their addresses",
		fetch:  (*api.Client).Pods,
		key:    agent.PodStatus.Key,
		header: []any{"POD", "INTERFACE", "ADDRESSES", "MAC", "HOST INTERFACE", "PROBLEM"},
		row: func(s agent.PodStatus) []any {
			return []any{s.Key(), s.Interface, textsOf(s.Addresses), s.MAC, s.HostInterface, s.Problem}
		},
	}.command(a)
}
