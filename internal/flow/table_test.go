package flow_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/culvert-net/culvert/internal/flow"
)

// cluster knows two pods of this node, web (10.0.0.2, ifindex 2) and db (10.0.0.3), one of
// another, far (10.0.1.2), and that node (192.0.2.9).
type cluster map[string]flow.End

var names = cluster{
	"10.0.0.2":  {Pod: "shop/web-1", Namespace: "shop", Workload: "Deployment/web", Node: "a", Local: true},
	"10.0.0.3":  {Pod: "shop/db-0", Namespace: "shop", Workload: "StatefulSet/db", Node: "a", Local: true},
	"10.0.1.2":  {Pod: "far/x", Namespace: "far", Workload: "Pod/x", Node: "b"},
	"192.0.2.9": {Node: "b"},
}

func (c cluster) Who(tenant uint8, address netip.Addr, pod int) flow.End {
	switch {
	case !address.IsValid() && pod == 2:
		return c["10.0.0.2"]
	case tenant != 0:
		return flow.End{}
	}
	return c[address.String()]
}

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// after is a time, in ms.
func after(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }

// record is of TCP, at a pod's veth.
func record(ms int, source, destination string, flags uint8, reason string) flow.Record {
	return flow.Record{
		Time: after(ms), Source: netip.MustParseAddrPort(source), Destination: netip.MustParseAddrPort(destination), Protocol: 6, Flags: flags,
		Pod: 2, Packets: 1, Octets: 40, Sampling: 1, Reason: reason, Dropped: reason != "forwarded" && reason != "passed",
	}
}

func at(r flow.Record, where flow.Where, policy string) flow.Record {
	r.Where, r.Policy = where, policy
	return r
}

func sampled(r flow.Record, one uint32) flow.Record {
	r.Sampling = one
	return r
}

func ofProtocol(r flow.Record, protocol uint8) flow.Record {
	r.Protocol, r.Flags = protocol, 0
	return r
}

func ping(r flow.Record) flow.Record {
	r.Protocol = 1
	return r
}

const (
	syn, synAck, ack, fin = 2, 0x12, 0x10, 0x11

	web, db, far, service, outside = "10.0.0.2:40000", "10.0.0.3:80", "10.0.1.2:80", "10.96.0.1:443", "198.51.100.1:53"
)

// TestFold: what records make of each other.
func TestFold(t *testing.T) {
	end := func(address string) flow.End {
		a := netip.MustParseAddrPort(address)
		e := names[a.Addr().String()]
		e.Address, e.Port = a.Addr(), a.Port()
		return e
	}
	for _, tt := range []struct {
		name    string
		records []flow.Record
		want    []flow.Flow
	}{
		{"a connection on this node", []flow.Record{
			record(0, web, db, syn, "forwarded"), record(3, db, web, synAck, "forwarded"),
			sampled(record(4, web, db, ack, "forwarded"), 100), record(9, db, web, fin, "forwarded"),
		}, []flow.Flow{{Source: end(web), Destination: end(db), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "local",
			Packets: 101, Octets: 4040, Answers: 2, AnswerBytes: 80, Sampling: 100, Handshake: 3000, First: after(0), Last: after(9), Closed: true}}},
		{"into a policy, with a class, and the SYN again", []flow.Record{
			at(record(0, web, far, syn, "forwarded"), flow.FromPod, "to-b"), at(record(1000, web, far, syn, "forwarded"), flow.FromPod, "to-b"),
			at(record(1002, far, web, synAck, "forwarded"), flow.FromTunnel, ""),
		}, []flow.Flow{{Source: end(web), Destination: end(far), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "policy", SRPolicy: "to-b", SegmentList: 1,
			Packets: 2, Octets: 80, Answers: 1, AnswerBytes: 40, Sampling: 1, Handshake: 2000, First: after(0), Last: after(1002)}}},
		{"from another node", []flow.Record{at(record(0, "10.0.1.2:40000", db, syn, "forwarded"), flow.FromTunnel, "")},
			[]flow.Flow{{Source: end("10.0.1.2:40000"), Destination: end(db), Protocol: "TCP", Verdict: "allowed", Observed: "destination", Path: "tunnel",
				Packets: 1, Octets: 40, Sampling: 1, First: after(0), Last: after(0)}}},
		{"a Service, to another node", []flow.Record{
			record(0, web, service, syn, "passed"), at(record(1, web, far, syn, "forwarded"), flow.FromKernel, "to-b"),
			at(record(5, far, web, synAck, "forwarded"), flow.FromTunnel, ""), record(6, web, service, fin, "passed"),
		}, []flow.Flow{{Source: end(web), Destination: end(far), Service: service, Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "policy", SRPolicy: "to-b", SegmentList: 1,
			Packets: 2, Octets: 80, Answers: 1, AnswerBytes: 40, Sampling: 1, Handshake: 5000, First: after(0), Last: after(6), Closed: true}}},
		{"a Service on this node", []flow.Record{record(0, web, service, syn, "passed"), record(2, db, web, synAck, "passed")},
			[]flow.Flow{{Source: end(web), Destination: end(db), Service: service, Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "kernel",
				Packets: 1, Octets: 40, Answers: 1, AnswerBytes: 40, Sampling: 1, Handshake: 2000, First: after(0), Last: after(2)}}},
		{"a Service, and a policy drops it", []flow.Record{record(0, web, service, syn, "passed"), at(record(0, web, db, syn, "policy_ingress"), flow.Forwarded, "")},
			[]flow.Flow{{Source: end(web), Destination: end(db), Service: service, Protocol: "TCP", Verdict: "dropped", Reason: "policy_ingress", Observed: "source", Path: "kernel",
				Packets: 1, Octets: 40, Drops: 1, Sampling: 1, First: after(0), Last: after(0)}}},
		{"two Services at once, and nobody knows which", []flow.Record{
			ofProtocol(record(0, web, service, 0, "passed"), 17), ofProtocol(record(1, web, "10.96.0.2:53", 0, "passed"), 17),
			ofProtocol(at(record(2, far, web, 0, "forwarded"), flow.FromTunnel, ""), 17),
		}, []flow.Flow{
			{Source: end(web), Destination: end(service), Protocol: "UDP", Verdict: "allowed", Observed: "source", Path: "kernel", Packets: 1, Octets: 40, Sampling: 1, First: after(0), Last: after(0)},
			{Source: end(web), Destination: end("10.96.0.2:53"), Protocol: "UDP", Verdict: "allowed", Observed: "source", Path: "kernel", Packets: 1, Octets: 40, Sampling: 1, First: after(1), Last: after(1)},
			{Source: end(web), Destination: end(far), Protocol: "UDP", Verdict: "allowed", Observed: "source", Path: "tunnel", Answers: 1, AnswerBytes: 40, Sampling: 1, First: after(2), Last: after(2)},
		}},
		{"outside, and somebody else much later", []flow.Record{
			record(0, web, outside, syn, "passed"), record(5000, web, far, ack, "forwarded"),
		}, []flow.Flow{
			{Source: end(web), Destination: end(outside), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "kernel", Packets: 1, Octets: 40, Sampling: 1, First: after(0), Last: after(0)},
			{Source: end(web), Destination: end(far), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "local", Packets: 1, Octets: 40, Sampling: 1, First: after(5000), Last: after(5000)},
		}},
		{"the node probes", []flow.Record{record(0, "10.0.0.3:8080", "192.0.2.9:50000", synAck, "passed")},
			[]flow.Flow{{Source: end("192.0.2.9:50000"), Destination: end("10.0.0.3:8080"), Protocol: "TCP", Verdict: "allowed", Observed: "destination", Path: "kernel",
				Answers: 1, AnswerBytes: 40, Sampling: 1, First: after(0), Last: after(0)}}},
		{"a chosen answer, then the beginning", []flow.Record{
			record(0, db, "10.0.0.2:2000", ack, "forwarded"), record(1, "10.0.0.2:2000", db, syn, "forwarded"),
		}, []flow.Flow{{Source: end("10.0.0.2:2000"), Destination: end(db), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "local",
			Packets: 1, Octets: 40, Answers: 1, AnswerBytes: 40, Sampling: 1, First: after(0), Last: after(1)}}},
		{"the answer to a ping, then a ping", []flow.Record{
			ping(record(0, "10.0.0.3:0", "10.0.0.2:0", ack, "forwarded")), ping(record(1, "10.0.0.2:0", "10.0.0.3:0", 0, "forwarded")),
		}, []flow.Flow{{Source: end("10.0.0.2:0"), Destination: end("10.0.0.3:0"), Protocol: "ICMP", Verdict: "allowed", Observed: "source", Path: "local",
			Packets: 1, Octets: 40, Answers: 1, AnswerBytes: 40, Sampling: 1, First: after(0), Last: after(1)}}},
		{"a ping, and one the other way that a policy drops", []flow.Record{
			ping(record(0, "10.0.0.2:0", "10.0.0.3:0", 0, "forwarded")), ping(record(1, "10.0.0.3:0", "10.0.0.2:0", ack, "forwarded")),
			ping(record(2, "10.0.0.3:0", "10.0.0.2:0", 0, "policy_ingress")),
		}, []flow.Flow{{Source: end("10.0.0.3:0"), Destination: end("10.0.0.2:0"), Protocol: "ICMP", Verdict: "dropped", Reason: "policy_ingress", Observed: "source", Path: "local",
			Packets: 1, Octets: 40, Answers: 1, AnswerBytes: 40, Drops: 1, Sampling: 1, First: after(0), Last: after(2)}}},
		{"the same ports again", []flow.Record{
			record(0, web, db, syn, "forwarded"), record(1, web, db, fin, "forwarded"), record(2, web, db, syn, "forwarded"),
		}, []flow.Flow{
			{Source: end(web), Destination: end(db), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "local", Packets: 2, Octets: 80, Sampling: 1, First: after(0), Last: after(1), Closed: true},
			{Source: end(web), Destination: end(db), Protocol: "TCP", Verdict: "allowed", Observed: "source", Path: "local", Packets: 1, Octets: 40, Sampling: 1, First: after(2), Last: after(2)},
		}},
		{"frames that are not IP", []flow.Record{
			{Time: after(0), Pod: 2, Packets: 1, Sampling: 1, Dropped: true, Reason: "pod_frame"}, {Time: after(1), Pod: 2, Packets: 1, Sampling: 1, Dropped: true, Reason: "pod_frame"},
		}, []flow.Flow{{Source: names["10.0.0.2"], Verdict: "dropped", Reason: "pod_frame", Observed: "source", Drops: 2, Sampling: 1, First: after(0), Last: after(1)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := flow.New(names, flow.Limits{})
			for _, r := range tt.records {
				table.Fold(r)
			}
			got, _ := table.List(flow.Filter{}, 0, time.Time{})
			slices.SortFunc(got, func(a, b flow.Flow) int { return int(a.ID) - int(b.ID) })
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(flow.Flow{}, "ID"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestFlood: one pod's flows do not push out another's, and what is kept is bounded.
func TestFlood(t *testing.T) {
	const most = 100
	table := flow.New(names, flow.Limits{Flows: most, Pairs: 3})
	quiet := record(0, db, "10.0.1.2:9", syn, "forwarded")
	quiet.Pod = 3
	table.Fold(quiet)
	for i := range 10 * most {
		table.Fold(record(i+1, fmt.Sprintf("10.0.0.2:%d", i+1), fmt.Sprintf("198.51.100.%d:80", i%200), syn, "passed"))
	}
	if n := table.Len(); n != most {
		t.Errorf("%d flows, want %d", n, most)
	}
	if got, _ := table.List(flow.Filter{Pod: "shop/db-0"}, 0, time.Time{}); len(got) != 1 {
		t.Errorf("the other pod has %d flows, want its one", len(got))
	}
	table.Settle(after(100000))
	var flows uint64
	for p, c := range table.Pairs() {
		flows += c.Flows
		if want := (flow.Pair{SourceNamespace: "shop", Source: "Deployment/web", Destination: "outside", Verdict: "allowed", Observed: "source"}); p.Source == want.Source && p != want {
			t.Errorf("pair %+v, want %+v", p, want)
		}
	}
	if want := uint64(10*most + 1); flows != want {
		t.Errorf("%d flows are counted, want %d: those that went among them", flows, want)
	}
	table.Settle(after(100000).Add(flow.DefaultKeep))
	if n := table.Len(); n != 0 {
		t.Errorf("%d flows are kept for ever", n)
	}
}

// TestPairs: each packet is counted once, under the names that came with the translation.
func TestPairs(t *testing.T) {
	table := flow.New(names, flow.Limits{Pairs: 2})
	fold := func(list ...flow.Record) {
		for _, r := range list {
			table.Fold(r)
		}
	}
	fold(record(0, web, service, syn, "passed"), record(2, db, web, synAck, "passed"))
	table.Settle(after(1000)) // too early: more may become known
	if got := table.Pairs(); len(got) != 0 {
		t.Errorf("at once: %v", got)
	}
	table.Settle(after(3000))
	fold(sampled(record(3001, web, service, ack, "passed"), 10))
	table.Settle(after(3002))
	table.Settle(after(3003))
	toDB := flow.Pair{SourceNamespace: "shop", Source: "Deployment/web", DestinationNamespace: "shop", Destination: "StatefulSet/db", Verdict: "allowed", Observed: "source"}
	want := map[flow.Pair]flow.Count{toDB: {Flows: 1, Packets: 12, Octets: 480, Handshakes: 1, HandshakeMicroseconds: 2000}}
	if diff := cmp.Diff(want, table.Pairs()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	fold(record(4000, web, "10.0.0.3:81", syn, "policy_ingress"), at(record(4000, web, far, syn, "forwarded"), flow.FromPod, "p"), record(4000, web, "198.51.100.9:1", syn, "passed"))
	table.Settle(after(9000))
	dropped, other := toDB, flow.Pair{Source: "other", Destination: "other", Verdict: "allowed", Observed: "source"}
	dropped.Verdict = "dropped"
	got := table.Pairs()
	if got[dropped].Packets+got[flow.Pair{Source: "other", Destination: "other", Verdict: "dropped", Observed: "source"}].Packets != 1 {
		t.Errorf("no pair has the drop: %v", got)
	}
	if got[other].Packets == 0 || len(got) > 4 {
		t.Errorf("pairs beyond the limit: %v", got)
	}
}

// TestExplain: NetworkPolicies are asked about a flow once.
func TestExplain(t *testing.T) {
	table := flow.New(names, flow.Limits{})
	table.Fold(record(0, web, db, syn, "policy_egress"))
	table.Fold(record(0, web, far, syn, "pod_source"))
	drops := table.Unexplained(10)
	if len(drops) != 1 || drops[0].Ingress || drops[0].Flow.Destination.Pod != "shop/db-0" {
		t.Fatalf("drops %+v", drops)
	}
	_, now := table.List(flow.Filter{}, 0, time.Time{})
	table.Explain(drops[0].ID, []string{"shop/deny"})
	table.Explain(99, []string{"shop/nobody"})
	if got, _ := table.List(flow.Filter{}, now, time.Time{}); len(got) != 1 || got[0].NetworkPolicies[0] != "shop/deny" {
		t.Errorf("what changed: %+v", got)
	}
	if again := table.Unexplained(10); len(again) != 0 {
		t.Errorf("asked again: %+v", again)
	}
}

// Policies are asked about the packet that they dropped, whoever is thought to have begun the
// flow: an answer of db's, and one of web's from a port that servers have.
func TestDropOfAnAnswer(t *testing.T) {
	table := flow.New(names, flow.Limits{})
	table.Fold(record(0, web, db, syn, "forwarded"))
	table.Fold(record(1, db, web, synAck, "policy_ingress"))
	table.Fold(ofProtocol(record(2, "10.0.0.2:1000", "10.0.1.2:40000", 0, "policy_egress"), 17))
	drops := table.Unexplained(10)
	slices.SortFunc(drops, func(a, b flow.Drop) int { return int(a.ID) - int(b.ID) })
	if len(drops) != 2 || !drops[0].Ingress || drops[0].Flow.Destination.Pod != "shop/web-1" || drops[0].Flow.Destination.Port != 40000 ||
		drops[1].Ingress || drops[1].Flow.Source.Pod != "shop/web-1" || drops[1].Flow.Destination.Port != 40000 {
		t.Errorf("drops %+v", drops)
	}
}

func TestFilter(t *testing.T) {
	table := flow.New(names, flow.Limits{})
	table.Fold(record(0, web, service, syn, "passed"))
	table.Fold(at(record(0, web, far, syn, "forwarded"), flow.FromKernel, "p"))
	table.Fold(record(60000, "10.0.0.3:5", "198.51.100.1:25", syn, "policy_egress"))
	for _, tt := range []struct {
		filter flow.Filter
		since  time.Time
		want   int
	}{
		{flow.Filter{}, time.Time{}, 2},
		{flow.Filter{}, after(1), 1},
		{flow.Filter{Pod: "far/x"}, time.Time{}, 1},
		{flow.Filter{Pod: "far/y"}, time.Time{}, 0},
		{flow.Filter{Namespace: "shop"}, time.Time{}, 2},
		{flow.Filter{Namespace: "far"}, time.Time{}, 1},
		{flow.Filter{Namespace: "none"}, time.Time{}, 0},
		{flow.Filter{Verdict: "dropped"}, time.Time{}, 1},
		{flow.Filter{Port: 443}, time.Time{}, 1},
		{flow.Filter{Port: 80}, time.Time{}, 1},
		{flow.Filter{Port: 43}, time.Time{}, 0},
	} {
		if got, _ := table.List(tt.filter, 0, tt.since); len(got) != tt.want {
			t.Errorf("%+v: %d flows, want %d", tt.filter, len(got), tt.want)
		}
	}
}

func TestEndString(t *testing.T) {
	for want, e := range map[string]flow.End{
		"a/b:80":            {Pod: "a/b", Address: netip.MustParseAddr("10.0.0.1"), Port: 80},
		"node n":            {Node: "n", Address: netip.MustParseAddr("10.0.0.1")},
		"10.0.0.1:80":       {Node: "n", Workload: flow.WorkloadUnknown, Address: netip.MustParseAddr("10.0.0.1"), Port: 80},
		"[2001:db8::1]:443": {Address: netip.MustParseAddr("2001:db8::1"), Port: 443},
		"2001:db8::1":       {Address: netip.MustParseAddr("2001:db8::1")},
		"-":                 {},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
