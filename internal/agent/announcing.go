package agent

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/bgp"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/upf"
)

// announceInterval is how often N3, N4 and the sessions are looked at for what is announced. A
// port that goes down is noticed at once.
const announceInterval = time.Second

// AnnouncementStatus is a prefix that BGP announces, or would.
type AnnouncementStatus struct {
	Prefix          netip.Prefix `json:"prefix"`
	NetworkInstance string       `json:"network_instance,omitempty"`
	VPN             string       `json:"vpn,omitempty"`    // the slice's
	Framed          bool         `json:"framed,omitempty"` // of a session
	// NextHop is not there where it is the address of the BGP session.
	NextHop netip.Addr `json:"next_hop,omitzero"`
	// State is announced, withdrawn (all of the network instance are), or refused.
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of the state of the network instance
}

// The states of an AnnouncementStatus.
const (
	Announced = "announced"
	Withdrawn = "withdrawn"
	Refused   = "refused"
)

// announcing keeps what became of the entries of upf.announce. announce is called by one
// goroutine at a time; mu guards the fields for others.
type announcing struct {
	mu          sync.Mutex
	gates       map[string]announce.Gate // by the entry's name
	withdrawals map[string]uint64        // by network instance
	list        []AnnouncementStatus
}

// sight is what decides about what is announced.
type sight struct {
	entries  []announce.Entry
	health   announce.Health
	pools    []announce.Pool
	sessions []announce.Session
	closed   []netip.Prefix // what no framed route may overlap
	vpns     map[string]sliceVPN
}

// sliceVPN is the VPN of a slice, and where its routers send packets.
type sliceVPN struct {
	bgp.VPN
	sid     netip.Addr
	locator netip.Prefix // of the SID, if it is known
}

// functionBits is how long functions are whose lengths BGP says.
const functionBits = 16

// sliceVPNs are the VPNs of slices, by the slices' names.
func sliceVPNs(g *plan.Goal) map[string]sliceVPN {
	out := map[string]sliceVPN{}
	var locators []netip.Prefix
	for r := range g.All() {
		if v, is := r.Value.(config.Locator); is && v.FunctionBits == functionBits {
			locators = append(locators, v.Prefix)
		}
	}
	all := g.Slices()
	numbers := slice.VPNNumbers(all)
	for _, s := range all {
		if s.VPN == nil {
			continue
		}
		v := sliceVPN{VPN: bgp.VPN{
			Tenant: numbers[s.Name], Distinguisher: s.VPN.Distinguisher, Import: s.VPN.Import, Export: s.VPN.Export,
		}, sid: s.VPN.SID.Addr()}
		for _, l := range locators {
			if l.Contains(v.sid) && netip.PrefixFrom(v.sid, l.Bits()+functionBits).Masked().Addr() == v.sid {
				v.locator = l
			}
		}
		out[s.Name] = v
	}
	return out
}

// bgpVPNs are those of slices as the speaker takes them, in the order of their numbers.
func bgpVPNs(g *plan.Goal) (out []bgp.VPN) {
	for _, v := range sliceVPNs(g) {
		out = append(out, v.VPN)
	}
	slices.SortFunc(out, func(a, b bgp.VPN) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return out
}

// announce has BGP announce what the configuration asks for, as N3 and N4 are now. h is nil
// where the node speaks none.
func (c *core) announce(h *observed.BGP) error {
	see := c.sight()
	list := c.announcing.look(see, time.Now(), c.log)
	if h == nil {
		return nil
	}
	var mine []netip.Prefix
	for _, p := range see.pools {
		mine = append(mine, p.Prefixes...)
	}
	return h.Announce(mine, list)
}

// sight collects what there is to see.
func (c *core) sight() (s sight) {
	c.mu.RLock()
	u := c.upf
	p := &c.goal.Desired.Process.UPF
	s.entries = p.Announce
	if len(s.entries) == 0 || u.server == nil {
		s.entries = nil
		c.mu.RUnlock()
		return s
	}
	s.health.N3, s.health.N4 = withRole(config.RoleN3, c.goal, c.links), withRole(config.RoleN4, c.goal, c.links)
	if len(s.health.N4) == 0 {
		s.health.N4 = linksAt(c.n4Ports(), c.links)
	}
	s.vpns = sliceVPNs(c.goal)
	settings := &c.writer.Tables.Settings
	s.closed = append(announce.Hosts(settings.GTPUAddresses), settings.Protected...)
	for _, pool := range p.UEPools {
		is := announce.Pool{NetworkInstance: pool.NetworkInstance, Prefixes: pool.Prefixes}
		if pool.NAT != nil {
			is.Public = pool.NAT.Addresses
		}
		s.pools = append(s.pools, is)
	}
	c.mu.RUnlock()
	for _, smf := range u.server.Associations() {
		s.health.SMFs = append(s.health.SMFs, announce.Peer{Name: smf.Node, Up: smf.Up})
	}
	for _, gnb := range u.upf.Peers() {
		s.health.GNBs = append(s.health.GNBs, announce.Peer{Name: gnb.Addr.String(), Up: !gnb.Down})
	}
	if slices.ContainsFunc(s.entries, func(e announce.Entry) bool { return e.FramedRoutes }) {
		s.sessions = upf.Behind(u.upf)
	}
	return s
}

// withRole are the interfaces with a role. One that does not exist is down.
func withRole(role config.Role, g *plan.Goal, links *netdev.Snapshot) (out []announce.Port) {
	for r := range g.All() {
		if in, is := r.Value.(config.Interface); is && in.HasRole(role) {
			l, there := links.Link(in.Name)
			out = append(out, announce.Port{Name: in.Name, Up: there && l.Up && l.Carrier})
		}
	}
	return out
}

// linksAt are interfaces that the configuration does not list.
func linksAt(indexes []int, links *netdev.Snapshot) (out []announce.Port) {
	for _, index := range indexes {
		if l, there := links.LinkByIndex(index); there {
			out = append(out, announce.Port{Name: l.Name, Up: l.Up && l.Carrier})
		}
	}
	return out
}

// look moves the gates on, and says what is to be advertised.
func (n *announcing) look(s sight, now time.Time, log *slog.Logger) (out []bgp.Originated) {
	gates, list := map[string]announce.Gate{}, []AnnouncementStatus(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range s.entries {
		e := &s.entries[i]
		was := n.gates[e.Name()]
		gate := was.Next(e, e.Faults(s.health), now)
		gates[e.Name()] = gate
		n.turned(e, was, gate, log)
		prefixes, refused := e.Prefixes(s.pools, s.sessions, s.closed)
		for _, p := range prefixes {
			status := AnnouncementStatus{
				Prefix: p.Prefix, NetworkInstance: e.NetworkInstance, VPN: e.VPN, Framed: p.Framed, NextHop: e.NextHop(p.Prefix),
				State: Withdrawn, Reason: gate.Why, Since: gate.Since,
			}
			if gate.Open {
				status.State = Announced
				vpn := s.vpns[e.VPN] // the zero value: unicast
				out = append(out, bgp.Originated{
					Prefix: p.Prefix, NextHop: status.NextHop, Communities: e.Communities, LocalPreference: e.LocalPreference,
					Tenant: vpn.Tenant, SID: vpn.sid, Locator: vpn.locator,
				})
			}
			list = append(list, status)
		}
		for _, r := range refused {
			list = append(list, AnnouncementStatus{Prefix: r.Prefix, NetworkInstance: e.NetworkInstance, Framed: true, State: Refused, Reason: r.Why})
		}
	}
	n.gates, n.list = gates, list
	return out
}

// turned logs and counts what has changed. mu is held.
func (n *announcing) turned(e *announce.Entry, was, is announce.Gate, log *slog.Logger) {
	switch {
	case is.Open && !was.Open:
		log.Info("announces UE prefixes", "event", logevent.UEPrefixesAnnounced, "network_instance", e.NetworkInstance)
	case !is.Open && was.Open:
		log.Warn("withdraws UE prefixes", "event", logevent.UEPrefixesWithdrawn, "network_instance", e.NetworkInstance, "reason", is.Why)
		if n.withdrawals == nil {
			n.withdrawals = map[string]uint64{}
		}
		n.withdrawals[e.NetworkInstance]++
	case !is.Open && was.Since.IsZero():
		log.Warn("does not announce UE prefixes yet", "event", logevent.UEPrefixesHeld, "network_instance", e.NetworkInstance, "reason", is.Why)
	}
}

// Announcements are the prefixes that BGP announces, or would.
func (a *Agent) Announcements() ([]AnnouncementStatus, error) {
	n := &a.core.announcing
	err := a.core.read(func() error {
		if len(a.core.goal.Desired.Process.UPF.Announce) == 0 {
			return ErrNoAnnouncements
		}
		return nil
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list), err
}

// Key is the prefix.
func (s AnnouncementStatus) Key() string { return s.Prefix.String() }

// withdrawn counts how often the prefixes of each network instance were withdrawn.
func (n *announcing) withdrawn() map[string]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]uint64{}
	for _, s := range n.list {
		out[s.NetworkInstance] = n.withdrawals[s.NetworkInstance]
	}
	return out
}
