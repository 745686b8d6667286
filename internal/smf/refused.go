package smf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"
)

// ErrUnanswered says that no answer came, however often the request was sent.
var ErrUnanswered = errors.New("no answer")

// RefusedError is an answer with another Cause than acceptance.
type RefusedError struct {
	Procedure string
	Cause     uint8
	Offending uint16 // IE type; 0: none named
	Rule      string // Failed Rule ID, such as "PDR 3"
}

// Error names cause, offending IE and rule.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s refused: %s", e.Procedure, causeName(e.Cause))
	if e.Offending != 0 {
		text += ", offending IE " + ieName(e.Offending)
	}
	if e.Rule != "" {
		text += ", failed rule " + e.Rule
	}
	return text
}

// badAnswer is one that accepts a request, and lacks what it has to say.
type badAnswer struct{ procedure, what string }

func (e *badAnswer) Error() string { return e.procedure + ": the answer " + e.what }

// refusal is what an answer says, nil: acceptance.
func refusal(procedure string, a *answer) error {
	switch {
	case !a.whole:
		return &badAnswer{procedure, "is cut off within an IE"}
	case a.cause == ie.CauseRequestAccepted:
		return nil
	case a.cause == 0:
		return &badAnswer{procedure, "has no Cause"}
	}
	return &RefusedError{procedure, a.cause, a.offending, failedRule(a.failedRule)}
}

// failedRule reads Failed Rule ID (TS 29.244 section 8.2.80).
func failedRule(b []byte) string {
	kinds := []string{"PDR", "FAR", "QER", "URR", "BAR", "MAR", "SRR"}
	if len(b) < 2 || int(b[0]&0x1f) >= len(kinds) {
		return ""
	}
	padded := make([]byte, 8)
	copy(padded[8-min(len(b)-1, 8):], b[1:])
	return fmt.Sprintf("%s %d", kinds[b[0]&0x1f], binary.BigEndian.Uint64(padded))
}

// causeName is a Cause in words (TS 29.244 section 8.2.1).
func causeName(cause uint8) string {
	if name := causes[cause]; name != "" {
		return fmt.Sprintf("%s (cause %d)", name, cause)
	}
	return fmt.Sprintf("cause %d", cause)
}

var causes = map[uint8]string{
	ie.CauseRequestRejected:                 "request rejected",
	ie.CauseSessionContextNotFound:          "session context not found",
	ie.CauseMandatoryIEMissing:              "mandatory IE missing",
	ie.CauseConditionalIEMissing:            "conditional IE missing",
	ie.CauseInvalidLength:                   "invalid length",
	ie.CauseMandatoryIEIncorrect:            "mandatory IE incorrect",
	ie.CauseInvalidForwardingPolicy:         "invalid forwarding policy",
	ie.CauseInvalidFTEIDAllocationOption:    "invalid F-TEID allocation option",
	ie.CauseNoEstablishedPFCPAssociation:    "no established PFCP association",
	ie.CauseRuleCreationModificationFailure: "rule creation/modification failure",
	ie.CausePFCPEntityInCongestion:          "PFCP entity in congestion",
	ie.CauseNoResourcesAvailable:            "no resources available",
	ie.CauseServiceNotSupported:             "service not supported",
	ie.CauseSystemFailure:                   "system failure",
	ie.CauseRedirectionRequested:            "redirection requested",
}

// ieName is an IE type in words, where it is one of those that we send.
func ieName(kind uint16) string {
	if name := ies[kind]; name != "" {
		return fmt.Sprintf("%s (%d)", name, kind)
	}
	return fmt.Sprint(kind)
}

var ies = map[uint16]string{
	ie.CreatePDR: "Create PDR", ie.PDI: "PDI", ie.CreateFAR: "Create FAR", ie.ForwardingParameters: "Forwarding Parameters",
	ie.CreateURR: "Create URR", ie.CreateQER: "Create QER", ie.UpdatePDR: "Update PDR", ie.UpdateFAR: "Update FAR",
	ie.UpdateForwardingParameters: "Update Forwarding Parameters", ie.UpdateURR: "Update URR", ie.UpdateQER: "Update QER",
	ie.SourceInterface: "Source Interface", ie.FTEID: "F-TEID", ie.NetworkInstance: "Network Instance", ie.SDFFilter: "SDF Filter",
	ie.GateStatus: "Gate Status", ie.MBR: "MBR", ie.Precedence: "Precedence", ie.VolumeThreshold: "Volume Threshold",
	ie.TimeThreshold: "Time Threshold", ie.ReportingTriggers: "Reporting Triggers", ie.DestinationInterface: "Destination Interface",
	ie.ApplyAction: "Apply Action", ie.PFCPSMReqFlags: "PFCPSMReq-Flags", ie.PDRID: "PDR ID", ie.FSEID: "F-SEID",
	ie.NodeID: "Node ID", ie.MeasurementMethod: "Measurement Method", ie.MeasurementPeriod: "Measurement Period",
	ie.VolumeQuota: "Volume Quota", ie.TimeQuota: "Time Quota", ie.QueryURR: "Query URR", ie.URRID: "URR ID",
	ie.OuterHeaderCreation: "Outer Header Creation", ie.CreateBAR: "Create BAR", ie.BARID: "BAR ID", ie.CPFunctionFeatures: "CP Function Features",
	ie.UEIPAddress: "UE IP Address", ie.OuterHeaderRemoval: "Outer Header Removal", ie.RecoveryTimeStamp: "Recovery Time Stamp",
	ie.FARID: "FAR ID", ie.QERID: "QER ID", ie.PDNType: "PDN Type", ie.QFI: "QFI", ie.APNDNN: "APN/DNN",
	ie.TGPPInterfaceType: "3GPP Interface Type", ie.SNSSAI: "S-NSSAI",
}
