package gtpu

import (
	"fmt"

	"github.com/culvert-net/culvert/srv6"
)

// Validate checks a tunnel. It does not look up what the tunnel refers to
// (switch_to, policy).
func (t Tunnel) Validate() []srv6.FieldError {
	errs := faults(srv6.CheckName("name", t.Name))
	receives := t.LocalTEID != 0 || t.Decapsulate || t.SwitchTo != "" || t.Policy != "" || t.Table != 0
	sends := t.Remote.IsValid() || t.RemoteTEID != 0 || t.Source.IsValid() || t.QFI != 0 ||
		t.PDUSessionContainer != srv6.ContainerNone
	if !receives && !sends {
		errs.add("local_teid", "neither local_teid nor remote is given",
			"give local_teid to receive, remote and remote_teid to send, or both")
		return errs
	}
	if receives {
		t.checkReceiving(&errs)
	}
	if sends {
		t.checkSending(&errs)
	}
	t.checkContainer(&errs)
	return errs
}

// faults are what is wrong with a tunnel.
type faults []srv6.FieldError

func (f *faults) add(field, problem, fix string) {
	*f = append(*f, srv6.FieldError{Field: field, Problem: problem, Fix: fix})
}

// checkReceiving wants one action for the local TEID, and its table only with
// decapsulate.
func (t Tunnel) checkReceiving(errs *faults) {
	actions := 0
	second := "" // the field to blame where several actions are given
	for _, action := range []struct {
		field string
		set   bool
	}{{"decapsulate", t.Decapsulate}, {"switch_to", t.SwitchTo != ""}, {"policy", t.Policy != ""}} {
		if action.set {
			actions++
			second = action.field
		}
	}
	const one = "give exactly one of decapsulate, switch_to and policy"
	switch {
	case t.LocalTEID == 0:
		errs.add("local_teid", "is missing: something is to be done with what is received",
			"give the TEID to receive on, or remove decapsulate, table, switch_to and policy")
	case actions == 0:
		errs.add("decapsulate", "nothing says what to do with what is received", one)
	}
	if actions > 1 {
		errs.add(second, "is more than one thing to do with what is received", one)
	}
	*errs = append(*errs, srv6.CheckTable("table", t.Table)...)
	if t.Table != 0 && !t.Decapsulate {
		errs.add("table", "is looked up only with decapsulate", "remove it, or set decapsulate: true")
	}
}

// checkSending wants a whole remote endpoint, and a source of its family.
func (t Tunnel) checkSending(errs *faults) {
	if !t.Remote.IsValid() {
		errs.add("remote", "is missing: nothing can be sent without it",
			"give the address of the other end, or remove remote_teid, source, qfi and pdu_session_container")
	} else {
		*errs = append(*errs, srv6.CheckUnicast("remote", t.Remote)...)
	}
	if t.Remote.IsValid() && t.RemoteTEID == 0 {
		errs.add("remote_teid", "is missing: TEID 0 carries no user data", "give the TEID that the other end receives on")
	}
	if t.Source.IsValid() {
		*errs = append(*errs, srv6.CheckUnicast("source", t.Source)...)
		if t.Remote.IsValid() && t.Source.Is4() != t.Remote.Is4() {
			errs.add("source", fmt.Sprintf("%s is of another family than remote %s", t.Source, t.Remote),
				"give an address of remote's family, or leave source out")
		}
	}
}

// checkContainer checks what goes into the PDU Session Container.
func (t Tunnel) checkContainer(errs *faults) {
	if t.QFI > qfiMask {
		errs.add("qfi", fmt.Sprintf("%d has more than 6 bits", t.QFI), "give at most 63")
	}
	switch t.PDUSessionContainer {
	case srv6.ContainerNone:
		if t.QFI != 0 {
			errs.add("qfi", "is not sent without a PDU Session Container", "set pdu_session_container to downlink or uplink, or remove qfi")
		}
	case srv6.ContainerDownlink, srv6.ContainerUplink:
	default:
		errs.add("pdu_session_container", t.PDUSessionContainer.String()+" is unknown", "give none, downlink or uplink")
	}
}
