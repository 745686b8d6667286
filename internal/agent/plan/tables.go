package plan

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/internal/upf/pool"
	"github.com/culvert-net/culvert/srv6"
)

// errorsPerSecond is how many ICMP errors and Error Indications each CPU may
// cause: as many as Linux sends by default (icmp_msgs_per_sec).
const errorsPerSecond = 1000

// Port is an interface that the program is to be on, as it is now: an interface
// that was deleted and made again is another Port.
type Port struct {
	config.Interface
	Ifindex int
	port.Port
}

// Steering is a steering entry with the present index of its interface, and the row of
// its destination.
type Steering struct {
	class.Entry
	Ifindex int
}

// Link is a link of Ethernet sessions with the present index of its interface.
type Link struct {
	ethernet.Link
	Ifindex int // 0: the interface does not exist
}

// Tables is what the data path is to hold: a Goal with its defaults filled in, on
// the links that exist.
type Tables struct {
	Links    *netdev.Snapshot
	Settings settings.Settings
	Ports    map[string]Port
	Policies map[string]srpolicy.Policy
	// Verdicts are on the candidate paths of each policy, the active one first.
	// The segment lists of Policies are those of the active one.
	Verdicts map[string][]srpolicy.Verdict
	Tunnels  map[string]gtpu.Tunnel
	SIDs     map[string]srv6.LocalSID
	Steering map[string]Steering
	// Classes are the traffic classes, compiled; ClassNames are theirs.
	Classes    *class.Table
	ClassNames []string
	// SessionWays are the policies of sessions' packets that are in classes.
	SessionWays class.SessionWays
	// SessionSIDs are the SIDs at which slices receive.
	SessionSIDs map[string]SessionSID
	N6          map[string]Link // of slices with Ethernet sessions
	UPF         upf.Config
	Spread      Spread

	locators map[string]settings.Locator
	lengths  map[int]bool        // of SIDs
	entries  []srpolicy.Steering // those of Steering that are asked for
	vpns     []uint8             // the numbers of slices' VPNs
	// lists are the segment lists that each policy can have at most.
	lists map[string]int
	// The goal's, which say what lists can be used.
	dead      map[string]string
	standings srpolicy.Standings
	wanted    *overlay.Wanted
}

// Compile makes the tables of a goal; c is the part of the configuration in the
// scope. An entry that needs an interface waits until the interface exists.
// Entries outside the scope are copied from former, the tables of the goal
// before; former is nil for the first goal.
func Compile(g *Goal, c *config.Config, links *netdev.Snapshot, former *Tables, s Scope) *Tables {
	t := &Tables{}
	moved := former == nil || former.Links != links // what depends on links differs
	if former != nil {
		*t = *former
	} else {
		former = t
	}
	t.Links = links
	// Which lists are used may differ.
	turned := !observed.SameMap(t.dead, g.Dead) || !observed.SameMap(t.standings, g.Standings) || t.wanted != g.Wanted
	t.dead, t.standings, t.wanted = g.Dead, g.Standings, g.Wanted
	if s.has(desired.KindLocator, desired.KindSID, desired.KindInterface, desired.KindSettings) {
		t.compileSettings(c)
	}
	if moved || s.has(desired.KindSlice, desired.KindSettings, desired.KindInterface, desired.KindLocator, desired.KindSID, desired.KindTunnel) {
		t.compileUPF(c)
	}
	if s.has(desired.KindSID) {
		t.compileSIDs(c)
	}
	if moved || turned || s.has(desired.KindPolicy, desired.KindCandidatePath, desired.KindSettings) {
		t.compilePolicies(g, c, former, s)
	}
	if s.has(desired.KindTunnel, desired.KindSettings) {
		t.compileTunnels(c)
	}
	if s.has(desired.KindClass) {
		t.compileClasses(c, former)
	}
	// Which policies lead to an endpoint, and are valid, decides about rows.
	if steered := moved || s.has(desired.KindSteering); steered || s.has(desired.KindClass) || len(t.ClassNames)+len(t.vpns) > 0 {
		if steered {
			t.compileSteering(c)
		}
		t.compileRows()
		t.compileSessionWays()
	}
	if moved || s.has(desired.KindInterface, desired.KindClass, desired.KindSettings) {
		t.Ports = make(map[string]Port, len(c.Interfaces))
		for _, i := range c.Interfaces {
			if l, ok := links.Link(i.Name); ok {
				guarded := c.PortOf(i)
				p := t.portOf(&guarded, l)
				p.N4Alone = slices.Equal(i.Roles, []config.Role{config.RoleN4})
				t.Ports[i.Name] = Port{i, l.Index, p}
			}
		}
	}
	if moved || s.has(desired.KindInterface, desired.KindSettings) {
		t.Spread = spreadOf(c, links)
	}
	return t
}

func (t *Tables) compileSIDs(c *config.Config) {
	t.SIDs, t.lengths = make(map[string]srv6.LocalSID, len(c.SIDs)), map[int]bool{}
	for _, v := range c.SIDs {
		t.SIDs[desired.SIDKey(v.SID)] = v
		t.lengths[v.SID.Bits()] = true
	}
}

// SameSIDs says whether others, or nil, are tables with the same compiled SIDs.
func (t *Tables) SameSIDs(others *Tables) bool {
	return others != nil && observed.SameMap(t.SIDs, others.SIDs)
}

// HasSID says whether an address is in a SID of this node.
func (t *Tables) HasSID(a netip.Addr) bool {
	for bits := range t.lengths {
		if p, err := a.Prefix(bits); err == nil {
			if _, has := t.SIDs[desired.SIDKey(p)]; has {
				return true
			}
		}
	}
	return false
}

// portOf is what the data path is told of an interface.
func (t *Tables) portOf(i *config.Interface, l netdev.Link) port.Port {
	p := port.Port{PartialChecksum: l.Virtual(), MTU: l.MTU, Access: hostAccess(i)}
	// What XDP sends to a veth vanishes unless its peer receives with NAPI.
	p.Silent = l.Kind == "veth" && l.XDP&netdev.XDPTransmit == 0
	p.Access.Peers = i.Peers
	copy(p.MAC[:], l.MAC)
	p.Classifier = t.Classes.Classifier(class.Source{Kind: class.SourceInterface, Interface: i.Name})
	p.Origins = t.Classes.Origins(i.Name)
	for _, r := range i.Roles {
		p.Roles |= port.RoleOf[string(r)]
	}
	return p
}

// hostAccess is what the kernel may have by an interface.
func hostAccess(i *config.Interface) port.Access {
	host, _ := i.HostAccess() // which was checked
	a := port.Access{HostAny: host.Any, HostForward: host.Forward}
	for _, s := range host.Services {
		a.Services = append(a.Services, port.Service(s))
	}
	return a
}

// FailsClosed says whether the kernel gets only what host lists while the data path is not on
// the interface.
func (p *Port) FailsClosed() bool { return !p.FailOpen && !p.HasRole(config.RoleAny) }

// ClosedPorts are the interfaces that exist and fail closed, with what the kernel may have by
// them.
func ClosedPorts(c *config.Config, links *netdev.Snapshot) (out []Port) {
	for _, i := range c.Interfaces {
		l, ok := links.Link(i.Name)
		p := Port{Interface: i, Ifindex: l.Index, Port: port.Port{Access: hostAccess(&i)}}
		if !ok || !p.FailsClosed() {
			continue
		}
		copy(p.Port.MAC[:], l.MAC)
		out = append(out, p)
	}
	return out
}

// compilePolicies chooses the active candidate path of each policy in the scope.
func (t *Tables) compilePolicies(g *Goal, c *config.Config, former *Tables, s Scope) {
	if s.Policies == nil {
		t.Policies = make(map[string]srpolicy.Policy, len(c.Policies))
		t.Verdicts = make(map[string][]srpolicy.Verdict, len(c.Policies))
		t.lists = make(map[string]int, len(c.Policies))
	} else {
		t.Policies, t.Verdicts, t.lists = maps.Clone(t.Policies), maps.Clone(t.Verdicts), maps.Clone(t.lists)
	}
	others := map[string][]srpolicy.Candidate{} // by policy, with their provenance
	for _, p := range c.CandidatePaths {
		path := srpolicy.Candidate{CandidatePath: p}
		if o, ok := g.Observed.Paths[p.Name]; ok && o.Kube == "" {
			path.Origin, path.ASN, path.Node, path.Discriminator = srpolicy.ByBGP, o.ASN, o.Node, o.Distinguisher
		}
		others[p.Policy] = append(others[p.Policy], path)
	}
	for _, p := range c.Policies {
		sizes := []int{len(p.SegmentLists)}
		for _, o := range others[p.Name] {
			sizes = append(sizes, len(o.SegmentLists))
		}
		t.lists[p.Name] = srpolicy.MostLists(sizes)
		if !p.Source.IsValid() {
			p.Source = c.Encapsulation.Source
		}
		t.Policies[p.Name], t.Verdicts[p.Name] = srpolicy.Choose(p, others[p.Name], former.ActivePath(p.Name), t.usable(g, &p), g.Standings)
	}
}

// ListsBeyond is the number of segment lists that the policies beyond a scope can
// have.
func (t *Tables) ListsBeyond(s Scope) (n int) {
	for name, lists := range t.lists {
		if s.Policies != nil && !s.Policies[name] {
			n += lists
		}
	}
	return n
}

// ActivePath is the name of a policy's active candidate path; "": the policy's own
// segment lists are active, or it does not exist.
func (t *Tables) ActivePath(policy string) string {
	if len(t.Verdicts[policy]) == 0 {
		return ""
	}
	return t.Verdicts[policy][0].Path
}

// Switched calls f for each policy in a scope that has another active candidate
// path than it had in former, where it may have been held ready.
func (t *Tables) Switched(former *Tables, s Scope, f func(policy, before string, now srpolicy.Verdict, ready bool)) {
	for name, verdicts := range within(t.Verdicts, s) {
		if _, was := former.Verdicts[name]; !was || len(verdicts) == 0 {
			continue
		}
		if before := former.ActivePath(name); before != verdicts[0].Path {
			ready := slices.ContainsFunc(former.Verdicts[name], func(v srpolicy.Verdict) bool { return v.Protects && v.Path == verdicts[0].Path })
			f(name, before, verdicts[0], ready)
		}
	}
}

// Turn is what packets do with a list from now on.
type Turn struct {
	Policy string
	List   int
	Why    string // they do not take it; empty: they do
	Slow   bool   // for its delay
}

// Turned calls f for each list of a policy in a scope that went down, that packets leave for its
// delay, or that they take again, also for those that protect the policy. A list that is new and
// carries packets is no news.
func (t *Tables) Turned(former *Tables, s Scope, f func(Turn)) {
	for name, p := range within(t.Policies, s) {
		before := former.Policies[name]
		for i, l := range p.Lists() {
			wasDown, wasSlow := false, false
			for j, m := range before.Lists() {
				if slices.Equal(l.Segments, m.Segments) {
					wasDown, wasSlow = before.DownAt(j) != "", before.SlowAt(j) != ""
				}
			}
			switch down, slow := p.DownAt(i), p.SlowAt(i); {
			case down != "" && !wasDown:
				f(Turn{name, i, down, false})
			case slow != "" && !wasSlow:
				f(Turn{name, i, slow, true})
			case down == "" && slow == "" && (wasDown || wasSlow):
				f(Turn{Policy: name, List: i})
			}
		}
	}
}

// unreachable says why no route leads to a first segment. A neighbour that has not
// answered yet is no reason: the kernel resolves it once the policy is in use.
func (t *Tables) unreachable(first netip.Addr) error {
	if t.HasSID(first) {
		return nil
	}
	_, err := netdev.Resolve(t.Links, netdev.Key{NextHop: first})
	if errors.Is(err, netdev.ErrNoRoute) || errors.Is(err, netdev.ErrUnreachable) || errors.Is(err, netdev.ErrDown) {
		return err
	}
	return nil
}

func (t *Tables) compileTunnels(c *config.Config) {
	t.Tunnels = make(map[string]gtpu.Tunnel, len(c.Tunnels))
	for _, v := range c.Tunnels {
		ours := slices.IndexFunc(c.GTPU.Addresses, func(a netip.Addr) bool { return a.Is4() == v.Remote.Is4() })
		if v.Remote.IsValid() && !v.Source.IsValid() && ours >= 0 {
			v.Source = c.GTPU.Addresses[ours]
		}
		t.Tunnels[v.Name] = v
	}
}

// compileClasses makes the columns of the classes. Validate has found that they fit.
func (t *Tables) compileClasses(c *config.Config, former *Tables) {
	classes, err := class.Compile(c.TrafficClasses, former.Classes)
	if err != nil {
		return
	}
	t.Classes, t.ClassNames = classes, nil
	for _, one := range classes.Classes() {
		t.ClassNames = append(t.ClassNames, one.Name)
	}
	slices.Sort(t.ClassNames)
}

// compileSteering takes the entries of c whose interfaces exist.
func (t *Tables) compileSteering(c *config.Config) {
	t.entries = make([]srpolicy.Steering, 0, len(c.Steering))
	for _, s := range c.Steering {
		if _, ok := t.Links.Link(s.Interface); ok || s.Interface == "" {
			t.entries = append(t.entries, s)
		}
	}
}

// Ends are the SIDs at which members of the cluster take packets for pods.
func (t *Tables) Ends() *overlay.Ends {
	if t.wanted == nil {
		return nil
	}
	return t.wanted.Ends
}

// isValid says whether a policy has a valid candidate path.
func (t *Tables) isValid(policy string) bool {
	v := t.Verdicts[policy]
	return len(v) > 0 && v[0].Valid
}

// compileSessionWays finds the policies of sessions' packets that are in classes.
func (t *Tables) compileSessionWays() {
	policies := map[string][]string{}
	for i := range t.UPF.Slices {
		policies[t.UPF.Slices[i].Name] = t.UPF.Slices[i].Policies()
	}
	t.SessionWays = t.Classes.OfSessions(policies, t.Policies, t.isValid)
}

// compileRows gives the entries the rows of their destinations.
func (t *Tables) compileRows() {
	taken := slices.DeleteFunc(slices.Clone(t.entries), func(e srpolicy.Steering) bool { return t.unreached(&e) != "" })
	entries := t.Classes.Steer(taken, t.Policies, t.isValid, t.Ends().Lost)
	t.Steering = make(map[string]Steering, len(entries))
	for _, e := range entries {
		l, _ := t.Links.Link(e.Interface) // the zero value without one
		t.Steering[e.Key()] = Steering{e, l.Index}
	}
}

func (t *Tables) compileSettings(c *config.Config) {
	t.Settings = settings.Settings{
		HopLimit:        c.Encapsulation.HopLimit,
		Source:          c.Encapsulation.Source,
		ErrorsPerSecond: errorsPerSecond,
		Domain:          c.SRDomain(),
		GTPUAddresses:   c.GTPU.Addresses,
		Pools:           c.GTPU.Pools,
		UEPools:         c.UPF.Pools(),
		MSSClampGateway: c.GTPU.MSSClamp,
	}
	for _, p := range c.UPF.UEPools {
		if at := slices.IndexFunc(p.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() }); p.NAT != nil && at >= 0 {
			t.Settings.NATs = append(t.Settings.NATs, settings.NAT{Pool: p.Prefixes[at], NAT: *p.NAT})
		}
	}
	if c.UPF.IsSet() {
		t.Settings.Protected, t.Settings.MayReach, t.Settings.MSSClamp = c.ProtectedPrefixes(), c.UPF.UEMayReach, c.UPF.MSSClamp
		t.Settings.RateBurst = time.Duration(c.UPF.RateBurst) * time.Millisecond
	}
	if c.Overlay.Flows.Enabled {
		t.Settings.FlowSampling = c.Overlay.Flows.Sampling
	}
	t.locators = make(map[string]settings.Locator, len(c.Locators))
	for _, l := range c.Locators {
		t.locators[l.Name] = settings.Locator{Prefix: l.Prefix, FunctionBits: l.FunctionBits}
	}
	t.Settings.Locators = byName(t.locators)
}

// compileUPF says what sessions are made of.
func (t *Tables) compileUPF(c *config.Config) {
	t.SessionSIDs, t.N6, t.UPF, t.vpns = map[string]SessionSID{}, map[string]Link{}, upf.Config{}, nil
	if !c.UPF.IsSet() {
		return
	}
	t.UPF = upf.Config{
		Addresses: c.GTPU.Addresses, Slices: c.Slices, UEToUE: c.UPF.UEToUE,
		Reserved: reserved(c, t.Links), FramedRoutes: c.UPF.FramedRoutes,
		BufferPackets: int(c.UPF.Buffer.Packets), BufferBytes: int(c.UPF.Buffer.Bytes),
		EchoInterval: time.Duration(c.UPF.EchoInterval) * time.Second,
	}
	for _, p := range c.UPF.UEPools {
		t.UPF.Pools = append(t.UPF.Pools, pool.Pool{NetworkInstance: p.NetworkInstance, Prefixes: p.Prefixes})
	}
	t.vpns = slices.Collect(maps.Values(slice.VPNNumbers(c.Slices)))
	for _, s := range c.Slices {
		if s.N6 != nil {
			to := Link{Link: ethernet.Link(*s.N6)}
			if l, ok := t.Links.Link(s.N6.Interface); ok {
				to.Ifindex = l.Index
			}
			t.N6[to.String()] = to
		}
		for _, sid := range s.SIDs() {
			t.SessionSIDs[desired.SIDKey(sid)] = SessionSID(sid)
		}
	}
}

// byName lists locators in the order of their names: an order that does not change
// when others come or go.
func byName(m map[string]settings.Locator) []settings.Locator {
	var out []settings.Locator
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// RouteTables are the kernel's tables that packets are looked up in.
func (t *Tables) RouteTables() []uint32 {
	set := map[uint32]bool{netdev.TableMain: true}
	for _, s := range t.SIDs {
		set[s.Table] = true
	}
	for _, v := range t.Tunnels {
		set[v.Table] = true
	}
	for _, s := range t.UPF.Slices {
		set[s.Table] = true
	}
	delete(set, 0)
	return slices.Sorted(maps.Keys(set))
}

// Keep has a resource that the data path could not take be what it is in former:
// the next plan writes it again. An interface and a steering entry are as if they
// were missing. Compile may have taken t's maps from former: it copies the one that
// it changes.
func (t *Tables) Keep(ref desired.Ref, former *Tables) {
	switch ref.Kind {
	case desired.KindInterface:
		t.Ports = maps.Clone(t.Ports)
		delete(t.Ports, ref.Key)
	case desired.KindSteering:
		t.Steering = maps.Clone(t.Steering)
		delete(t.Steering, ref.Key)
	case desired.KindPolicy:
		if was, there := former.Policies[ref.Key]; there {
			t.Policies, t.Verdicts = maps.Clone(t.Policies), maps.Clone(t.Verdicts)
			t.Policies[ref.Key], t.Verdicts[ref.Key] = was, former.Verdicts[ref.Key]
		}
	}
}
