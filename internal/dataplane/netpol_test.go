package dataplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// tenancy is a fabric of two nodes that enforce NetworkPolicies: pods client and server on
// the first one, far and other on the second one, in the namespaces x, x, x and v. Each has
// the label app=NAME.
type tenancy struct {
	*fabric
	client, server, far, other *fabricPod
	names                      map[*fabricPod]string // namespace/name
}

func newTenancy(t testing.TB) *tenancy {
	t.Helper()
	f := newFabric(t, 2)
	limits := smallLimits
	limits.PodFlows = 1 << 18 // all of a test's have room
	for _, n := range f.nodes {
		n.serve(t, Options{Limits: limits})
		n.Do(t, func() { must(t, n.d.NetworkPolicies.Enforce(true)) })
		n.addPods(t, 2)
	}
	a, b := f.nodes[0], f.nodes[1]
	a.reach(t, b, srv6.HEncapsRed)
	b.reach(t, a, srv6.HEncapsRed)
	w := &tenancy{fabric: f, client: a.pods[0], server: a.pods[1], far: b.pods[0], other: b.pods[1]}
	w.names = map[*fabricPod]string{w.client: "x/client", w.server: "x/server", w.far: "x/far", w.other: "v/other"}
	for p := range w.names {
		p.echo(t)
	}
	return w
}

// state is the cluster's, as a node sees it.
func (w *tenancy) state(n *fabricNode, policies ...string) netpol.State {
	s := netpol.State{Namespaces: map[string]*netpol.Namespace{}}
	for _, name := range []string{"x", "v"} {
		s.Namespaces[name] = &netpol.Namespace{Name: name, Labels: map[string]string{"name": name}}
	}
	for p, key := range w.names {
		namespace, name, _ := strings.Cut(key, "/")
		addresses := []netpol.Address{{Tenant: p.tenant, Addr: p.ipv4}, {Tenant: p.tenant, Addr: p.ipv6}}
		s.Pods = append(s.Pods, &netpol.Pod{Namespace: namespace, Name: name, UID: key, Labels: map[string]string{"app": name}, Addresses: addresses})
		for _, own := range n.pods {
			if own == p {
				s.Local = append(s.Local, netpol.Local{Ifindex: p.host.Index, Namespace: namespace, Name: name, UID: key, Addresses: addresses})
			}
		}
	}
	for i, text := range policies {
		namespace, spec, _ := strings.Cut(text, ": ")
		data, err := yaml.YAMLToJSON([]byte(spec))
		if err != nil {
			panic(err)
		}
		p := netpol.NewPolicy(namespace, fmt.Sprint("policy", i), data)
		if len(p.Problems) > 0 {
			panic(fmt.Sprint(spec, p.Problems))
		}
		s.Policies = append(s.Policies, p)
	}
	return s
}

// apply has all nodes enforce these: each a namespace, ": ", and a spec.
func (w *tenancy) apply(t testing.TB, policies ...string) {
	t.Helper()
	for _, n := range w.nodes {
		n.Do(t, func() { must(t, n.d.NetworkPolicies.Apply(netpol.Compile(w.state(n, policies...)))) })
	}
}

// refusals is how many packets policies have dropped.
func (f *fabric) refusals(t testing.TB) (sum uint64) {
	t.Helper()
	for _, n := range f.nodes {
		counts, err := n.d.Pods.PolicyCounts()
		must(t, err)
		for _, c := range counts {
			sum += c.IngressDropped + c.EgressDropped
		}
	}
	return sum
}

// asks wants an answer, without a drop.
func (w *tenancy) asks(t testing.TB, from *netns.NS, network string, to netip.Addr) {
	t.Helper()
	before := w.refusals(t)
	var conn net.Conn
	var err error
	from.Do(t, func() {
		conn, err = net.DialTimeout(network, netip.AddrPortFrom(to, servicePort).String(), 10*time.Second)
	})
	if err != nil {
		t.Fatalf("%s to %s: %v (drops: %s; %s)", network, to, err, w.nodes[0].drops(t), w.nodes[1].drops(t))
	}
	defer conn.Close()
	ask(t, network+" to "+to.String(), conn)
	if n := w.refusals(t) - before; n != 0 {
		t.Errorf("%s to %s: %d packets were dropped", network, to, n)
	}
}

// isRefused wants a drop, and no answer.
func (w *tenancy) isRefused(t testing.TB, from *netns.NS, network string, to netip.Addr) {
	t.Helper()
	before := w.refusals(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan bool, 1)
	go from.Do(t, func() {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, netip.AddrPortFrom(to, servicePort).String())
		if err != nil {
			answered <- false
			return
		}
		defer conn.Close()
		_, err = conn.Write([]byte("question"))
		if err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			_, err = conn.Read(make([]byte, 100))
		}
		answered <- err == nil
	})
	for end := time.Now().Add(20 * time.Second); w.refusals(t) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s to %s: nothing was dropped", network, to)
		}
	}
	cancel()
	if <-answered {
		t.Errorf("%s to %s: it was answered", network, to)
	}
}

// TestNetworkPolicyDirections: what policies allow passes, its answers too, and nothing
// else: on one node and between two, both families.
func TestNetworkPolicyDirections(t *testing.T) {
	w := newTenancy(t)
	w.apply(t)
	w.asks(t, w.client.NS, "tcp", w.far.ipv6) // no policy, no isolation
	w.apply(t, `x: {podSelector: {matchExpressions: [{key: app, operator: In, values: [server, far]}]}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5300}]}]}`)
	for i := range w.client.addresses() {
		server, far, client, other := w.server.addresses()[i], w.far.addresses()[i], w.client.addresses()[i], w.other.addresses()[i]
		w.asks(t, w.client.NS, "tcp", server)
		w.asks(t, w.client.NS, "tcp", far)
		w.isRefused(t, w.client.NS, "udp", server)
		w.isRefused(t, w.client.NS, "udp", far)
		w.isRefused(t, w.other.NS, "tcp", server)
		w.isRefused(t, w.other.NS, "tcp", far)
		w.isRefused(t, w.server.NS, "tcp", far)
		for _, network := range []string{"tcp", "udp"} { // their own are answered
			w.asks(t, w.far.NS, network, client)
			w.asks(t, w.server.NS, network, client)
			w.asks(t, w.far.NS, network, other)
		}
	}
	w.apply(t, `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {name: v}}}], ports: [{protocol: UDP, port: 5000, endPort: 5400}]}]}`)
	for i := range w.client.addresses() {
		server, far, client, other := w.server.addresses()[i], w.far.addresses()[i], w.client.addresses()[i], w.other.addresses()[i]
		w.asks(t, w.client.NS, "udp", other)
		w.isRefused(t, w.client.NS, "tcp", other)
		w.isRefused(t, w.client.NS, "udp", server)
		w.isRefused(t, w.client.NS, "udp", far)
		for _, network := range []string{"tcp", "udp"} { // it answers whom it likes
			w.asks(t, w.other.NS, network, client)
			w.asks(t, w.server.NS, network, client)
		}
	}
}

// shape has the kernel forward what is to these pods and from them.
func (w *tenancy) shape(t testing.TB, pods ...*fabricPod) {
	t.Helper()
	for i, n := range w.nodes {
		n.IP(t, fmt.Sprintf("-4 route add 10.244.%d.0/24 dev culvert0", w.nodes[1-i].number))
		n.IP(t, fmt.Sprintf("-6 route add fd00:%d::/64 dev culvert0", w.nodes[1-i].number))
		for _, p := range n.pods {
			if slices.Contains(pods, p) {
				shaped := p.model()
				shaped.ToKernel = true
				n.Do(t, func() { must(t, n.d.Pods.Put(shaped)) })
			}
		}
	}
}

// TestNetworkPolicyToKernel: policies count for pods whose packets are left to the kernel.
func TestNetworkPolicyToKernel(t *testing.T) {
	w := newTenancy(t)
	w.shape(t, w.server, w.far)
	w.apply(t,
		`x: {podSelector: {matchExpressions: [{key: app, operator: In, values: [server, far]}]}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5300}]}], egress: [{to: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	for i := range w.client.addresses() {
		server, far, client, other := w.server.addresses()[i], w.far.addresses()[i], w.client.addresses()[i], w.other.addresses()[i]
		for _, shaped := range []netip.Addr{server, far} {
			w.asks(t, w.client.NS, "tcp", shaped)
			w.isRefused(t, w.client.NS, "udp", shaped)
			w.isRefused(t, w.other.NS, "tcp", shaped)
		}
		for _, shaped := range []*fabricPod{w.server, w.far} {
			w.asks(t, shaped.NS, "tcp", client)
			w.isRefused(t, shaped.NS, "udp", other)
		}
	}
}

// TestNetworkPolicyOfServices: policies are about the pod behind a Service, and about who
// asks; what is outside of the cluster is one of an ipBlock.
func TestNetworkPolicyOfServices(t *testing.T) {
	w := newTenancy(t)
	a := w.nodes[0]
	a.IP(t, "-4 route add 10.96.0.0/16 dev culvert0")
	a.Addr(t, "up", "198.51.100.1/24")
	w.router.Addr(t, "n1", "198.51.100.254/24")
	(&fabricPod{NS: w.router}).echo(t)
	rules := "add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }; add chain ip nat post { type nat hook postrouting priority 100; }; "
	for service, to := range map[string]netip.Addr{"10.96.0.1": w.server.ipv4, "10.96.0.2": w.far.ipv4, "10.96.0.3": addr("198.51.100.254"), "10.96.0.4": w.client.ipv4} {
		rules += fmt.Sprintf("add rule ip nat pre ip daddr %s dnat to %s; ", service, to)
	}
	rules += fmt.Sprintf("add rule ip nat post ip saddr %[1]s ip daddr %[1]s masquerade; ", w.client.ipv4)
	a.Run(t, "nft", rules+"add rule ip nat post oifname up masquerade")
	services := addrs("10.96.0.1", "10.96.0.2", "10.96.0.3")
	outside := addr("198.51.100.254")
	for _, c := range []struct {
		policy   string
		allowed  []netip.Addr
		refused  []netip.Addr
		networks []string
	}{
		{policy: `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}`, refused: append(services, outside)},
		{policy: `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: server}}}, {ipBlock: {cidr: 198.51.100.0/24}}]}]}`,
			allowed: []netip.Addr{services[0], services[2], outside}, refused: services[1:2]},
		{policy: `x: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: far}}}, {ipBlock: {cidr: 198.51.100.0/24, except: [198.51.100.254/32]}}]}]}`,
			allowed: services[1:2], refused: []netip.Addr{services[0], services[2], outside}},
		{policy: `x: {podSelector: {matchExpressions: [{key: app, operator: In, values: [server, far]}]}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}`,
			allowed: []netip.Addr{services[2], outside}, refused: services[:2]},
		{policy: `x: {podSelector: {matchExpressions: [{key: app, operator: In, values: [server, far]}]}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`,
			allowed: services},
	} {
		w.apply(t, c.policy)
		for _, network := range []string{"tcp", "udp"} {
			w.asks(t, w.client.NS, network, addr("10.96.0.4")) // itself
			for _, to := range c.allowed {
				w.asks(t, w.client.NS, network, to)
			}
			for _, to := range c.refused {
				w.isRefused(t, w.client.NS, network, to)
			}
		}
	}
}

// TestNetworkPolicyAndNode: a node reaches its pods, however isolated they are, and they
// it. Other nodes do not.
func TestNetworkPolicyAndNode(t *testing.T) {
	w := newTenancy(t)
	(&fabricPod{NS: w.nodes[0].NS}).echo(t)
	w.apply(t, `x: {podSelector: {}, policyTypes: [Ingress, Egress]}`)
	for i, own := range []string{"10.244.1.1", "fd00:1::1"} {
		to := w.server.addresses()[i]
		w.asks(t, w.nodes[0].NS, "tcp", to)
		w.asks(t, w.nodes[0].NS, "udp", to)
		w.isRefused(t, w.nodes[1].NS, "tcp", to)
		w.asks(t, w.server.NS, "tcp", addr(own))
		w.asks(t, w.server.NS, "udp", addr(own))
	}
}

// TestNewPodIsClosed: until its policies are known a pod has no packets but its node's.
func TestNewPodIsClosed(t *testing.T) {
	w := newTenancy(t)
	a := w.nodes[0]
	asksKernel := func(want bool) {
		t.Helper()
		if got := a.d.NetworkPolicies.AsksKernel(); got != want {
			t.Errorf("what the kernel forwards is asked about: %v, want %v", got, want)
		}
	}
	asksKernel(true) // no pod is known yet
	w.apply(t)
	asksKernel(false)
	a.addPods(t, 1)
	late := a.pods[2]
	asksKernel(true)
	late.echo(t)
	w.isRefused(t, late.NS, "udp", w.server.ipv4)
	w.isRefused(t, late.NS, "tcp", w.far.ipv6)
	w.isRefused(t, w.client.NS, "tcp", late.ipv6)
	w.isRefused(t, w.other.NS, "udp", late.ipv4)
	w.asks(t, a.NS, "tcp", late.ipv4)
	w.apply(t) // which does not know it either
	w.isRefused(t, late.NS, "tcp", w.server.ipv4)
	w.names[late] = "x/late"
	asksKernel(true)
	w.apply(t)
	asksKernel(false)
	w.asks(t, late.NS, "tcp", w.server.ipv4)
	w.asks(t, w.other.NS, "udp", late.ipv4)
	// A pod that is put again is the same one.
	a.Do(t, func() { must(t, a.d.Pods.Put(late.model())) })
	w.asks(t, w.client.NS, "tcp", late.ipv6)
	// Without enforcement nobody is isolated, new pods either.
	w.apply(t, `x: {podSelector: {}}`)
	asksKernel(true)
	w.isRefused(t, w.other.NS, "tcp", late.ipv4)
	a.Do(t, func() { must(t, a.d.NetworkPolicies.Enforce(false)) })
	w.asks(t, w.other.NS, "tcp", late.ipv4)
	asksKernel(false)
	if peers, rules := a.d.NetworkPolicies.Usage(); peers.Used+rules.Used != 0 {
		t.Errorf("left: %v, %v", peers, rules)
	}
	a.addPods(t, 1)
	a.pods[3].echo(t)
	w.asks(t, w.other.NS, "tcp", a.pods[3].ipv4)
}

// TestNetworkPolicyChanges: a policy that is new ends the flows that it does not allow; a
// change that is about others ends none, and drops no packet.
func TestNetworkPolicyChanges(t *testing.T) {
	w := newTenancy(t)
	base := `x: {podSelector: {matchLabels: {app: far}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`
	w.apply(t, base)
	var conns []net.Conn
	for i, network := range []string{"tcp", "udp"} {
		conns = append(conns, fromPort(t, w.client.NS, network, 30000+i, w.far.ipv4))
		ask(t, network, conns[i])
	}
	more := `v: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}, namespaceSelector: {}}]}]}`
	block := `x: {podSelector: {matchLabels: {app: far}}, ingress: [{from: [{ipBlock: {cidr: 10.244.0.0/16, except: [10.244.1.9/32]}}]}]}`
	sets := [][]string{{base, more}, {base, block}, {base, more, block}, {base}}
	for i := range 24 {
		w.apply(t, sets[i%len(sets)]...)
		for _, c := range conns {
			ask(t, "after a change", c)
		}
		w.asks(t, w.client.NS, "udp", w.far.ipv6) // a new one
	}
	w.noDrops(t)
	w.apply(t, `x: {podSelector: {matchLabels: {app: far}}, policyTypes: [Ingress]}`)
	for _, c := range conns {
		before := w.refusals(t)
		_, err := c.Write([]byte("question"))
		must(t, err)
		for end := time.Now().Add(20 * time.Second); w.refusals(t) == before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the flow goes on")
			}
		}
	}
	// Who has an address now is asked about each time.
	w.apply(t, base)
	w.asks(t, w.client.NS, "udp", w.far.ipv4)
	w.names[w.client] = "x/renamed"
	w.apply(t, base)
	w.isRefused(t, w.client.NS, "udp", w.far.ipv4)
}

// TestAppliesAtOnce: while policies and identities change, no flow that old and new ones
// allow misses a packet.
func TestAppliesAtOnce(t *testing.T) {
	w := newTenancy(t)
	base := `x: {podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`
	w.apply(t, base)
	ctx, cancel := context.WithCancel(context.Background())
	sent, periods := make(chan int), w.nodes[0].d.grace.Epoch
	go func() {
		n := 0
		w.client.Do(t, func() {
			for ; ctx.Err() == nil; n++ { // each a flow of its own
				c, err := net.Dial("udp", netip.AddrPortFrom(w.server.ipv4, servicePort).String())
				if err == nil {
					_, _ = c.Write([]byte("x"))
					c.Close()
				}
			}
		})
		sent <- n
	}()
	others := []string{
		`x: {podSelector: {matchLabels: {app: server}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]}`,
		`x: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [server, far]}]}}], ports: [{protocol: UDP, port: 81, endPort: 9000}]}]}`,
		`v: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {name: x}}}]}]}`,
	}
	for i := range 300 {
		some := []string{base}
		for j, p := range others {
			if i>>j&1 == 1 {
				some = append(some, p)
			}
		}
		w.apply(t, some...)
	}
	cancel()
	if n, waited := <-sent, w.nodes[0].d.grace.Epoch-periods; n < 300 || w.refusals(t) != 0 || waited < 300 {
		t.Errorf("of %d packets %d were dropped; %d times old rules waited for the packets that asked by them", n, w.refusals(t), waited)
	}
}

// TestErrorsOfFlows: ICMP errors about a pod's flows reach it, and leave it, others do not.
func TestErrorsOfFlows(t *testing.T) {
	w := newTenancy(t)
	w.apply(t, `x: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{ports: [{protocol: UDP, port: 9}]}], ingress: [{ports: [{protocol: UDP, port: 9}]}]}`)
	for i, to := range w.far.addresses() {
		for _, to := range []netip.Addr{to, w.server.addresses()[i]} {
			var conn net.Conn
			var err error
			w.client.Do(t, func() { conn, err = net.Dial("udp", netip.AddrPortFrom(to, 9).String()) })
			must(t, err)
			_, err = conn.Write([]byte("x")) // nobody listens
			must(t, err)
			must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			if _, err = conn.Read(make([]byte, 10)); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s: %v; drops: %s", to, err, w.nodes[0].drops(t)+w.nodes[1].drops(t))
			}
			conn.Close()
		}
	}
	before := w.refusals(t)
	if out, err := w.client.Command("ping", "-c", "1", "-W", "1", w.far.ipv4.String()).CombinedOutput(); err == nil || w.refusals(t) == before {
		t.Errorf("ping: %s", out)
	}
	w.apply(t, `x: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{podSelector: {}}]}], ingress: [{from: [{podSelector: {}}]}]}`)
	for _, to := range append(w.far.addresses(), w.server.addresses()...) {
		ping(t, w.client.NS, to)
	}
}

// TestFragmentsOfIsolated: a datagram in fragments passes where its ports may.
func TestFragmentsOfIsolated(t *testing.T) {
	w := newTenancy(t)
	w.apply(t, `x: {podSelector: {}, policyTypes: [Ingress, Egress], egress: [{ports: [{protocol: UDP, port: 5300}]}], ingress: [{ports: [{protocol: UDP, port: 5300}]}]}`)
	large := strings.Repeat("x", 3000)
	for i, to := range w.far.addresses() {
		for _, to := range []netip.Addr{to, w.server.addresses()[i]} {
			for port, passes := range map[int]bool{servicePort: true, servicePort + 1: false} {
				server := w.far.NS
				if to == w.server.addresses()[i] {
					server = w.server.NS
				}
				var listener net.PacketConn
				var conn net.Conn
				var err error
				server.Do(t, func() {
					if !passes {
						listener, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
					}
				})
				must(t, err)
				w.client.Do(t, func() { conn, err = net.Dial("udp", netip.AddrPortFrom(to, uint16(port)).String()) })
				must(t, err)
				before := w.refusals(t)
				_, err = conn.Write([]byte(large))
				must(t, err)
				if passes { // echo returns the first 100 octets
					n := 0
					for try := 0; n == 0 && try < 10; try++ { // a busy machine loses some
						must(t, conn.SetReadDeadline(time.Now().Add(2*time.Second)))
						if n, err = conn.Read(make([]byte, 4000)); n == 0 {
							_, err = conn.Write([]byte(large))
							must(t, err)
						}
					}
					if n != 100 || w.refusals(t) != before {
						t.Errorf("%s: %d octets; drops: %s", to, n, w.nodes[0].drops(t)+w.nodes[1].drops(t))
					}
				} else if w.refusals(t) == before {
					t.Errorf("%s, port %d: not dropped", to, port)
				}
				conn.Close()
				if listener != nil {
					listener.Close()
				}
			}
		}
	}
}

// TestNetworkPolicyOfTenant: tenants' pods have the same addresses, and policies tell them
// apart.
func TestNetworkPolicyOfTenant(t *testing.T) {
	w := newTenancy(t)
	a := w.nodes[0]
	a.Do(t, func() {
		for i := range 4 {
			a.newPodOf(t, uint8(1+i/2), fmt.Sprintf("10.9.0.%d", 1+i%2), fmt.Sprintf("fd09::%d", 1+i%2))
		}
	})
	for i, p := range a.pods[2:] {
		w.names[p] = fmt.Sprintf("x/t%d", i)
		p.echo(t)
	}
	first, second := a.pods[2:4], a.pods[4:6]
	w.apply(t)
	w.asks(t, first[0].NS, "tcp", first[1].ipv4)
	w.apply(t, `x: {podSelector: {matchExpressions: [{key: app, operator: In, values: [t1, t3]}]}, ingress: [{from: [{podSelector: {matchLabels: {app: t0}}}]}]}`)
	for i := range first[0].addresses() {
		w.asks(t, first[0].NS, "tcp", first[1].addresses()[i])
		w.isRefused(t, second[0].NS, "tcp", second[1].addresses()[i])
		w.asks(t, second[1].NS, "udp", second[0].addresses()[i])
	}
}

// TestRestartKeepsIsolation: a daemon that starts again finds what the one before it
// applied: flows go on, nobody opens, and the same again writes nothing.
func TestRestartKeepsIsolation(t *testing.T) {
	f := newFabric(t, 1)
	n := f.nodes[0]
	limits := smallLimits
	limits.PodFlows = 1024
	opts := Options{Limits: limits, PinPath: pinPath(t)}
	n.serve(t, opts)
	n.Do(t, func() { must(t, n.d.NetworkPolicies.Enforce(true)) })
	n.addPods(t, 2)
	w := &tenancy{fabric: f, client: n.pods[0], server: n.pods[1], names: map[*fabricPod]string{n.pods[0]: "x/client", n.pods[1]: "x/server"}}
	w.client.echo(t)
	w.server.echo(t)
	policy := `x: {podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 5300}]}]}`
	w.apply(t, policy)
	conn := fromPort(t, w.client.NS, "tcp", 30000, w.server.ipv4)
	ask(t, "before", conn)
	peers, rules := n.d.NetworkPolicies.Usage()
	n.Do(t, func() {
		must(t, n.d.Close())
		ask(t, "without a daemon", conn)
		var err error
		n.d, err = Open(opts)
		must(t, err)
		must(t, n.d.NetworkPolicies.Enforce(true))
	})
	n.put(t)
	w.isRefused(t, w.client.NS, "udp", w.server.ipv4)
	ask(t, "before the first Apply", conn)
	w.asks(t, w.client.NS, "tcp", w.server.ipv6)
	must(t, n.d.Sweep())
	w.apply(t, policy)
	if p, r := n.d.NetworkPolicies.Usage(); p != peers || r != rules {
		t.Errorf("the same again takes %v and %v entries, before %v and %v", p, r, peers, rules)
	}
	ask(t, "afterwards", conn)
	w.isRefused(t, w.client.NS, "udp", w.server.ipv4)
	n.Do(t, func() { must(t, n.d.Close()) })
}
