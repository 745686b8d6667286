package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/spread"
)

// spreading is the data path's way to other CPUs.
type spreading interface {
	Buckets() []datapath.Bucket
	Queues() []datapath.Queue
	Move(bucket, cpu int)
	Split(bucket int)
	Settle() (lost uint64, err error)
	Weak() error
}

// How often loads are looked at, while packets are spread and while they are not, and how often rates
// are made of them.
const (
	lookInterval = 100 * time.Millisecond
	idleInterval = 500 * time.Millisecond
	rateInterval = time.Second
)

// spreader levels the load of the CPUs.
type spreader struct {
	dp       spreading
	cards    func() []string // that do it
	times    func() (map[int]cpuClock, error)
	log      *slog.Logger
	balancer spread.Balancer
	said     string // the last problem in the log

	mu   sync.Mutex // guards what the status reads
	lost uint64
	sample
}

// run looks now and then until ctx ends.
func (s *spreader) run(ctx context.Context) error {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-timer.C:
			pause := idleInterval
			if s.look(now) {
				pause = lookInterval
			}
			timer.Reset(pause)
		}
	}
}

// look levels the load, and says whether packets are spread at all.
func (s *spreader) look(now time.Time) bool {
	queues := s.dp.Queues()
	if len(queues) == 0 {
		return false
	}
	lost, err := s.dp.Settle()
	all := s.dp.Buckets()
	s.say(errors.Join(err, s.weak(), s.remember(now, all, lost)))
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
			s.log.Info("a UE fills a CPU: its flows are spread", "event", logevent.SpreadSplit, "bucket", a.Bucket, "cpu", buckets[a.Bucket].CPU)
			s.dp.Split(a.Bucket)
		case buckets[a.Bucket].Split:
			s.log.Info("a UE fits one CPU again", "event", logevent.SpreadJoined, "bucket", a.Bucket, "cpu", a.CPU)
			s.dp.Move(a.Bucket, a.CPU)
		default:
			s.log.Debug("a bucket moves to another CPU", "bucket", a.Bucket, "from", buckets[a.Bucket].CPU, "to", a.CPU)
			s.dp.Move(a.Bucket, a.CPU)
		}
	}
	return true
}

// say logs a problem when it comes, and not at each look.
func (s *spreader) say(problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text != "" && text != s.said {
		s.log.Error("spread packets over CPUs", "event", logevent.SpreadFailed, "error", problem)
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

// remember is what the status reads.
func (s *spreader) remember(now time.Time, all []datapath.Bucket, lost uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = lost
	s.follow(all)
	if now.Sub(s.taken) < rateInterval {
		return s.blind
	}
	times, err := s.times()
	s.take(now, all, times)
	s.blind = err
	return err
}
