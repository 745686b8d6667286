package lab

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/topology"
)

func TestIncludes(t *testing.T) {
	const got = `{"name": "node-1", "mtu": 1460, "problems": ["node-9: SID x is y"], "nodes": [{"name": "a", "state": "ready"}, {"name": "b", "state": "no way"}], "up": true}`
	var shown any
	if err := json.Unmarshal([]byte(got), &shown); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want string
		err  []string // words of it; none: there is no error
	}{
		{"{name: node-1, mtu: 1460, up: true}", nil},
		{"{name: ode}", nil},
		{"{problems: [SID x]}", nil},
		{"{nodes: [{name: b}, {name: a, state: ready}]}", nil},
		{"{mtu: 1420}", []string{"mtu", "1460", "want 1420"}},
		{"{up: false}", []string{"up", "want false"}},
		{"{size: 1}", []string{"size", "want 1"}},
		{"{mtu: {of: 1}}", []string{"mtu", "of"}},
		{"{name: [x]}", []string{"name", "none of 0"}},
		{"{nodes: [{name: b, state: ready}]}", []string{"nodes", "none of 2", "no way"}},
		{"{problems: [SID z]}", []string{"problems", "none of 1"}},
	} {
		var want any
		if err := yaml.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		err := includes(shown, want)
		if tt.err == nil && err != nil {
			t.Errorf("%s: %v", tt.want, err)
		}
		if tt.err != nil {
			wantError(t, err, tt.err...)
		}
	}
}

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
