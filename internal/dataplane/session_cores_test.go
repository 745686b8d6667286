package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
)

// open5gs is what the daemon makes of Open5GS' session: the default uplink rule is for a QFI and
// the UE's address, and one is for Router Solicitations to the SMF, from anywhere.
func open5gs(n, teid uint32, qfi uint8) Session {
	s := plain(n, teid)
	s.Rules[0].QFIs = 1 << qfi
	solicit := Rule{ID: 4, Precedence: 100, TEID: teid, Action: ActionForward, Forward: gnb(n, "10.0.0.3"), Filters: []Filter{anyFilter}}
	f := &solicit.Filters[0]
	f.Remote, f.AnyProtocol, f.Protocol = prefix("ff02::2/128"), false, 58
	s.Rules = append(s.Rules, solicit)
	return s
}

// withFlow adds the rules of a dedicated QoS flow for DNS.
func withFlow(s Session, qfi uint8) Session {
	dns := anyFilter
	dns.Remote, dns.AnyProtocol, dns.Protocol, dns.RemotePorts = prefix("192.0.2.0/24"), false, 17, [2]uint16{53, 53}
	up, down := s.Rules[0], s.Rules[1]
	up.ID, up.Precedence, up.QFIs, up.Filters = 6, 1, 1<<qfi, []Filter{dns}
	down.ID, down.Precedence, down.QFI, down.Filters = 5, 1, qfi, []Filter{dns}
	s.Rules = append(s.Rules, up, down)
	return s
}

// addCores adds such sessions to those among which a test changes.
func addCores(out map[string]Session, n, teid uint32) {
	out["open5gs"] = open5gs(n, teid, 1)
	out["open5gs, another QFI"] = open5gs(n, teid, 2)
	out["open5gs, flow"] = withFlow(open5gs(n, teid, 1), 2)
	for name, sources := range map[string][]netip.Prefix{"any UE": nil, "another UE": {prefix("10.45.0.6/32")}, "UE's network": {prefix("10.45.0.0/24")}} {
		s := open5gs(n, teid, 1)
		s.Rules[0].Sources = sources
		out["open5gs, "+name] = s
	}
	out["open5gs, QFIs turned round"] = withFlow(open5gs(n, teid, 2), 1)
	out["plain, flow"] = withFlow(plain(n, teid), 2)
	high := plain(n, teid) // with a TEID that, in a head with filters, would lead to the uplink
	high.Rules[1].QFI, high.Rules[1].Forward.TEID = 5, 0xc080_0000|teid
	out["plain, high TEID"] = high
}

// qfiFrame is uplinkFrame with a PDU Session Container.
func qfiFrame(teid uint32, qfi uint8, src, dst string, port uint16) []byte {
	return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: teid, Container: &packet.PDUSession{Type: 1, QFI: qfi}},
		ipLayer(src, dst), packet.UDP{Sport: 5000, Dport: port}, packet.Payload{Count: 100})
}

// TestHeadsSendStraight demands that the usual packets of Open5GS' sessions need no
// filter, and that nothing else passes them by.
func TestHeadsSendStraight(t *testing.T) {
	d := sessionRig(t, Options{})
	const teid, four, six = 7, abi.StraightSTRAIGHT_IPV4, abi.StraightSTRAIGHT_IPV6
	qfi := func(n abi.Straight) abi.Straight { return n << abi.StraightSTRAIGHT_QFI_SHIFT }
	free := func(s Session) Session {
		s.Rules[0].Filters = []Filter{anyFilter}
		s.Rules[0].Filters[0].ToSMask = 0xfc
		return s
	}
	anybody := open5gs(5, teid, 1)
	anybody.Rules[0].Sources = nil
	from := func(sources ...netip.Prefix) Session {
		s := open5gs(5, teid, 1)
		s.Rules[0].Sources = sources
		return s
	}
	first, second := from(ue6(5)), from(netip.PrefixFrom(ue4(5), 32), ue6(5))
	more := withFlow(from(ue6(5)), 1)
	more.Rules[3].Filters[0].Remote = prefix("2001:db8::/32") // UDP, and the solicitation's ICMPv6
	const solicited = abi.ApartAPART6 | 58
	for _, row := range []struct {
		name     string
		session  Session
		up, down abi.Straight
		apart    abi.Apart // of the uplink's IPv6 packets
	}{
		{"IPv6", first, qfi(1), 0, solicited},
		{"IPv4 and IPv6", second, four | qfi(1), 0, solicited},
		{"IPv6, from a longer prefix", from(prefix("2001:db8:45:5::/96")), 0, 0, 0},
		{"IPv6, flow of the same QFI", more, 0, six | abi.StraightSTRAIGHT_ANY_QFI, 0},
		{"default", open5gs(5, teid, 1), four | qfi(1), 0, 0},
		{"flow", withFlow(open5gs(5, teid, 1), 2), four | qfi(1), six | abi.StraightSTRAIGHT_ANY_QFI, 0},
		{"flow of the same QFI", withFlow(open5gs(5, teid, 1), 1), qfi(1), six | abi.StraightSTRAIGHT_ANY_QFI, 0},
		{"the default rule has a filter", free(open5gs(5, teid, 1)), 0, 0, 0},
		{"from any UE", anybody, four | qfi(1), 0, 0},
	} {
		must(t, d.Sessions.Put(row.session))
		head := func(index uint32) abi.Straight {
			e := d.sessionTables.PDR.Get(index)
			if abi.PdrAction(e.Action) != abi.PdrActionPDR_FILTERS {
				return 0
			}
			return abi.Straight(e.Teid) &^ abi.StraightSTRAIGHT_INDEX
		}
		base, _, _ := d.limits.PDRRanges()
		if up := head(teid); up != row.up {
			t.Errorf("%s: uplink %#x, want %#x", row.name, up, row.up)
		}
		if apart := abi.Apart(d.sessionTables.PDR.Get(teid).Forwarding); apart>>30 == 1 && apart != row.apart || apart>>30 != 1 && row.apart != 0 {
			t.Errorf("%s: IPv6 packets that are apart: %#x, want %#x", row.name, apart, row.apart)
		}
		if down := head(base + 5); down != row.down {
			t.Errorf("%s: downlink %#x, want %#x", row.name, down, row.down)
		}
		must(t, d.Sessions.Drop(5))
		settled(d)
	}
}

// TestRulesBesideTEIDs demands that the last rule behind filters has the entry beside its TEID's, unless
// another rule has it, and that the word of the TEID says which.
func TestRulesBesideTEIDs(t *testing.T) {
	d := sessionRig(t, Options{})
	const teid = 7
	beside := session.Beside(d.limits) + teid
	look := func(what string, rule uint16, isBeside bool) {
		t.Helper()
		settled(d)
		straight := abi.Straight(d.sessionTables.PDR.Get(teid).Teid) & abi.StraightSTRAIGHT_INDEX
		at := d.Sessions.EntryAt(5, rule)
		switch {
		case isBeside && (at != beside || straight != abi.StraightSTRAIGHT_BESIDE):
			t.Errorf("%s: rule %d has entry %d, and the TEID names %d; want %d, and what is beside", what, rule, at, straight, beside)
		case !isBeside && (at == beside || uint32(straight) != at):
			t.Errorf("%s: rule %d has entry %d, and the TEID names %d; want not %d", what, rule, at, straight, beside)
		}
	}
	first := open5gs(5, teid, 1)
	must(t, d.Sessions.Put(first))
	look("a new session", 1, true)
	other := open5gs(5, teid, 1)
	other.Rules[0].ID = 11
	must(t, d.Sessions.Put(other))
	look("another rule instead", 11, false)
	must(t, d.Sessions.Drop(5))
	settled(d)
	if do := d.sessionTables.PDR.Get(beside).Action; do != 0 {
		t.Errorf("nobody has the entry, and it says %d", do)
	}
	must(t, d.Sessions.Put(first))
	look("a new session with that TEID", 1, true)
}

// TestFailedChangeBesideTEID demands that a change that fails halfway gives up the entry beside its TEID:
// the next session with that TEID has it.
func TestFailedChangeBesideTEID(t *testing.T) {
	d := sessionRig(t, Options{})
	const teid = 7
	s := open5gs(5, teid, 1)
	s.Rules[1].Destinations = []netip.Prefix{prefix("10.99.0.5/32")} // outside of the pools: pdr_by_ue leads to it
	ues := d.maps[abi.MapPdrByUe]
	full := uint32(0)
	for ; ues.Put(&abi.In6{B: [16]uint8{0xfd, byte(full >> 8), byte(full)}}, uint32(1)) == nil; full++ {
	}
	var noRoom *table.FullError
	if err := d.Sessions.Put(s); !errors.As(err, &noRoom) {
		t.Fatalf("a session whose address the kernel has no room for: %v", err)
	}
	for i := range full {
		must(t, ues.Delete(&abi.In6{B: [16]uint8{0xfd, byte(i >> 8), byte(i)}}))
	}
	settled(d)
	checkEmpty(t, d)
	must(t, d.Sessions.Put(s))
	settled(d)
	if at, want := d.Sessions.EntryAt(5, 1), session.Beside(d.limits)+teid; at != want {
		t.Errorf("the next session's rule has entry %d, want %d", at, want)
	}
}

// TestHeadsAskForTheUE demands that packets that need no filter come from the address that their
// rule names, whichever it named before.
func TestHeadsAskForTheUE(t *testing.T) {
	d := sessionRig(t, Options{})
	const teid = 7
	all := []string{"10.45.0.5", "10.45.0.6", "10.45.0.7", "2001:db8:45:5::1", "2001:db8:45:6::1"}
	for _, named := range [][]string{
		{"10.45.0.5/32"}, {"10.45.0.6/32"}, {"10.45.0.6/32", "10.45.0.7/32"}, {"10.45.0.0/29"}, nil, {"10.45.0.7/32"},
		{"10.45.0.7/32", "2001:db8:45:5::/64"}, {"2001:db8:45:6::/64"}, {"2001:db8:45:5::/64"}, nil, {"10.45.0.5/32", "2001:db8:45:5::/64"},
	} {
		s := open5gs(5, teid, 1)
		s.Rules[0].Sources = nil
		for _, p := range named {
			s.Rules[0].Sources = append(s.Rules[0].Sources, prefix(p))
		}
		wantSources(t, d, s, all)
		wantSources(t, d, withFlow(s, 1), all) // packets to another network go past its filters
	}
}

// wantSources demands that packets from a source pass if the default rule names it, to the network of
// a QoS flow and to another one.
func wantSources(t *testing.T, d *DataPlane, s Session, all []string) {
	t.Helper()
	must(t, d.Sessions.Put(s))
	settled(d)
	named := s.Rules[0].Sources
	for _, source := range all {
		want := len(named) == 0 || slices.ContainsFunc(named, func(p netip.Prefix) bool { return p.Contains(addr(source)) })
		destinations := []string{"192.0.2.1", "198.51.100.1"}
		if addr(source).Is6() {
			destinations = []string{"2001:db8:f::1"}
		}
		for _, to := range destinations {
			verdict, _, err := d.Frames.Test(qfiFrame(s.Rules[0].TEID, 1, source, to, 80), 1)
			must(t, err)
			if got := verdict != xdp.VerdictDrop; got != want {
				t.Errorf("%d rules, of which the default one names %v: a packet from %s to %s passes: %v, want %v", len(s.Rules), named, source, to, got, want)
			}
		}
	}
}
