package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/cmdline"
)

const network8 = "../../examples/te/network.yaml"

// What `culvert te` prints of the example is what its users learn it by.
func TestTrafficEngineering(t *testing.T) {
	var all strings.Builder
	for _, line := range []string{
		"te show FILE", "te plan FILE", "te plan FILE --target 95 --changes 2 --links 3", "te plan FILE --target 0 --links 3", "te explain FILE r1:r8", "te explain FILE r1:r8:46", "te simulate FILE",
		"te simulate FILE --fail r7-r2", "te simulate FILE --fail r8",
	} {
		r := command(t.Context(), "", strings.Fields(strings.ReplaceAll(line, "FILE", network8))...)
		if r.code != cmdline.ExitOK || r.stderr != "" {
			t.Errorf("%s: exit %d: %s", line, r.code, r.stderr)
		}
		var v any
		asJSON := command(t.Context(), "", strings.Fields(strings.ReplaceAll(line, "FILE", network8)+" -o json")...)
		if err := json.Unmarshal([]byte(asJSON.stdout), &v); err != nil {
			t.Errorf("%s -o json: %v", line, err)
		}
		all.WriteString("$ culvert " + strings.ReplaceAll(line, "FILE", "network.yaml") + "\n" + r.stdout + "\n")
	}
	golden(t, "te", all.String())
}

// Two links lie beside each other, and the IGP fills the small one as far as the large one: only
// their End.X SIDs lead around that.
func TestLinksAsWaypoints(t *testing.T) {
	const file = `
nodes: [{name: r1, sid: "fc00:1::1"}, {name: r2, sid: "fc00:2::1"}, {name: r3, sid: "fc00:3::1"}]
links:
  - {from: r1, to: r2, capacity: 20Gbit}
  - {from: r2, to: r3, name: large, capacity: 10Gbit, sid: "fc00:2:0:2::"}
  - {from: r2, to: r3, name: small, capacity: 2Gbit, sid: "fc00:2:0:3::"}
demands: [{headend: r1, endpoint: r3, rate: 6Gbit}]
`
	var all strings.Builder
	for _, tt := range []struct{ of, file string }{
		{"with End.X SIDs", file}, {"without", strings.NewReplacer(`, sid: "fc00:2:0:2::"`, "", `, sid: "fc00:2:0:3::"`, "").Replace(file)},
		{"installed", file + `policies: [{headend: r1, endpoint: r3, lists: [{via: ["r2-r3:large"], weight: 4}, {via: ["r2-r3:small"]}]}]`},
		{"a headend that pushes one segment", strings.Replace(file, "{name: r1,", "{name: r1, max_segments: 1,", 1)},
	} {
		for _, line := range []string{"te plan -", "te explain - r1:r3"} {
			r := command(t.Context(), tt.file, strings.Fields(line)...)
			if r.code != cmdline.ExitOK || r.stderr != "" {
				t.Errorf("%s: exit %d: %s", line, r.code, r.stderr)
			}
			all.WriteString("$ culvert " + line + " # " + tt.of + "\n" + r.stdout + "\n")
		}
	}
	golden(t, "te_links", all.String())
}

// What cannot be had is said, and the demand takes what comes closest.
func TestWhatClassesCannotHave(t *testing.T) {
	const file = `
nodes: [{name: a}, {name: b, sid: "fc00:b::1"}, {name: c, sid: "fc00:c::1"}, {name: d, sid: "fc00:d::1"}, {name: e}, {name: alone}]
links:
  - {from: a, to: b, capacity: 1Gbit, delay: 2ms, affinity: [1]}
  - {from: b, to: d, capacity: 1Gbit, delay: 2ms, affinity: [1]}
  - {from: a, to: c, capacity: 1Gbit, delay: 5ms, metric: 20, affinity: [2]}
  - {from: c, to: d, capacity: 1Gbit, delay: 5ms, metric: 20, affinity: [2]}
  - {from: d, to: e, capacity: 1Gbit, delay: 1ms}
classes:
  - {color: 1, max_delay: 3ms}
  - {color: 2, exclude: [1, 2]}
  - {color: 3, disjoint: node}
  - {color: 4, disjoint: link, max_delay: 9ms}
  - {color: 5, include_any: [2], max_delay: 9ms}
demands:
  - {headend: a, endpoint: d, color: 1, rate: 100Mbit}
  - {headend: a, endpoint: d, color: 2, rate: 100Mbit}
  - {headend: a, endpoint: e, color: 3, rate: 100Mbit}
  - {headend: a, endpoint: d, color: 4, rate: 100Mbit}
  - {headend: a, endpoint: d, color: 5, rate: 100Mbit}
  - {headend: a, endpoint: alone, rate: 100Mbit}
`
	var all strings.Builder
	for _, line := range []string{"te plan -", "te explain - a:d:2", "te explain - a:e:3", "te explain - a:alone"} {
		r := command(t.Context(), file, strings.Fields(line)...)
		if r.code != cmdline.ExitOK || r.stderr != "" {
			t.Errorf("%s: exit %d: %s", line, r.code, r.stderr)
		}
		all.WriteString("$ culvert " + line + "\n" + r.stdout + "\n")
	}
	golden(t, "te_problems", all.String())
}

// Demands of a group, and a list and its standby, share nothing where that is possible; else it is said.
func TestDisjointDemandsAndStandbys(t *testing.T) {
	const file = `
nodes: [{name: a}, {name: b, sid: "fc00:b::1"}, {name: c, sid: "fc00:c::1"}, {name: d, sid: "fc00:d::1"}, {name: e}]
links:
  - {from: a, to: b, capacity: 1Gbit, delay: 2ms}
  - {from: b, to: d, capacity: 1Gbit, delay: 2ms}
  - {from: a, to: c, capacity: 1Gbit, delay: 5ms, metric: 20}
  - {from: c, to: d, capacity: 1Gbit, delay: 5ms, metric: 20}
  - {from: d, to: e, capacity: 1Gbit, delay: 1ms}
classes:
  - {color: 3, standby: node}
groups:
  - {name: feeds, disjoint: node, demands: [{headend: a, endpoint: d, color: 1}, {headend: a, endpoint: d, color: 2}]}
  - {name: uplinks, disjoint: link, demands: [{headend: a, endpoint: e, color: 1}, {headend: a, endpoint: e, color: 2}, {headend: e, endpoint: b}]}
demands:
  - {headend: a, endpoint: d, color: 1, rate: 100Mbit}
  - {headend: a, endpoint: d, color: 2, rate: 100Mbit}
  - {headend: a, endpoint: e, color: 1, rate: 100Mbit}
  - {headend: a, endpoint: e, color: 2, rate: 100Mbit}
  - {headend: a, endpoint: d, color: 3, rate: 100Mbit}
  - {headend: a, endpoint: e, color: 3, rate: 100Mbit}
`
	var all strings.Builder
	for _, line := range []string{"te plan - --links 0", "te explain - a:d:2", "te explain - a:e:2", "te explain - a:d:3", "te explain - a:e:3", "te simulate - --fail a-c"} {
		r := command(t.Context(), file, strings.Fields(line)...)
		if r.code != cmdline.ExitOK || r.stderr != "" {
			t.Errorf("%s: exit %d: %s", line, r.code, r.stderr)
		}
		all.WriteString("$ culvert " + line + "\n" + r.stdout + "\n")
	}
	golden(t, "te_groups", all.String())
}

func TestTrafficEngineeringErrors(t *testing.T) {
	const three = `
nodes: [{name: a}, {name: b}, {name: c}]
links: [{from: a, to: b, capacity: 1Gbit}, {from: b, to: c, capacity: 1Gbit}]
demands: [{headend: a, endpoint: c, rate: 1Gbit}]
`
	for _, tt := range []struct {
		stdin, args string
		code        int
		stderr      string
	}{
		{"", "te show none.yaml", cmdline.ExitError, "none.yaml"},
		{"nodes: [{name: a, sdi: b}]", "te show -", cmdline.ExitError, "sdi"},
		{"links: [{from: a, to: a}]", "te plan -", cmdline.ExitError, `line 1: links[0].from: no node is called "a"`},
		{three, "te plan - --target 101", cmdline.ExitUsage, "--target: give 0 to 100"},
		{three, "te plan - --changes 0", cmdline.ExitUsage, "--changes: give 1 or more"},
		{three, "te explain - a:b", cmdline.ExitUsage, `no demand is called "a:b"`},
		{three, "te simulate - --fail x", cmdline.ExitUsage, `no node or link is called "x"`},
		{three, "te simulate -", cmdline.ExitCheckFailed, "3 of 5 failures leave demands without a path"},
		{strings.Replace(three, "rate: 1", "rate: 2", 1), "te simulate - --fail a-b", cmdline.ExitCheckFailed, "1 of 1 failures leave demands"},
		{strings.Replace(three, "capacity: 1Gbit}]", "capacity: 1Gbit}, {from: a, to: c, capacity: 500Mbit}]", 1), "te simulate - --fail a-b", cmdline.ExitCheckFailed, "1 of 1 failures leave a link more than full"},
	} {
		if r := command(t.Context(), tt.stdin, strings.Fields(tt.args)...); r.code != tt.code || !strings.Contains(r.stderr, tt.stderr) {
			t.Errorf("%s: exit %d: %s\nwant %d, %q", tt.args, r.code, r.stderr, tt.code, tt.stderr)
		}
	}
	if r := command(t.Context(), strings.Replace(three, "rate: 1Gbit", "rate: 1Gbit, measured: 900Mbit", 1), "te", "explain", "-", "a:c"); !strings.Contains(r.stdout, "a:c, forecast to be 1Gbit/s; measured are 900Mbit/s") {
		t.Errorf("a forecast: %s", r.stdout+r.stderr)
	}
	r := command(t.Context(), "", "__complete", "te", "explain", network8, "r1:")
	if !strings.Contains(r.stdout, "r1:r8:46") {
		t.Errorf("completion of demands: %q", r.stdout)
	}
}

// The page has what the plan and the failures are about; package picture tests how it looks.
func TestReport(t *testing.T) {
	r := command(t.Context(), "", "te", "report", network8, "--fail", "r7-r2")
	if r.code != cmdline.ExitOK || r.stderr != "" {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	for _, want := range []string{"<!doctype html>", "<h1>Traffic engineering: network.yaml</h1>", "r1:r8:46", "after step 1", "<h2>Failures</h2>", "the largest utilisation falls from 180.0 % to 71.9 %"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for args, want := range map[string]string{"--fail x": `no node or link is called "x"`, "--target 101": "--target: give 0 to 100"} {
		if r := command(t.Context(), "", strings.Fields("te report "+network8+" "+args)...); r.code != cmdline.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s", args, r.code, r.stderr)
		}
	}
}

// isis is what FRR prints of r1 to r4, two links between r1 and r2.
const isis = "../te/frr/testdata/database.json"

func TestTopologyOfFRR(t *testing.T) {
	const file = `
nodes: [{name: r1, sid: "fc00:1::1"}, {name: r2}, {name: r3}]
links: [{from: r1, to: r2, capacity: 2Gbit}]
demands: [{headend: r1, endpoint: r2, rate: 1Gbit}, {headend: r1, endpoint: r3, rate: 141Mbit}]
`
	r := command(t.Context(), file, "te", "show", "-", "--topology", "frr:"+isis)
	if r.code != cmdline.ExitOK || r.stderr != "" {
		t.Fatalf("exit %d: %s", r.code, r.stderr)
	}
	golden(t, "te_frr", r.stdout)
	more := strings.Replace(file, "{name: r3}", "{name: r3}, {name: r9}", 1)
	r = command(t.Context(), more, "te", "show", "-", "--topology", "frr:"+isis)
	if r.stderr != "node r9 is left out: the running network does not have it: it has no links\n" {
		t.Errorf("said %q", r.stderr)
	}
	database, err := os.ReadFile(isis)
	if err != nil {
		t.Fatal(err)
	}
	if r := command(t.Context(), string(database), "te", "show", network8, "--topology", "frr:-"); r.code != cmdline.ExitOK || !strings.Contains(r.stdout, "r1-r3") {
		t.Errorf("exit %d: %s", r.code, r.stdout)
	}
	for source, want := range map[string]string{
		"frr:-": "the network is read from standard input", "frr:": "give frr:PATH", "x": `"x" is no source`, "frr:none": "cannot read none",
	} {
		if r := command(t.Context(), file, "te", "plan", "-", "--topology", source); r.code == cmdline.ExitOK || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit %d: %s, want %q", source, r.code, r.stderr, want)
		}
	}
	if r := command(t.Context(), "", "__complete", "te", "show", network8, "--topology", ""); !strings.Contains(r.stdout, "frr:") {
		t.Errorf("completion of sources: %q", r.stdout)
	}
}
