package lab

import (
	"errors"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// A switch is one link for all that are on it.
func TestSwitch(t *testing.T) {
	l := parse(t, `name: s
summary: three hosts on one link
nodes: [{name: a, kind: host}, {name: b, kind: host}, {name: c, kind: host}, {name: link, kind: switch}]
links:
  - ends: [{node: a, name: eth0, addresses: ["2001:db8::1/64"]}, {node: link, name: a}]
  - ends: [{node: b, name: eth0, addresses: ["2001:db8::2/64"]}, {node: link, name: b}]
  - ends: [{node: c, name: eth0, addresses: ["2001:db8::3/64"]}, {node: link, name: c}]
checks:
  - {name: to b, kind: ping, from: a, to: "2001:db8::2", count: 3, within: 10s}
  - {name: to c, kind: ping, from: a, to: "2001:db8::3", count: 3, within: 10s}
`)
	in := open(t, l, unique("switch"))
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{""}, nil, quiet)
	if err != nil || !got.Pass {
		t.Errorf("%v, %+v", err, got)
	}
}

// A command is run in a node of a lab that is up, whoever else works on the lab.
func TestExec(t *testing.T) {
	name := unique("exec")
	if _, _, err := execute(t, "exec", "kernel", "--as", name, "ue", "true"); err == nil {
		t.Error("the lab is not up, and nothing was said")
	}
	l, err := topology.Load("kernel")
	if err != nil {
		t.Fatal(err)
	}
	in := open(t, l, name)
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	node := l.Nodes[0]
	out, _, err := execute(t, "exec", "--as", name, "kernel", node.Name, "ip", "-br", "link", "show", "dev", l.Devices(node)[0])
	if err != nil || !strings.HasPrefix(out, l.Devices(node)[0]) {
		t.Errorf("%q, %v", out, err)
	}
	_, _, err = execute(t, "exec", "--as", name, "kernel", "nobody", "true")
	wantError(t, err, "nobody")
	for script, want := range map[string]int{"exit 3": 3, "kill -TERM $$": 143} {
		_, _, err = execute(t, "exec", "--as", name, "kernel", node.Name, "sh", "-c", script)
		if e, ok := errors.AsType[ended](err); !ok || e.ExitStatus() != want || e.Error() != "" {
			t.Errorf("%s: %v, want status %d and nothing said", script, err, want)
		}
	}
	// Who interrupts us means the command, which may have something to tidy up.
	out, _, err = execute(t, "exec", "--as", name, "kernel", node.Name, "sh", "-c", "trap 'echo tidied; exit 4' TERM; kill -TERM $PPID; while :; do sleep .1; done")
	if e, ok := errors.AsType[ended](err); !ok || e.ExitStatus() != 4 || out != "tidied\n" {
		t.Errorf("after a SIGTERM: %q, %v", out, err)
	}
}
