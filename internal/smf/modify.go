package smf

import (
	"fmt"
	"slices"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// Change is what a modification changes of a session; what is not set stays.
type Change struct {
	// MBR of the session's QER, in kbit/s.
	MBR *session.BitRate `json:"mbr,omitempty"`
	// Gates of the session's QER.
	Gates *Gates `json:"gates,omitempty"`
	// Uplink and Downlink: what is done with packets: forward or drop.
	Uplink   string `json:"uplink,omitempty"`
	Downlink string `json:"downlink,omitempty"`
	// Core is the next UPF of an intermediate one; session i has TEID + i.
	Core *Tunnel `json:"core,omitempty"`
	// URR replaces thresholds, quotas and triggers.
	URR *URR `json:"urr,omitempty"`
	// DropBuffered: what is buffered goes (DROBU).
	DropBuffered bool `json:"drop_buffered,omitempty"`
}

// Gates are closed or open.
type Gates struct {
	UplinkClosed   bool `json:"uplink_closed,omitempty"`
	DownlinkClosed bool `json:"downlink_closed,omitempty"`
}

func (c *Change) check(s *Spec) error {
	actions := []string{"", "forward", "drop"}
	return asError(faults("change", "", append(c.Core.check("core"), []fault{
		{!slices.Contains(actions, c.Uplink), "uplink", "forward or drop", fmt.Sprintf("%q is no action", c.Uplink)},
		{!slices.Contains(actions, c.Downlink), "downlink", "forward or drop", fmt.Sprintf("%q is no action", c.Downlink)},
		{(c.MBR != nil || c.Gates != nil) && s.MBR == nil && s.QFI == 0,
			"mbr", "establish them with mbr or qfi", "the sessions have no QER"},
		{c.URR != nil && s.URR == nil, "urr", "establish them with a urr", "the sessions have no URR"},
		{c.Core != nil && s.Role != Intermediate, "core", "establish them with role: intermediate", "only an intermediate UPF has a tunnel towards the core"},
		{c.Downlink == "forward" && s.Access == nil, "downlink", "establish the sessions with an access tunnel", "forward where to?"},
		{*c == (Change{}), "", "give mbr, gates, uplink, downlink, core, urr or drop_buffered", "nothing is changed"},
	}...)...))
}

// modification is a message that may begin with our F-SEID.
func (e *encoder) modification(ies ...*ie.IE) []*ie.IE {
	if e.dialect == Free5GC {
		return append([]*ie.IE{e.fseid()}, ies...)
	}
	return ies
}

// forward is the modification that says where downlink packets go, at first or when an
// idle UE is back. free5GC's SMF repeats the PDR.
func (e *encoder) forward() []*ie.IE {
	if e.dialect != Free5GC {
		return e.handover(false)
	}
	pdr := e.createPDR(true, nil, 0)
	pdr.Type = ie.UpdatePDR
	return e.modification(append([]*ie.IE{pdr}, e.toTunnel(false)...)...)
}

// handover is the modification that moves downlink packets to another tunnel.
func (e *encoder) handover(endMarker bool) []*ie.IE { return e.modification(e.toTunnel(endMarker)...) }

func (e *encoder) toTunnel(endMarker bool) []*ie.IE {
	return e.updateDown(e.action(actionForw), e.toAccess(endMarker))
}

// updateDown and updateUp say what is done with packets of all QoS flows.
func (e *encoder) updateDown(how ...*ie.IE) (ies []*ie.IE) {
	for _, p := range e.allFARs() {
		ies = append(ies, updateFAR(p.down, how))
	}
	return ies
}

func (e *encoder) updateUp(how ...*ie.IE) (ies []*ie.IE) {
	for _, p := range e.allFARs() {
		ies = append(ies, updateFAR(p.up, how))
	}
	return ies
}

func updateFAR(id uint32, how []*ie.IE) *ie.IE {
	return ie.NewUpdateFAR(append([]*ie.IE{ie.NewFARID(id)}, how...)...)
}

// idle lets the UPF buffer. Free5GC's SMF asks for the usage at the same time,
// and still says the tunnel.
func (e *encoder) idle() []*ie.IE {
	if e.dialect != Free5GC {
		return e.modification(e.updateDown(e.action(actionBuff|actNOCP), ie.NewBARID(e.bar))...)
	}
	var tunnel *ie.IE
	if e.id.access.addr.IsValid() {
		tunnel = e.toAccess(false)
	}
	update := e.updateDown(e.action(actionBuff|actNOCP), tunnel)
	return append(e.modification(update...), e.query()...)
}

func (e *encoder) query() []*ie.IE {
	var ies []*ie.IE
	for _, id := range e.allURRs() {
		ies = append(ies, ie.NewQueryURR(ie.NewURRID(id)))
	}
	return ies
}

func (e *encoder) change(c *Change) []*ie.IE {
	var ies []*ie.IE
	switch c.Downlink {
	case "drop":
		ies = append(ies, e.updateDown(e.action(actionDrop))...)
	case "forward":
		ies = append(ies, e.toTunnel(false)...)
	}
	switch {
	case c.Uplink == "drop":
		ies = append(ies, e.updateUp(e.action(actionDrop))...)
	case c.Uplink == "forward" || c.Core != nil:
		ies = append(ies, e.updateUp(e.toCore(ie.NewUpdateForwardingParameters)...)...)
	}
	for _, id := range e.allURRs() {
		if c.URR != nil {
			ies = append(ies, ie.NewUpdateURR(e.urr(id, c.URR)...))
		}
	}
	if c.MBR != nil || c.Gates != nil {
		qer := []*ie.IE{ie.NewQERID(e.session)}
		if g := c.Gates; g != nil {
			qer = append(qer, ie.NewGateStatus(gate(g.UplinkClosed), gate(g.DownlinkClosed)))
		}
		if c.MBR != nil {
			qer = append(qer, ie.NewMBR(c.MBR.Uplink, c.MBR.Downlink))
		}
		ies = append(ies, ie.NewUpdateQER(qer...))
	}
	if c.DropBuffered {
		ies = append(ies, ie.NewPFCPSMReqFlags(reqDROBU))
	}
	return e.modification(ies...)
}
