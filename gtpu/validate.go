package gtpu

import (
	"fmt"

	"github.com/culvert-net/culvert/srv6"
)

// Validate checks a tunnel. It does not look up what the tunnel refers to
// (switch_to, policy).
func (t Tunnel) Validate() []srv6.FieldError {
	errs := srv6.CheckName("name", t.Name)
	receives := t.LocalTEID != 0 || t.Decapsulate || t.SwitchTo != "" || t.Policy != "" || t.Table != 0
	sends := t.Remote.IsValid() || t.RemoteTEID != 0 || t.Source.IsValid() || t.QFI != 0 ||
		t.PDUSessionContainer != srv6.ContainerNone
	if !receives && !sends {
		return append(errs, srv6.FieldError{Field: "local_teid", Problem: "neither local_teid nor remote is given",
			Fix: "give local_teid to receive, remote and remote_teid to send, or both"})
	}
	if receives {
		errs = append(errs, t.checkReceiving()...)
	}
	if sends {
		errs = append(errs, t.checkSending()...)
	}
	return append(errs, t.checkContainer()...)
}

// checkReceiving wants one action for the local TEID, and its table only with
// decapsulate.
func (t Tunnel) checkReceiving() (errs []srv6.FieldError) {
	fail := func(field, problem, fix string) {
		errs = append(errs, srv6.FieldError{Field: field, Problem: problem, Fix: fix})
	}
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
		fail("local_teid", "is missing: something is to be done with what is received",
			"give the TEID to receive on, or remove decapsulate, table, switch_to and policy")
	case actions == 0:
		fail("decapsulate", "nothing says what to do with what is received", one)
	}
	if actions > 1 {
		fail(second, "is more than one thing to do with what is received", one)
	}
	if t.Table != 0 && !t.Decapsulate {
		fail("table", "is looked up only with decapsulate", "remove it, or set decapsulate: true")
	}
	return errs
}

// checkSending wants a whole remote endpoint, and a source of its family.
func (t Tunnel) checkSending() (errs []srv6.FieldError) {
	fail := func(field, problem, fix string) {
		errs = append(errs, srv6.FieldError{Field: field, Problem: problem, Fix: fix})
	}
	if !t.Remote.IsValid() {
		fail("remote", "is missing: nothing can be sent without it",
			"give the address of the other end, or remove remote_teid, source, qfi and pdu_session_container")
	} else {
		errs = srv6.CheckUnicast("remote", t.Remote)
	}
	if t.Remote.IsValid() && t.RemoteTEID == 0 {
		fail("remote_teid", "is missing: TEID 0 carries no user data", "give the TEID that the other end receives on")
	}
	if t.Source.IsValid() {
		errs = append(errs, srv6.CheckUnicast("source", t.Source)...)
		if t.Remote.IsValid() && t.Source.Is4() != t.Remote.Is4() {
			fail("source", fmt.Sprintf("%s is of another family than remote %s", t.Source, t.Remote),
				"give an address of remote's family, or leave source out")
		}
	}
	return errs
}

// checkContainer checks what goes into the PDU Session Container.
func (t Tunnel) checkContainer() []srv6.FieldError {
	var errs []srv6.FieldError
	if t.QFI > qfiMask {
		errs = append(errs, srv6.FieldError{Field: "qfi", Problem: fmt.Sprintf("%d has more than 6 bits", t.QFI), Fix: "give at most 63"})
	}
	switch t.PDUSessionContainer {
	case srv6.ContainerNone:
		if t.QFI != 0 {
			errs = append(errs, srv6.FieldError{Field: "qfi", Problem: "is not sent without a PDU Session Container",
				Fix: "set pdu_session_container to downlink or uplink, or remove qfi"})
		}
	case srv6.ContainerDownlink, srv6.ContainerUplink:
	default:
		errs = append(errs, srv6.FieldError{Field: "pdu_session_container", Problem: t.PDUSessionContainer.String() + " is unknown",
			Fix: "give none, downlink or uplink"})
	}
	return errs
}
