package model

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// MainTable is the kernel's number of the main routing table.
const MainTable = 254

// Network is everything that decides what happens to a frame.
type Network struct {
	Config config.Config `json:"config"`
	Ports  []Port        `json:"ports"`
	Local  []netip.Addr  `json:"local,omitempty"` // the node's own addresses
	// LocalRoutes are prefixes that the kernel takes as its own by a route, and broadcast addresses.
	LocalRoutes []netip.Prefix `json:"local_routes,omitempty"`
	Adjacencies []Adjacency    `json:"adjacencies,omitempty"`
	Routes      []Route        `json:"routes,omitempty"`
	PathMTUs    []PathMTU      `json:"path_mtus,omitempty"` // that routers told

	UEPools     []netip.Prefix `json:"ue_pools,omitempty"`     // of sessions
	Protected   []netip.Prefix `json:"protected,omitempty"`    // from UEs
	MayReach    []netip.Prefix `json:"ue_may_reach,omitempty"` // by UEs, all the same
	SessionSIDs []SessionSID   `json:"session_sids,omitempty"` // of Config.SIDs, those of slices
	Slices      []Slice        `json:"slices,omitempty"`
	Sessions    []Session      `json:"sessions,omitempty"`
	MSSClamp    bool           `json:"mss_clamp,omitempty"`  // of sessions' TCP connections
	RateBurst   time.Duration  `json:"rate_burst,omitempty"` // ns; 190 ms unless set
	NATs        []NAT          `json:"nats,omitempty"`       // of pools
}

// Own are all addresses that the kernel takes as its own.
func (n *Network) Own() []netip.Prefix {
	own := slices.Clone(n.LocalRoutes)
	for _, a := range n.Local {
		own = append(own, netip.PrefixFrom(a, a.BitLen()))
	}
	return own
}

// SessionSID is a SID at which sessions of a slice receive.
type SessionSID struct {
	SID   netip.Prefix `json:"sid"`
	Slice uint32       `json:"slice"`
	VPN   bool         `json:"vpn,omitempty"` // what the data network sends to UEs arrives there
}

// ofVPN is in the number of a slice that SliceOf says.
const ofVPN = 1 << 15

// SliceOf is the slice that receives at a SID, if one does, with ofVPN.
func (n *Network) SliceOf(sid netip.Prefix) (slice uint32, found bool) {
	i := slices.IndexFunc(n.SessionSIDs, func(s SessionSID) bool { return s.SID.Masked() == sid.Masked() })
	if i < 0 {
		return 0, false
	}
	slice = n.SessionSIDs[i].Slice
	if n.SessionSIDs[i].VPN {
		slice |= ofVPN
	}
	return slice, true
}

// Port is an interface that the data path is attached to.
type Port struct {
	Name            string `json:"name"`
	Ifindex         int    `json:"ifindex"`
	PartialChecksum bool   `json:"partial_checksum,omitempty"`
	MTU             int    `json:"mtu,omitempty"` // 0: not known
	MAC             MAC    `json:"mac,omitzero"`  // zero: not known
}

// Key names an adjacency: a next hop found by a table, or an interface.
type Key struct {
	NextHop   netip.Addr `json:"next_hop,omitzero"`
	Interface string     `json:"interface,omitempty"`
	Table     uint32     `json:"table,omitempty"`
}

// Adjacency is a resolved next hop: the device and the Ethernet header.
type Adjacency struct {
	Key
	Out  string `json:"out"` // name of the port that frames leave by
	Dst  MAC    `json:"dst"`
	Src  MAC    `json:"src"`
	VLAN []VLAN `json:"vlan,omitempty"` // outermost first
	MTU  int    `json:"mtu"`
	// Pass says that only the kernel can send there.
	Pass bool `json:"pass,omitempty"`
	// Shared are the next hops that flows share, and then nothing else is given: part i of
	// the flows has next hop i modulo their number.
	Shared []Key `json:"shared,omitempty"`
}

// PathMTU is that of a segment list, or of the way to a tunnel's remote end.
type PathMTU struct {
	Ends []netip.Addr `json:"ends"` // in the order of travel
	MTU  int          `json:"mtu"`
}

// VLAN is a tag to push.
type VLAN struct {
	TPID uint16 `json:"tpid"`
	ID   uint16 `json:"id"`
}

// MAC is a hardware address, written aa:bb:cc:dd:ee:ff.
type MAC [6]byte

// UnmarshalText reads the usual notation.
func (m *MAC) UnmarshalText(text []byte) error {
	a, err := net.ParseMAC(string(text))
	if err != nil || len(a) != len(m) {
		return fmt.Errorf("MAC address %q: want six octets, as 02:00:00:00:00:01", text)
	}
	copy(m[:], a)
	return nil
}

// MarshalText writes the usual notation.
func (m MAC) MarshalText() ([]byte, error) { return []byte(net.HardwareAddr(m[:]).String()), nil }

// Route is one of a routing table; more than one Via is chosen from by flow.
type Route struct {
	Table  uint32       `json:"table,omitempty"` // main unless set
	Prefix netip.Prefix `json:"prefix"`
	Via    []Key        `json:"via"`
}

// Model is a Network made ready for lookups, with the state that packets
// leave behind (End.Limit's buckets, volumes and meters of sessions).
type Model struct {
	network    Network
	ports      map[int]*Port
	portNames  map[string]*Port
	adjacency  map[Key]*Adjacency
	sids       []srv6.LocalSID // longest prefix first
	policies   map[string]*srpolicy.Policy
	tunnels    map[string]*gtpu.Tunnel
	teids      map[uint32]*gtpu.Tunnel
	byPrefix   []steering         // longest prefix first
	ofPort     map[int][]steering // the same, for untagged packets of a port
	ofTenant   map[uint8][]steering
	byPort     map[portKey]*srpolicy.Steering
	routes     []Route // longest prefix first
	hopLimit   uint8
	limits     map[limitKey]*bucket
	sessions   sessions
	nats       []*natState
	nanosecond int64 // the model's clock
}

type portKey struct {
	ifindex      int
	outer, inner uint16
	again        bool // the packet came out of another one at this node
}

// steering is a Steering, a framed route of sessions, or a node's own address,
// which passes.
type steering struct {
	prefix netip.Prefix
	to     *srpolicy.Steering
	rules  []*ruleState
}

func (s steering) passes() bool { return s.to == nil && s.rules == nil }

// New makes a Model. It refuses names that nothing has.
func New(n Network) (*Model, error) {
	m := &Model{
		network: n, teids: map[uint32]*gtpu.Tunnel{}, byPort: map[portKey]*srpolicy.Steering{}, ofPort: map[int][]steering{}, ofTenant: map[uint8][]steering{}, limits: map[limitKey]*bucket{},
		hopLimit:  cmp.Or(n.Config.Encapsulation.HopLimit, 64),
		ports:     index(n.Ports, func(p *Port) int { return p.Ifindex }),
		portNames: index(n.Ports, func(p *Port) string { return p.Name }),
		adjacency: index(n.Adjacencies, func(a *Adjacency) Key { return normal(a.Key) }),
		policies:  index(n.Config.Policies, func(p *srpolicy.Policy) string { return p.Name }),
		tunnels:   index(n.Config.Tunnels, func(t *gtpu.Tunnel) string { return t.Name }),
	}
	for _, a := range n.Adjacencies {
		if m.portNames[a.Out] == nil && a.Shared == nil {
			return nil, fmt.Errorf("adjacency %v: no port is named %q", a.Key, a.Out)
		}
	}
	m.addSIDs()
	m.addNATs()
	m.routes = slices.Clone(n.Routes)
	slices.SortStableFunc(m.routes, func(a, b Route) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	if err := errors.Join(m.addTunnels(), m.addSessions()); err != nil {
		return nil, err
	}
	for i := range m.network.Sessions {
		m.sessions.endShares(&m.network.Sessions[i])
	}
	return m, m.addSteering()
}

func index[K comparable, V any](list []V, key func(*V) K) map[K]*V {
	found := make(map[K]*V, len(list))
	for i := range list {
		found[key(&list[i])] = &list[i]
	}
	return found
}

// isGTPU says whether an address is one of the node's GTP-U addresses.
func (m *Model) isGTPU(a netip.Addr) bool { return slices.Contains(m.network.Config.GTPU.Addresses, a) }

// normal writes the main table in one way.
func normal(k Key) Key {
	if k.Table == MainTable {
		k.Table = 0
	}
	return k
}

func (m *Model) addSIDs() {
	c := &m.network.Config
	m.sids = append(m.sids, c.SIDs...)
	for _, p := range c.Policies {
		if p.BindingSID.IsValid() {
			b := srv6.EndB6Encaps
			if reduced(p.Behavior) {
				b = srv6.EndB6EncapsRed
			}
			m.sids = append(m.sids, srv6.LocalSID{
				SID: netip.PrefixFrom(p.BindingSID, 128), Behavior: b, Policy: p.Name})
		}
	}
	slices.SortStableFunc(m.sids, func(a, b srv6.LocalSID) int { return b.SID.Bits() - a.SID.Bits() })
}

func (m *Model) addTunnels() error {
	c := &m.network.Config
	for i := range c.Tunnels {
		t := &c.Tunnels[i]
		if t.LocalTEID != 0 {
			m.teids[t.LocalTEID] = t
		}
		if t.SwitchTo != "" && m.tunnels[t.SwitchTo] == nil {
			return fmt.Errorf("tunnel %s: switch_to: no tunnel is named %q", t.Name, t.SwitchTo)
		}
		if t.Policy != "" && m.policies[t.Policy] == nil {
			return fmt.Errorf("tunnel %s: policy: no policy is named %q", t.Name, t.Policy)
		}
	}
	return nil
}

func (m *Model) addSteering() error {
	c := &m.network.Config
	for i := range c.Steering {
		s := &c.Steering[i]
		if s.Tenant != 0 {
			m.ofTenant[s.Tenant] = append(m.ofTenant[s.Tenant], steering{prefix: s.Prefix.Masked(), to: s})
			continue
		}
		if s.Interface == "" {
			m.byPrefix = append(m.byPrefix, steering{prefix: s.Prefix.Masked(), to: s})
			continue
		}
		port := m.portNames[s.Interface]
		if port == nil {
			return fmt.Errorf("steering: no port is named %q", s.Interface)
		}
		if s.Prefix.IsValid() {
			m.ofPort[port.Ifindex] = append(m.ofPort[port.Ifindex], steering{prefix: s.Prefix.Masked(), to: s})
			continue
		}
		key := portKey{ifindex: port.Ifindex}
		if len(s.VLANs) > 0 {
			key.outer = s.VLANs[0]
		}
		if len(s.VLANs) > 1 {
			key.inner = s.VLANs[1]
		}
		m.byPort[key] = s
	}
	for _, p := range m.network.Own() {
		m.byPrefix = append(m.byPrefix, steering{prefix: p})
	}
	longest := func(a, b steering) int { return b.prefix.Bits() - a.prefix.Bits() }
	for _, list := range m.ofPort {
		slices.SortStableFunc(list, longest)
	}
	for _, list := range m.ofTenant {
		slices.SortStableFunc(list, longest)
	}
	m.sortSteering()
	return nil
}

func (m *Model) sortSteering() {
	slices.SortStableFunc(m.byPrefix, func(a, b steering) int {
		if n := b.prefix.Bits() - a.prefix.Bits(); n != 0 || a.passes() == b.passes() {
			return n
		}
		if a.passes() { // the node's own addresses win
			return -1
		}
		return 1
	})
}

// localSID is the SID that an address is in, or nil.
func (m *Model) localSID(a netip.Addr) *srv6.LocalSID {
	if i := slices.IndexFunc(m.sids, func(s srv6.LocalSID) bool { return s.SID.Contains(a) }); i >= 0 {
		return &m.sids[i]
	}
	return nil
}

// steered is the steering entry of a destination.
func (m *Model) steered(a netip.Addr) (steering, bool) {
	if i := slices.IndexFunc(m.byPrefix, func(s steering) bool { return s.prefix.Contains(a) }); i >= 0 {
		return m.byPrefix[i], true
	}
	return steering{}, false
}

// steeredFrom is the steering entry of a destination for packets that come in by a port:
// that of its own table, unless the destination is the node itself, a UE's (isN6) by a
// framed route, or in a pool.
func (m *Model) steeredFrom(key portKey, a netip.Addr, isN6 bool) (steering, bool) {
	s, steered := m.steered(a)
	if key.again || key.outer != 0 || key.inner != 0 || within(m.network.Config.GTPU.Pools, a) || steered && (s.passes() || isN6 && s.rules != nil) {
		return s, steered
	}
	own := m.ofPort[key.ifindex]
	if i := slices.IndexFunc(own, func(s steering) bool { return s.prefix.Contains(a) }); i >= 0 {
		return own[i], true
	}
	return s, steered
}

// Advance moves the model's clock, which End.Limit and meters look at.
func (m *Model) Advance(nanoseconds int64) { m.nanosecond += nanoseconds }

func reduced(b srv6.Behavior) bool {
	return b == srv6.BehaviorNone || b == srv6.HEncapsRed || b == srv6.HEncapsL2Red
}
