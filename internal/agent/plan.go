package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf"
	"github.com/culvert-net/culvert/srv6"
)

// step is one call of the data path, and the one that takes it back.
type step struct {
	ref  Ref
	do   func() error
	undo func() error // nil: what is left does no harm
}

// run does all steps, or none: when one fails, those before it are taken back.
func run(steps []step) error {
	for i, s := range steps {
		err := s.do()
		if err == nil {
			continue
		}
		errs := []error{fmt.Errorf("%s: %w", s.ref, err)}
		for _, done := range slices.Backward(steps[:i]) {
			if done.undo == nil {
				continue
			}
			if err := done.undo(); err != nil {
				errs = append(errs, fmt.Errorf("%s: take back: %w", done.ref, err))
			}
		}
		return errors.Join(errs...)
	}
	return nil
}

// planner finds the steps from one state of the tables to another. Everything
// new is there before anything old goes, what is referred to comes before what
// refers to it, and deletions go the other way round.
type planner struct {
	dp       dataPath
	upf      *upf.UPF // nil: the node is none
	from, to *tables
	attached func(name string, mode dataplane.Mode)
	steps    []step

	policies *kindTable[srpolicy.Policy]
	tunnels  *kindTable[gtpu.Tunnel]
	sids     *kindTable[srv6.LocalSID]
	sessions *kindTable[netip.Prefix]
	n6       *kindTable[ethernetLink]
	steering *kindTable[steering]
}

func newPlanner(dp dataPath, upf *upf.UPF, from, to *tables, attached func(string, dataplane.Mode)) *planner {
	p := &planner{dp: dp, upf: upf, from: from, to: to, attached: attached}
	p.policies = newKindTable(p, KindPolicy, from.policies, dp.PutPolicy,
		func(v srpolicy.Policy) error { return dp.DeletePolicy(v.Name) })
	p.tunnels = newKindTable(p, KindTunnel, from.tunnels, dp.PutTunnel,
		func(v gtpu.Tunnel) error { return dp.DeleteTunnel(v.Name) })
	p.sids = newKindTable(p, KindSID, from.sids, dp.PutSID,
		func(v srv6.LocalSID) error { return dp.DeleteSID(v.SID) })
	p.sessions = newKindTable(p, KindSlice, from.sessionSIDs, dp.PutSessionSID, dp.DeleteSessionSID)
	p.n6 = newKindTable(p, KindSlice, from.n6,
		func(l ethernetLink) error { return dp.PutLink(l.Link) }, func(l ethernetLink) error { return dp.DeleteLink(l.Link) })
	p.steering = newKindTable(p, KindSteering, from.steering,
		func(v steering) error { return dp.PutSteering(v.Steering) },
		func(v steering) error { return dp.DeleteSteering(v.Steering) })
	return p
}

// kindTable makes the steps of one kind. It knows what is there before each
// step, so that the step can be taken back.
type kindTable[V any] struct {
	p        *planner
	kind     Kind
	now      map[string]V
	own      bool // now is a copy
	put, del func(V) error
}

func newKindTable[V any](p *planner, kind Kind, now map[string]V, put, del func(V) error) *kindTable[V] {
	return &kindTable[V]{p, kind, now, false, put, del}
}

// copy comes before the first change.
func (t *kindTable[V]) copy() {
	if !t.own {
		t.now, t.own = maps.Clone(t.now), true
	}
}

func (t *kindTable[V]) set(key string, v V) {
	t.copy()
	undo := call(t.del, &v)
	if _, there := t.now[key]; there {
		old := t.now[key]
		undo = call(t.put, &old)
	}
	t.now[key] = v
	t.p.add(t.kind, key, call(t.put, &v), undo)
}

// call is f of what v points to. There may be very many steps: each holds its
// value once.
func call[V any](f func(V) error, v *V) func() error {
	return func() error { return f(*v) }
}

func (t *kindTable[V]) remove(key string) {
	t.copy()
	v := t.now[key]
	delete(t.now, key)
	t.p.add(t.kind, key, call(t.del, &v), call(t.put, &v))
}

func (p *planner) add(kind Kind, key string, do, undo func() error) {
	p.steps = append(p.steps, step{Ref{kind, key}, do, undo})
}

func (p *planner) plan() []step {
	both := p.union()
	p.setSettings(p.from.settings, both)
	p.yieldTEIDs()
	p.yieldSIDs()
	for _, name := range p.changedPolicies(p.policies.now) {
		p.policies.set(name, p.to.policies[name])
	}
	p.putTunnels()
	for _, key := range changed(p.sids.now, p.to.sids) {
		p.sids.set(key, p.to.sids[key])
	}
	for _, key := range changed(p.sessions.now, p.to.sessionSIDs) {
		p.sessions.set(key, p.to.sessionSIDs[key])
	}
	for _, key := range changed(p.n6.now, p.to.n6) {
		p.n6.set(key, p.to.n6[key])
	}
	p.moveSessions()
	p.putSteering()
	p.putPorts()
	p.deletePorts()
	for _, key := range gone(p.steering.now, p.to.steering) {
		p.steering.remove(key)
	}
	for _, key := range gone(p.sids.now, p.to.sids) {
		p.sids.remove(key)
	}
	for _, key := range gone(p.sessions.now, p.to.sessionSIDs) {
		p.sessions.remove(key)
	}
	for _, key := range gone(p.n6.now, p.to.n6) {
		p.n6.remove(key)
	}
	p.deleteTunnels()
	if p.to.only == nil {
		for _, name := range gone(p.policies.now, p.to.policies) {
			p.policies.remove(name)
		}
	}
	p.setSettings(both, p.to.settings)
	return p.steps
}

// changedPolicies is changed of policies.
func (p *planner) changedPolicies(now map[string]srpolicy.Policy) []string {
	if p.to.only == nil {
		return changed(now, p.to.policies)
	}
	var out []string
	for name := range p.to.only {
		old, v := now[name], p.to.policies[name]
		if !equal(&old, &v) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// union are the new settings with what the old tables are found by.
func (p *planner) union() dataplane.Settings {
	s := p.to.settings
	locators := maps.Clone(p.to.locators)
	for name, l := range p.from.locators {
		if !slices.Contains(s.Locators, l) {
			locators[name+" (old)"] = l
		}
	}
	s.Locators = inSettings(locators)
	s.Pools = joined(s.Pools, p.from.settings.Pools)
	return s
}

func joined[T comparable](list, more []T) []T {
	out := slices.Clone(list)
	for _, v := range more {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func (p *planner) setSettings(from, to dataplane.Settings) {
	if same(from, to) {
		return
	}
	p.add(KindSettings, settingsKey(from, to),
		func() error { return p.dp.SetSettings(to) },
		func() error { return p.dp.SetSettings(from) })
}

// settingsKey names the section that a change of the settings comes from.
func settingsKey(from, to dataplane.Settings) string {
	switch {
	case !slices.Equal(from.Locators, to.Locators):
		return "locators"
	case !slices.Equal(from.GTPUAddresses, to.GTPUAddresses), !slices.Equal(from.Pools, to.Pools):
		return keyGTPU
	case !slices.Equal(from.Domain, to.Domain):
		return keyDomain
	}
	return keyEncapsulation
}

// yieldTEIDs makes the old owner of a TEID let go of it before its new owner is
// put.
func (p *planner) yieldTEIDs() {
	if sameMap(p.from.tunnels, p.to.tunnels) {
		return
	}
	owner := map[uint32]string{}
	for name, t := range p.to.tunnels {
		if t.LocalTEID != 0 {
			owner[t.LocalTEID] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.from.tunnels)) {
		t := p.from.tunnels[name]
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

// moveSessions comes when everything is there that slices name, and before what
// they no longer name goes.
func (p *planner) moveSessions() {
	if p.upf == nil || same(p.from.upf, p.to.upf) {
		return
	}
	from, to := p.from.upf, p.to.upf
	p.add(KindSettings, "slices",
		func() error { return p.upf.SetConfig(to) },
		func() error { return p.upf.SetConfig(from) })
}

// yieldSIDs does it for SIDs that become binding SIDs or slices' SIDs, and the
// reverse.
func (p *planner) yieldSIDs() {
	if p.to.only != nil {
		return // these keep their binding SIDs
	}
	for key := range p.to.sessionSIDs {
		if _, was := p.sids.now[key]; was {
			p.sids.remove(key)
		}
	}
	for key := range p.from.sessionSIDs {
		if _, is := p.to.sids[key]; is {
			p.sessions.remove(key)
		}
	}
	owner := map[netip.Addr]string{}
	for name, policy := range p.to.policies {
		if policy.BindingSID.IsValid() {
			owner[policy.BindingSID] = name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.from.sids)) {
		sid := p.from.sids[key].SID
		if _, taken := owner[sid.Addr()]; taken && sid.IsSingleIP() {
			p.sids.remove(key)
		}
	}
	for _, name := range p.boundElsewhere(owner) {
		policy := p.from.policies[name]
		policy.BindingSID = netip.Addr{}
		p.policies.set(name, policy)
	}
}

// boundElsewhere are the old policies whose binding SIDs are a SID or another
// policy's now.
func (p *planner) boundElsewhere(owner map[netip.Addr]string) []string {
	var out []string
	for name, policy := range p.from.policies {
		b := policy.BindingSID
		if !b.IsValid() {
			continue
		}
		isSID := false
		if !sameMap(p.from.sids, p.to.sids) {
			_, isSID = p.to.sids[netip.PrefixFrom(b, b.BitLen()).String()]
		}
		if now, ok := owner[b]; isSID || ok && now != name {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// putTunnels puts the tunnel that another switches to before that one. Two that
// switch to each other, which is how a GTP-U relay has both directions, can
// only come one after the other: the first comes with what it sends, and goes
// on receiving as before.
func (p *planner) putTunnels() {
	todo := setOf(changed(p.tunnels.now, p.to.tunnels))
	if len(todo) == 0 {
		return
	}
	for name, t := range p.to.tunnels {
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
		t := p.to.tunnels[name]
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
	names := gone(p.tunnels.now, p.to.tunnels)
	for _, name := range names {
		if t := p.tunnels.now[name]; t.SwitchTo != "" && t.Remote.IsValid() {
			p.tunnels.set(name, sendHalf(t))
		}
	}
	// Those that only receive refer to others, and nothing refers to them.
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(rank(p.tunnels.now[a]), rank(p.tunnels.now[b]))
	})
	for _, name := range names {
		p.tunnels.remove(name)
	}
	for _, name := range changed(p.tunnels.now, p.to.tunnels) {
		p.tunnels.set(name, p.to.tunnels[name]) // the send half that was kept
	}
}

func rank(t gtpu.Tunnel) int {
	if t.Remote.IsValid() {
		return 1
	}
	return 0
}

func (p *planner) putSteering() {
	keys := setOf(changed(p.steering.now, p.to.steering))
	if len(p.to.settings.Pools)+len(p.to.settings.UEPools) > 0 {
		// Entries of UE pools hold a copy of what they lead to.
		policies := setOf(p.changedPolicies(p.from.policies))
		tunnels := setOf(changed(p.from.tunnels, p.to.tunnels))
		for key, s := range p.to.steering {
			if policies[s.Policy] || tunnels[s.Tunnel] {
				keys[key] = true
			}
		}
	}
	p.steps = slices.Grow(p.steps, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		v := p.to.steering[key]
		if old, was := p.steering.now[key]; was && old.ifindex != v.ifindex {
			p.steering.remove(key)
		}
		p.steering.set(key, v)
	}
}

// putPorts attaches last: when the program runs, its tables are true.
func (p *planner) putPorts() {
	for _, name := range changed(p.from.ports, p.to.ports) {
		v := p.to.ports[name]
		old, was := p.from.ports[name]
		if was && old.ifindex == v.ifindex && old.Mode == v.Mode {
			p.add(KindInterface, name,
				func() error { return p.dp.SetPort(v.ifindex, v.Port) },
				func() error { return p.dp.SetPort(old.ifindex, old.Port) })
			continue
		}
		if was {
			p.detach(name, old)
		}
		p.add(KindInterface, name,
			func() error { return p.attach(name, v) },
			func() error { return p.takeOff(v) })
	}
}

func (p *planner) deletePorts() {
	for _, name := range gone(p.from.ports, p.to.ports) {
		p.detach(name, p.from.ports[name])
	}
}

func (p *planner) attach(name string, v port) error {
	if err := p.dp.SetPort(v.ifindex, v.Port); err != nil {
		return err
	}
	mode, err := p.dp.Attach(v.ifindex, dataplane.Mode(cmp.Or(v.Mode, "auto")))
	if err != nil {
		return errors.Join(err, p.dp.DeletePort(v.ifindex))
	}
	p.attached(name, mode)
	return nil
}

func (p *planner) takeOff(v port) error {
	return errors.Join(p.dp.Detach(v.ifindex), p.dp.DeletePort(v.ifindex))
}

func (p *planner) detach(name string, v port) {
	p.add(KindInterface, name,
		func() error { return p.takeOff(v) },
		func() error { return p.attach(name, v) })
}

// changed lists what is new or different, in the order of names.
func changed[V any](from, to map[string]V) []string {
	if sameMap(from, to) {
		return nil
	}
	var out []string
	var old, v V // for equal to look at, which would copy what it is given
	var name string
	there := false
	for name, v = range to {
		if old, there = from[name]; !there || !equal(&old, &v) {
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
		return equalPolicies(p, any(b).(*srpolicy.Policy))
	case *steering:
		q := any(b).(*steering)
		return p.ifindex == q.ifindex && equalSteering(&p.Steering, &q.Steering)
	}
	return reflect.DeepEqual(a, b)
}

// equalPolicies: most have the very lists that they had.
func equalPolicies(p, q *srpolicy.Policy) bool {
	return p.Name == q.Name && p.Behavior == q.Behavior && p.Source == q.Source && p.Color == q.Color && p.Endpoint == q.Endpoint &&
		p.BindingSID == q.BindingSID && p.Preference == q.Preference && equalLists(p.SegmentLists, q.SegmentLists)
}

func equalPaths(p, q *srpolicy.CandidatePath) bool {
	return p.Name == q.Name && p.Policy == q.Policy && p.Preference == q.Preference && equalLists(p.SegmentLists, q.SegmentLists)
}

func equalLists(a, b []srpolicy.SegmentList) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.EqualFunc(a, b, func(x, y srpolicy.SegmentList) bool {
		return x.Weight == y.Weight && slices.Equal(x.Segments, y.Segments)
	}))
}

func equalSteering(p, q *srpolicy.Steering) bool {
	return p.Prefix == q.Prefix && p.Interface == q.Interface && p.Policy == q.Policy && p.Tunnel == q.Tunnel &&
		slices.Equal(p.VLANs, q.VLANs) && (p.GTP4D == q.GTP4D || p.GTP4D != nil && q.GTP4D != nil && *p.GTP4D == *q.GTP4D)
}

// sameMap says that it is one map, not only an equal one.
func sameMap[K comparable, V any](a, b map[K]V) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

// gone lists what is in from only, in the order of names.
func gone[V any](from, to map[string]V) []string {
	if sameMap(from, to) {
		return nil
	}
	var out []string
	for name := range from {
		if _, stays := to[name]; !stays {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func setOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// newTables are empty ones: what a data path holds that was not asked for
// anything yet.
func newTables() *tables {
	return &tables{
		locators: map[string]dataplane.Locator{},
		ports:    map[string]port{},
		policies: map[string]srpolicy.Policy{},
		tunnels:  map[string]gtpu.Tunnel{},
		sids:     map[string]srv6.LocalSID{},
		steering: map[string]steering{},

		sessionSIDs: map[string]netip.Prefix{},
		n6:          map[string]ethernetLink{},
	}
}
