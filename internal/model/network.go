package model

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sort"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// MainTable is the kernel's number of the main routing table.
const MainTable = 254

// Network is everything that decides what happens to a frame.
type Network struct {
	Config      config.Config `json:"config"`
	Ports       []Port        `json:"ports"`
	Local       []netip.Addr  `json:"local,omitempty"` // the node's own addresses
	Adjacencies []Adjacency   `json:"adjacencies,omitempty"`
	Routes      []Route       `json:"routes,omitempty"`

	UEPools     []netip.Prefix `json:"ue_pools,omitempty"`     // of sessions
	Protected   []netip.Prefix `json:"protected,omitempty"`    // from UEs
	SessionSIDs []netip.Prefix `json:"session_sids,omitempty"` // of Config.SIDs, those whose inside is for UEs
	Slices      []Slice        `json:"slices,omitempty"`
	Sessions    []Session      `json:"sessions,omitempty"`
	MSSClamp    bool           `json:"mss_clamp,omitempty"` // of sessions' TCP connections
}

// Port is an interface that the data path is attached to.
type Port struct {
	Name            string `json:"name"`
	Ifindex         int    `json:"ifindex"`
	External        bool   `json:"external,omitempty"`
	PartialChecksum bool   `json:"partial_checksum,omitempty"`
	MTU             int    `json:"mtu,omitempty"` // 0: not known
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
	byPrefix   []steering // longest prefix first
	byPort     map[portKey]*srpolicy.Steering
	routes     []Route // longest prefix first
	gtpu       map[netip.Addr]bool
	local      map[netip.Addr]bool
	hopLimit   uint8
	limits     map[limitKey]*bucket
	sessions   sessions
	nanosecond int64 // the model's clock
}

type portKey struct {
	ifindex      int
	outer, inner uint16
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
		network: n, ports: map[int]*Port{}, portNames: map[string]*Port{},
		adjacency: map[Key]*Adjacency{}, policies: map[string]*srpolicy.Policy{},
		tunnels: map[string]*gtpu.Tunnel{}, teids: map[uint32]*gtpu.Tunnel{},
		byPort: map[portKey]*srpolicy.Steering{}, gtpu: map[netip.Addr]bool{},
		local: map[netip.Addr]bool{}, limits: map[limitKey]*bucket{},
		hopLimit: n.Config.Encapsulation.HopLimit,
	}
	if m.hopLimit == 0 {
		m.hopLimit = 64
	}
	for i := range n.Ports {
		m.ports[n.Ports[i].Ifindex] = &n.Ports[i]
		m.portNames[n.Ports[i].Name] = &n.Ports[i]
	}
	for i := range n.Adjacencies {
		a := &n.Adjacencies[i]
		if m.portNames[a.Out] == nil {
			return nil, fmt.Errorf("adjacency %v: no port is named %q", a.Key, a.Out)
		}
		m.adjacency[normal(a.Key)] = a
	}
	for _, a := range n.Config.GTPU.Addresses {
		m.gtpu[a] = true
	}
	m.addSIDs()
	m.addRoutes()
	if err := errors.Join(m.addTunnels(), m.addSessions()); err != nil {
		return nil, err
	}
	return m, m.addSteering()
}

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
	for i := range c.Policies {
		p := &c.Policies[i]
		m.policies[p.Name] = p
		if p.BindingSID.IsValid() {
			b := srv6.EndB6Encaps
			if reduced(p.Behavior) {
				b = srv6.EndB6EncapsRed
			}
			m.sids = append(m.sids, srv6.LocalSID{
				SID: netip.PrefixFrom(p.BindingSID, 128), Behavior: b, Policy: p.Name})
		}
	}
	sort.SliceStable(m.sids, func(i, j int) bool { return m.sids[i].SID.Bits() > m.sids[j].SID.Bits() })
}

func (m *Model) addRoutes() {
	m.routes = append(m.routes, m.network.Routes...)
	for i := range m.routes {
		if m.routes[i].Table == 0 {
			m.routes[i].Table = MainTable
		}
	}
	sort.SliceStable(m.routes, func(i, j int) bool { return m.routes[i].Prefix.Bits() > m.routes[j].Prefix.Bits() })
}

func (m *Model) addTunnels() error {
	c := &m.network.Config
	for i := range c.Tunnels {
		t := &c.Tunnels[i]
		m.tunnels[t.Name] = t
		if t.LocalTEID != 0 {
			m.teids[t.LocalTEID] = t
		}
	}
	for _, t := range c.Tunnels {
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
		if s.Interface == "" {
			m.byPrefix = append(m.byPrefix, steering{prefix: s.Prefix.Masked(), to: s})
			continue
		}
		port := m.portNames[s.Interface]
		if port == nil {
			return fmt.Errorf("steering: no port is named %q", s.Interface)
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
	for _, a := range m.network.Local {
		m.local[a] = true
		m.byPrefix = append(m.byPrefix, steering{prefix: netip.PrefixFrom(a, a.BitLen())})
	}
	m.sortSteering()
	return nil
}

func (m *Model) sortSteering() {
	sort.SliceStable(m.byPrefix, func(i, j int) bool {
		a, b := m.byPrefix[i], m.byPrefix[j]
		if a.prefix.Bits() != b.prefix.Bits() {
			return a.prefix.Bits() > b.prefix.Bits()
		}
		return a.passes() && !b.passes() // the node's own addresses win
	})
}

// localSID is the SID that an address is in, or nil.
func (m *Model) localSID(a netip.Addr) *srv6.LocalSID {
	for i := range m.sids {
		if m.sids[i].SID.Contains(a) {
			return &m.sids[i]
		}
	}
	return nil
}

// steered is the steering entry of a destination.
func (m *Model) steered(a netip.Addr) (steering, bool) {
	for _, s := range m.byPrefix {
		if s.prefix.Contains(a) {
			return s, true
		}
	}
	return steering{}, false
}

// route is the entry for an address in a table.
func (m *Model) route(table uint32, a netip.Addr) *Route {
	if table == 0 {
		table = MainTable
	}
	for i := range m.routes {
		if m.routes[i].Table == table && m.routes[i].Prefix.Contains(a) {
			return &m.routes[i]
		}
	}
	return nil
}

// Advance moves the model's clock, which End.Limit and meters look at.
func (m *Model) Advance(nanoseconds int64) { m.nanosecond += nanoseconds }

func reduced(b srv6.Behavior) bool {
	return b == srv6.BehaviorNone || b == srv6.HEncapsRed || b == srv6.HEncapsL2Red
}

func layer2(b srv6.Behavior) bool { return b == srv6.HEncapsL2 || b == srv6.HEncapsL2Red }
