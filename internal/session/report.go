package session

import (
	"net/netip"
	"time"
)

// UsageReport holds what a URR measured since its last report (TS 29.244 section
// 7.5.8.3).
type UsageReport struct {
	URR      uint32
	Sequence uint32 // UR-SEQN: one more with each report of the URR
	Cause    Cause
	// Start and End bound the measurement. First and Last are the times of packets,
	// zero if they are not known.
	Start, End  time.Time
	First, Last time.Time
	Volume      Measured      // octets
	Packets     Measured      // packets
	Duration    time.Duration // of use, for URRs that measure time
	// HasVolume, HasPackets and HasDuration say what the URR measures.
	HasVolume, HasPackets, HasDuration bool
	// Detected and Removed are the MAC addresses of hosts behind the UE that came
	// and went since the last report.
	Detected, Removed [][6]byte
	// BeforeMonitoring and AfterMonitoring say that the report covers the time
	// before or after the Monitoring Time. A report of the other part comes with it.
	BeforeMonitoring, AfterMonitoring bool
}

// Measured counts in each direction.
type Measured struct{ Uplink, Downlink uint64 }

// Total returns the sum of both directions.
func (m Measured) Total() uint64 { return m.Uplink + m.Downlink }

// Report is what a session reports to its control plane unasked (TS 29.244 section
// 7.5.8). Any of its parts may be empty.
type Report struct {
	SEID  uint64
	Usage []UsageReport
	// DownlinkData lists PDRs whose packets wait for an idle UE.
	DownlinkData []uint16
	// ErrorIndications lists F-TEIDs that their peers do not know.
	ErrorIndications []PeerTEID
	// Inactive says that the session's inactivity timer has expired.
	Inactive bool
}

// PeerTEID is an F-TEID of a peer.
type PeerTEID struct {
	Addr netip.Addr
	TEID uint32
}
