// Package stats holds what the UPF counts besides the data path.
package stats

import (
	"iter"
	"sync/atomic"

	"github.com/culvert-net/culvert/internal/tally"
)

// Counters count what the UPF did. They start at 0 with the process.
type Counters struct {
	Buffered       atomic.Uint64 `metric:"buffered"`        // packets kept for idle UEs
	BufferSent     atomic.Uint64 `metric:"buffer_sent"`     // packets sent after they were kept, or after they came too late to be kept
	BufferDropped  atomic.Uint64 `metric:"buffer_dropped"`  // packets dropped because the SMF said so, or because their session ended
	BufferOverflow atomic.Uint64 `metric:"buffer_overflow"` // packets dropped because the buffer was full
	BufferStale    atomic.Uint64 `metric:"buffer_stale"`    // packets of sessions that are gone, and truncated packets
	// BufferOverflowBytes are the octets of the packets that BufferOverflow counts.
	BufferOverflowBytes atomic.Uint64
	BufferedNow         atomic.Int64 // packets kept now
	BufferedBytes       atomic.Int64 // octets kept now

	UsageReports        atomic.Uint64 `metric:"usage_reports"` // sent unasked, by URR
	DownlinkDataReports atomic.Uint64 `metric:"downlink_data_reports"`
	ErrorReports        atomic.Uint64 `metric:"error_reports"` // about Error Indications
	InactivityReports   atomic.Uint64 `metric:"inactivity_reports"`
	ReportsFailed       atomic.Uint64 `metric:"reports_failed"` // attempts that no SMF accepted

	EchoRequests  atomic.Uint64 `metric:"echo_requests"`  // sent
	Floods        atomic.Uint64 `metric:"floods"`         // copies of frames for all Ethernet sessions on a link
	FloodsDropped atomic.Uint64 `metric:"floods_dropped"` // frames and copies beyond the limit

	ErrorIndications atomic.Uint64 `metric:"error_indications"` // received
	// ErrorIndicationsRefused did not come from the peer that they name.
	ErrorIndicationsRefused atomic.Uint64 `metric:"error_indications_refused"`
	GTPUMalformed           atomic.Uint64 `metric:"gtpu_malformed"`
	GTPUIgnored             atomic.Uint64 `metric:"gtpu_ignored"`
	EndMarkers              atomic.Uint64 `metric:"end_markers"`
	// EndMarkersRefused did not come from a peer of the session.
	EndMarkersRefused atomic.Uint64 `metric:"end_markers_refused"`
	Duplicates        atomic.Uint64 `metric:"duplicates"`
	SendFailed        atomic.Uint64 `metric:"send_failed"`
	SentByKernel      atomic.Uint64 `metric:"sent_by_kernel"` // T-PDUs to GTP-U peers that the data path cannot send to
	FromSMF           atomic.Uint64 `metric:"from_smf"`       // G-PDUs of SMFs by interfaces without the data path

	JournalFailed  atomic.Uint64 `metric:"journal_failed"`
	JournalDamaged atomic.Uint64 `metric:"journal_damaged"` // places that the start could not read
}

// All yields the counters of events, which have a metric's name and only grow, in
// the order of the fields.
func (s *Counters) All() iter.Seq2[string, uint64] { return tally.All(s) }
