package dataplane

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// fabric is nodes around a router of the kernel's, and pods behind them.
type fabric struct {
	router *netns.NS
	nodes  []*fabricNode
}

// fabricNode is one of them. Node n has the underlay address 2001:db8:n::1, the
// locator fc00:n::/48, and pods in 10.244.n.0/24 and fd00:n::/64.
type fabricNode struct {
	*netns.NS
	number int
	d      *DataPlane // nil: the kernel does it
	pods   []*fabricPod
}

type fabricPod struct {
	*netns.NS
	host       net.Interface
	mac        net.HardwareAddr
	ipv4, ipv6 netip.Addr
	tenant     uint8
}

const gatewayMAC = "ee:ee:ee:ee:ee:ee"

// The SIDs of a node.
const (
	nodeSID = "fc00:%d:0:1::"
	dt4SID  = "fc00:%d:0:4::"
	dt6SID  = "fc00:%d:0:6::"
)

func sidOf(form string, node int) netip.Addr { return addr(fmt.Sprintf(form, node)) }

func newFabric(t testing.TB, nodes int) *fabric {
	t.Helper()
	f := &fabric{router: netns.New(t)}
	f.router.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	for n := 1; n <= nodes; n++ {
		f.nodes = append(f.nodes, f.newNode(t, n))
	}
	return f
}

func (f *fabric) newNode(t testing.TB, number int) *fabricNode {
	t.Helper()
	n := &fabricNode{NS: netns.New(t), number: number}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.rp_filter"} {
		n.Sysctl(t, name, "1") // strict: what comes out of tunnels has to come the right way
	}
	netns.Veth(t, n.NS, "up", f.router, fmt.Sprintf("n%d", number))
	n.Addr(t, "up", fmt.Sprintf("2001:db8:%d::1/64", number))
	f.router.Addr(t, fmt.Sprintf("n%d", number), fmt.Sprintf("2001:db8:%d::ff/64", number))
	n.IP(t, fmt.Sprintf("-6 route add default via 2001:db8:%d::ff", number))
	f.router.IP(t, fmt.Sprintf("-6 route add fc00:%d::/48 via 2001:db8:%d::1", number, number))
	netns.Veth(t, n.NS, "culvert0", n.NS, "culvert1")
	n.Addr(t, "culvert0", fmt.Sprintf("10.244.%d.1/32", number))
	n.Addr(t, "culvert0", fmt.Sprintf("fd00:%d::1/128", number))
	n.IP(t, "-4 route add 10.244.0.0/16 dev culvert0 src "+fmt.Sprintf("10.244.%d.1", number))
	n.IP(t, "-6 route add fd00::/16 dev culvert0 src "+fmt.Sprintf("fd00:%d::1", number))
	n.IP(t, "link set culvert0 arp off mtu 1400")
	return n
}

// newPod makes a pod as the CNI plugin does.
func (n *fabricNode) newPod(t testing.TB) *fabricPod {
	t.Helper()
	number := len(n.pods) + 2
	return n.newPodOf(t, 0, fmt.Sprintf("10.244.%d.%d", n.number, number), fmt.Sprintf("fd00:%d::%d", n.number, number))
}

// newPodOf makes one of a tenant: the kernel of its node knows nothing of that.
func (n *fabricNode) newPodOf(t testing.TB, tenant uint8, ipv4, ipv6 string) *fabricPod {
	t.Helper()
	p := &fabricPod{NS: netns.New(t), ipv4: addr(ipv4), ipv6: addr(ipv6), tenant: tenant}
	name := fmt.Sprintf("pod%d", len(n.pods)+2)
	_, end := netns.Veth(t, n.NS, name, p.NS, "eth0")
	n.IP(t, "link set "+name+" address "+gatewayMAC)
	p.host, p.mac = n.Interface(t, name), end.HardwareAddr
	for _, line := range []string{
		"addr add " + p.ipv4.String() + "/32 dev eth0",
		"addr add " + p.ipv6.String() + "/128 dev eth0 nodad",
		"neigh add 169.254.1.1 dev eth0 nud permanent lladdr " + gatewayMAC,
		"-6 neigh add fe80::1 dev eth0 nud permanent lladdr " + gatewayMAC,
		"-4 route add 169.254.1.1 dev eth0 scope link",
		"-4 route add default via 169.254.1.1 mtu 1400",
		"-6 route add default via fe80::1 dev eth0 mtu 1400",
	} {
		p.IP(t, line)
	}
	for _, a := range []netip.Addr{p.ipv4, p.ipv6} {
		if tenant == 0 {
			n.IP(t, fmt.Sprintf("neigh add %s dev %s nud permanent lladdr %s", a, name, p.mac))
			n.IP(t, fmt.Sprintf("route add %s dev %s", a, name))
		}
	}
	n.pods = append(n.pods, p)
	if n.d != nil {
		must(t, n.d.Pods.Put(p.model()))
	}
	return p
}

func (p *fabricPod) model() pod.Pod {
	return pod.Pod{Ifindex: p.host.Index, MAC: p.mac, Addresses: []netip.Addr{p.ipv4, p.ipv6}, Tenant: p.tenant}
}

// serve has a node's packets handled by us. Its methods that the kernel has to
// see the namespace of run inside of it.
func (n *fabricNode) serve(t testing.TB, opts Options) {
	t.Helper()
	n.Do(t, func() {
		d, err := Open(again(t, opts))
		if err != nil {
			t.Fatalf("%+v", err)
		}
		n.d = d
	})
	n.put(t)
}

// put is what the agent puts of a node.
func (n *fabricNode) put(t testing.TB) {
	t.Helper()
	n.Do(t, func() {
		must(t, n.d.SetSettings(Settings{Source: addr(fmt.Sprintf("2001:db8:%d::1", n.number)), ErrorsPerSecond: 1000,
			Domain:   []netip.Prefix{prefix("fc00::/16")},
			Locators: []settings.Locator{{Prefix: prefix(fmt.Sprintf("fc00:%d::/48", n.number))}}}))
		for form, behavior := range map[string]srv6.Behavior{nodeSID: srv6.End, dt4SID: srv6.EndDT4, dt6SID: srv6.EndDT6} {
			must(t, n.d.SIDs.Put(srv6.LocalSID{SID: netip.PrefixFrom(sidOf(form, n.number), 64), Behavior: behavior}))
		}
		for _, p := range n.pods {
			must(t, n.d.Pods.Put(p.model()))
		}
		must(t, n.d.Members.Put(overlay.Member{Prefix: prefix("2001:db8::/32")})) // all nodes
		must(t, n.d.GuardForwarded(true))
		must(t, n.d.TCX.AttachUplink(n.Interface(t, "up").Index))
		must(t, n.d.TCX.AttachEntry(n.Interface(t, "culvert1").Index))
	})
}

// reach sends what is for another node's pods through these segments before the
// last one.
func (n *fabricNode) reach(t testing.TB, other *fabricNode, behavior srv6.Behavior, via ...netip.Addr) {
	t.Helper()
	n.Do(t, func() {
		for _, to := range []struct {
			name, sid string
			prefix    netip.Prefix
		}{
			{"ipv4", dt4SID, prefix(fmt.Sprintf("10.244.%d.0/24", other.number))},
			{"ipv6", dt6SID, prefix(fmt.Sprintf("fd00:%d::/64", other.number))},
		} {
			name := fmt.Sprintf("node-%d/%s", other.number, to.name)
			segments := append(append([]netip.Addr{}, via...), sidOf(to.sid, other.number))
			must(t, n.d.Policies.Put(srpolicy.Policy{Name: name, Behavior: behavior, SegmentLists: []srpolicy.SegmentList{{Segments: segments}}}))
			must(t, n.d.Steering.Put(srpolicy.Steering{Prefix: to.prefix, Policy: name}))
		}
	})
}

// transfer sends octets from one pod to an address of another, and back.
func transfer(t testing.TB, from, to *netns.NS, at netip.Addr, octets int) time.Duration {
	t.Helper()
	var listener net.Listener
	var err error
	to.Do(t, func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
	must(t, err)
	defer listener.Close()
	return send(t, from, listener, listener.Addr().String(), octets)
}

// send connects to `address`, where `listener` is reached, and has it send back
// what it gets.
func send(t testing.TB, from *netns.NS, listener net.Listener, address string, octets int) time.Duration {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			_, err = io.Copy(conn, conn)
		}
		done <- err
	}()
	var conn net.Conn
	var err error
	start := time.Now()
	from.Do(t, func() { conn, err = net.DialTimeout("tcp", address, 3*time.Second) })
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	wrote := make(chan error, 1)
	go func() {
		_, err := io.CopyN(conn, zeros{}, int64(octets))
		wrote <- err
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, conn)
	if err != nil || n != int64(octets) {
		t.Fatalf("%s: %d of %d octets came back: %v", address, n, octets, err)
	}
	must(t, <-wrote)
	must(t, <-done)
	return time.Since(start)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// byKernel has the kernel do the node's work: seg6 for packets to node `other`
// through the SIDs of via, and seg6local for packets that arrive.
func (n *fabricNode) byKernel(t testing.TB, other *fabricNode, via ...netip.Addr) {
	t.Helper()
	n.Sysctl(t, "net.ipv4.conf.all.rp_filter", "0")
	n.Sysctl(t, "net.ipv4.conf.up.rp_filter", "0")
	n.Sysctl(t, "net.ipv6.conf.all.seg6_enabled", "1")
	n.Sysctl(t, "net.ipv6.conf.up.seg6_enabled", "1")
	n.IP(t, "link del culvert0")
	segments := ""
	for _, v := range via {
		segments += v.String() + ","
	}
	for _, line := range []string{
		fmt.Sprintf("sr tunsrc set 2001:db8:%d::1", n.number),
		fmt.Sprintf("-4 route add 10.244.%d.0/24 encap seg6 mode encap.red segs %s%s dev up", other.number, segments, sidOf(dt4SID, other.number)),
		fmt.Sprintf("-6 route add fd00:%d::/64 encap seg6 mode encap.red segs %s%s dev up", other.number, segments, sidOf(dt6SID, other.number)),
		fmt.Sprintf("-6 route add %s encap seg6local action End dev up", sidOf(nodeSID, n.number)),
		fmt.Sprintf("-6 route add %s encap seg6local action End.DX4 nh4 %s dev up", sidOf(dt4SID, n.number), n.pods[0].ipv4),
		fmt.Sprintf("-6 route add %s encap seg6local action End.DT6 table 254 dev up", sidOf(dt6SID, n.number)),
	} {
		n.IP(t, line)
	}
}

// podProgramsOf loads the programs for pods.
func podProgramsOf(t testing.TB, d *DataPlane) map[string]*ebpf.Program {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	programs, err := d.TCX.Programs()
	must(t, err)
	return programs
}

// sourced has frames leave by the uplink from its own address.
func (r *rig) sourced(t testing.TB, out layers) layers {
	out = slices.Clone(out)
	for i, l := range out {
		if e, ok := l.(packet.Ethernet); ok && string(e.Src) == "source" {
			e.Src = macOf(t, rowUplink)
			out[i] = e
		} else if ok && e.Src == nil && e.Dst == nil {
			e.Dst = macOf(t, rowUplink)
			out[i] = e
		}
	}
	return out
}
