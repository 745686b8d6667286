package cli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func interfaceCommand(a *app) *cobra.Command {
	return noun[agent.InterfaceStatus]{
		kind: agent.KindInterface, aliases: []string{"interfaces", "if"}, keyName: "NAME",
		short:  "Interfaces that the data path is attached to",
		fetch:  (*api.Client).Interfaces,
		key:    func(s agent.InterfaceStatus) string { return s.Name },
		header: interfaceHeader, row: interfaceRow,
		add: &adder{
			section: "interfaces", keyName: "NAME", key: "name",
			fields: []field{
				{name: "mode", about: "auto (the default), native or generic", words: []string{"auto", "native", "generic"}},
				{name: "external", about: "the link leaves the SR domain", flag: true},
			},
			example: "  culvert interface add eth1 --external",
		},
	}.command(a)
}

var interfaceHeader = []any{"INTERFACE", "INDEX", "ATTACHED", "MTU", "EXTERNAL"}

func interfaceRow(s agent.InterfaceStatus) []any {
	return []any{s.Name, s.Ifindex, s.Attached, s.MTU, yes(s.External)}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
