package dataplane

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	podflow "github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/packet"
)

// record has one in so many packets of pods recorded.
func (r *rig) record(one uint16) {
	r.d.settings.Change(func(s *abi.Settings) { s.FlowSampling = one })
}

// records are those since the last time.
func (r *rig) records(t testing.TB) (out []podflow.Record) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	must(t, r.d.Flows.Read(ctx, func(f podflow.Record) { out = append(out, f) }, end))
	return out
}

// isolatePeer has the pod at rowPeer take TCP port 80 only.
func isolatePeer(t testing.TB, r *rig) {
	t.Helper()
	must(t, r.d.NetworkPolicies.Enforce(true))
	state := netpol.State{
		Namespaces: map[string]*netpol.Namespace{"x": {Name: "x"}}, Pods: []*netpol.Pod{{Namespace: "x", Name: "peer", UID: "peer"}},
		Policies: []*netpol.Policy{netpol.NewPolicy("x", "p", []byte(`{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}`))},
		Local: []netpol.Local{
			{Ifindex: rowPeer, Namespace: "x", Name: "peer", UID: "peer"},
			{Ifindex: rowPod, Namespace: "", Name: "", UID: ""},
		},
	}
	must(t, r.d.NetworkPolicies.Apply(netpol.Compile(state)))
}

// TestFlowRecords: each packet has exactly one record, or none.
func TestFlowRecords(t *testing.T) {
	syn, fin, lldp := uint8(2), uint8(0x11), uint16(0x88cc)
	tcp := func(flags *uint8) layers { return of(packet.TCP{Sport: 1000, Dport: 80, Flags: flags}) }
	at := func(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
	local := podflow.Record{Source: at("10.2.2.2:1000"), Destination: at("10.1.1.1:80"), Protocol: 6, Where: podflow.FromPod, Pod: rowPod, Packets: 1, Octets: 40, Sampling: 1, Reason: "forwarded"}
	change := func(f func(*podflow.Record)) *podflow.Record {
		v := local
		f(&v)
		return &v
	}
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		isolatePeer(t, r)
		programs := podProgramsOf(t, r.d)
		for _, row := range []struct {
			name    string
			program string
			port    int
			one     uint16
			in      layers
			want    *podflow.Record
		}{
			{"off", abi.ProgCulvertPod, rowPod, 0, of(ip4("10.2.2.2", "10.1.1.1"), tcp(&syn)), nil},
			{"off, a drop", abi.ProgCulvertPod, rowPod, 0, of(ip4("10.2.2.3", "10.1.1.1"), tcp(&syn)), nil},
			{"SYN to a pod of this node", abi.ProgCulvertPod, rowPod, 65535, of(ip4("10.2.2.2", "10.1.1.1"), tcp(&syn)), change(func(v *podflow.Record) { v.Flags = 2 })},
			{"one of one", abi.ProgCulvertPod, rowPod, 1, of(ip4("10.2.2.2", "10.1.1.1"), tcp(nil)), change(func(v *podflow.Record) { v.Flags = 0x10 })},
			{"the answer to a ping", abi.ProgCulvertPod, rowPod, 1, of(ip4("10.2.2.2", "10.11.0.1"), packet.ICMP{}, packet.Payload{Count: 20}), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Protocol, v.Octets, v.Flags, v.Policy = at("10.2.2.2:0"), at("10.11.0.1:0"), 1, 48, 0x10, "reached"
			})},
			{"FIN", abi.ProgCulvertPod, rowPod, 65535, of(ip4("10.2.2.2", "10.1.1.1"), tcp(&fin)), change(func(v *podflow.Record) { v.Flags = 0x11 })},
			{"into a policy, IPv6", abi.ProgCulvertPod, rowPod, 65535, of(ip6("fd02::2", "fd11::1"), tcp(&syn)), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Octets, v.Flags, v.Policy = at("[fd02::2]:1000"), at("[fd11::1]:80"), 60, 2, "reached"
			})},
			{"to the kernel", abi.ProgCulvertPod, rowPod, 65535, of(ip4("10.2.2.2", "192.0.2.1"), tcp(&syn)), change(func(v *podflow.Record) {
				v.Destination, v.Flags, v.Reason = at("192.0.2.1:80"), 2, "passed"
			})},
			{"from the kernel", abi.ProgCulvertPod, rowEntry, 65535, of(ip4("192.0.2.1", "10.11.0.1"), tcp(&syn)), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Flags, v.Where, v.Pod, v.Policy = at("192.0.2.1:1000"), at("10.11.0.1:80"), 2, podflow.FromKernel, 0, "reached"
			})},
			{"from a tunnel", abi.ProgCulvertUplink, rowUplink, 65535, of(ip6(other, dt4), ip4("10.11.0.1", "10.2.2.2"), tcp(&syn)), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Flags, v.Where = at("10.11.0.1:1000"), at("10.2.2.2:80"), 2, podflow.FromTunnel
			})},
			{"an address of somebody else", abi.ProgCulvertPod, rowPod, 65535, of(ip4("10.2.2.3", "10.1.1.1"), datagram(20)), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Protocol, v.Octets, v.Dropped, v.Reason = at("10.2.2.3:1000"), at("10.1.1.1:2000"), 17, 48, true, "pod_source"
			})},
			{"no IP", abi.ProgCulvertPod, rowPod, 65535, of(packet.Ethernet{Type: &lldp}, packet.Payload{Count: 40}), &podflow.Record{Where: podflow.FromPod, Pod: rowPod, Packets: 1, Sampling: 1, Dropped: true, Reason: "pod_frame"}},
			{"what a policy drops", abi.ProgCulvertPod, rowPod, 65535, of(ip4("10.2.2.2", "10.1.1.1"), datagram(20)), change(func(v *podflow.Record) {
				v.Destination, v.Protocol, v.Octets, v.Dropped, v.Reason = at("10.1.1.1:2000"), 17, 48, true, "policy_ingress"
			})},
			{"what a policy drops from a tunnel", abi.ProgCulvertUplink, rowUplink, 65535, of(ip6(other, dt4), ip4("10.11.0.1", "10.1.1.1"), datagram(20)), change(func(v *podflow.Record) {
				v.Source, v.Destination, v.Protocol, v.Octets, v.Dropped, v.Reason = at("10.11.0.1:1000"), at("10.1.1.1:2000"), 17, 48, true, "policy_ingress"
				v.Where, v.Pod = podflow.FromTunnel, rowPeer
			})},
		} {
			r.record(row.one)
			begun := time.Now()
			runOn(t, programs[row.program], frameAt(t, row.port, row.in), row.port)
			var want []podflow.Record
			if row.want != nil {
				want = append(want, *row.want)
			}
			got := r.records(t)
			for i := range got {
				if age := got[i].Time.Sub(begun); age < -time.Second || age > time.Minute {
					t.Errorf("%s: %s after it was sent", row.name, age)
				}
				got[i].Time = time.Time{}
			}
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", row.name, diff)
			}
		}
	})
}

// TestFlowSampling: what is chosen stands for about as many packets as there were.
func TestFlowSampling(t *testing.T) {
	const one, sent = 16, 20000
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		r.record(one)
		frame := frameAt(t, rowPod, of(ip4("10.2.2.2", "192.0.2.1"), datagram(20)))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		_, err := program.Run(&ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: rowPod}, Repeat: sent})
		must(t, err)
		left, err := r.d.Pods.LeftOut()
		must(t, err)
		got := len(r.records(t)) + int(left[rowPod])
		if got < sent/one*7/10 || got > sent/one*13/10 {
			t.Errorf("%d of %d packets were chosen, want about one in %d", got, sent, one)
		}
	})
}

// TestFlowFlood: a pod that makes too many records has no more for a while, and no other pod
// lacks any.
func TestFlowFlood(t *testing.T) {
	const sent = 5000
	syn := uint8(2)
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		r.record(65535)
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		packetOf := func(port int, from string) ebpf.RunOptions {
			frame := frameAt(t, port, of(ip4(from, "192.0.2.1"), packet.TCP{Sport: 1, Dport: 2, Flags: &syn}))
			return ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: uint32(port)}, Repeat: sent}
		}
		flood := packetOf(rowPod, "10.2.2.2")
		_, err := program.Run(&flood)
		must(t, err)
		quiet := packetOf(rowPeer, "10.1.1.1")
		quiet.Repeat = 1
		_, err = program.Run(&quiet)
		must(t, err)
		by := map[int]int{}
		for _, v := range r.records(t) {
			by[v.Pod]++
		}
		left, err := r.d.Pods.LeftOut()
		must(t, err)
		if by[rowPod]+int(left[rowPod]) != sent || by[rowPod] < int(abi.FlowLimitsFLOW_RECORDS) || left[rowPod] < sent/2 {
			t.Errorf("%d records and %d left out of %d packets, want about %d", by[rowPod], left[rowPod], sent, abi.FlowLimitsFLOW_RECORDS)
		}
		if by[rowPeer] != 1 || left[rowPeer] != 0 {
			t.Errorf("the other pod: %d records, %d left out", by[rowPeer], left[rowPeer])
		}
		must(t, r.d.Pods.Delete(rowPod))
		must(t, r.d.Pods.Put(rowPods[rowPod]))
		if left, err = r.d.Pods.LeftOut(); err != nil || left[rowPod] != 0 {
			t.Errorf("a new pod has %d records left out, %v", left[rowPod], err)
		}
	})
}

// TestFlowRingIsBounded: a full ring costs records, and nothing else.
func TestFlowRingIsBounded(t *testing.T) {
	inNamespace(t, rowPorts, func() {
		r := newRowRig(t)
		r.record(1)
		frame := frameAt(t, rowPod, of(ip4("10.2.2.2", "192.0.2.1"), datagram(20)))
		program := podProgramsOf(t, r.d)[abi.ProgCulvertPod]
		budget := r.d.maps[abi.MapFlowBudget]
		sent := 0
		for range 100 { // nobody reads; the budget is always fresh
			for i := range budget.MaxEntries() {
				if i > 16 {
					break
				}
				must(t, budget.Put(i, make([]abi.FlowBudget, ebpf.MustPossibleCPU())))
			}
			verdict, err := program.Run(&ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: rowPod}, Repeat: 200})
			must(t, err)
			if verdict != tcxNext {
				t.Fatalf("verdict %#x", verdict)
			}
			sent += 200
		}
		if got := len(r.records(t)); got == 0 || got >= sent {
			t.Errorf("%d records of %d packets in a ring of 1 MiB", got, sent)
		}
	})
}

// BenchmarkFlowRecords is what records cost a packet that the kernel gets: the least of all
// rounds, in which the cases take turns.
func BenchmarkFlowRecords(b *testing.B) {
	const packets = 10_000 // less than a slice of the scheduler
	syn := uint8(2)
	inNamespace(b, rowPorts, func() {
		r := newRowRig(b)
		program := podProgramsOf(b, r.d)[abi.ProgCulvertPod]
		cases := []struct {
			name string
			one  uint16
			in   packet.Layer
		}{
			{"off-tcp-ns", 0, packet.TCP{Sport: 1, Dport: 2}},
			{"one-in-1024-tcp-ns", 1024, packet.TCP{Sport: 1, Dport: 2}},
			{"off-udp-ns", 0, packet.UDP{Sport: 1, Dport: 2}},
			{"one-in-1024-udp-ns", 1024, packet.UDP{Sport: 1, Dport: 2}},
			{"syn-beyond-the-budget-ns", 1024, packet.TCP{Sport: 1, Dport: 2, Flags: &syn}},
		}
		least := map[string]float64{}
		for b.Loop() {
			for _, c := range cases {
				r.record(c.one)
				frame := frameAt(b, rowPod, of(ip4("10.2.2.2", "192.0.2.1"), c.in))
				begun := time.Now()
				_, err := program.Run(&ebpf.RunOptions{Data: frame, Context: skbContext{Ifindex: rowPod}, Repeat: packets})
				must(b, err)
				took := float64(time.Since(begun).Nanoseconds()) / packets
				if now, known := least[c.name]; !known || took < now {
					least[c.name] = took
				}
			}
		}
		for name, ns := range least {
			b.ReportMetric(ns, name)
		}
	})
}
