package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// needTwoCPUs: built-in devices have one of their own.
func needTwoCPUs(t *testing.T) {
	t.Helper()
	needRoot(t)
	if cpus, err := proc.Allowed(); err != nil || len(cpus) < 2 {
		t.Skipf("needs two CPUs, one for the device and one for the generator: there are %v (%v)", cpus, err)
	}
}

// nothingOf says that nothing is left of nodes.
func nothingOf(t *testing.T, nodes ...string) {
	t.Helper()
	for _, n := range nodes {
		for _, path := range []string{"/run/netns/" + node.RunName() + "-" + n + "-node", "/run/netns/" + node.RunName() + "-" + n + "-around", "/sys/fs/bpf/" + node.RunName() + "-" + n + "-node"} {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left (%v)", path, err)
			}
		}
	}
}

// execute runs `culvert bench ARGS` and returns the run that it left in dir.
func execute(ctx context.Context, dir string, args ...string) (*result.Run, error) {
	c := Command()
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	c.SilenceUsage = true
	c.SetArgs(append(args, "--dir", dir, "--culvert", culvert))
	err := c.ExecuteContext(ctx)
	r, readErr := result.Read(dir)
	if err == nil {
		err = readErr
	}
	return r, err
}

// between makes a namespace whose two interfaces a and b are those of a device
// of the user's, in another namespace.
func between(t *testing.T, forward bool) (ns node.Namespace, mac string) {
	t.Helper()
	needRoot(t)
	n, err := node.NewNetwork(node.RunName()+"-user", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if !forward {
		if err := n.Node.Script("route flush table main"); err != nil {
			t.Fatal(err)
		}
	}
	return n.Around, node.MAC(1).String()
}

func userDevice(ns node.Namespace, mac string, more ...string) []string {
	return append([]string{
		"device", "--quick", "--against=", "--sizes", "64", "--rounds", "1", "--tx", "g0", "--rx", "s0",
		"--tx-netns", ns.Name, "--rx-netns", ns.Path(), "--mac", mac,
	}, more...)
}

// A device of the user's that has no XDP at all is measured by AF_PACKET.
func TestDeviceOfTheUser(t *testing.T) {
	ns, mac := between(t, true)
	r, err := execute(t.Context(), t.TempDir(), userDevice(ns, mac)...)
	if err != nil {
		t.Fatal(err)
	}
	of := result.Labels{"what": "device g0 to s0"}
	if len(r.Select("ndr", of))+len(r.Select("ndr_at_least", of)) != 1 {
		t.Errorf("%v", r.Measurements)
	}
}

// The recipe for VPP's t.m.gtp4.d, with a gateway of Culvert in its place: the packets of
// examples/vpp go in and come out as they must. VPP itself is not run.
func TestRecipeForVPP(t *testing.T) {
	needTwoCPUs(t)
	cpus, err := proc.PickPair(-1)
	if err != nil {
		t.Fatal(err)
	}
	n, err := device.NewNode("recipe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	c := catalog.Configuration(nil, 1)
	c.Steering = append(c.Steering, srpolicy.Steering{Prefix: netip.MustParsePrefix("203.0.113.0/24"), GTP4D: &srpolicy.GTP4D{
		SIDPrefix: netip.MustParsePrefix("2001:db8:4e::/48"), SourcePrefix: netip.MustParsePrefix("2001:db8:ff::/64"), PDUType: srv6.PDUTypeIPv4v6,
	}})
	if err := n.Start(t.Context(), experiment.Setting{Culvert: culvert, BPFFS: "/sys/fs/bpf"}, c, cpus.Device); err != nil {
		t.Fatal(err)
	}
	around := n.Net.Around
	args := userDevice(around, node.MAC(1).String(), "--template", "../../examples/vpp/gtpu.yaml", "--expect", "../../examples/vpp/srv6.yaml")
	r, err := execute(t.Context(), t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	of := result.Labels{"what": "device g0 to s0"}
	if len(r.Select("ndr", of))+len(r.Select("ndr_at_least", of)) != 1 {
		t.Errorf("%v", r.Measurements)
	}
	// What comes out otherwise is told from it: these packets have another source.
	other := filepath.Join(t.TempDir(), "other.yaml")
	text, err := os.ReadFile("../../examples/vpp/srv6.yaml")
	if err == nil {
		err = os.WriteFile(other, bytes.Replace(text, []byte(`source: "2001:db8:ff:`), []byte(`source: "2001:db8:fe:`), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := execute(t.Context(), t.TempDir(), append(args, "--expect", other)...); err == nil || !strings.Contains(err.Error(), "every packet came out") {
		t.Errorf("from another source: %v", err)
	}
}

func TestDeviceErrors(t *testing.T) {
	ns, mac := between(t, true)
	for says, args := range map[string][]string{
		"there is no such interface":    append(userDevice(ns, mac), "--rx", "s1"),
		"has no Ethernet header":        append(userDevice(ns, mac), "--rx", "lo"),
		"does not send live frames":     userDevice(ns, mac, "--method", "live"),
		"every packet came out":         userDevice(ns, mac, "--expect", "gtpu"),
		"no network namespace \"gone\"": append(userDevice(ns, mac), "--tx-netns", "gone"),
	} {
		if _, err := execute(t.Context(), t.TempDir(), args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v", says, err)
		}
	}
}

func TestReceiverSeesNothing(t *testing.T) {
	ns, mac := between(t, false)
	if _, err := execute(t.Context(), t.TempDir(), userDevice(ns, mac)...); !errors.Is(err, traffic.ErrNothing) || !strings.Contains(err.Error(), "does the device forward to it") {
		t.Errorf("%v", err)
	}
}

// Whoever stops a run keeps what was measured, and the machine as it was.
func TestDeviceStopped(t *testing.T) {
	needTwoCPUs(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // when the first point is there
		for ctx.Err() == nil {
			if text, err := os.ReadFile(filepath.Join(dir, "journal.jsonl")); err == nil && strings.Contains(string(text), `"metric"`) {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r, err := execute(ctx, dir, "device", "--quick", "--against", "kernel/forward,kernel/end", "--sizes", "64,1518", "--rounds", "1")
	if !errors.Is(err, experiment.ErrStopped) {
		t.Fatal(err)
	}
	if r == nil || r.Complete || len(r.Measurements) == 0 {
		text, _ := json.Marshal(r)
		t.Errorf("what is left: %s", text)
	}
	nothingOf(t, device.KernelDevice, device.Veth)
}
