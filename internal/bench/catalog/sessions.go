package catalog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/smf"
)

// Sessions are a group that an SMF sets up in the UPF. Groups stand behind each
// other in the UPF's tables, by their place: first those of few sessions, then the
// others.
type Sessions struct {
	Place uint32
	Most  uint32 // 0: as many as there are entries
	Spec  func(*smf.Spec)
}

// The addresses of N4, both on the node itself.
var (
	N4UPF = UPF
	N4SMF = Addr("192.0.2.3")
)

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

// Filtered has n SDF filters of which the last is the one that matches.
func Filtered(n int) func(*smf.Spec) {
	return func(s *smf.Spec) {
		metered(s)
		for i := range n - 1 {
			s.Filters = append(s.Filters, smf.Filter{Flow: fmt.Sprintf("permit out tcp from 198.51.%d.0/24 %d to assigned", i, 8000+i)})
		}
		s.Filters = append(s.Filters, smf.Filter{Flow: "permit out ip from any to assigned"})
	}
}

// FewSessions is how many those have that are not the usual ones, of which there
// are fewGroups at most.
const (
	FewSessions = 1000
	FewGroups   = 5
)

// UPFFunctions are the two directions of a session with one QER and one URR,
// with neither, and with filters.
func UPFFunctions(size int) []Function {
	l2 := Baseline(size)
	l2.Kernel = nil // which has no sessions
	list := []Function{l2}
	for _, k := range []struct {
		suffix   string
		sessions Sessions
	}{
		{"", Sessions{Place: 0, Spec: metered}},
		{"_plain", Sessions{Place: 1, Spec: func(*smf.Spec) {}}},
		{"_filters_1", Sessions{Place: 0, Most: FewSessions, Spec: Filtered(1)}},
		{"_filters_4", Sessions{Place: 1, Most: FewSessions, Spec: Filtered(4)}},
		{"_filters_16", Sessions{Place: 2, Most: FewSessions, Spec: Filtered(16)}},
	} {
		list = append(list, Uplink(k.suffix, k.sessions, size), Downlink(k.suffix, k.sessions, size))
	}
	for i := range list {
		list[i].Size = size
	}
	return list
}

// FirstTEID of the first group; firstUE goes with it, and firstAccessTEID, the
// gNB's.
const (
	FirstTEID       = 1
	FirstAccessTEID = 0x100000
)

// FirstUE is the UE of the first session.
var FirstUE = Addr("10.0.0.1")

// Entries returns how many sessions the group has at most.
func (s Sessions) Entries() uint32 {
	return cmp.Or(s.Most, ManyEntries)
}

// First is the group's first session, where there are `tables` of each.
func (s Sessions) First(tables uint32) uint32 {
	place, step := s.at()
	return place + step*tables
}

// at is the first session, less what each session of the groups before adds.
func (s Sessions) at() (place, step uint32) {
	if s.Most != 0 {
		return s.Place * s.Most, 0
	}
	return FewGroups * FewSessions, s.Place
}

// ID tells groups apart.
func (s Sessions) ID() [2]uint32 { return [2]uint32{s.Most, s.Place} }

// Uplink returns the function of a group's packets from the gNB.
func Uplink(suffix string, s Sessions, size int) Function {
	place, step := s.at()
	pdu := packet4(FirstUE, Dst4, size, false)
	teid := rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + 4
	inner := rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + rig.LenGTPU + rig.LenContainer
	return Function{
		Name: "uplink" + suffix, Most: s.Entries(), Sessions: &s, put: func(*config.Config, uint32) {},
		Data: pdu.gPDU(GNB, UPF, packet.GTPU{TEID: FirstTEID, Container: &packet.PDUSession{Type: 1, QFI: 9}}).frame(),
		Key:  key{Offset: uint32(teid), base: FirstTEID + place, step: step},
		twin: key{Offset: uint32(inner + 12), base: UENumber(FirstUE) + place, checksum: uint32(inner + 10), step: step},
		Want: rig.WantIPv4(Dst4, rig.ProtoUDP, pdu.len()-rig.LenIPv4),
	}
}

// Downlink returns the function of a group's packets to the UE.
func Downlink(suffix string, s Sessions, size int) Function {
	place, step := s.at()
	pdu := packet4(Dst4, FirstUE, size, false)
	return Function{
		Name: "downlink" + suffix, Most: s.Entries(), Sessions: &s, put: func(*config.Config, uint32) {},
		Data: pdu.frame(),
		Key:  key{Offset: rig.LenEthernet + 16, base: UENumber(FirstUE) + place, checksum: rig.LenEthernet + 10, step: step},
		Want: rig.WantIPv4(FarGTPU, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+rig.LenContainer+pdu.len()),
	}
}

// UENumber returns an IPv4 address as a number.
func UENumber(a netip.Addr) uint32 {
	return binary.BigEndian.Uint32(a.AsSlice())
}

// UEAt returns the IPv4 address of a number.
func UEAt(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// SMFSpec returns what the SMF sets up for the group.
func (s *Sessions) SMFSpec(tables uint32) smf.Spec {
	count := min(s.Entries(), tables)
	first := s.First(tables)
	spec := smf.Spec{
		Name: fmt.Sprint("group", s.ID()), Count: int(count), QFI: 9, NetworkInstance: "internet",
		UE4:    netip.PrefixFrom(UEAt(UENumber(FirstUE)+first), 8),
		Access: &smf.Tunnel{Address: FarGTPU, TEID: FirstAccessTEID + first},
		Local:  &smf.Local{Address: UPF, AccessTEID: FirstTEID + first},
	}
	s.Spec(&spec)
	return spec
}
