package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// argsVariable has the test's program run a command line in the place of tests: a process that can
// be killed.
const argsVariable = "CULVERT_TEST_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(argsVariable); args != "" {
		os.Exit(cmdline.Execute(context.Background(), New("v1.2.3"), strings.Split(args, "\n"), os.Stderr))
	}
	os.Exit(m.Run())
}

// The cluster has nodes a and d, and routers b and c between them.
const clusterNetwork = `
nodes:
  - {name: a, api: "SOCKET"}
  - {name: b, sid: "fc00:b::1", locator: "fc00:b::/32"}
  - {name: c, sid: "fc00:c::1", locator: "fc00:c::/32"}
links:
  - {from: a, to: b, capacity: 10Mbit}
  - {from: b, to: d, capacity: 10Mbit}
  - {from: a, to: c, metric: 20, capacity: 10Mbit}
  - {from: c, to: d, metric: 20, capacity: 10Mbit}
  - {from: c, to: gone, capacity: 10Mbit}
engine: {apply: true, every: 1s, hold: 5s, listen: "LISTEN", write: kubernetes, agents: {locator_pool: "fc00::/16"}, lease: {namespace: kube-system, name: te, duration: 3s}}
`

// taker is an agent that takes SRv6Policies from the API, and sends 6 Mbit/s by each policy.
type taker struct {
	*apitest.Agent
	api   *kubeAPI
	since time.Time
}

func (m taker) Policies() ([]agent.PolicyStatus, error) {
	all, err := m.Agent.Policies()
	for i := range all {
		p := &all[i]
		p.Counter.Bytes = uint64(6e6 / 8 * time.Since(m.since).Seconds())
		var others []srpolicy.Candidate
		for name, o := range m.api.policies() {
			var spec kube.PolicySpec
			text, err := json.Marshal(o["spec"])
			if err == nil {
				err = json.Unmarshal(text, &spec)
			}
			if err != nil {
				return nil, err
			}
			if spec.Node == "a" && spec.Color == p.Color && spec.EgressNode == p.Endpoint.String() {
				others = append(others, srpolicy.Candidate{CandidatePath: srpolicy.CandidatePath{
					Name: observed.KubePathName("srv6policy:" + name), Policy: p.Name, Preference: spec.Preference, SegmentLists: spec.SegmentLists}})
			}
		}
		p.Policy, p.Paths = srpolicy.Choose(p.Policy, others, "", func(srpolicy.SegmentList) error { return nil }, nil)
	}
	return all, err
}

// clusterOf is an API server, an agent on a, and the file of a network and the address of an engine's
// state for each of some engines.
func clusterOf(t *testing.T, engines int) (k *kubeAPI, files, listens []string) {
	t.Helper()
	var nodes []overlay.Node
	for _, name := range []string{"a", "d"} {
		nodes = append(nodes, overlay.Complete(overlay.Node{Name: name, Address: netip.MustParseAddr("2001:db8::" + name),
			Locator: netip.MustParsePrefix("fc00:" + name + "::/48"), Prefixes: []netip.Prefix{netip.MustParsePrefix("fd00:" + name + "::/64")}}, false))
	}
	k = newKubeAPI(t, nodes...)
	c, err := config.Parse([]byte(`
encapsulation: {source: "2001:db8::a"}
policies:
  - {name: red, color: 1, endpoint: "2001:db8::d", segment_lists: [{segments: ["fc00:d:0:6::"]}]}
  - {name: blue, color: 2, endpoint: "2001:db8::d", segment_lists: [{segments: ["fc00:d:0:6::"]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "a.sock")
	serve(t, taker{apitest.New(c), k, time.Now()}, socket)
	for range engines {
		file, listen := filepath.Join(t.TempDir(), "network.yaml"), freePort(t)
		if err := os.WriteFile(file, []byte(strings.NewReplacer("SOCKET", socket, "LISTEN", listen).Replace(clusterNetwork)), 0o600); err != nil {
			t.Fatal(err)
		}
		files, listens = append(files, file), append(listens, listen)
	}
	return k, files, listens
}

// process runs an engine that can be killed.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), argsVariable+"="+strings.Join(args, "\n"))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has ended where this fails
		_ = c.Wait()
	})
	return c
}

// Two engines share a Lease: the holder writes SRv6Policies; when it is killed, the other one takes
// over what is there, without a change; while the API server is away all stays as it is.
func TestEnginesShareALease(t *testing.T) {
	t.Parallel()
	k, files, listens := clusterOf(t, 2)
	args := func(i int) []string {
		return []string{"te", "run", files[i], "--topology", "kubernetes", "--kubeconfig", k.kubeconfig()}
	}
	first := process(t, args(0)...)
	waitForState(t, listens[0], func(s loop.State) bool { return s.Lease != nil && s.Lease.Held && s.Counts.Changes > 0 })
	process(t, args(1)...)
	waitForState(t, listens[1], func(s loop.State) bool {
		return s.Lease != nil && !s.Lease.Held && s.Lease.Holder != "" && s.Plan != nil && len(s.Unknown) == 0
	})
	if metrics := get(t, listens[1], "/metrics"); !strings.Contains(metrics, "culvert_te_lease_held 0\n") {
		t.Errorf("metrics do not say that it has no lease")
	}
	if r := command(t.Context(), "", "te", "status", "--engine", listens[1]); !strings.Contains(r.stdout, "does not hold the lease") || !strings.Contains(r.stdout, " holds lease kube-system/te") {
		t.Errorf("status: %s%s", r.stdout, r.stderr)
	}
	before := k.policies()
	if len(before) == 0 {
		t.Fatal("there are no SRv6Policies")
	}
	for name, o := range before {
		spec := o["spec"].(map[string]any)
		if !strings.HasPrefix(name, "a.te-") || spec["node"] != "a" || spec["egressNode"] != "2001:db8::d" || spec["preference"] != 150.0 || !strings.Contains(fmt.Sprint(spec["segmentLists"]), "fc00:c::1 fc00:d:0:6::") {
			t.Errorf("%s: %v", name, o)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	waitForState(t, listens[1], func(s loop.State) bool {
		return s.Lease.Held && s.At.After(s.Lease.Since.Add(2*time.Second)) && s.Problem == ""
	})
	t.Logf("the other engine had done rounds with the lease %s after the first was killed", time.Since(killed).Round(time.Second))
	if after := k.policies(); !reflect.DeepEqual(before, after) {
		t.Errorf("objects have changed:\n%v\n%v", before, after)
	}
	k.away.Store(true)
	waitForState(t, listens[1], func(s loop.State) bool {
		return !s.Lease.Held && s.Lease.Problem != "" && len(s.LeftOut) > 1 && s.Plan != nil
	})
	if r := command(t.Context(), "", "te", "status", "--engine", listens[1]); !strings.Contains(r.stdout, "lease kube-system/te is not held: ") || !strings.Contains(r.stdout, "news of Kubernetes is left out: nodes are those of ") {
		t.Errorf("status: %s%s", r.stdout, r.stderr)
	}
	k.away.Store(false)
	waitForState(t, listens[1], func(s loop.State) bool { return s.Lease.Held && s.Problem == "" })
	if after := k.policies(); !reflect.DeepEqual(before, after) {
		t.Errorf("objects have changed:\n%v\n%v", before, after)
	}
}

// With engine.repair there is an object for each repair list, and without it no more.
func TestRepairByKubernetes(t *testing.T) {
	t.Parallel()
	k, files, listens := clusterOf(t, 1)
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(engine string) {
		t.Helper()
		if err := os.WriteFile(files[0]+".new", []byte(strings.Replace(string(text), "engine: {", "engine: {"+engine, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(files[0]+".new", files[0]); err != nil {
			t.Fatal(err)
		}
	}
	ready := func() (specs []map[string]any) {
		for name, o := range k.policies() {
			if strings.HasSuffix(name, "-repair") {
				specs = append(specs, o["spec"].(map[string]any))
			}
		}
		return specs
	}
	write("repair: true, ")
	go command(t.Context(), "", "te", "run", files[0], "--topology", "kubernetes", "--kubeconfig", k.kubeconfig())
	waitForState(t, listens[0], func(s loop.State) bool { return s.Counts.Changes > 0 })
	wait(t, "there are repair lists", func() bool { return len(ready()) > 0 })
	for _, spec := range ready() {
		if spec["node"] != "a" || spec["egressNode"] != "2001:db8::d" || spec["preference"] != 149.0 && spec["preference"] != 99.0 {
			t.Errorf("%v", spec)
		}
	}
	write("")
	wait(t, "they are gone", func() bool { return len(ready()) == 0 })
	if len(k.policies()) == 0 {
		t.Error("the paths that packets take are gone, too")
	}
}

// An engine's object that somebody else changes, or an object in its place, is not fought over.
func TestEngineDoesNotFight(t *testing.T) {
	t.Parallel()
	k, files, listens := clusterOf(t, 1)
	ended := make(chan result, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go func() {
		ended <- command(ctx, "", "te", "run", files[0], "--topology", "kubernetes", "--kubeconfig", k.kubeconfig())
	}()
	waitForState(t, listens[0], func(s loop.State) bool { return s.Counts.Changes > 0 })
	k.mu.Lock()
	for _, o := range k.objects {
		if o["kind"] == "SRv6Policy" { // an operator's kubectl edit
			o["spec"].(map[string]any)["segmentLists"] = []any{map[string]any{"weight": 1, "segments": []any{"fc00:d:0:6::"}}}
			k.version++
			o["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(k.version)
		}
	}
	writes := k.writes
	k.mu.Unlock()
	waitForState(t, listens[0], func(s loop.State) bool { return strings.Contains(s.Problem, "another engine writes") })
	k.mu.Lock()
	if k.writes != writes {
		t.Errorf("%d writes against it", k.writes-writes)
	}
	k.mu.Unlock()
	end()
	if r := <-ended; r.code != cmdline.ExitOK {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	for range 2 { // the second time 0 are left
		want := fmt.Sprintf("%d SRv6Policies of engine te deleted", len(k.policies()))
		if r := command(t.Context(), "", "te", "withdraw", files[0], "--topology", "kubernetes", "--kubeconfig", k.kubeconfig()); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, want) {
			t.Errorf("withdraw: exit %d: %s%s, want %q", r.code, r.stdout, r.stderr, want)
		}
	}
}

// Nodes that the IGP knows have its links, and others those of the file.
func TestClusterTopology(t *testing.T) {
	t.Parallel()
	k, files, _ := clusterOf(t, 1)
	in := func(args string) result {
		return command(t.Context(), "", strings.Fields(strings.NewReplacer("FILE", files[0], "CONFIG", k.kubeconfig()).Replace(args))...)
	}
	r := in("te show FILE --topology kubernetes --kubeconfig CONFIG -o json")
	var links []struct{ Link string }
	if err := json.Unmarshal([]byte(r.stdout), &links); err != nil || len(links) != 8 || !strings.Contains(r.stderr, "link c to gone without a name is left out") {
		t.Errorf("exit %d: %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	frr := filepath.Join(t.TempDir(), "frr.json")
	database := `{"ted":{"vertices":[{"vertex-id":1,"name":"b","status":"Sync","router-id-v6":"2001:db8::b"},{"vertex-id":2,"name":"d","status":"Sync","router-id-v6":"2001:db8::d"}],"edges":[]}}`
	if err := os.WriteFile(frr, []byte(database), 0o600); err != nil {
		t.Fatal(err)
	}
	r = in("te show FILE --topology kubernetes,frr:" + frr + " --kubeconfig CONFIG -o json")
	if err := json.Unmarshal([]byte(r.stdout), &links); err != nil || len(links) != 4 || !strings.Contains(r.stderr, "link b to d without a name is left out: the running network does not have it") {
		t.Errorf("a is outside, and d is not: exit %d: %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	nodes := &engineCluster{read: time.Now(), members: []overlay.Node{{Name: "a"}}, kubeconfig: k.kubeconfig()}
	all, err := nodes.writers(netfile.Engine{Name: "te", Write: netfile.WriteKubernetes}, map[string]headend.Headend{"a": remote{}, "r1": remote{}})
	_, a := all["a"].(byKubernetes)
	if _, r1 := all["r1"].(remote); err != nil || !a || !r1 {
		t.Errorf("a is of the cluster, and r1 is not: %+v, %v", all, err)
	}
	for args, want := range map[string]string{
		"te run FILE --topology kubernetes --kubeconfig CONFIG --lease nonsense": `"nonsense" is no lease: give NAMESPACE/NAME`,
		"te show FILE --topology vtysh --topology frr:x":                         "links come from one source",
		"te show FILE --topology kubernetes --kubeconfig none.conf":              "none.conf",
		"te show FILE": `no node is called "d"`,
	} {
		if r := in(args); r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s, want %q", args, r.code, r.stderr, want)
		}
	}
	k.mu.Lock()
	k.unclaimed = "d"
	k.mu.Unlock()
	refused := "node d is left out: what it publishes cannot be used: locator fc00:d::/48 is not claimed by the node"
	if r := in("te show FILE --topology kubernetes --kubeconfig CONFIG"); !strings.Contains(r.stderr, refused) || strings.Contains(r.stdout, "fc00:d") {
		t.Errorf("nobody vouches for d: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	k.away.Store(true)
	if r := in("te show FILE --topology kubernetes --kubeconfig CONFIG"); r.code == cmdline.ExitOK || !strings.Contains(r.stderr, "nodes of Kubernetes: ") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}
