package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
)

func TestParseFilter(t *testing.T) {
	prefix := netip.MustParsePrefix
	teid, seid := uint32(0x1a2b), uint64(42)
	for _, c := range []struct {
		text string
		want agent.TraceFilter
	}{
		{"", agent.TraceFilter{}},
		{"drops", agent.TraceFilter{Drops: true}},
		{"src 2001:db8::5/32 and dst 192.0.2.1", agent.TraceFilter{Source: prefix("2001:db8::/32"), Destination: prefix("192.0.2.1/32")}},
		{"sid 2001:db8:1::/48 teid 0x1a2b interface eth0 drops", agent.TraceFilter{SID: prefix("2001:db8:1::/48"), TEID: &teid, Interface: "eth0", Drops: true}},
		{"TEID 6699", agent.TraceFilter{TEID: &teid}},
		{"ue 10.45.0.1 drops", agent.TraceFilter{UE: netip.MustParseAddr("10.45.0.1"), Drops: true}},
		{"user imsi-001010000000001 and seid 0x2a", agent.TraceFilter{User: "imsi-001010000000001", SEID: &seid}},
	} {
		for _, args := range [][]string{{c.text}, strings.Fields(c.text)} {
			if got, err := parseFilter(args); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%q: %+v, %v", args, got, err)
			}
		}
	}
	for text, want := range map[string]string{
		"from 10.0.0.1":       "is not a condition",
		"src":                 "needs a value",
		"src and drops":       "needs a value",
		"src 10.0.0.1/33":     "neither a prefix",
		"src host":            "neither a prefix",
		"teid x":              "not a TEID",
		"teid 4294967296":     "not a TEID",
		"ue 10.45.0.0/16":     "not an address of a UE",
		"ue fe80::1%eth0":     "not an address of a UE",
		"seid first":          "not a SEID",
		"user":                "needs a value",
		"drops drops":         "twice",
		"src ::1 and src ::2": "twice",
		"and drops":           "between two",
		"drops and":           "between two",
	} {
		if got, err := parseFilter([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %s", text, got, err, want)
		}
	}
}

func traced(t *testing.T) fixture {
	f := start(t, "edge.yaml")
	f.Events = []agent.TraceEvent{
		{
			Time: apitest.Started, Interface: "core0", SID: netip.MustParsePrefix("2001:db8:101:1::/64"), Target: "policy", Policy: "gold",
			SegmentList: []netip.Addr{netip.MustParseAddr("2001:db8:111:1::"), netip.MustParseAddr("2001:db8:102:d46::")},
			Adjacency:   "2001:db8:12::2", Egress: "core1", Reason: "FORWARDED", Text: "sent on", Verdict: "XDP_REDIRECT",
			InLength: 118, OutLength: 118, In: apitest.GPDU(1), Out: apitest.GPDU(2),
		},
		{
			Time: apitest.Started.Add(time.Second), Interface: "customer0", Tunnel: "ue1", Target: "tunnel",
			Reason: "HOP_LIMIT", Drop: true, Text: "hop limit or TTL would become 0", Verdict: "XDP_DROP", InLength: 118, In: apitest.GPDU(3),
		},
	}
	return f
}

func TestTrace(t *testing.T) {
	f := traced(t)
	r := f.run(t, "trace", "--count", "2", "src 2001:db8::/32")
	if r.code != cmdline.ExitOK || r.stderr != "tracing; interrupt to end\n" {
		t.Errorf("%+v", r)
	}
	golden(t, "trace", r.stdout)
	if seen := <-f.Filters; seen.Source.String() != "2001:db8::/32" {
		t.Errorf("filter %+v", seen)
	}
	r = f.run(t, "trace", "--count", "1", "-o", "json", "teid", "3")
	var one struct {
		agent.TraceEvent
		InText []string `json:"in_text"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &one); err != nil || strings.Count(r.stdout, "\n") != 1 {
		t.Fatalf("%v in %s", err, r.stdout)
	}
	if !reflect.DeepEqual(one.TraceEvent, f.Events[1]) || len(one.InText) != 6 {
		t.Errorf("%+v", one)
	}
}

// A trace ends after its time, and on an interrupt: both are no error.
func TestTraceEnds(t *testing.T) {
	f := traced(t)
	if r := f.run(t, "trace", "--time", "200ms"); r.code != cmdline.ExitOK || strings.Count(r.stdout, "\n  in ") != 2 {
		t.Errorf("%+v", r)
	}
	ctx := interrupted(t, 200*time.Millisecond)
	if r := command(ctx, "", "--socket", f.socket, "trace", "-o", "yaml"); r.code != exitInterrupted || r.stderr != "tracing; interrupt to end\n" || strings.Count(r.stdout, "---\n") != 2 {
		t.Errorf("%+v", r)
	}
}

// exitInterrupted is the exit code after Ctrl-C.
const exitInterrupted = 130

// interrupted returns a context that Ctrl-C ends after a time.
func interrupted(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(after, func() { cancel(cmdline.Interrupt{Signal: syscall.SIGINT}) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

func TestWatch(t *testing.T) {
	f := start(t, "edge.yaml")
	ctx := interrupted(t, 450*time.Millisecond)
	r := command(ctx, "", "--socket", f.socket, "counters", "--watch", "150ms")
	if r.code != exitInterrupted || r.stderr != "" || !strings.Contains(r.stdout, "PACKETS/S") || strings.Count(r.stdout, "segment list  gold[1]") < 2 {
		t.Errorf("%+v", r)
	}
	ctx = interrupted(t, 450*time.Millisecond)
	r = command(ctx, "", "--socket", f.socket, "counters", "--watch", "150ms", "-o", "json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) < 2 {
		t.Fatalf("%+v", r)
	}
	for _, line := range lines {
		var c counters
		if err := json.Unmarshal([]byte(line), &c); err != nil || len(c.SIDs) != 6 {
			t.Errorf("%v in %s", err, line)
		}
	}
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		now, before uint64
		elapsed     time.Duration
		want        string
	}{{300, 100, 2 * time.Second, "100"}, {100, 100, time.Second, "0"}, {50, 100, time.Second, ""}, {1, 0, 0, ""}} {
		if got := rate(c.now, c.before, c.elapsed); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestDoctor(t *testing.T) {
	f := start(t, "edge.yaml")
	r := f.run(t, "doctor", "--remote")
	if r.code != cmdline.ExitCheckFailed || r.stderr != "culvert: 1 check failed\n" {
		t.Errorf("%+v", r)
	}
	golden(t, "doctor", r.stdout)
	for _, args := range [][]string{{"--remote", "--fix"}, {"--yes"}, {"--fix", "-o", "json"}} {
		if r := f.run(t, append([]string{"doctor"}, args...)...); r.code != cmdline.ExitUsage || r.stdout != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	// Here: what it finds depends on the machine, that it looks does not.
	r = command(t.Context(), "", "doctor", "lo", "-o", "json")
	var findings []struct{ Name, Level string }
	if err := json.Unmarshal([]byte(r.stdout), &findings); err != nil || len(findings) < 5 {
		t.Errorf("%v: %+v", err, r)
	}
	if r := command(t.Context(), "", "doctor", "--config", file(t, "interfaces: [{name: nowhere9, roles: [any]}]")); r.code != cmdline.ExitCheckFailed || !strings.Contains(r.stdout, "nowhere9: present") {
		t.Errorf("%+v", r)
	}
}

// Only where the configuration sends GTP-U over IPv4 does it matter whether the
// kernel takes packets with this node's own addresses.
func TestDoctorOfGTPU(t *testing.T) {
	for _, c := range []struct {
		address string
		looked  bool
	}{{"192.0.2.1", true}, {"2001:db8::1", false}} {
		r := command(t.Context(), "", "doctor", "--config", file(t, "interfaces: [{name: lo, roles: [any]}]\ngtpu: {addresses: ["+c.address+"]}"))
		if strings.Contains(r.stdout, "lo: own source addresses") != c.looked {
			t.Errorf("%s: %+v", c.address, r)
		}
	}
}

// A cluster's node is asked what a cluster wants of it: its uplinks, the ways to the
// others, and where the runtime looks for the plugin.
func TestDoctorOfMember(t *testing.T) {
	member := file(t, `overlay:
  mode: static
  node: node-1
  uplinks: [nowhere8]
  nodes:
  - {name: node-1, address: "2001:db8:9::1", locator: "fc00:9:1::/48", prefixes: [10.249.1.0/24]}
  - {name: node-2, address: "2001:db8:9::2", locator: "fc00:9:2::/48", prefixes: [10.249.2.0/24]}
`)
	r := command(t.Context(), "", "doctor", "--config", member, "--cni-bin-dir", t.TempDir(), "--cni-conf-dir", t.TempDir())
	if r.code != cmdline.ExitCheckFailed {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"nowhere8: present", "no interface has 2001:db8:9::1", "routes to nodes", "CNI plugin"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q:\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "native XDP") {
		t.Errorf("XDP is looked at:\n%s", r.stdout)
	}
}

// The unit gives what the data path needs, and no capability more.
func TestUnit(t *testing.T) {
	data, err := os.ReadFile("../../dist/culvert.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Type=notify", "ExecReload=/usr/bin/culvert apply --dry-run /etc/culvert/culvert.yaml\nExecReload=/bin/kill -HUP $MAINPID", "NoNewPrivileges=yes",
		"AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON", "CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_PERFMON",
	} {
		if strings.Count("\n"+string(data), "\n"+want+"\n") != 1 {
			t.Errorf("%s does not stand there once", want)
		}
	}
	if n := strings.Count(string(data), "Capabilit"); n != 2 {
		t.Errorf("%d settings of capabilities", n)
	}
}

// What a user plane function shows.
func TestSessions(t *testing.T) {
	f := start(t, "upf.yaml")
	var all strings.Builder
	all.WriteString("$ culvert status\n" + f.degraded(t, "status") + "\n")
	for _, args := range []string{
		"slice", "slice show b", "association", "association show smf.example", "session",
		"session list --ue 10.45.0.2 -o json", "session --slice a", "session show 0x8000000000000001", "session show 2 -o json", "config",
	} {
		all.WriteString("$ culvert " + args + "\n" + f.ok(t, strings.Fields(args)...) + "\n")
	}
	golden(t, "upf", all.String())
	if r := f.run(t, "session", "--limit", "1"); r.code != cmdline.ExitOK || r.stderr != "culvert: 1 more, see --limit\n" || strings.Contains(r.stdout, "10.45.0.2") {
		t.Errorf("--limit 1: exit %d, %s%s", r.code, r.stdout, r.stderr)
	}
	for args, want := range map[string]int{
		"session show 9": cmdline.ExitError, "session show x": cmdline.ExitUsage, "session --ue a": cmdline.ExitUsage, "session --teid 0": cmdline.ExitUsage,
		"session --limit 0": cmdline.ExitUsage, "slice show z": cmdline.ExitError, "association show z": cmdline.ExitError,
	} {
		if r := f.run(t, strings.Fields(args)...); r.code != want {
			t.Errorf("%s: exit %d, want %d: %s", args, r.code, want, r.stderr)
		}
	}
}

// Packets of a file, of standard input and of the command line are explained like traced ones.
func TestExplain(t *testing.T) {
	f := traced(t)
	packet := hex.EncodeToString(apitest.GPDU(1))
	path := file(t, "# two packets\n"+packet+"\n"+packet+"\n")
	r := f.run(t, "explain", "core0", path)
	if r.code != cmdline.ExitOK || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	golden(t, "explain", r.stdout)
	for _, args := range [][]string{{"core0", "--hex", packet, "-o", "json"}, {"core0", "-", "-o", "json"}} {
		r := command(t.Context(), packet, append([]string{"--socket", f.socket, "explain"}, args...)...)
		var one agent.TraceEvent
		if err := json.Unmarshal([]byte(r.stdout), &one); err != nil || one.Policy != "gold" || !bytes.Equal(one.In, apitest.GPDU(1)) {
			t.Errorf("%q: %v in %+v", args, err, r)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, cmdline.ExitUsage, "give the interface by which the packets arrive"},
		{[]string{"core0"}, cmdline.ExitUsage, "give a capture file"},
		{[]string{"core0", path, "--hex", packet}, cmdline.ExitUsage, "give one file, or --hex"},
		{[]string{"core0", "--hex", "xyz"}, cmdline.ExitUsage, "--hex: no packet"},
		{[]string{"core0", "/nowhere.pcap"}, cmdline.ExitError, "/nowhere.pcap"},
		{[]string{"core0", file(t, "nothing")}, cmdline.ExitError, "no packet: give a pcap or pcapng file"},
	} {
		if r := f.run(t, append([]string{"explain"}, c.args...)...); r.code != c.code || !strings.Contains(r.stderr, c.want) || r.stdout != "" {
			t.Errorf("%q: %+v, want %q", c.args, r, c.want)
		}
	}
}
