package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/spread"
)

// SpreadStatus is how packets are spread over CPUs.
type SpreadStatus struct {
	By   string      `json:"by"` // ue, flow
	CPUs []CPUStatus `json:"cpus"`
	// Cards are the interfaces whose cards do it, in place of the data path. Nobody
	// counts their packets by CPU.
	Cards []string `json:"cards,omitempty"`
	// Busiest are the buckets with most packets, and Split those whose flows are
	// spread, because the packets of one UE fill a CPU.
	Busiest []BucketStatus `json:"busiest,omitempty"`
	Split   int            `json:"split"`
	Moves   uint64         `json:"moves"` // of buckets, since the data path was loaded
	Lost    uint64         `json:"lost"`  // packets that the kernel dropped between CPUs
	Problem string         `json:"problem,omitempty"`
}

// CPUStatus is a CPU that handles packets of others.
type CPUStatus struct {
	CPU     int    `json:"cpu"`
	Rate    uint64 `json:"rate"` // packets per second
	Buckets int    `json:"buckets"`
	Packets uint64 `json:"packets"`
	Queued  uint64 `json:"queued"`
	Full    uint64 `json:"full"` // packets dropped because the queue was full
}

// BucketStatus is what UEs, or flows, with one hash bring.
type BucketStatus struct {
	Bucket int    `json:"bucket"`
	CPU    int    `json:"cpu"` // -1: split
	Rate   uint64 `json:"rate"`
}

// spreading is the data path's way to other CPUs.
type spreading interface {
	Buckets() []datapath.Bucket
	Queues() []datapath.Queue
	Move(bucket, cpu int)
	Split(bucket int)
	Settle() (lost uint64, err error)
	Weak() error
}

// How often loads are looked at, and rates are made of them.
const (
	lookInterval = 100 * time.Millisecond
	rateInterval = time.Second
)

// spreader levels the load of the CPUs.
type spreader struct {
	dp       spreading
	cards    func() []string // that do it
	log      *slog.Logger
	balancer spread.Balancer
	said     string // the last problem in the log

	mu      sync.Mutex // guards what the status reads
	lost    uint64
	sampled time.Time
	before  []uint64 // packets of each bucket then
	rates   []uint64 // of each bucket
}

// run looks now and then until ctx ends.
func (s *spreader) run(ctx context.Context) error {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			s.look(now)
		}
	}
}

func (s *spreader) look(now time.Time) {
	queues := s.dp.Queues()
	if len(queues) == 0 {
		return
	}
	lost, err := s.dp.Settle()
	s.say(errors.Join(err, s.weak()))
	all := s.dp.Buckets()
	s.sample(now, all, lost)
	buckets, ends := make([]spread.Bucket, len(all)), make([]spread.Queue, len(queues))
	for i, b := range all {
		buckets[i] = spread.Bucket{CPU: b.Next, Split: b.Split, Packets: b.In}
	}
	for i, q := range queues {
		ends[i] = spread.Queue{CPU: q.CPU, Full: q.Full}
	}
	for _, a := range s.balancer.Next(buckets, datapath.Buckets, ends) {
		switch {
		case a.CPU < 0:
			s.log.Info("a UE fills a CPU: its flows are spread", "bucket", a.Bucket, "cpu", buckets[a.Bucket].CPU)
			s.dp.Split(a.Bucket)
		case buckets[a.Bucket].Split:
			s.log.Info("a UE fits one CPU again", "bucket", a.Bucket, "cpu", a.CPU)
			s.dp.Move(a.Bucket, a.CPU)
		default:
			s.log.Debug("a bucket moves to another CPU", "bucket", a.Bucket, "from", buckets[a.Bucket].CPU, "to", a.CPU)
			s.dp.Move(a.Bucket, a.CPU)
		}
	}
}

// say logs a problem when it comes, and not at each look.
func (s *spreader) say(problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text != "" && text != s.said {
		s.log.Error("spread packets over CPUs", "error", problem)
	}
	s.said = text
}

// weak says what threads without real-time priority mean.
func (s *spreader) weak() error {
	if err := s.dp.Weak(); err != nil {
		return fmt.Errorf("packets may be lost while the machine is busy: %w", err)
	}
	return nil
}

// sample makes rates of what was counted in about a second.
func (s *spreader) sample(now time.Time, all []datapath.Bucket, lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
	elapsed := now.Sub(s.sampled)
	if elapsed < rateInterval {
		return
	}
	rates, before := make([]uint64, len(all)), make([]uint64, len(all))
	for i, b := range all {
		before[i] = b.In
		if s.before != nil && b.In > s.before[i] {
			rates[i] = uint64(float64(b.In-s.before[i]) / elapsed.Seconds())
		}
	}
	s.sampled, s.before, s.rates = now, before, rates
}

// busiest is how many buckets a status shows.
const busiest = 10

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
	out := &SpreadStatus{By: by.String(), Lost: s.lost, CPUs: make([]CPUStatus, len(queues))}
	at := map[int]*CPUStatus{}
	for i, q := range queues {
		out.CPUs[i] = CPUStatus{CPU: q.CPU, Packets: q.Done, Queued: q.In - min(q.In, q.Done), Full: q.Full}
		at[q.CPU] = &out.CPUs[i]
	}
	for i, b := range s.dp.Buckets() {
		out.Moves += uint64(b.Moves)
		if b.Split {
			out.Split++
		}
		rate := uint64(0)
		if i < len(s.rates) {
			rate = s.rates[i]
		}
		if cpu := at[b.CPU]; cpu != nil {
			cpu.Buckets++
			cpu.Rate += rate
		}
		if rate > 0 {
			out.Busiest = append(out.Busiest, BucketStatus{i, b.CPU, rate})
		}
	}
	slices.SortFunc(out.Busiest, func(a, b BucketStatus) int {
		return cmp.Or(-cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Bucket, b.Bucket))
	})
	out.Busiest = out.Busiest[:min(len(out.Busiest), busiest)]
	if err := s.weak(); err != nil {
		out.Problem = err.Error()
	}
	return out
}
