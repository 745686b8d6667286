package upf

import (
	"testing"

	"github.com/culvert-net/culvert/internal/session"
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

// While nobody looks, no more goes than the quota and what its parts are rounded by.
func TestSmallQuotaUnwatched(t *testing.T) {
	for _, before := range []int{0, 5, 9} { // packets that we see
		w := newWorld(t)
		w.establish(smallQuota())
		sent := uint64(0)
		for i := range 2000 {
			if w.path.packet(1, uint16(1+i%2), 100) {
				sent += 100
			}
			if i < before {
				w.settle()
			}
		}
		if sent < 1000 || sent > 1000+2*2*granule {
			t.Errorf("after %d packets: %d octets of 1000 were let through", before, sent)
		}
	}
}
