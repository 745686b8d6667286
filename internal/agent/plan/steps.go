package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// Step is one write, and the one that takes it back.
type Step struct {
	desired.Ref
	Do, Undo Write
}

// Write puts a value into the data path, or deletes it there. Value is one of
//
//	*srpolicy.Policy, *gtpu.Tunnel, *srv6.LocalSID, *Steering, *Link, *SessionSID
//	*settings.Settings, *upf.Config, *Spread, *Classes, class.SessionWays  put only
//	*class.Table                       put only: by which pods' packets are classified
//	*Port                              its settings and the program; delete: both
//	*PortSettings                      put only: the program is attached
//
// There may be very many steps: those of one value share it.
type Write struct {
	Delete bool
	Value  any
}

// Classes are the names of the traffic classes that are counted.
type Classes []string

// SessionSID is a SID at which a slice receives.
type SessionSID netip.Prefix

// PortSettings are the settings of an interface that the program is on.
type PortSettings Port

// Steps are the writes from one state of the tables to another, which was compiled
// of it in a scope. Everything new is there before anything old goes, what is
// referred to comes before what refers to it, and deletions go in the reverse order.
// isUPF says whether the node is a user plane function.
func Steps(from, to *Tables, s Scope, isUPF bool) []Step {
	p := &planner{from: from, to: to, scope: s}
	p.policies = &table[srpolicy.Policy]{p: p, kind: desired.KindPolicy, now: from.Policies}
	p.tunnels = &table[gtpu.Tunnel]{p: p, kind: desired.KindTunnel, now: from.Tunnels}
	p.sids = &table[srv6.LocalSID]{p: p, kind: desired.KindSID, now: from.SIDs}
	p.sessions = &table[SessionSID]{p: p, kind: desired.KindSlice, now: from.SessionSIDs}
	p.n6 = &table[Link]{p: p, kind: desired.KindSlice, now: from.N6}
	p.steering = &table[Steering]{p: p, kind: desired.KindSteering, now: from.Steering}

	all, both := Scope{}, p.union()
	p.setSettings(from.Settings, both)
	p.yieldTEIDs()
	p.yieldSIDs()
	p.policies.put(to.Policies, s)
	p.putTunnels()
	p.sids.put(to.SIDs, all)
	p.sessions.put(to.SessionSIDs, all)
	p.n6.put(to.N6, all)
	if isUPF && !desired.Same(from.UPF, to.UPF) {
		// Everything is there that slices name, and nothing that they no longer name
		// is gone.
		from, to := from.UPF, to.UPF
		p.add(desired.KindSettings, "slices", Write{Value: &to}, Write{Value: &from})
	}
	p.setClasses(from.ClassNames, unite(from.ClassNames, to.ClassNames))
	p.putSteering()
	p.setSessionWays()
	p.classifyPods()
	p.putPorts()
	// The tables before the first ones do not know what an earlier daemon did.
	if from.Links == nil || !desired.Same(from.Spread, to.Spread) {
		from, to := from.Spread, to.Spread
		p.add(desired.KindSettings, desired.KeySpread, Write{Value: &to}, Write{Value: &from})
	}
	for _, name := range gone(from.Ports, to.Ports, all) {
		p.detach(from.Ports[name])
	}
	p.steering.clean(to.Steering, all)
	p.setClasses(unite(from.ClassNames, to.ClassNames), to.ClassNames)
	p.sids.clean(to.SIDs, all)
	p.sessions.clean(to.SessionSIDs, all)
	p.n6.clean(to.N6, all)
	p.deleteTunnels()
	p.policies.clean(to.Policies, s)
	p.setSettings(both, to.Settings)
	return p.steps
}

// planner collects the steps.
type planner struct {
	from, to *Tables
	scope    Scope
	steps    []Step

	policies *table[srpolicy.Policy]
	tunnels  *table[gtpu.Tunnel]
	sids     *table[srv6.LocalSID]
	sessions *table[SessionSID]
	n6       *table[Link]
	steering *table[Steering]
}

// table makes the steps of one kind. It knows what is there before each step, so
// that the step can be taken back.
type table[V any] struct {
	p    *planner
	kind desired.Kind
	now  map[string]V
	own  bool // now is a copy
}

// copy comes before the first change.
func (t *table[V]) copy() {
	if !t.own {
		t.now, t.own = maps.Clone(t.now), true
	}
	if t.now == nil {
		t.now = map[string]V{}
	}
}

func (t *table[V]) set(key string, v V) {
	t.copy()
	undo := Write{Delete: true, Value: &v}
	if old, there := t.now[key]; there {
		undo = Write{Value: &old}
	}
	t.now[key] = v
	t.p.add(t.kind, key, Write{Value: &v}, undo)
}

func (t *table[V]) remove(key string) {
	t.copy()
	v := t.now[key]
	delete(t.now, key)
	t.p.add(t.kind, key, Write{Delete: true, Value: &v}, Write{Value: &v})
}

// put sets what is new or different in to.
func (t *table[V]) put(to map[string]V, s Scope) {
	for _, key := range changed(t.now, to, s) {
		t.set(key, to[key])
	}
}

// clean removes what is not in to.
func (t *table[V]) clean(to map[string]V, s Scope) {
	for _, key := range gone(t.now, to, s) {
		t.remove(key)
	}
}

func (p *planner) add(kind desired.Kind, key string, do, undo Write) {
	p.steps = append(p.steps, Step{desired.Ref{Kind: kind, Key: key}, do, undo})
}

// union are the new settings with what the old tables are found by.
func (p *planner) union() settings.Settings {
	s := p.to.Settings
	locators := maps.Clone(p.to.locators)
	for name, l := range p.from.locators {
		if !slices.Contains(s.Locators, l) {
			locators[name+" (old)"] = l
		}
	}
	s.Locators = byName(locators)
	s.Pools = slices.Clone(s.Pools)
	for _, pool := range p.from.Settings.Pools {
		if !slices.Contains(s.Pools, pool) {
			s.Pools = append(s.Pools, pool)
		}
	}
	return s
}

func (p *planner) setSettings(from, to settings.Settings) {
	if desired.Same(from, to) {
		return
	}
	key := desired.KeyEncapsulation // the section that the change comes from
	switch {
	case !slices.Equal(from.Locators, to.Locators):
		key = "locators"
	case !slices.Equal(from.GTPUAddresses, to.GTPUAddresses), !slices.Equal(from.Pools, to.Pools):
		key = desired.KeyGTPU
	case !slices.Equal(from.Domain, to.Domain):
		key = desired.KeyDomain
	}
	p.add(desired.KindSettings, key, Write{Value: &to}, Write{Value: &from})
}

// yieldTEIDs has the old owner of a TEID release it before its new owner is put.
func (p *planner) yieldTEIDs() {
	if observed.SameMap(p.from.Tunnels, p.to.Tunnels) {
		return
	}
	owner := map[uint32]string{}
	for name, t := range p.to.Tunnels {
		if t.LocalTEID != 0 {
			owner[t.LocalTEID] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.from.Tunnels)) {
		t := p.from.Tunnels[name]
		if now, ok := owner[t.LocalTEID]; !ok || now == name {
			continue
		}
		if t.Remote.IsValid() {
			p.tunnels.set(name, sendHalf(t))
		} else { // nothing refers to it
			p.tunnels.remove(name)
		}
	}
}

// yieldSIDs does it for SIDs that become binding SIDs or slices' SIDs, and the
// reverse.
func (p *planner) yieldSIDs() {
	for key := range p.to.SessionSIDs {
		if _, was := p.sids.now[key]; was {
			p.sids.remove(key)
		}
	}
	for key := range p.from.SessionSIDs {
		if _, is := p.to.SIDs[key]; is {
			p.sessions.remove(key)
		}
	}
	owner := map[netip.Addr]string{} // of binding SIDs
	for name, policy := range within(p.to.Policies, p.scope) {
		if policy.BindingSID.IsValid() {
			owner[policy.BindingSID] = name
		}
	}
	var sids, policies []string
	for sid := range owner {
		if key := bindingKey(sid); p.sids.now[key].SID.IsValid() {
			sids = append(sids, key)
		}
	}
	for name, policy := range within(p.from.Policies, p.scope) {
		if !policy.BindingSID.IsValid() {
			continue
		}
		_, isSID := p.to.SIDs[bindingKey(policy.BindingSID)]
		if now, ok := owner[policy.BindingSID]; isSID || ok && now != name {
			policies = append(policies, name)
		}
	}
	for _, key := range slices.Sorted(slices.Values(sids)) {
		p.sids.remove(key)
	}
	for _, name := range slices.Sorted(slices.Values(policies)) {
		policy := p.from.Policies[name]
		policy.BindingSID = netip.Addr{}
		p.policies.set(name, policy)
	}
}

func bindingKey(sid netip.Addr) string {
	return desired.SIDKey(netip.PrefixFrom(sid, sid.BitLen()))
}

// putTunnels puts the tunnel that another switches to before that one. Two that
// switch to each other, which is how a GTP-U relay has both directions, can only
// come one after the other: the first comes with what it sends, and goes on
// receiving as before.
func (p *planner) putTunnels() {
	todo := setOf(changed(p.tunnels.now, p.to.Tunnels, Scope{}))
	if len(todo) == 0 {
		return
	}
	for name, t := range p.to.Tunnels {
		if todo[t.SwitchTo] {
			todo[name] = true // holds a copy of what changes
		}
	}
	visiting := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if !todo[name] {
			return
		}
		t := p.to.Tunnels[name]
		old, there := p.tunnels.now[name]
		if visiting[name] {
			if first := withSendHalf(old, t); !there || first != old {
				first.Name = name
				p.tunnels.set(name, first)
			}
			return
		}
		visiting[name] = true
		visit(t.SwitchTo)
		visiting[name], todo[name] = false, false
		if there && old.Remote.IsValid() && !t.Remote.IsValid() {
			t = withSendHalf(t, old) // until nothing refers to it any more
		}
		p.tunnels.set(name, t)
	}
	names := slices.Sorted(maps.Keys(todo))
	p.steps = slices.Grow(p.steps, len(names))
	for _, name := range names {
		visit(name)
	}
}

// sendHalf is a tunnel without what it receives.
func sendHalf(t gtpu.Tunnel) gtpu.Tunnel {
	t.LocalTEID, t.Decapsulate, t.Table, t.SwitchTo, t.Policy = 0, false, 0, "", ""
	return t
}

func withSendHalf(t, from gtpu.Tunnel) gtpu.Tunnel {
	t.Remote, t.RemoteTEID, t.Source = from.Remote, from.RemoteTEID, from.Source
	t.QFI, t.PDUSessionContainer = from.QFI, from.PDUSessionContainer
	return t
}

// deleteTunnels first ends what tunnels that go, or lose their send half, still
// refer to, and then takes them away.
func (p *planner) deleteTunnels() {
	names := gone(p.tunnels.now, p.to.Tunnels, Scope{})
	for _, name := range names {
		if t := p.tunnels.now[name]; t.SwitchTo != "" && t.Remote.IsValid() {
			p.tunnels.set(name, sendHalf(t))
		}
	}
	// Those that only receive refer to others, and nothing refers to them.
	sends := func(name string) int {
		if p.tunnels.now[name].Remote.IsValid() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(sends(a), sends(b)) })
	for _, name := range names {
		p.tunnels.remove(name)
	}
	p.tunnels.put(p.to.Tunnels, Scope{}) // the send half that was kept
}

// setClasses has counters for classes before rows have them, and until none has them.
func (p *planner) setClasses(from, to []string) {
	if !slices.Equal(from, to) {
		before, now := Classes(from), Classes(to)
		p.add(desired.KindSettings, "classes", Write{Value: &now}, Write{Value: &before})
	}
}

// setSessionWays comes while all policies are there that sessions' packets take, before and now.
func (p *planner) setSessionWays() {
	if from, to := p.from.SessionWays, p.to.SessionWays; !maps.Equal(from, to) {
		p.add(desired.KindSettings, "classes of sessions", Write{Value: to}, Write{Value: from})
	}
}

// classifyPods comes when rows have the columns of all classes.
func (p *planner) classifyPods() {
	from, to := p.from.Classes.Classes(), p.to.Classes.Classes()
	if len(from)+len(to) > 0 && !reflect.DeepEqual(from, to) {
		p.add(desired.KindSettings, "classes of pods", Write{Value: p.to.Classes}, Write{Value: p.from.Classes})
	}
}

func unite(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *planner) putSteering() {
	keys := setOf(changed(p.steering.now, p.to.Steering, Scope{}))
	if len(p.to.Settings.Pools)+len(p.to.Settings.UEPools) > 0 {
		// Entries of UE pools hold a copy of what they lead to.
		policies := setOf(changed(p.from.Policies, p.to.Policies, p.scope))
		tunnels := setOf(changed(p.from.Tunnels, p.to.Tunnels, Scope{}))
		for key, s := range p.to.Steering {
			if policies[s.Policy] || tunnels[s.Tunnel] {
				keys[key] = true
			}
		}
	}
	p.steps = slices.Grow(p.steps, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		v := p.to.Steering[key]
		if old, was := p.steering.now[key]; was && old.Ifindex != v.Ifindex {
			p.steering.remove(key)
		}
		p.steering.set(key, v)
	}
}

// putPorts attaches last: when the program runs, its tables are complete.
func (p *planner) putPorts() {
	for _, name := range changed(p.from.Ports, p.to.Ports, Scope{}) {
		v := p.to.Ports[name]
		old, was := p.from.Ports[name]
		if was && old.Ifindex == v.Ifindex && old.Mode == v.Mode {
			p.add(desired.KindInterface, name, Write{Value: (*PortSettings)(&v)}, Write{Value: (*PortSettings)(&old)})
			continue
		}
		if was {
			p.detach(old)
		}
		p.add(desired.KindInterface, name, Write{Value: &v}, Write{Delete: true, Value: &v})
	}
}

func (p *planner) detach(v Port) {
	p.add(desired.KindInterface, v.Name, Write{Delete: true, Value: &v}, Write{Value: &v})
}

// changed lists what is new or different in a scope, in the order of names.
func changed[V any](from, to map[string]V, s Scope) []string {
	if observed.SameMap(from, to) {
		return nil
	}
	var out []string
	var old, v V // for equal to look at, which would copy what it is given
	var name string
	there := false
	for name, v = range within(to, s) {
		if old, there = from[name]; !there || !equal(&old, &v) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// gone lists what in a scope is in from only, in the order of names.
func gone[V any](from, to map[string]V, s Scope) []string {
	if observed.SameMap(from, to) {
		return nil
	}
	var out []string
	for name := range within(from, s) {
		if _, stays := to[name]; !stays {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// equal is reflect.DeepEqual, and quicker for what there are thousands of.
func equal[V any](a, b *V) bool {
	switch p := any(a).(type) {
	case *srpolicy.Policy:
		return desired.EqualPolicies(p, any(b).(*srpolicy.Policy))
	case *Steering:
		q := any(b).(*Steering)
		sameRow := p.Row == q.Row || p.Row != nil && q.Row != nil && *p.Row == *q.Row
		return p.Ifindex == q.Ifindex && sameRow && desired.EqualSteering(&p.Steering, &q.Steering)
	}
	return reflect.DeepEqual(a, b)
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}
