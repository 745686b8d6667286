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
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/smf"
)

// Sessions are a group that an SMF sets up in the UPF. Groups stand behind each
// other in the UPF's tables, by their place: first those of few sessions, then the
// others.
type Sessions struct {
	Place   uint32
	Most    uint32      // 0: as many as there are entries
	Dialect smf.Dialect // of the SMF
	Spec    func(*smf.Spec)
	NAT     *NAT         // that the UEs are behind, or nil
	Slice   *slice.Slice // of the sessions, by its network instance; nil: none
	UEs     netip.Addr   // address of the first UE, outside of the UE pools; invalid: in the pool
	IPv6    bool         // N3 is IPv6
	UE6     bool         // UEs have IPv6 addresses only
}

// The addresses of N4, all of them on the node itself: the UPF's, and that of the SMF
// of each dialect.
var (
	N4UPF = UPF
	N4SMF = map[smf.Dialect]netip.Addr{smf.Free5GC: Addr("192.0.2.3"), smf.Open5GS: Addr("192.0.2.4")}
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
	return filtered(n, func(i int) string { return fmt.Sprintf("tcp from 198.51.%d.0/24", i) })
}

// near is as Filtered, and the others are for the frames' protocol and network, so that each must be
// asked.
func near(n int) func(*smf.Spec) {
	return filtered(n, func(int) string { return fmt.Sprintf("udp from %s/32", Dst4) })
}

func filtered(n int, from func(int) string) func(*smf.Spec) {
	return func(s *smf.Spec) {
		metered(s)
		for i := range n - 1 {
			s.Filters = append(s.Filters, smf.Filter{Flow: fmt.Sprintf("permit out %s %d to assigned", from(i), 8000+i)})
		}
		s.Filters = append(s.Filters, smf.Filter{Flow: "permit out ip from any to assigned"})
	}
}

// The QoS flows of sessions: the default one's QFI, and the dedicated one's.
const (
	defaultQFI   = 9
	dedicatedQFI = 5
)

// asFree5GC is what free5GC's SMF sends for a new PDU session: two QERs, and two URRs
// that count packets too, one of them before QoS.
func asFree5GC(s *smf.Spec) {
	metered(s)
	s.URR.Packets, s.URR.AsCore = true, true
}

// withRouterSolicitations is what Open5GS' SMF sends for a new PDU session: besides the
// session AMBR and a URR for downlink packets the rule by which router solicitations come
// to it, a second PDR with an SDF filter on the uplink's F-TEID.
func withRouterSolicitations(s *smf.Spec) {
	metered(s)
	s.URR.AsCore = true
	s.CPFunction = FarGTPU
}

// withFlow adds a dedicated QoS flow, which the frames are of: a pair of PDRs with an SDF
// filter, and a QER with a rate of its own.
func withFlow(spec func(*smf.Spec)) func(*smf.Spec) {
	return func(s *smf.Spec) {
		spec(s)
		flow := fmt.Sprintf("permit out udp from %s/32 4000-5000 to assigned", Dst4)
		s.Filters = []smf.Filter{{Flow: flow, QFI: dedicatedQFI, MBR: s.MBR, GBR: s.MBR}}
	}
}

// FewSessions is how many those have that are not the usual ones, of which there
// are FewGroups at most.
const (
	FewSessions = 1000
	FewGroups   = 13
)

// UPFFunctions are the two directions of a session with one QER and one URR, with
// neither, with filters, and as the SMFs of Open5GS and free5GC make them, without and
// with a dedicated QoS flow, and for UEs with IPv6. Then those behind a NAT and with a
// framed route, the uplink of a slice that leaves by SRv6, and the uplink to many
// destinations. Each frame belongs to one of 8 flows of its UE, except behind the NAT.
// Frames enter by ports with the roles n3 and n6.
func UPFFunctions(size int) []Function {
	l2 := Baseline(size)
	l2.Kernel = nil // which has no sessions
	list := []Function{l2}
	usual := Sessions{Place: 0, Dialect: smf.Free5GC, Spec: metered}
	six := Sessions{Place: free5gc6Place, Most: FewSessions, Dialect: smf.Free5GC, Spec: asFree5GC, UE6: true}
	for _, k := range []struct {
		prefix, suffix string
		sessions       Sessions
	}{
		{"", "", usual},
		{"", "_plain", Sessions{Place: 1, Dialect: smf.Free5GC, Spec: func(*smf.Spec) {}}},
		{"open5gs_", "", Sessions{Place: 2, Dialect: smf.Open5GS, Spec: withRouterSolicitations}},
		{"free5gc_", "", Sessions{Place: 3, Most: FewSessions, Dialect: smf.Free5GC, Spec: asFree5GC}},
		{"open5gs_flow_", "", Sessions{Place: 4, Most: FewSessions, Dialect: smf.Open5GS, Spec: withFlow(withRouterSolicitations)}},
		{"free5gc_flow_", "", Sessions{Place: 5, Most: FewSessions, Dialect: smf.Free5GC, Spec: withFlow(asFree5GC)}},
		{"open5gs_ipv6_", "", Sessions{Place: open5gs6Place, Most: FewSessions, Dialect: smf.Open5GS, Spec: withRouterSolicitations, UE6: true}},
		{"free5gc_ipv6_", "", six},
		{"", "_filters_1", Sessions{Place: 0, Most: FewSessions, Dialect: smf.Free5GC, Spec: Filtered(1)}},
		{"", "_filters_4", Sessions{Place: 1, Most: FewSessions, Dialect: smf.Free5GC, Spec: Filtered(4)}},
		{"", "_filters_16", Sessions{Place: 2, Most: FewSessions, Dialect: smf.Free5GC, Spec: Filtered(16)}},
		{"", "_filters_16_near", Sessions{Place: nearPlace, Most: FewSessions, Dialect: smf.Free5GC, Spec: near(16)}},
	} {
		up, down := Uplink(k.suffix, k.sessions, size), Downlink(k.suffix, k.sessions, size)
		up.Name, down.Name = k.prefix+up.Name, k.prefix+down.Name
		list = append(list, up, down)
	}
	list = append(list, natFunctions(size)...)
	list = append(list, framedFunctions(size)...)
	many6 := uplinkDestinations(six, manyDestinations, Addr("2001:db8:6600::"), size)
	many6.Name = "free5gc_ipv6_" + many6.Name
	first := Addr("100.82.0.0")
	manyECMP := uplinkECMP("_ecmp_100000", usual, first, 15, size).toMany(manyDestinations, first, uplinkInner)
	list = append(list, uplinkSRv6(size),
		uplinkDestinations(usual, fewDestinations, Addr("100.72.0.0"), size), uplinkDestinations(usual, manyDestinations, Addr("100.76.0.0"), size), many6,
		uplinkECMP("_ecmp", usual, Addr("100.80.0.1"), 24, size), manyECMP)
	for i := range list {
		list[i].Size = size
		if list[i].Sessions != nil {
			list[i].Port = list[i].ports[0]
		}
	}
	return list
}

// FirstTEID of the first group; firstUE goes with it, and firstAccessTEID, the
// gNB's.
const (
	FirstTEID       = 1
	FirstAccessTEID = 0x100000
)

// FirstUE is the UE of the first session, and firstUE6 that of one with IPv6. UENet6 is the pool of these.
var (
	FirstUE  = Addr("10.0.0.1")
	firstUE6 = Addr("2001:db8:45:1::1")
	UENet6   = netip.MustParsePrefix("2001:db8:45::/50")
)

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
	return uplinkTo(suffix, s, s.remote(), size)
}

// remote is the other end of the UEs' packets.
func (s *Sessions) remote() netip.Addr {
	if s.UE6 {
		return Dst6
	}
	return Dst4
}

// uplinkTo returns the uplink to another destination.
func uplinkTo(suffix string, s Sessions, to netip.Addr, size int) Function {
	place, step := s.at()
	first := s.First(0)
	pdu := datagram(later(s.firstUE(), first), to, uePort, remotePort, size, s.NAT != nil)
	address, port := s.placesOfUE(uplinkInner)
	return Function{
		Name: "uplink" + suffix, Most: s.Entries(), ports: fromGNB, Sessions: &s, put: func(*config.Config, uint32) {},
		Data: pdu.gPDU(GNB, UPF, packet.GTPU{TEID: FirstTEID + first, Container: &packet.PDUSession{Type: 1, QFI: s.qfi()}}).frame(),
		Key:  key{Offset: uplinkTEID, base: FirstTEID + place, step: step}, twin: address, flow: port,
		Want: wantDatagram(to, size),
	}
}

// placesOfUE are where frames have the UE's address and its port, which a packet `at` octets behind
// their start comes from.
func (s *Sessions) placesOfUE(at uint32) (address, port key) {
	place, step := s.at()
	address = key{Offset: at + 12, checksum: at + 10, base: UENumber(s.firstUE()) + place, step: step}
	port = key{Offset: at + rig.LenIPv4, base: uePort}
	if s.UE6 { // the number is at the same place, and UDP has a checksum over both
		const udpChecksum = rig.LenIPv6 + 6
		address.checksum = at + udpChecksum
		port = key{Offset: at + rig.LenIPv6, base: uePort, checksum: at + udpChecksum}
	}
	return address, port
}

// framedFunctions are the two directions of a session of free5GC with a network behind the UE, whose
// frames are from and to hosts there at random, and the downlink to many more hosts.
func framedFunctions(size int) []Function {
	network := Prefix(Addr("172.20.0.0"), 15)
	s := Sessions{Place: framedPlace, Most: 1, Dialect: smf.Free5GC, Spec: func(s *smf.Spec) {
		asFree5GC(s)
		s.FramedRoutes = []netip.Prefix{network}
	}}
	up, down := Uplink("", s, size), Downlink("", s, size)
	up.Key, up.twin = up.twin, key{}
	up.Key.base, down.Key.base = UENumber(network.Addr()), UENumber(network.Addr())
	up.Keys, down.Keys = fewDestinations, fewDestinations
	many := down
	many.Keys = manyDestinations
	up.Name, down.Name, many.Name = "framed_uplink", "framed_downlink", "framed_downlink_100000"
	return []Function{up, down, many}
}

// Where the frames of an uplink have their TEID and the UE's packet.
const (
	uplinkTEID  = rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + 4
	uplinkInner = rig.LenEthernet + rig.LenIPv4 + rig.LenUDP + rig.LenGTPU + rig.LenContainer
)

// uplinkSRv6 returns the uplink of a slice whose packets leave by an SR policy, as to the
// End.DT46 of a VPN's provider edge.
func uplinkSRv6(size int) Function {
	f := Uplink("", Sessions{
		Place: srv6Place, Most: FewSessions, Dialect: smf.Open5GS, Spec: withRouterSolicitations,
		Slice: &slice.Slice{Name: "srv6", NetworkInstance: "srv6", N9: &slice.N9{Transport: slice.SRv6, Mode: slice.Enhanced, UplinkPolicy: PolicyReduced}},
	}, size)
	f.Name, f.Want = "srv6_uplink", wantReduced(1, rig.LenIPv4+size)
	return f
}

// Downlink returns the function of a group's packets to the UE.
func Downlink(suffix string, s Sessions, size int) Function {
	pdu := datagram(s.remote(), s.firstUE(), remotePort, uePort, size, s.IPv6) // whose checksum gives that of UDP over IPv6
	out := rig.LenUDP + rig.LenGTPU + rig.LenContainer + pdu.len()
	w := rig.WantIPv4(FarGTPU, rig.ProtoUDP, out)
	if s.IPv6 {
		w = rig.WantIPv6(farGTPU6, 16, rig.ProtoUDP, out)
	}
	address, port := s.placesOfUE(rig.LenEthernet)
	address.Offset += uint32(s.firstUE().BitLen() / 8) // the destination's
	port.Offset += 2
	if s.IPv6 {
		port.checksum = port.Offset + 4
	}
	return Function{
		Name: "downlink" + suffix, Most: s.Entries(), ports: fromN6, Sessions: &s, put: func(*config.Config, uint32) {},
		Data: pdu.frame(), Key: address, flow: port, Want: w,
	}
}

// UENumber returns, as a number, the 32 bits by which UEs' addresses differ.
func UENumber(a netip.Addr) uint32 {
	return binary.BigEndian.Uint32(differing(a.AsSlice()))
}

// differing are these bits of an address: of UEs with IPv6 each has a /64.
func differing(address []byte) []byte {
	if len(address) == 4 {
		return address
	}
	return address[4:8]
}

// later returns the address of the n-th UE behind one.
func later(a netip.Addr, n uint32) netip.Addr {
	b := a.AsSlice()
	binary.BigEndian.PutUint32(differing(b), UENumber(a)+n)
	a, _ = netip.AddrFromSlice(b) // as long as it was
	return a
}

// UEAt returns the IPv4 address of a number.
func UEAt(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// qfi is that of the flow which the frames are of.
func (s *Sessions) qfi() uint8 {
	var spec smf.Spec
	s.Spec(&spec)
	if len(spec.Filters) > 0 && spec.Filters[0].QFI != 0 {
		return spec.Filters[0].QFI
	}
	return defaultQFI
}

// SMFSpec returns what the SMF sets up for the group.
func (s *Sessions) SMFSpec(tables uint32) smf.Spec {
	count := min(s.Entries(), tables)
	first := s.First(tables)
	spec := smf.Spec{
		Name: fmt.Sprint("group", s.ID()), Count: int(count), QFI: defaultQFI, NetworkInstance: "internet",
		Access: &smf.Tunnel{Address: FarGTPU, TEID: FirstAccessTEID + first},
	}
	if ue := later(s.firstUE(), first); s.UE6 {
		spec.UE6 = netip.PrefixFrom(ue, UENet6.Bits())
	} else {
		spec.UE4 = netip.PrefixFrom(ue, 8)
	}
	local := UPF
	if s.IPv6 {
		spec.Access.Address, local = farGTPU6, upf6
	}
	if s.Dialect != smf.Open5GS { // which lets the UPF choose
		spec.Local = &smf.Local{Address: local, AccessTEID: FirstTEID + first}
	}
	switch {
	case s.NAT != nil:
		spec.NetworkInstance = natInstance
	case s.Slice != nil:
		spec.NetworkInstance = s.Slice.NetworkInstance
	}
	s.Spec(&spec)
	return spec
}
