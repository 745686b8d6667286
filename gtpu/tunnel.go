package gtpu

import (
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// Tunnel is a GTP-U tunnel (TS 29.281): what happens to G-PDUs that arrive for
// LocalTEID, and where packets that are steered into it go. A tunnel may have one
// direction only.
type Tunnel struct {
	Name string `json:"name"`

	// LocalTEID receives. Exactly one of Decapsulate, SwitchTo and Policy says what
	// happens then.
	LocalTEID uint32 `json:"local_teid,omitempty"`
	// Decapsulate forwards the T-PDU by the main table, or by Table.
	Decapsulate bool   `json:"decapsulate,omitempty"`
	Table       uint32 `json:"table,omitempty"`
	// SwitchTo names the tunnel that forwards the G-PDU. The extension headers stay
	// as they are.
	SwitchTo string `json:"switch_to,omitempty"`
	// Policy names the SR policy that encapsulates the T-PDU.
	Policy string `json:"policy,omitempty"`

	// Remote and RemoteTEID send. Source is the outer source address, of the same
	// family: the first GTP-U address by default.
	Remote     netip.Addr `json:"remote,omitzero"`
	RemoteTEID uint32     `json:"remote_teid,omitempty"`
	Source     netip.Addr `json:"source,omitzero"`
	// QFI goes into the PDU Session Container, if there is one.
	QFI                 uint8              `json:"qfi,omitempty"`
	PDUSessionContainer srv6.ContainerType `json:"pdu_session_container,omitempty"`
}
