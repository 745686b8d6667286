package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/golden"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// rig is a loaded data path in a network namespace of its own, whose tables
// say what a model.Network says. Its methods run on the goroutine that is
// inside of the namespace.
type rig struct {
	d       *DataPlane
	run     func(frame []byte, ifindex int) (verdict uint32, out []byte, err error)
	network model.Network
	keys    []counterKey

	mu     sync.Mutex
	punts  []event.Punt
	events []model.Event
}

// inNamespace runs f in a namespace that has an interface for each port, with
// the ifindex that the network gives it, and forwards.
func inNamespace(t testing.TB, ports []model.Port, f func()) {
	t.Helper()
	ns := netns.New(t)
	ns.Sysctl(t, "net.ipv4.ip_forward", "1")
	ns.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	// The kernel's own packets would be counted with those of the rows.
	ns.Sysctl(t, "net.ipv6.conf.default.dad_transmits", "0")
	ns.Sysctl(t, "net.ipv6.conf.default.mldv2_unsolicited_report_interval", "3600000") // ms
	for _, p := range ports {
		if p.Name == "lo" {
			continue // it is there
		}
		ns.IP(t, fmt.Sprintf("link add name %s index %d type veth peer name %s-peer index %d", p.Name, p.Ifindex, p.Name, p.Ifindex+100))
		ns.IP(t, "link set up dev "+p.Name)
		ns.IP(t, "link set up dev "+p.Name+"-peer")
	}
	ns.Do(t, f)
}

// rowFlows is room for flows of pods.
const rowFlows = 1 << 12

// newRig loads the data path, whose tables are empty.
func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigAt(t, "")
}

// newRigAt pins it as well, unless the path is empty.
func newRigAt(t testing.TB, path string) *rig {
	t.Helper()
	d, err := Open(again(t, Options{PinPath: path, Limits: Limits{SIDs: 1 << 17, Sessions: 1 << 17, Filters: 1 << 12, NATAddresses: 8, PodFlows: rowFlows}}))
	if err != nil {
		t.Fatalf("%+v", err)
	}
	r := &rig{d: d, run: d.Frames.Test}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() {
		done <- d.Punts.Read(ctx, func(p event.Punt) {
			if p.Kind == event.PuntBuffer {
				d.Sessions.Turns.Taken(p.Entry)
			}
			r.mu.Lock()
			r.punts = append(r.punts, p)
			r.mu.Unlock()
		})
	}()
	go func() {
		done <- d.SessionEvents(ctx, func(e SessionEvent) {
			r.mu.Lock()
			r.events = append(r.events, model.Event{Session: e.Session, Rule: e.Rule, Kind: eventKinds[e.Kind]})
			r.mu.Unlock()
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// program writes a network into the tables, what is referred to first. Errors
// to senders are not limited, so that every one can be seen.
func (r *rig) program(n model.Network) error {
	r.network = n
	r.keys = r.counterKeys()
	c := &r.network.Config
	s := Settings{HopLimit: c.Encapsulation.HopLimit, Source: c.Encapsulation.Source, ErrorsPerSecond: 1_000_000_000,
		Domain: c.SRDomain(), GTPUAddresses: c.GTPU.Addresses, Pools: c.GTPU.Pools,
		UEPools: n.UEPools, Protected: n.Protected, MayReach: n.MayReach, MSSClamp: n.MSSClamp, MSSClampGateway: c.GTPU.MSSClamp, RateBurst: n.RateBurst}
	for _, l := range c.Locators {
		s.Locators = append(s.Locators, settings.Locator{Prefix: l.Prefix, FunctionBits: l.FunctionBits})
	}
	for _, one := range n.NATs {
		s.NATs = append(s.NATs, settings.NAT{Pool: one.Pool, NAT: one.WithDefaults()})
	}
	if err := r.d.SetSettings(s); err != nil {
		return err
	}
	classes, err := class.Compile(c.TrafficClasses, nil)
	if err != nil {
		return err
	}
	// A tunnel that is switched to exists before the one that switches.
	tunnels := slices.Clone(c.Tunnels)
	slices.SortStableFunc(tunnels, func(a, b gtpu.Tunnel) int { return len(a.SwitchTo) - len(b.SwitchTo) })
	for _, put := range []error{
		each(r.network.Ports, func(p model.Port) error {
			if err := r.d.Ports.PutDevice(p.Ifindex); err != nil {
				return err
			}
			set := portWithRoles(c, p.Name)
			set.Classifier, set.Origins = r.classifier(p.Name), classes.Origins(p.Name)
			set.PartialChecksum, set.MTU, set.MAC = p.PartialChecksum, p.MTU, p.MAC
			return r.d.Ports.Set(p.Ifindex, set)
		}),
		each(c.Policies, r.d.Policies.Put),
		each(tunnels, r.d.Tunnels.Put),
		each(c.SIDs, r.putSID),
		r.d.Classes.Set(classNames(c)),
		each(r.steering(classes), r.d.Steering.PutClassified),
		each(r.network.Own(), r.d.Steering.PutLocal),
		each(r.network.Routes, r.putRoute),
		r.d.Sessions.SetWays(r.sessionWays(classes)),
		r.putSessions(),
		each(n.PathMTUs, func(p model.PathMTU) error { return SetPathMTU(r.d, p.MTU, p.Ends...) }),
	} {
		if put != nil {
			return put
		}
	}
	return r.setNextHops()
}

func adjacencyKey(k model.Key) AdjacencyKey {
	return AdjacencyKey{NextHop: k.NextHop, Interface: k.Interface, Table: k.Table}
}

func each[T any](list []T, put func(T) error) error {
	for i, v := range list {
		if err := put(v); err != nil {
			return fmt.Errorf("%T %d: %w", v, i, err)
		}
	}
	return nil
}

// classifier is that of what arrives by a port.
func (r *rig) classifier(name string) class.Classifier {
	classes, err := class.Compile(r.network.Config.TrafficClasses, nil)
	if err != nil {
		return class.Classifier{}
	}
	return classes.Classifier(class.Source{Kind: class.SourceInterface, Interface: name})
}

// steering is what plan.Compile makes of the entries: policies without a list are not valid.
func (r *rig) steering(classes *class.Table) []class.Entry {
	policies := map[string]srpolicy.Policy{}
	for _, p := range r.network.Config.Policies {
		policies[p.Name] = p
	}
	return classes.Steer(r.network.Config.Steering, policies, func(p string) bool { return len(policies[p].SegmentLists) > 0 }, (*overlay.Ends)(nil).Lost)
}

// sessionWays is what plan.Compile makes of slices whose packets take any of the policies.
func (r *rig) sessionWays(classes *class.Table) class.SessionWays {
	policies := map[string]srpolicy.Policy{}
	var names []string
	for _, p := range r.network.Config.Policies {
		if policies[p.Name] = p; !p.L2() {
			names = append(names, p.Name)
		}
	}
	return classes.OfSessions(map[string][]string{"a": names, "b": names}, policies, func(p string) bool { return len(policies[p].SegmentLists) > 0 })
}

func classNames(c *config.Config) (names []string) {
	for _, one := range c.TrafficClasses {
		names = append(names, one.Name)
	}
	return names
}

func (r *rig) putRoute(route model.Route) error {
	var via []AdjacencyKey
	for _, k := range route.Via {
		via = append(via, adjacencyKey(k))
	}
	return r.d.Routes.Put(route.Table, route.Prefix, via)
}

// clear empties the tables again, what refers first.
func (r *rig) clear() error {
	c := &r.network.Config
	classes, err := class.Compile(c.TrafficClasses, nil)
	if err != nil {
		return err
	}
	tunnels := slices.Clone(c.Tunnels)
	slices.SortStableFunc(tunnels, func(a, b gtpu.Tunnel) int { return len(b.SwitchTo) - len(a.SwitchTo) })
	return errors.Join(
		r.deleteSessions(),
		r.d.Sessions.SetWays(nil),
		r.forgetMappings(),
		reap(r.d),
		each(r.network.PathMTUs, func(p model.PathMTU) error { return SetPathMTU(r.d, 0, p.Ends...) }),
		each(r.network.Routes, func(route model.Route) error { return r.d.Routes.Delete(route.Table, route.Prefix) }),
		each(r.network.Own(), r.d.Steering.DeleteLocal),
		each(r.steering(classes), func(e class.Entry) error { return r.d.Steering.Delete(e.Steering) }),
		each(c.SIDs, r.deleteSID),
		each(tunnels, func(t gtpu.Tunnel) error { return r.d.Tunnels.Delete(t.Name) }),
		each(c.Policies, func(p srpolicy.Policy) error { return r.d.Policies.Delete(p.Name) }),
		each(r.network.Ports, func(p model.Port) error {
			return errors.Join(r.d.Ports.Delete(p.Ifindex), r.d.Ports.DeleteDevice(p.Ifindex))
		}),
	)
}

// forgetMappings takes the NATs out, so that the same ones begin without mappings.
func (r *rig) forgetMappings() error {
	s := r.d.settings.Want
	s.NATs = nil
	return r.d.SetSettings(s)
}

// reap gives up what no session refers to any more, peers among it.
func reap(d *DataPlane) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Sessions.Reap()
}

// setNextHops resolves what the tables refer to; what the network does not
// know is not ready.
func (r *rig) setNextHops() error {
	before := r.d.Adjacencies.Keys()
	for _, k := range before {
		var hop *adjacency.NextHop
		var shared []adjacency.Member
		for _, a := range r.network.Adjacencies {
			if adjacencyKey(a.Key) == (AdjacencyKey{NextHop: k.NextHop, Interface: k.Interface, Table: k.Table}) {
				for _, m := range a.Shared {
					key := adjacencyKey(m)
					key.MTU = k.MTU
					shared = append(shared, adjacency.Member{Key: key, Weight: 1})
				}
				hop = &adjacency.NextHop{Ifindex: r.ifindex(a.Out), MTU: a.MTU, Pass: a.Pass, Src: net.HardwareAddr(a.Src[:])}
				if !a.Pass || a.Dst != (model.MAC{}) {
					hop.Dst = net.HardwareAddr(a.Dst[:])
				}
				if k.MTU != 0 {
					hop.MTU = min(hop.MTU, k.MTU)
				}
				for _, v := range a.VLAN {
					hop.VLANs = append(hop.VLANs, adjacency.VLAN{TPID: v.TPID, ID: v.ID})
				}
			}
		}
		set := func() error { return r.d.Adjacencies.SetNextHop(k, hop) }
		if shared != nil {
			set = func() error { return r.d.Adjacencies.SetShared(k, shared) }
		}
		if err := set(); err != nil {
			return err
		}
	}
	if len(r.d.Adjacencies.Keys()) > len(before) { // those that are shared
		return r.setNextHops()
	}
	return nil
}

func (r *rig) ifindex(name string) int {
	for _, p := range r.network.Ports {
		if p.Name == name {
			return p.Ifindex
		}
	}
	return 0
}

// counterKey is one thing that counts, and how to read it.
type counterKey struct {
	names []string // as the model calls them
	read  func() ([]counter.Counter, error)
}

func (r *rig) counterKeys() []counterKey {
	var keys []counterKey
	c := &r.network.Config
	outcomes := make([]string, len(reason.All()))
	for i, reason := range reason.All() {
		outcomes[i] = model.OutcomeName(model.Reason(reason.String()))
	}
	keys = append(keys, counterKey{outcomes, r.d.Outcomes})
	sid := func(p netip.Prefix) {
		keys = append(keys, counterKey{[]string{model.SIDName(p)}, func() ([]counter.Counter, error) {
			v, err := r.d.SIDs.Counter(p)
			return []counter.Counter{v}, err
		}})
	}
	for _, s := range c.SIDs {
		sid(s.SID)
	}
	for _, p := range c.Policies {
		names := make([]string, len(p.Lists()))
		for i := range names {
			names[i] = model.ListName(p.Name, i)
		}
		keys = append(keys, counterKey{names, func() ([]counter.Counter, error) {
			lists, _, err := r.d.Policies.Counters(p.Name)
			return lists, err
		}})
		if p.BindingSID.IsValid() {
			sid(netip.PrefixFrom(p.BindingSID, 128))
		}
	}
	for _, one := range c.TrafficClasses {
		keys = append(keys, counterKey{[]string{model.ClassName(one.Name)}, func() ([]counter.Counter, error) {
			v, err := r.d.Classes.Read(one.Name)
			return []counter.Counter{v}, err
		}})
	}
	for _, t := range c.Tunnels {
		keys = append(keys, counterKey{[]string{model.ReceivedName(t.Name), model.SentName(t.Name)}, func() ([]counter.Counter, error) {
			received, sent, err := r.d.Tunnels.Counters(t.Name)
			return []counter.Counter{received, sent}, err
		}})
	}
	return append(keys, r.sessionCounters()...)
}

// counters reads everything that counts; what is 0 is left out.
func (r *rig) counters(t testing.TB) model.Counts {
	t.Helper()
	counts := model.Counts{}
	for _, k := range r.keys {
		values, err := k.read()
		if err != nil {
			t.Fatalf("%s: %v", k.names[0], err)
		}
		if len(values) != len(k.names) {
			t.Fatalf("%s: %d counters, want %d", k.names[0], len(values), len(k.names))
		}
		for i, v := range values {
			if v != (counter.Counter{}) {
				counts[k.names[i]] = model.Counter(v)
			}
		}
	}
	return counts
}

// since is what was added to counters.
func since(before, after model.Counts) model.Counts {
	d := model.Counts{}
	for name, v := range after {
		if v != before[name] {
			d[name] = model.Counter{Packets: v.Packets - before[name].Packets, Bytes: v.Bytes - before[name].Bytes}
		}
	}
	return d
}

// takePunts waits for a number of records, and returns all there are.
func (r *rig) takePunts(want int) []event.Punt { return waitFor(&r.mu, &r.punts, want) }

// waitFor empties a list that somebody else fills, once there is enough in it,
// or after a while.
func waitFor[T any](mu *sync.Mutex, list *[]T, want int) []T {
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		mu.Lock()
		if len(*list) >= want || time.Now().After(deadline) {
			all := *list
			*list = nil
			mu.Unlock()
			return all
		}
		mu.Unlock()
	}
}

var verdictOf = map[string]uint32{"forwarded": xdp.VerdictRedirect, "replied": xdp.VerdictRedirect, "passed": xdp.VerdictPass,
	"slow_path": xdp.VerdictDrop, "dropped": xdp.VerdictDrop}

var puntKinds = map[model.PuntKind]event.PuntKind{model.PuntReassemble: event.PuntReassemble, model.PuntFragment: event.PuntFragment,
	model.PuntICMP: event.PuntICMP, model.PuntErrorIndication: event.PuntErrorIndication,
	model.PuntBuffer: event.PuntBuffer, model.PuntDuplicate: event.PuntDuplicate, model.PuntFlood: event.PuntFlood, model.PuntSend: event.PuntSend, model.PuntPathMTU: event.PuntPathMTU,
	model.PuntFragmentOuter: event.PuntFragmentOuter}

// TestGolden runs every row of testdata/behavior and testdata/session through
// the loaded program: the verdict, the bytes, the counters, the records for the
// slow path and the events are exactly those that the row wants.
func TestGolden(t *testing.T) {
	files := goldenFiles(t)
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		for _, f := range files {
			r.goldenFile(t, f)
		}
	})
}

func goldenFiles(t *testing.T) (files []*golden.File) {
	t.Helper()
	for _, directory := range []string{"behavior", "session"} {
		more, err := golden.LoadAll("testdata/" + directory)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	return files
}

// allPorts are those of all files; a name has one ifindex in all of them.
func allPorts(files []*golden.File) []model.Port {
	var ports []model.Port
	for _, f := range files {
		for _, p := range f.Network.Ports {
			if !slices.ContainsFunc(ports, func(q model.Port) bool { return q.Name == p.Name }) {
				ports = append(ports, p)
			}
		}
	}
	return ports
}

// goldenFile runs a file's rows. The tables are filled before and emptied
// after them, so that nothing of one file can help another.
func (r *rig) goldenFile(t *testing.T, f *golden.File) {
	t.Helper()
	if err := r.program(f.Network); err != nil {
		t.Fatalf("%s: %v", f.Name(), err)
	}
	for i := range f.Rows {
		f.Rows[i].Name = f.Name() + ": " + f.Rows[i].Name
		r.goldenRow(t, &f.Rows[i])
	}
	time.Sleep(5 * time.Millisecond)
	if stray := r.takePunts(0); len(stray) != 0 {
		t.Errorf("%s: %d records for the slow path that no row wants", f.Name(), len(stray))
	}
	if stray := r.takeEvents(0); len(stray) != 0 {
		t.Errorf("%s: events that no row wants: %v", f.Name(), stray)
	}
	if err := r.clear(); err != nil {
		t.Fatalf("%s: %v", f.Name(), err)
	}
}

func (r *rig) goldenRow(t *testing.T, row *golden.Row) {
	t.Helper()
	frame, ifindex := row.Input()
	time.Sleep(row.Wait())
	before := r.counters(t)
	verdict, out, err := r.run(frame, ifindex)
	if err != nil {
		t.Fatalf("%s: %v", row.Name, err)
	}
	counted := since(before, r.counters(t))
	if diff := cmp.Diff(model.Counts(row.Want.Counters), counted); diff != "" {
		t.Errorf("%s: counters (-want +got):\n%s", row.Name, diff)
	}
	want := verdictOf[row.Want.Verdict]
	if verdict != want {
		t.Errorf("%s: %s, want %s", row.Name, xdp.VerdictName(verdict), xdp.VerdictName(want))
		r.takePunts(0)
		return
	}
	wantOut := []byte(row.Want.Out)
	if wantOut == nil {
		wantOut = frame
	}
	if verdict != xdp.VerdictDrop && !bytes.Equal(out, wantOut) {
		t.Errorf("%s: frame\nwant %x\ngot  %x", row.Name, wantOut, out)
	}
	r.goldenPunt(t, row, frame, ifindex)
}

// sameAddr compares addresses, whose fields are not exported.
var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// meaningful leaves out what only an ICMP error has, and the table and the entry, which
// the model does not tell.
func meaningful(p event.Punt) event.Punt {
	p.Table, p.Link, p.Entry = 0, Link{}, 0
	if p.Kind != event.PuntICMP {
		p.Type, p.Code = 0, 0
	}
	switch p.Kind {
	case event.PuntICMP: // whose it is goes with the table
		p.Session, p.Rule = 0, 0
	case event.PuntReassemble, event.PuntBuffer, event.PuntDuplicate, event.PuntFlood, event.PuntSend: // what a session's is about is in Session and Rule
		p.Info = 0
	}
	return p
}

// goldenPunt compares records and events.
func (r *rig) goldenPunt(t *testing.T, row *golden.Row, frame []byte, ifindex int) {
	t.Helper()
	var want []event.Punt
	wanted := row.Want.Copies
	if row.Want.Punt != nil {
		wanted = append(slices.Clone(wanted), *row.Want.Punt)
	}
	for _, w := range wanted {
		data := frame[:min(len(frame), 2048)]
		if w.Data != nil {
			data = w.Data
		}
		egress := 0
		if w.Kind == model.PuntFragmentOuter {
			i := slices.IndexFunc(r.network.Ports, func(p model.Port) bool { return p.Name == row.Want.Egress })
			egress = r.network.Ports[i].Ifindex
		}
		want = append(want, event.Punt{Kind: puntKinds[w.Kind], Ifindex: ifindex, Egress: egress, Info: w.Info, L3: w.L3, Type: w.Type, Code: w.Code, Rewritten: w.Rewritten,
			Session: w.Session, Rule: w.Rule, Data: data})
	}
	if len(want) > 0 {
		got := r.takePunts(len(want))
		for i := range got {
			got[i] = meaningful(got[i])
		}
		if diff := cmp.Diff(want, got, sameAddr); diff != "" {
			t.Errorf("%s: record for the slow path (-want +got):\n%s", row.Name, diff)
		}
	}
	if want := row.Want.Events; len(want) > 0 {
		if diff := cmp.Diff(want, r.takeEvents(len(want))); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", row.Name, diff)
		}
	}
}

// portWithRoles is what the agent makes of an interface's roles, peers and host.
func portWithRoles(c *config.Config, name string) (p port.Port) {
	for _, in := range c.Interfaces {
		if in.Name != name {
			continue
		}
		in = c.PortOf(in)
		for _, r := range in.Roles {
			p.Roles |= port.RoleOf[string(r)]
		}
		host, _ := in.HostAccess() // of a valid configuration
		p.Access = port.Access{Peers: in.Peers, HostAny: host.Any, HostForward: host.Forward}
		for _, s := range host.Services {
			p.Access.Services = append(p.Access.Services, port.Service(s))
		}
	}
	return p
}
