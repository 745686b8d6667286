package bench

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf"
)

// sessions are a group that an SMF sets up in the UPF. Groups stand behind each
// other in the UPF's tables, by their place: first those of few sessions, then the
// others.
type sessions struct {
	place uint32
	most  uint32 // 0: as many as there are entries
	spec  func(*smf.Spec)
}

// The addresses of N4, both on the node itself.
var n4UPF, n4SMF = upf, addr("192.0.2.3")

// enough is a rate that no core reaches, in kbit/s: all that it takes is looked
// at, and nothing refused.
const enough = 100_000_000

// farAway is a volume that few sessions reach in a run: after 128 GiB there is a
// report. SMFs ask for it much sooner; beyond 256 GiB the daemon would have to
// remember it for each rule.
var farAway = uint64(1) << 37

func metered(s *smf.Spec) {
	s.MBR = &session.BitRate{Uplink: enough, Downlink: enough}
	s.URR = &smf.URR{VolumeThreshold: &session.Volume{Total: &farAway}}
}

// filtered has n SDF filters of which the last is the one that matches.
func filtered(n int) func(*smf.Spec) {
	return func(s *smf.Spec) {
		metered(s)
		for i := range n - 1 {
			s.Filters = append(s.Filters, smf.Filter{Flow: fmt.Sprintf("permit out tcp from 198.51.%d.0/24 %d to assigned", i, 8000+i)})
		}
		s.Filters = append(s.Filters, smf.Filter{Flow: "permit out ip from any to assigned"})
	}
}

// fewSessions is how many those have that are not the usual ones, of which there
// are fewGroups at most.
const (
	fewSessions = 1000
	fewGroups   = 5
)

// upfFunctions are the two directions of a session with one QER and one URR,
// with neither, and with filters.
func upfFunctions(size int) []function {
	l2 := baseline(size)
	l2.kernel = nil // which has no sessions
	list := []function{l2}
	for _, k := range []struct {
		suffix   string
		sessions sessions
	}{
		{"", sessions{place: 0, spec: metered}},
		{"_plain", sessions{place: 1, spec: func(*smf.Spec) {}}},
		{"_filters_1", sessions{place: 0, most: fewSessions, spec: filtered(1)}},
		{"_filters_4", sessions{place: 1, most: fewSessions, spec: filtered(4)}},
		{"_filters_16", sessions{place: 2, most: fewSessions, spec: filtered(16)}},
	} {
		list = append(list, uplink(k.suffix, k.sessions, size), downlink(k.suffix, k.sessions, size))
	}
	for i := range list {
		list[i].size = size
	}
	return list
}

// firstTEID of the first group; firstUE goes with it, and firstAccessTEID, the
// gNB's.
const (
	firstTEID       = 1
	firstAccessTEID = 0x100000
)

var firstUE = addr("10.0.0.1")

func (s sessions) entries() uint32 {
	if s.most == 0 {
		return manyEntries
	}
	return s.most
}

// first is the group's first session, where there are `tables` of each.
func (s sessions) first(tables uint32) uint32 {
	place, step := s.at()
	return place + step*tables
}

// at is the first session, less what each session of the groups before adds.
func (s sessions) at() (place, step uint32) {
	if s.most != 0 {
		return s.place * s.most, 0
	}
	return fewGroups * fewSessions, s.place
}

// id tells groups apart.
func (s sessions) id() [2]uint32 { return [2]uint32{s.most, s.place} }

func uplink(suffix string, s sessions, size int) function {
	place, step := s.at()
	pdu := packet4(firstUE, dst4, size, false)
	teid := lenEthernet + lenIPv4 + lenUDP + 4
	inner := lenEthernet + lenIPv4 + lenUDP + lenGTPU + lenContainer
	return function{
		name: "uplink" + suffix, most: s.entries(), sessions: &s, put: func(*config.Config, uint32) {},
		data: pdu.gPDU(gnb, upf, packet.GTPU{TEID: firstTEID, Container: &packet.PDUSession{Type: 1, QFI: 9}}).frame(),
		key:  key{offset: uint32(teid), base: firstTEID + place, step: step},
		twin: key{offset: uint32(inner + 12), base: ueNumber(firstUE) + place, checksum: uint32(inner + 10), step: step},
		want: wantIPv4(dst4, protoUDP, pdu.len()-lenIPv4),
	}
}

func downlink(suffix string, s sessions, size int) function {
	place, step := s.at()
	pdu := packet4(dst4, firstUE, size, false)
	return function{
		name: "downlink" + suffix, most: s.entries(), sessions: &s, put: func(*config.Config, uint32) {},
		data: pdu.frame(),
		key:  key{offset: lenEthernet + 16, base: ueNumber(firstUE) + place, checksum: lenEthernet + 10, step: step},
		want: wantIPv4(farGTPU, protoUDP, lenUDP+lenGTPU+lenContainer+pdu.len()),
	}
}

func ueNumber(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func ueAt(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func (s *sessions) smfSpec(tables uint32) smf.Spec {
	count := min(s.entries(), tables)
	first := s.first(tables)
	spec := smf.Spec{
		Name: fmt.Sprint("group", s.id()), Count: int(count), QFI: 9, NetworkInstance: "internet",
		UE4:    netip.PrefixFrom(ueAt(ueNumber(firstUE)+first), 8),
		Access: &smf.Tunnel{Address: farGTPU, TEID: firstAccessTEID + first},
		Local:  &smf.Local{Address: upf, AccessTEID: firstTEID + first},
	}
	s.spec(&spec)
	return spec
}
