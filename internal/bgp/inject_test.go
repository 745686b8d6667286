package bgp

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

func TestCheckInjections(t *testing.T) {
	many := make([]netip.Addr, mostHeadends+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	}
	for want, change := range map[string]func(*Injection){
		"":                          func(v *Injection) { v.Headends = many[:mostHeadends] },
		"[0].name: has characters":  func(v *Injection) { v.Name = "by\nr3" },
		"[0].policy_name: has 256":  func(v *Injection) { v.PolicyName = strings.Repeat("g", 256) },
		"[0].headends: has 7001":    func(v *Injection) { v.Headends = many },
		"[0].headends[0]: ::1 is":   func(v *Injection) { v.Headends = []netip.Addr{addr("::1")} },
		"[0].segment_lists: is mis": func(v *Injection) { v.SegmentLists = nil },
	} {
		v := Injection{Advertised: gold()}
		change(&v)
		errs := CheckInjections([]Injection{v})
		if want == "" {
			if len(errs) > 0 {
				t.Errorf("%v", errs)
			}
			continue
		}
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) || errs[0].Fix == "" {
			t.Errorf("want %q, got %v", want, errs)
		}
	}
	twice := []Injection{{Advertised: gold()}, {Advertised: gold()}}
	if errs := CheckInjections(twice); len(errs) != 1 || errs[0].Field != "[1].distinguisher" {
		t.Errorf("one NLRI twice: %v", errs)
	}
}

// The largest policy that the encoding allows arrives.
func TestLongestPolicy(t *testing.T) {
	h := newObserved()
	own, from := addr("127.94.21.5"), addr("127.94.21.9")
	headend := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.5"), Listen: []netip.Addr{own},
		Peers: []Peer{{Address: from, ASN: 65001, Passive: true, Local: own}}}, h)
	s := speaker(t, Config{ASN: 65001, RouterID: addr("10.0.0.9"), Peers: []Peer{{Address: own, ASN: 65001, Local: from}}}, nil)
	longest := Injection{Advertised: gold()}
	longest.Name, longest.PolicyName, longest.SegmentLists = strings.Repeat("n", maxName), strings.Repeat("p", maxName), nil
	for i := range srpolicy.MaxSegmentLists {
		segments := slices.Repeat([]netip.Addr{addr("fcff:3::1")}, srpolicy.MaxSegments)
		longest.SegmentLists = append(longest.SegmentLists, srpolicy.SegmentList{Weight: uint32(i + 1), Segments: segments})
	}
	for i := range mostHeadends {
		longest.Headends = append(longest.Headends, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if _, err := NewInjector(s).Set([]Injection{longest}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it arrives", func() bool { return h.has(100) })
	if p, _ := h.path(100); !reflect.DeepEqual(p.Advertised, longest.Advertised) {
		t.Errorf("received %+v", p)
	}
	established(t, headend)
}

// An injector that is restarted has sent all of its list before it says that it has:
// headends lose nothing of it in between.
func TestInjectorRestarts(t *testing.T) {
	t.Parallel()
	h := newObserved()
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
	sent := func(times int) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.paths) == many && len(h.completed) == times
		}
	}
	first := inject()
	eventually(t, "all is sent", sent(1))
	first.Stop()
	eventually(t, "the headend takes connections again", func() bool {
		peers, err := headend.Peers(t.Context())
		return err == nil && peers[0].State == "active"
	})
	inject()
	eventually(t, "all is sent again", sent(2))
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := strings.Count(strings.Join(h.events, "\n"), "withdraw"); n > 0 {
		t.Errorf("%d of %d were lost in between", n, many)
	}
}
