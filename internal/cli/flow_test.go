package cli

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/flow"
)

func end(pod, address string, port uint16) flow.End {
	namespace, _, _ := strings.Cut(pod, "/")
	return flow.End{Pod: pod, Namespace: namespace, Address: netip.MustParseAddr(address), Port: port}
}

var someFlows = []flow.Flow{
	{
		ID: 1, Source: end("shop/web", "10.244.1.2", 40000), Destination: end("shop/db", "10.244.2.2", 5432), Service: "10.96.0.7:5432", Protocol: "TCP",
		Verdict: flow.Allowed, Observed: flow.AtSource, Path: flow.PathPolicy, SRPolicy: "node-2:ipv4", SegmentList: 1, Class: "gold",
		Packets: 4100, Answers: 3, Sampling: 1024, Handshake: 1500, Last: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	},
	{
		ID: 2, Source: end("other/x", "fd00::1", 0), Destination: end("shop/web", "fd00::2", 0), Protocol: "ICMPv6", Verdict: flow.Dropped, Reason: "policy_ingress",
		NetworkPolicies: []string{"shop/deny"}, Observed: flow.AtDestination, Path: flow.PathTunnel, Drops: 7, Sampling: 1, Last: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
	},
}

func TestFlow(t *testing.T) {
	f := start(t, "overlay.yaml")
	f.PodFlows = someFlows
	out := f.ok(t, "flow")
	for _, want := range []string{
		"03:04:05", "shop/web:40000", "10.96.0.7:5432 (shop/db:5432)", "node-2:ipv4 list 1 class gold", "4100", "1.5ms",
		"other/x", "ICMPv6", "dropped: policy_ingress (shop/deny)", "tunnel",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var list []flow.Flow
	if err := json.Unmarshal([]byte(f.ok(t, "flow", "--verdict", "dropped", "--since", "5m", "-o", "json")), &list); err != nil || len(list) != 1 || list[0].ID != 2 || list[0].NetworkPolicies[0] != "shop/deny" {
		t.Errorf("json: %+v, %v", list, err)
	}
	if out := f.ok(t, "flow", "--pod", "shop/nobody", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("nobody's flows: %s", out)
	}
	for args, want := range map[string]string{
		"--pod web":          "give NAMESPACE/POD",
		"--verdict refused":  "give allowed or dropped",
		"--since 1h":         "at most 10m0s",
		"--port 70000":       "70000",
		"--since -1s":        "at most 10m0s",
		"--namespace a more": "more",
	} {
		if r := f.run(t, append([]string{"flow"}, strings.Fields(args)...)...); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestFlowFollow(t *testing.T) {
	f := start(t, "overlay.yaml")
	f.PodFlows = someFlows
	for i, want := range []string{
		"03:04:05.000 shop/web:40000 -> 10.96.0.7:5432 (shop/db:5432) TCP allowed by node-2:ipv4 list 1 class gold, 4100 packets, 3 answers, handshake 1.5ms\n",
		"03:04:06.000 other/x -> shop/web ICMPv6 dropped: policy_ingress (shop/deny) by tunnel, 7 packets, 0 answers\n",
	} {
		var b strings.Builder
		if err := (&app{}).printFlow(&b, &someFlows[i]); err != nil || b.String() != want {
			t.Errorf("%q, want %q, %v", b.String(), want, err)
		}
	}
}

func TestFlowOff(t *testing.T) {
	f := start(t, "overlay.yaml")
	if r := f.run(t, "flow"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "overlay.flows.enabled: true") {
		t.Errorf("%+v", r)
	}
}

func TestFlowCompletion(t *testing.T) {
	f := start(t, "overlay.yaml")
	if _, err := f.AddPod(pods.Attachment{ContainerID: "c", Interface: "eth0"}, pods.Pod{Namespace: "default", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{"--pod ": "default/web\n", "--namespace d": "default\n", "--verdict dr": "dropped\n", "--verdict x": ":"} {
		flag, with, _ := strings.Cut(args, " ")
		if r := f.run(t, "__complete", "flow", flag, with); !strings.HasPrefix(r.stdout, want) {
			t.Errorf("%s: %q, want %q", args, r.stdout, want)
		}
	}
}
