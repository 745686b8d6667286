package bgp

import (
	"net/netip"
	"testing"
	"time"
)

// A speaker that only connects receives its first path after GoBGP's pause of 1.5 to 2 s
// (Speaker.connectRetry): by a peer that waits for it, by one that connects as
// well, and by one that comes up later.
func TestConnectsAfterPause(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		network string
		passive bool
		late    time.Duration
	}{
		"the other waits": {"12", true, 0}, "the other connects, too": {"13", false, 0}, "the other is late": {"14", true, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := addr("127.94."+tt.network+".9"), addr("127.94."+tt.network+".5")
			h := newObserved()
			headend := func() {
				speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{other},
					Peers: []Peer{{Address: own, ASN: 65001, Passive: tt.passive, Local: other}}}, h)
			}
			inject := func() {
				s := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Peers: []Peer{{Address: other, ASN: 65001, Local: own}}}, nil)
				if err := s.Advertise(gold(), nil); err != nil {
					t.Fatal(err)
				}
			}
			var started time.Time
			if tt.late > 0 {
				inject()
				time.Sleep(tt.late)
				started = time.Now()
				headend()
			} else {
				headend()
				started = time.Now()
				inject()
			}
			eventually(t, "the policy arrives", func() bool { return h.has(100) })
			// One pause of at most 2 s, and the session set-up.
			if d := time.Since(started); d > 3*time.Second {
				t.Errorf("received after %v", d)
			} else {
				t.Logf("received after %v", d)
			}
		})
	}
}
