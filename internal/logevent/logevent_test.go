package logevent

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "add new names to testdata/published.txt")

const published = "testdata/published.txt"

func TestEvents(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		if !regexp.MustCompile(`^[a-z0-9_]+\.[a-z0-9_]+$`).MatchString(e.name) || seen[e.name] {
			t.Errorf("%q is not a new name of the form subject.what_happened", e.name)
		}
		seen[e.name] = true
		if !strings.HasSuffix(e.meaning, ".") || strings.Contains(e.meaning+e.action, "|") || e.action != "" && !strings.HasSuffix(e.action, ".") {
			t.Errorf("%s: meaning and action are sentences that fit into a table", e.name)
		}
		if e.level > slog.LevelInfo && e.action == "" && !slices.Contains(needNothing, e.name) {
			t.Errorf("%s: it is %s, and says nothing of what an operator does", e.name, e.level)
		}
	}
}

// needNothing are events above info after which an operator has nothing to do.
var needNothing = []string{"bgp.stop_failed", "pfcp.orphans_removed", "pfcp.session_unknown"}

// TestPublished: alerts of others name the events, so none is renamed. Take a name out of the
// file only together with what it reports, and tell users in the changelog.
func TestPublished(t *testing.T) {
	b, err := os.ReadFile(published)
	if err != nil && !*update {
		t.Fatal(err)
	}
	had := strings.Fields(string(b))
	var all []string
	for _, e := range All() {
		all = append(all, e.name)
	}
	for _, name := range had {
		if !slices.Contains(all, name) {
			t.Errorf("event %s was published and is gone: names stay", name)
		}
	}
	switch {
	case *update:
		all = append(all, had...)
		slices.Sort(all)
		if err := os.WriteFile(published, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	case len(all) > len(had):
		t.Errorf("%s lacks new names: run the test with -update", published)
	}
}

// TestLines has the name in both formats of log.format, as a string.
func TestLines(t *testing.T) {
	for _, tt := range []struct {
		handler func(*bytes.Buffer) slog.Handler
		want    string
	}{
		{func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) }, ` event=bgp.session_down peer=192.0.2.1`},
		{func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) }, `,"event":"bgp.session_down","peer":"192.0.2.1"`},
	} {
		var b bytes.Buffer
		slog.New(tt.handler(&b)).Warn("BGP session is down", "event", BGPSessionDown, "peer", "192.0.2.1")
		if !strings.Contains(b.String(), tt.want) {
			t.Errorf("logged %s, want %s in it", b.String(), tt.want)
		}
	}
}
