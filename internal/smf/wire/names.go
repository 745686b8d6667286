package wire

import (
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"
)

// CauseName is a Cause in words; empty: none of those that we know.
func CauseName(cause uint8) string { return causes[cause] }

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

// IEName is an IE type in words, where it is one of those that we send.
func IEName(kind uint16) string {
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

// UPFeatures are the bits of UP Function Features, from the first octet's
// lowest.
var UPFeatures = []string{
	"BUCP", "DDND", "DLBD", "TRST", "FTUP", "PFDM", "HEEU", "TREU",
	"EMPU", "PDIU", "UDBC", "QUOAC", "TRACE", "FRRT", "PFDE", "EPFAR",
	"DPDRA", "ADPDP", "UEIP", "SSET", "MNOP", "MTE", "BUNDL", "GCOM",
	"MPAS", "RTTL", "VTIME", "NORP", "IPTV", "IP6PL", "TSCU", "MPTCP",
	"ATSSS-LL", "QFQM", "GPQM", "MT-EDT", "CIOT", "ETHAR", "DDDS", "RDS",
	"RTTWP",
}

// Names are those of the bits that are set, from the first octet's lowest.
func Names(bits []byte, of []string) (list []string) {
	for n, name := range of {
		if n/8 < len(bits) && bits[n/8]&(1<<(n%8)) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// UsageTriggers are the bits of Usage Report Trigger (TS 29.244 section
// 8.2.41), from the first octet's lowest.
var UsageTriggers = []string{
	"PERIO", "VOLTH", "TIMTH", "QUHTI", "START", "STOPT", "DROTH", "IMMER",
	"VOLQU", "TIMQU", "LIUSA", "TERMR", "MONIT", "ENVCL", "MACAR", "EVETH",
	"EVEQU", "TEBUR", "IPMJL", "QUVTI", "EMRRE", "UPINT",
}
