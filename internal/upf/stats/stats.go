package upf

import (
	"iter"
	"sync/atomic"
)

// Stats say what the UPF did besides the data path.
type Stats struct {
	Buffered       atomic.Uint64 // packets kept for idle UEs
	BufferSent     atomic.Uint64 // of them, and of those that came too late to be kept: sent on
	BufferDropped  atomic.Uint64 // as the SMF said, or since their session went
	BufferOverflow atomic.Uint64 // for which there was no room
	BufferStale    atomic.Uint64 // of sessions that were gone, or cut short
	BufferedNow    atomic.Int64
	BufferedBytes  atomic.Int64

	UsageReports        atomic.Uint64 // sent without being asked for, by URR
	DownlinkDataReports atomic.Uint64
	ErrorReports        atomic.Uint64 // of Error Indications
	InactivityReports   atomic.Uint64
	ReportsFailed       atomic.Uint64 // that no SMF took, each time

	EchoRequests  atomic.Uint64
	Floods        atomic.Uint64 // copies of frames for all Ethernet sessions of a link
	FloodsDropped atomic.Uint64 // frames, or copies of them, that were too many

	ErrorIndications atomic.Uint64 // received
	GTPUMalformed    atomic.Uint64
	GTPUIgnored      atomic.Uint64
	EndMarkers       atomic.Uint64
	Duplicates       atomic.Uint64
	SendFailed       atomic.Uint64

	JournalFailed atomic.Uint64
}

// All yields the counters that only grow, with their names, in a stable order.
func (s *Stats) All() iter.Seq2[string, uint64] {
	rows := []struct {
		name string
		v    *atomic.Uint64
	}{
		{"buffered", &s.Buffered},
		{"buffer_sent", &s.BufferSent},
		{"buffer_dropped", &s.BufferDropped},
		{"buffer_overflow", &s.BufferOverflow},
		{"buffer_stale", &s.BufferStale},
		{"usage_reports", &s.UsageReports},
		{"downlink_data_reports", &s.DownlinkDataReports},
		{"error_reports", &s.ErrorReports},
		{"inactivity_reports", &s.InactivityReports},
		{"reports_failed", &s.ReportsFailed},
		{"echo_requests", &s.EchoRequests},
		{"floods", &s.Floods},
		{"floods_dropped", &s.FloodsDropped},
		{"error_indications", &s.ErrorIndications},
		{"gtpu_malformed", &s.GTPUMalformed},
		{"gtpu_ignored", &s.GTPUIgnored},
		{"end_markers", &s.EndMarkers},
		{"duplicates", &s.Duplicates},
		{"send_failed", &s.SendFailed},
		{"journal_failed", &s.JournalFailed},
	}
	return func(yield func(string, uint64) bool) {
		for _, r := range rows {
			if !yield(r.name, r.v.Load()) {
				return
			}
		}
	}
}
