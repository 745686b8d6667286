package dataplane

import (
	"slices"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/packet"
)

// TestPolicyFlows: one pod takes TCP port 80, SCTP port 9 and UDP ports 64 to 96, and
// answers; it may send what it likes. Each packet in its turn.
func TestPolicyFlows(t *testing.T) {
	const spec = `{"podSelector":{},"ingress":[{"ports":[{"port":80},{"protocol":"SCTP","port":9},{"protocol":"UDP","port":64,"endPort":96}]}]}`
	syn, synAck, rst := uint8(2), uint8(0x12), uint8(4)
	tcp := func(from, to uint16, flags *uint8) layers {
		return of(packet.TCP{Sport: from, Dport: to, Flags: flags})
	}
	udp := func(from, to uint16) layers { return of(packet.UDP{Sport: from, Dport: to}) }
	sctp := func(from, to uint8) layers {
		return of(packet.Payload{Proto: 132, Data: packet.Hex{0, from, 0, to, 0, 0, 0, 0, 0, 0, 0, 0}})
	}
	type step struct {
		toPeer bool // else from it
		what   layers
		end    string
		name   string
	}
	const dropped, passes = "policy_ingress", "forwarded"
	common := []step{
		{true, tcp(1000, 80, &syn), passes, "allowed"},
		{false, tcp(80, 1000, &synAck), passes, "its answer"},
		{true, tcp(1000, 80, nil), passes, "and so on"},
		{true, tcp(1000, 81, &syn), dropped, "another port"},
		{true, tcp(1000, 81, nil), dropped, "no beginning"},
		{true, tcp(80, 1000, &syn), dropped, "ports in the other order"},
		{true, sctp(5, 9), passes, "SCTP"},
		{false, sctp(9, 5), passes, "SCTP, its answer"},
		{true, sctp(5, 10), dropped, "SCTP, another port"},
		{true, udp(5, 63), dropped, "below a range"},
		{true, udp(5, 64), passes, "a range's first"},
		{true, udp(5, 79), passes, "within a range"},
		{true, udp(5, 96), passes, "a range's last"},
		{true, udp(5, 97), dropped, "above a range"},
		{true, of(packet.Payload{Proto: 47, Data: packet.Hex{0, 0, 8, 0}}), dropped, "GRE"},
		{true, udp(6, 5), dropped, "UDP"},
		{false, udp(5, 6), passes, "UDP from the pod"},
		{true, udp(6, 5), passes, "UDP, its answer"},
		{true, udp(6, 7), dropped, "UDP, to another port"},
		{true, udp(7, 5), dropped, "UDP, from another port"},
		{false, tcp(2000, 90, &syn), passes, "TCP from the pod"},
		{true, tcp(90, 2000, &syn), dropped, "TCP, a beginning is no answer"},
		{true, tcp(90, 2000, &synAck), passes, "TCP, its answer"},
		{true, tcp(90, 2000, &rst), passes, "TCP, refused"},
	}
	echo := func(v6 bool, answer bool, id uint32) layers {
		kind := map[[2]bool]uint8{{false, false}: 8, {false, true}: 0, {true, false}: 128, {true, true}: 129}[[2]bool{v6, answer}]
		return of(packet.ICMP{V6: v6, Type: kind, Rest: id << 16})
	}
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		isolated := &netpol.Pod{Namespace: "x", Name: "peer", UID: "peer"}
		state := netpol.State{
			Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Pods: []*netpol.Pod{isolated},
			Policies: []*netpol.Policy{netpol.NewPolicy("x", "p", []byte(spec))},
			Local:    []netpol.Local{{Ifindex: rowPeer, Namespace: "x", Name: "peer", UID: "peer"}},
		}
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		for _, v6 := range []bool{false, true} {
			other, own := layers(of(ip4("10.2.2.2", "10.1.1.1"))), layers(of(ip4("10.1.1.1", "10.2.2.2")))
			unreachable, reply := packet.ICMP{Type: 3, Code: 3}, byte(0)
			if v6 {
				other, own, unreachable, reply = of(ip6("fd02::2", "fd01::1")), of(ip6("fd01::1", "fd02::2")), packet.ICMP{V6: true, Type: 1, Code: 4}, 129
			}
			steps := append(common,
				step{true, echo(v6, false, 7), dropped, "an echo request"},
				step{true, echo(v6, true, 7), dropped, "a reply to nothing"},
				step{false, echo(v6, false, 7), passes, "an echo request from the pod"},
				step{true, echo(v6, true, 7), passes, "its reply"},
				step{true, echo(v6, true, 8), dropped, "a reply to another"},
				step{true, echo(v6, false, 7), dropped, "a request is no reply"},
				step{true, of(unreachable, own, udp(5, 6)), passes, "an error about a flow"},
				step{true, of(unreachable, own, tcp(2000, 90, nil)), passes, "an error about a connection"},
				step{true, of(unreachable, own, udp(5, 8)), dropped, "an error about nothing"},
				step{true, of(unreachable, other, udp(5, 6)), dropped, "an error about a packet to the pod"},
				step{true, of(unreachable, own), dropped, "an error about no ports"},
				step{true, of(unreachable), dropped, "an error about nothing at all"},
				step{true, of(unreachable, own, packet.Payload{Proto: 47, Data: packet.Hex{reply, 0, 0, 0, 0, 7, 0, 0}}), dropped, "an error about what looks like a reply"},
			)
			if v6 {
				steps = append(steps, step{true, of(options6, tcp(1000, 80, &syn)), dropped, "behind an extension header"})
			}
			for _, s := range steps {
				row := podRow{name: s.name, port: rowPeer, in: of(own, s.what)}
				if s.toPeer {
					row.port, row.in = rowPod, of(other, s.what)
				}
				before := r.counters(t)
				runOn(t, program, frameAt(t, row.port, row.in), row.port)
				if got := since(before, r.counters(t)); got["outcome "+s.end].Packets != 1 {
					t.Errorf("IPv6 %t: %s: %v, want %s", v6, s.name, got, s.end)
				}
			}
		}
		r.checkFlowEnds(t)
	})
}

// checkFlowEnds: a flow is known for a while after its last packet.
func (r *rig) checkFlowEnds(t *testing.T) {
	t.Helper()
	program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
	answer := frameAt(t, rowPod, of(ip4("10.2.2.2", "10.1.1.1"), packet.UDP{Sport: 6, Dport: 5}))
	key, bucket, way := r.flowOf(t, "10.2.2.2", 5, 6)
	for age, end := range map[uint32]string{100: "forwarded", 300: "policy_ingress"} {
		aged := bucket
		aged.Flow[way].Seen -= age
		must(t, r.d.maps[abi.MapNetpolFlow].Put(&key, &aged))
		must(t, empty(r.d.maps[abi.MapFlowCache]))
		before := r.counters(t)
		runOn(t, program, answer, rowPod)
		if got := since(before, r.counters(t)); got["outcome "+end].Packets != 1 {
			t.Errorf("an answer after %d s: %v, want %s", age, got, end)
		}
	}
}

// flowOf finds the entry of a pod's flow with an IPv4 remote.
func (r *rig) flowOf(t *testing.T, remote string, local, port uint16) (key uint32, bucket abi.PodFlowBucket, way int) {
	t.Helper()
	for it := r.d.maps[abi.MapNetpolFlow].Iterate(); it.Next(&key, &bucket); {
		way := slices.IndexFunc(bucket.Flow[:], func(f abi.PodFlow) bool {
			return f.Key.Remote == abi.In6Of(addr("::ffff:"+remote)) && f.Key.LocalPort == abi.BE16(local) && f.Key.RemotePort == abi.BE16(port)
		})
		if way >= 0 {
			return key, bucket, way
		}
	}
	t.Fatal("the flow is not in the table")
	return
}

// TestFlowsMakeRoom: a pod that opens many more flows than the table has room for displaces
// its own. Another pod's answers pass as before.
func TestFlowsMakeRoom(t *testing.T) {
	const flows, quiet = 2 * rowFlows, 100
	const spec = `{"podSelector":{},"policyTypes":["Ingress"]}`
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		state := netpol.State{
			Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}},
			Policies:   []*netpol.Policy{netpol.NewPolicy("x", "p", []byte(spec))},
		}
		for name, ifindex := range map[string]int{"quiet": rowPeer, "busy": rowPod} {
			state.Pods = append(state.Pods, &netpol.Pod{Namespace: "x", Name: name, UID: name})
			state.Local = append(state.Local, netpol.Local{Ifindex: ifindex, Namespace: "x", Name: name, UID: name})
		}
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		// udp sends n packets, each of a flow of its own.
		udp := func(port, n int, between layers, of func(i uint16) packet.UDP) model.Counts {
			before := r.counters(t)
			for i := range n {
				runOn(t, program, frameAt(t, port, append(slices.Clone(between), of(uint16(i)))), port)
			}
			return since(before, r.counters(t))
		}
		asks := func(i uint16) packet.UDP { return packet.UDP{Sport: i, Dport: 53} }
		answers := func(i uint16) packet.UDP { return packet.UDP{Sport: 53, Dport: i} }
		there, back := layers(of(ip4("10.1.1.1", "10.2.2.2"))), layers(of(ip4("10.2.2.2", "10.1.1.1")))
		udp(rowPeer, quiet, there, asks)
		udp(rowPod, flows, back, asks)
		counts, err := r.d.Pods.PolicyCounts()
		must(t, err)
		if got := udp(rowPod, quiet, back, answers); got["outcome forwarded"].Packets != quiet {
			t.Errorf("answers to the quiet pod: %v, want %d forwarded", got, quiet)
		}
		if got, most := counts[rowPod].EgressFlows, counts[rowPod].Displaced; got != flows || most < flows-rowFlows || most > flows {
			t.Errorf("the busy pod began %d flows and displaced %d, want %d and at least %d", got, most, flows, flows-rowFlows)
		}
		if got := counts[rowPeer].Displaced; got != 0 {
			t.Errorf("the quiet pod displaced %d flows", got)
		}
	})
}

// TestCutConnections: a TCP connection that policies allow no longer is closed for both ends,
// until one of them begins another one. Packets of the end that did not begin it do not bring it
// back, whoever began it, how long ago it was, and however often they come.
func TestCutConnections(t *testing.T) {
	const remote, local = 1000, 80
	syn, synAck, fin, rst := uint8(2), uint8(0x12), uint8(0x11), uint8(4)
	for name, row := range map[string]struct {
		pod         bool // begins it
		before, cut string
	}{
		"others began it":  {false, `{"podSelector":{},"policyTypes":["Ingress"],"ingress":[{"ports":[{"port":80}]}]}`, `{"podSelector":{},"policyTypes":["Ingress"]}`},
		"the pod began it": {true, `{"podSelector":{},"policyTypes":["Egress"],"egress":[{}]}`, `{"podSelector":{},"policyTypes":["Egress"]}`},
		"before policies":  {false, "", `{"podSelector":{},"policyTypes":["Ingress"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, rowPorts, func() {
				r := newRowRig(t)
				must(t, r.d.NetworkPolicies.Enforce(true))
				program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
				apply := func(spec string) {
					state := netpol.State{
						Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Pods: []*netpol.Pod{{Namespace: "x", Name: "peer", UID: "peer"}},
						Local: []netpol.Local{{Ifindex: rowPeer, Namespace: "x", Name: "peer", UID: "peer"}},
					}
					if spec != "" {
						state.Policies = []*netpol.Policy{netpol.NewPolicy("x", "p", []byte(spec))}
					}
					must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
				}
				// send sends a segment of an end, and says what became of it.
				send := func(fromPod bool, flags *uint8) string {
					port, frame := rowPod, of(ip4("10.2.2.2", "10.1.1.1"), packet.TCP{Sport: remote, Dport: local, Flags: flags})
					if fromPod {
						port, frame = rowPeer, of(ip4("10.1.1.1", "10.2.2.2"), packet.TCP{Sport: local, Dport: remote, Flags: flags})
					}
					before := r.counters(t)
					runOn(t, program, frameAt(t, port, frame), port)
					for _, end := range []string{"forwarded", "policy_ingress", "policy_egress"} {
						if since(before, r.counters(t))["outcome "+end].Packets == 1 {
							return end
						}
					}
					return "?"
				}
				want := func(what string, fromPod bool, flags *uint8, end string) {
					t.Helper()
					if got := send(fromPod, flags); got != end {
						t.Errorf("%s: %s, want %s", what, got, end)
					}
				}
				dropped := map[bool]string{false: "policy_ingress", true: "policy_egress"}
				apply(row.before)
				want("it begins", row.pod, &syn, "forwarded")
				want("its answer", !row.pod, &synAck, "forwarded")
				want("and so on", row.pod, nil, "forwarded")
				apply(row.cut)
				for range 3 {
					for flags, what := range map[*uint8]string{nil: "data", &synAck: "SYN+ACK", &fin: "FIN", &rst: "RST"} {
						want("cut, the other end: "+what, !row.pod, flags, dropped[!row.pod])
						want("cut, who began it: "+what, row.pod, flags, dropped[row.pod])
					}
				}
				key, bucket, way := r.flowOf(t, "10.2.2.2", local, remote)
				bucket.Flow[way].Seen -= 500000 // more than 5 days
				must(t, r.d.maps[abi.MapNetpolFlow].Put(&key, &bucket))
				want("long afterwards, the other end", !row.pod, nil, dropped[!row.pod])
				want("another one of who began it", row.pod, &syn, dropped[row.pod])
				want("another one of the other end", !row.pod, &syn, "forwarded")
				want("its answer", row.pod, &synAck, "forwarded")
				apply(row.before)
				want("as before, and goes on", row.pod, nil, "forwarded")
			})
		})
	}
}

// TestConnectionBeginsAgain: a TCP connection that has ended is soon forgotten, unless the end that
// began it begins another one on the same ports.
func TestConnectionBeginsAgain(t *testing.T) {
	syn, synAck, fin, rst := uint8(2), uint8(0x12), uint8(0x11), uint8(4)
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		for name, row := range map[string]struct {
			end     *uint8
			fromPod bool // the end of the connection that ends it; the pod began it
			again   bool
			want    string
		}{
			"a FIN of the pod":               {&fin, true, false, "policy_ingress"},
			"a FIN of the server":            {&fin, false, false, "policy_ingress"},
			"a RST of the server":            {&rst, false, false, "policy_ingress"},
			"a FIN of the pod, and again":    {&fin, true, true, "forwarded"},
			"a FIN of the server, and again": {&fin, false, true, "forwarded"},
			"a RST of the server, and again": {&rst, false, true, "forwarded"},
		} {
			must(t, empty(r.d.maps[abi.MapNetpolFlow]))
			must(t, empty(r.d.maps[abi.MapFlowCache]))
			send := func(fromPod bool, flags *uint8) {
				port, frame := rowPod, of(ip4("10.2.2.2", "10.1.1.1"), packet.TCP{Sport: 90, Dport: 2000, Flags: flags})
				if fromPod {
					port, frame = rowPeer, of(ip4("10.1.1.1", "10.2.2.2"), packet.TCP{Sport: 2000, Dport: 90, Flags: flags})
				}
				runOn(t, program, frameAt(t, port, frame), port)
			}
			begin := func() { send(true, &syn); send(false, &synAck); send(true, nil) }
			begin()
			send(row.fromPod, row.end)
			if row.again {
				begin()
			}
			key, bucket, way := r.flowOf(t, "10.2.2.2", 2000, 90)
			bucket.Flow[way].Seen -= 200
			must(t, r.d.maps[abi.MapNetpolFlow].Put(&key, &bucket))
			must(t, empty(r.d.maps[abi.MapFlowCache]))
			before := r.counters(t)
			send(false, nil)
			if got := since(before, r.counters(t)); got["outcome "+row.want].Packets != 1 {
				t.Errorf("%s, and 200 s later data of the server: %v, want %s", name, got, row.want)
			}
		}
	})
}

// connections says how many TCP connections of pods the table knows, and how many of them are
// closing.
func (d *DataPlane) connections(t testing.TB) (all, closing int) {
	t.Helper()
	var key uint32
	var bucket abi.PodFlowBucket
	it := d.maps[abi.MapNetpolFlow].Iterate()
	for it.Next(&key, &bucket) {
		for i, f := range bucket.Flow {
			if bucket.Tag[i] != 0 && f.Key.Protocol == 6 {
				all, closing = all+1, closing+int(f.Closing)
			}
		}
	}
	must(t, it.Err())
	return all, closing
}

// TestConnectionsEnd: TCP connections of pods that no policy selects are closing once either end
// has sent a FIN or RST. What is no SYN makes no connection known, and everything passes.
func TestConnectionsEnd(t *testing.T) {
	const connections = 200
	syn, synAck, fin, rst := uint8(2), uint8(0x12), uint8(0x11), uint8(4)
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		must(t, r.d.NetworkPolicies.Enforce(true))
		state := netpol.State{Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}}
		for name, ifindex := range map[string]int{"server": rowPeer, "client": rowPod} {
			state.Pods = append(state.Pods, &netpol.Pod{Namespace: "x", Name: name, UID: name})
			state.Local = append(state.Local, netpol.Local{Ifindex: ifindex, Namespace: "x", Name: name, UID: name})
		}
		must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
		programs := podProgramsOf(t, r.d)
		for name, row := range map[string]struct {
			entries     int // of a connection: one of each pod
			program     string
			port        int
			there, back layers
		}{
			"of this node":       {2, abi.ProgCulvertPod, rowPod, of(ip4("10.2.2.2", "10.1.1.1")), of(ip4("10.1.1.1", "10.2.2.2"))},
			"of this node, IPv6": {2, abi.ProgCulvertPod, rowPod, of(ip6("fd02::2", "fd01::1")), of(ip6("fd01::1", "fd02::2"))},
			"from a tunnel":      {1, abi.ProgCulvertUplink, rowUplink, of(ip6(other, dt4), ip4("10.11.0.1", "10.1.1.1")), of(ip4("10.1.1.1", "10.11.0.1"))},
		} {
			must(t, empty(r.d.maps[abi.MapNetpolFlow]))
			before, sent, began := r.counters(t), uint64(0), func() uint64 {
				counts, err := r.d.Pods.PolicyCounts()
				must(t, err)
				return counts[rowPeer].IngressFlows
			}
			flows := began()
			send := func(client int, fromServer bool, flags *uint8) {
				sent++
				program, port, frame := row.program, row.port, of(row.there, packet.TCP{Sport: uint16(client), Dport: 80, Flags: flags})
				if fromServer {
					program, port, frame = abi.ProgCulvertPod, rowPeer, of(row.back, packet.TCP{Sport: 80, Dport: uint16(client), Flags: flags})
				}
				runOn(t, programs[program], frameAt(t, port, frame), port)
			}
			want := func(when string, closing int) {
				t.Helper()
				all, n := r.d.connections(t)
				if all != connections*row.entries || n != closing*row.entries || began()-flows != connections {
					t.Errorf("%s: %s the table knows %d connections, of which %d are closing, and %d began, want %d, %d and %d",
						name, when, all, n, began()-flows, connections*row.entries, closing*row.entries, connections)
				}
			}
			for i := range connections {
				send(i, false, &syn)
				send(i, true, &synAck)
				send(i, false, nil)
			}
			want("before they end", 0)
			for i := range connections {
				for _, flags := range []*uint8{nil, &synAck, &fin, &rst} {
					send(connections+i, i%2 == 0, flags)
				}
			}
			want("after packets of others", 0)
			for i := range connections {
				send(i, i%2 == 0, []*uint8{&fin, &rst}[i/2%2])
				send(i, i%3 == 0, nil)
			}
			want("after they end", connections)
			for i := range connections {
				send(i, false, &syn)
			}
			want("once they begin again", 0)
			if got := since(before, r.counters(t)); got["outcome forwarded"].Packets != sent {
				t.Errorf("%s: %v, want %d forwarded", name, got, sent)
			}
		}
	})
}
