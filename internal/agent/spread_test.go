package agent

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/plan"
	datapath "github.com/culvert-net/culvert/internal/dataplane/spread"
)

// fakeSpread is a data path that spreads packets.
type fakeSpread struct {
	config  datapath.Config
	buckets []datapath.Bucket
	queues  []datapath.Queue
	split   []int
	lost    uint64
	weak    error
}

func (f *fakeDataPath) SetSpread(c plan.Spread) error {
	return f.do(func() error { f.spread.config = c.Config; return nil }, "spread")
}

func (f *fakeSpread) Buckets() []datapath.Bucket { return slices.Clone(f.buckets) }
func (f *fakeSpread) Queues() []datapath.Queue   { return f.queues }
func (f *fakeSpread) Settle() (uint64, error)    { return f.lost, nil }
func (f *fakeSpread) Weak() error                { return f.weak }

func (f *fakeSpread) Move(bucket, cpu int) {
	b := &f.buckets[bucket]
	b.CPU, b.Next, b.Split, b.Moves = cpu, cpu, false, b.Moves+1
}

func (f *fakeSpread) Split(bucket int) {
	f.split = append(f.split, bucket)
	b := &f.buckets[bucket]
	b.CPU, b.Next, b.Split = -1, -1, true
}

// TestSpreadIsLevelled: buckets leave a busy CPU, one that fills a CPU is split, and the
// status shows it.
func TestSpreadIsLevelled(t *testing.T) {
	var cards []string
	f := &fakeSpread{buckets: make([]datapath.Bucket, datapath.Buckets+datapath.SubBuckets), queues: []datapath.Queue{{CPU: 2}, {CPU: 3}}}
	for i := range f.buckets {
		f.buckets[i].CPU, f.buckets[i].Next = 2, 2
	}
	s := &spreader{dp: f, cards: func() []string { return cards }, log: slog.New(slog.DiscardHandler)}
	now := time.Unix(1e9, 0)
	look := func(n int, heavy uint64, full bool) {
		for range n {
			for i := range 100 {
				f.buckets[i].In += 20
			}
			f.buckets[50].In += heavy
			if full {
				f.queues[0].Full, f.queues[1].Full = f.queues[0].Full+1, f.queues[1].Full+1
			}
			now = now.Add(lookInterval)
			s.look(now)
		}
	}
	look(50, 0, false)
	got := s.status(datapath.UE)
	if got.By != "ue" || len(got.CPUs) != 2 || got.CPUs[0].Rate < 8000 || got.CPUs[1].Rate < 8000 || got.Moves < 40 || got.Split != 0 {
		t.Errorf("100 UEs of 200 packets/s: %+v", got)
	}
	if len(f.split) > 0 {
		t.Errorf("buckets %v are split", f.split)
	}
	f.lost, f.weak = 5, errors.New("no permission")
	look(60, 30000, true)
	got = s.status(datapath.UE)
	if !slices.Equal(f.split, []int{50}) || got.Split != 1 || got.Busiest[0].Bucket != 50 || got.Busiest[0].CPU != -1 || got.Lost != 5 ||
		got.Problem != "packets may be lost while the machine is busy: no permission" {
		t.Errorf("one UE of 300,000 packets/s: split %v, %+v", f.split, got)
	}
	cards = []string{"n3"}
	if got := s.status(datapath.UE); got.By != "ue" || len(got.Cards) != 1 || len(got.CPUs) > 0 {
		t.Errorf("by a card: %+v", got)
	}
	f.queues, cards = nil, nil
	if s.status(datapath.Off) != nil {
		t.Error("a status though nothing is spread")
	}
}

// TestSpreadProblemIsLogged when it comes, and not ten times a second.
func TestSpreadProblemIsLogged(t *testing.T) {
	f := &fakeSpread{buckets: make([]datapath.Bucket, datapath.Buckets+datapath.SubBuckets), queues: []datapath.Queue{{CPU: 2}}}
	var log strings.Builder
	s := &spreader{dp: f, log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Unix(1e9, 0)
	look := func(weak error, want int) {
		t.Helper()
		f.weak = weak
		for range 5 {
			now = now.Add(lookInterval)
			s.look(now)
		}
		if got := strings.Count(log.String(), "packets may be lost while the machine is busy: no permission"); got != want {
			t.Errorf("logged %d times, want %d: %s", got, want, log.String())
		}
	}
	look(nil, 0)
	look(errors.New("no permission"), 1)
	look(nil, 1)
	look(errors.New("no permission"), 2)
}
