package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/netpol"
)

// opened is a record of a SYN of a pod of this node.
func opened(from, to string) flow.Record {
	return flow.Record{
		Time: time.Now(), Source: netip.MustParseAddrPort(from), Destination: netip.MustParseAddrPort(to), Protocol: 6, Flags: 2,
		Where: flow.FromPod, Pod: 2, Packets: 1, Octets: 60, Sampling: 1, Reason: "forwarded",
	}
}

// flowsOf are those that a filter means.
func flowsOf(t *testing.T, d *daemon, filter flow.Filter) (out []flow.Flow) {
	t.Helper()
	if err := d.PodTraffic().Flows(t.Context(), filter, func(v flow.Flow) error { out = append(out, v); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFlowsOfPods(t *testing.T) {
	dp := newFake()
	d := prepare(t, t.TempDir(), strings.Replace(memberFile, "overlay:", "overlay:\n  flows: {enabled: true, sampling: 7}", 1), dp).start(t, podLinks(2))
	if dp.settings.FlowSampling != 7 {
		t.Errorf("settings %+v", dp.settings)
	}
	own := mustAdd(t, d, 0).Addresses[0].String()
	dp.records <- opened(own+":40000", "198.51.100.1:80")
	drop := opened(own+":40001", "198.51.100.1:80")
	drop.Dropped, drop.Reason = true, "pod_source"
	dp.records <- drop
	dp.left = map[int]uint64{2: 5, 0: 1, 77: 9}
	d.holds(t, "both flows are there", func() bool { return d.traffic.flows.table.Load().Len() == 2 })
	for filter, want := range map[flow.Filter]int{{}: 2, {Verdict: flow.Dropped}: 1, {Namespace: "none"}: 0, {Since: time.Minute, Port: 80}: 2} {
		if got := flowsOf(t, d, filter); len(got) != want {
			t.Errorf("%+v: %+v, want %d", filter, got, want)
		}
	}
	errStop := errors.New("stop")
	followed := make(chan error, 1)
	go func() {
		followed <- d.PodTraffic().Flows(t.Context(), flow.Filter{Follow: true, Port: 81}, func(flow.Flow) error { return errStop })
	}()
	dp.records <- opened(own+":40002", "198.51.100.1:81")
	if err := <-followed; !errors.Is(err, errStop) {
		t.Errorf("followed: %v", err)
	}
	d.traffic.flows.table.Load().Settle(time.Now().Add(time.Minute))
	got := scraped(t, d.Agent)
	for _, want := range []string{
		"culvert_overlay_flows 3\n",
		"culvert_overlay_flow_records_left_out_total{namespace=\"default\",pod=\"pod-0\"} 5\n",
		"culvert_overlay_flow_records_left_out_total{namespace=\"\",pod=\"\"} 1\n",
		`culvert_overlay_workload_packets_total{destination="outside",destination_namespace="",observed="source",source="unknown",source_namespace="default",verdict="allowed"} 2` + "\n",
		`culvert_overlay_workload_flows_total{destination="outside",destination_namespace="",observed="source",source="unknown",source_namespace="default",verdict="dropped"} 1` + "\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no metric %s", want)
		}
	}
	if strings.Count(got, "culvert_overlay_flow_records_left_out_total{") != 2 {
		t.Error("a pod that is gone has a metric")
	}
}

// Nothing is recorded unless the configuration says so.
func TestFlowsOff(t *testing.T) {
	dp := newFake()
	d := startMember(t, t.TempDir(), dp, 1)
	if dp.settings.FlowSampling != 0 {
		t.Errorf("settings %+v", dp.settings)
	}
	if err := d.PodTraffic().Flows(t.Context(), flow.Filter{}, nil); !errors.Is(err, ErrNoFlows) {
		t.Errorf("flows: %v", err)
	}
	if strings.Contains(scraped(t, d.Agent), "culvert_overlay_workload") {
		t.Error("there are metrics of workloads")
	}
	lonely := prepare(t, t.TempDir(), "log: {level: info}\n", newFake()).start(t, podLinks(0))
	if err := lonely.PodTraffic().Flows(t.Context(), flow.Filter{}, nil); !errors.Is(err, pods.ErrNoCluster) {
		t.Errorf("flows of a node in no cluster: %v", err)
	}
}

// fakeState is what the Kubernetes API says.
type fakeState netpol.State

func (s fakeState) NetworkState() (netpol.State, bool) { return netpol.State(s), true }

// A drop has the names of the policies that isolate the pod.
func TestFlowsNamePolicies(t *testing.T) {
	dp := newFake()
	d := startMember(t, t.TempDir(), dp, 2)
	own := mustAdd(t, d, 0).Addresses[0].String()
	_, pod := nthPod(0)
	state := fakeState{
		Namespaces: map[string]*netpol.Namespace{"default": {Name: "default"}, "far": {Name: "far"}},
		Pods: []*netpol.Pod{
			{Namespace: "default", Name: pod.Name, UID: pod.UID, Workload: "DaemonSet/own"},
			{Namespace: "far", Name: "x", UID: "x", Workload: "Deployment/far", Node: "b", Addresses: []netpol.Address{{Addr: addr("10.244.2.2")}}},
			{Namespace: "default", Name: "gone", UID: "gone", Workload: "Pod/gone", Node: "b", Leaving: true, Addresses: []netpol.Address{{Addr: addr("10.244.2.2")}}},
		},
		Policies: []*netpol.Policy{
			netpol.NewPolicy("default", "deny-out", []byte(`{"podSelector":{},"policyTypes":["Egress"]}`)),
			netpol.NewPolicy("default", "web-only", []byte(`{"podSelector":{},"ingress":[{"ports":[{"port":80}]}]}`)),
		},
	}
	p := &policing{core: d.core}
	p.keeper = isolation.New(isolation.Settings{Path: d.core.dp.NetworkPolicies, Source: state, Pods: d.core.pods, Log: d.core.log})
	f := newFlows(d.core, p)
	f.source = state
	if err := p.keeper.Enforce(true); err != nil {
		t.Fatal(err)
	}
	go p.keeper.Run(t.Context())
	d.holds(t, "the policies are known", func() bool { return !p.keeper.Status().Applied.IsZero() })
	f.enable(true)
	go f.run(t.Context())
	for _, to := range []struct {
		from, to, reason, policy string
		protocol                 uint8
	}{
		{own + ":40000", "10.244.2.2:80", "policy_egress", "default/deny-out", 6},
		{"10.244.2.2:40000", own + ":81", "policy_ingress", "default/web-only", 6},
		// Ports say that it is an answer, and so the flow's source is the other end.
		{own + ":81", "10.244.2.2:40001", "policy_egress", "default/deny-out", 17},
		{"10.244.2.2:81", own + ":40001", "policy_ingress", "default/web-only", 17},
	} {
		r := opened(to.from, to.to)
		r.Dropped, r.Reason, r.Protocol = true, to.reason, to.protocol
		d.holds(t, to.policy+" is named", func() bool {
			dp.records <- r
			list, _ := f.table.Load().List(flow.Filter{Verdict: flow.Dropped}, 0, time.Time{})
			for _, v := range list {
				ports := r.Source.Port() + r.Destination.Port()
				if v.Source.Port+v.Destination.Port == ports && len(v.NetworkPolicies) == 1 && v.NetworkPolicies[0] == to.policy {
					return v.Source.Workload+v.Destination.Workload != "" && (v.Source.Pod == "far/x" || v.Destination.Pod == "far/x")
				}
			}
			return false
		})
	}
}

// Policies of the pod that had the address then are named, not those of who has it now.
func TestFlowsOfAFormerAddress(t *testing.T) {
	d := startMember(t, t.TempDir(), newFake(), 1)
	state := fakeState{
		Namespaces: map[string]*netpol.Namespace{"a": {Name: "a"}, "b": {Name: "b"}},
		Pods: []*netpol.Pod{
			{Namespace: "a", Name: "x", UID: "x", Addresses: []netpol.Address{{Addr: addr("10.244.2.9")}}},
			{Namespace: "b", Name: "x", UID: "y", Addresses: []netpol.Address{{Addr: addr("10.244.2.2")}}}, // that of a/x before
		},
		Policies: []*netpol.Policy{
			netpol.NewPolicy("a", "closed", []byte(`{"podSelector":{},"policyTypes":["Ingress","Egress"]}`)),
			netpol.NewPolicy("b", "other", []byte(`{"podSelector":{},"policyTypes":["Ingress","Egress"]}`)),
		},
	}
	p := &policing{core: d.core}
	p.keeper = isolation.New(isolation.Settings{Path: d.core.dp.NetworkPolicies, Source: state, Pods: d.core.pods, Log: d.core.log})
	if err := p.keeper.Enforce(true); err != nil {
		t.Fatal(err)
	}
	go p.keeper.Run(t.Context())
	d.holds(t, "the policies are known", func() bool { return !p.keeper.Status().Applied.IsZero() })
	f := newFlows(d.core, p)
	pod, other := flow.End{Pod: "a/x", Namespace: "a", Address: addr("10.244.2.2"), Port: 80}, flow.End{Pod: "c/gone", Address: addr("10.244.2.7"), Port: 40000}
	for _, drop := range []flow.Drop{
		{Flow: flow.Flow{Source: pod, Destination: other, Protocol: "TCP"}}, {Flow: flow.Flow{Source: other, Destination: pod, Protocol: "TCP"}, Ingress: true},
	} {
		if got := f.explain(&drop); len(got) != 1 || got[0] != "a/closed" {
			t.Errorf("ingress %v: %v", drop.Ingress, got)
		}
	}
}
