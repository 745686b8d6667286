package agent

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
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

// ethernetLink is one of Ethernet sessions, on the interface that has that name now.
type ethernetLink struct {
	dataplane.Link
	ifindex int // 0: there is none
}

// tables is what the data path is to hold: a desired state with its defaults
// filled in, on the links that there are.
type tables struct {
	links    *netdev.Snapshot
	settings dataplane.Settings
	locators map[string]dataplane.Locator
	ports    map[string]port
	policies map[string]srpolicy.Policy
	lists    int // segment lists that these may have at most at a time
	// only are the policies that may differ from those of the tables that these were
	// made of; nil: any may, and so may everything else.
	only map[string]bool
	// verdicts are on the candidate paths of each policy: its policy's segment
	// lists are those of the active one.
	verdicts map[string][]srpolicy.Verdict
	tunnels  map[string]gtpu.Tunnel
	sids     map[string]srv6.LocalSID
	steering map[string]steering
	// sessionSIDs are those that slices receive by, and upf is what sessions are
	// made of.
	sessionSIDs map[string]netip.Prefix
	n6          map[string]ethernetLink // of slices with Ethernet sessions
	upf         upf.Config
}

// compile makes tables of a desired state. What needs an interface that is not
// there waits until it is.
func compile(d *desired, links *netdev.Snapshot) *tables {
	return recompile(d, d.completed(), links, nil, nil)
}

// recompile does it again; c is d's configuration with its defaults. Of tables for the same links, those of kinds in
// which nothing changed are taken over as they are: there may be much in them.
func recompile(d *desired, c *config.Config, links *netdev.Snapshot, former *tables, changes []Change) *tables {
	t := &tables{links: links, locators: map[string]dataplane.Locator{}}
	t.compileSettings(c)
	t.compileUPF(c)
	changed := map[Kind]bool{}
	for _, change := range changes {
		changed[change.Kind] = true
	}
	if former == nil || former.links != links || changed[KindPolicy] || changed[KindCandidatePath] || changed[KindSettings] {
		t.compilePolicies(c, d.candidates(c.CandidatePaths), links, former)
	} else {
		t.policies, t.verdicts, t.lists = former.policies, former.verdicts, former.lists
	}
	if former == nil || changed[KindTunnel] || changed[KindSettings] {
		t.compileTunnels(c)
	} else {
		t.tunnels = former.tunnels
	}
	if former == nil || changed[KindSID] {
		t.sids = make(map[string]srv6.LocalSID, len(c.SIDs))
		for _, s := range c.SIDs {
			t.sids[sidKey(s.SID)] = s
		}
	} else {
		t.sids = former.sids
	}
	if former == nil || changed[KindSteering] || former.links != links {
		t.compileSteering(c, links)
	} else {
		t.steering = former.steering
	}
	t.ports = make(map[string]port, len(c.Interfaces))
	for _, i := range c.Interfaces {
		if l, ok := links.Link(i.Name); ok {
			t.ports[i.Name] = port{i, l.Index, dataplane.Port{External: i.External, PartialChecksum: l.Virtual(), MTU: l.MTU}}
		}
	}
	return t
}

func (t *tables) compilePolicies(c *config.Config, others map[string][]srpolicy.Candidate, links *netdev.Snapshot, former *tables) {
	t.policies = make(map[string]srpolicy.Policy, len(c.Policies))
	t.verdicts = make(map[string][]srpolicy.Verdict, len(c.Policies))
	t.lists = c.MostLists()
	for _, p := range c.Policies {
		t.choose(p, c, others[p.Name], links, former)
	}
}

// choose compiles one policy.
func (t *tables) choose(p srpolicy.Policy, c *config.Config, others []srpolicy.Candidate, links *netdev.Snapshot, former *tables) {
	if !p.Source.IsValid() {
		p.Source = c.Encapsulation.Source
	}
	t.policies[p.Name], t.verdicts[p.Name] = srpolicy.Choose(p, others, former.activePath(p.Name), unreachableBy(links))
}

// activePath is the name of a policy's active candidate path; of no tables it
// is none.
func (t *tables) activePath(policy string) string {
	if t == nil || len(t.verdicts[policy]) == 0 {
		return ""
	}
	return t.verdicts[policy][0].Path
}

// unreachable says why no route leads to a first segment. A neighbour that has
// not answered yet is no reason: it is asked for where the policy is in use.
func unreachable(links *netdev.Snapshot, first netip.Addr) error {
	_, err := netdev.Resolve(links, netdev.Key{NextHop: first})
	if errors.Is(err, netdev.ErrNoRoute) || errors.Is(err, netdev.ErrUnreachable) || errors.Is(err, netdev.ErrDown) {
		return err
	}
	return nil
}

func (t *tables) compileTunnels(c *config.Config) {
	t.tunnels = make(map[string]gtpu.Tunnel, len(c.Tunnels))
	for _, v := range c.Tunnels {
		if v.Remote.IsValid() && !v.Source.IsValid() {
			v.Source = firstOfFamily(c.GTPU.Addresses, v.Remote)
		}
		t.tunnels[v.Name] = v
	}
}

func (t *tables) compileSteering(c *config.Config, links *netdev.Snapshot) {
	t.steering = make(map[string]steering, len(c.Steering))
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
}

func (t *tables) compileSettings(c *config.Config) {
	t.settings = dataplane.Settings{
		HopLimit:        c.Encapsulation.HopLimit,
		Source:          c.Encapsulation.Source,
		ErrorsPerSecond: errorsPerSecond,
		Domain:          c.Domain,
		GTPUAddresses:   c.GTPU.Addresses,
		Pools:           c.GTPU.Pools,
		UEPools:         c.UPF.Pools(),
	}
	if c.UPF.IsSet() {
		t.settings.Protected, t.settings.MSSClamp = c.UPF.ProtectedPrefixes(), c.UPF.MSSClamp
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
	for _, s := range t.upf.Slices {
		add(s.Table)
	}
	return slices.Sorted(maps.Keys(set))
}
