package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/packet"
)

// sessionLimits make room for few sessions.
var sessionLimits = func() Limits {
	l := smallLimits
	l.Sessions, l.Filters = 64, 256
	return l
}()

// sessionRig is a data path with session pools, whose packets go to interface 1.
func sessionRig(t testing.TB, opts Options) *DataPlane {
	t.Helper()
	if opts.Limits == (Limits{}) {
		opts.Limits = sessionLimits
	}
	d, err := Open(again(t, opts))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	prepareSessions(t, d)
	return d
}

func prepareSessions(t testing.TB, d *DataPlane) {
	t.Helper()
	s := Settings{
		ErrorsPerSecond: 1000, Source: addr("fc00:a::1"),
		GTPUAddresses: addrs("10.0.0.1", "2001:db8::1"),
		UEPools:       []netip.Prefix{prefix("10.45.0.0/26"), prefix("2001:db8:45::/58")},
	}
	for _, err := range []error{
		d.SetSettings(s), d.Ports.PutDevice(1), d.Ports.Set(1, port.Port{}), d.Policies.Put(policyTo("n9", "fc00:b::1", "fc00:c::1")),
		d.Routes.Put(0, prefix("0.0.0.0/0"), []AdjacencyKey{{Interface: "lo"}}),
		d.Routes.Put(0, prefix("::/0"), []AdjacencyKey{{Interface: "lo"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	resolve(t, d)
}

// resolve makes every next hop ready.
func resolve(t testing.TB, d *DataPlane) {
	t.Helper()
	for _, k := range d.Adjacencies.Keys() {
		if err := d.Adjacencies.SetNextHop(k, ready(1)); err != nil {
			t.Fatal(err)
		}
	}
}

// gnb sends downlink packets of UE n to a gNB.
func gnb(n uint32, a string) Forwarding {
	return Forwarding{Kind: ForwardGTPU, Remote: addr(a), TEID: 0x1000 + n}
}

func ue4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 45, byte(n >> 8), byte(n)})
}

func ue6(n uint32) netip.Prefix {
	return netip.PrefixFrom(abi.FromHalves(0x20010db8_00450000|uint64(n), 0), 64)
}

// anyFilter takes every packet.
var anyFilter = Filter{AnyProtocol: true, RemotePorts: [2]uint16{0, 65535}, LocalPorts: [2]uint16{0, 65535}}

// plain is the session that almost every UE has: a rule each way.
func plain(n, teid uint32) Session {
	four := netip.PrefixFrom(ue4(n), 32)
	return Session{ID: uint64(n), Rules: []Rule{
		{ID: 1, Precedence: 255, TEID: teid, Sources: []netip.Prefix{four}, Action: ActionForward},
		{ID: 2, Precedence: 255, Direction: Downlink, Destinations: []netip.Prefix{four}, Action: ActionForward,
			Forward: gnb(n, "10.0.0.2"), QFI: 9, Container: ContainerDownlink},
	}}
}

// both4and6 is a session of a UE with two addresses.
func both4and6(n, teid uint32) Session {
	s := plain(n, teid)
	s.Rules[0].Sources = append(s.Rules[0].Sources, ue6(n))
	s.Rules[1].Destinations = append(s.Rules[1].Destinations, ue6(n))
	return s
}

// rich is a session with filters both ways: DNS and a range of ports go by rules
// of their own, each with a meter that it shares with the rest.
func rich(n, teid uint32) Session {
	s := both4and6(n, teid)
	s.Meters = []Meter{{Rate: 100_000}, {Rate: 200_000}, {Packets: 60000, Period: time.Second}}
	dns, web := anyFilter, anyFilter
	dns.AnyProtocol, dns.Protocol, dns.RemotePorts = false, 17, [2]uint16{53, 53}
	web.AnyProtocol, web.Protocol, web.RemotePorts = false, 6, [2]uint16{443, 1000}
	for i, f := range []Filter{dns, web} {
		up, down := s.Rules[0], s.Rules[1]
		up.ID, up.Precedence, up.Filters, up.Meters = uint16(3+2*i), uint32(10+i), []Filter{f}, []int{0}
		down.ID, down.Precedence, down.Filters, down.Meters = uint16(4+2*i), uint32(10+i), []Filter{f}, []int{1}
		if i == 0 {
			down.Meters = []int{1, 2}
		}
		s.Rules = append(s.Rules, up, down)
	}
	return s
}

// uplinkFrame has a T-PDU of 128 octets, over IPv6 of 148.
func uplinkFrame(teid uint32, src, dst string, port uint16) []byte {
	return packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.2"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: teid}, ipLayer(src, dst),
		packet.UDP{Sport: 5000, Dport: port}, packet.Payload{Count: 100})
}

func downlinkFrame(src, dst string, port uint16) []byte {
	return packet.Frame(packet.Ethernet{}, ipLayer(src, dst), packet.UDP{Sport: port, Dport: 5000}, packet.Payload{Count: 100})
}

func ipLayer(src, dst string) packet.Layer {
	if addr(src).Is4() {
		return packet.IPv4{Src: addr(src), Dst: addr(dst)}
	}
	return packet.IPv6{Src: addr(src), Dst: addr(dst)}
}

// run sends a frame and returns how its journey ended.
func run(t testing.TB, d *DataPlane, frame []byte) reason.Reason {
	t.Helper()
	before, err := d.Outcomes()
	if err == nil {
		_, _, err = d.Frames.Test(frame, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := d.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	for r := range after {
		if after[r] != before[r] {
			return reason.Reason(r)
		}
	}
	t.Fatal("the frame was not counted")
	return 0
}

func wantReason(t testing.TB, d *DataPlane, what string, frame []byte, want string) {
	t.Helper()
	if got := run(t, d, frame); got.String() != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// volumes are what rules counted.
func volumes(t testing.TB, d *DataPlane, id uint64) map[uint16]counter.Counter {
	t.Helper()
	all, err := d.Sessions.Usage(id)
	if err != nil {
		t.Fatal(err)
	}
	return byRule(all)
}

func byRule(all []RuleUsage) map[uint16]counter.Counter {
	out := map[uint16]counter.Counter{}
	for _, u := range all {
		out[u.Rule] = u.Volume
	}
	return out
}

func TestSessionForwardsAndCounts(t *testing.T) {
	d := sessionRig(t, Options{})
	teid, err := d.Sessions.NewTEID()
	must(t, err)
	must(t, d.Sessions.Put(both4and6(5, teid)))
	resolve(t, d)
	four, six := ue4(5).String(), ue6(5).Addr().Next().String()
	wantReason(t, d, "up", uplinkFrame(teid, four, "192.0.2.1", 80), "forwarded")
	wantReason(t, d, "up, IPv6", uplinkFrame(teid, six, "2001:db8:ff::1", 80), "forwarded")
	wantReason(t, d, "up from another", uplinkFrame(teid, ue4(6).String(), "192.0.2.1", 80), "ue_source")
	wantReason(t, d, "to another generation", uplinkFrame(teid^1<<24, four, "192.0.2.1", 80), "teid_unknown")
	for range 2 {
		wantReason(t, d, "down", downlinkFrame("192.0.2.1", four, 80), "forwarded")
		wantReason(t, d, "down, IPv6", downlinkFrame("2001:db8:ff::1", six, 80), "forwarded")
	}
	wantReason(t, d, "to nobody", downlinkFrame("192.0.2.1", ue4(6).String(), 80), "no_pdr")
	want := map[uint16]counter.Counter{1: {Packets: 2, Bytes: 128 + 148}, 2: {Packets: 4, Bytes: 2 * (128 + 148)}}
	if got := volumes(t, d, 5); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	usage, err := deleteSession(d, 5)
	must(t, err)
	if got := byRule(usage); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("in the end counted %v, want %v", got, want)
	}
	wantReason(t, d, "up, afterwards", uplinkFrame(teid, four, "192.0.2.1", 80), "teid_unknown")
	wantReason(t, d, "down, afterwards", downlinkFrame("192.0.2.1", four, 80), "no_pdr")
	if _, err := d.Sessions.Usage(5); !errors.As(err, new(*NoSessionError)) {
		t.Errorf("usage of a session that is gone: %v", err)
	}
}

func TestSessionWithFilters(t *testing.T) {
	d := sessionRig(t, Options{})
	s := rich(5, 7)
	must(t, d.Sessions.Put(s))
	resolve(t, d)
	four, six := ue4(5).String(), ue6(5).Addr().Next().String()
	for _, src := range []string{four, six} {
		to := "192.0.2.1"
		if src == six {
			to = "2001:db8:ff::1"
		}
		wantReason(t, d, "up", uplinkFrame(7, src, to, 80), "forwarded")
		wantReason(t, d, "up to DNS", uplinkFrame(7, src, to, 53), "forwarded")
		wantReason(t, d, "down", downlinkFrame(to, src, 80), "forwarded")
		wantReason(t, d, "down from DNS", downlinkFrame(to, src, 53), "forwarded")
	}
	one := counter.Counter{Packets: 2, Bytes: 128 + 148}
	want := map[uint16]counter.Counter{1: one, 2: one, 3: one, 4: one, 5: {}, 6: {}}
	if got := volumes(t, d, 5); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	// Without the rules of all, what no filter takes has no rule.
	s.Rules = slices.DeleteFunc(s.Rules, func(r Rule) bool { return r.ID <= 2 })
	must(t, d.Sessions.Put(s))
	wantReason(t, d, "up", uplinkFrame(7, four, "192.0.2.1", 80), "no_pdr")
	wantReason(t, d, "up to DNS", uplinkFrame(7, four, "192.0.2.1", 53), "forwarded")
	wantReason(t, d, "up from another", uplinkFrame(7, ue4(6).String(), "192.0.2.1", 53), "ue_source")
	want[3] = counter.Counter{Packets: 3, Bytes: 2*128 + 148}
	if got := volumes(t, d, 5); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("with those that went counted %v, want %v", got, want)
	}
}

// TestKeptPacketsGoOn sends what was kept in again, past the rule that goes on
// keeping what comes.
func TestKeptPacketsGoOn(t *testing.T) {
	needRoot(t)
	d := sessionRig(t, Options{})
	s := plain(1, 0)
	s.Rules = s.Rules[1:]
	s.Rules[0].Action = ActionHold
	must(t, d.Sessions.Put(s))
	resolve(t, d)
	frame := downlinkFrame("192.0.2.9", "10.45.0.1", 53)
	wantReason(t, d, "while the UE is idle", frame, "slow_path")
	before := volumes(t, d, 1)[2]
	must(t, d.Frames.Inject(frame, 1))
	if got := volumes(t, d, 1)[2]; got != before {
		t.Errorf("without the mark: %+v, before %+v", got, before)
	}
	must(t, d.Frames.InjectKept(frame, 1))
	before.Add(counter.Counter{Packets: 1, Bytes: uint64(len(frame) - 14)})
	if got := volumes(t, d, 1)[2]; got != before {
		t.Errorf("kept: %+v, want %+v", got, before)
	}
}

// TestSlowerRateCounts lowers a rate that paid for much more than the new one
// lets go.
func TestSlowerRateCounts(t *testing.T) {
	needRoot(t)
	for name, meters := range map[string]bool{"its own": false, "shared": true} {
		d := sessionRig(t, Options{})
		s := plain(1, 0)
		s.Rules = s.Rules[1:]
		at := func(rate uint64) {
			s.Rules[0].Rate = rate
			if meters {
				s.Rules[0].Rate, s.Rules[0].Meters, s.Meters = 0, []int{0}, []Meter{{Rate: rate}}
			}
			must(t, d.Sessions.Put(s))
		}
		at(10_000_000)
		resolve(t, d)
		frame := downlinkFrame("192.0.2.9", "10.45.0.1", 53) // 128 octets of T-PDU
		wantReason(t, d, name, frame, "forwarded")
		at(8)
		went, begun := 0, time.Now()
		for range 300 {
			if run(t, d, frame).String() == "forwarded" {
				went++
			}
		}
		// What the new rate is worth since then, and in the burst before, in octets.
		since := int((time.Since(begun) + settings.DefaultRateBurst).Seconds() * 8000 / 8)
		if most := (session.MeterPayoutMax+since)/128 + 2; went > most || went == 0 {
			t.Errorf("%s: %d of 300 packets went, want 1 to %d", name, went, most)
		}
	}
}
