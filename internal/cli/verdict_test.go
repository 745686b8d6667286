package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/netpol"
)

func TestPolicyVerdict(t *testing.T) {
	f := start(t, "overlay.yaml")
	out := f.ok(t, "policy-verdict", "default/db", "web", "--port", "80")
	for _, want := range []string{
		"allowed: default/db (10.244.2.2) to default/web (10.244.1.2), TCP port 80\n", "  egress   allowed: no policy isolates it for egress\n",
		"  ingress  allowed: spec.ingress[0] of default/web allows it\n", "           isolated by default/web\n",
		"allowed: default/db (fd00:10:244:2::2) to default/web (fd00:10:244:1::2), TCP port 80\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it says\n%s, want %q", out, want)
		}
	}
	if out := f.ok(t, "policy-verdict", "db", "web", "--port", "80", "--protocol", "udp"); strings.Count(out, "denied: default/db") != 2 {
		t.Errorf("it says\n%s", out)
	}
	var verdicts []netpol.Verdict
	if err := json.Unmarshal([]byte(f.ok(t, "policy-verdict", "192.0.2.1", "web", "-o", "json")), &verdicts); err != nil || len(verdicts) != 1 ||
		verdicts[0].Allowed || !verdicts[0].Egress.Allowed || verdicts[0].Protocol != "any" || verdicts[0].To.Pod != "default/web" || verdicts[0].Ingress.IsolatedBy[0] != "default/web" {
		t.Errorf("json: %+v, %v", verdicts, err)
	}
	for args, want := range map[string]string{
		"db nowhere":                "no pod nowhere",
		"db web --port 0":           "not within 1 to 65535",
		"db web --port http":        "no container of default/web has a port http",
		"db web --protocol gre":     "none of TCP, UDP, SCTP, ICMP",
		"db 2001:db8::1 --port ssh": "is no pod",
	} {
		if r := f.run(t, append([]string{"policy-verdict"}, strings.Fields(args)...)...); r.code != cmdline.ExitError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := f.run(t, "policy-verdict", "db"); r.code != cmdline.ExitUsage {
		t.Errorf("one party: %+v", r)
	}
}

func TestPolicyVerdictOff(t *testing.T) {
	f := start(t, "edge.yaml")
	if r := f.run(t, "policy-verdict", "db", "web"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "overlay.kube.network_policies: enforce") {
		t.Errorf("%+v", r)
	}
}

func TestPolicyVerdictCompletion(t *testing.T) {
	f := start(t, "overlay.yaml")
	for _, name := range []string{"web", ""} {
		if _, err := f.AddPod(pods.Attachment{ContainerID: "c" + name, Interface: "eth0"}, pods.Pod{Namespace: "default", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"policy-verdict", ""}, {"policy-verdict", "192.0.2.1", ""}} {
		if r := f.run(t, append([]string{"__complete"}, args...)...); !strings.HasPrefix(r.stdout, "default/web\n:4") {
			t.Errorf("%q: %q", args, r.stdout)
		}
	}
	if r := f.run(t, "__complete", "policy-verdict", "a", "b", "--protocol", "s"); !strings.HasPrefix(r.stdout, "sctp\n") {
		t.Errorf("protocols: %q", r.stdout)
	}
}
