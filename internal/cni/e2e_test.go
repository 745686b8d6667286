package cni

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// member is a node of a cluster, with the daemon that it runs.
type member struct {
	*node
	nth       int
	dir, pins string
	daemon    *exec.Cmd
	log       *log
	client    *api.Client
}

const memberFile = `
api: {socket: %q}
log: {level: debug}
overlay:
  mode: static
  node: node-%d
  uplinks: [up0]
  nodes:
    - {name: node-1, address: "2001:db8::1", locator: "fc00:0:1::/48", prefixes: [10.244.1.0/24, "fd00:10:244:1::/64"]}
    - {name: node-2, address: "2001:db8::2", locator: "fc00:0:2::/48", prefixes: [10.244.2.0/24, "fd00:10:244:2::/64"]}
`

// newMember is the first of two nodes, with a router for the other one.
func newMember(tb testing.TB, version string, after []map[string]any, dirs ...string) *member {
	tb.Helper()
	m := newMemberAt(tb, 1, newNode(tb, version, after, dirs...))
	netns.Veth(tb, m.NS, "up0", netns.New(tb), "r0")
	m.connect(tb)
	m.start(tb)
	return m
}

// newMemberAt is the nth, without an uplink.
func newMemberAt(tb testing.TB, nth int, n *node) *member {
	tb.Helper()
	m := &member{node: n, nth: nth, dir: tb.TempDir(), pins: bpffs.Dir(tb, dataplane.Remove)}
	if err := os.WriteFile(filepath.Join(m.dir, "culvert.yaml"), fmt.Appendf(nil, memberFile, m.socket, nth), 0o600); err != nil {
		tb.Fatal(err)
	}
	var err error
	if m.client, err = api.NewClient(api.Endpoint{Socket: m.socket}); err != nil {
		tb.Fatal(err)
	}
	return m
}

// connect has the uplink lead to the others.
func (m *member) connect(tb testing.TB) {
	tb.Helper()
	m.Addr(tb, "up0", fmt.Sprintf("2001:db8::%d/64", m.nth))
	m.Addr(tb, "up0", fmt.Sprintf("192.0.2.%d/24", m.nth))
}

// start starts the daemon; it need not be ready yet.
func (m *member) start(tb testing.TB) {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	m.log = &log{}
	m.daemon = m.Command(program)
	m.daemon.Env = append(os.Environ(), daemonEnv+"="+fmt.Sprintf("run --config %s --pin-path %s --state %s",
		filepath.Join(m.dir, "culvert.yaml"), m.pins, filepath.Join(m.dir, "state.db")))
	m.daemon.Stderr = m.log
	if err := m.daemon.Start(); err != nil {
		tb.Fatal(err)
	}
	daemon, said := m.daemon, m.log
	tb.Cleanup(func() {
		if daemon.ProcessState == nil {
			daemon.Process.Signal(syscall.SIGTERM)
			daemon.Wait()
		}
		if tb.Failed() {
			tb.Logf("the daemon's log:\n%s", said.end())
		}
	})
}

// log is what a daemon says.
type log struct {
	mu   sync.Mutex
	text []byte
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// end is the last of it.
func (l *log) end() string {
	text := l.String()
	return text[max(0, len(text)-20_000):]
}

// kill leaves what a crash leaves.
func (m *member) kill(tb testing.TB) {
	tb.Helper()
	if err := m.daemon.Process.Kill(); err != nil {
		tb.Fatal(err)
	}
	m.daemon.Wait()
}

func (m *member) pods(tb testing.TB) []pods.Status {
	tb.Helper()
	var list []pods.Status
	var err error
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if list, err = m.client.Pods(context.Background(), ""); err == nil {
			return list
		}
	}
	tb.Fatalf("list pods: %v", err)
	return nil
}

// clean says whether there is nothing left of any pod.
func (m *member) clean(tb testing.TB) {
	tb.Helper()
	if list := m.pods(tb); len(list) > 0 {
		tb.Errorf("the agent has %d pods: %+v", len(list), list[0])
	}
	if m.links(tb) > 0 {
		tb.Errorf("links left:\n%s", m.IP(tb, "-o link show type veth"))
	}
	routes := m.IP(tb, "route show proto 83") + m.IP(tb, "-6 route show proto 83")
	if routes != "" {
		tb.Errorf("routes left:\n%s", routes)
	}
	entries, err := filepath.Glob(filepath.Join(m.pins, "*", "pod*"))
	if err != nil || slices.ContainsFunc(entries, func(e string) bool { return strings.Contains(e, "link") }) {
		tb.Errorf("pins left: %v, %v", entries, err)
	}
}

func (m *member) reaches(tb testing.TB, from *netns.NS, to string) {
	tb.Helper()
	from.Run(tb, "ping", "-c", "1", "-W", "3", to)
}

func addresses(r *current.Result) []string {
	var out []string
	for _, ip := range r.IPs {
		out = append(out, ip.Address.IP.String())
	}
	return out
}

// Pods on one node, with the agent that there is: each other, the node, and back,
// over a crash of the agent, and away without a trace.
func TestEndToEnd(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			m := newMember(t, version, nil)
			a, b := netns.New(t), netns.New(t)
			ra, rb := m.mustAdd(t, attachment(a)), m.mustAdd(t, attachment(b))
			meet := func() {
				t.Helper()
				for i := range ra.IPs {
					m.reaches(t, a, addresses(rb)[i])
					m.reaches(t, b, addresses(ra)[i])
					m.reaches(t, m.NS, addresses(ra)[i])
				}
				m.reaches(t, a, "192.0.2.1")
				m.reaches(t, a, "2001:db8::1")
			}
			meet()
			for _, rc := range []*libcni.RuntimeConf{attachment(a), attachment(b)} {
				if err := m.check(t, rc); err != nil {
					t.Errorf("CHECK: %v", err)
				}
			}
			m.kill(t)
			meet()
			m.start(t)
			rc := attachment(netns.New(t))
			m.mustAdd(t, rc) // waits for the agent
			meet()
			if err := m.check(t, attachment(a)); err != nil {
				t.Errorf("CHECK after a crash: %v", err)
			}
			for _, rc := range []*libcni.RuntimeConf{attachment(a), attachment(b), rc} {
				if err := m.del(t, rc); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			m.clean(t)
		})
	}
}

// A cluster of one family has pods of one.
func TestOneFamily(t *testing.T) {
	for family, c := range map[string]struct{ without, pod, node string }{
		"IPv4": {`, "fd00:10:244:1::/64"`, "10.244.1.2", "192.0.2.1"},
		"IPv6": {`10.244.1.0/24, `, "fd00:10:244:1::2", "2001:db8::1"},
	} {
		t.Run(family, func(t *testing.T) {
			m := newMemberAt(t, 1, newNode(t, "1.0.0", nil))
			file := strings.Replace(fmt.Sprintf(memberFile, m.socket, 1), c.without, "", 1)
			if err := os.WriteFile(filepath.Join(m.dir, "culvert.yaml"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			netns.Veth(t, m.NS, "up0", netns.New(t), "r0")
			m.connect(t)
			m.start(t)
			pod := netns.New(t)
			if got := addresses(m.mustAdd(t, attachment(pod))); !slices.Equal(got, []string{c.pod}) {
				t.Errorf("addresses %v", got)
			}
			m.reaches(t, m.NS, c.pod)
			m.reaches(t, pod, c.node)
			if err := m.check(t, attachment(pod)); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if err := m.del(t, attachment(pod)); err != nil {
				t.Errorf("DEL: %v", err)
			}
			m.clean(t)
		})
	}
}

// What comes and goes while the agent does not run, and a reboot, leave nothing.
func TestWithoutAgent(t *testing.T) {
	m := newMember(t, "1.0.0", nil)
	deleted, rebooted := netns.New(t), netns.New(t)
	m.mustAdd(t, attachment(deleted))
	m.mustAdd(t, attachment(rebooted))
	m.pods(t)
	m.kill(t)
	if err := m.del(t, attachment(deleted)); err != nil {
		t.Errorf("DEL: %v", err)
	}
	rebooted.IP(t, "link del eth0")
	m.start(t)
	m.clean(t)
	if err := m.del(t, attachment(rebooted)); err != nil {
		t.Errorf("DEL: %v", err)
	}
}

// Whatever is killed while pods come, plugin or agent, DEL leaves nothing.
func TestKilled(t *testing.T) {
	m := newMember(t, "1.0.0", nil)
	m.pods(t)
	random := rand.New(rand.NewPCG(1, 2))
	var all []*netns.NS
	added := 0
	for i := range 30 {
		pod := netns.New(t)
		all = append(all, pod)
		if i%10 == 9 {
			time.AfterFunc(time.Duration(random.IntN(30))*time.Millisecond, func() { m.daemon.Process.Kill() })
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(60))*time.Millisecond)
		m.Do(t, func() {
			if _, err := m.cni.AddNetworkList(ctx, m.list, attachment(pod)); err == nil {
				added++
			}
		})
		cancel()
		if i%10 == 9 {
			m.daemon.Wait()
			m.start(t)
			m.pods(t)
		}
	}
	t.Logf("%d of %d ADDs ended before they were killed; then %d pods and %d links were there", added, len(all), len(m.pods(t)), m.links(t))
	for _, pod := range all {
		if err := m.del(t, attachment(pod)); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	m.clean(t)
}

// Many at a time, one after the other, and how long the agent takes.
func TestHundredPods(t *testing.T) {
	m := newMember(t, "1.0.0", nil)
	const pods = 100
	namespaces := make([]*netns.NS, pods)
	for i := range namespaces {
		namespaces[i] = netns.New(t)
	}
	var took []time.Duration
	before := m.cpu(t)
	for _, ns := range namespaces {
		begun := time.Now()
		m.mustAdd(t, attachment(ns))
		took = append(took, time.Since(begun))
	}
	t.Logf("ADD, 100 in a row, with the start of the plugin: median %s, P99 %s, most %s", percentiles(took)...)
	t.Logf("the daemon's CPU for each: %s", (m.cpu(t)-before)/pods)
	inAgent := m.took(t)
	t.Logf("the same in the agent: median %s, P99 %s, most %s", percentiles(inAgent)...)
	if len(inAgent) != pods || inAgent[pods/2] > 80*time.Millisecond {
		t.Errorf("%d ADDs in the agent", len(inAgent))
	}
	m.reaches(t, namespaces[0], addressOf(t, m, namespaces[pods-1]))
	deleteAll(t, m, namespaces)

	begun := time.Now()
	var all sync.WaitGroup
	for _, ns := range namespaces {
		all.Go(func() {
			if _, err := m.add(t, attachment(ns)); err != nil {
				t.Errorf("ADD: %v", err)
			}
		})
	}
	all.Wait()
	t.Logf("ADD, 100 at the same time: %s", time.Since(begun))
	seen := map[string]bool{}
	for _, p := range m.pods(t) {
		for _, a := range p.Addresses {
			seen[a.String()] = true
		}
	}
	if len(seen) != 2*pods {
		t.Errorf("%d addresses", len(seen))
	}
	m.reaches(t, namespaces[0], addressOf(t, m, namespaces[pods-1]))
	deleteAll(t, m, namespaces)
}

// percentiles are the median, the 99th and the highest.
func percentiles(list []time.Duration) []any {
	slices.Sort(list)
	n := len(list)
	return []any{list[n/2], list[n*99/100-1], list[n-1]}
}

// cpu is how much time of the CPU the daemon has had.
func (m *member) cpu(t *testing.T) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.daemon.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	const second = 100 // USER_HZ
	var user, system time.Duration
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return (user + system) * time.Second / second
}

// took is how long ADDs took in the agent, by its own log.
func (m *member) took(t *testing.T) (out []time.Duration) {
	t.Helper()
	for line := range strings.Lines(m.log.String()) {
		if _, rest, ok := strings.Cut(line, `msg="pod add"`); ok && strings.Contains(rest, "error=<nil>") {
			_, text, _ := strings.Cut(rest, "took=")
			d, err := time.ParseDuration(strings.Fields(text)[0])
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, d)
		}
	}
	return out
}

func addressOf(t *testing.T, m *member, pod *netns.NS) string {
	t.Helper()
	for _, p := range m.pods(t) {
		if p.ContainerID == pod.Name {
			return p.Addresses[0].String()
		}
	}
	t.Fatalf("no pod %s", pod.Name)
	return ""
}

func deleteAll(t *testing.T, m *member, namespaces []*netns.NS) {
	t.Helper()
	var all sync.WaitGroup
	for _, ns := range namespaces {
		all.Go(func() {
			if err := m.del(t, attachment(ns)); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	all.Wait()
	m.clean(t)
}
