package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/srv6"
)

func tunnelCommand(a *app) *cobra.Command {
	return noun[agent.TunnelStatus]{
		kind: agent.KindTunnel, aliases: []string{"tunnels"}, keyName: "NAME",
		short:  "GTP-U tunnels",
		fetch:  (*api.Client).Tunnels,
		key:    func(s agent.TunnelStatus) string { return s.Name },
		header: []any{"NAME", "LOCAL TEID", "RECEIVED IS", "REMOTE", "REMOTE TEID", "QFI", "ORIGIN", "RX PACKETS", "RX BYTES", "TX PACKETS", "TX BYTES"},
		row: func(s agent.TunnelStatus) []any {
			return []any{s.Name, teid(s.LocalTEID), tunnelAction(s.Tunnel), valid(s.Remote), teid(s.RemoteTEID), qfi(s.Tunnel), s.Origin,
				s.Received.Packets, s.Received.Bytes, s.Sent.Packets, s.Sent.Bytes}
		},
		add: &adder{
			section: "tunnels", keyName: "NAME", key: "name",
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
		},
	}.command(a)
}

func teid(t uint32) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("0x%x", t)
}

func qfi(t gtpu.Tunnel) string {
	if t.PDUSessionContainer == srv6.ContainerNone {
		return ""
	}
	return fmt.Sprintf("%d %s", t.QFI, t.PDUSessionContainer)
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
