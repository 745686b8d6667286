package announce

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

var allPools = []Pool{
	{NetworkInstance: "internet", Prefixes: prefixes("10.45.0.0/16", "2001:db8:45::/48")},
	{NetworkInstance: "Factory", Prefixes: prefixes("10.46.0.0/16")},
	{Prefixes: prefixes("10.47.0.0/16")},
	{NetworkInstance: "natted", Prefixes: prefixes("10.48.0.0/16", "2001:db8:48::/48"), Public: netip.MustParsePrefix("192.0.2.128/26")},
}

func textsOf(list []Prefix) (out []string) {
	for _, p := range list {
		text := p.String()
		if p.Framed {
			text += " framed"
		}
		out = append(out, text)
	}
	return out
}

func TestPrefixes(t *testing.T) {
	sessions := []Session{
		{UE: prefixes("10.45.0.1/32"), Routes: prefixes("203.0.113.0/28", "10.45.7.0/24", "2001:db8:f::/56")},
		{UE: prefixes("10.45.0.2/32"), Routes: prefixes("203.0.113.0/28", "198.51.100.7/24")},
		{UE: prefixes("10.46.0.1/32"), Routes: prefixes("192.0.2.0/28")},
		{UE: prefixes("172.16.0.1/32"), Routes: prefixes("192.0.2.64/28")}, // of no pool
	}
	for name, tt := range map[string]struct {
		entry Entry
		want  []string
	}{
		"pools":                   {Entry{NetworkInstance: "internet", Pools: true}, []string{"10.45.0.0/16", "2001:db8:45::/48"}},
		"of any case":             {Entry{NetworkInstance: "FACTORY", Pools: true}, []string{"10.46.0.0/16"}},
		"behind a NAT":            {Entry{NetworkInstance: "natted", Pools: true}, []string{"2001:db8:48::/48", "192.0.2.128/26"}},
		"that name none":          {Entry{Pools: true}, []string{"10.47.0.0/16"}},
		"nothing asked for":       {Entry{NetworkInstance: "internet"}, nil},
		"no such instance":        {Entry{NetworkInstance: "ims", Pools: true, FramedRoutes: true}, nil},
		"framed routes only":      {Entry{NetworkInstance: "internet", FramedRoutes: true}, []string{"10.45.7.0/24 framed", "198.51.100.0/24 framed", "203.0.113.0/28 framed", "2001:db8:f::/56 framed"}},
		"what a pool has is once": {Entry{NetworkInstance: "internet", Pools: true, FramedRoutes: true}, []string{"10.45.0.0/16", "2001:db8:45::/48", "198.51.100.0/24 framed", "203.0.113.0/28 framed", "2001:db8:f::/56 framed"}},
		"of another instance":     {Entry{NetworkInstance: "factory", Pools: true, FramedRoutes: true}, []string{"10.46.0.0/16", "192.0.2.0/28 framed"}},
	} {
		got, refused := tt.entry.Prefixes(allPools, sessions, nil)
		if !slices.Equal(textsOf(got), tt.want) || len(refused) > 0 {
			t.Errorf("%s: %v, refused %v; want %v", name, textsOf(got), refused, tt.want)
		}
	}
}

// An SMF that says anything as a framed route: none of these is announced.
func TestRefusedFramedRoutes(t *testing.T) {
	e := Entry{NetworkInstance: "internet", FramedRoutes: true, MaxFramedRoutes: 2}
	bad := map[string]string{
		"0.0.0.0/0": "every address", "::/0": "every address", "224.1.0.0/16": "routers do not forward", "127.0.0.0/8": "routers do not forward",
		"fe80::/64": "routers do not forward", "0.0.0.0/8": "routers do not forward",
		"10.4.0.0/24": "overlaps 10.4.0.2/32", "10.44.0.0/14": "contains the pool 10.45.0.0/16", "10.46.0.0/15": "contains the pool 10.46.0.0/16",
	}
	for text, why := range bad {
		got, refused := e.Prefixes(allPools, []Session{{UE: prefixes("10.45.0.1/32"), Routes: prefixes(text)}}, prefixes("10.4.0.2/32"))
		if len(got) > 0 || len(refused) != 1 || !strings.Contains(refused[0].Why, why) {
			t.Errorf("%s: announced %v, refused %v", text, got, refused)
		}
	}
	for text, entry := range map[string]Entry{"next_hops has no": {NetworkInstance: "factory", FramedRoutes: true},
		"": {NetworkInstance: "factory", FramedRoutes: true, NextHops: []netip.Addr{netip.MustParseAddr("2001:db8::1")}}} {
		got, refused := entry.Prefixes(allPools, []Session{{UE: prefixes("10.46.0.1/32"), Routes: prefixes("2001:db8:f::/56")}}, nil)
		if len(got)+len(refused) != 1 || (len(got) == 1) != (text == "") || len(refused) == 1 && !strings.Contains(refused[0].Why, text) {
			t.Errorf("an IPv6 network of an IPv4 pool: %v, %v", got, refused)
		}
	}
	got, refused := e.Prefixes(allPools, []Session{{UE: prefixes("10.45.0.1/32"), Routes: prefixes("192.0.2.0/28", "192.0.2.16/28", "192.0.2.32/28")}}, nil)
	if len(got) != 2 || len(refused) != 1 || refused[0].Prefix.String() != "192.0.2.32/28" || refused[0].Why != "max_framed_routes is 2" {
		t.Errorf("beyond the limit: %v, %v", got, refused)
	}
}

func TestNextHop(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.45.0.0/16"), netip.MustParsePrefix("2001:db8:45::/48")
	a4, a6 := netip.MustParseAddr("198.51.100.254"), netip.MustParseAddr("2001:db8:d::fe")
	for _, tt := range []struct {
		hops       []netip.Addr
		want4, of6 netip.Addr
	}{
		{nil, netip.Addr{}, netip.Addr{}}, {[]netip.Addr{a4}, a4, netip.Addr{}}, {[]netip.Addr{a6}, a6, a6}, {[]netip.Addr{a6, a4}, a4, a6},
	} {
		e := Entry{NextHops: tt.hops}
		if got4, got6 := e.NextHop(v4), e.NextHop(v6); got4 != tt.want4 || got6 != tt.of6 {
			t.Errorf("%v: %v and %v", tt.hops, got4, got6)
		}
	}
}

var well = Health{
	N3: []Port{{"n3a", true}, {"n3b", true}}, N4: []Port{{"n4", true}},
	SMFs: []Peer{{"smf1", true}, {"smf2", true}}, GNBs: []Peer{{"10.1.0.1", true}, {"10.1.0.2", true}},
}

func TestFaults(t *testing.T) {
	all := Entry{WithdrawOn: []Cause{CauseN3, CauseN4, CauseN3Path}}
	for name, tt := range map[string]struct {
		change func(*Health)
		entry  Entry
		want   string // "": none
	}{
		"all is well":             {func(*Health) {}, all, ""},
		"one of two ports":        {func(h *Health) { h.N3 = []Port{{"n3a", false}, {"n3b", true}} }, all, ""},
		"both ports of N3":        {func(h *Health) { h.N3 = []Port{{"n3a", false}, {"n3b", false}} }, Entry{}, "n3 is down: n3a, n3b"},
		"no port has the role n3": {func(h *Health) { h.N3 = nil }, all, ""},
		"N4's port":               {func(h *Health) { h.N4 = []Port{{"n4", false}} }, Entry{}, "n4 is down: n4"},
		"no association":          {func(h *Health) { h.SMFs = nil }, Entry{}, "no SMF is associated (held)"},
		"one of two SMFs":         {func(h *Health) { h.SMFs = []Peer{{"smf1", false}, {"smf2", true}} }, Entry{}, ""},
		"no SMF answers":          {func(h *Health) { h.SMFs = []Peer{{"smf1", false}, {"smf2", false}} }, Entry{}, "no heartbeats of smf1, smf2 (held)"},
		"one of two gNBs":         {func(h *Health) { h.GNBs = []Peer{{"10.1.0.1", false}, {"10.1.0.2", true}} }, all, ""},
		"no gNB answers":          {func(h *Health) { h.GNBs = []Peer{{"10.1.0.1", false}} }, all, "no answer of 10.1.0.1 (held)"},
		"not asked for":           {func(h *Health) { h.GNBs = []Peer{{"10.1.0.1", false}} }, Entry{}, ""},
		"N4 is not asked for":     {func(h *Health) { h.N4, h.SMFs = []Port{{"n4", false}}, nil }, Entry{WithdrawOn: []Cause{CauseN3}}, ""},
		"five gNBs": {func(h *Health) { h.GNBs = []Peer{{"a", false}, {"b", false}, {"c", false}, {"d", false}, {"e", false}} }, all,
			"no answer of a, b, c and 2 more (held)"},
	} {
		h := well
		tt.change(&h)
		got := ""
		for _, f := range tt.entry.Faults(h) {
			got += f.Why
			if f.Held {
				got += " (held)"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// The life of a gate: at each second what is not well, and whether the prefixes are announced.
func TestGate(t *testing.T) {
	port, smf := Fault{CauseN3, "n3 is down", false}, Fault{CauseN4, "no SMF", true}
	e := &Entry{HoldTime: 3, HoldDown: 5}
	begin := time.Unix(1000, 0)
	for name, life := range map[string]struct {
		faults map[int][]Fault // from a second on
		open   map[int]bool    // likewise
		why    map[int]string  // at a second
	}{
		"at once where all is well": {nil, map[int]bool{0: true}, map[int]string{0: ""}},
		"a new one waits for what is missing, and no longer": {
			map[int][]Fault{0: {smf}, 4: nil}, map[int]bool{0: false, 4: true}, map[int]string{0: "no SMF", 4: ""}},
		"a port withdraws at once, and holds down": {
			map[int][]Fault{2: {port}, 4: nil}, map[int]bool{0: true, 2: false, 9: true}, map[int]string{2: "n3 is down", 4: "all is well again, for less than 5s"}},
		"no SMF for a moment is nothing": {map[int][]Fault{2: {smf}, 4: nil, 5: {smf}, 7: nil}, map[int]bool{0: true}, nil},
		"no SMF for longer withdraws":    {map[int][]Fault{2: {smf}}, map[int]bool{0: true, 5: false}, map[int]string{6: "no SMF"}},
		"a flap begins the hold-down again": {
			map[int][]Fault{2: {port}, 3: nil, 6: {port}, 7: nil}, map[int]bool{0: true, 2: false, 12: true}, nil},
		"reasons change while it is closed": {
			map[int][]Fault{2: {port, smf}, 4: {smf}}, map[int]bool{0: true, 2: false}, map[int]string{3: "n3 is down; no SMF", 5: "no SMF"}},
	} {
		var g Gate
		var faults []Fault
		open, turned := false, begin
		for second := range 16 {
			if f, change := life.faults[second]; change {
				faults = f
			}
			now := begin.Add(time.Duration(second) * time.Second)
			if o, change := life.open[second]; change {
				if o != open {
					turned = now
				}
				open = o
			}
			g = g.Next(e, faults, now)
			if g.Open != open || !g.Since.Equal(turned) {
				t.Errorf("%s, second %d: open %t since %s, want %t since %s", name, second, g.Open, g.Since, open, turned)
			}
			if why, asked := life.why[second]; asked && g.Why != why {
				t.Errorf("%s, second %d: %q, want %q", name, second, g.Why, why)
			}
		}
	}
}
