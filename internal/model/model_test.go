package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

func TestNewRefusesUnknownNames(t *testing.T) {
	for want, n := range map[string]model.Network{
		`adjacency`: {Adjacencies: []model.Adjacency{{Key: model.Key{Interface: "n6"}, Out: "n6"}}},
		`switch_to`: {Config: config.Config{Tunnels: []gtpu.Tunnel{{Name: "a", LocalTEID: 1, SwitchTo: "b"}}}},
		`policy`:    {Config: config.Config{Tunnels: []gtpu.Tunnel{{Name: "a", LocalTEID: 1, Policy: "b"}}}},
		`steering`:  {Config: config.Config{Steering: []srpolicy.Steering{{Interface: "n6", Policy: "b"}}}},
	} {
		if _, err := model.New(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

// router is a network of one port with a way to everywhere.
func router(t *testing.T, c config.Config) *model.Model {
	t.Helper()
	key := model.Key{Interface: "n6"}
	m, err := model.New(model.Network{Config: c, Ports: []model.Port{{Name: "n6", Ifindex: 2}},
		Adjacencies: []model.Adjacency{{Key: key, Out: "n6", MTU: 1500}},
		Routes:      []model.Route{{Prefix: prefix("::/0"), Via: []model.Key{key}}, {Prefix: prefix("0.0.0.0/0"), Via: []model.Key{key}}}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLimitRefills: 80 kbit/s are 10,000 octets a second, and a bucket holds
// 2 * 1514 octets at that rate.
func TestLimitRefills(t *testing.T) {
	m := router(t, config.Config{SIDs: sids(srv6.LocalSID{SID: prefix("2001:db8:1:1::/64"), Behavior: srv6.EndLimit,
		Flavors: []srv6.Flavor{srv6.USD}, GroupBits: 16, RateBits: 16})})
	frame := packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("2001:db8::1"), Dst: addr("2001:db8:1:1:1:50::")},
		packet.IPv6{Src: addr("2001:db8::1"), Dst: addr("2001:db8::2")}, packet.Payload{Count: 920}) // 1,000 octets of layer 3
	expect := func(when string, want ...model.Reason) {
		t.Helper()
		for i, reason := range want {
			if got := m.Run(frame, 2).Reason; got != reason {
				t.Errorf("%s, packet %d: %s, want %s", when, i+1, got, reason)
			}
		}
	}
	expect("at first", model.Forwarded, model.Forwarded, model.Forwarded, model.Limited)
	m.Advance((50 * time.Millisecond).Nanoseconds())
	expect("after 500 octets' time", model.Limited)
	m.Advance((50 * time.Millisecond).Nanoseconds())
	expect("after 1,000 octets' time", model.Forwarded, model.Limited)
	m.Advance(time.Hour.Nanoseconds())
	expect("after an hour", model.Forwarded, model.Forwarded, model.Forwarded, model.Limited)
}

// TestECN is figure 4 of RFC 6040: columns Not-ECT, ECT(0), ECT(1), CE of the
// outer header; -1 is a drop.
func TestECN(t *testing.T) {
	order := [4]uint8{0, 2, 1, 3}
	want := map[uint8][4]int{
		0: {0, 0, 0, -1},
		2: {2, 2, 1, 3},
		1: {1, 1, 1, 3},
		3: {3, 3, 3, 3},
	}
	m := router(t, config.Config{SIDs: sids(srv6.LocalSID{SID: prefix("2001:db8:1::/128"), Behavior: srv6.EndDT46, Table: model.MainTable})})
	for inner, row := range want {
		for i, outer := range order {
			r := m.Run(packet.Frame(packet.Ethernet{}, packet.IPv6{Src: addr("2001:db8::1"), Dst: addr("2001:db8:1::"), Class: 0xb8 | outer},
				packet.IPv4{Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), TOS: 0x28 | inner}), 2)
			switch {
			case row[i] < 0 && r.Reason != model.ECN:
				t.Errorf("outer %d, inner %d: %s, want a drop", outer, inner, r.Reason)
			case row[i] >= 0 && (r.Reason != model.Forwarded || r.Out[15] != 0x28|uint8(row[i])):
				t.Errorf("outer %d, inner %d: %s, frame %x, want codepoint %d", outer, inner, r.Reason, r.Out, row[i])
			}
		}
	}
}

// TestSpreadFollowsWeights: of many flows each list gets its share.
func TestSpreadFollowsWeights(t *testing.T) {
	m := router(t, config.Config{
		Policies: []srpolicy.Policy{{Name: "p", SegmentLists: []srpolicy.SegmentList{
			{Weight: 3, Segments: policy(srv6.HEncapsRed, "2001:db8:e::1")[0].SegmentLists[0].Segments},
			{Segments: policy(srv6.HEncapsRed, "2001:db8:e::2")[0].SegmentLists[0].Segments}}}},
		Steering: []srpolicy.Steering{{Prefix: prefix("10.0.0.0/8"), Policy: "p"}}})
	counts := model.Counts{}
	for port := range uint16(8000) {
		counts.Add(m.Run(packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.1"), Dst: addr("10.0.0.2")},
			packet.UDP{Sport: port, Dport: 53}), 2).Counts)
	}
	first, second := counts[model.ListName("p", 0)].Packets, counts[model.ListName("p", 1)].Packets
	if first+second != 8000 || first < 5800 || first > 6200 {
		t.Errorf("%d and %d of 8,000 flows, want about 6,000 and 2,000", first, second)
	}
}
