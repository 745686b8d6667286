package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/cmdline"
)

func TestPods(t *testing.T) {
	f := start(t, "overlay.yaml")
	for _, name := range []string{"web", ""} {
		_, err := f.AddPod(pods.Attachment{ContainerID: "c1" + name, Interface: "eth0"}, pods.Pod{
			Network: "culvert", NetNS: "/run/netns/x", Namespace: "default", Name: name, HostInterface: "culv1" + name, HostIfindex: 7, MAC: "02:00:00:00:00:01",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var rows []string
	for line := range strings.Lines(f.ok(t, "pod")) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	if got, want := strings.Join(rows, "\n"), `POD TENANT INTERFACE ADDRESSES MAC HOST INTERFACE PROBLEM
default/web - eth0 10.244.1.2,fd00:10:244:1::2 02:00:00:00:00:01 culv1web -
c1/eth0 - eth0 10.244.1.3,fd00:10:244:1::3 02:00:00:00:00:01 culv1 -`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var list []pods.Status
	if err := json.Unmarshal([]byte(f.ok(t, "pod", "list", "-o", "json")), &list); err != nil || len(list) != 2 || list[0].Name != "web" || list[0].ContainerID != "c1web" {
		t.Errorf("json: %+v, %v", list, err)
	}
	if out := f.ok(t, "pod", "show", "default/web"); !strings.Contains(out, "netns: /run/netns/x") || strings.Contains(out, "culv1\n") {
		t.Errorf("show:\n%s", out)
	}
	if r := f.run(t, "pod", "show", "default/none"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, `no pod "default/none"`) {
		t.Errorf("none: %+v", r)
	}
}
