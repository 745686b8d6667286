package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/netdev"
)

const memberFile = `
overlay:
  mode: static
  node: node-1
  address: fc00:1::1
  uplinks: [eth0]
  locator: fc00:0:1::/48
  pod_prefixes: [10.244.1.0/24, "fd00:10:244:1::/64"]
`

// podLinks are eth0 and the host's ends of pods, with indices from 2.
func podLinks(n int) *netdev.Snapshot {
	names := []string{"eth0"}
	for i := range n {
		names = append(names, fmt.Sprintf("culv%d", i))
	}
	return links(names...)
}

// nthPod is on the nth host's end.
func nthPod(n int) (pods.Attachment, pods.Pod) {
	return pods.Attachment{ContainerID: fmt.Sprintf("container-%d", n), Interface: "eth0"}, pods.Pod{
		Network: "culvert", NetNS: fmt.Sprintf("/run/netns/%d", n), Namespace: "default", Name: fmt.Sprintf("pod-%d", n),
		HostInterface: fmt.Sprintf("culv%d", n), HostIfindex: n + 2, MAC: fmt.Sprintf("02:00:00:00:01:%02x", n),
	}
}

func startMember(tb testing.TB, dir string, dp *fakeDataPath, pods int) *daemon {
	tb.Helper()
	return prepare(tb, dir, memberFile, dp).start(tb, podLinks(pods))
}

func mustAdd(tb testing.TB, d *daemon, n int) pods.Network {
	tb.Helper()
	given, err := d.AddPod(nthPod(n))
	if err != nil {
		tb.Fatalf("pod %d: %v", n, err)
	}
	return given
}

// held is everything that there is of pods, in the book, the kernel and the
// data path.
func (d *daemon) held(tb testing.TB) string {
	tb.Helper()
	list, err := d.Pods()
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Key()+p.Problem)
	}
	d.dp.mu.Lock()
	defer d.dp.mu.Unlock()
	d.kernel.mu.Lock()
	defer d.kernel.mu.Unlock()
	return fmt.Sprint(names, len(d.kernel.pods), len(d.dp.pods))
}

func TestPod(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 2)
	if r, err := d.PodReadiness(); err != nil || !r.Ready || r.Reason != "" {
		t.Errorf("readiness %+v, %v", r, err)
	}
	for range 2 { // a repeated request gets the same addresses
		given := mustAdd(t, d, 0)
		if got := fmt.Sprint(given); got != "{[10.244.1.2 fd00:10:244:1::2] [169.254.1.1 fe80::1] 1500 [0.0.0.0/0 ::/0]}" {
			t.Errorf("given %s", got)
		}
	}
	if got := fmt.Sprint(d.dp.pods[2].Ifindex, d.dp.pods[2].MAC, d.dp.pods[2].Addresses, d.kernel.pods["culv0"]); got != "2 02:00:00:00:01:00 [10.244.1.2 fd00:10:244:1::2] {culv0 2 02:00:00:00:01:00 [10.244.1.2 fd00:10:244:1::2]}" {
		t.Errorf("put: %s", got)
	}
	mustAdd(t, d, 1)
	if got := d.held(t); got != "[default/pod-0 default/pod-1] 2 2" {
		t.Errorf("two pods: %s", got)
	}
	key, _ := nthPod(0)
	if wrong, err := d.CheckPod(key, pods.Pod{}); err != nil || len(wrong) != 0 {
		t.Errorf("check: %q, %v", wrong, err)
	}
	delete(d.dp.pods, 2)
	delete(d.kernel.pods, "culv0")
	if wrong, err := d.CheckPod(key, pods.Pod{}); err != nil || !slices.Equal(wrong, []string{"the host has no route to culv0", "the data path does not know the pod with the addresses [10.244.1.2 fd00:10:244:1::2]"}) {
		t.Errorf("check of what is gone: %q, %v", wrong, err)
	}
	for range 2 {
		if err := d.DeletePod(key); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if wrong, err := d.CheckPod(key, pods.Pod{}); err != nil || len(wrong) != 1 || !strings.Contains(wrong[0], "container-0/eth0") {
		t.Errorf("check of none: %q, %v", wrong, err)
	}
	if got := d.held(t); got != "[default/pod-1] 1 1" {
		t.Errorf("one pod: %s", got)
	}
}

// A pod whose bandwidth is limited goes by the kernel, checked.
func TestShapedPod(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, 1)
	mustAdd(t, d, 0)
	key, shaped := nthPod(0)
	shaped.Shaped = true
	if _, err := d.AddPod(key, shaped); err != nil {
		t.Fatal(err)
	}
	whole := func(when string) {
		t.Helper()
		if wrong, err := d.CheckPod(key, pods.Pod{}); err != nil || len(wrong) > 0 || d.held(t) != "[default/pod-0] 1 1" || !d.dp.pods[2].ToKernel {
			t.Errorf("%s: %s, %q, %v", when, d.held(t), wrong, err)
		}
	}
	whole("added")
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = startMember(t, dir, dp, 1)
	whole("after a restart")
}

// An ADD that comes again after the plugin was killed has another interface.
func TestPodWithAnotherInterface(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 2)
	mustAdd(t, d, 0)
	key, again := nthPod(0)
	again.HostIfindex, again.HostInterface = 3, "culv1"
	if given, err := d.AddPod(key, again); err != nil || given.Addresses[0].String() != "10.244.1.2" {
		t.Fatalf("%v, %v", given, err)
	}
	if d.dp.pods[2].Ifindex != 0 || d.dp.pods[3].Ifindex != 3 || len(d.kernel.pods) != 1 {
		t.Errorf("%v, %v", d.dp.pods, d.kernel.pods)
	}
}

// Whatever fails, an ADD leaves nothing, and the next one succeeds.
func TestPodAddFails(t *testing.T) {
	broken := errors.New("broken")
	for _, step := range []string{"pod 3", "pod culv1"} {
		t.Run(step, func(t *testing.T) {
			d := startMember(t, t.TempDir(), newFake(), 2)
			mustAdd(t, d, 0)
			before := d.held(t)
			fail := func(call string) error {
				if call == step {
					return broken
				}
				return nil
			}
			d.dp.mu.Lock()
			d.dp.failOn, d.kernel.failOn = fail, fail
			d.dp.mu.Unlock()
			if _, err := d.AddPod(nthPod(1)); !errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
			if got := d.held(t); got != before {
				t.Errorf("left: %s, before: %s", got, before)
			}
			d.dp.mu.Lock()
			d.dp.failOn, d.kernel.failOn = nil, nil
			d.dp.mu.Unlock()
			mustAdd(t, d, 1)
		})
	}
	d := startMember(t, t.TempDir(), newFake(), 2)
	d.core.store.DB().Close() // a disk that fails
	if _, err := d.AddPod(nthPod(0)); err == nil || d.held(t) != "[] 0 0" {
		t.Errorf("error %v, left %s", err, d.held(t))
	}
}

func TestPodRefused(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 1)
	for what, change := range map[string]func(*pods.Attachment, *pods.Pod){
		"container_id":   func(a *pods.Attachment, _ *pods.Pod) { a.ContainerID = "" },
		"interface":      func(a *pods.Attachment, _ *pods.Pod) { a.Interface = "" },
		"network":        func(_ *pods.Attachment, p *pods.Pod) { p.Network = "" },
		"netns":          func(_ *pods.Attachment, p *pods.Pod) { p.NetNS = "" },
		"host_interface": func(_ *pods.Attachment, p *pods.Pod) { p.HostInterface = "" },
		"host_ifindex":   func(_ *pods.Attachment, p *pods.Pod) { p.HostIfindex = 0 },
		"mac":            func(_ *pods.Attachment, p *pods.Pod) { p.MAC = "02:00" },
	} {
		key, p := nthPod(0)
		change(&key, &p)
		if _, err := d.AddPod(key, p); !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.kernel.failOn = func(call string) error {
		if strings.HasPrefix(call, "pod ") {
			return netdev.ErrNoInterface
		}
		return nil
	}
	if _, err := d.AddPod(nthPod(0)); !errors.Is(err, desired.ErrInvalid) || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("an interface that is elsewhere: %v", err)
	}
}

func TestPodReadiness(t *testing.T) {
	d := start(t) // a gateway
	if r, err := d.PodReadiness(); err != nil || r.Ready || !strings.Contains(r.Reason, "overlay.mode") {
		t.Errorf("in no cluster: %+v, %v", r, err)
	}
	if _, err := d.AddPod(nthPod(0)); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("in no cluster: %v", err)
	}
	d = prepare(t, t.TempDir(), strings.Replace(memberFile, "10.244.1.0/24", "10.244.1.0/30", 1), newFake()).start(t, podLinks(2))
	mustAdd(t, d, 0)
	if r, err := d.PodReadiness(); err != nil || !r.Ready {
		t.Errorf("exhausted, and its pods go on: %+v, %v", r, err)
	}
	if s, err := d.Status(); err != nil || !slices.Contains(s.Overlay.Problems, "no more pods can be added: no address is left: all 1 of IPv4 are held") {
		t.Errorf("exhausted: %+v, %v", s.Overlay, err)
	}
	if m := scraped(t, d.Agent); !strings.Contains(m, "culvert_pod_pool_used{prefix=\"10.244.1.0/30\",tenant=\"\"} 1\nculvert_pod_pool_used{") || !strings.Contains(m, "culvert_pod_pool_size{prefix=\"10.244.1.0/30\",tenant=\"\"} 1\n") {
		t.Errorf("exhausted: %s", m)
	}
	if _, err := d.AddPod(nthPod(1)); !errors.Is(err, pods.ErrExhausted) {
		t.Errorf("exhausted: %v", err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.PodReadiness(); !errors.Is(err, pods.ErrNotReady) {
		t.Errorf("ended: %v", err)
	}
}

// After a restart pods that are there go on, and others leave nothing.
func TestPodsAfterRestart(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, 3)
	for n := range 3 {
		mustAdd(t, d, n)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.log()
	d = startMember(t, dir, dp, 2) // the third one's interface is gone
	if got := d.held(t); got != "[default/pod-0 default/pod-1] 2 2" {
		t.Errorf("after a restart: %s", got)
	}
	calls := dp.log()
	if put, sweep := indexOf(t, calls, "pod 3"), indexOf(t, calls, "sweep"); put > sweep {
		t.Errorf("swept before the pods were put: %q", calls)
	}
	if given := mustAdd(t, d, 0); given.Addresses[0].String() != "10.244.1.2" {
		t.Errorf("asked again: %v", given)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = startMember(t, dir, newFake(), 0) // a reboot
	if got := d.held(t); got != "[] 0 0" {
		t.Errorf("after a reboot: %s", got)
	}
	if given := mustAdd(t, d, 7); given.Addresses[0].String() != "10.244.1.5" {
		t.Errorf("in turn: %v", given)
	}
}

// What cannot be put at the start is said, and tried again.
func TestPodIsTriedAgain(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, 1)
	mustAdd(t, d, 0)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dp.failOn = func(call string) error {
		if call == "pod 2" {
			return errors.New("no room")
		}
		return nil
	}
	d = startMember(t, dir, dp, 1)
	if got := d.held(t); got != "[default/pod-0no room] 1 1" {
		t.Errorf("while it fails: %s", got)
	}
	dp.mu.Lock()
	dp.failOn = nil
	dp.mu.Unlock()
	d.core.pods.Retry()
	if got := d.held(t); got != "[default/pod-0] 1 1" {
		t.Errorf("tried again: %s", got)
	}
}

// A pod that is gone and could not be removed at the start is tried again.
func TestGonePodIsTriedAgain(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, 1)
	mustAdd(t, d, 0)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = prepare(t, dir, memberFile, dp)
	deleted := errors.New("no memory")
	d.kernel.failOn = func(call string) error {
		switch call {
		case "pod culv0":
			return netdev.ErrNoInterface
		case "delete pod culv0":
			return deleted
		}
		return nil
	}
	d.start(t, podLinks(0))
	if got := d.held(t); got != "[default/pod-0no memory] 0 0" {
		t.Errorf("while it fails: %s", got)
	}
	d.kernel.mu.Lock()
	deleted = nil
	d.kernel.mu.Unlock()
	d.core.pods.Retry()
	if got := d.held(t); got != "[] 0 0" {
		t.Errorf("tried again: %s", got)
	}
}

// The MTU changes while the plugin configures a pod with the one before.
func TestMTUOfAFreshPod(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 1)
	if given := mustAdd(t, d, 0); given.MTU != 1500 {
		t.Fatalf("MTU %d", given.MTU)
	}
	small := podLinks(1)
	small.Links[0].MTU = 1400
	d.change(t, small, "the MTU changes", func() bool { return d.core.overlay.MTU() == 1400 })
	of := func() int {
		d.kernel.mu.Lock()
		defer d.kernel.mu.Unlock()
		return d.kernel.podMTU["eth0"]
	}
	d.kernel.mu.Lock()
	d.kernel.podMTU["eth0"] = 1500 // the plugin, just now
	d.kernel.mu.Unlock()
	d.core.pods.UpdateMTU()
	if got := of(); got != 1400 {
		t.Errorf("the pod's MTU is %d", got)
	}
}

func TestRetainPods(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 4)
	for n := range 3 {
		mustAdd(t, d, n)
	}
	key, other := nthPod(3)
	other.Network = "another"
	if _, err := d.AddPod(key, other); err != nil {
		t.Fatal(err)
	}
	stays, _ := nthPod(1)
	removed, err := d.RetainPods("culvert", []pods.Attachment{stays, {ContainerID: "unknown", Interface: "eth0"}})
	if err != nil || len(removed) != 2 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if got := d.held(t); got != "[default/pod-1 default/pod-3] 2 2" {
		t.Errorf("left: %s", got)
	}
}

// Pods come and go at the same time, each one also twice.
func TestPodsInParallel(t *testing.T) {
	const pods = 100
	d := startMember(t, t.TempDir(), newFake(), pods)
	var all sync.WaitGroup
	for n := range pods {
		for range 2 {
			all.Go(func() {
				if _, err := d.AddPod(nthPod(n)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if _, err := d.Pods(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[netip.Addr]bool{}
	list, err := d.Pods()
	for _, p := range list {
		for _, a := range p.Addresses {
			seen[a] = true
		}
	}
	if err != nil || len(list) != pods || len(seen) != 2*pods || len(d.dp.pods) != pods {
		t.Errorf("%d pods, %d addresses, %d in the data path, %v", len(list), len(seen), len(d.dp.pods), err)
	}
	for n := range pods {
		key, _ := nthPod(n)
		all.Go(func() {
			if err := d.DeletePod(key); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := d.held(t); got != "[] 0 0" {
		t.Errorf("left: %s", got)
	}
}

// Whatever comes, fails and ends, and in whatever order: each pod that is there has
// addresses of its own, and the kernel and the data path know these pods and no others.
func TestPodsByChance(t *testing.T) {
	const count, steps = 12, 400
	c := rand.New(rand.NewPCG(7, 7))
	dir, dp := t.TempDir(), newFake()
	d := startMember(t, dir, dp, count)
	fail := func(on bool) {
		dp.mu.Lock()
		defer dp.mu.Unlock()
		dp.failOn, d.kernel.failOn = nil, nil
		if on {
			at := c.IntN(3)
			once := func(string) error {
				if at--; at == 0 {
					return errors.New("no memory")
				}
				return nil
			}
			dp.failOn, d.kernel.failOn = once, once
		}
	}
	there := map[pods.Attachment]bool{}
	for step := range steps {
		key, pod := nthPod(c.IntN(count))
		fail(c.IntN(4) == 0)
		switch c.IntN(20) {
		case 0: // killed, and some pods went with their interfaces
			fail(false)
			if err := d.stop(); err != nil {
				t.Fatal(err)
			}
			left := c.IntN(count + 1)
			for n := range count {
				if gone, p := nthPod(n); n >= left {
					delete(there, gone)
					delete(d.kernel.pods, p.HostInterface)
				}
			}
			kernel := d.kernel
			d = prepare(t, dir, memberFile, dp)
			d.kernel = kernel
			d.start(t, podLinks(left))
		case 1: // the runtime knows some
			var valid []pods.Attachment
			for k := range there {
				if c.IntN(4) > 0 {
					valid = append(valid, k)
				} else {
					delete(there, k)
				}
			}
			fail(false)
			if _, err := d.RetainPods("culvert", valid); err != nil {
				t.Fatal(err)
			}
		case 2, 3, 4, 5, 6, 7:
			if d.DeletePod(key) != nil { // it is asked again
				fail(false)
				if err := d.DeletePod(key); err != nil {
					t.Fatal(err)
				}
			}
			delete(there, key)
		default:
			if _, err := d.AddPod(key, pod); err == nil {
				there[key] = true
			} else if there[key] { // an ADD that came again: a DEL follows
				fail(false)
				if err := d.DeletePod(key); err != nil {
					t.Fatal(err)
				}
				delete(there, key)
			}
		}
		fail(false)
		list, err := d.Pods()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[netip.Addr]bool{}
		for _, p := range list {
			for _, a := range p.Addresses {
				seen[a] = true
			}
			if wrong, err := d.CheckPod(p.Attachment, pods.Pod{}); err != nil || len(wrong) > 0 || !there[p.Attachment] {
				t.Fatalf("step %d: %s: %q, %v, there: %t", step, p.Key(), wrong, err, there[p.Attachment])
			}
		}
		if len(list) != len(there) || len(seen) != 2*len(list) || len(dp.pods) != len(list) || len(d.kernel.pods) != len(list) {
			t.Fatalf("step %d: %d pods with %d addresses, want %d; the kernel has %d, the data path %d",
				step, len(list), len(seen), len(there), len(d.kernel.pods), len(dp.pods))
		}
	}
}

const tenantsFile = memberFile + `
  tenants:
    - {name: red, id: 7, namespaces: [shop], pools: [10.244.0.0/16]}
    - {name: blue, id: 8, namespaces: [lab], pools: [10.244.0.0/16, "fd09::/48"], routes: [192.0.2.0/24]}
`

// Pods of tenants may have the addresses of others, the kernel has no way to them, and only
// the namespaces that a tenant names may join.
func TestPodsOfTenants(t *testing.T) {
	dir, dp := t.TempDir(), newFake()
	d := prepare(t, dir, tenantsFile, dp).start(t, podLinks(4))
	join := func(n int, tenant, namespace string) (pods.Network, error) {
		key, p := nthPod(n)
		p.Tenant, p.Namespace, p.Network = tenant, namespace, tenant+"-net"
		return d.AddPod(key, p)
	}
	plain := mustAdd(t, d, 0)
	red, errRed := join(1, "red", "shop")
	blue, errBlue := join(2, "blue", "lab")
	if errRed != nil || errBlue != nil {
		t.Fatal(errRed, errBlue)
	}
	for _, row := range []struct {
		name string
		pods.Network
		want string
	}{
		{"the cluster's", plain, "[10.244.1.2 fd00:10:244:1::2] [0.0.0.0/0 ::/0]"},
		{"red", red, "[10.244.1.2] [10.244.0.0/16]"},
		{"blue", blue, "[10.244.1.2 fd09:0:0:1::2] [192.0.2.0/24]"},
	} {
		if got := fmt.Sprint(row.Addresses, " ", row.Routes); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	for _, refused := range []struct{ tenant, namespace, want string }{
		{"red", "lab", `namespace "lab" is not among its namespaces`},
		{"red", "", `namespace "" is not among its namespaces`},
		{"green", "shop", `there is none of that name`},
	} {
		if _, err := join(3, refused.tenant, refused.namespace); !errors.Is(err, pods.ErrTenant) || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%s of %s: %v", refused.namespace, refused.tenant, err)
		}
	}
	byTenant := func() (out []string) {
		for _, p := range dp.Pods() {
			out = append(out, fmt.Sprintf("%d %d %s", p.Ifindex, p.Tenant, p.Addresses))
		}
		slices.Sort(out)
		return out
	}
	want := []string{"2 0 [10.244.1.2 fd00:10:244:1::2]", "3 7 [10.244.1.2]", "4 8 [10.244.1.2 fd09:0:0:1::2]"}
	if got := byTenant(); !slices.Equal(got, want) {
		t.Errorf("data path: %q, want %q", got, want)
	}
	for name, p := range d.kernel.pods {
		if isPlain := name == "culv0"; isPlain != (len(p.Addresses) > 0) {
			t.Errorf("the kernel has ways to %s: %s", name, p.Addresses)
		}
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = prepare(t, dir, tenantsFile, dp).start(t, podLinks(4))
	if got := byTenant(); !slices.Equal(got, want) {
		t.Errorf("after a restart: %q, want %q", got, want)
	}
	if err := d.DeletePod(pods.Attachment{ContainerID: "container-1", Interface: "eth0"}); err != nil {
		t.Error(err)
	}
	if got := byTenant(); len(got) != 2 {
		t.Errorf("after red has gone: %q", got)
	}
}
