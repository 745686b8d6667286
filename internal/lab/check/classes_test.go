package check

import (
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/probe"
)

// Each class is judged by itself, with all of its streams; how long packets are lost, and whether
// they still are, by the stream that was worst.
func TestClassesOfStreams(t *testing.T) {
	const ms, limit = time.Millisecond, topology.Duration(10 * time.Millisecond)
	results := []probe.StreamResult{
		{Sent: 100, Received: 100, P99: 2 * ms, Took: 5 * time.Second},
		{Sent: 200, Received: 190, P99: 30 * ms, Took: 5 * time.Second, LossFrom: time.Second, LossUntil: 1500 * ms},
		{Sent: 300, Received: 300, P99: 5 * ms, Took: 5 * time.Second},
	}
	for name, tt := range map[string]struct {
		expect topology.Expect
		late   time.Duration // when the last packet was lost; 0: as above
		want   string        // in a problem; "": no problem
	}{
		"nothing is asked":        {topology.Expect{}, 0, ""},
		"voice is whole":          {topology.Expect{Classes: map[string]topology.ClassExpect{"voice": {P99: limit}}}, 0, ""},
		"bulk is not":             {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {}}}, 0, "10 of 500 of class bulk lost: want 0 at most"},
		"bulk may lose some":      {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {MaxLost: 10}}}, 0, ""},
		"bulk has to lose":        {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {MinLost: 11}}}, 0, "10 of 500 of class bulk lost: want 11 at least"},
		"bulk is slow":            {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {MaxLost: 10, P99: limit}}}, 0, "99 % of class bulk took up to 30.0 ms: want 10 ms"},
		"bulk is not slow enough": {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {MaxLost: 10, MinP99: 4 * limit}}}, 0, "99 % of class bulk took up to 30.0 ms: want 40 ms at least"},
		"bulk is slow enough":     {topology.Expect{Classes: map[string]topology.ClassExpect{"bulk": {MaxLost: 10, MinP99: limit}}}, 0, ""},
		"it settles":              {topology.Expect{Settles: topology.Duration(600 * ms)}, 0, ""},
		"it takes long":           {topology.Expect{Settles: topology.Duration(400 * ms)}, 0, "packets were lost for 500ms: want 400ms"},
		"it goes on":              {topology.Expect{Settles: topology.Duration(5 * time.Second)}, 4500 * ms, "packets are lost until 500ms before the end"},
	} {
		c := &topology.Check{Class: "voice", Also: []topology.Way{{Class: "bulk"}, {Class: "bulk"}}, Expect: tt.expect}
		list := append([]probe.StreamResult{}, results...)
		if tt.late > 0 {
			list[1].LossUntil = tt.late
		}
		var o report.Outcome
		wantClasses(c, list, &o)
		wantSettled(c, list, &o)
		if got := strings.Join(o.Problems, "; "); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if len(o.Classes) != 2 || o.Classes[1] != (report.Class{Name: "bulk", Sent: 500, Lost: 10, P99: 30}) {
			t.Errorf("%s: classes %+v", name, o.Classes)
		}
	}
}
