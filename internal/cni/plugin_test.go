package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cli"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// The test binary is also the daemon.
const daemonEnv = "CULVERT_TEST_RUN"

func TestMain(m *testing.M) {
	if args := os.Getenv(daemonEnv); args != "" {
		os.Exit(cmdline.Execute(context.Background(), cli.New("test"), strings.Fields(args), os.Stderr))
	}
	result := m.Run()
	if dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(result)
}

var dir string // that program made

// program builds culvert-cni, once, and returns the directory that it is in.
var program = sync.OnceValues(func() (string, error) {
	var err error
	if dir, err = os.MkdirTemp("", "culvert-cni"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "../../cmd/culvert-cni")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// node is a node, with what a container runtime does there.
type node struct {
	*netns.NS
	socket string
	cni    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
}

// newNode has a network configuration of a version of CNI, with plugins after
// ours, which are in dirs.
func newNode(tb testing.TB, version string, after []map[string]any, dirs ...string) *node {
	tb.Helper()
	bin, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{NS: netns.New(tb), socket: filepath.Join(tb.TempDir(), "c.sock")}
	n.cni = libcni.NewCNIConfigWithCacheDir(append([]string{bin}, dirs...), tb.TempDir(), nil)
	plugins := append([]map[string]any{{"type": "culvert-cni", "socket": n.socket, "capabilities": map[string]bool{"bandwidth": true}, "dns": map[string]any{"nameservers": []string{"10.96.0.10"}}}}, after...)
	text, err := json.Marshal(map[string]any{"cniVersion": version, "name": "culvert", "plugins": plugins})
	if err == nil {
		n.list, err = libcni.NetworkConfFromBytes(text)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// on runs f on a thread in the node's network namespace: that is what plugins
// are started with.
func (n *node) on(tb testing.TB, f func(context.Context) error) (err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n.Do(tb, func() { err = f(ctx) })
	return err
}

// attachment is what the runtime says of a pod.
func attachment(pod *netns.NS) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: pod.Name, NetNS: pod.Path, IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", pod.Name}, {"K8S_POD_INFRA_CONTAINER_ID", pod.Name}, {"K8S_POD_UID", "1-2-3"},
	}}
}

func (n *node) add(tb testing.TB, rc *libcni.RuntimeConf) (*current.Result, error) {
	tb.Helper()
	var result types.Result
	err := n.on(tb, func(ctx context.Context) (err error) {
		result, err = n.cni.AddNetworkList(ctx, n.list, rc)
		return err
	})
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(result)
}

func (n *node) mustAdd(tb testing.TB, rc *libcni.RuntimeConf) *current.Result {
	tb.Helper()
	r, err := n.add(tb, rc)
	if err != nil {
		tb.Fatalf("ADD: %v", err)
	}
	return r
}

func (n *node) check(tb testing.TB, rc *libcni.RuntimeConf) error {
	tb.Helper()
	return n.on(tb, func(ctx context.Context) error { return n.cni.CheckNetworkList(ctx, n.list, rc) })
}

func (n *node) del(tb testing.TB, rc *libcni.RuntimeConf) error {
	tb.Helper()
	return n.on(tb, func(ctx context.Context) error { return n.cni.DelNetworkList(ctx, n.list, rc) })
}

func (n *node) status(tb testing.TB) error {
	tb.Helper()
	return n.on(tb, func(ctx context.Context) error { return n.cni.GetStatusNetworkList(ctx, n.list) })
}

var hostEnd = regexp.MustCompile(`: culv[0-9a-f]{11}@`)

// links are the host's ends that there are.
func (n *node) links(tb testing.TB) int {
	tb.Helper()
	return len(hostEnd.FindAllString(n.IP(tb, "-o link show type veth"), -1))
}

// fakeAgent answers on a socket until stop is called.
func fakeAgent(tb testing.TB, socket string) (a *apitest.Agent, stop func()) {
	tb.Helper()
	a = apitest.New(&config.Config{})
	a.Readiness.Ready = true
	return a, serve(tb, socket, a)
}

func serve(tb testing.TB, socket string, a agent.Service) (stop func()) {
	tb.Helper()
	s, err := api.Listen(config.API{Socket: socket}, api.NewHandler(a, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("serve: %v", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

func code(err error) uint {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Code
	}
	return 0
}

var versions = []string{"1.0.0", "1.1.0"}

// A pod's life, with every command.
func TestLife(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			n := newNode(t, version, nil)
			a, _ := fakeAgent(t, n.socket)
			pod := netns.New(t)
			rc := attachment(pod)
			checkResult(t, n, pod, n.mustAdd(t, rc))
			checkInside(t, pod)
			checkOutside(t, n)
			list, err := a.Pods()
			if err != nil || len(list) != 1 || list[0].Key() != "default/"+pod.Name || list[0].UID != "1-2-3" || list[0].Network != "culvert" || list[0].NetNS != pod.Path {
				t.Errorf("the agent heard %+v, %v", list, err)
			}
			if err := n.check(t, rc); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			for range 2 {
				if err := n.del(t, rc); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			if list, err := a.Pods(); err != nil || len(list) > 0 || n.links(t) > 0 {
				t.Errorf("left: %+v, %v, %d links", list, err, n.links(t))
			}
		})
	}
}

func checkResult(t *testing.T, n *node, pod *netns.NS, r *current.Result) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Interfaces []current.Interface
		IPs        []struct {
			Interface        int
			Address, Gateway string
		}
		Routes []struct{ Dst, GW string }
		DNS    types.DNS
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	host := hostInterface(pod.Name, "eth0")
	inside := pod.Interface(t, "eth0")
	want := fmt.Sprint([]current.Interface{
		{Name: host, Mac: "ee:ee:ee:ee:ee:ee", Mtu: apitest.PodMTU}, {Name: "eth0", Mac: inside.HardwareAddr.String(), Mtu: apitest.PodMTU, Sandbox: pod.Path},
	},
		" [{1 10.244.1.2/32 169.254.1.1} {1 fd00:10:244:1::2/128 fe80::1}]",
		" [{169.254.1.1/32 } {0.0.0.0/0 169.254.1.1} {fe80::1/128 } {::/0 fe80::1}]", " [10.96.0.10]")
	if have := fmt.Sprint(got.Interfaces, fmt.Sprint(" ", got.IPs), fmt.Sprint(" ", got.Routes), fmt.Sprint(" ", got.DNS.Nameservers)); have != want {
		t.Errorf("result\n%s, want\n%s\nof %s", have, want, text)
	}
	if i := n.Interface(t, host); i.HardwareAddr.String() != "ee:ee:ee:ee:ee:ee" || i.MTU != apitest.PodMTU || inside.MTU != apitest.PodMTU {
		t.Errorf("host's end %+v, pod's %+v", i, inside)
	}
}

func checkInside(t *testing.T, pod *netns.NS) {
	t.Helper()
	for command, wants := range map[string][]string{
		"-o addr show dev eth0 scope global": {"10.244.1.2/32 scope global", "fd00:10:244:1::2/128 scope global nodad"},
		"route":                              {"default via 169.254.1.1 dev eth0", "169.254.1.1 dev eth0 scope link"},
		"-6 route":                           {"default via fe80::1 dev eth0"},
		"neigh show nud permanent":           {"169.254.1.1 dev eth0 lladdr ee:ee:ee:ee:ee:ee", "fe80::1 dev eth0 lladdr ee:ee:ee:ee:ee:ee"},
	} {
		out := pod.IP(t, command)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("ip %s lacks %q:\n%s", command, want, out)
			}
		}
	}
	if out := pod.IP(t, "addr"); strings.Contains(out, "tentative") && strings.Contains(out, "fd00:10:244:1::2/128 scope global tentative") {
		t.Errorf("not usable at once:\n%s", out)
	}
	offloads := pod.Run(t, "ethtool", "-k", "eth0")
	for _, want := range []string{"tx-sctp-segmentation: off", "tx-udp_tnl-segmentation: off", "tx-gre-csum-segmentation: off", "tcp-segmentation-offload: on", "tx-udp-segmentation: on"} {
		if !strings.Contains(offloads, want) {
			t.Errorf("offloads: %s, want %s", offloads, want)
		}
	}
}

func checkOutside(t *testing.T, n *node) {
	t.Helper()
	link := strings.Fields(n.IP(t, "-o link show type veth"))[1]
	name, _, _ := strings.Cut(link, "@")
	for setting, want := range map[string]string{
		"ipv4.conf.%s.forwarding": "1", "ipv6.conf.%s.forwarding": "1", "ipv6.conf.%s.accept_ra": "0", "ipv4.conf.%s.rp_filter": "1", "ipv6.conf.%s.addr_gen_mode": "1",
	} {
		setting = "net." + fmt.Sprintf(setting, name)
		if got := strings.TrimSpace(n.Run(t, "sysctl", "-n", setting)); got != want {
			t.Errorf("%s is %s, not %s", setting, got, want)
		}
	}
	if out := n.IP(t, "-6 -o addr show dev "+name); out != "" {
		t.Errorf("the host's end has an address: %s", out)
	}
}

// CHECK names what is not as ADD left it.
func TestCheck(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, n *node, pod *netns.NS, a *apitest.Agent){
		"lacks the address 10.244.1.2": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) {
			pod.IP(t, "addr del 10.244.1.2/32 dev eth0")
		},
		"lacks the route to ::/0 by fe80::1": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) { pod.IP(t, "-6 route del default") },
		"lacks the permanent neighbour 169.254.1.1": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) {
			pod.IP(t, "neigh del 169.254.1.1 dev eth0")
		},
		"eth0 has the MTU 1500": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) { pod.IP(t, "link set eth0 mtu 1500") },
		"eth0 is down":          func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) { pod.IP(t, "link set eth0 down") },
		"eth0 has the MAC address 02:00:00:00:00:05": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) {
			pod.IP(t, "link set eth0 addr 02:00:00:00:00:05")
		},
		"the pod has no interface eth0": func(t *testing.T, _ *node, pod *netns.NS, _ *apitest.Agent) { pod.IP(t, "link del eth0") },
		"does not lead to the pod's eth0": func(t *testing.T, n *node, pod *netns.NS, _ *apitest.Agent) {
			n.IP(t, "link set "+hostInterface(pod.Name, "eth0")+" name other")
		},
		"culv": func(t *testing.T, n *node, pod *netns.NS, _ *apitest.Agent) {
			n.IP(t, "link set "+hostInterface(pod.Name, "eth0")+" down")
		},
		"there is no attachment": func(t *testing.T, _ *node, pod *netns.NS, a *apitest.Agent) {
			if err := a.DeletePod(pods.Attachment{ContainerID: pod.Name, Interface: "eth0"}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t, "1.0.0", nil)
			a, _ := fakeAgent(t, n.socket)
			pod := netns.New(t)
			n.mustAdd(t, attachment(pod))
			change(t, n, pod, a)
			if err := n.check(t, attachment(pod)); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("CHECK: %v", err)
			}
		})
	}
}

func TestStatusAndGC(t *testing.T) {
	n := newNode(t, "1.1.0", nil)
	if err := n.status(t); code(err) != errNotAvailable || !strings.Contains(err.Error(), "no agent at "+n.socket) {
		t.Errorf("STATUS without an agent: %v", err)
	}
	a, _ := fakeAgent(t, n.socket)
	if err := n.status(t); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	a.Readiness = pods.Readiness{Reason: "no prefix for pods"}
	if err := n.status(t); code(err) != errNotAvailable || !strings.Contains(err.Error(), "no prefix for pods") {
		t.Errorf("STATUS of a node without prefixes: %v", err)
	}
	a.Readiness = pods.Readiness{Reason: "no uplink", Limited: true}
	if err := n.status(t); code(err) != errLimitedConnectivity || !strings.Contains(err.Error(), "no uplink") {
		t.Errorf("STATUS of a node that is cut off: %v", err)
	}
	stays, goes := netns.New(t), netns.New(t)
	n.mustAdd(t, attachment(stays))
	n.mustAdd(t, attachment(goes))
	err := n.on(t, func(ctx context.Context) error {
		return n.cni.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: stays.Name, IfName: "eth0"}}})
	})
	list, _ := a.Pods()
	if err != nil || len(list) != 1 || list[0].ContainerID != stays.Name {
		t.Errorf("GC: %v, left %+v", err, list)
	}
	// A runtime that does not say which attachments stay takes none away.
	forgetful := libcni.NewCNIConfigWithCacheDir(n.cni.Path, t.TempDir(), nil)
	err = n.on(t, func(ctx context.Context) error { return forgetful.GCNetworkList(ctx, n.list, nil) })
	if list, _ := a.Pods(); err == nil || !strings.Contains(err.Error(), "GC needs cni.dev/valid-attachments") || len(list) != 1 {
		t.Errorf("GC without attachments: %v, left %+v", err, list)
	}
}

// DEL succeeds whatever is gone.
func TestDeleteWhatIsGone(t *testing.T) {
	n := newNode(t, "1.0.0", nil)
	a, stop := fakeAgent(t, n.socket)
	pod := netns.New(t)
	rc := attachment(pod)
	n.mustAdd(t, rc)
	pod.IP(t, "link del eth0")
	rc.NetNS = "/run/netns/gone"
	if err := n.del(t, rc); err != nil {
		t.Errorf("without the namespace: %v", err)
	}
	rc.NetNS = ""
	if err := n.del(t, rc); err != nil {
		t.Errorf("without a name of it: %v", err)
	}
	if list, _ := a.Pods(); len(list) > 0 {
		t.Errorf("left: %+v", list)
	}
	if err := n.del(t, &libcni.RuntimeConf{ContainerID: "never-there", IfName: "eth0"}); err != nil {
		t.Errorf("what never was: %v", err)
	}
	rc = attachment(pod)
	n.mustAdd(t, rc)
	stop()
	begun := time.Now()
	if err := n.del(t, rc); err != nil || n.links(t) > 0 {
		t.Errorf("without an agent: %v, %d links left", err, n.links(t))
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("without an agent: took %s", took)
	}
}

// An agent that restarts is waited for; one that refuses says why.
func TestAgent(t *testing.T) {
	n := newNode(t, "1.0.0", nil)
	pod := netns.New(t)
	added := make(chan error, 1)
	go func() {
		_, err := n.add(t, attachment(pod))
		added <- err
	}()
	time.Sleep(700 * time.Millisecond)
	fakeAgent(t, n.socket)
	if err := <-added; err != nil {
		t.Errorf("ADD: %v", err)
	}
	a, socket := apitest.New(&config.Config{}), filepath.Join(t.TempDir(), "c.sock")
	serve(t, socket, a)
	for cause, want := range map[error]uint{
		pods.ErrNotReady:         types.ErrTryAgainLater,
		pods.ErrExhausted:        types.ErrTryAgainLater,
		desired.ErrInvalid:       types.ErrInvalidNetworkConfig,
		errors.New("a bad disk"): types.ErrInternal,
	} {
		a.Err = fmt.Errorf("%w: and why", cause)
		caller := newAgent(socket)
		p := &plugin{agent: caller}
		wait := time.Minute
		if errors.Is(cause, pods.ErrNotReady) { // the one that is waited for
			wait = 300 * time.Millisecond
		}
		begun := time.Now()
		err := p.deletePod(nil, wait)
		if code(err) != want || !strings.Contains(err.Error(), "and why") {
			t.Errorf("%v: code %d, %v", cause, code(err), err)
		}
		if took := time.Since(begun); (took > wait/3) != errors.Is(cause, pods.ErrNotReady) {
			t.Errorf("%v: took %s", cause, took)
		}
	}
}

// One that has too much to do is asked again, and said to be late.
func TestAgentIsLate(t *testing.T) {
	late := connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	err := newAgent("/run/culvert/culvert.sock").explain(late)
	if !transient(late) || code(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "the agent at /run/culvert/culvert.sock takes longer than 10s") {
		t.Errorf("code %d, %v", code(err), err)
	}
}

// An ADD that comes again, because its runtime was killed, has the same result.
func TestAddAgain(t *testing.T) {
	n := newNode(t, "1.0.0", nil)
	fakeAgent(t, n.socket)
	pod := netns.New(t)
	n.mustAdd(t, attachment(pod))
	before := pod.Interface(t, "eth0")
	if _, err := n.add(t, attachment(pod)); err != nil {
		t.Fatal(err)
	}
	if after := pod.Interface(t, "eth0"); after.Index != before.Index || n.links(t) != 1 {
		t.Errorf("another interface: %+v, was %+v; %d links", after, before, n.links(t))
	}
	// One that leads elsewhere is of an ADD that was broken off.
	other := netns.New(t)
	pod.IP(t, "link set eth0 name old")
	pod.IP(t, "link set old netns "+other.Name)
	n.mustAdd(t, attachment(pod))
	if n.links(t) != 1 || strings.Contains(other.IP(t, "link"), "old") {
		t.Errorf("%d links, elsewhere %s", n.links(t), other.IP(t, "link"))
	}
}

// A pod has an interface into a tenant's network beside its own, and each keeps its routes.
func TestTenantsNetwork(t *testing.T) {
	n := newNode(t, "1.1.0", nil)
	a, _ := fakeAgent(t, n.socket)
	pod := netns.New(t)
	first, second := attachment(pod), attachment(pod)
	n.mustAdd(t, first)
	cluster := n.list
	text, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "red-net", "plugins": []map[string]any{
		{"type": "culvert-cni", "socket": n.socket, "tenant": "red"},
	}})
	if err == nil {
		n.list, err = libcni.NetworkConfFromBytes(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	red := n.list
	second.IfName = "net1"
	result := n.mustAdd(t, second)
	if got := result.Routes; len(got) != 2 || got[0].Dst.String() != "10.9.0.0/16" || got[1].Dst.String() != "fd09::/48" {
		t.Errorf("routes of the result: %v", got)
	}
	if list, err := a.Pods(); err != nil || len(list) != 2 || list[0].Tenant != "" || list[1].Tenant != "red" {
		t.Errorf("the agent heard %+v, %v", list, err)
	}
	for command, wants := range map[string][]string{
		"route":    {"default via 169.254.1.1 dev eth0", "169.254.1.1 dev eth0 scope link", "10.9.0.0/16 via 169.254.1.1 dev net1 onlink"},
		"-6 route": {"default via fe80::1 dev eth0", "fe80::1 dev eth0", "fd09::/48 via fe80::1 dev net1"},
	} {
		out := pod.IP(t, command)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("ip %s lacks %q:\n%s", command, want, out)
			}
		}
	}
	for _, of := range []struct {
		list *libcni.NetworkConfigList
		rc   *libcni.RuntimeConf
	}{{cluster, first}, {red, second}} {
		n.list = of.list
		if err := n.check(t, of.rc); err != nil {
			t.Errorf("CHECK of %s: %v", of.rc.IfName, err)
		}
	}
	pod.IP(t, "route del 10.9.0.0/16")
	if err := n.check(t, second); err == nil || !strings.Contains(err.Error(), "net1 lacks the route to 10.9.0.0/16 by 169.254.1.1") {
		t.Errorf("CHECK without a route: %v", err)
	}
	if err := n.del(t, second); err != nil {
		t.Error(err)
	}
	n.list = cluster
	if err := n.check(t, first); err != nil {
		t.Errorf("CHECK of eth0 after net1 is gone: %v", err)
	}
}
