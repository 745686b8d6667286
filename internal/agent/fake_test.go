package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/agent/apply"
	"github.com/culvert-net/culvert/internal/agent/punt"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// fakeDataPath holds tables as the real one promises to, and insists on what
// the real one does: what is referred to exists, nothing in use is deleted,
// TEIDs and SIDs have one owner, programs are on real interfaces.
type fakeDataPath struct {
	fakeSessions
	fakePods
	mu          sync.Mutex
	calls       []string
	failOn      func(call string) error
	settings    settings.Settings
	ports       map[int]port.Port
	attached    map[int]attach.Mode
	policies    map[string]srpolicy.Policy
	tunnels     map[string]gtpu.Tunnel
	teids       map[uint32]string // owner
	sids        map[netip.Prefix]srv6.LocalSID
	turned      []string // lists
	steering    map[string]srpolicy.Steering
	rows        map[string]*class.Row // by steering
	classes     []string
	locals      map[netip.Prefix]bool
	routes      map[netdev.RouteKey][]adjacency.Key
	hops        map[adjacency.Key]*adjacency.NextHop
	adjacencies []adjacency.Key // at the last AdjacencyChanges
	rehearsed   []adjacency.Use
	noRoom      error
	held        netip.Prefix // a UE pool that sessions have addresses of
	devices     map[int]bool
	closed      sync.Map       // of attach.Mode, by ifindex: read while mu is locked
	lost        map[int]uint64 // frames, by ifindex
	lossError   error
	filter      *event.TraceFilter
	traced      chan event.TraceEvent
	punts       chan event.Punt
	injected    chan []byte

	spread      fakeSpread
	sessionSIDs map[netip.Prefix]bool
	sessionWays class.SessionWays
	n6          map[ethernet.Link]bool
}

func newFake() *fakeDataPath {
	return &fakeDataPath{
		ports: map[int]port.Port{}, attached: map[int]attach.Mode{},
		policies: map[string]srpolicy.Policy{}, tunnels: map[string]gtpu.Tunnel{}, teids: map[uint32]string{},
		sids: map[netip.Prefix]srv6.LocalSID{}, steering: map[string]srpolicy.Steering{}, rows: map[string]*class.Row{},
		locals: map[netip.Prefix]bool{}, routes: map[netdev.RouteKey][]adjacency.Key{},
		hops: map[adjacency.Key]*adjacency.NextHop{}, devices: map[int]bool{},
		traced: make(chan event.TraceEvent), punts: make(chan event.Punt), injected: make(chan []byte, 10),
		sessionSIDs: map[netip.Prefix]bool{},
		n6:          map[ethernet.Link]bool{},
		fakePods:    newFakePods(),
	}
}

// joined is the fake by who uses it.
func (f *fakeDataPath) joined() *dataPath {
	return &dataPath{
		DataPath: apply.DataPath{
			SetSettings: ofPools(f.SetSettings), CheckSettings: ofPools(f.CheckSettings), SetSpread: f.SetSpread,
			Policies:    apply.Table[srpolicy.Policy, string]{Put: f.PutPolicy, Delete: f.DeletePolicy},
			TurnLists:   f.TurnLists,
			Tunnels:     apply.Table[gtpu.Tunnel, string]{Put: f.PutTunnel, Delete: f.DeleteTunnel},
			SIDs:        apply.Table[srv6.LocalSID, netip.Prefix]{Put: f.PutSID, Delete: f.DeleteSID},
			SessionSIDs: apply.Table[netip.Prefix, netip.Prefix]{Put: f.PutSessionSID, Delete: f.DeleteSessionSID},
			Links:       apply.Table[ethernet.Link, ethernet.Link]{Put: f.PutLink, Delete: f.DeleteLink},
			Steering:    apply.Table[class.Entry, srpolicy.Steering]{Put: f.PutSteering, Delete: f.DeleteSteering},
			SetClasses:  f.SetClasses, SetSessionWays: f.SetSessionWays,
			SetPort: f.SetPort, DeletePort: f.DeletePort,
			Attach: f.Attach, Detach: f.Detach, Attached: f.Attached, Closing: closingOf(f),
			Uplinks: apply.Table[int, int]{Put: f.AttachUplink, Delete: f.DetachUplink},
			Members: apply.Table[overlay.Member, overlay.Member]{Put: f.PutMember, Delete: f.DeleteMember}, GuardForwarded: f.GuardForwarded,
			Entry:    apply.Table[int, int]{Put: f.AttachEntry, Delete: f.DetachEntry},
			Locals:   apply.Table[netip.Prefix, netip.Prefix]{Put: f.PutLocal, Delete: f.DeleteLocal},
			Devices:  apply.Table[int, int]{Put: f.PutDevice, Delete: f.DeleteDevice},
			PutRoute: f.PutRoute, DeleteRoute: f.DeleteRoute,
			Rehearse: f.Rehearse, AdjacencyKeys: f.AdjacencyKeys, AdjacencyChanges: f.AdjacencyChanges, SetNextHop: f.SetNextHop, SetShared: f.SetShared,
		},
		Pods: podTable{f}, Sessions: f, Trace: tracing{f}, Explain: f.explain, Flows: recorder{f.readRecords, f.leftOut}, NetworkPolicies: fakePolicies{f}, Spread: &f.spread, N4: n4.New(0), SpreadCards: func() []string { return nil },
		Punts: punt.DataPath{Injector: f, InjectToUE: f.InjectToUE, Read: f.Punts},
		Counters: counters{Outcomes: f.Outcomes, SID: f.SIDCounter, Lists: f.ListCounters, Class: f.ClassCounter, Tunnel: f.TunnelCounters, Usage: f.Usage,
			Isolated:   func() (map[int]pod.PolicyCounts, error) { return f.policed, nil },
			Signalling: func() (n4.Counts, error) { return n4.Counts{Modifications: 3}, nil },
			Lost:       func(ifindex int) (uint64, error) { return f.lost[ifindex], nil }, LossError: func() error { return f.lossError }, Closed: f.Outcomes, Injected: func() uint64 { return 7 }},
		Sweep: f.Sweep, Renewing: func() bool { return false }, Build: f.Build, Close: f.Close,
	}
}

type podTable struct{ *fakeDataPath }

func (p podTable) Put(v pod.Pod) error      { return p.PutPod(v) }
func (p podTable) Delete(ifindex int) error { return p.DeletePod(ifindex) }
func (p podTable) List() []pod.Pod          { return p.Pods() }

type tracing struct{ *fakeDataPath }

func (t tracing) Set(f *event.TraceFilter) error { return t.SetTrace(f) }
func (t tracing) Read(ctx context.Context, f func(event.TraceEvent)) error {
	return t.Trace(ctx, f)
}

// call notes a call, and says whether it is to fail.
func (f *fakeDataPath) call(format string, args ...any) error {
	c := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, c)
	if f.failOn != nil {
		return f.failOn(c)
	}
	return nil
}

// do is a call that changes something unless it fails.
func (f *fakeDataPath) do(change func() error, format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call(format, args...); err != nil {
		return err
	}
	return change()
}

// log returns the calls since the last time.
func (f *fakeDataPath) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

// content is all that the tables of resources hold, for comparison.
func (f *fakeDataPath) content() string {
	return fmt.Sprintf("%+v\n%v\n%v\n%+v\n%+v\n%+v\n%+v\n%+v", f.spread.config, f.settings, f.ports, f.attached, f.policies, f.tunnels, f.sids, f.steering)
}

func (f *fakeDataPath) SetPort(ifindex int, p port.Port) error {
	return f.do(func() error { f.ports[ifindex] = p; return nil }, "port %d", ifindex)
}

func (f *fakeDataPath) DeletePort(ifindex int) error {
	return f.do(func() error { delete(f.ports, ifindex); return nil }, "delete port %d", ifindex)
}

func (f *fakeDataPath) Attach(ifindex int, mode attach.Mode) (attach.Mode, error) {
	if mode == "auto" {
		mode = "native"
	}
	return mode, f.do(func() error {
		if _, ok := f.ports[ifindex]; !ok {
			return errors.New("attached before its port was set")
		}
		f.attached[ifindex] = mode
		f.closed.Delete(ifindex) // whose program it takes the place of
		return nil
	}, "attach %d", ifindex)
}

func (f *fakeDataPath) Detach(ifindex int) error {
	return f.do(func() error { delete(f.attached, ifindex); return nil }, "detach %d", ifindex)
}

func (f *fakeDataPath) needPolicy(name string) error {
	if _, ok := f.policies[name]; name != "" && !ok {
		return fmt.Errorf("policy %q does not exist", name)
	}
	return nil
}

func (f *fakeDataPath) needTunnel(name string) error {
	if t, ok := f.tunnels[name]; name != "" && (!ok || !t.Remote.IsValid()) {
		return fmt.Errorf("tunnel %q does not exist or does not send", name)
	}
	return nil
}

// TurnLists is for lists that nobody probes in these tests.
func (f *fakeDataPath) TurnLists(was, now func([]netip.Addr) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, p := range f.policies {
		for i, l := range p.SegmentLists {
			if p.DownAt(i) == was(l.Segments) && was(l.Segments) != now(l.Segments) {
				f.turned = append(f.turned, fmt.Sprintf("%s %d %s", name, i, now(l.Segments)))
			}
		}
	}
}

func (f *fakeDataPath) PutPolicy(p srpolicy.Policy) error {
	return f.do(func() error {
		for _, other := range f.policies {
			if other.Name != p.Name && p.BindingSID.IsValid() && other.BindingSID == p.BindingSID {
				return fmt.Errorf("binding SID %s belongs to %s", p.BindingSID, other.Name)
			}
		}
		if _, taken := f.sids[netip.PrefixFrom(p.BindingSID, 128)]; taken {
			return fmt.Errorf("binding SID %s is a local SID", p.BindingSID)
		}
		f.policies[p.Name] = p
		return nil
	}, "policy %s", p.Name)
}

func (f *fakeDataPath) DeletePolicy(name string) error {
	return f.do(func() error {
		for _, v := range f.sids {
			if v.Policy == name {
				return fmt.Errorf("policy %s is used by SID %s", name, v.SID)
			}
		}
		for _, v := range f.tunnels {
			if v.Policy == name {
				return fmt.Errorf("policy %s is used by tunnel %s", name, v.Name)
			}
		}
		for key, v := range f.steering {
			if v.Policy == name || v.GTP4D != nil && v.GTP4D.Policy == name {
				return fmt.Errorf("policy %s is used by steering %s", name, key)
			}
		}
		delete(f.policies, name)
		return nil
	}, "delete policy %s", name)
}

func (f *fakeDataPath) PutTunnel(t gtpu.Tunnel) error {
	return f.do(func() error {
		if owner, taken := f.teids[t.LocalTEID]; taken && owner != t.Name && t.LocalTEID != 0 {
			return fmt.Errorf("TEID %d belongs to %s", t.LocalTEID, owner)
		}
		if err := errors.Join(f.needPolicy(t.Policy), f.needTunnel(t.SwitchTo)); err != nil {
			return err
		}
		delete(f.teids, f.tunnels[t.Name].LocalTEID)
		f.teids[t.LocalTEID] = t.Name
		f.tunnels[t.Name] = t
		return nil
	}, "tunnel %s", t.Name)
}

func (f *fakeDataPath) DeleteTunnel(name string) error {
	return f.do(func() error {
		for _, v := range f.tunnels {
			if v.SwitchTo == name && v.Name != name {
				return fmt.Errorf("tunnel %s is used by tunnel %s", name, v.Name)
			}
		}
		for key, v := range f.steering {
			if v.Tunnel == name {
				return fmt.Errorf("tunnel %s is used by steering %s", name, key)
			}
		}
		delete(f.teids, f.tunnels[name].LocalTEID)
		delete(f.tunnels, name)
		return nil
	}, "delete tunnel %s", name)
}

func (f *fakeDataPath) PutSID(s srv6.LocalSID) error {
	return f.do(func() error {
		for _, p := range f.policies {
			if p.BindingSID.IsValid() && netip.PrefixFrom(p.BindingSID, 128) == s.SID {
				return fmt.Errorf("SID %s is a binding SID", s.SID)
			}
		}
		if err := f.needPolicy(s.Policy); err != nil {
			return err
		}
		f.sids[s.SID] = s
		return nil
	}, "sid %s", s.SID)
}

func (f *fakeDataPath) DeleteSID(p netip.Prefix) error {
	return f.do(func() error {
		if _, ok := f.sids[p]; !ok {
			return fmt.Errorf("no SID %s", p)
		}
		delete(f.sids, p)
		return nil
	}, "delete sid %s", p)
}

func (f *fakeDataPath) ClassCounter(string) (counter.Counter, error) {
	return counter.Counter{Packets: 7, Bytes: 700}, nil
}

func (f *fakeDataPath) SetClasses(names []string) error {
	return f.do(func() error { f.classes = names; return nil }, "classes %s", strings.Join(names, " "))
}

func (f *fakeDataPath) SetSessionWays(ways class.SessionWays) error {
	return f.do(func() error { f.sessionWays = ways; return nil }, "classes of sessions")
}

func (f *fakeDataPath) PutSteering(e class.Entry) error {
	s := e.Steering
	return f.do(func() error {
		if e.Row != nil {
			for _, way := range e.Row {
				if way.Class != "" && !slices.Contains(f.classes, way.Class) {
					return fmt.Errorf("there is no class %q", way.Class)
				}
				if err := f.needPolicy(way.Policy); err != nil {
					return err
				}
			}
		}
		f.rows[s.Key()] = e.Row
		policy := s.Policy
		if s.GTP4D != nil {
			policy = s.GTP4D.Policy
		}
		if err := errors.Join(f.needPolicy(policy), f.needTunnel(s.Tunnel)); err != nil {
			return err
		}
		f.steering[s.Key()] = s
		return nil
	}, "steering %s", s.Key())
}

func (f *fakeDataPath) DeleteSteering(s srpolicy.Steering) error {
	return f.do(func() error { delete(f.steering, s.Key()); return nil }, "delete steering %s", s.Key())
}

func (f *fakeDataPath) PutLocal(p netip.Prefix) error {
	return f.do(func() error { f.locals[p] = true; return nil }, "local %s", p)
}

func (f *fakeDataPath) DeleteLocal(p netip.Prefix) error {
	return f.do(func() error { delete(f.locals, p); return nil }, "delete local %s", p)
}

func (f *fakeDataPath) AdjacencyKeys() []adjacency.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := map[adjacency.Key]bool{}
	for _, s := range f.sids {
		if s.NextHop.IsValid() || s.Interface != "" {
			set[adjacency.Key{NextHop: s.NextHop, Interface: s.Interface}] = true
		}
	}
	for _, p := range f.policies {
		for _, l := range p.SegmentLists {
			set[adjacency.Key{NextHop: l.Segments[0]}] = true
		}
	}
	for _, via := range f.routes {
		for _, k := range via {
			set[k] = true
		}
	}
	return slices.Collect(maps.Keys(set))
}

// Rehearse has no room for the last of uses if noRoom says so.
func (f *fakeDataPath) Rehearse(uses []adjacency.Use) (at int, err error) {
	f.rehearsed = uses
	return len(uses) - 1, f.noRoom
}

func (f *fakeDataPath) AdjacencyChanges() (fresh, gone []adjacency.Key) {
	now := f.AdjacencyKeys()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range now {
		if !slices.Contains(f.adjacencies, k) {
			fresh = append(fresh, k)
		}
	}
	for _, k := range f.adjacencies {
		if !slices.Contains(now, k) {
			gone = append(gone, k)
		}
	}
	f.adjacencies = now
	return fresh, gone
}

func (f *fakeDataPath) SetNextHop(k adjacency.Key, n *adjacency.NextHop) error {
	return f.do(func() error { f.hops[k] = n; return nil }, "next hop %s", apply.KeyName(k))
}

func (f *fakeDataPath) SetShared(k adjacency.Key, members []adjacency.Member) error {
	return f.do(func() error { f.hops[k] = nil; return nil }, "next hop %s is shared by %d", apply.KeyName(k), len(members))
}

func (f *fakeDataPath) PutRoute(table uint32, p netip.Prefix, via []adjacency.Key) error {
	return f.do(func() error { f.routes[netdev.RouteKey{Table: table, Prefix: p}] = via; return nil }, "route %d %s", table, p)
}

func (f *fakeDataPath) DeleteRoute(table uint32, p netip.Prefix) error {
	return f.do(func() error { delete(f.routes, netdev.RouteKey{Table: table, Prefix: p}); return nil }, "delete route %d %s", table, p)
}

func (f *fakeDataPath) PutDevice(ifindex int) error {
	return f.do(func() error { f.devices[ifindex] = true; return nil }, "device %d", ifindex)
}

func (f *fakeDataPath) DeleteDevice(ifindex int) error {
	return f.do(func() error { delete(f.devices, ifindex); return nil }, "delete device %d", ifindex)
}

func (f *fakeDataPath) Sweep() error {
	return f.do(func() error { return nil }, "sweep")
}

func (f *fakeDataPath) Attached() map[int]attach.Mode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.attached)
}

func (f *fakeDataPath) Build() string { return "fake" }
func (f *fakeDataPath) Close() error  { return f.do(func() error { return nil }, "close") }

func (f *fakeDataPath) Outcomes() ([]counter.Counter, error) {
	out := make([]counter.Counter, len(reason.All()))
	for i := range out {
		out[i] = counter.Counter{Packets: uint64(i), Bytes: uint64(100 * i)}
	}
	return out, nil
}

func (f *fakeDataPath) SIDCounter(p netip.Prefix) (counter.Counter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.sids[p]; !ok && !f.sessionSIDs[p] {
		return counter.Counter{}, fmt.Errorf("no SID %s", p)
	}
	return counter.Counter{Packets: 7, Bytes: 700}, nil
}

func (f *fakeDataPath) ListCounters(policy string) (out []counter.Counter, all counter.Counter, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out = make([]counter.Counter, len(f.policies[policy].SegmentLists))
	for i := range out {
		out[i] = counter.Counter{Packets: uint64(i + 1), Bytes: uint64(10 * (i + 1))}
		all.Add(out[i])
	}
	return out, all, nil
}

func (f *fakeDataPath) TunnelCounters(string) (received, sent counter.Counter, err error) {
	return counter.Counter{Packets: 1, Bytes: 2}, counter.Counter{Packets: 3, Bytes: 4}, nil
}

func (f *fakeDataPath) Usage() map[string]table.Usage {
	return map[string]table.Usage{"sids": {Used: 2, Max: 10}}
}

func (f *fakeDataPath) Inject(frame []byte, _ int) error {
	f.injected <- frame
	return nil
}

func (f *fakeDataPath) InjectToUE(_ uint64, packet []byte) error {
	return f.Inject(packet, 1)
}

func (f *fakeDataPath) SessionOf(uint32) uint64 { return 0 }
func (f *fakeDataPath) IsSilent(int) bool       { return false }

func (f *fakeDataPath) InjectGTPU(message []byte, _, _ uint8) error {
	return f.InjectToUE(0, message)
}

func (f *fakeDataPath) InjectFor(_ uint64, frame []byte, _ int, _ bool) error {
	f.injected <- frame
	return nil
}

func (f *fakeDataPath) InjectKept(frame []byte, ifindex int) error { return f.Inject(frame, ifindex) }
func (f *fakeDataPath) Open(uint64, uint16, bool) bool             { return true }
func (f *fakeDataPath) Shut(uint64, uint16)                        {}
func (f *fakeDataPath) Taken(uint32)                               {}

func (f *fakeDataPath) Punts(ctx context.Context, each func(event.Punt)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-f.punts:
			each(p)
		}
	}
}

func (f *fakeDataPath) explain(frames [][]byte, ifindex int) (out []event.TraceEvent, err error) {
	for _, frame := range frames {
		out = append(out, event.TraceEvent{Ifindex: ifindex, In: frame, Policy: "south", List: 1, Reason: reason.Passed})
	}
	return out, nil
}

func (f *fakeDataPath) SetTrace(filter *event.TraceFilter) error {
	return f.do(func() error { f.filter = filter; return nil }, "trace %t", filter != nil)
}

func (f *fakeDataPath) Trace(ctx context.Context, each func(event.TraceEvent)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.traced:
			each(e)
		}
	}
}

// fakeWatcher hands out the snapshots that a test gives it.
type fakeWatcher struct {
	options netdev.Options
	mu      sync.Mutex
	tables  []uint32
	kept    []netdev.Key
}

func (w *fakeWatcher) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (w *fakeWatcher) Close()                        {}

func (w *fakeWatcher) SetTables(t []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tables = t
}

func (w *fakeWatcher) KeepAlive(k []netdev.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = k
}

// links is a network of Ethernet devices without routes, numbered from 1.
func links(names ...string) *netdev.Snapshot {
	s := &netdev.Snapshot{}
	for i, name := range names {
		s.Links = append(s.Links, link(i+1, name))
	}
	return s
}

func link(index int, name string) netdev.Link {
	return netdev.Link{
		Index: index, Name: name, Kind: "veth", MTU: 1500, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)},
		Up: true, Carrier: true, Ethernet: true, XDP: netdev.XDPBasic | netdev.XDPRedirect | netdev.XDPTransmit,
	}
}

// indexOf is where the first call that starts so stands.
func indexOf(tb testing.TB, calls []string, prefix string) int {
	tb.Helper()
	i := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, prefix) })
	if i < 0 {
		tb.Fatalf("no call %q among %q", prefix, calls)
	}
	return i
}
