package doctor

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/overlay"
)

// What the daemon refuses is a line for each: what keeps packets away fails, the rest warns.
func TestFaults(t *testing.T) {
	const refused, partly = "node-3: locator fc00:0:2::/48 is that of node-2", "node-4: prefix 8.8.8.0/24 is not in the podCIDRs of its Node"
	for _, test := range []struct {
		faults overlay.Faults
		check  string
		level  Level
		detail string
	}{
		{overlay.Faults{}, "this node, for the others", OK, "they use what it says of itself"},
		{overlay.Faults{}, "other nodes", OK, "all 3 are used"},
		{overlay.Faults{}, "SR policies", OK, "all paths are valid"},
		{overlay.Faults{Self: []string{"other nodes refuse this node: address 2001:db8::1 is no InternalIP of its Node"}}, "this node, for the others", Fail, "is no InternalIP of its Node"},
		{overlay.Faults{Refused: []string{refused}, Partly: []string{partly}}, "other nodes", Fail, "not used: " + refused},
		{overlay.Faults{Partly: []string{partly}}, "other nodes", Warn, "not all is used: " + partly},
		{overlay.Faults{NoPath: []string{"node-2:ipv4: no route"}, Paths: []string{"x"}}, "SR policies", Fail, "no valid path: node-2:ipv4: no route"},
		{overlay.Faults{Paths: []string{"srv6policy a: b", "2", "3", "4"}}, "SR policies", Warn, "not valid: srv6policy a: b, 2, 3 and 1 more"},
	} {
		checks := checkFaults(&test.faults, 3)
		c := find(t, checks, test.check)
		if c.Level != test.level || !strings.Contains(c.Detail, test.detail) || (c.Fix == "") != (c.Level == OK) {
			t.Errorf("%+v: %+v, want %s %q", test.faults, c, test.level, test.detail)
		}
	}
}
