package upf

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// Several SMFs at once, packets, timers, a slice that moves to and fro, and
// snapshots of the journal; what was forwarded is what was reported.
func TestEverythingAtOnce(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Now = time.Now })
	ctx, cancel := context.WithCancel(context.Background())
	running := make(chan error)
	go func() { running <- w.Run(ctx) }()

	var mu sync.Mutex
	var reported, forwarded uint64
	// A report that was under way when its session was deleted is in its last
	// ones too, by the same number.
	seen := map[[3]uint64]bool{}
	report := func(seid uint64, list []session.UsageReport) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range list {
			if key := [3]uint64{seid, uint64(r.URR), uint64(r.Sequence)}; !seen[key] {
				seen[key] = true
				reported += r.Volume.Total()
			}
		}
	}
	const workers, rounds = 4, 150
	var group sync.WaitGroup
	for worker := range uint64(workers) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(worker, 0))
			for round := range uint64(rounds) {
				s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold | session.TriggerPeriodic,
					VolumeThreshold: octets(5000), Period: 60 * time.Millisecond})
				s.SEID = worker<<32 | round + 1
				if err := w.Establish(s); err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					rule := uint16(r.IntN(2) + 1)
					if w.path.packet(s.SEID, rule, 700) {
						mu.Lock()
						forwarded += 700
						mu.Unlock()
					}
					switch r.IntN(6) {
					case 0:
						from := w.Session(s.SEID)
						to := sample.Copy(t, from)
						to.FARs[1].Forwarding.Outer.TEID++
						list, err := w.Modify(from, to, session.Modification{QueryAll: r.IntN(2) == 0})
						if err != nil {
							t.Error(err)
						}
						report(s.SEID, list)
					case 1:
						p := toUE(s.SEID, 1)
						w.Buffer(p)
					}
				}
				if r.IntN(3) == 0 {
					time.Sleep(time.Millisecond)
				}
				done := make(chan struct{})
				w.Delete(w.Session(s.SEID), func(list []session.UsageReport, err error) {
					if err != nil {
						t.Error(err)
					}
					report(s.SEID, list)
					close(done)
				})
				<-done
			}
		})
	}
	group.Go(func() {
		to := slice.Slice{Name: "a", N9: &slice.N9{Transport: slice.SRv6, Uplink: addr("fc00::1")}}
		for i := range 30 {
			c := Config{}
			if i%2 == 0 {
				c.Slices = []slice.Slice{to}
			}
			if err := w.SetConfig(c); err != nil {
				t.Error(err)
			}
			if err := w.store.Renew(); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
	cancel()
	if err := <-running; err != nil {
		t.Error(err)
	}
	for _, r := range w.smf.take() {
		report(r.SEID, r.Usage)
	}
	if reported != forwarded || forwarded == 0 {
		t.Errorf("reported %d octets, forwarded %d", reported, forwarded)
	}
	for index := uint32(1); index < 3; index++ {
		if n := w.store.InSlice(index); n != 0 {
			t.Errorf("slice %d has %d sessions", index, n)
		}
	}
	if w.Len() != 0 || len(w.path.sessions) != 0 || len(w.Peers()) != 0 {
		t.Errorf("left: %d sessions, %d in the data path, %d peers", w.Len(), len(w.path.sessions), len(w.Peers()))
	}
}
