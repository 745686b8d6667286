package agent

import (
	"errors"
	"log/slog"
	"maps"
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

// newSpreader is one on a machine whose times nobody knows.
func newSpreader(f *fakeSpread, log slog.Handler) *spreader {
	return &spreader{
		dp: f, log: slog.New(log), cards: func() []string { return nil },
		times: func() (map[int]cpuClock, error) { return nil, nil },
	}
}

// TestSpreadIsLevelled: buckets leave a busy CPU, one that fills a CPU is split, and the
// status shows it.
func TestSpreadIsLevelled(t *testing.T) {
	var cards []string
	f := &fakeSpread{buckets: make([]datapath.Bucket, datapath.Buckets+datapath.SubBuckets), queues: []datapath.Queue{{CPU: 2}, {CPU: 3}}}
	for i := range f.buckets {
		f.buckets[i].CPU, f.buckets[i].Next = 2, 2
	}
	s := newSpreader(f, slog.DiscardHandler)
	s.cards = func() []string { return cards }
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
	s := newSpreader(f, slog.NewTextHandler(&log, nil))
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

// TestSpreadStatus: each CPU's share, load and moves, and of the buckets the busiest ones
// and those that moved most often.
func TestSpreadStatus(t *testing.T) {
	f := &fakeSpread{
		buckets: make([]datapath.Bucket, datapath.Buckets+datapath.SubBuckets),
		queues:  []datapath.Queue{{CPU: 2, In: 9, Done: 5, Full: 1}, {CPU: 3}},
	}
	for i := range f.buckets {
		f.buckets[i].CPU, f.buckets[i].Next = 2, 2
	}
	f.buckets[1000].CPU = -1 // where it was received
	s, clock := newSpreader(f, slog.DiscardHandler), time.Unix(1e9, 0)
	times := map[int]cpuClock{2: {busy: 1000, all: 2000}, 3: {busy: 0, all: 2000}}
	s.times = func() (map[int]cpuClock, error) { return maps.Clone(times), nil }
	second := func() {
		for range 10 {
			clock = clock.Add(lookInterval)
			s.look(clock)
		}
	}
	second()
	if got := s.status(datapath.UE); got.CPUs[0].Load != 0 || got.CPUs[0].Moves != 0 || len(got.Busiest)+len(got.Moved) > 0 {
		t.Errorf("before a second is over: %+v", got)
	}
	for i := range 20 {
		b := &f.buckets[i]
		b.In, b.Done = uint64(i), uint64(i) // too few for the balancer to act
	}
	f.buckets[7].Moves, f.buckets[9].Moves = 2, 3
	f.buckets[1000].CPU = 2
	f.Move(19, 3)
	times = map[int]cpuClock{2: {busy: 1000.75, all: 2001}, 3: {busy: 0.5, all: 2001}}
	second()
	got := s.status(datapath.UE)
	want := []CPUStatus{
		{CPU: 2, Rate: 171, Share: 0.9, Load: 0.75, Buckets: 1279, Packets: 5, Queued: 4, Full: 1},
		{CPU: 3, Rate: 19, Share: 0.1, Load: 0.5, Buckets: 1, Moves: 1},
	}
	if !slices.Equal(got.CPUs, want) || got.Moves != 6 {
		t.Errorf("%+v, %d moves", got.CPUs, got.Moves)
	}
	if len(got.Busiest) != shownBuckets || got.Busiest[0] != (BucketStatus{Bucket: 19, CPU: 3, Rate: 19, Packets: 19, Moves: 1}) || got.Busiest[15].Bucket != 4 {
		t.Errorf("busiest: %+v", got.Busiest)
	}
	moved := []BucketStatus{{Bucket: 9, CPU: 2, Rate: 9, Packets: 9, Moves: 3}, {Bucket: 7, CPU: 2, Rate: 7, Packets: 7, Moves: 2}, got.Busiest[0]}
	if !slices.Equal(got.Moved, moved) {
		t.Errorf("moved: %+v", got.Moved)
	}
	s.times = func() (map[int]cpuClock, error) { return nil, errors.New("no /proc") }
	second()
	if got := s.status(datapath.UE); got.CPUs[0].Load != 0 || s.said != "no /proc" {
		t.Errorf("nobody knows the times: load %v, said %q", got.CPUs[0].Load, s.said)
	}
}

// TestCPUClocks of this machine pass.
func TestCPUClocks(t *testing.T) {
	before, err := cpuClocks()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	after, err := cpuClocks()
	if err != nil || len(before) == 0 || len(after) != len(before) {
		t.Fatal(before, after, err)
	}
	for cpu, b := range before {
		if a := after[cpu]; a.all <= b.all || a.busy < b.busy || a.busy > a.all {
			t.Errorf("CPU %d: %v, then %v", cpu, b, a)
		}
	}
}

// TestSpreadMetrics: no more than 16 buckets have series, and only those that moved.
func TestSpreadMetrics(t *testing.T) {
	f := newFake()
	f.spread.buckets = make([]datapath.Bucket, datapath.Buckets+datapath.SubBuckets)
	f.spread.queues = []datapath.Queue{{CPU: 1, In: 8, Done: 5, Full: 3}}
	for i := range f.spread.buckets {
		f.spread.buckets[i] = datapath.Bucket{CPU: 1, Next: 1, In: 6, Done: 6, Moves: uint32(i) / 1000}
	}
	got := scraped(t, prepare(t, t.TempDir(), gateway, f).start(t, links("eth0", "eth1")).Agent)
	for _, line := range []string{
		`culvert_spread_packets_total{cpu="1"} 5`, `culvert_spread_load{cpu="1"} `, `culvert_spread_queued{cpu="1"} 3`,
		`culvert_spread_full_total{cpu="1"} 3`, `culvert_spread_cpu_moves_total{cpu="1"} 0`, `culvert_spread_buckets{cpu="1"} 1280`,
		`culvert_spread_moves_total 280`, `culvert_spread_bucket_moves_total{bucket="1000"} 1`, `culvert_spread_bucket_packets_total{bucket="1015"} 6`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %s", line)
		}
	}
	if n := strings.Count(got, "culvert_spread_bucket_moves_total{"); n != shownBuckets {
		t.Errorf("%d buckets have series", n)
	}
	if t.Failed() {
		t.Log(got)
	}
}
