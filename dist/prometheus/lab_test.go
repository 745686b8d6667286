//go:build e2e

package prometheus

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the UPF of the laboratory does not do: it spreads no packets, has no L3VPN, refuses and
// drops nothing, and its UEs are silent meanwhile.
var without = regexp.MustCompile(`: (Packets by CPU|Load by CPU|Full queues|Moves|Imported routes|Announced prefixes|Drops by reason|Refused requests|Mean size)$`)

// A real Prometheus scrapes a UPF with two slices, and answers the queries of its dashboards.
func TestDashboardsOfLab(t *testing.T) {
	const culvert, name = "../../bin/culvert", "dashboards"
	if out, err := exec.Command(culvert, "lab", "up", "slices", "--as", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(culvert, "lab", "down", "slices", "--as", name).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	ask := serve(t, "127.0.0.1:9418", []string{culvert, "lab", "exec", "--as", name, "slices", "upf1"})
	answered := 0
	for _, q := range queries(t) {
		if !strings.HasPrefix(q.panel, "culvert-upf: ") && !strings.HasPrefix(q.panel, "culvert-slice: ") {
			continue
		}
		switch answer := ask(q.expr); {
		case answer == "":
			answered++
		case answer != empty || !without.MatchString(q.panel):
			t.Errorf("%s: %s: %s", q.panel, q.expr, answer)
		}
	}
	if answered < 25 {
		t.Errorf("%d queries have answers", answered)
	}
	var firing []string
	for _, alert := range alerts(t) {
		if ask(`ALERTS{alertstate="firing",alertname="`+alert+`"}`) == "" {
			firing = append(firing, alert)
		}
	}
	slices.Sort(firing)
	if len(firing) > 0 {
		t.Errorf("alerts about a UPF that works: %v", firing)
	}
}
