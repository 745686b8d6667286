package check

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kernelsCluster is the node of clusterOfOne and its pods, whose packets the kernel forwards.
// The programs that it would run are in a folder that is empty.
func kernelsCluster(t *testing.T) *disturb.Runner {
	t.Helper()
	in := inCluster(t)
	in.Name, in.Culvert = fmt.Sprintf("check-%d", os.Getpid()), filepath.Join(t.TempDir(), "culvert")
	for _, name := range []string{"x", "p", "q", "api"} {
		ns := in.Namespace(in.Node(name))
		must(t, ns.Create(in.Name))
		t.Cleanup(func() { must(t, ns.Delete(in.Name)) })
	}
	must(t, os.MkdirAll(instance.StateDir, 0o755))
	t.Cleanup(func() { _ = os.Remove(in.Dir() + ".json") })
	x := in.Namespace(in.Node("x"))
	for name, address := range map[string]string{"p": "10.244.1.2", "q": "10.244.1.3"} {
		pod := in.Namespace(in.Node(name))
		must(t, x.Batch([]string{
			"link add " + name + " type veth peer name eth0 netns " + pod.Name, "link set " + name + " up",
			"address replace 10.244.1.1/32 dev " + name, "route add " + address + " dev " + name,
		}))
		must(t, pod.Batch([]string{"link set eth0 up", "address add " + address + "/32 dev eth0", "route add 10.244.1.1 dev eth0", "route add default via 10.244.1.1"}))
		must(t, pod.Sysctl("net/ipv4/ping_group_range", "0 0"))
	}
	must(t, x.Sysctl("net/ipv4/ip_forward", "1"))
	return &disturb.Runner{Instance: in, Tell: t.Logf}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// script writes a program of the cluster's.
func script(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755))
}

// A Service and the pod behind it answer connections from one port, or the check fails.
func TestAgain(t *testing.T) {
	r := kernelsCluster(t)
	c := &topology.Check{From: "p", ToName: "web", To: netip.MustParseAddr("10.96.0.1"), Count: 1}
	o := new(report.Outcome)
	must(t, again(t.Context(), r, c, o))
	if o.Sent != 8 || o.Received != 4 || len(o.Problems) == 0 {
		t.Errorf("where nothing translates the Service's address: %+v", o)
	}
	must(t, r.Namespace(r.Node("x")).Do(func() error {
		return namespace.Pipe("add table ip nat\nadd chain ip nat in { type nat hook prerouting priority -100; }\nadd rule ip nat in ip daddr 10.96.0.1 meta l4proto { tcp, udp } dnat to 10.244.1.3:8080\n", "nft", "-f", "-")
	}))
	o = new(report.Outcome)
	must(t, again(t.Context(), r, c, o))
	if o.Sent != 8 || o.Received != 8 || len(o.Problems) != 0 {
		t.Errorf("where it is translated: %+v", o)
	}
	wantError(t, again(t.Context(), r, &topology.Check{From: "p", ToName: "q"}, o), "to_name", "no Service")
}

// Senders to a pod that is gone are told so, or the check fails.
func TestDead(t *testing.T) {
	r := kernelsCluster(t)
	plugin := filepath.Join(filepath.Dir(r.Culvert), "culvert-cni")
	const result = `echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.244.1.3/32"}]}'` + "\n"
	script(t, filepath.Join(filepath.Dir(plugin), "portmap"), `[ "$CNI_COMMAND" != ADD ] || `+result)
	c := &topology.Check{From: "p", ToName: "q", To: netip.MustParseAddr("10.244.1.3")}
	for _, row := range []struct {
		name, del string
		passes    bool
	}{
		{"told", "ip route replace unreachable 10.244.1.3", true},
		{"not told", "ip route replace blackhole 10.244.1.3", false},
		{"not gone", "true", false},
	} {
		script(t, plugin, `case "$CNI_COMMAND" in DEL) `+row.del+` ;; ADD) ip route replace 10.244.1.3 dev q; `+result+`;; esac`)
		o := new(report.Outcome)
		must(t, dead(t.Context(), r, c, o))
		if passed := len(o.Problems) == 0; passed != row.passes {
			t.Errorf("%s: %+v", row.name, o)
		}
		if len(r.State.Pods["q"]) == 0 {
			t.Errorf("%s: the pod is not back", row.name)
		}
	}
	script(t, plugin, "exit 1")
	wantError(t, dead(t.Context(), r, c, new(report.Outcome)), "CNI DEL")
}

// testProgram stands for e2e.test: of its two tests one passes, and the other does as the file
// beside it says.
const testProgram = `
state=passed
while [ $# -gt 0 ]; do
	case "$1" in
	--ginkgo.dry-run) dry=yes ;;
	--ginkgo.json-report) report=$2; shift ;;
	--ginkgo.focus) focus="$focus|$2"; shift ;;
	esac
	shift
done
[ -n "$dry" ] || state=$(cat "$(dirname "$0")/state")
[ "$focus" != '|nothing' ] || nothing=yes
spec() { printf '{"LeafNodeText": "%s", "LeafNodeType": "It", "State": "%s", "Failure": {"Message": "it does not"}}' "$1" "$2"; }
{
	printf '[{"SpecReports": ['
	case "$focus" in *one*) one=passed ;; *) one=skipped ;; esac
	[ -n "$nothing" ] || { spec one "${dry:+passed}${dry:-$one}" | sed s/passedyes/passed/; printf ,; }
	[ -n "$nothing" ] || spec other "$state"
	printf ']}]'
} >"$report"
`

// All tests of a suite have to pass, and some to be made. Those that passed are not made again
// of the same programs.
func TestSuiteOf(t *testing.T) {
	r := kernelsCluster(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	programs := filepath.Join(cache, "culvert", "cluster", "bin")
	script(t, filepath.Join(programs, "e2e.test"), testProgram)
	script(t, r.Culvert, "")
	script(t, filepath.Join(filepath.Dir(r.Culvert), "culvert-cni"), "")
	run := func(focus, state string) (*report.Outcome, error) {
		must(t, os.WriteFile(filepath.Join(programs, "state"), []byte(state), 0o644))
		o := new(report.Outcome)
		return o, suiteOf(t.Context(), r, &topology.Check{Name: "net", Suite: &topology.Suite{Focus: focus, Workers: 1}}, o)
	}
	for _, row := range []struct{ state, says, fails string }{
		{"failed", "1 passed (0 of them before), 1 failed, 0 skipped", "other: failed: it does not"},
		{"skipped", "1 passed (1 of them before), 0 failed, 1 skipped", ""},
		{"passed", "2 passed (1 of them before), 0 failed, 0 skipped", ""},
		{"failed", "2 passed (2 of them before), 0 failed, 0 skipped", ""}, // it is not made
	} {
		o, err := run("net", row.state)
		if err != nil || strings.Join(o.Detail, "") != row.says || strings.Join(o.Problems, "") != row.fails {
			t.Errorf("%s: %+v, %v", row.state, o, err)
		}
	}
	script(t, r.Culvert, "true # another build")
	if o, err := run("net", "failed"); err != nil || o.Received != 1 || o.Sent != 2 {
		t.Errorf("another build: %+v, %v", o, err)
	}
	if o, err := run("nothing", "passed"); err != nil || strings.Join(o.Problems, "") != "no test was made" {
		t.Errorf("no test: %+v, %v", o, err)
	}
	must(t, os.Remove(filepath.Join(programs, "e2e.test")))
	_, err := run("net", "passed")
	wantError(t, err, "e2e.test")
}
