// Package sample holds sessions for the tests of the UPF.
package sample

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/culvert-net/culvert/internal/session"
)

// Same compares sessions with package cmp.
var Same = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
}

// Copy returns a copy of a session that shares nothing with it.
func Copy(t testing.TB, s *session.Session) *session.Session {
	t.Helper()
	out := &session.Session{}
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil || !cmp.Equal(s, out, Same) {
		t.Fatalf("cannot copy a session: %v", err)
	}
	return out
}

// Ethernet returns a session of PDN type Ethernet, for the data network
// "factory".
func Ethernet(seid uint64) *session.Session {
	s := Session(seid)
	s.PDNType, s.DNN = session.PDNEthernet, "factory"
	for i := range s.PDRs {
		s.PDRs[i].PDI.UE, s.PDRs[i].PDI.FramedRoutes = nil, nil
	}
	return s
}

// Prefixes parses a list of prefixes.
func Prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Session returns what an SMF usually asks for: two PDRs, a QER, a URR.
func Session(seid uint64) *session.Session {
	qfi, n3, n6 := uint8(9), session.TypeN3, session.TypeN6
	ue := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(seid >> 16), byte(seid >> 8), byte(seid)}), 32)}
	volume := uint64(500_000)
	return &session.Session{
		SEID: seid, CPSEID: seid + 7, CPAddr: netip.MustParseAddr("192.0.2.1"), Node: "192.0.2.1", PDNType: session.PDNIPv4,
		SNSSAI: session.SNSSAI{SST: 1, SD: 1, HasSD: true}, DNN: "internet",
		PDRs: []session.PDR{
			{ID: 1, Precedence: 255, FAR: 1, QERs: []uint32{1}, URRs: []uint32{1}, RemoveOuter: true, PDI: session.PDI{
				Source: session.Access, InterfaceType: &n3, NetworkInstance: "internet", TEID: uint32(seid) + 1<<24,
				TEID4: netip.MustParseAddr("192.0.2.2"), UE: ue, QFIs: []uint8{9}}},
			{ID: 2, Precedence: 255, FAR: 2, QERs: []uint32{1}, URRs: []uint32{1}, PDI: session.PDI{
				Source: session.Core, InterfaceType: &n6, NetworkInstance: "internet", UE: ue}},
		},
		FARs: []session.FAR{
			{ID: 1, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Core, NetworkInstance: "internet"}},
			{ID: 2, Action: session.Forward, Forwarding: &session.Forwarding{Destination: session.Access, NetworkInstance: "internet",
				Outer: &session.OuterHeader{Addr: netip.MustParseAddr("192.0.2.3"), TEID: uint32(seid) + 1}}},
		},
		QERs: []session.QER{{ID: 1, MBR: &session.BitRate{Uplink: 1e6, Downlink: 1e6}, QFI: &qfi}},
		URRs: []session.URR{{ID: 1, Volume: true, Trigger: session.TriggerPeriodic | session.TriggerVolumeThreshold,
			Period: 30 * time.Second, VolumeThreshold: &session.Volume{Total: &volume}}},
	}
}
