package gtpu

import (
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// Tunnel is one GTP-U tunnel (TS 29.281): what is done with G-PDUs that
// arrive for LocalTEID, and where packets steered into it are sent. A tunnel
// may have one direction only.
type Tunnel struct {
	Name string `json:"name"`

	// LocalTEID receives. Exactly one of Decapsulate, SwitchTo and Policy
	// says what follows.
	LocalTEID uint32 `json:"local_teid,omitempty"`
	// Decapsulate forwards the T-PDU by the main table, or by Table.
	Decapsulate bool   `json:"decapsulate,omitempty"`
	Table       uint32 `json:"table,omitempty"`
	// SwitchTo names the tunnel that the G-PDU goes on in; the GTP-U header's
	// extension headers stay as they are.
	SwitchTo string `json:"switch_to,omitempty"`
	// Policy names the SR policy that the T-PDU is encapsulated by.
	Policy string `json:"policy,omitempty"`

	// Remote and RemoteTEID send. Source is the outer source, of the same
	// family: the first of the GTP-U addresses unless set.
	Remote     netip.Addr `json:"remote,omitzero"`
	RemoteTEID uint32     `json:"remote_teid,omitempty"`
	Source     netip.Addr `json:"source,omitzero"`
	// QFI goes into the PDU Session Container, if there is one.
	QFI                 uint8              `json:"qfi,omitempty"`
	PDUSessionContainer srv6.ContainerType `json:"pdu_session_container,omitempty"`
}
