package smf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
)

// header is what every answer is known by.
type header struct {
	kind     uint8
	seid     uint64
	sequence uint32
	payload  []byte
}

// parseHeader reads a PFCP header (TS 29.244 section 7.2.2) of version 1; ok
// says that the message is whole.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < 8 || b[0]>>5 != 1 {
		return h, false
	}
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	at := seidAt
	if b[0]&1 != 0 {
		if len(b) < 16 {
			return h, false
		}
		h.seid = binary.BigEndian.Uint64(b[at:])
		at = sequenceAt
	}
	if end > len(b) || end < at+4 {
		return h, false
	}
	h.kind = b[1]
	h.sequence = uint32(b[at])<<16 | uint32(b[at+1])<<8 | uint32(b[at+2])
	h.payload = b[at+4 : end]
	return h, true
}

// each calls f for each IE in b, and says whether they fill it.
func each(b []byte, f func(kind uint16, value []byte)) bool {
	for len(b) >= 4 {
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if end > len(b) {
			return false
		}
		f(binary.BigEndian.Uint16(b), b[4:end])
		b = b[end:]
	}
	return len(b) == 0
}

// answer is what is asked of every response: it is read without go-pfcp, which
// would cost more than all the rest of a request.
type answer struct {
	whole      bool
	cause      uint8
	offending  uint16 // IE type; 0: none named
	failedRule []byte // Failed Rule ID as it is on the wire
	seid       uint64 // of the UP F-SEID; 0: none
	created    []createdPDR
}

// createdPDR is one that the UPF chose something for.
type createdPDR struct {
	id           uint16
	teid         uint32
	addr4, addr6 netip.Addr
	ue4          netip.Addr
	ue6          netip.Addr
}

// read reads a response's IEs; a keeps its memory.
func (a *answer) read(payload []byte) {
	*a = answer{created: a.created[:0]}
	a.whole = each(payload, func(kind uint16, value []byte) {
		switch {
		case kind == ie.Cause && len(value) == 1:
			a.cause = value[0]
		case kind == ie.OffendingIE && len(value) == 2:
			a.offending = binary.BigEndian.Uint16(value)
		case kind == ie.FailedRuleID:
			a.failedRule = value
		case kind == ie.FSEID && len(value) >= 9:
			a.seid = binary.BigEndian.Uint64(value[1:])
		case kind == ie.CreatedPDR:
			a.created = append(a.created, readCreated(value))
		}
	})
}

func readCreated(b []byte) (c createdPDR) {
	each(b, func(kind uint16, value []byte) {
		switch {
		case kind == ie.PDRID && len(value) == 2:
			c.id = binary.BigEndian.Uint16(value)
		case kind == ie.FTEID && len(value) >= 5:
			c.teid = binary.BigEndian.Uint32(value[1:])
			c.addr4, c.addr6 = readAddrs(value[5:], value[0]&fteidV4 != 0, value[0]&fteidV6 != 0)
		case kind == ie.UEIPAddress && len(value) >= 1:
			c.ue4, c.ue6 = readAddrs(value[1:], value[0]&ueV4 != 0, value[0]&ueV6 != 0)
		}
	})
	return c
}

// readAddrs reads an IPv4 and then an IPv6 address, of which either may be
// missing.
func readAddrs(b []byte, has4, has6 bool) (v4, v6 netip.Addr) {
	if has4 && len(b) >= 4 {
		v4, b = netip.AddrFrom4([4]byte(b)), b[4:]
	}
	if has6 && len(b) >= 16 {
		v6 = netip.AddrFrom16([16]byte(b))
	}
	return v4, v6
}

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
	text := fmt.Sprintf("%s refused: cause %d", e.Procedure, e.Cause)
	if name := causes[e.Cause]; name != "" {
		text = fmt.Sprintf("%s refused: %s (cause %d)", e.Procedure, name, e.Cause)
	}
	if e.Offending != 0 {
		text += ", offending IE " + ieName(e.Offending)
	}
	if e.Rule != "" {
		text += ", failed rule " + e.Rule
	}
	return text
}

// badAnswer is an answer that accepts a request, and lacks what it has to say.
func badAnswer(procedure, format string, args ...any) error {
	return fmt.Errorf("%s: the answer %s", procedure, fmt.Sprintf(format, args...))
}

// refusal is what an answer says, nil: acceptance.
func refusal(procedure string, a *answer) error {
	switch {
	case !a.whole:
		return badAnswer(procedure, "is cut off within an IE")
	case a.cause == ie.CauseRequestAccepted:
		return nil
	case a.cause == 0:
		return badAnswer(procedure, "has no Cause")
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

// causes are in words (TS 29.244 section 8.2.1).
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
