package dataplane

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// lookup finds a SID as the data path does (bpf/router.h); 0: not a SID.
func lookup(d *DataPlane, a netip.Addr) uint32 {
	s := d.settings.Get()
	hi, _ := abi.Halves(a)
	for _, l := range s.Locator[:s.Locators] {
		if hi&l.Mask == l.Hi {
			index := l.Base + uint32(hi>>l.Shift)&l.FunctionMask
			if d.SIDs.Entries.Get(index).Behavior != 0 {
				return index
			}
			break
		}
	}
	if s.SidsByPrefix == 0 {
		return 0
	}
	index, key := uint32(0), abi.SIDKey(netip.PrefixFrom(a, 128))
	if err := d.maps[abi.MapSidByPrefix].Lookup(&key, &index); err != nil {
		return 0
	}
	return index
}

func TestSIDsByIndexAndByPrefix(t *testing.T) {
	d := open(t)
	must(t, d.SetSettings(testSettings())) // fc00:a::/32, 8 bits of function
	for _, c := range []struct {
		sid     string
		byIndex bool
	}{
		{"fc00:a:100::/40", true},
		{"fc00:a::/40", true},      // function 0
		{"fc00:a:ff00::/40", true}, // the last
		{"fc00:a:210::/44", false}, // longer than LOC:FUNC
		{"fc00:b:100::/40", false}, // another locator
		{"fc00:a:300::1/128", false},
	} {
		p := prefix(c.sid)
		must(t, d.SIDs.Put(srv6.LocalSID{SID: p, Behavior: srv6.End}))
		index := lookup(d, p.Addr())
		if index == 0 || index != d.SIDs.IndexOf(p) || (index <= d.limits.SIDs) != c.byIndex {
			t.Errorf("%s: found at %d, put at %d, by index: want %t", c.sid, index, d.SIDs.IndexOf(p), c.byIndex)
		}
	}
	if lookup(d, addr("fc00:a:4400::")) != 0 || lookup(d, addr("fc00:c::")) != 0 {
		t.Error("SIDs are found that nobody put")
	}
	must(t, d.SIDs.Delete(prefix("fc00:a:100::/40")))
	must(t, d.SIDs.Delete(prefix("fc00:b:100::/40")))
	if lookup(d, addr("fc00:a:100::")) != 0 || lookup(d, addr("fc00:b:100::")) != 0 {
		t.Error("deleted SIDs are found")
	}
}

// TestLongerSIDWins puts SIDs inside of one that a locator leads to, before
// and after it.
func TestLongerSIDWins(t *testing.T) {
	outer, inner, deep := prefix("fc00:a:100::/40"), prefix("fc00:a:110::/44"), prefix("fc00:a:111::1/128")
	d := open(t)
	must(t, d.SetSettings(testSettings()))
	for _, order := range [][]netip.Prefix{{outer, inner, deep}, {deep, inner, outer}, {inner, outer, deep}} {
		for _, p := range order {
			must(t, d.SIDs.Put(srv6.LocalSID{SID: p, Behavior: srv6.EndMAP, Map: p.Addr()}))
		}
		for a, want := range map[string]netip.Prefix{"fc00:a:100::": outer, "fc00:a:110::5": inner, "fc00:a:111::1": deep, "fc00:a:120::": outer} {
			if index := lookup(d, addr(a)); index == 0 || index != d.SIDs.IndexOf(want) {
				t.Errorf("%v: %s is found at %d, want %s at %d", order, a, index, want, d.SIDs.IndexOf(want))
			}
		}
		must(t, d.SIDs.Delete(inner))
		must(t, d.SIDs.Delete(deep))
		must(t, d.SIDs.Delete(outer))
		must(t, d.SIDs.Put(srv6.LocalSID{SID: outer, Behavior: srv6.End}))
		if index := lookup(d, addr("fc00:a:111::1")); index == 0 || index > d.limits.SIDs {
			t.Errorf("alone again, %s is found at %d", outer, index)
		}
		must(t, d.SIDs.Delete(outer))
		if used := d.Usage()[abi.MapMobile].Used; used != 0 {
			t.Errorf("%d entries of mobile are in use", used)
		}
	}
}

// TestChangedSIDIsWhole changes SIDs and looks at what a packet would find
// after each word that is stored.
func TestChangedSIDIsWhole(t *testing.T) {
	d := open(t)
	must(t, d.SetSettings(testSettings()))
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
	for _, sid := range []string{"fc00:a:100::/40", "fc00:f::1/128"} {
		p := prefix(sid)
		steps := []srv6.LocalSID{
			{SID: p, Behavior: srv6.EndDT4, Table: 10},
			{SID: p, Behavior: srv6.EndDT4, Table: 11},
			{SID: p, Behavior: srv6.EndDT6, Table: 12},
			{SID: p, Behavior: srv6.EndX, NextHop: addr("fe80::1"), Interface: "eth0"},
			{SID: p, Behavior: srv6.EndMGTP6D, Policy: "one", Source: addr("fc00:a::2"), PDUType: srv6.PDUTypeIPv4},
			{SID: p, Behavior: srv6.EndT, Table: 13},
		}
		must(t, d.SIDs.Put(steps[0]))
		must(t, counter.Write(d.maps[abi.MapSidCounter], d.SIDs.IndexOf(p), counts(7)))
		for _, next := range steps[1:] {
			before := d.SIDs.Entries.Get(lookup(d, p.Addr()))
			var seen []abi.LocalSid
			d.SIDs.Entries.Stored = func() { seen = append(seen, d.SIDs.Entries.Get(lookup(d, p.Addr()))) }
			must(t, d.SIDs.Put(next))
			d.SIDs.Entries.Stored = nil
			after := d.SIDs.Entries.Get(lookup(d, p.Addr()))
			if after.Behavior != uint8(next.Behavior) || after == before {
				t.Errorf("%s: behaviour %d is written as %+v", p, next.Behavior, after)
			}
			for _, e := range seen {
				if e != before && e != after {
					t.Errorf("%s: from %+v to %+v a packet finds %+v", p, before, after, e)
				}
			}
			if c, err := d.SIDs.Counter(p); err != nil || c.Packets != 7 {
				t.Errorf("%s: the counter says %+v, %v", p, c, err)
			}
		}
		must(t, d.SIDs.Delete(p))
		if lookup(d, p.Addr()) != 0 {
			t.Errorf("%s is found after it was deleted", p)
		}
	}
	for _, name := range []string{abi.MapLocalSid, abi.MapSidByPrefix, abi.MapMobile} {
		if used := d.Usage()[name].Used; used != 0 {
			t.Errorf("%s: %d in use", name, used)
		}
	}
}

func TestLocatorsComeAndGo(t *testing.T) {
	d := open(t)
	s := testSettings()
	must(t, d.SetSettings(s))
	early := srv6.LocalSID{SID: prefix("fc00:20:100::/40"), Behavior: srv6.End} // before its locator
	stays := srv6.LocalSID{SID: prefix("fc00:a:100::/40"), Behavior: srv6.EndMAP, Map: addr("fc00:b::1")}
	must(t, d.SIDs.Put(early))
	must(t, d.SIDs.Put(stays))
	must(t, counter.Write(d.maps[abi.MapSidCounter], d.SIDs.IndexOf(stays.SID), counts(5)))

	find := func(when string, byIndex map[string]bool) {
		t.Helper()
		for sid, want := range byIndex {
			index := lookup(d, prefix(sid).Addr())
			if index == 0 || (index <= d.limits.SIDs) != want {
				t.Errorf("%s: %s is found at %d, by index: want %t", when, sid, index, want)
			}
		}
		if c, err := d.SIDs.Counter(stays.SID); err != nil || c.Packets != 5 {
			t.Errorf("%s: the SID counted %+v, %v, want 5 packets", when, c, err)
		}
		if e := d.SIDs.Entries.Get(lookup(d, stays.SID.Addr())); e.Behavior != uint8(srv6.EndMAP) || e.Mobile == 0 {
			t.Errorf("%s: the SID's entry is %+v", when, e)
		}
	}
	find("at first", map[string]bool{"fc00:20:100::/40": false, "fc00:a:100::/40": true})

	s.Locators = append(s.Locators, settings.Locator{Prefix: prefix("fc00:20::/32"), FunctionBits: 8})
	must(t, d.SetSettings(s))
	must(t, d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:20:200::/40"), Behavior: srv6.End}))
	find("with its locator", map[string]bool{"fc00:20:100::/40": false, "fc00:20:200::/40": true, "fc00:a:100::/40": true})

	s.Locators = s.Locators[1:]
	must(t, d.SetSettings(s))
	find("without the first locator", map[string]bool{"fc00:20:200::/40": true, "fc00:a:100::/40": false})
	if n := d.settings.Get().SidsByPrefix; n != 2 {
		t.Errorf("%d SIDs by prefix, want 2", n)
	}

	// It comes back with another length, next to one that does not fit.
	s.Locators = append(s.Locators, settings.Locator{Prefix: prefix("fc00:a::/32"), FunctionBits: 9},
		settings.Locator{Prefix: prefix("fc00:30::/32"), FunctionBits: 10}, settings.Locator{Prefix: prefix("fc00:40::/56"), FunctionBits: 16})
	must(t, d.SetSettings(s))
	find("with another length", map[string]bool{"fc00:20:200::/40": true, "fc00:a:100::/40": false})
	must(t, d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:30:40::/42"), Behavior: srv6.End}))
	must(t, d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:40:0:1::/72"), Behavior: srv6.End}))
	find("beside those that do not fit", map[string]bool{"fc00:30:40::/42": false, "fc00:40:0:1::/72": false, "fc00:20:200::/40": true})

	must(t, d.SIDs.Delete(early.SID))
	must(t, d.SIDs.Delete(stays.SID))
	if used := d.Usage()[abi.MapMobile].Used; used != 0 {
		t.Errorf("%d entries of mobile are in use", used)
	}
}

func counts(n uint64) []abi.Counter {
	out := make([]abi.Counter, len(mustCPUs()))
	out[0] = abi.Counter{Packets: n, Bytes: 100 * n}
	return out
}

func TestPoolsComeAndGo(t *testing.T) {
	d := open(t)
	s := testSettings()
	must(t, d.SetSettings(s))
	must(t, d.Tunnels.Put(gtpu.Tunnel{Name: "n3", Remote: addr("10.0.0.2"), RemoteTEID: 8}))
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
	must(t, d.Policies.Put(policyTo("two", "fc00:b::1", "fc00:c::1")))
	v4, v6, sr, list := prefix("10.45.0.7/32"), prefix("2001:db8:45:3::/64"), prefix("10.45.0.8/32"), prefix("10.45.0.9/32")
	for p, to := range map[netip.Prefix]srpolicy.Steering{v4: {Tunnel: "n3"}, v6: {Tunnel: "n3"}, sr: {Policy: "one"}, list: {Policy: "two"}} {
		to.Prefix = p
		must(t, d.Steering.Put(to))
	}
	check := func(when string, pool map[netip.Prefix]bool) {
		t.Helper()
		for p, inPool := range pool {
			action := uint8(0)
			if slot := d.settings.PoolSlot(p); slot != 0 {
				action = d.entries.Get(slot).Action
			}
			target := d.targets.At(p)
			if (action != 0) != inPool || (target.Kind == 0) != inPool {
				t.Errorf("%s: %s has action %d in the pool and target %+v, want it in the pool: %t", when, p, action, target, inPool)
			}
		}
	}
	check("at first", map[netip.Prefix]bool{v4: true, v6: true, sr: true, list: true})
	e := d.entries.Get(d.settings.PoolSlot(sr))
	if e.Action != uint8(abi.TunnelActionTUNNEL_SRV6) || e.Remote != abi.In6Of(addr("fc00:b::1")) || e.Index != d.Policies.Get("one").Lists()[0] ||
		e.Adjacency != d.Adjacencies.IndexOf(AdjacencyKey{NextHop: addr("fc00:b::1")}) || e.Source != d.sources.IndexOf(abi.In6Of(s.Source)) {
		t.Errorf("one segment is written as %+v", e)
	}
	if e := d.entries.Get(d.settings.PoolSlot(list)); e.Action != uint8(abi.TunnelActionTUNNEL_LIST) || e.Index != d.Policies.Get("two").Index() {
		t.Errorf("two segments are written as %+v", e)
	}
	s.Pools = s.Pools[:1]
	must(t, d.SetSettings(s))
	check("without the IPv6 pool", map[netip.Prefix]bool{v4: true, v6: false, sr: true})
	s.Pools = []netip.Prefix{prefix("10.0.0.0/8"), prefix("2001:db8:45::/48")} // too large
	must(t, d.SetSettings(s))
	check("with pools that do not fit", map[netip.Prefix]bool{v4: false, v6: false, sr: false, list: false})
	s.Pools = []netip.Prefix{prefix("10.45.0.0/25"), prefix("2001:db8:45::/57")}
	must(t, d.SetSettings(s))
	must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.45.0.10/32"), Policy: "two"}))
	check("with pools again", map[netip.Prefix]bool{prefix("10.45.0.10/32"): true})
}

func TestLocalAddressesWin(t *testing.T) {
	d := open(t)
	must(t, d.SetSettings(testSettings()))
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
	for _, a := range []string{"10.45.0.7", "192.0.2.1", "2001:db8:9::1"} {
		p := netip.PrefixFrom(addr(a), addr(a).BitLen())
		steer := srpolicy.Steering{Prefix: p, Policy: "one"}
		target := func() uint32 { return d.targets.At(p).Kind }
		pass := uint32(abi.TargetKindTARGET_PASS)
		must(t, d.Steering.Put(steer))
		must(t, d.Steering.PutLocal(single(addr(a))))
		if target() != pass || d.settings.PoolSlot(p) != 0 && d.entries.Get(d.settings.PoolSlot(p)).Action != 0 {
			t.Errorf("%s: steering wins over the node's own address", a)
		}
		must(t, d.Steering.Delete(steer))
		must(t, d.Steering.Put(steer))
		if target() != pass {
			t.Errorf("%s: steering that came later wins", a)
		}
		must(t, d.Steering.DeleteLocal(single(addr(a))))
		if slot := d.Steering.SlotOf(ref.User{Key: p.String()}); target() == pass || slot == 0 && target() != uint32(abi.TargetKindTARGET_POLICY) {
			t.Errorf("%s: steering is not back: slot %d", a, slot)
		}
		must(t, d.Steering.Delete(steer))
		if target() != 0 {
			t.Errorf("%s: target %d is left", a, target())
		}
	}
}

func TestSettingsLists(t *testing.T) {
	d := open(t)
	s := Settings{}
	for i := range 8 {
		s.Domain = append(s.Domain, prefix(fmt.Sprintf("fc%02x::/16", i)))
	}
	for i := range 4 {
		s.GTPUAddresses = append(s.GTPUAddresses, addr(fmt.Sprintf("10.0.0.%d", i)), addr(fmt.Sprintf("2001:db8::%d", i)))
	}
	must(t, d.SetSettings(s))
	e := d.settings.Get()
	if e.Domains != 8 || e.Gtpu4Count != 4 || e.Gtpu6Count != 4 || e.HopLimit != 64 || e.TeidSlots != smallLimits.Tunnels {
		t.Errorf("settings are %+v", e)
	}
	s.Domain = s.Domain[2:]
	s.GTPUAddresses = slices.Delete(s.GTPUAddresses, 0, 2)
	must(t, d.SetSettings(s))
	next := d.settings.Get()
	for i := 2; i < 8; i++ {
		if next.Domain[i] != e.Domain[i] {
			t.Errorf("domain %d moved", i)
		}
	}
	if next.Domain[0].Hi != abi.Off || next.Gtpu4[0] != math.MaxUint32 || next.Gtpu4[1] != abi.BE32(addr("10.0.0.1")) {
		t.Errorf("what went is still there: %+v", next)
	}
	for what, bad := range map[string]Settings{
		"at most 8":         {Domain: append(s.Domain, prefix("fd00::/16"), prefix("fd01::/16"), prefix("fd02::/16"))},
		"want an IPv6":      {Domain: []netip.Prefix{prefix("10.0.0.0/8")}},
		"at most 4":         {GTPUAddresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")},
		"source 10.0.0.1":   {Source: addr("10.0.0.1")},
		"locator 10.0.0.0/": {Locators: []settings.Locator{{Prefix: prefix("10.0.0.0/8")}}},
	} {
		before := d.settings.Get()
		if err := d.SetSettings(bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want an error with %q", err, what)
		}
		if d.settings.Get() != before {
			t.Errorf("%s: refused, and yet something changed", what)
		}
	}
}

func TestDefaultSourcesFollowSettings(t *testing.T) {
	d := open(t)
	s := testSettings()
	must(t, d.SetSettings(s))
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
	must(t, d.Tunnels.Put(gtpu.Tunnel{Name: "n3", Remote: addr("10.0.0.2"), RemoteTEID: 8}))
	must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("10.9.0.0/16"), Tunnel: "n3"}))
	s.Source, s.GTPUAddresses = addr("fc00:a::77"), addrs("10.0.0.77")
	must(t, d.SetSettings(s))
	var list abi.SegmentList
	must(t, d.maps[abi.MapSegmentList].Lookup(d.Policies.Get("one").Lists()[0], &list))
	if list.Source != abi.In6Of(s.Source) {
		t.Errorf("the policy's source is %x", list.Source.B)
	}
	e := d.entries.Get(d.targets.At(prefix("10.9.0.0/16")).Index)
	var src abi.In6
	must(t, d.maps[abi.MapSource].Lookup(e.Source, &src))
	if src != abi.In6Of(addr("10.0.0.77")) {
		t.Errorf("the tunnel's source is %x", src.B)
	}
}
