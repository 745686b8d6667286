package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/netdev"
)

// The state file is lost, and the data path is not: running pods stay connected, nobody else gets their
// addresses, and these are free again once their interfaces are gone.
func TestPodsOfLostState(t *testing.T) {
	dp := newFake()
	host := func(n int) string { return fmt.Sprintf("culv%011x", n) }
	add := func(d *daemon, n int) pods.Network {
		t.Helper()
		key, v := nthPod(n)
		v.HostInterface = host(n)
		given, err := d.AddPod(key, v)
		if err != nil {
			t.Fatal(err)
		}
		return given
	}
	start := func(dir string, names ...string) *daemon {
		return prepare(t, dir, memberFile, dp).start(t, links(append([]string{"eth0"}, names...)...))
	}
	d := start(t.TempDir(), host(0), host(1), host(2))
	add(d, 0)
	add(d, 1)
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d = start(dir, host(0), "other", host(2)) // pod 1 has ended, and its index is that of somebody else's interface
	if p, there := dp.pods[2]; !there || fmt.Sprint(p.Addresses, p.MAC) != "[10.244.1.2 fd00:10:244:1::2] 02:00:00:00:01:00" || len(dp.pods) != 1 {
		t.Errorf("the data path has %+v, want the running pod", dp.pods)
	}
	if list, err := d.Pods(); err != nil || len(list) != 1 || !strings.Contains(list[0].Problem, "the state file was lost") || list[0].HostInterface != host(0) {
		t.Errorf("%+v, %v", list, err)
	}
	if given := add(d, 2); slices.Contains(given.Addresses, netip.MustParseAddr("10.244.1.2")) || slices.Contains(given.Addresses, netip.MustParseAddr("fd00:10:244:1::2")) {
		t.Errorf("a new pod gets %s, which a running one has", given.Addresses)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = start(dir, host(0), "other", host(2)) // it stays known
	recovered := "recovered-2/" + host(0)
	d.core.pods.Retry()
	if got := d.held(t); !strings.Contains(got, recovered) || !strings.Contains(got, "default/pod-2") {
		t.Errorf("after another start: %s", got)
	}
	d.kernel.mu.Lock()
	d.kernel.failOn = func(call string) error {
		if call == "pod "+host(0) {
			return netdev.ErrNoInterface
		}
		return nil
	}
	d.kernel.mu.Unlock()
	d.core.pods.Retry()
	if got := d.held(t); got != "[default/pod-2] 1 1" {
		t.Errorf("once its interface is gone: %s", got)
	}
}

// A pod of which the state file was lost is its container's again once the runtime checks it, and nobody
// else's. Until then the Kubernetes API says which one it is, and packets have the classes of its namespace.
func TestRegained(t *testing.T) {
	const host = "culv00000000000"
	dp := newFake()
	start := func(dir string) *daemon {
		text := clusterFile + `
traffic_classes: [{name: shop, color: 100, match: {namespaces: [shop]}}]
policies: [{name: fast, color: 100, endpoint: '2001:db8::2', source: '2001:db8::1', segment_lists: [{segments: ['2001:db8::7', 'fc00:0:2:4::']}]}]
`
		links := underlay()
		links.Links = append(links.Links, link(50, host))
		d := prepare(t, dir, text, dp).start(t, links)
		d.holds(t, "the overlay is there", func() bool { return d.dp.entry == fakeExit })
		return d
	}
	d := start(t.TempDir())
	key, v := nthPod(0)
	v.HostInterface, v.HostIfindex, v.Namespace = host, 50, "shop"
	if _, err := d.AddPod(key, v); err != nil {
		t.Fatal(err)
	}
	want := d.dp.pods[50]
	if want.Classifier == (class.Classifier{}) {
		t.Fatal("packets of the pod have no class")
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d = start(dir)
	if got := d.dp.pods[50]; got.Classifier == want.Classifier {
		t.Errorf("nobody knows the pod, and the data path has %+v", got)
	}
	lost, err := d.Pods()
	if err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	d.core.pods.Identify(lost[0].Attachment, "shop", "pod-0", "u")
	if got := d.dp.pods[50]; got.Classifier != want.Classifier || !strings.HasPrefix(d.held(t), "[shop/pod-0") {
		t.Errorf("the API knows the pod: the data path has %+v, the agent %s", got, d.held(t))
	}
	v.HostIfindex = 0 // as the plugin asks
	for name, change := range map[string]func(*pods.Pod){
		"another MAC":       func(o *pods.Pod) { o.MAC = "02:00:00:00:00:99" },
		"another interface": func(o *pods.Pod) { o.HostInterface = "culv00000000001" },
		"a tenant":          func(o *pods.Pod) { o.Tenant = "red" },
		"no network":        func(o *pods.Pod) { o.Network = "" },
	} {
		other := v
		change(&other)
		if wrong, err := d.CheckPod(key, other); err != nil || len(wrong) != 1 || !strings.Contains(wrong[0], "no attachment") {
			t.Errorf("%s: %q, %v", name, wrong, err)
		}
	}
	if wrong, err := d.CheckPod(key, v); err != nil || len(wrong) > 0 {
		t.Errorf("check: %q, %v", wrong, err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	d = start(dir)
	list, err := d.Pods()
	if err != nil || len(list) != 1 || list[0].Attachment != key || list[0].Problem != "" || list[0].Network != "culvert" || !slices.Equal(list[0].Addresses, want.Addresses) {
		t.Errorf("after another start: %+v, %v", list, err)
	}
	if err := d.DeletePod(key); err != nil || d.held(t) != "[] 0 0" {
		t.Errorf("deleted: %s, %v", d.held(t), err)
	}
}
