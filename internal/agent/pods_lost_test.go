package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
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
