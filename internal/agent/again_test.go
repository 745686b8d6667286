package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// fails has calls of the data path that begin so fail, until it is called without.
func (f *fakeDataPath) fails(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failOn = nil
	if prefix != "" {
		f.failOn = func(call string) error {
			if strings.HasPrefix(call, prefix) {
				return errors.New("no memory")
			}
			return nil
		}
	}
}

// beyond is the underlay with a route to another prefix.
func beyond() *netdev.Snapshot {
	s := underlay()
	s.Routes = append(s.Routes, netdev.Route{Table: netdev.TableMain, Prefix: prefix("2001:db9::/64"), Type: netdev.RouteUnicast,
		Hops: []netdev.Hop{{Gateway: addr("2001:db8::9"), Ifindex: 1, Weight: 1}}})
	return s
}

// A way that the network has packets take, and that the data path would not: it is
// what it was until that succeeds.
func TestPathIsTriedAgain(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile+`
policies: [{name: near, color: 77, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: [{segments: ['2001:db8::7', 'fc00:0:2:6::']}]}]
candidate_paths: [{name: far, policy: near, preference: 300, segment_lists: [{segments: ['2001:db9::1', 'fc00:0:2:6::']}]}]
`, newFake()).start(t, underlay())
	d.dp.fails("policy near")
	d.change(t, beyond(), "it was tried", func() bool { return d.core.writer.Failures[desired.Ref{Kind: desired.KindPolicy, Key: "near"}] != nil })
	if first, path := d.firstOf("near"), d.core.writer.Tables.ActivePath("near"); first != "2001:db8::7" || path != "" {
		t.Errorf("the data path has %s, and the agent says that %q is active", first, path)
	}
	d.dp.fails("")
	d.core.retry()
	if first, path := d.firstOf("near"), d.core.writer.Tables.ActivePath("near"); first != "2001:db9::1" || path != "far" || len(d.core.writer.Failures) > 0 {
		t.Errorf("tried again: the data path has %s, the agent says %q, failures %v", first, path, d.core.writer.Failures)
	}
}

// What somebody else removed is made again, and what masquerade has not made is not looked for.
func TestMasqueradeIsMadeAgain(t *testing.T) {
	for _, on := range []bool{true, false} {
		yaml := strings.Replace(clusterFile, "mode: static\n", fmt.Sprintf("mode: static\n  masquerade: %v\n", on), 1)
		d := prepare(t, t.TempDir(), yaml, newFake()).start(t, underlay())
		d.core.retry()
		d.kernel.mu.Lock()
		was := d.kernel.masked
		d.kernel.masked = [2][]netip.Prefix{}
		d.kernel.mu.Unlock()
		d.core.retry()
		d.kernel.mu.Lock()
		got := d.kernel.masked
		d.kernel.mu.Unlock()
		if on && (len(was[0]) != 2 || !reflect.DeepEqual(got, was)) || !on && got[0] != nil {
			t.Errorf("masquerade %v: %v, then %v", on, was, got)
		}
	}
}

const anyAddressFile = `
overlay:
  mode: static
  node: node-1
  uplinks: [eth0]
  locator: 'fc00:0:1::/48'
  pod_prefixes: [10.244.1.0/24]
  nodes: [{name: node-2, address: '2001:db8::2', locator: 'fc00:0:2::/48', prefixes: [10.244.2.0/24]}]
`

// The node's address changes, and what follows from that cannot be put at once.
func TestAnotherAddressIsTriedAgain(t *testing.T) {
	d := prepare(t, t.TempDir(), anyAddressFile, newFake()).start(t, underlay())
	moved := underlay()
	moved.Addresses[0].Prefix = prefix("2001:db8::1:1/64")
	d.dp.fails("policy node-2")
	d.change(t, moved, "the snapshot came", func() bool { return d.core.links == moved })
	d.core.retry()
	if got := d.dp.policies["node-2:ipv4"].Source; got != addr("2001:db8::1") {
		t.Errorf("while it fails the source is %s", got)
	}
	d.dp.fails("")
	d.core.retry()
	if got := d.dp.policies["node-2:ipv4"].Source; got != addr("2001:db8::1:1") || d.core.goal.Self.Address != got {
		t.Errorf("tried again: the source is %s, this node %s", got, d.core.goal.Self.Address)
	}
}

// An address that is added to the uplink, such as a virtual one that wanders among
// nodes, does not take the place of the node's, which goes when that goes.
func TestAddressStays(t *testing.T) {
	d := prepare(t, t.TempDir(), anyAddressFile, newFake()).start(t, underlay())
	more := underlay()
	more.Addresses = append([]netdev.Address{{Ifindex: 1, Prefix: prefix("2001:db8::/127")}}, more.Addresses...)
	d.change(t, more, "the snapshot came", func() bool { return d.core.links == more })
	if got := d.dp.policies["node-2:ipv4"].Source; got != addr("2001:db8::1") {
		t.Errorf("with another one the source is %s", got)
	}
	other := underlay()
	other.Addresses = more.Addresses[:1]
	d.change(t, other, "the only one is taken", func() bool { return d.dp.policies["node-2:ipv4"].Source == addr("2001:db8::") })
}

// An uplink that is made anew has none of what the one before was made ready with.
func TestUplinkMadeAnew(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.kernel.mu.Lock()
	d.kernel.ready = nil
	d.kernel.mu.Unlock()
	anew := underlay()
	anew.Links[0].Index, anew.Addresses[0].Ifindex, anew.Routes[0].Hops[0].Ifindex = 7, 7, 7
	d.change(t, anew, "it is attached to, and not to the one before", func() bool { return d.dp.uplinks[7] && !d.dp.uplinks[1] })
	d.kernel.mu.Lock()
	defer d.kernel.mu.Unlock()
	if !slices.Contains(d.kernel.ready, "eth0") {
		t.Errorf("made ready: %q", d.kernel.ready)
	}
}

// A disk that takes nothing is neither written to nor reported all the time.
func TestDiskThatIsFull(t *testing.T) {
	var text bytes.Buffer
	d := prepare(t, t.TempDir(), clusterFile, newFake())
	d.log = slog.New(slog.NewTextHandler(&text, nil))
	d.start(t, underlay())
	if err := d.stop(); err != nil { // its state file is closed now
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d.core.store.Note(observed.State{})
	if err := d.core.store.Keep(ctx); err != nil {
		t.Error(err)
	}
	if n := strings.Count(text.String(), "cannot write to disk"); n != 1 {
		t.Errorf("reported %d times in %s", n, time.Second)
	}
}

// A path that conflicts with another one is reported as refused, and is used once the
// other one is gone.
func TestRefusedPathIsTriedAgain(t *testing.T) {
	d, k := byKube(t, t.TempDir(), newFake())
	k.SetSelf(kube.Self{UID: "1", PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}, Addresses: []netip.Addr{addr("2001:db8::1")}})
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.Locator = prefix("fc00:0:1::/48") }})
	path := func(name, endpoint string) kube.Path {
		return kube.Path{Name: name, Origin: "configmap x", Advertised: srpolicy.Advertised{Color: 4, Endpoint: addr(endpoint), Preference: 200, BindingSID: addr("fc00:ff::1"),
			SegmentLists: []srpolicy.SegmentList{{Weight: 1, Segments: []netip.Addr{addr("2001:db8::7"), addr("fc00:0:2:4::")}}}}}
	}
	k.PutPath(path("first", "2001:db8::2"))
	k.PutPath(path("second", "2001:db8::3"))
	verdict := func(name string) (v kube.Verdict) {
		for _, o := range d.kubeVerdicts() {
			if o.Path == name {
				v = o
			}
		}
		return v
	}
	waits(t, "both are judged", func() bool { return verdict("first").Active && strings.Contains(verdict("second").Why, "fc00:ff::1") })
	if v := verdict("second"); v.Valid || v.Active {
		t.Errorf("verdict %+v", v)
	}
	d.core.observeNext(true)
	waits(t, "it is refused again", func() bool { return verdict("second").Why != "" })
	k.WithdrawPath("first")
	waits(t, "the first is gone", func() bool { return verdict("first") == kube.Verdict{} })
	d.core.observeNext(true)
	waits(t, "the second is used", func() bool { return verdict("second").Active })
	k.PutPath(path("first", "2001:db8::2"))
	waits(t, "now the first is refused", func() bool { return verdict("first").Why != "" && verdict("second").Active })
	k.WithdrawPath("first")
	d.core.observeNext(true)
	k.WithdrawPath("second")
	waits(t, "nothing is left", func() bool { return len(d.kubeVerdicts()) == 0 })
}

// waits for what takes locks of its own.
func waits(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 10 s still not so: %s", what)
		}
	}
}

// Tenants' SIDs, which have no table of the kernel's, keep no update of others away.
func TestUpdatesBesideTenants(t *testing.T) {
	d := prepare(t, t.TempDir(), strings.Replace(byBGPFile, "bgp:\n", "  tenants: [{name: red, id: 7, namespaces: [lab], pools: [10.9.0.0/16]}]\nbgp:\n", 1), newFake()).start(t, underlay())
	d.core.queue.Push(observed.Update{Apply: func(s *observed.State) { s.Self.PodCIDRs = []netip.Prefix{prefix("10.244.0.0/16")} }})
	d.holds(t, "the update is used", func() bool { return len(d.core.goal.Observed.Self.PodCIDRs) == 1 })
}

// What does not hold together by itself is nobody's update: the daemon goes on.
func TestNothingToApplyAgain(t *testing.T) {
	d := prepare(t, t.TempDir(), clusterFile, newFake()).start(t, underlay())
	d.core.mu.Lock()
	broken := *d.core.goal
	broken.Desired.Process.Log.Level = "loud"
	d.core.goal = &broken
	d.core.mu.Unlock()
	d.core.observeNext(true)
}
