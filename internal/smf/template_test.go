package smf

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/session"
)

// specs are templates of all shapes, for a dialect.
func specs(d Dialect) map[string]Spec {
	full := spec(d, 1)
	full.URR = &URR{
		VolumeThreshold: &session.Volume{Uplink: new(uint64(500_000)), Downlink: new(uint64(500_000))}, VolumeQuota: &session.Volume{Total: new(uint64(1 << 40))},
		TimeThreshold: Duration(60e9), TimeQuota: Duration(3600e9), Period: Duration(30e9), QuotaHolding: Duration(10e9), Start: true, Stop: true, Packets: true,
	}
	full.UE6 = netip.MustParsePrefix("2001:db8:45::1/48")
	full.Filters = []Filter{
		{Flow: "permit out udp from 198.51.100.7 5001 to assigned", QFI: 5, MBR: &session.BitRate{Uplink: 10, Downlink: 20}},
		{Flow: "permit out ip from any to assigned", Precedence: 99},
		{Flow: "permit out 6 from 203.0.113.0/24 to assigned", Closed: true},
	}
	full.CPFunction = addr("127.0.0.1")
	all := map[string]Spec{"plain": spec(d, 1), "full": full}
	given := full
	given.Local = &Local{Address: addr("127.0.0.2"), AccessTEID: 5, CoreTEID: 6}
	given.RemoveIPv4 = true
	all["given"] = given
	v6 := spec(d, 1)
	v6.UE4, v6.UE6, v6.Access = netip.Prefix{}, netip.MustParsePrefix("2001:db8:45::/48"), &Tunnel{Address: addr("2001:db8:1::1"), TEID: 7, Interface: "n9"}
	middle := spec(d, 1)
	middle.Role, middle.Core = Intermediate, &Tunnel{Address: addr("192.0.2.66"), TEID: 0x6600}
	if d == Free5GC {
		v6.Local = &Local{Address: addr("2001:db8::8"), AccessTEID: 5}
		middle.Local = &Local{Address: addr("127.0.0.2"), AccessTEID: 5, CoreTEID: 6}
	} else {
		chosen := spec(d, 1)
		chosen.UE4, chosen.ChooseUE = netip.Prefix{}, "ipv4v6"
		all["chosen"] = chosen
	}
	all["ipv6"], all["intermediate"] = v6, middle
	return all
}

// A message made from a template is the one that go-pfcp makes for that
// session, whichever it is.
func TestTemplates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	builds := map[string]func(*encoder) []*ie.IE{
		"establish": (*encoder).establish,
		"forward":   (*encoder).forward,
		"handover":  func(e *encoder) []*ie.IE { return e.handover(true) },
		"idle":      (*encoder).idle,
		"query":     func(e *encoder) []*ie.IE { return e.modification(e.query()...) },
		"modify": func(e *encoder) []*ie.IE {
			return e.change(&Change{MBR: &session.BitRate{Uplink: 1}, Gates: &Gates{UplinkClosed: true}, Uplink: "forward", Downlink: "forward", DropBuffered: true, URR: e.spec.URR})
		},
		"delete": func(*encoder) []*ie.IE { return nil },
	}
	for _, dialect := range []Dialect{Open5GS, Free5GC} {
		for name, s := range specs(dialect) {
			if err := s.Complete(dialect); err != nil {
				t.Fatal(err)
			}
			e := encoder{spec: &s, dialect: dialect, node: "smf.example", addr: addr("127.0.0.1"), rules: rulesOf(dialect)}
			start := identity{access: s.Access.at(0), core: s.Core.at(0)}
			for procedure, build := range builds {
				if s.URR == nil && procedure == "modify" {
					continue
				}
				made, err := newTemplate(e, message.MsgTypeSessionModificationRequest, start, build)
				if err != nil {
					t.Fatalf("%s %s %s: %v", dialect, name, procedure, err)
				}
				var buffer []byte
				for range 20 {
					e.id = randomIdentity(random, &start)
					want, err := e.message(message.MsgTypeSessionModificationRequest, build(&e)...)
					if err != nil {
						t.Fatal(err)
					}
					if buffer = made.fill(buffer, &e.id); !bytes.Equal(buffer, want) {
						t.Fatalf("%s %s %s: %+v:\n% x\nwant\n% x", dialect, name, procedure, e.id, buffer, want)
					}
				}
			}
		}
	}
}

// randomIdentity is a session whose peers are of the same families.
func randomIdentity(r *rand.Rand, like *identity) identity {
	id := identity{cpSEID: r.Uint64(), localAccess: r.Uint32(), localCore: r.Uint32()}
	for i := range id.ue4 {
		id.ue4[i] = byte(r.Uint32())
	}
	for i := range id.ue6 {
		id.ue6[i] = byte(r.Uint32())
	}
	id.access = endpoint{markAddr(like.access.addr, r.Uint32()), r.Uint32()}
	id.core = endpoint{markAddr(like.core.addr, r.Uint32()), r.Uint32()}
	return id
}

// Session i has the i-th of each range.
func TestRanges(t *testing.T) {
	s := Spec{
		Count: 300, UE4: netip.MustParsePrefix("10.45.0.0/16"), UE6: netip.MustParsePrefix("2001:db8:45::1/48"),
		Access: &Tunnel{Address: addr("192.0.2.254"), TEID: 0x1000, Addresses: 4},
	}
	if err := s.Complete(Open5GS); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		i        int
		ue4, ue6 string
		access   string
		teid     uint32
	}{
		{0, "10.45.0.1", "2001:db8:45::1", "192.0.2.254", 0x1000},
		{3, "10.45.0.4", "2001:db8:45:3::1", "192.0.3.1", 0x1003},
		{299, "10.45.1.44", "2001:db8:45:12b::1", "192.0.3.1", 0x112b},
	} {
		at := s.Access.at(tt.i)
		if got := netip.AddrFrom4(s.ue4(tt.i)).String(); got != tt.ue4 {
			t.Errorf("%d: %s, want %s", tt.i, got, tt.ue4)
		}
		if got := netip.AddrFrom16(s.ue6(tt.i)).String(); got != tt.ue6 {
			t.Errorf("%d: %s, want %s", tt.i, got, tt.ue6)
		}
		if at.addr.String() != tt.access || at.teid != tt.teid {
			t.Errorf("%d: %+v, want %s %#x", tt.i, at, tt.access, tt.teid)
		}
	}
	first := Spec{UE4: netip.MustParsePrefix("10.45.0.7/16")}
	if got := netip.AddrFrom4(first.ue4(0)).String(); got != "10.45.0.7" {
		t.Errorf("%s, want the address that is written", got)
	}
}
