package model_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/srv6"
)

// upf is a model of one port with a way to everywhere, and a session of one UE
// that the caller completes: rule 1 up, rule 2 down.
func upf(t *testing.T, change func(*model.Session), changes ...func(*model.Network)) *model.Model {
	t.Helper()
	s := model.Session{ID: 1, Rules: []model.Rule{
		{ID: 1, Direction: model.Uplink, TEID: 0xdb96, Sources: []netip.Prefix{prefix("10.60.0.2/32")}},
		{ID: 2, Direction: model.Downlink, Destinations: []netip.Prefix{prefix("10.60.0.2/32")}, QFI: 1, Container: srv6.ContainerDownlink,
			Forward: model.Forwarding{Kind: model.ForwardGTPU, Remote: addr("10.200.0.2"), TEID: 3}}}}
	change(&s)
	key, remote := model.Key{Interface: "n6"}, model.Key{NextHop: addr("10.200.0.2")}
	network := model.Network{
		Config:      config.Config{GTPU: config.GTPU{Addresses: []netip.Addr{addr("10.200.0.8")}}},
		Ports:       []model.Port{{Name: "n6", Ifindex: 2}},
		Adjacencies: []model.Adjacency{{Key: key, Out: "n6", MTU: 9000}, {Key: remote, Out: "n6", MTU: 9000}},
		Routes:      []model.Route{{Prefix: prefix("0.0.0.0/0"), Via: []model.Key{key}}},
		Sessions:    []model.Session{s}}
	for _, change := range changes {
		change(&network)
	}
	m, err := model.New(network)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOtherUPF: what another UPF received from a gNB goes through ours to the
// T-PDU that was in it, and the T-PDU that it sent to the gNB leaves ours
// behind the same GTP-U header.
func TestOtherUPF(t *testing.T) {
	frames := capture(t, "open5gs_gtpu")
	sent, received := frames[0], frames[1]
	const gtpu, tpdu = 14 + 20 + 8, 14 + 20 + 8 + 16
	m := upf(t, func(*model.Session) {})

	up := m.Run(received, 2)
	// Its TTL is one less, and the header's checksum follows.
	want := bytes.Clone(received[tpdu:])
	want[8]--
	want[10]++
	if up.Reason != model.Forwarded || !bytes.Equal(up.Out[14:], want) {
		t.Errorf("uplink: %s\ngot  %x\nwant %x", up.Reason, up.Out, want)
	}
	before := bytes.Clone(sent[tpdu:])
	before[8]++
	before[10]--
	ethernet := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0}
	down := m.Run(append(ethernet, before...), 2)
	if down.Reason != model.Forwarded || !bytes.Equal(down.Out[gtpu:], sent[gtpu:]) {
		t.Errorf("downlink: %s\ngot  %x\nwant %x", down.Reason, down.Out[gtpu:], sent[gtpu:])
	}
}

// TestMeterIsExact offers more than a rate for long enough, and takes what the
// rate says within 0.1 %, besides the burst that a full bucket holds.
func TestMeterIsExact(t *testing.T) {
	for _, rate := range []uint64{64, 128, 1_000, 10_000, 99_999, 730_000, 950_000, 999_983, 1_000_000, 3_999_999} {
		m := upf(t, func(s *model.Session) { s.Rules[0].Rate = rate })
		const size = 1400
		frame := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.200.0.2"), Dst: addr("10.200.0.8")},
			packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: 0xdb96},
			packet.IPv4{Src: addr("10.60.0.2"), Dst: addr("10.99.0.1")}, packet.Payload{Count: size - 20})
		const offered = 20_000
		gap := int64(size * 8 * 1e6 / float64(rate) / 1.5) // ns: half as much again as the rate
		var passed, elapsed int64
		burst := max(int64(rate)*190/8, 16384) // octets in 190 ms
		for range offered {
			if m.Run(frame, 2).Reason == model.Forwarded {
				passed += size
			}
			m.Advance(gap)
			elapsed += gap
		}
		want := float64(elapsed) * float64(rate) / 8e6
		if over := float64(passed-burst) / want; over > 1.001 {
			t.Errorf("%d kbit/s: %.4f of it, besides a burst", rate, over)
		}
		if all := float64(passed) / want; all < 0.999 {
			t.Errorf("%d kbit/s: %.4f of it", rate, all)
		}
	}
}

// TestMeterIdles: a bucket that nobody asked for long holds its burst, and not
// what the time in between is worth.
func TestMeterIdles(t *testing.T) {
	m := upf(t, func(s *model.Session) { s.Rules[1].Rate = 1000 }) // 125,000 octets a second: 23,750 are the burst
	frame := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.99.0.1"), Dst: addr("10.60.0.2")}, packet.Payload{Count: 1230})
	burst := func() (packets int) {
		for m.Run(frame, 2).Reason == model.Forwarded {
			packets++
		}
		return packets
	}
	for _, idle := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
		m.Advance(idle.Nanoseconds())
		if got := burst(); got != 19 {
			t.Errorf("after %v: %d packets of 1,250 octets, want 19", idle, got)
		}
	}
	m.Advance((100 * time.Millisecond).Nanoseconds())
	if got := burst(); got != 10 {
		t.Errorf("after 100 ms: %d packets, want 10", got)
	}
}

// TestMeterGoesOn: whoever offers four times the rate gets a packet as often as the rate
// is worth one. A TCP with a short round trip would lose all of a round trip in a
// longer gap, and wait for its timer.
func TestMeterGoesOn(t *testing.T) {
	for _, rate := range []uint64{20_000, 100_000, 500_000} {
		m := upf(t, func(s *model.Session) { s.Rules[1].Rate = rate })
		const size = 1400
		frame := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.99.0.1"), Dst: addr("10.60.0.2")}, packet.Payload{Count: size - 20})
		each := int64(size * 8 * 1e6 / rate) // ns that a packet takes
		for m.Run(frame, 2).Reason == model.Forwarded {
		}
		var since, longest int64
		for range 10_000 {
			m.Advance(each / 4)
			since += each / 4
			if m.Run(frame, 2).Reason == model.Forwarded {
				longest, since = max(longest, since), 0
			}
		}
		if longest > each+each/4 {
			t.Errorf("%d kbit/s: no packet for %v, want one each %v", rate, time.Duration(longest), time.Duration(each))
		}
	}
}

// TestMeterBurst: in no 10 s does a rate let more go than its worth and the burst, and
// that is 2 % at most.
func TestMeterBurst(t *testing.T) {
	for _, burst := range []time.Duration{10 * time.Millisecond, 190 * time.Millisecond, 200 * time.Millisecond} {
		const size, rate = 1400, 5_000 // kbit/s
		m := upf(t, func(s *model.Session) { s.Rules[1].Rate = rate }, func(n *model.Network) { n.RateBurst = burst })
		frame := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.99.0.1"), Dst: addr("10.60.0.2")}, packet.Payload{Count: size - 20})
		const worth = rate * 125 * 10
		for _, pause := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
			m.Advance(pause.Nanoseconds())
			passed := 0
			const step = time.Millisecond
			for range 10 * time.Second / step {
				if m.Run(frame, 2).Reason == model.Forwarded {
					passed += size
				}
				m.Advance(step.Nanoseconds())
			}
			held := max(rate*burst.Milliseconds()/8, 16384)
			if most := worth + int(held) + size; passed > most {
				t.Errorf("burst %v, after %v: %d octets, want at most %d", burst, pause, passed, most)
			}
			if passed < worth-size {
				t.Errorf("burst %v, after %v: %d octets, want %d", burst, pause, passed, worth)
			}
		}
	}
}

func TestNewRefusesSessions(t *testing.T) {
	rule := func(change func(*model.Rule)) []model.Session {
		r := model.Rule{ID: 1, Direction: model.Uplink, TEID: 7}
		change(&r)
		return []model.Session{{ID: 1, Rules: []model.Rule{r}}}
	}
	for want, sessions := range map[string][]model.Session{
		"there is no 0": rule(func(r *model.Rule) { r.Meters = []int{0} }),
		"policy":        rule(func(r *model.Rule) { r.Forward = model.Forwarding{Kind: model.ForwardPolicy, Policy: "b"} }),
		"session 1 has it": append(rule(func(*model.Rule) {}),
			model.Session{ID: 2, Rules: []model.Rule{{ID: 1, Direction: model.Uplink, TEID: 7}}}),
	} {
		if _, err := model.New(model.Network{Sessions: sessions}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// TestPutSession: a session that changes goes on with what it counted, and is
// found by what it is now only.
func TestPutSession(t *testing.T) {
	m := upf(t, func(s *model.Session) { s.Rules[1].NotifyAt = 256 })
	to := func(a string) []byte {
		return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.99.0.1"), Dst: addr(a)}, packet.Payload{Count: 180})
	}
	events := func(a string) (kinds []model.EventKind) {
		for range 3 {
			for _, e := range m.Run(to(a), 2).Events {
				kinds = append(kinds, e.Kind)
			}
		}
		return kinds
	}
	if got := events("10.60.0.2"); len(got) != 1 {
		t.Errorf("events %v, want one", got)
	}
	next := model.Session{ID: 1, Rules: []model.Rule{{ID: 2, Direction: model.Downlink, NotifyAt: 256, StopAt: 700,
		Destinations: []netip.Prefix{prefix("10.60.8.0/24")},
		Forward:      model.Forwarding{Kind: model.ForwardGTPU, Remote: addr("10.200.0.2"), TEID: 3}}}}
	if err := m.PutSession(next); err != nil {
		t.Fatal(err)
	}
	if got := m.Run(to("10.60.0.2"), 2).Reason; got != model.Passed {
		t.Errorf("the address that it had: %s", got)
	}
	// 600 octets were counted: one packet more, then the quota of 768.
	if got := events("10.60.8.1"); len(got) != 1 || got[0] != model.EventStop {
		t.Errorf("events %v, want that of the quota", got)
	}
	if err := m.PutSession(model.Session{ID: 1}); err != nil {
		t.Fatal(err)
	}
	if got := m.Run(to("10.60.8.1"), 2).Reason; got != model.Passed {
		t.Errorf("a session without rules: %s", got)
	}
}
