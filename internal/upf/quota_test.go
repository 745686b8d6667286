package upf

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/port"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// smallQuota is what free5GC's online charging gives: 1,000 octets, and a threshold.
func smallQuota() *session.Session {
	return countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota | session.TriggerVolumeThreshold,
		VolumeThreshold: octets(800), VolumeQuota: octets(1000)})
}

// A quota of few octets lets all of them through, whichever rules use them, and one packet
// more at most. The threshold is reported before.
func TestSmallQuota(t *testing.T) {
	for _, tt := range []struct {
		name   string
		rules  []uint16 // which packets go by, again and again
		octets uint64
	}{
		{"uplink", []uint16{1}, 64},
		{"downlink", []uint16{2}, 100},
		{"twice as much up as down", []uint16{1, 1, 2}, 64},
		{"in turn", []uint16{1, 2}, 50},
		{"one octet each", []uint16{1, 2, 2}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.establish(smallQuota())
			sent, reported := uint64(0), uint64(0)
			for i := range 3000 {
				if w.path.packet(1, tt.rules[i%len(tt.rules)], tt.octets) {
					sent += tt.octets
				} else if sent < 1000 {
					t.Fatalf("refused after %d octets", sent)
				}
				w.settle()
				for _, r := range w.smf.usage() {
					if r.Cause == session.CauseVolumeThreshold && reported == 0 {
						reported = sent
					}
				}
			}
			if sent < 1000 || sent > 1000+tt.octets {
				t.Errorf("%d octets of 1000 were let through", sent)
			}
			if reported < 800 || reported > 800+2*tt.octets {
				t.Errorf("the threshold of 800 was reported after %d octets", reported)
			}
		})
	}
}

// While nobody looks, what goes is the quota, whichever rules use it.
func TestQuotaUnwatched(t *testing.T) {
	for _, quota := range []uint64{1000, 100_000, 1_000_000} {
		for _, before := range []int{0, 5, 9} { // packets that we see
			for _, both := range []int{1, 2} {
				w := newWorld(t)
				w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(quota)}))
				sent := uint64(0)
				for i := range 20_000 {
					if w.path.packet(1, uint16(1+i%both), 100) {
						sent += 100
					}
					if i < before {
						w.settle()
					}
				}
				if sent != quota {
					t.Errorf("%d rules use a quota of %d, after %d packets: %d octets were let through", both, quota, before, sent)
				}
			}
		}
	}
}

// A session with more quotas than the data path has room for has none of them there: its rules
// stop at their shares.
func TestTooManyQuotas(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(100_000)})
	for id := range uint32(datapath.MaxQuotas) {
		more := s.URRs[0]
		more.ID = 100 + id
		s.URRs = append(s.URRs, more)
		s.PDRs[0].URRs = append(s.PDRs[0].URRs, more.ID)
	}
	w.establish(s)
	if r := w.path.rule(t, 1, 1); r.Shares || r.StopAt == 0 {
		t.Errorf("limits %+v, want a stop that is not shared", r.RuleLimits)
	}
	sent := uint64(0)
	for w.path.packet(1, 1, 100) {
		sent += 100
	}
	if sent < 50_000 || sent > 50_000+granule {
		t.Errorf("rule 1 stopped after %d octets, want its half of the quota that both use", sent)
	}
}

// quotaRig is a session of two uplink PDRs with a small quota, in the data path.
type quotaRig struct {
	*n4
	smf    *smf
	ns     *netns.NS // whose kernel forwards
	frames [2][]byte
}

func newQuotaRig(t *testing.T, payload int) *quotaRig {
	t.Helper()
	r := &quotaRig{n4: newN4(t), smf: &smf{}, ns: netns.New(t)}
	r.ns.Sysctl(t, "net.ipv4.ip_forward", "1")
	r.Start(pfcpSide{r.smf})
	s := smallQuota()
	s.PDRs[1] = s.PDRs[0]
	s.PDRs[1].ID, s.PDRs[1].PDI.TEID = 2, s.PDRs[0].PDI.TEID+1
	if err := r.path.Ports.Set(1, port.Port{}); err != nil {
		t.Fatal(err)
	}
	for i := range s.PDRs {
		pdr := &s.PDRs[i]
		pdr.PDI.QFIs = nil
		if err := r.TakeTEID(pdr.PDI.TEID); err != nil {
			t.Fatal(err)
		}
		r.frames[i] = packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.200.0.2"), Dst: addr("10.200.0.8")},
			packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: pdr.PDI.TEID},
			packet.IPv4{Src: pdr.PDI.UE[0].Addr(), Dst: addr("192.0.2.1")}, packet.Payload{Count: payload, Proto: 253})
	}
	if err := r.Establish(s); err != nil {
		t.Fatal(err)
	}
	return r
}

// send sends a packet of a PDR and says whether it went.
func (r *quotaRig) send(t *testing.T, pdr int) bool {
	t.Helper()
	before := r.used(t)
	r.run(t, pdr, 1)
	return r.used(t) > before
}

// run runs the data path on packets of a PDR.
func (r *quotaRig) run(t *testing.T, pdr, times int) {
	t.Helper()
	r.ns.Do(t, func() {
		for range times {
			if _, _, err := r.path.Frames.Test(r.frames[pdr], 1); err != nil {
				t.Error(err)
				return
			}
		}
	})
}

// used is what the data path has let through.
func (r *quotaRig) used(t *testing.T) (octets uint64) {
	t.Helper()
	rules, err := r.path.Sessions.Usage(1)
	if err != nil {
		t.Error(err)
	}
	for _, rule := range rules {
		octets += rule.Volume.Bytes
	}
	return octets
}

// The data path's quota ends at the packet that reaches it, where the daemon keeps up.
func TestSmallQuotaInDataPath(t *testing.T) {
	const size = 60 // octets of a packet
	for _, pdrs := range [][]int{{0}, {0, 0, 1}, {0, 1}} {
		t.Run(fmt.Sprint(pdrs), func(t *testing.T) {
			r := newQuotaRig(t, size-20)
			threshold := uint64(0)
			for i := range 40 {
				went := r.send(t, pdrs[i%len(pdrs)])
				if used := r.used(t); !went && used < 1000 {
					t.Fatalf("refused after %d octets", used)
				}
				time.Sleep(20 * time.Millisecond)
				for _, report := range r.smf.usage() {
					if report.Cause == session.CauseVolumeThreshold && threshold == 0 {
						threshold = r.used(t)
					}
				}
			}
			if used := r.used(t); used < 1000 || used > 1000+size {
				t.Errorf("%d octets of 1000 were let through", used)
			}
			if threshold < 800 || threshold > 800+2*size {
				t.Errorf("the threshold of 800 was reported after %d octets", threshold)
			}
		})
	}
}

// Two CPUs send as fast as they can: nothing is refused too early, and on top of the quota comes
// less than a packet of each.
func TestSmallQuotaOnTwoCPUs(t *testing.T) {
	const size = 60
	r := newQuotaRig(t, size-20)
	var wait sync.WaitGroup
	for pdr := range r.frames {
		wait.Go(func() { r.run(t, pdr, 400) })
	}
	wait.Wait()
	if used := r.used(t); used < 1000 || used >= 1000+2*size {
		t.Errorf("%d octets of 1000 were let through", used)
	}
}

// shares says whether a rule has used its share of the session's quotas.
func (f *fakePath) shares(id uint64, rule uint16) bool {
	for _, r := range f.sessions[id].Rules {
		if r.ID == rule && r.Shares {
			return f.volumes[id][rule].Bytes/granule >= r.StopAt/granule
		}
	}
	return false
}

// endShares ends the shares of all rules that share a quota with one.
func (f *fakePath) endShares(id uint64, rule uint16) {
	s := f.sessions[id]
	for _, q := range s.Quotas {
		for i := range s.Rules {
			if r := &s.Rules[i]; slices.Contains(q.Rules, rule) && slices.Contains(q.Rules, r.ID) && r.Shares {
				r.StopAt = 0
			}
		}
	}
}

// usedUp says whether the share of a rule and one of its quotas are used up.
func (f *fakePath) usedUp(id uint64, rule uint16) bool {
	return f.shares(id, rule) && slices.ContainsFunc(f.sessions[id].Quotas, func(q datapath.Quota) bool {
		sum := uint64(0)
		for _, r := range q.Rules {
			sum += f.volumes[id][r].Bytes
			if q.Refused {
				sum += f.volumes[id][r].refused.Bytes
			}
		}
		return slices.Contains(q.Rules, rule) && sum >= q.Until
	})
}

// A FAR for Quota Action may buffer: what comes is kept, and goes with the next quota.
func TestQuotaActionBuffers(t *testing.T) {
	w := newWorld(t)
	other := uint32(7)
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeQuota, VolumeQuota: octets(10_000), FARForQuotaAction: &other})
	s.FARs = append(s.FARs, session.FAR{ID: other, Action: session.Buffer | session.Notify})
	w.establish(s)
	for range 12 {
		w.path.packet(1, 2, 1000)
		w.settle()
	}
	for i := range byte(5) {
		w.Buffer(toUE(1, i))
	}
	e := w.store.Entry(1)
	if n := kept(e); n != 5 || len(w.path.sent()) != 0 {
		t.Fatalf("%d packets kept and %d sent, want 5 and none", n, len(w.path.sent()))
	}
	now := w.Session(1)
	w.modify(now, sample.Copy(t, now), session.Modification{Renewed: []session.Renewed{{URR: 1, VolumeQuota: true}}})
	w.await(func() bool { return len(w.path.sent()) == 5 })
}
