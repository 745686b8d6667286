package disturb

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

func TestSaysOf(t *testing.T) {
	const (
		policy  = `{"status": {"nodes": [{"name": "x", "state": "Active", "since": "2026-01-02T03:04:05Z", "reason": "the only one"}, {"name": "y", "state": "Refused", "since": "2026-01-02T03:04:05Z", "reason": "spec.traffic: is missing"}]}}`
		untimed = `{"status": {"nodes": [{"name": "x", "state": "Active"}]}}`
		listing = `{"metadata": {"annotations": {"culvert.net/status": "{\"error\": \"policies[0].traffic: is missing\", \"paths\": [{\"name\": \"p\", \"state\": \"Standby\", \"since\": \"2026-01-02T03:04:05Z\"}]}"}}}`
		broken  = `{"metadata": {"annotations": {"culvert.net/status": "no JSON"}}}`
	)
	for _, tt := range []struct {
		text  string
		event topology.Event
		want  string // in the error
	}{
		{policy, topology.Event{Node: "x", State: "Active"}, ""},
		{policy, topology.Event{Node: "y", State: "Refused", Says: "spec.traffic"}, ""},
		{policy, topology.Event{Node: "y", State: "Refused", Says: "spec.node"}, "spec.node"},
		{policy, topology.Event{Node: "y", State: "Active"}, "want Active"},
		{policy, topology.Event{Node: "z", State: "Active"}, "want Active"},
		{untimed, topology.Event{Node: "x", State: "Active"}, "want Active"},
		{listing, topology.Event{State: "Standby"}, ""},
		{listing, topology.Event{Says: "policies[0].traffic"}, ""},
		{listing, topology.Event{Says: "policies[1]"}, "policies[1]"},
		{listing, topology.Event{State: "Active"}, "want Active"},
		{broken, topology.Event{State: "Active"}, "annotation"},
		{"[]", topology.Event{State: "Active"}, "json"},
	} {
		err := saysOf([]byte(tt.text), &tt.event)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.event, err, tt.want)
		}
	}
}
