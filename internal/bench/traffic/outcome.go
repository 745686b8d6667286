package traffic

import (
	"cmp"
	"time"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// Trial is one measurement: packets at a rate for a time.
type Trial struct {
	Template Template
	// Expect is Options.Expect of this trial, where it has another.
	Expect *Template
	// Rate is in packets/s; 0 is as fast as possible.
	Rate     float64
	Duration time.Duration
	// Later is the rate from the middle of Duration on; 0 is Rate. Live frames only.
	Later float64
	// Untimed leaves the time out of the tags: there is no latency, and what the
	// time costs is the difference to a trial with it.
	Untimed bool
}

// due is how many packets the rates ask for in a time.
func (t Trial) due(elapsed time.Duration) uint64 {
	elapsed = min(elapsed, t.Duration)
	first := min(elapsed, t.Duration/2)
	return uint64(t.Rate*first.Seconds() + cmp.Or(t.Later, t.Rate)*(elapsed-first).Seconds())
}

// Outcome is what became of a trial's packets.
type Outcome struct {
	// Method is how packets were sent, Receiver whether the driver ran the
	// receiving program ("native") or only the kernel's generic code ("generic").
	Method   Method `json:"method"`
	Receiver string `json:"receiver"`
	// Offered is what Rate asked for (0: what was sent), Sent what was.
	Offered uint64 `json:"offered"`
	Sent    uint64 `json:"sent"`
	// Received are different packets that came out: further copies are in
	// Duplicated. Lost is Sent less Received, Unreadable and Missed.
	Received   uint64 `json:"received"`
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	// Reordered came after one of the same stream that was sent later (RFC 4737).
	Reordered uint64 `json:"reordered"`
	// Corrupt came out otherwise than Expect says: Corruption counts them by
	// what was wrong. Unreadable are those of them whose tag was hurt, so that it
	// is not known which packet each was.
	Corrupt    uint64            `json:"corrupt"`
	Corruption map[string]uint64 `json:"corruption,omitempty"`
	Unreadable uint64            `json:"unreadable"`
	// Unexpected are IP packets that nobody sent: no tag, and not ARP, neighbour
	// discovery or the like. Returned are those of them that came back to the
	// sending interface, such as ICMP errors.
	Unexpected uint64 `json:"unexpected"`
	Returned   uint64 `json:"returned"`
	// Refused are packets that the sending interface had no room for: they are not
	// in Sent. It is not counted on a veth, whose other end is the device's queue.
	Refused uint64 `json:"refused"`
	// Missed are packets that came out of the device and that the receiving
	// interface, a veth, had no room for. Of other interfaces it is not known:
	// what they miss is in Lost.
	Missed uint64 `json:"missed"`
	// Waiting are those of Lost that never reached the device's program: while its CPU did
	// something else, more packets waited than its queue, a veth's, has room for. Of other
	// interfaces it is not known.
	Waiting uint64 `json:"waiting"`
	// Checked are packets of which every length and checksum was looked at; of
	// the others only their headers and lengths.
	Checked uint64 `json:"checked"`
	Octets  uint64 `json:"octets"` // received, of frames without FCS

	// Elapsed is from the first to the last packet sent. Paused is how much of it
	// the generator did not have its CPU for: what is due in a pause is sent
	// later at Rate, not in a burst.
	Elapsed time.Duration `json:"elapsed"`
	Paused  time.Duration `json:"paused"`
	// LongestGap is the longest time between two packets that came out, or from
	// the last of them to the last that was sent.
	LongestGap time.Duration `json:"longest_gap"`
	// Rate is what was reached outside of pauses, in packets/s.
	Rate float64 `json:"rate"`
	// AtLimit says that the generator did not reach the trial's Rate, or that this
	// was 0: nothing follows for the device from what is missing in Sent.
	AtLimit bool `json:"at_limit"`

	// Latency is from the making of a packet to the program at the receiving
	// interface; nil if it was not measured. It is known up to 4.29 s: a packet
	// that took longer counts with its time modulo that.
	Latency *result.Histogram `json:"latency,omitempty"`
	// Faults are the first of the packets that were wrong, in words.
	Faults []string `json:"faults,omitempty"`
	CPU    CPUUsage `json:"cpu"`
}

// CPUUsage is who used how much of the machine during a trial.
type CPUUsage struct {
	// Generator is the CPU time of the thread that sends, with all that is done on
	// it in softirqs: on veth pairs the device's work and the receiver's too.
	Generator time.Duration  `json:"generator"`
	Cores     []CoreUsage    `json:"cores"`
	Processes []ProcessUsage `json:"processes,omitempty"`
}

// CoreUsage are shares of a trial's time, 0 to 1.
type CoreUsage struct {
	CPU     int     `json:"cpu"`
	User    float64 `json:"user"`
	System  float64 `json:"system"`
	Softirq float64 `json:"softirq"` // and interrupts
	Steal   float64 `json:"steal"`   // another virtual machine had it
	Idle    float64 `json:"idle"`
}

// ProcessUsage is a process that was asked for, or a kernel thread that
// receives packets (ksoftirqd, napi).
type ProcessUsage struct {
	Name string        `json:"name"`
	PID  int           `json:"pid"`
	CPU  time.Duration `json:"cpu"` // time on CPUs, all threads together
	// Resident is the process's own memory (RSS less mapped files), Maps that of the
	// BPF maps which it has open; in octets, at the trial's end.
	Resident uint64 `json:"resident,omitempty"`
	Maps     uint64 `json:"maps,omitempty"`
}
