package session

import "fmt"

// Modification is what a modification asks for besides other rules.
type Modification struct {
	QueryURRs []uint32 // report these now
	QueryAll  bool     // QAURR
	// EndMarkers are FARs whose old tunnel gets End Markers (SNDEM) if the new
	// rule sends elsewhere.
	EndMarkers   []uint32
	DropBuffered bool // DROBU: all packets that are kept for the session
	// Renewed are URRs that were given values, which may be the same as before.
	Renewed []Renewed
}

// Renewed says which values of a URR an SMF has given again: a quota counts
// from there, even if it is as large as the last one.
type Renewed struct {
	URR                            uint32
	VolumeThreshold, TimeThreshold bool
	VolumeQuota, TimeQuota         bool
	QuotaValidity                  bool
}

// Features are optional parts of TS 29.244 that the user plane has. What it has
// not is not announced, and an SMF that asks for it anyway is refused.
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

// RuleError says which rule an error is about, so that the SMF can be told.
type RuleError struct {
	Kind RuleKind
	ID   uint32
	Err  error
}

func (e *RuleError) Error() string { return fmt.Sprintf("%s %d: %v", e.Kind, e.ID, e.Err) }

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

func (k RuleKind) String() string {
	return [...]string{"PDR", "FAR", "QER", "URR", "BAR"}[k]
}
