package config_test

import (
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

// part is what another section of a file may be read into.
type part struct {
	Share float64 `json:"share"`
	Count int     `json:"count"`
}

func TestUnmarshal(t *testing.T) {
	inner := &part{Count: 7}
	into := struct {
		Name string `json:"name"`
		With any    `json:"with"`
	}{With: inner}
	lines, err := config.Unmarshal([]byte("name: x\nwith:\n  share: 0.25\n"), &into)
	if err != nil || into.Name != "x" || inner.Share != 0.25 || inner.Count != 7 || lines["with.share"] != 3 {
		t.Errorf("%+v, %+v, lines %v, %v", into, inner, lines, err)
	}
	for text, words := range map[string]string{
		"with: {share: .nan}":   "line 1: with.share: must be a number",
		"with: {share: half}":   `is the text "half"`,
		"with: {count: 1.5}":    "must be a whole number, is the number 1.5",
		"with: {count: -3}":     "",
		"with: {cuont: 1}":      `did you mean "count"?`,
		"with: 5":               "must hold fields",
		"name: x\nwith:\n- a\n": "line 3: with: must hold fields",
	} {
		into.With = &part{}
		_, err := config.Unmarshal([]byte(text), &into)
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}
