package session

import "fmt"

// Modification is what a Session Modification Request asks for besides changed
// rules.
type Modification struct {
	QueryURRs []uint32 // report their usage now
	QueryAll  bool     // QAURR
	// EndMarkers are FARs. If one sends elsewhere than before, its old tunnel gets
	// End Markers (SNDEM).
	EndMarkers   []uint32
	DropBuffered bool // DROBU: drop all packets that are buffered for the session
	// ReplacedURRs were removed, and made anew with the same ID.
	ReplacedURRs []uint32
	// Renewed are URRs that got new values, maybe the same as before.
	Renewed []Renewed
}

// Renewed says which values of a URR an SMF has given again. A quota then starts
// anew, even if it is as large as before.
type Renewed struct {
	URR                            uint32
	VolumeThreshold, TimeThreshold bool
	VolumeQuota, TimeQuota         bool
	QuotaValidity                  bool
}

// Features are the optional parts of TS 29.244 that a user plane has. Others are
// not announced, and refused if an SMF asks for them.
type Features struct {
	Ethernet          bool // Ethernet PDU sessions
	Unstructured      bool // PDN type Unstructured
	UEAddresses       bool // UEIP: NewUE has pools
	FramedRouting     bool // FRRT
	PrefixLength      bool // IP6PL: UE prefixes other than /64
	EndMarkers        bool // EMPU
	NotificationDelay bool // DDND: BAR
	NumberOfPackets   bool // MNOP
	QuotaValidity     bool // VTIME
	QuotaAction       bool // QUOAC: FAR for Quota Action
	Duplication       bool // Apply Action DUPL
	PacketRate        bool // Packet Rate in QERs
	PathReports       bool // Node Reports of user plane paths come
}

// RuleError says which rule an error is about. The answer to the SMF names it.
type RuleError struct {
	Kind RuleKind
	ID   uint32
	Err  error
}

// Error names the rule and the error.
func (e *RuleError) Error() string { return fmt.Sprintf("%s %d: %v", e.Kind, e.ID, e.Err) }

// Unwrap returns the error without the rule.
func (e *RuleError) Unwrap() error { return e.Err }

// RuleKind is the Rule ID Type of a Failed Rule ID (TS 29.244 section 8.2.80).
type RuleKind uint8

// The kinds of rules.
const (
	RulePDR RuleKind = iota
	RuleFAR
	RuleQER
	RuleURR
	RuleBAR
)

// String returns the abbreviation of TS 29.244, such as "PDR".
func (k RuleKind) String() string {
	return [...]string{"PDR", "FAR", "QER", "URR", "BAR"}[k]
}
