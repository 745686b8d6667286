package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/slice"
)

func sliceCommand(a *app) *cobra.Command {
	return noun[agent.SliceStatus]{
		kind: agent.KindSlice, aliases: []string{"slices"}, keyName: "NAME",
		short:  "Network slices of a user plane function, and their transport",
		fetch:  (*api.Client).Slices,
		key:    func(s agent.SliceStatus) string { return s.Name },
		header: []any{"NAME", "S-NSSAI", "INSTANCE", "N9", "SESSIONS", "UP PACKETS", "UP BYTES", "DOWN PACKETS", "DOWN BYTES", "ORIGIN"},
		row: func(s agent.SliceStatus) []any {
			return []any{
				s.Name, snssai(s.SNSSAI), s.NetworkInstance, n9(s.N9), s.Sessions,
				s.Uplink.Packets, s.Uplink.Bytes, s.Downlink.Packets, s.Downlink.Bytes, s.Origin,
			}
		},
	}.command(a)
}

func snssai(s slice.SNSSAI) string {
	switch {
	case s.SST == 0:
		return "any"
	case s.SD == "":
		return fmt.Sprint(s.SST)
	}
	return fmt.Sprintf("%d-%s", s.SST, s.SD)
}

func n9(n *slice.N9) string {
	if n == nil {
		return "as the SMF says"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", n.Transport, n.Mode))
}
