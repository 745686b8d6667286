package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/netdev"
)

const gateway = `
interfaces:
  - {name: eth0, roles: [n3, sr], peers: any, host: any}
  - {name: eth1, roles: [edge]}
encapsulation:
  source: fc00::1
domain: [fc00::/16]
locators:
  - name: main
    prefix: fc00:1::/48
sids:
  - sid: fc00:1:0:1::/64
    behavior: End
  - sid: fc00:1:0:2::/64
    behavior: End.X
    next_hop: fe80::2
    interface: eth0
policies:
  - name: south
    segment_lists:
      - segments: [fc00:2:0:1::, fc00:3:0:1::]
      - weight: 3
        segments: [fc00:4:0:1::]
steering:
  - prefix: 10.1.0.0/16
    policy: south
gtpu:
  addresses: [192.0.2.1]
tunnels:
  - name: up
    local_teid: 1
    switch_to: down
    remote: 192.0.2.7
    remote_teid: 11
  - name: down
    local_teid: 2
    switch_to: up
    remote: 192.0.2.8
    remote_teid: 12
`

// daemon is an agent on fakes, with its files in a directory of its own.
type daemon struct {
	*Agent
	dp      *fakeDataPath
	watcher *fakeWatcher
	kernel  *fakeHost
	dir     string
	stop    func() error
}

func parse(tb testing.TB, yaml string) *config.Config {
	tb.Helper()
	c, err := config.Parse([]byte(yaml))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// prepare writes the file and makes the agent; files from an earlier one in the
// same directory are its.
func prepare(tb testing.TB, dir, yaml string, dp *fakeDataPath) *daemon {
	tb.Helper()
	path := filepath.Join(dir, "culvert.yaml")
	if yaml != "" {
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	a, err := New(Options{
		ConfigPath: path, StatePath: filepath.Join(dir, "state.db"), PinPath: filepath.Join(dir, "pins"),
		Version: "test", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	d := &daemon{Agent: a, dp: dp, watcher: &fakeWatcher{}, kernel: newFakeHost(), dir: dir}
	a.open.dataPath = func(dataplane.Options, *bbolt.DB) (*dataPath, error) { return dp.joined(), nil }
	a.open.host = func() (host, error) { return d.kernel, nil }
	a.open.watcher = func(o netdev.Options) (watcher, error) { d.watcher.options = o; return d.watcher, nil }
	return d
}

// start runs it on a network, until the test ends or stop is called.
func (d *daemon) start(tb testing.TB, s *netdev.Snapshot) *daemon {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	opened := make(chan struct{})
	open := d.open.watcher
	d.open.watcher = func(o netdev.Options) (watcher, error) { defer close(opened); return open(o) }
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stopped := false
	d.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	tb.Cleanup(func() {
		if err := d.stop(); err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	select {
	case <-opened:
		d.watcher.options.OnChange(s)
	case err := <-done:
		stopped = true
		tb.Fatalf("Run ended: %v", err)
	}
	select {
	case <-d.Ready():
	case err := <-done:
		stopped = true
		tb.Fatalf("Run ended: %v", err)
	case <-time.After(10 * time.Second):
		tb.Fatal("not ready after 10 s")
	}
	return d
}

// change hands out another snapshot and waits until something holds.
func (d *daemon) change(tb testing.TB, s *netdev.Snapshot, what string, holds func() bool) {
	tb.Helper()
	d.watcher.options.OnChange(s)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		d.core.mu.RLock()
		d.dp.mu.Lock()
		ok := holds()
		d.dp.mu.Unlock()
		d.core.mu.RUnlock()
		if ok {
			return
		}
	}
	tb.Fatalf("after 10 s still not so: %s", what)
}

func start(tb testing.TB) *daemon {
	tb.Helper()
	return prepare(tb, tb.TempDir(), gateway, newFake()).start(tb, links("eth0", "eth1"))
}

// At the start everything is put before the program is attached, and anything
// swept out last; before the kernel has said what there is, nothing happens.
func TestStartTouchesNothingBeforeItKnowsAll(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway, newFake())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if calls := d.dp.log(); !slices.Equal(calls, []string{"close"}) {
		t.Errorf("calls before the first snapshot: %q", calls)
	}

	d = prepare(t, d.dir, gateway, newFake()).start(t, withRoute(links("eth0", "eth1")))
	calls := d.dp.log()
	order := []string{"settings", "policy south", "tunnel up", "sid fc00:1:0:1::/64", "steering 10.1.0.0/16", "local", "device", "route", "next hop", "port 1", "attach 1", "sweep"}
	for i := 1; i < len(order); i++ {
		if indexOf(t, calls, order[i-1]) > indexOf(t, calls, order[i]) {
			t.Errorf("%q comes before %q: %q", order[i], order[i-1], calls)
		}
	}
	for _, c := range calls {
		if strings.HasPrefix(c, "delete") || strings.HasPrefix(c, "detach") {
			t.Errorf("%q at the start", c)
		}
	}
}

// An interface that the last run was on, and this one is not, is left.
func TestStartLeavesOtherInterfaces(t *testing.T) {
	dp := newFake()
	dp.attached = map[int]attach.Mode{1: "native", 5: "native"}
	dp.ports = map[int]port.Port{1: {}, 5: {}}
	prepare(t, t.TempDir(), gateway, dp).start(t, links("eth0", "eth1"))
	calls := dp.log()
	if indexOf(t, calls, "detach 5") < indexOf(t, calls, "sweep") || slices.Contains(calls, "detach 1") {
		t.Errorf("calls are %q", calls)
	}
}

// What one origin asked for is not the other's to change.
func TestOrigins(t *testing.T) {
	d := start(t)
	ctx := context.Background()
	fragment := func(yaml string) *config.Config {
		c, err := config.Decode([]byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	extra := "sids: [{sid: 'fc00:1:0:9::/64', behavior: End}]"
	changes, err := d.Add(ctx, fragment(extra))
	if err != nil || fmt.Sprint(changes) != "[{add sid fc00:1:0:9::/64 End}]" {
		t.Fatalf("add: %v, %v", changes, err)
	}
	if changes, err := d.Add(ctx, fragment(extra)); err != nil || len(changes) != 0 {
		t.Errorf("add again: %v, %v", changes, err)
	}
	for name, c := range map[string]struct {
		do   func() ([]desired.Change, error)
		want error
		text string
	}{
		"add what the file has": {func() ([]desired.Change, error) {
			return d.Add(ctx, fragment("sids: [{sid: 'fc00:1:0:1::/64', behavior: End.DT6, table: 254}]"))
		}, desired.ErrConflict, "sid fc00:1:0:1::/64 is in the configuration file"},
		"delete what the file has": {func() ([]desired.Change, error) {
			return d.Delete(ctx, []desired.Ref{{Kind: desired.KindPolicy, Key: "south"}})
		},
			desired.ErrConflict, "take it out there"},
		"delete nothing": {func() ([]desired.Change, error) {
			return d.Delete(ctx, []desired.Ref{{Kind: desired.KindSID, Key: "fc00:1:0:77::"}})
		},
			desired.ErrNotFound, "sid fc00:1:0:77::/128"},
		"add what refers to nothing": {func() ([]desired.Change, error) {
			return d.Add(ctx, fragment("steering: [{prefix: 10.9.0.0/16, policy: north}]"))
		}, desired.ErrInvalid, "north"},
		"add what a start needs": {func() ([]desired.Change, error) { return d.Add(ctx, fragment("limits: {sids: 7}")) },
			desired.ErrInvalid, "configuration file only"},
		"an interface that is not there": {func() ([]desired.Change, error) {
			return d.Add(ctx, fragment("interfaces: [{name: eth9, roles: [sr]}]"))
		}, desired.ErrInvalid, `"eth9" does not exist`},
		"an interface without roles": {func() ([]desired.Change, error) { return d.Add(ctx, fragment("interfaces: [{name: eth9}]")) },
			desired.ErrInvalid, "interface eth9 has no roles, which say what may enter (fix: write {name: eth9, "},
		"a file that has the key with other values": {func() ([]desired.Change, error) {
			return d.Apply(ctx, parse(t, strings.Replace(gateway, "0:1::/64\n    behavior: End\n", "0:9::/64\n    behavior: End.DT6\n    table: 254\n", 1)), false)
		}, desired.ErrConflict, "also added through the API"},
	} {
		running := fmt.Sprint(d.Running())
		content := d.dp.content()
		_, err := c.do()
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: the error is %v, want %v and %q", name, err, c.want, c.text)
		}
		if fmt.Sprint(d.Running()) != running || d.dp.content() != content {
			t.Errorf("%s: refused, and yet something changed", name)
		}
	}
	if changes, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindSID, Key: "FC00:1:0:9:0::/64"}}); err != nil || len(changes) != 1 {
		t.Errorf("delete: %v, %v", changes, err)
	}
}

func TestDeleteNamesTheUser(t *testing.T) {
	d := start(t)
	ctx := context.Background()
	c, err := config.Decode([]byte(`
policies: [{name: north, segment_lists: [{segments: ['fc00:9::1']}]}]
steering: [{prefix: 10.7.0.0/16, policy: north}]`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(ctx, c); err != nil {
		t.Fatal(err)
	}
	_, err = d.Delete(ctx, []desired.Ref{{Kind: desired.KindPolicy, Key: "north"}})
	if !errors.Is(err, desired.ErrConflict) || !strings.Contains(err.Error(), "policy north is used by steering 10.7.0.0/16") {
		t.Errorf("the error is %v", err)
	}
	if _, err := d.Delete(ctx, []desired.Ref{{Kind: desired.KindPolicy, Key: "north"}, {Kind: desired.KindSteering, Key: "10.7.0.0/16"}}); err != nil {
		t.Errorf("both at once: %v", err)
	}
}

// Running is what Apply would take: applying it changes nothing.
func TestRunningIsAFixedPoint(t *testing.T) {
	d := start(t)
	d.dp.log()
	changes, err := d.Apply(context.Background(), d.Running(), false)
	if err != nil || len(changes) != 0 {
		t.Errorf("changes are %v, %v", changes, err)
	}
	if calls := d.dp.log(); len(calls) != 0 {
		t.Errorf("calls are %q", calls)
	}
	changes, err = d.Apply(context.Background(), parse(t, gateway), false)
	if err != nil || len(changes) != 0 {
		t.Errorf("the file again: changes are %v, %v", changes, err)
	}
}

func TestDryRunOnlySays(t *testing.T) {
	d := start(t)
	d.dp.log()
	next := strings.Replace(gateway, "behavior: End\n", "behavior: End.DT6\n    table: 100\n", 1)
	next = strings.Replace(next, "tunnels:", "tunnels:\n  - {name: extra, local_teid: 9, decapsulate: true}", 1)
	next = strings.Replace(next, "weight: 3", "weight: 4", 1)
	next = strings.Replace(next, "steering:\n  - prefix: 10.1.0.0/16\n    policy: south\n", "", 1)
	want := []string{
		"update sid fc00:1:0:1::/64", "update policy south", "add tunnel extra", "delete steering 10.1.0.0/16",
	}
	for _, dryRun := range []bool{true, false} {
		changes, err := d.Apply(context.Background(), parse(t, next), dryRun)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range changes {
			got = append(got, fmt.Sprintf("%s %s %s", c.Op, c.Kind, c.Key))
		}
		if !slices.Equal(got, want) {
			t.Errorf("changes are %q, want %q", got, want)
		}
		if !strings.Contains(changes[0].Detail, "table: unset -> 100") {
			t.Errorf("the detail is %q", changes[0].Detail)
		}
		if calls := d.dp.log(); (len(calls) == 0) != dryRun {
			t.Errorf("dry run %t, calls are %q", dryRun, calls)
		}
	}
}

// A dry run refuses what the data path has no room for, and says it as an apply does: with the
// name of the resource, once.
func TestDryRunAsksForRoom(t *testing.T) {
	d := start(t)
	d.dp.log()
	d.dp.noRoom = &table.FullError{Table: "adjacency", Max: 4, Limit: "adjacencies"}
	next := gateway + "\n"
	next = strings.Replace(next, "policies:", "policies:\n  - {name: extra, segment_lists: [{segments: ['fc00:77::1']}]}", 1)
	const want = "policy extra: table adjacency is full (4 entries): a larger limits.adjacencies counts from the next start on"
	if _, err := d.Apply(t.Context(), parse(t, next), true); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	hop := adjacency.Key{NextHop: netip.MustParseAddr("fc00:77::1")}
	if got := d.dp.rehearsed; len(got) != 1 || !slices.Equal(got[0].Acquire, []adjacency.Key{hop}) || len(got[0].Release) > 0 {
		t.Errorf("rehearsed %v", got)
	}
	d.dp.noRoom = nil
	d.dp.failOn = func(call string) error {
		if call == "policy extra" {
			return fmt.Errorf("policy extra: %w", &table.FullError{Table: "adjacency", Max: 4, Limit: "adjacencies"})
		}
		return nil
	}
	if _, err := d.Apply(t.Context(), parse(t, next), false); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What only the start reads is accepted, and said to wait for it.
func TestProcessSettingsWait(t *testing.T) {
	d := start(t)
	level := &slog.LevelVar{}
	d.core.level = level
	d.dp.log()
	changes, err := d.Apply(context.Background(), parse(t, gateway+"limits: {sids: 70000}\nlog: {level: debug}\n"), false)
	if err != nil || len(changes) != 2 {
		t.Fatalf("changes are %v, %v", changes, err)
	}
	if c := changes[0]; c.Key != "limits" || !strings.Contains(c.Detail, "70000") || !strings.Contains(c.Detail, "restart the service, nothing is lost") {
		t.Errorf("limits: %+v", c)
	}
	if c := changes[1]; c.Key != "log" || strings.Contains(c.Detail, "next start") {
		t.Errorf("log: %+v", c)
	}
	if w := desired.Waiting(changes); !slices.Equal(w, []string{"limits"}) {
		t.Errorf("waiting are %q, want limits", w)
	}
	flows, err := d.Apply(context.Background(), parse(t, gateway+"limits: {sids: 70000, pod_flows: 4096}\nlog: {level: debug}\n"), true)
	if err != nil || len(flows) != 1 || strings.Contains(flows[0].Detail, "nothing is lost") || !strings.Contains(flows[0].Detail, "it forgets the connections") {
		t.Errorf("other pod_flows: %+v, %v", flows, err)
	}
	if level.Level() != slog.LevelDebug {
		t.Errorf("the level is %s", level.Level())
	}
	if calls := d.dp.log(); len(calls) > 0 {
		t.Errorf("calls are %q", calls)
	}
}

// When one call of the data path fails, the running state and the state file
// are what they were.
func TestApplyIsAllOrNothing(t *testing.T) {
	d := start(t)
	next := parse(t, strings.Replace(gateway, "weight: 3", "weight: 4", 1)+`
  - name: extra
    local_teid: 9
    decapsulate: true
`)
	running, content := fmt.Sprint(d.Running()), d.dp.content()
	refusal := errors.New("the table is full")
	d.dp.failOn = func(c string) error {
		if c == "tunnel extra" {
			return refusal
		}
		return nil
	}
	_, err := d.Apply(context.Background(), next, false)
	if !errors.Is(err, refusal) || !strings.HasPrefix(err.Error(), "tunnel extra: ") {
		t.Errorf("the error is %v", err)
	}
	if fmt.Sprint(d.Running()) != running || d.dp.content() != content {
		t.Error("refused, and yet something changed")
	}
	d.dp.failOn = nil
	d.core.store.Close() // a disk that fails
	if _, err = d.Apply(context.Background(), next, false); err == nil || !strings.Contains(err.Error(), "state file") {
		t.Errorf("the error is %v", err)
	}
	if fmt.Sprint(d.Running()) != running || d.dp.content() != content {
		t.Error("not on disk, and yet something changed")
	}
	if d.core.store, err = store.Open(filepath.Join(d.dir, "state.db"), d.log); err != nil {
		t.Fatal(err)
	}
}

// What an earlier version kept of an interface without roles does not open the data path:
// the daemon does not start, and says why.
func TestKeptInterfaceWithoutRoles(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway, newFake())
	kept, err := desired.Decode(desired.Ref{Kind: desired.KindInterface, Key: "eth7"}, desired.OriginAPI, []byte(`{"name": "eth7", "external": true}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(filepath.Join(d.dir, "state.db"), d.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(nil, []desired.Resource{kept}, observed.State{}, nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := d.Run(ctx); err == nil || !strings.Contains(err.Error(), "interface eth7 has no roles") {
		t.Errorf("the error is %v", err)
	}
	if len(d.dp.ports) > 0 {
		t.Errorf("ports are %v", d.dp.ports)
	}
}

// What was added through the API, and what was applied, is there after the
// next start; a file that was changed since wins over what was applied.
func TestStateSurvives(t *testing.T) {
	ctx := context.Background()
	d := start(t)
	tunnel, err := config.Decode([]byte("tunnels: [{name: extra, local_teid: 9, decapsulate: true}]"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Add(ctx, tunnel); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Apply(ctx, parse(t, strings.Replace(gateway, "10.1.0.0/16", "10.2.0.0/16", 1)), false); err != nil {
		t.Fatal(err)
	}
	running := fmt.Sprint(d.Running())
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = prepare(t, d.dir, "", newFake()).start(t, links("eth0", "eth1"))
	if got := fmt.Sprint(d.Running()); got != running {
		t.Errorf("after a restart it is\n%s\nand was\n%s", got, running)
	}
	if list, err := d.Tunnels(); err != nil || len(list) != 3 || list[2].Origin != desired.OriginAPI {
		t.Errorf("tunnels are %+v, %v", list, err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = prepare(t, d.dir, strings.Replace(gateway, "10.1.0.0/16", "10.3.0.0/16", 1), newFake()).start(t, links("eth0", "eth1"))
	if got := d.Running(); got.Steering[0].Prefix != prefix("10.3.0.0/16") || len(got.Tunnels) != 3 {
		t.Errorf("the file was changed, running is %+v", got)
	}
}

func TestReload(t *testing.T) {
	d := start(t)
	write := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.dir, "culvert.yaml"), []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(gateway + "nonsense: 1\n")
	running := fmt.Sprint(d.Running())
	if _, err := d.Reload(context.Background()); !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error is %v", err)
	}
	if fmt.Sprint(d.Running()) != running {
		t.Error("refused, and yet something changed")
	}
	write(strings.Replace(gateway, "10.1.0.0/16", "10.2.0.0/16", 1))
	changes, err := d.Reload(context.Background())
	if err != nil || fmt.Sprint(changes) != "[{add steering 10.2.0.0/16 to policy south} {delete steering 10.1.0.0/16 }]" {
		t.Errorf("changes are %v, %v", changes, err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	d := start(t)
	other := prepare(t, d.dir, "", newFake())
	if err := other.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "held by another culvert") {
		t.Errorf("the error is %v", err)
	}
}

func TestNotReadyBeforeItRuns(t *testing.T) {
	d := prepare(t, t.TempDir(), gateway, newFake())
	if _, err := d.Status(); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("Status: %v", err)
	}
	if _, err := d.Apply(context.Background(), parse(t, gateway), false); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("Apply: %v", err)
	}
	if len(d.Running().SIDs) != 2 {
		t.Error("Running is not what it was started with")
	}
}

// The defaults that another resource gives go with it.
func TestSourcesFollowTheSettings(t *testing.T) {
	d := start(t)
	if got := d.dp.policies["south"].Source; got != addr("fc00::1") {
		t.Errorf("the policy's source is %v", got)
	}
	if got := d.dp.tunnels["up"].Source; got != addr("192.0.2.1") {
		t.Errorf("the tunnel's source is %v", got)
	}
	next := strings.NewReplacer("source: fc00::1", "source: fc00::5", "[192.0.2.1]", "[192.0.2.5]").Replace(gateway)
	if _, err := d.Apply(context.Background(), parse(t, next), false); err != nil {
		t.Fatal(err)
	}
	if got := d.dp.policies["south"].Source; got != addr("fc00::5") {
		t.Errorf("then the policy's source is %v", got)
	}
	if got := d.dp.tunnels["up"].Source; got != addr("192.0.2.5") {
		t.Errorf("then the tunnel's source is %v", got)
	}
	if got := d.dp.settings.GTPUAddresses; !slices.Equal(got, []netip.Addr{addr("192.0.2.5")}) {
		t.Errorf("then the GTP-U addresses are %v", got)
	}
}
