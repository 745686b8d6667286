package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// errorsPerSecond is how many ICMP errors and Error Indications each CPU may
// cause: as many as Linux sends by default (icmp_msgs_per_sec).
const errorsPerSecond = 1000

// port is an interface that the program is to be on, as it is now: an
// interface that was deleted and made again is another port.
type port struct {
	config.Interface
	ifindex int
	dataplane.Port
}

// steering is an entry, with what its interface is now.
type steering struct {
	srpolicy.Steering
	ifindex int
}

// tables is what the data path is to hold: a desired state with its defaults
// filled in, on the links that there are.
type tables struct {
	settings dataplane.Settings
	locators map[string]dataplane.Locator
	ports    map[string]port
	policies map[string]srpolicy.Policy
	tunnels  map[string]gtpu.Tunnel
	sids     map[string]srv6.LocalSID
	steering map[string]steering
}

// compile makes tables of a desired state. What needs an interface that is not
// there waits until it is.
func compile(d *desired, links *netdev.Snapshot) *tables {
	c := d.config()
	c.SetDefaults()
	t := &tables{
		locators: map[string]dataplane.Locator{},
		ports:    map[string]port{},
		policies: make(map[string]srpolicy.Policy, len(c.Policies)),
		tunnels:  make(map[string]gtpu.Tunnel, len(c.Tunnels)),
		sids:     make(map[string]srv6.LocalSID, len(c.SIDs)),
		steering: make(map[string]steering, len(c.Steering)),
	}
	t.compileSettings(c)
	for _, i := range c.Interfaces {
		if l, ok := links.Link(i.Name); ok {
			t.ports[i.Name] = port{i, l.Index, dataplane.Port{External: i.External, PartialChecksum: l.Virtual()}}
		}
	}
	for _, p := range c.Policies {
		if !p.Source.IsValid() {
			p.Source = c.Encapsulation.Source
		}
		t.policies[p.Name] = p
	}
	for _, v := range c.Tunnels {
		if v.Remote.IsValid() && !v.Source.IsValid() {
			v.Source = firstOfFamily(c.GTPU.Addresses, v.Remote)
		}
		t.tunnels[v.Name] = v
	}
	for _, s := range c.SIDs {
		t.sids[sidKey(s.SID)] = s
	}
	for _, s := range c.Steering {
		entry := steering{Steering: s}
		if s.Interface != "" {
			l, ok := links.Link(s.Interface)
			if !ok {
				continue
			}
			entry.ifindex = l.Index
		}
		t.steering[steeringKey(s)] = entry
	}
	return t
}

func (t *tables) compileSettings(c *config.Config) {
	t.settings = dataplane.Settings{
		HopLimit:        c.Encapsulation.HopLimit,
		Source:          c.Encapsulation.Source,
		ErrorsPerSecond: errorsPerSecond,
		Domain:          c.Domain,
		GTPUAddresses:   c.GTPU.Addresses,
		Pools:           c.GTPU.Pools,
	}
	for _, l := range c.Locators {
		t.locators[l.Name] = dataplane.Locator{Prefix: l.Prefix, FunctionBits: l.FunctionBits}
	}
	t.settings.Locators = inSettings(t.locators)
}

// inSettings lists locators in the order of their names: an order that does not
// change when others come or go.
func inSettings(m map[string]dataplane.Locator) []dataplane.Locator {
	var out []dataplane.Locator
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

func firstOfFamily(addrs []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// routeTables are the kernel's tables that packets are looked up in.
func (t *tables) routeTables() []uint32 {
	set := map[uint32]bool{netdev.TableMain: true}
	add := func(table uint32) {
		if table != 0 {
			set[table] = true
		}
	}
	for _, s := range t.sids {
		add(s.Table)
	}
	for _, v := range t.tunnels {
		add(v.Table)
	}
	return slices.Sorted(maps.Keys(set))
}
