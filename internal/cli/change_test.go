package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// fragment is what a configuration file would say.
func fragment(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c.SetDefaults()
	return c
}

// Whatever flags add is what the file would say in other words.
func TestAdd(t *testing.T) {
	for _, c := range []struct{ args, same string }{
		{"sid add 2001:db8:101:77::/64 --behavior end_dt46 --table 0x64", "sids: [{sid: '2001:db8:101:77::/64', behavior: End.DT46, table: 100}]"},
		{"sid add 2001:db8:101:77::1 --behavior End.X --flavors psp,USD --next-hop fe80::1 --interface core0 --allow-upper-layer",
			"sids: [{sid: '2001:db8:101:77::1', behavior: End.X, flavors: [PSP, USD], next_hop: 'fe80::1', interface: core0, allow_upper_layer: true}]"},
		{"sid add 2001:db8:101:77::/64 --behavior End.M.GTP6.D --policy gold --source 2001:db8:1::1 --pdu-type ipv4 --args-offset 80",
			"sids: [{sid: '2001:db8:101:77::/64', behavior: End.M.GTP6.D, policy: gold, source: '2001:db8:1::1', pdu_type: ipv4, args_offset: 80}]"},
		{"policy add p --segments 2001:db8:5::,2001:db8:6:: --weight 3 --segments 2001:db8:7:: --weight 1 --color 7 --endpoint 2001:db8:8::1",
			"policies: [{name: p, color: 7, endpoint: '2001:db8:8::1', segment_lists: [{weight: 3, segments: ['2001:db8:5::', '2001:db8:6::']}, {weight: 1, segments: ['2001:db8:7::']}]}]"},
		{"policy add p --segments 2001:db8:5:: --behavior H.Encaps --binding-sid 2001:db8:101:b::", "policies: [{name: p, behavior: H.Encaps, binding_sid: '2001:db8:101:b::', segment_lists: [{segments: ['2001:db8:5::']}]}]"},
		{"steering add 198.51.100.0/24 --policy gold", "steering: [{prefix: 198.51.100.0/24, policy: gold}]"},
		{"steering add 198.51.100.7 --policy gold", "steering: [{prefix: 198.51.100.7/32, policy: gold}]"},
		{"steering add 198.51.100.0/24 --interface customer0 --policy gold", "steering: [{prefix: 198.51.100.0/24, interface: customer0, policy: gold}]"},
		{"class add voice --color 100 --dscp 46,0x2c --priority 10 --strict --interfaces customer0 --destinations 10.0.0.0/8,2001:db8:9::/48",
			"traffic_classes: [{name: voice, color: 100, strict: true, priority: 10, match: {interfaces: [customer0], dscp: [46, 44], destinations: [10.0.0.0/8, '2001:db8:9::/48']}}]"},
		{"steering add --interface customer0 --vlans 5,6 --policy wire", "steering: [{interface: customer0, vlans: [5, 6], policy: wire}]"},
		{"steering add 198.51.100.0/24 --sid-prefix 2001:db8:b:400::/56 --source-prefix 2001:db8:a:4000::/64 --pdu-type ipv4v6 --policy gold",
			"steering: [{prefix: 198.51.100.0/24, h_m_gtp4_d: {sid_prefix: '2001:db8:b:400::/56', source_prefix: '2001:db8:a:4000::/64', pdu_type: ipv4v6, policy: gold}}]"},
		{"slice add factory --sst 1 --sd 000002 --network-instance internet --uplink 1000 --ue-to-ue route",
			"slices: [{name: factory, snssai: {sst: 1, sd: '000002'}, network_instance: internet, rate_limit: {uplink: 1000}, ue_to_ue: route}]"},
		{"slice add far --sst 2 --transport srv6 --uplink-sid 2001:db8:2:d46::1 --local-sid 2001:db8:1:d47::/64",
			"slices: [{name: far, snssai: {sst: 2}, n9: {transport: srv6, mode: traditional, uplink: '2001:db8:2:d46::1', local_sid: '2001:db8:1:d47::/64'}}]"},
		{"tunnel add t --remote 192.0.2.100 --remote-teid 0x2001 --source 192.0.2.1 --qfi 9 --pdu-session-container downlink",
			"tunnels: [{name: t, remote: 192.0.2.100, remote_teid: 0x2001, source: 192.0.2.1, qfi: 9, pdu_session_container: downlink}]"},
		{"interface add eth7 --mode generic --roles edge", "interfaces: [{name: eth7, mode: generic, roles: [edge]}]"},
		{"locator add l --prefix 2001:db8:500::/48 --function-bits 8", "locators: [{name: l, prefix: '2001:db8:500::/48', function_bits: 8}]"},
	} {
		t.Run(c.args, func(t *testing.T) {
			example := "edge.yaml"
			if strings.HasPrefix(c.args, "slice") {
				example = "upf.yaml"
			}
			f := start(t, example)
			before := f.Running()
			out := f.ok(t, strings.Fields(c.args)...)
			if !strings.HasPrefix(out, "add ") || strings.Count(out, "\n") != 1 {
				t.Errorf("printed %q", out)
			}
			got, want := f.Running(), fragment(t, c.same)
			if !reflect.DeepEqual(tail(got, before), tail(want, &config.Config{})) {
				t.Errorf("added %+v\nwant  %+v", tail(got, before), tail(want, &config.Config{}))
			}
		})
	}
}

// tail is what c has behind what before has.
func tail(c, before *config.Config) config.Config {
	out := config.Config{}
	out.Interfaces = append(out.Interfaces, c.Interfaces[len(before.Interfaces):]...)
	out.Locators = append(out.Locators, c.Locators[len(before.Locators):]...)
	out.SIDs = append(out.SIDs, c.SIDs[len(before.SIDs):]...)
	out.Policies = append(out.Policies, c.Policies[len(before.Policies):]...)
	out.Steering = append(out.Steering, c.Steering[len(before.Steering):]...)
	out.TrafficClasses = append(out.TrafficClasses, c.TrafficClasses[len(before.TrafficClasses):]...)
	out.Tunnels = append(out.Tunnels, c.Tunnels[len(before.Tunnels):]...)
	out.Slices = append(out.Slices, c.Slices[len(before.Slices):]...)
	return out
}

// Every field of a resource can be given as a flag.
func TestFlagsAreComplete(t *testing.T) {
	root := New("v1.2.3")
	for noun, typ := range map[string]reflect.Type{
		"interface": reflect.TypeFor[config.Interface](), "locator": reflect.TypeFor[config.Locator](),
		"sid": reflect.TypeOf(config.Config{}.SIDs).Elem(), "policy": reflect.TypeOf(config.Config{}.Policies).Elem(),
		"steering": reflect.TypeOf(config.Config{}.Steering).Elem(), "tunnel": reflect.TypeOf(config.Config{}.Tunnels).Elem(),
	} {
		c, _, err := root.Find([]string{noun, "add"})
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch noun + "." + name {
			case "interface.name", "locator.name", "sid.sid", "policy.name", "tunnel.name", "steering.prefix":
				continue // the argument
			case "policy.-", "sid.-":
				continue // state, and no field
			case "policy.":
				continue // embedded, and its fields follow
			case "policy.segment_lists": // --segments and --weight
				name = "segments"
			case "steering.h_m_gtp4_d": // its own fields
				name = "sid_prefix"
			}
			if flag := strings.ReplaceAll(name, "_", "-"); c.Flags().Lookup(flag) == nil {
				t.Errorf("culvert %s add has no --%s", noun, flag)
			}
		}
	}
}

func TestAddFile(t *testing.T) {
	const text = "policies: [{name: p, segment_lists: [{segments: ['2001:db8:5::']}]}]\nsteering: [{prefix: 198.51.100.0/24, policy: p}]\n"
	for _, args := range [][]string{{"policy", "add", "-f"}, {"add"}} {
		f := start(t, "edge.yaml")
		out := f.ok(t, append(args, file(t, text))...)
		if out != "add policy p\nadd steering 198.51.100.0/24\n" {
			t.Errorf("%v: %q", args, out)
		}
		r := command(t.Context(), "gtpu: {adresses: []}", append([]string{"--socket", f.socket}, append(args, "-")...)...)
		if r.code != cmdline.ExitError || !strings.Contains(r.stderr, `did you mean "addresses"?`) {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestDelete(t *testing.T) {
	f := start(t, "edge.yaml")
	f.ok(t, "policy", "add", "p", "--segments", "2001:db8:5::")
	f.ok(t, "policy", "add", "q", "--segments", "2001:db8:5::")
	f.ok(t, "sid", "add", "2001:db8:101:77::/64", "--behavior", "End")
	if r := f.run(t, "policy", "delete", "p", "none"); r.code != cmdline.ExitError || r.stderr != "culvert: not found: there is no policy none\n" {
		t.Errorf("%+v", r)
	}
	if out := f.ok(t, "policy", "delete", "p", "q"); out != "delete policy p\ndelete policy q\n" {
		t.Errorf("%q", out)
	}
	if out := f.ok(t, "delete", "sid", "2001:db8:101:77::1/64"); out != "delete sid 2001:db8:101:77::/64\n" {
		t.Errorf("%q", out)
	}
	if r := f.run(t, "policy", "delete", "gold"); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "is in the configuration file") {
		t.Errorf("%+v", r)
	}
}

func TestApply(t *testing.T) {
	f := start(t, "edge.yaml")
	text, err := os.ReadFile("../../examples/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, strings.Replace(string(text), "2001:db8:101:1::/64", "2001:db8:101:9::/64", 1))
	before := f.Running()
	const changes = "add sid 2001:db8:101:9::/64: End\ndelete sid 2001:db8:101:1::/64\n"
	if out := f.ok(t, "apply", "--dry-run", path); out != changes || !reflect.DeepEqual(f.Running(), before) {
		t.Errorf("dry run: %q", out)
	}
	if out := f.ok(t, "apply", path); out != changes {
		t.Errorf("apply: %q", out)
	}
	if out := f.ok(t, "apply", path); out != "nothing changes\n" {
		t.Errorf("apply again: %q", out)
	}
	if out := f.ok(t, "apply", path, "-o", "json"); out != "[]\n" {
		t.Errorf("apply again, JSON: %q", out)
	}
}

func TestVersion(t *testing.T) {
	command, flag := command(t.Context(), "", "version"), command(t.Context(), "", "--version")
	if flag != command || !strings.HasPrefix(flag.stdout, "culvert  v1.2.3  go") {
		t.Errorf("--version %+v, version %+v", flag, command)
	}
	if r := start(t, "edge.yaml").ok(t, "help", "sid", "list"); !strings.Contains(r, "culvert sid list [flags]") || !strings.Contains(r, "help for list") {
		t.Errorf("help sid list: %s", r)
	}
}

// Without --socket the daemon is asked where its file says, if nothing is at the default socket.
func TestApplySocket(t *testing.T) {
	f, missing := start(t, "edge.yaml"), filepath.Join(t.TempDir(), "none.sock")
	other := &config.Config{API: config.API{Socket: "/run/other.sock"}}
	for usual, want := range map[string]string{f.socket: f.socket, missing: "/run/other.sock"} {
		if got := socketOf(usual, other); got != want {
			t.Errorf("%s: %s is asked, want %s", usual, got, want)
		}
	}
	if r := f.run(t, "--socket", missing, "apply", file(t, "api: {socket: "+f.socket+"}\n")); r.code != cmdline.ExitError || !strings.Contains(r.stderr, missing) {
		t.Errorf("another socket than --socket is asked: %+v", r)
	}
}

// A file that is refused by the daemon, since it does not go with what was
// added, is refused by line.
func TestApplyConflict(t *testing.T) {
	f := start(t, "edge.yaml")
	f.ok(t, "sid", "add", "2001:db8:101:77::/64", "--behavior", "End")
	text, err := os.ReadFile("../../examples/edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, strings.Replace(string(text), "2001:db8:101:1::/64", "2001:db8:101:77::/64", 1))
	before := f.Running()
	r := f.run(t, "apply", path)
	if r.code != cmdline.ExitError || !strings.Contains(r.stderr, "overlaps SID 2001:db8:101:77::/64") || !strings.Contains(r.stderr, path+":") {
		t.Errorf("%+v", r)
	}
	if !reflect.DeepEqual(f.Running(), before) {
		t.Error("what was refused has changed something")
	}
}

func TestCheck(t *testing.T) {
	good, bad := file(t, "sids: [{sid: '2001:db8::1', behavior: End}]\n"), file(t, "sids:\n  - sid: 2001:db8::1\n    behavior: End.T\n    tabel: 7\nlog: {level: loud}\n")
	if r := command(t.Context(), "", "check", good); r != (result{cmdline.ExitOK, good + ": ok\n", ""}) {
		t.Errorf("%+v", r)
	}
	r := command(t.Context(), "", "check", bad)
	want := "culvert: " + bad + " is not taken:\n  " + bad + ":4: sids[0].tabel: unknown field (fix: did you mean \"table\"?)\n" +
		"  " + bad + ":5: log.level: \"loud\" is not known (fix: one of: debug, error, info, warn)\n"
	if r != (result{cmdline.ExitCheckFailed, "", want}) {
		t.Errorf("%+v\nwant %s", r, want)
	}
	r = command(t.Context(), "", "check", "-o", "json", bad)
	if r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stdout, `"line": 4`) || !strings.Contains(r.stdout, `"field": "sids[0].tabel"`) {
		t.Errorf("%+v", r)
	}
	many := file(t, "sids:"+strings.Repeat("\n  - {sid: '2001:db8::/64', behavior: End}", 60_000))
	r = command(t.Context(), "", "check", "--offline", many)
	if n := strings.Count(r.stderr, "\n"); n != 52 || !strings.Contains(r.stderr, "and 59949 more") {
		t.Errorf("60,000 equal SIDs: %d lines: %.300s", n, r.stderr)
	}
	empty := file(t, "# nothing yet\n")
	if r := command(t.Context(), "", "check", empty); r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stderr, ":1: the file is empty") {
		t.Errorf("an empty file: %+v", r)
	}
	both := file(t, "interfaces:\n  - {name: nowhere9, roles: [n6]}\nlog: {lvel: info}\n")
	if r := command(t.Context(), "", "check", both); !strings.Contains(r.stderr, ":2: interfaces[0].name") || !strings.Contains(r.stderr, ":3: log.lvel") {
		t.Errorf("a mistake, and a missing interface: %+v", r)
	}
	missing := file(t, "interfaces:\n  - {name: nowhere9, roles: [n6]}\n")
	if r := command(t.Context(), "", "check", missing); r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stderr, ":2: interfaces[0].name") {
		t.Errorf("missing interface: %+v", r)
	}
	if r := command(t.Context(), "", "check", "--offline", missing); r.code != cmdline.ExitOK {
		t.Errorf("missing interface, offline: %+v", r)
	}
	if r := command(t.Context(), "", "check", filepath.Join(t.TempDir(), "none")); r.code != cmdline.ExitError || !strings.Contains(r.stderr, "cannot read") {
		t.Errorf("no file: %+v", r)
	}
}

// One clear line, and the exit code that says what sort of failure it is.
func TestFailures(t *testing.T) {
	f := start(t, "edge.yaml")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"sidd", `unknown command "sidd" for "culvert": did you mean "sid"?`, cmdline.ExitUsage},
		{"nosuch", `unknown command "nosuch" for "culvert": see culvert --help`, cmdline.ExitUsage},
		{"help nosuch", `unknown command "nosuch" for "culvert": see culvert --help`, cmdline.ExitUsage},
		{"help sid lst", `unknown command "lst" for "culvert sid": did you mean "list"?`, cmdline.ExitUsage},
		{"sid lst", `unknown command "lst" for "culvert sid": did you mean "list"?`, cmdline.ExitUsage},
		{"cni instal", `unknown command "instal" for "culvert cni": did you mean "install"?`, cmdline.ExitUsage},
		{"connectivity tset", `unknown command "tset" for "culvert connectivity": did you mean "test"?`, cmdline.ExitUsage},
		{"sid --colour", "unknown flag: --colour", cmdline.ExitUsage},
		{"sid -o xml", "give one of table, json, yaml", cmdline.ExitUsage},
		{"sid show", `"culvert sid show" takes one PREFIX, got 0 arguments`, cmdline.ExitUsage},
		{"sid delete", "takes one PREFIX or more", cmdline.ExitUsage},
		{"slice add far --transport srv6 --uplink-sid fc00::x", `--uplink-sid: "fc00::x" is not an IP address`, cmdline.ExitUsage},
		{"slice add far --sst 300", "--sst: 300 is out of range", cmdline.ExitUsage},
		{"sid add", "takes one PREFIX", cmdline.ExitUsage},
		{"sid add 2001:db8::/64 --table main", `--table: must be a number, is the text "main"`, cmdline.ExitUsage},
		{"sid add 2001:db8::/64 --behavior Emd", `--behavior: "Emd"`, cmdline.ExitUsage},
		{"sid add 2001:db8::x --behavior End", `PREFIX: "2001:db8::x" is not a prefix`, cmdline.ExitUsage},
		{"sid add 2001:db8:101:77::/64 --behavior End.T", "table of sid 2001:db8:101:77::/64: is missing: End.T needs it", cmdline.ExitError},
		{"sid add -f x --table 7", "--table does not go with -f", cmdline.ExitUsage},
		{"sid add -f x 2001:db8::/64", "takes no arguments", cmdline.ExitUsage},
		{"policy add p", "--segments is missing", cmdline.ExitUsage},
		{"policy add p --segments 2001:db8:: --segments 2001:db8:: --weight 1", "given 1 times for 2 --segments", cmdline.ExitUsage},
		{"steering add a b", "takes one PREFIX", cmdline.ExitUsage},
		{"delete sid", "takes a KIND and one KEY", cmdline.ExitUsage},
		{"delete colour red", "there is no colour red", cmdline.ExitError},
		{"policy show silver", `not found: there is no policy "silver"`, cmdline.ExitError},
		{"sid show 2001:db8:101:2::", `there is no sid "2001:db8:101:2::": did you mean 2001:db8:101:2::/64?`, cmdline.ExitError},
		{"counters --watch 1ms", "at least 100ms", cmdline.ExitUsage},
		{"trace src", "src needs a value", cmdline.ExitUsage},
		{"run", "--config is missing", cmdline.ExitUsage},
		{"run --config /nonexistent.yaml", "no such file", cmdline.ExitError},
		{"check", "takes one FILE", cmdline.ExitUsage},
		{"--address nowhere sid", "give host:port", cmdline.ExitUsage},
		{"--socket /nonexistent sid", "no daemon at /nonexistent", cmdline.ExitError},
		{"--socket /nonexistent trace", "no daemon at /nonexistent", cmdline.ExitError},
		{"unpin --pin-path " + t.TempDir(), "bpffs", cmdline.ExitError},
	} {
		r := f.run(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || !strings.HasPrefix(r.stderr, "culvert: ") || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("culvert %s: %+v\nwant exit %d, %s", c.args, r, c.code, c.want)
		}
	}
	f.Err = pods.ErrNotReady
	if r := f.run(t, "status"); r.code != cmdline.ExitError || r.stderr != "culvert: not ready\n" {
		t.Errorf("not ready: %+v", r)
	}
}
