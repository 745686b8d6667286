package bgp

import (
	"net/netip"
	"strings"
	"testing"
)

// An injector that is restarted has told all of its list before it says that it has:
// headends lose nothing of it in between.
func TestInjectorRestarts(t *testing.T) {
	h := newHeard()
	own, from := addr("127.94.20.5"), addr("127.94.20.9")
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{own}, Restart: restart,
		Peers: []Peer{{Address: from, ASN: 65001, Passive: true, Local: own}}}, h)
	const many = 3000
	var list []Injection
	for i := range many {
		path := gold()
		path.Color = uint32(i)
		list = append(list, Injection{Advertised: path})
	}
	inject := func() *Speaker {
		s := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Restart: restart, Waits: true, Peers: []Peer{{Address: own, ASN: 65001, Local: from}}}, nil)
		if _, err := NewInjector(s).Set(list); err != nil {
			t.Fatal(err)
		}
		if err := s.Connect(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := func(times int) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.paths) == many && len(h.completed) == times
		}
	}
	first := inject()
	eventually(t, "all is told", told(1))
	first.Stop()
	eventually(t, "the headend takes connections again", func() bool {
		peers, err := headend.Peers(t.Context())
		return err == nil && peers[0].State == "active"
	})
	inject()
	eventually(t, "all is told again", told(2))
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := strings.Count(strings.Join(h.events, "\n"), "withdraw"); n > 0 {
		t.Errorf("%d of %d were lost in between", n, many)
	}
}
