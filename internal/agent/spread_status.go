package agent

import (
	"cmp"
	"slices"

	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
)

// SpreadStatus is how packets are spread over CPUs.
type SpreadStatus struct {
	By   string      `json:"by"` // ue, flow
	CPUs []CPUStatus `json:"cpus"`
	// Cards are the interfaces whose cards do it, in place of the data path. Nobody
	// counts their packets by CPU.
	Cards []string `json:"cards,omitempty"`
	// Busiest are the buckets with most packets per second, Moved those that moved most
	// often since the data path was loaded; each the first 16 of 1,280. Split is how many
	// have their flows spread, because the packets of one UE fill a CPU.
	Busiest []BucketStatus `json:"busiest,omitempty"`
	Moved   []BucketStatus `json:"moved,omitempty"`
	Split   int            `json:"split"`
	Moves   uint64         `json:"moves"` // of buckets, since the data path was loaded
	Lost    uint64         `json:"lost"`  // packets that the kernel dropped between CPUs
	Problem string         `json:"problem,omitempty"`
}

// CPUStatus is a CPU that handles packets of others.
type CPUStatus struct {
	CPU     int     `json:"cpu"`
	Rate    uint64  `json:"rate"`  // packets per second
	Share   float64 `json:"share"` // of the packets that are spread, 0 to 1
	Load    float64 `json:"load"`  // busy part of the CPU's time, whoever used it, 0 to 1
	Buckets int     `json:"buckets"`
	Moves   uint64  `json:"moves"` // buckets that came from another CPU since the daemon started
	Packets uint64  `json:"packets"`
	Queued  uint64  `json:"queued"`
	Full    uint64  `json:"full"` // packets dropped because the queue was full
}

// BucketStatus is what UEs, or flows, with one hash bring.
type BucketStatus struct {
	Bucket  int    `json:"bucket"`
	CPU     int    `json:"cpu"` // -1: split
	Rate    uint64 `json:"rate"`
	Packets uint64 `json:"packets"`
	Moves   uint64 `json:"moves"`
}

// shownBuckets is how many buckets a list of the status has, and metrics name.
const shownBuckets = 16

// status is nil where packets are not spread.
func (s *spreader) status(by datapath.By) *SpreadStatus {
	queues := s.dp.Queues()
	if cards := s.cards(); len(cards) > 0 {
		return &SpreadStatus{By: by.String(), Cards: cards}
	}
	if len(queues) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &SpreadStatus{By: by.String(), Lost: s.lost}
	all := s.dp.Buckets()
	buckets := make([]BucketStatus, len(all))
	for i, b := range all {
		if b.Split {
			out.Split++
		}
		buckets[i] = BucketStatus{Bucket: i, CPU: b.CPU, Rate: s.rate(i), Packets: b.Done, Moves: uint64(b.Moves)}
		out.Moves += uint64(b.Moves)
	}
	out.CPUs = s.cpuStatus(queues, buckets)
	out.Busiest = most(buckets, func(b BucketStatus) uint64 { return b.Rate })
	out.Moved = most(buckets, func(b BucketStatus) uint64 { return b.Moves })
	if err := s.weak(); err != nil {
		out.Problem = err.Error()
	}
	return out
}

// cpuStatus sums the buckets up by CPU.
func (s *sample) cpuStatus(queues []datapath.Queue, buckets []BucketStatus) []CPUStatus {
	out, at, total := make([]CPUStatus, len(queues)), map[int]*CPUStatus{}, uint64(0)
	for i, q := range queues {
		out[i] = CPUStatus{
			CPU: q.CPU, Load: s.loads[q.CPU], Moves: s.arrived[q.CPU],
			Packets: q.Done, Queued: q.In - min(q.In, q.Done), Full: q.Full,
		}
		at[q.CPU] = &out[i]
	}
	for _, b := range buckets {
		if cpu := at[b.CPU]; cpu != nil {
			cpu.Buckets++
			cpu.Rate += b.Rate
			total += b.Rate
		}
	}
	for i := range out {
		out[i].Share = float64(out[i].Rate) / float64(max(total, 1))
	}
	return out
}

// most are the first shownBuckets of those with any n.
func most(buckets []BucketStatus, n func(BucketStatus) uint64) []BucketStatus {
	out := slices.DeleteFunc(slices.Clone(buckets), func(b BucketStatus) bool { return n(b) == 0 })
	slices.SortFunc(out, func(a, b BucketStatus) int {
		return cmp.Or(-cmp.Compare(n(a), n(b)), cmp.Compare(a.Bucket, b.Bucket))
	})
	return out[:min(len(out), shownBuckets)]
}
