package gtpu

import (
	"fmt"

	"github.com/culvert-net/culvert/srv6"
)

// Validate checks a tunnel. It does not look up what the tunnel refers to
// (switch_to, policy).
func (t Tunnel) Validate() []srv6.FieldError {
	errs := srv6.CheckName("name", t.Name)
	if !t.receives() && !t.sends() {
		return append(errs, srv6.FieldError{Field: "local_teid", Problem: "neither local_teid nor remote is given",
			Fix: "give local_teid to receive, remote and remote_teid to send, or both"})
	}
	errs = append(errs, t.checkReceiving()...)
	errs = append(errs, t.checkSending()...)
	return append(errs, t.checkContainer()...)
}

// receives and sends say whether any field of that direction is set.
func (t Tunnel) receives() bool {
	return t.LocalTEID != 0 || t.Decapsulate || t.SwitchTo != "" || t.Policy != "" || t.Table != 0
}

func (t Tunnel) sends() bool {
	return t.Remote.IsValid() || t.RemoteTEID != 0 || t.Source.IsValid() || t.QFI != 0 ||
		t.PDUSessionContainer != srv6.ContainerNone
}

// checkReceiving wants one action for the local TEID, and its table only with
// decapsulate.
func (t Tunnel) checkReceiving() []srv6.FieldError {
	if !t.receives() {
		return nil
	}
	var errs []srv6.FieldError
	actions := 0
	for _, set := range []bool{t.Decapsulate, t.SwitchTo != "", t.Policy != ""} {
		if set {
			actions++
		}
	}
	const one = "give exactly one of decapsulate, switch_to and policy"
	switch {
	case t.LocalTEID == 0:
		errs = append(errs, srv6.FieldError{Field: "local_teid", Problem: "is missing: something is to be done with what is received",
			Fix: "give the TEID to receive on, or remove decapsulate, table, switch_to and policy"})
	case actions == 0:
		errs = append(errs, srv6.FieldError{Field: "decapsulate", Problem: "nothing says what to do with what is received", Fix: one})
	}
	if actions > 1 {
		errs = append(errs, srv6.FieldError{Field: t.secondAction(), Problem: "is more than one thing to do with what is received", Fix: one})
	}
	if t.Table != 0 && !t.Decapsulate {
		errs = append(errs, srv6.FieldError{Field: "table", Problem: "is looked up only with decapsulate",
			Fix: "remove it, or set decapsulate: true"})
	}
	return errs
}

// secondAction is the field to blame where several actions are given.
func (t Tunnel) secondAction() string {
	if t.Policy != "" {
		return "policy"
	}
	return "switch_to"
}

// checkSending wants a whole remote endpoint, and a source of its family.
func (t Tunnel) checkSending() []srv6.FieldError {
	if !t.sends() {
		return nil
	}
	var errs []srv6.FieldError
	if !t.Remote.IsValid() {
		errs = append(errs, srv6.FieldError{Field: "remote", Problem: "is missing: nothing can be sent without it",
			Fix: "give the address of the other end, or remove remote_teid, source, qfi and pdu_session_container"})
	} else {
		errs = append(errs, srv6.CheckUnicast("remote", t.Remote)...)
	}
	if t.Remote.IsValid() && t.RemoteTEID == 0 {
		errs = append(errs, srv6.FieldError{Field: "remote_teid", Problem: "is missing: TEID 0 carries no user data",
			Fix: "give the TEID that the other end receives on"})
	}
	if t.Source.IsValid() {
		errs = append(errs, srv6.CheckUnicast("source", t.Source)...)
		if t.Remote.IsValid() && t.Source.Is4() != t.Remote.Is4() {
			errs = append(errs, srv6.FieldError{Field: "source", Problem: fmt.Sprintf("%s is of another family than remote %s", t.Source, t.Remote),
				Fix: "give an address of remote's family, or leave source out"})
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
