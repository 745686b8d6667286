package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apiserve"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/printer"
)

var update = flag.Bool("update", false, "write the golden files from what is printed now")

// daemon is a server with an agent that has no data path.
type fixture struct {
	*apitest.Agent
	socket string
}

func start(t *testing.T, example string) fixture {
	t.Helper()
	c, err := config.Load(filepath.Join("../../examples", example))
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{apitest.New(c), filepath.Join(t.TempDir(), "c.sock")}
	serve(t, f.Agent, f.socket)
	return f
}

// serve answers for an agent on a socket until the test ends.
func serve(t *testing.T, service agent.Service, socket string) {
	t.Helper()
	findings := func(context.Context, api.Examination) ([]api.Finding, error) {
		return []api.Finding{
			{Name: "bpffs", Level: "ok", Detail: "mounted"},
			{Name: "core0: MTU headroom", Level: "warn", Detail: "MTU 1500", Fix: "ip link set dev core0 mtu 1740", Command: []string{"ip", "link", "set", "dev", "core0", "mtu", "1740"}},
			{Name: "kernel version", Level: "fail", Detail: "5.10", Fix: "use Linux 6.6 or newer"},
		}, nil
	}
	apiserve.Serve(t, config.API{Socket: socket}, api.NewHandler(service, findings))
}

// result is what a command line did.
type result struct {
	code           int
	stdout, stderr string
}

// command runs a command line as main does, two days after the agent's start.
func command(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	root := newRoot(&app{version: "v1.2.3", format: printer.Table, now: func() time.Time { return apitest.Started.Add(50 * time.Hour) }})
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	code := cmdline.Execute(ctx, root, args, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func (f fixture) run(t *testing.T, args ...string) result {
	t.Helper()
	return command(t.Context(), "", append([]string{"--socket", f.socket}, args...)...)
}

// ok runs what has to succeed.
func (f fixture) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := f.run(t, args...)
	if r.code != cmdline.ExitOK || r.stderr != "" {
		t.Fatalf("culvert %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// degraded runs what shows that something is not as it should be.
func (f fixture) degraded(t *testing.T, args ...string) string {
	t.Helper()
	r := f.run(t, args...)
	if r.code != cmdline.ExitCheckFailed || r.stderr != "culvert: not as they should be: 1 of these\n" {
		t.Fatalf("culvert %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update writes it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// Help is what people read: it changes on purpose only.
func TestHelp(t *testing.T) {
	var all strings.Builder
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return // cobra's own
		}
		if c.DisableFlagParsing {
			return // culvert-lab's
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		r := command(t.Context(), "", args...)
		if r.code != cmdline.ExitOK {
			t.Errorf("%v: exit %d: %s", args, r.code, r.stderr)
		}
		all.WriteString("$ culvert " + strings.Join(args, " ") + "\n" + r.stdout + "\n")
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(New("v1.2.3"))
	golden(t, "help", all.String())
}

func TestTables(t *testing.T) {
	for _, example := range []string{"gateway-a.yaml", "gtpu.yaml", "edge.yaml"} {
		f := start(t, example)
		var all strings.Builder
		for _, args := range []string{
			"status", "interface", "locator list", "sid", "policy", "steering", "tunnel", "adjacency",
			"counters", "drops", "drops --all", "version", "config",
		} {
			out := f.ok(t, strings.Fields(args)...)
			if args == "version" {
				out = regexp.MustCompile(`go[0-9.]+\S*\s.*`).ReplaceAllString(out, "GO SYSTEM")
			}
			all.WriteString("$ culvert " + args + "\n" + out + "\n")
		}
		golden(t, strings.TrimSuffix(example, ".yaml"), all.String())
	}
}

func TestHeadend(t *testing.T) {
	f := start(t, "headend.yaml")
	var all strings.Builder
	for _, args := range []string{
		"policy", "policy show gold", "candidate-path", "candidate-path show gold-south -o json", "bgp", "bgp show 2001:db8::9 -o json", "config",
	} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "headend", all.String())
	if r := start(t, "edge.yaml").run(t, "bgp"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "speaks no BGP") {
		t.Errorf("a node without BGP: exit %d, %s", r.code, r.stderr)
	}
}

func TestAnnouncements(t *testing.T) {
	f := start(t, "../internal/cli/testdata/announce.yaml")
	var all strings.Builder
	for _, args := range []string{"announcement", "announcement show 10.45.0.0/16", "announcement list -o json", "config"} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "announce", all.String())
	if r := start(t, "edge.yaml").run(t, "announcement"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "announces no UE prefixes") {
		t.Errorf("a node that announces nothing: exit %d, %s", r.code, r.stderr)
	}
}

func TestNAT(t *testing.T) {
	f := start(t, "../internal/cli/testdata/nat.yaml")
	var all strings.Builder
	for _, args := range []string{"nat", "nat show 10.45.0.2", "nat show 192.0.2.64:3040 -o json", "config"} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "nat", all.String())
	if r := start(t, "edge.yaml").run(t, "nat"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "no UE pool has a NAT") {
		t.Errorf("a node without NAT: exit %d, %s", r.code, r.stderr)
	}
}

func TestOverlay(t *testing.T) {
	f := start(t, "overlay.yaml")
	var all strings.Builder
	all.WriteString("$ culvert status\n" + f.degraded(t, "status") + "\n")
	for _, args := range []string{"node", "node list -o json", "node show node-2", "config"} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "overlay", all.String())
	if r := start(t, "edge.yaml").run(t, "node"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "in no cluster") {
		t.Errorf("a node of no cluster: exit %d, %s", r.code, r.stderr)
	}
}

func TestSpread(t *testing.T) {
	f := start(t, "../internal/cli/testdata/spread.yaml")
	var all strings.Builder
	for _, args := range []string{"status", "status -o json"} {
		all.WriteString("$ culvert " + args + "\n" + f.degraded(t, strings.Fields(args)...) + "\n")
	}
	all.WriteString("$ culvert config\n" + f.ok(t, "config") + "\n")
	f = start(t, "../internal/cli/testdata/spread-card.yaml")
	all.WriteString("$ culvert status\n" + f.ok(t, "status") + "\n")
	golden(t, "spread", all.String())
}

// An interface that is down or has no carrier is attached, and not as it should be.
func TestLinks(t *testing.T) {
	f := start(t, "upf.yaml")
	f.Links = map[string]netdev.LinkState{"n3": netdev.LinkDown, "n6": netdev.LinkNoCarrier}
	r := f.run(t, "status")
	if r.code != cmdline.ExitCheckFailed || r.stderr != "culvert: not as they should be: 3 of these\n" { // with the journal
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
	table := f.ok(t, "interface")
	for _, row := range []string{"n3 2 down native", "n9 3 up native", "n6 4 no_carrier native"} {
		for _, out := range []string{r.stdout, table} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), row) {
				t.Errorf("no row %q in\n%s", row, out)
			}
		}
	}
	for name, want := range map[string]string{"n3": "down", "n9": "up", "n6": "no_carrier"} {
		if out := f.ok(t, "interface", "show", name, "-o", "json"); !strings.Contains(out, `"link": "`+want+`"`) {
			t.Errorf("%s: %s", name, out)
		}
	}
	list, err := f.Agent.Status()
	if got := faults(&list); err != nil || len(got) != 3 || got[0] != "n3 is down" || got[1] != "n6 has no carrier" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestShow(t *testing.T) {
	f := start(t, "edge.yaml")
	var all strings.Builder
	for _, args := range []string{
		"sid show 2001:db8:101:2::/64", "policy show gold", "steering show customer0.7", "interface show core0",
		"locator show main", "adjacency show 2001:db8:12::2", "sid show 2001:db8:101:2::/64 -o json",
	} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "show", all.String())
}

// What JSON says, YAML says too; numbers stay numbers, and whole.
func TestFormats(t *testing.T) {
	f := start(t, "edge.yaml")
	for _, args := range []string{
		"status", "interface", "locator", "sid", "policy", "steering", "tunnel", "adjacency", "counters", "drops", "version", "config",
	} {
		var fromJSON, fromYAML any
		text := f.ok(t, strings.Fields(args+" -o json")...)
		if err := json.Unmarshal([]byte(text), &fromJSON); err != nil {
			t.Errorf("%s -o json: %v in %s", args, err, text)
		}
		converted, err := yaml.YAMLToJSON([]byte(f.ok(t, strings.Fields(args+" --output yaml")...)))
		if err == nil {
			err = json.Unmarshal(converted, &fromYAML)
		}
		if err != nil {
			t.Errorf("%s -o yaml: %v", args, err)
		}
		a, _ := json.Marshal(fromJSON)
		b, _ := json.Marshal(fromYAML)
		if string(a) != string(b) {
			t.Errorf("%s:\njson %s\nyaml %s", args, a, b)
		}
	}
	var outcomes struct {
		Outcomes []agent.Outcome
		Injected uint64
	}
	if err := json.Unmarshal([]byte(f.ok(t, "counters", "-o", "json")), &outcomes); err != nil {
		t.Fatal(err)
	}
	if want := (agent.Counter{Packets: 1 << 60, Bytes: 1<<63 + 1}); outcomes.Outcomes[0].Counter != want {
		t.Errorf("outcome %+v, want %+v", outcomes.Outcomes[0], want)
	}
	if outcomes.Injected != 5 {
		t.Errorf("%d frames injected, want 5", outcomes.Injected)
	}
	if got := strings.TrimSpace(f.ok(t, "tunnel", "-o", "json")); got != "[]" {
		t.Errorf("no tunnels: %s", got)
	}
}

// The configuration that is printed is one that is taken.
func TestConfigIsTaken(t *testing.T) {
	for _, example := range []string{"gateway-a.yaml", "gateway-b.yaml", "gtpu.yaml", "edge.yaml"} {
		f := start(t, example)
		r := command(t.Context(), f.ok(t, "config"), "check", "--offline", "-")
		if r.code != cmdline.ExitOK || r.stdout != "-: ok\n" {
			t.Errorf("%s: %+v", example, r)
		}
	}
}

func TestVersionAndSchema(t *testing.T) {
	if r := command(t.Context(), "", "version"); r.code != cmdline.ExitOK || !strings.HasPrefix(r.stdout, "culvert  v1.2.3  go1.") {
		t.Errorf("%+v", r)
	}
	r := command(t.Context(), "", "schema")
	var schema struct{ Title string }
	if err := json.Unmarshal([]byte(r.stdout), &schema); err != nil || schema.Title != "Culvert configuration" {
		t.Errorf("%v, %v", schema, err)
	}
}

func TestCompletion(t *testing.T) {
	f := start(t, "edge.yaml")
	for _, c := range []struct{ args, want string }{
		{"sid show ", "2001:db8:101:2::/64"},
		{"sid delete ", "2001:db8:101:d46::/64"},
		{"policy show ", "gold"},
		{"steering delete ", "customer0.7"},
		{"sid add --behavior ", "End.M.GTP4.E"},
		{"sid list -o ", "yaml"},
		{"delete ", "tunnel"},
		{"session show ", ":4"}, // no names of files
		{"trace ", ":4"},
	} {
		args := append([]string{"__complete", "--socket", f.socket}, strings.Split(c.args, " ")...)
		r := command(t.Context(), "", args...)
		if r.code != cmdline.ExitOK || !strings.Contains(r.stdout, c.want+"\n") {
			t.Errorf("%q: %q is not among %q", c.args, c.want, r.stdout)
		}
	}
	if r := command(t.Context(), "", "__complete", "--socket", f.socket, "policy", "show", "gold", ""); strings.Contains(r.stdout, "wire") {
		t.Errorf("a second key is offered: %q", r.stdout)
	}
	if r := command(t.Context(), "", "completion", "bash"); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "__start_culvert") {
		t.Errorf("bash: %d", r.code)
	}
}
