package observe

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"
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
		{"{mtu: {at_most: 1460}}", nil},
		{"{mtu: {at_most: 1459}}", []string{"mtu", "1460", "at most 1459"}},
		{"{name: {at_most: 1}}", []string{"name", "at most 1"}},
		{"{mtu: {at_least: 1460}}", nil},
		{"{mtu: {at_least: 1461}}", []string{"mtu", "1460", "at least 1461"}},
		{"{missing: {at_least: 0}}", []string{"missing", "at least 0"}},
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
		err := Includes(shown, want)
		if tt.err == nil && err != nil {
			t.Errorf("%s: %v", tt.want, err)
		}
		if tt.err != nil {
			wantError(t, err, tt.err...)
		}
	}
}
