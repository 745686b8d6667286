package cli

import (
	"encoding/json"
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
	r := command(t.Context(), "", "__complete", "te", "explain", network8, "r1:")
	if !strings.Contains(r.stdout, "r1:r8:46") {
		t.Errorf("completion of demands: %q", r.stdout)
	}
}
