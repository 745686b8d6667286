package topology

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestMerge(t *testing.T) {
	read := func(text string) (v any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, tt := range []struct{ base, over, want string }{
		{"{a: 1, b: {c: 2, d: 3}}", "{b: {c: 4}, e: 5}", "{a: 1, b: {c: 4, d: 3}, e: 5}"},
		{"{l: [1, 2]}", "{l: [3]}", "{l: [3]}"},
		{"{l: [{name: p, v: 1, w: 1}, {name: q, v: 2}]}", "{l: [{name: q, v: 3}, {name: r, v: 4}]}", "{l: [{name: p, v: 1, w: 1}, {name: q, v: 3}, {name: r, v: 4}]}"},
		{"{l: [{name: p}]}", "{l: [{v: 1}]}", "{l: [{v: 1}]}"},
		{"{a: 1}", "{a: {b: 2}}", "{a: {b: 2}}"},
		{"{a: {b: 2}}", "{a: 1}", "{a: 1}"},
	} {
		base := read(tt.base)
		if got := Merge(base, read(tt.over)); !reflect.DeepEqual(got, read(tt.want)) {
			t.Errorf("%s over %s: %v", tt.over, tt.base, got)
		}
		if !reflect.DeepEqual(base, read(tt.base)) {
			t.Errorf("%s over %s changed it", tt.over, tt.base)
		}
	}
}

func TestVariants(t *testing.T) {
	topology := parse(t, transports)
	for flag, want := range map[string]string{
		"":     "slow: both, fast: both, fast: one",
		"all":  "slow: both, fast: both, fast: one",
		"slow": "slow: both",
		"fast": "fast: both, fast: one",
	} {
		n9, err := topology.ChosenVariants("n9", flag)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range topology.Plan(n9, nil) {
			names = append(names, p.Title())
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%q: %s, want %s", flag, got, want)
		}
	}
	if list := topology.Plan([]string{"slow", "fast"}, regexp.MustCompile("fast: .*o")); len(list) != 2 || list[1].Title() != "fast: one" {
		t.Errorf("checks of a pattern: %v", list)
	}
	_, err := topology.ChosenVariants("n9", "medium")
	wantError(t, err, "--n9", "medium", "slow, fast", "all")
	_, err = parse(t, small).ChosenVariants("n9", "fast")
	wantError(t, err, "--n9", "small")
	if n9, err := parse(t, small).ChosenVariants("n9", ""); err != nil || !slices.Equal(n9, []string{""}) {
		t.Errorf("%v, %v", n9, err)
	}
	level := func(n9, overlay string) any {
		return topology.Node("x").ConfigIn(n9, overlay)["log"].(map[string]any)["level"]
	}
	if level("slow", "") != "info" || level("fast", "") != "warn" || level("fast", "loud") != "debug" {
		t.Errorf("levels %v, %v, %v", level("slow", ""), level("fast", ""), level("fast", "loud"))
	}
}

func TestParseVariants(t *testing.T) {
	for _, tt := range []struct {
		old, new string
		want     []string
	}{
		{"n9: {fast: {log", "n9: {quick: {log", []string{"nodes[0]", "n9", "quick", "slow, fast"}},
		{"kind: ping, n9: [fast]", "kind: ping, n9: [quick]", []string{"checks[1]", "quick"}},
		{"counters: [{n9: [fast]", "counters: [{n9: [quick]", []string{"checks[1]", "counters", "quick"}},
		{"outcome: forwarded", "slice: a", []string{"checks[1]", "counters", "direction", "uplink"}},
		{"outcome: forwarded", "outcome: forwarded, packets: many", []string{"checks[1]", "counters", "many", "some"}},
		{"overlay: loud", "overlay: lout", []string{"checks[1]", "before", "lout"}},
		{"kind: host", "kind: host, overlays: {loud: {}}", []string{"nodes[1]", "overlays", "culvert"}},
	} {
		text := strings.Replace(transports, tt.old, tt.new, 1)
		if text == transports {
			t.Fatalf("%q is not there", tt.old)
		}
		_, err := Parse([]byte(text))
		wantError(t, err, tt.want...)
	}
}
