package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/testutil/bpffs"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// podOrder is a pod that a daemon is to add.
type podOrder struct {
	pods.Attachment
	pods.Pod
}

// addPods adds pods and says how they are to be configured.
func addPods(a *Agent, text string) error {
	var orders []podOrder
	if err := json.Unmarshal([]byte(text), &orders); err != nil {
		return err
	}
	for _, o := range orders {
		n, err := a.AddPod(o.Attachment, o.Pod)
		if err != nil {
			return err
		}
		data, err := json.Marshal(n)
		if err != nil {
			return err
		}
		fmt.Println("pod", string(data))
	}
	return nil
}

// reloads applies the file whenever SIGHUP comes, and says so.
func reloads(ctx context.Context, a *Agent) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			_, err := a.Reload(ctx)
			fmt.Println("reloaded", err)
		}
	}
}

// memberNode is a node of a cluster in namespaces: all on one link, each with a
// daemon and two pods.
type memberNode struct {
	*netns.NS
	site   *site
	number int
	daemon *daemonProcess
	orders []podOrder
	pods   []*memberPod
}

type memberPod struct {
	*netns.NS
	addresses []netip.Addr
	mtu       int
}

type members struct {
	outside *netns.NS // the link, and a host on it that is no node
	nodes   []*memberNode
	binary  string
}

// overlayFile is the configuration of every node; only the name differs.
const overlayFile = `
overlay:
  mode: static
  node: node-%d
  masquerade: true
  uplinks: [up]
  sids: %s
  nodes:
    - {name: node-1, address: '2001:db8::1', locator: 'fc00:0:1::/48', prefixes: [10.244.1.0/24, 'fd00:1::/64']}
    - {name: node-2, address: '2001:db8::2', addresses: [192.0.2.2], locator: 'fc00:0:2::/48', prefixes: [10.244.2.0/24, 'fd00:2::/64']}
    - {name: node-3, address: '2001:db8::3', locator: 'fc00:0:3::/48', prefixes: ['fd00:3::/64']}
`

// newMembers builds three nodes on a bridge; the third has IPv6 only.
func newMembers(tb testing.TB, sids string) *members {
	tb.Helper()
	binary, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	m := &members{outside: netns.New(tb), binary: binary}
	m.outside.IP(tb, "link add name br type bridge")
	m.outside.Up(tb, "br")
	m.outside.Addr(tb, "br", "2001:db8::ff/64")
	m.outside.Addr(tb, "br", "192.0.2.254/24")
	for i := 1; i <= 3; i++ {
		n := &memberNode{NS: netns.New(tb), number: i}
		netns.Veth(tb, m.outside, fmt.Sprintf("n%d", i), n.NS, "up")
		m.outside.IP(tb, fmt.Sprintf("link set n%d master br", i))
		n.Addr(tb, "up", fmt.Sprintf("2001:db8::%d/64", i))
		n.Addr(tb, "up", fmt.Sprintf("192.0.2.%d/24", i))
		n.IP(tb, "-6 route add default via 2001:db8::ff")
		n.site = &site{node: n.NS, dir: tb.TempDir(), pins: bpffs.Dir(tb, dataplane.Remove)}
		n.write(tb, fmt.Sprintf(overlayFile, i, sids))
		for j := range 2 {
			n.pods = append(n.pods, n.newPod(tb, j))
		}
		m.nodes = append(m.nodes, n)
	}
	for _, n := range m.nodes {
		n.start(tb, m.binary)
	}
	return m
}

func (n *memberNode) write(tb testing.TB, yaml string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(n.site.dir, "culvert.yaml"), []byte(yaml), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// newPod makes the veth pair, as the CNI plugin does.
func (n *memberNode) newPod(tb testing.TB, number int) *memberPod {
	tb.Helper()
	p := &memberPod{NS: netns.New(tb)}
	name := fmt.Sprintf("pod%d", number)
	_, end := netns.Veth(tb, n.NS, name, p.NS, "eth0")
	n.IP(tb, "link set "+name+" address ee:ee:ee:ee:ee:ee")
	n.orders = append(n.orders, podOrder{pods.Attachment{ContainerID: fmt.Sprintf("c%d", number), Interface: "eth0"}, pods.Pod{
		Network: "culvert", NetNS: p.Path, HostInterface: name, HostIfindex: n.Interface(tb, name).Index, MAC: end.HardwareAddr.String(),
	}})
	return p
}

// start runs the daemon, and configures pods as it says.
func (n *memberNode) start(tb testing.TB, binary string) {
	tb.Helper()
	orders, err := json.Marshal(n.orders)
	if err != nil {
		tb.Fatal(err)
	}
	n.daemon = n.site.daemon(tb, binary, podsEnv+"="+string(orders))
	for _, p := range n.pods {
		var given pods.Network
		text := strings.TrimPrefix(n.says(tb, "pod "), "pod ")
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			tb.Fatalf("%q: %v", text, err)
		}
		if p.addresses == nil {
			p.configure(tb, given)
		}
		p.addresses, p.mtu = given.Addresses, given.MTU
	}
}

// says is the next line that the daemon says, which begins so.
func (n *memberNode) says(tb testing.TB, prefix string) string {
	tb.Helper()
	select {
	case line := <-n.daemon.lines:
		if !strings.HasPrefix(line, prefix) {
			tb.Fatalf("node-%d says %q, want %q\n%s", n.number, line, prefix, n.daemon.log)
		}
		return line
	case <-time.After(20 * time.Second):
		tb.Fatalf("node-%d does not say %q\n%s", n.number, prefix, n.daemon.log)
	}
	return ""
}

func (n *memberNode) reload(tb testing.TB, yaml string) {
	tb.Helper()
	n.write(tb, yaml)
	if err := n.daemon.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		tb.Fatal(err)
	}
	if line := n.says(tb, "reloaded "); line != "reloaded <nil>" {
		tb.Fatalf("node-%d: %s", n.number, line)
	}
}

func (p *memberPod) configure(tb testing.TB, given pods.Network) {
	tb.Helper()
	const gateway = "ee:ee:ee:ee:ee:ee"
	for i, a := range given.Addresses {
		via := given.Gateways[i]
		p.IP(tb, fmt.Sprintf("addr add %s/%d dev eth0", a, a.BitLen()))
		p.IP(tb, fmt.Sprintf("neigh add %s dev eth0 nud permanent lladdr %s", via, gateway))
		if a.Is4() {
			p.IP(tb, fmt.Sprintf("route add %s dev eth0 scope link", via))
			p.IP(tb, fmt.Sprintf("route add default via %s dev eth0 mtu %d", via, given.MTU))
		} else {
			p.IP(tb, fmt.Sprintf("-6 route add default via %s dev eth0 mtu %d", via, given.MTU))
		}
	}
}

// pinged says whether an address answers a ping with a payload of that many
// octets, sent with DF.
func pinged(from *netns.NS, to netip.Addr, size int) bool {
	return from.Command("ping", "-c1", "-W2", "-M", "do", "-s", strconv.Itoa(size), to.String()).Run() == nil
}

// within waits until something is true, and not for long.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// everyPair calls f for each two pods that have an address of one family.
func (m *members) everyPair(f func(name string, a, b *memberPod, to netip.Addr)) {
	for _, x := range m.nodes {
		for _, y := range m.nodes {
			for i, a := range x.pods {
				for j, b := range y.pods {
					for _, to := range b.addresses {
						if a == b || len(a.addresses) == 1 && to.Is4() || !to.Is4() && (i+j)%2 == 1 {
							continue // half of IPv6 is enough
						}
						f(fmt.Sprintf("node-%d pod%d to node-%d pod%d (%s)", x.number, i, y.number, j, to), a, b, to)
					}
				}
			}
		}
	}
}

func TestCluster(t *testing.T) {
	for _, sids := range []string{"single", "double"} {
		t.Run(sids, func(t *testing.T) {
			m := newMembers(t, sids)
			checkReach(t, m)
			checkHosts(t, m)
			checkServicesOfHosts(t, m)
			if sids == "single" {
				checkFragments(t, m)
				checkSwitch(t, m)
				checkMAC(t, m)
				checkFlush(t, m)
				checkRestart(t, m)
				checkLeave(t, m)
			}
		})
	}
}

// checkReach: pods reach each other, with what fits and no more.
func checkReach(t *testing.T, m *members) {
	m.everyPair(func(name string, a, b *memberPod, to netip.Addr) {
		headers := 28
		if to.Is6() {
			headers = 48
		}
		if !pinged(a.NS, to, 56) || !pinged(a.NS, to, a.mtu-headers) {
			t.Errorf("%s: no answer", name)
		}
	})
	if t.Failed() {
		t.Log(m.dump(t))
	}
	a, b := m.nodes[0].pods[0], m.nodes[1].pods[1]
	for _, to := range b.addresses {
		if sum := transfer(t, a, b, to); sum != transferred {
			t.Errorf("%d octets of a TCP connection to %s came back, of %d", sum, to, transferred)
		}
	}
}

// checkHosts: nodes reach pods here and there, and the reverse; what leaves the
// cluster has the node's address.
func checkHosts(t *testing.T, m *members) {
	here, there := m.nodes[0].pods[0], m.nodes[1].pods[0]
	for i, to := range here.addresses {
		if !pinged(m.nodes[0].NS, to, 56) {
			t.Errorf("the node does not reach its pod %s", to)
		}
		if !pinged(m.nodes[0].NS, there.addresses[i], 56) {
			t.Errorf("the node does not reach the pod %s of another", there.addresses[i])
		}
	}
	for _, to := range []string{"2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.254", "2001:db8::ff", "10.244.2.1", "fd00:2::1"} {
		if !pinged(here.NS, netip.MustParseAddr(to), 56) {
			t.Errorf("the pod does not reach %s", to)
		}
	}
}

// checkServicesOfHosts: a Service leads pods to another node itself, on an underlay that carries no
// pods' addresses.
func checkServicesOfHosts(t *testing.T, m *members) {
	here, n := m.nodes[0], m.nodes[1]
	n.Run(t, "nft", "add table inet filtering; add chain inet filtering in { type filter hook prerouting priority -300; }; "+
		"add rule inet filtering in iifname up ip saddr 10.244.0.0/16 drop; add rule inet filtering in iifname up ip6 saddr fd00::/16 drop")
	for _, s := range [][3]string{{"ip", "10.96.0.1", "192.0.2.2"}, {"ip6", "fd00:96::1", "2001:db8::2"}} {
		here.Run(t, "nft", fmt.Sprintf("add table %[1]s services; add chain %[1]s services pre { type nat hook prerouting priority -100; }; add rule %[1]s services pre %[1]s daddr %[2]s dnat to %[3]s",
			s[0], s[1], s[2]))
		for _, to := range s[1:] {
			if !pinged(here.pods[0].NS, netip.MustParseAddr(to), 56) {
				t.Errorf("the pod does not reach the other node by %s", to)
			}
		}
		here.Run(t, "nft", "delete table "+s[0]+" services")
	}
	n.Run(t, "nft", "delete table inet filtering")
}

// checkFragments: a node asks a pod of another from its own address, and the answer is too large for
// the tunnel. It is the pod's all the same.
func checkFragments(t *testing.T, m *members) {
	p, n := m.nodes[0].pods[0], m.nodes[1]
	var server net.PacketConn
	var client net.Conn
	var err1, err2 error
	from, to := netip.MustParseAddrPort("[2001:db8::2]:7001"), netip.AddrPortFrom(p.addresses[1], 7001)
	p.Do(t, func() { server, err1 = net.ListenPacket("udp", to.String()) })
	n.Do(t, func() {
		client, err2 = net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	})
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	defer server.Close()
	defer client.Close()
	go func() {
		buf := make([]byte, 4000)
		if _, back, err := server.ReadFrom(buf); err == nil {
			_, _ = server.WriteTo(buf, back)
		}
	}()
	err1 = client.SetDeadline(time.Now().Add(10 * time.Second))
	_, err2 = client.Write([]byte("?"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if got, err := client.Read(make([]byte, 5000)); got != 4000 {
		t.Errorf("of an answer in fragments %d octets came, %v", got, err)
	}
}

// checkSwitch replaces the direct path by a configured one: the pods' MTU
// follows, and no packet is lost.
func checkSwitch(t *testing.T, m *members) {
	n, via := m.nodes[0], m.nodes[2]
	a, to := n.pods[0], m.nodes[1].pods[0].addresses[1]
	via.reload(t, fmt.Sprintf(overlayFile, 3, "single")+"sids: [{sid: 'fc00:0:3:1::/64', behavior: End}]\n")
	stop := pinging(t, a.NS, to)
	const scenic = `
policies:
  - {name: scenic, color: 6, endpoint: '2001:db8::2', source: '2001:db8::1', preference: 200, segment_lists: [{segments: ['fc00:0:3:1::', 'fc00:0:2:6::']}]}
`
	before := endPackets(t, via)
	n.reload(t, fmt.Sprintf(overlayFile, 1, "single")+scenic)
	const enough = 100
	came := 0
	for until := time.Now().Add(10 * time.Second); came < enough && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		came = endPackets(t, via) - before
	}
	if came < enough {
		t.Errorf("node-3 forwarded %d packets of those that should come by it", came)
	}
	if routes := a.IP(t, "-6 route"); !strings.Contains(routes, fmt.Sprintf("default via fe80::1 dev eth0 metric 1024 mtu %d", a.mtu-24)) {
		t.Errorf("the pod's routes have another MTU than %d: %s", a.mtu-24, routes)
	}
	n.reload(t, fmt.Sprintf(overlayFile, 1, "single"))
	time.Sleep(200 * time.Millisecond)
	if lost := stop(); lost != "0%" {
		t.Errorf("%s of the packets were lost", lost)
	}
	if !pinged(a.NS, to, a.mtu-48) {
		t.Error("what fitted before does not fit again")
	}
}

// endPackets is what came by a node's uplink.
func endPackets(t *testing.T, n *memberNode) int {
	t.Helper()
	_, line, _ := strings.Cut(n.Run(t, "cat", "/proc/net/dev"), " up:")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		t.Fatalf("no counters of the uplink: %q", line)
	}
	count, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// checkMAC: somebody gives culvert0 another MAC, as udev does, and what tunnels bring still reaches
// the node itself.
func checkMAC(t *testing.T, m *members) {
	n := m.nodes[0]
	n.IP(t, "link set culvert0 address 02:00:00:00:00:99")
	for _, to := range m.nodes[1].pods[0].addresses {
		within(t, "the node reaches a pod of another", func() bool { return pinged(n.NS, to, 56) })
	}
}

// checkFlush: somebody removes all tables of nftables, and pods still reach what is outside. The log
// says so once.
func checkFlush(t *testing.T, m *members) {
	n := m.nodes[0]
	for i := range 2 {
		n.Run(t, "nft", "flush", "ruleset")
		within(t, "the pod reaches what is outside", func() bool {
			return pinged(n.pods[0].NS, netip.MustParseAddr("192.0.2.254"), 56)
		})
		if got := strings.Count(n.daemon.log.String(), "event=overlay.masquerade_removed"); got != i+1 {
			t.Errorf("removed %d times, and the log says %d times", i+1, got)
		}
	}
}

// checkRestart: packets go on while the daemon is away, and after.
func checkRestart(t *testing.T, m *members) {
	n := m.nodes[0]
	stop := pinging(t, n.pods[0].NS, m.nodes[1].pods[0].addresses[0])
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		n.daemon.end(t, sig)
		time.Sleep(100 * time.Millisecond)
		n.start(t, m.binary)
	}
	time.Sleep(200 * time.Millisecond)
	if lost := stop(); lost != "0%" {
		t.Errorf("%s of the packets were lost", lost)
	}
}

// checkLeave: a node that is no member any more leaves nothing in the kernel.
func checkLeave(t *testing.T, m *members) {
	n := m.nodes[0]
	n.reload(t, "log: {level: debug}\n")
	if got := n.IP(t, "link") + n.IP(t, "route show proto 84") + n.IP(t, "-6 route show proto 84") + n.Run(t, "nft", "list", "tables"); strings.Contains(got, netdev.EntryName) || strings.Contains(got, "table ip") || strings.Contains(got, "fc00:") {
		t.Errorf("left behind: %s", got)
	}
}

// pinging sends 500 packets a second until stop is called, which says how many
// of them had no answer.
func pinging(t *testing.T, from *netns.NS, to netip.Addr) (stop func() (lost string)) {
	t.Helper()
	cmd := from.Command("ping", "-i", "0.002", "-q", to.String())
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	return func() string {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("ping: %v\n%s", err, out.String())
		}
		for _, word := range strings.Fields(out.String()) {
			if strings.HasSuffix(word, "%") {
				return word
			}
		}
		t.Fatalf("ping says %q", out.String())
		return ""
	}
}

const transferred = 4 << 20

// transfer sends octets from one pod to another by TCP, and counts those that
// come.
func transfer(t *testing.T, a, b *memberPod, to netip.Addr) (received int64) {
	t.Helper()
	var listener net.Listener
	var err error
	address := netip.AddrPortFrom(to, 7000).String()
	b.Do(t, func() { listener, err = net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan int64, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		done <- n
	}()
	var c net.Conn
	a.Do(t, func() { c, err = net.DialTimeout("tcp", address, 5*time.Second) })
	if err != nil {
		t.Errorf("TCP to %s: %v", to, err)
		return 0
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, transferred)); err != nil {
		t.Errorf("TCP to %s: %v", to, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case received = <-done:
	case <-time.After(20 * time.Second):
	}
	return received
}

// dump is for the reader of a failure.
func (m *members) dump(t *testing.T) string {
	var b strings.Builder
	for _, n := range m.nodes[:2] {
		for _, args := range [][]string{{"addr"}, {"route"}, {"-6", "route"}, {"neigh"}} {
			out, err := exec.Command("nsenter", append([]string{"--net=" + n.Path, "ip"}, args...)...).CombinedOutput()
			fmt.Fprintf(&b, "node-%d ip %s: %v\n%s\n", n.number, args, err, out)
		}
		fmt.Fprintf(&b, "%s\n", n.daemon.log)
	}
	return b.String()
}
