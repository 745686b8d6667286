package session

import (
	"net/netip"
	"time"
)

// UsageReport is what one URR measured since its last report (TS 29.244
// section 7.5.8.3).
type UsageReport struct {
	URR      uint32
	Sequence uint32 // UR-SEQN: one more with each report of the URR
	Cause    Cause
	// Start and End of the measurement; First and Last packet, zero if there
	// was none.
	Start, End  time.Time
	First, Last time.Time
	Volume      Measured      // octets
	Packets     Measured      // packets
	Duration    time.Duration // of use, for URRs that measure time
	// HasVolume, HasPackets and HasDuration say what the URR measures.
	HasVolume, HasPackets, HasDuration bool
	// Detected and Removed are MAC addresses of the UE's hosts, since the last
	// report.
	Detected, Removed [][6]byte
	// BeforeMonitoring and AfterMonitoring: the report is of the time before,
	// or after, the Monitoring Time, and the other part comes with it.
	BeforeMonitoring, AfterMonitoring bool
}

// Measured counts in each direction. The total is their sum.
type Measured struct{ Uplink, Downlink uint64 }

// Total is both directions.
func (m Measured) Total() uint64 { return m.Uplink + m.Downlink }

// Report is what a session tells its control plane without being asked (TS
// 29.244 section 7.5.8): any of its parts may be empty.
type Report struct {
	SEID  uint64
	Usage []UsageReport
	// DownlinkData: packets wait for an idle UE, found by these PDRs.
	DownlinkData []uint16
	// ErrorIndications came for these peers' F-TEIDs.
	ErrorIndications []PeerTEID
	// Inactive: no user packet for as long as the session's inactivity timer.
	Inactive bool
}

// PeerTEID is an F-TEID of somebody else's.
type PeerTEID struct {
	Addr netip.Addr
	TEID uint32
}
