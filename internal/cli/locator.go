package cli

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
)

func locatorCommand(a *app) *cobra.Command {
	return noun[agent.LocatorStatus]{
		kind: agent.KindLocator, aliases: []string{"locators"}, keyName: "NAME",
		short:  "Locators: the prefixes of SIDs",
		fetch:  (*api.Client).Locators,
		key:    func(s agent.LocatorStatus) string { return s.Name },
		header: []any{"NAME", "PREFIX", "FUNCTION BITS", "SIDS", "ORIGIN"},
		row: func(s agent.LocatorStatus) []any {
			return []any{s.Name, s.Prefix, s.FunctionBits, s.SIDs, s.Origin}
		},
		add: &adder{
			section: "locators", keyName: "NAME", key: "name",
			fields: []field{
				{name: "prefix", about: "IPv6 prefix of the locator"},
				{name: "function_bits", about: "bits of the function after the prefix (default 16)"},
			},
			example: "  culvert locator add main --prefix 2001:db8:101::/48",
		},
	}.command(a)
}
