package check

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// What `culvert gnb ping` printed is compared with what a check expects.
func TestWantPings(t *testing.T) {
	const answered = `{"sent":10,"received":10}` + "\n"
	const lost = `{"sent":10,"received":0,"findings":["N6: nobody"]}` + "\n"
	shows := topology.Expect{Nothing: true, Shows: map[string]any{"findings": []any{"N6:"}}}
	for _, tt := range []struct {
		output         string
		expect         topology.Expect
		sent, received int
		problem        string
	}{
		{answered + answered, topology.Expect{}, 20, 20, ""},
		{answered + lost, topology.Expect{}, 20, 10, "N6: nobody"},
		{lost, topology.Expect{Nothing: true}, 10, 0, ""},
		{lost, shows, 10, 0, ""},
		{answered, topology.Expect{Nothing: true}, 10, 10, "none should"},
		{`{"sent":10,"received":0,"findings":["N3: nobody"]}`, shows, 10, 0, "findings"},
		{"", topology.Expect{}, 0, 0, "sent nothing"},
	} {
		o := new(report.Outcome)
		err := wantPings([]byte(tt.output), &tt.expect, o)
		text := strings.Join(o.Problems, "; ")
		if err != nil || o.Sent != tt.sent || o.Received != tt.received || (text == "") != (tt.problem == "") || !strings.Contains(text, tt.problem) {
			t.Errorf("%s: %v, %+v, want %q", tt.output, err, o, tt.problem)
		}
	}
	if err := wantPings([]byte("no JSON\n"), new(topology.Expect), new(report.Outcome)); err == nil {
		t.Error("took no JSON")
	}
}
