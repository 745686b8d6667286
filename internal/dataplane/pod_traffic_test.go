package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/reason"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// served is a fabric whose nodes are all ours, with two pods each.
func served(t testing.TB, nodes int) *fabric {
	t.Helper()
	f := newFabric(t, nodes)
	for _, n := range f.nodes {
		n.serve(t, Options{Limits: smallLimits})
		n.addPods(t, 2)
	}
	return f
}

// addPods makes pods where the data path sees the namespace of their node.
func (n *fabricNode) addPods(t testing.TB, count int) {
	t.Helper()
	n.Do(t, func() {
		for range count {
			n.newPod(t)
		}
	})
}

// drops is what a node has dropped, and why.
func (n *fabricNode) drops(t testing.TB) string {
	t.Helper()
	counts, err := n.d.Outcomes()
	must(t, err)
	var out []string
	for i, c := range counts {
		if r := reason.Reason(i); r.Drop() && c.Packets > 0 {
			out = append(out, fmt.Sprintf("%d %s", c.Packets, r))
		}
	}
	return strings.Join(out, ", ")
}

func (n *fabricNode) count(t testing.TB, r abi.Reason) uint64 {
	t.Helper()
	counts, err := n.d.Outcomes()
	must(t, err)
	return counts[r].Packets
}

func (f *fabric) noDrops(t testing.TB) {
	t.Helper()
	for _, n := range f.nodes {
		if n.d == nil {
			continue
		}
		if drops := n.drops(t); drops != "" {
			t.Errorf("node %d dropped %s", n.number, drops)
		}
	}
}

// addresses of a pod.
func (p *fabricPod) addresses() []netip.Addr { return []netip.Addr{p.ipv4, p.ipv6} }

// ping wants every answer.
func ping(t testing.TB, from *netns.NS, to netip.Addr, args ...string) {
	t.Helper()
	args = append(args, "-c", "3", "-i", "0.02", "-W", "2", to.String())
	if out, err := from.Command("ping", args...).CombinedOutput(); err != nil || !strings.Contains(string(out), " 0% packet loss") {
		t.Errorf("ping %s: %v\n%s", to, err, out)
	}
}

// datagrams go to and fro, one of each size.
func datagrams(t testing.TB, from, to *netns.NS, at netip.Addr, sizes ...int) {
	t.Helper()
	var server net.PacketConn
	var client net.Conn
	var err error
	to.Do(t, func() { server, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 0).String()) })
	must(t, err)
	defer server.Close()
	from.Do(t, func() { client, err = net.Dial("udp", server.LocalAddr().String()) })
	must(t, err)
	defer client.Close()
	go func() {
		b := make([]byte, 65536)
		for {
			n, a, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(b[:n], a)
		}
	}()
	b := make([]byte, 65536)
	for _, size := range sizes {
		_, err := client.Write(b[:size])
		must(t, err)
		must(t, client.SetReadDeadline(time.Now().Add(2*time.Second)))
		if n, err := client.Read(b); err != nil || n != size {
			t.Errorf("datagram of %d octets to %s: %d came back: %v", size, at, n, err)
		}
	}
}

// exchange is all kinds of traffic from one pod to another.
func exchange(t testing.TB, from, to *fabricPod) {
	t.Helper()
	for _, at := range to.addresses() {
		transfer(t, from.NS, to.NS, at, 2<<20)
		datagrams(t, from.NS, to.NS, at, 1, 1000, 1340, 4000)
		ping(t, from.NS, at, "-s", "1000")
	}
}

// setGSO changes what a pod's stack may leave whole.
func (p *fabricPod) setGSO(t testing.TB, on string) {
	t.Helper()
	p.Run(t, "ethtool", "-K", "eth0", "tso", on, "gso", on)
}

// TestPodsOfTwoNodes sends everything between pods of two nodes, through every
// form of tunnel.
func TestPodsOfTwoNodes(t *testing.T) {
	f := served(t, 3)
	a, b, c := f.nodes[0], f.nodes[1], f.nodes[2]
	for _, tunnel := range []struct {
		name     string
		behavior srv6.Behavior
		to, from []netip.Addr
	}{
		{"no SRH", srv6.HEncapsRed, nil, nil},
		{"SRH of one segment", srv6.HEncaps, nil, nil},
		{"node SID first", srv6.HEncapsRed, []netip.Addr{sidOf(nodeSID, 2)}, []netip.Addr{sidOf(nodeSID, 1)}},
		{"by way of another node", srv6.HEncapsRed, []netip.Addr{sidOf(nodeSID, 3), sidOf(nodeSID, 2)},
			[]netip.Addr{sidOf(nodeSID, 3), sidOf(nodeSID, 1)}},
	} {
		a.reach(t, b, tunnel.behavior, tunnel.to...)
		b.reach(t, a, tunnel.behavior, tunnel.from...)
		for _, gso := range []string{"on", "off"} {
			t.Run(tunnel.name+", GSO "+gso, func(t *testing.T) {
				for _, p := range []*fabricPod{a.pods[0], b.pods[0]} {
					p.setGSO(t, gso)
				}
				exchange(t, a.pods[0], b.pods[0])
			})
		}
	}
	f.noDrops(t)
	if n := c.count(t, abi.ReasonREASON_PASSED); n < 1000 {
		t.Errorf("the node in the middle saw %d packets", n)
	}
}

// TestPodsAgainstKernel has the kernel's seg6 and seg6local at the other end, with
// one segment and with three, through one of our own nodes.
func TestPodsAgainstKernel(t *testing.T) {
	for _, via := range [][]netip.Addr{nil, {sidOf(nodeSID, 3)}} {
		f := newFabric(t, 3)
		a, k, c := f.nodes[0], f.nodes[1], f.nodes[2]
		a.serve(t, Options{Limits: smallLimits})
		c.serve(t, Options{Limits: smallLimits})
		a.addPods(t, 1)
		k.addPods(t, 1)
		there, back := via, via
		if via != nil {
			there, back = append(slices.Clone(via), sidOf(nodeSID, 2)), append(slices.Clone(via), sidOf(nodeSID, 1))
		}
		k.byKernel(t, a, back...)
		a.reach(t, k, srv6.HEncapsRed, there...)
		for _, gso := range []string{"on", "off"} {
			for _, p := range []*fabricPod{a.pods[0], k.pods[0]} {
				p.setGSO(t, gso)
			}
			exchange(t, a.pods[0], k.pods[0])
			exchange(t, k.pods[0], a.pods[0])
		}
		f.noDrops(t)
	}
}

// TestTooBig: if a pod assumes an MTU that is too large, the kernel sends it an
// error, or fragments its packets if DF is not set.
func TestTooBig(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	for _, p := range []*fabricPod{a.pods[0], b.pods[0]} {
		p.IP(t, "-4 route replace default via 169.254.1.1")
		p.IP(t, "-6 route replace default via fe80::1 dev eth0")
	}
	exchange(t, a.pods[0], b.pods[0])
	for i, at := range b.pods[0].addresses() {
		if got, want := a.pods[0].IP(t, "route get "+at.String()), "mtu 1400"; !strings.Contains(got, want) {
			t.Errorf("the route to %s is %s, want %s", at, got, want)
		}
		out, _ := a.pods[1].Command("ping", "-M", "do", "-c", "1", "-W", "1", "-s", fmt.Sprint(1472-20*i), at.String()).CombinedOutput()
		if !strings.Contains(string(out), "1400") {
			t.Errorf("a packet of 1500 octets to %s: %s", at, out)
		}
	}
	a.pods[0].Run(t, "ping", "-M", "dont", "-c", "1", "-W", "1", "-s", "1472", b.pods[0].ipv4.String())
	f.noDrops(t)
}

// TestPodsHopLimit: a pod is told where a packet's hops end.
func TestPodsHopLimit(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	for _, at := range b.pods[0].addresses() {
		for _, hops := range []string{"1", "2"} {
			out, _ := a.pods[0].Command("ping", "-t", hops, "-c", "1", "-W", "1", at.String()).CombinedOutput()
			if !strings.Contains(strings.ToLower(string(out)), "time to live exceeded") && !strings.Contains(string(out), "Hop limit") {
				t.Errorf("%s hops to %s: %s", hops, at, out)
			}
		}
		ping(t, a.pods[0].NS, at, "-t", "3")
	}
	f.noDrops(t)
}

// TestPodsEdge: pods are outside of the SR domain.
func TestPodsEdge(t *testing.T) {
	f := served(t, 2)
	a := f.nodes[0]
	for _, sid := range []string{nodeSID, dt6SID} {
		_, _ = a.pods[0].Command("ping", "-c", "2", "-i", "0.02", "-W", "1", sidOf(sid, 2).String()).CombinedOutput()
	}
	if got, want := a.drops(t), "4 sr_domain_edge"; got != want {
		t.Errorf("dropped %s, want %s", got, want)
	}
}

// TestPodsOfOneNode sends everything between pods of one node, and between a pod
// and its node.
func TestPodsOfOneNode(t *testing.T) {
	f := served(t, 1)
	n := f.nodes[0]
	exchange(t, n.pods[0], n.pods[1])
	for i, at := range n.pods[0].addresses() {
		own := []netip.Addr{addr("10.244.1.1"), addr("fd00:1::1")}[i]
		transfer(t, n.NS, n.pods[0].NS, at, 1<<20)
		transfer(t, n.pods[0].NS, n.NS, own, 1<<20)
	}
	f.noDrops(t)
}

// TestPodsIntoTable: what is behind SIDs of another table is reached by its routes,
// which main does not have, and answers.
func TestPodsIntoTable(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	b.reach(t, a, srv6.HEncapsRed)
	customer := netns.New(t)
	netns.Veth(t, b.NS, "cust", customer, "eth0")
	b.IP(t, "link set cust mtu 1400") // what the pods' packets are long, and no more
	for _, name := range []string{"all", "cust"} {
		b.Sysctl(t, "net.ipv4.conf."+name+".rp_filter", "0") // main does not lead back
	}
	for _, x := range []struct{ family, node, gateway, bits, at, all string }{
		{"-4", "10.98.0.1", "10.98.0.2", "/24", "10.99.0.2", "/32"}, {"-6", "fd98::1", "fd98::2", "/64", "fd99::2", "/128"},
	} {
		b.Addr(t, "cust", x.node+x.bits)
		customer.Addr(t, "eth0", x.gateway+x.bits)
		customer.Addr(t, "eth0", x.at+x.all)
		customer.IP(t, x.family+" route add default via "+x.node)
		b.IP(t, x.family+" route add "+x.at+" via "+x.gateway+" dev cust table 100")
	}
	for _, sids := range [][]srv6.LocalSID{
		{{Behavior: srv6.EndDT4, SID: netip.PrefixFrom(addr("fc00:2:0:14::"), 64)}, {Behavior: srv6.EndDT6, SID: netip.PrefixFrom(addr("fc00:2:0:16::"), 64)}},
		{{Behavior: srv6.EndDT46, SID: netip.PrefixFrom(addr("fc00:2:0:46::"), 64)}},
	} {
		for i, at := range []netip.Addr{addr("10.99.0.2"), addr("fd99::2")} {
			sid := sids[i%len(sids)]
			sid.Table = 100
			b.Do(t, func() { must(t, b.d.SIDs.Put(sid)) })
			a.Do(t, func() {
				name := fmt.Sprintf("customer-%d", i)
				must(t, a.d.Policies.Put(srpolicy.Policy{Name: name, Behavior: srv6.HEncapsRed,
					SegmentLists: []srpolicy.SegmentList{{Segments: []netip.Addr{sid.SID.Addr()}}}}))
				must(t, a.d.Steering.Put(srpolicy.Steering{Prefix: netip.PrefixFrom(at, at.BitLen()), Policy: name}))
			})
			b.IP(t, "neigh flush dev cust") // the kernel resolves the first
			ping(t, a.pods[0].NS, at)
			for _, gso := range []string{"on", "off"} {
				a.pods[0].setGSO(t, gso)
				transfer(t, a.pods[0].NS, customer, at, 2<<20)
			}
			datagrams(t, a.pods[0].NS, customer, at, 1, 1000, 1340)
		}
	}
	f.noDrops(t)
	if n := b.count(t, abi.ReasonREASON_FORWARDED); n < 100 {
		t.Errorf("node 2 forwarded %d packets", n)
	}
	for _, at := range []string{"10.99.0.2", "fd99::2"} {
		_, _ = a.pods[0].Command("ping", "-c", "1", "-W", "0.2", "-t", "2", at).CombinedOutput()
	}
	if got, want := b.drops(t), "2 hop_limit"; got != want {
		t.Errorf("node 2 dropped %s, want %s", got, want)
	}
}

// TestHostToRemotePod: the kernel sends into culvert0, and gets the answers.
func TestHostToRemotePod(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	for i, at := range b.pods[0].addresses() {
		own := []netip.Addr{addr("10.244.1.1"), addr("fd00:1::1")}[i]
		transfer(t, a.NS, b.pods[0].NS, at, 2<<20)
		transfer(t, b.pods[0].NS, a.NS, own, 2<<20)
		ping(t, a.NS, at)
		ping(t, b.pods[0].NS, own)
	}
	f.noDrops(t)
}

// TestServices: what the kernel translates, as kube-proxy has it, to backends
// here and elsewhere, and from outside.
func TestServices(t *testing.T) {
	f := served(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	client := a.pods[0]
	a.IP(t, "-4 route add 10.96.0.0/16 dev culvert0")
	for _, backend := range []*fabricPod{a.pods[1], b.pods[0]} {
		for _, at := range backend.addresses() {
			service := map[bool]string{true: "10.96.0.1", false: "fd96::1"}[at.Is4()]
			family := map[bool]string{true: "ip", false: "ip6"}[at.Is4()]
			a.Run(t, "nft", fmt.Sprintf("add table %[1]s nat; flush table %[1]s nat; "+
				"add chain %[1]s nat pre { type nat hook prerouting priority -100; }; "+
				"add chain %[1]s nat post { type nat hook postrouting priority 100; }; "+
				"add rule %[1]s nat pre %[1]s daddr %[2]s dnat to %[3]s; "+
				"add rule %[1]s nat pre iif up meta l4proto tcp dnat to %[3]s; "+
				"add rule %[1]s nat post iif up masquerade", family, service, at))
			var listener net.Listener
			var err error
			backend.Do(t, func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
			must(t, err)
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			send(t, client.NS, listener, net.JoinHostPort(service, port), 2<<20)
			if at.Is6() { // the underlay has no IPv4
				send(t, f.router, listener, net.JoinHostPort("2001:db8:1::1", port), 2<<20)
			}
			send(t, client.NS, listener, net.JoinHostPort(at.String(), port), 2<<20) // not translated
			must(t, listener.Close())
		}
	}
	f.noDrops(t)
}

// stream sends numbered datagrams until it is stopped, and says how many were
// lost.
func stream(t testing.TB, from, to *fabricPod) (stop func() (sent, lost int)) {
	t.Helper()
	var server, client net.PacketConn
	var err error
	to.Do(t, func() { server, err = net.ListenPacket("udp", netip.AddrPortFrom(to.ipv4, 0).String()) })
	must(t, err)
	must(t, server.(*net.UDPConn).SetReadBuffer(8<<20))
	from.Do(t, func() { client, err = net.ListenPacket("udp", netip.AddrPortFrom(from.ipv4, 0).String()) })
	must(t, err)
	received := make(chan int)
	go func() {
		n, b := 0, make([]byte, 100)
		for {
			if _, _, err := server.ReadFrom(b); err != nil {
				received <- n
				return
			}
			n++
		}
	}()
	end, sent := make(chan bool), make(chan int)
	go func() {
		n := 0
		for tick := time.NewTicker(200 * time.Microsecond); ; {
			select {
			case <-end:
				tick.Stop()
				sent <- n
				return
			case <-tick.C:
				if _, err := client.WriteTo([]byte("datagram"), server.LocalAddr()); err == nil {
					n++
				}
			}
		}
	}()
	return func() (int, int) {
		close(end)
		n := <-sent
		must(t, server.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		got := <-received
		must(t, errors.Join(client.Close(), server.Close()))
		return n, n - got
	}
}

// TestPodsRestart: pods go on while the daemon is gone, while it comes back, and
// while another build takes over.
func TestPodsRestart(t *testing.T) {
	f := newFabric(t, 2)
	a, b := f.nodes[0], f.nodes[1]
	opts := Options{Limits: smallLimits, PinPath: pinPath(t)}
	a.serve(t, opts)
	b.serve(t, Options{Limits: smallLimits})
	t.Cleanup(func() { must(t, a.d.Close()) }) // before the pins go
	for _, n := range f.nodes {
		n.addPods(t, 1)
	}
	wire := func() { a.put(t); a.reach(t, b, srv6.HEncapsRed) } // policies take the source of the settings
	wire()
	b.reach(t, a, srv6.HEncapsRed)
	ping(t, a.pods[0].NS, b.pods[0].ipv4) // neighbours
	there, back := stream(t, a.pods[0], b.pods[0]), stream(t, b.pods[0], a.pods[0])
	upgraded := opts
	upgraded.edit = func(spec *ebpf.CollectionSpec) {}
	for _, next := range []Options{opts, upgraded, opts} {
		must(t, a.d.Close())
		time.Sleep(50 * time.Millisecond)
		a.Do(t, func() {
			d, err := Open(next)
			must(t, err)
			a.d = d
		})
		pods := a.d.Pods.List()
		if diff := cmp.Diff([]pod.Pod{a.pods[0].model()}, pods, sameAddr); diff != "" {
			t.Errorf("pods after a restart (-want +got):\n%s", diff)
		}
		wire()
		a.Do(t, func() { must(t, a.d.Sweep()) })
		time.Sleep(50 * time.Millisecond)
	}
	for _, stop := range []func() (int, int){there, back} {
		if sent, lost := stop(); lost != 0 || sent < 100 {
			t.Errorf("%d of %d datagrams were lost", lost, sent)
		}
	}
}
