package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/config"
)

// What SIGHUP refuses names the file, the line and the field, as far as there are any: never as
// empty text.
func TestRefusedReload(t *testing.T) {
	path := file(t, "sids:\n  - {sid: 'fc00::1', behavior: End.DT46}\nlog: {level: loud}\n")
	broken := file(t, "sids: [\n")
	long := file(t, "sids:"+strings.Repeat("\n  - {sid: 'fc00::1', behavior: End.T}", 2*config.MostShown))
	for name, c := range map[string]struct {
		path  string
		want  []string // file:line:field of the first lines
		lines int
	}{
		"two mistakes": {path, []string{path + ":2:sids[0].table", path + ":3:log.level"}, 2},
		"no YAML":      {broken, []string{broken + ":2:sids"}, 1},
		"very many":    {long, nil, config.MostShown + 1},
		"no file":      {filepath.Join(t.TempDir(), "none"), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load(c.path)
			var out bytes.Buffer
			logRefused(slog.New(slog.NewJSONHandler(&out, nil)), c.path, fmt.Errorf("invalid: %w", err))
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != c.lines {
				t.Errorf("%d lines, want %d:\n%s", len(lines), c.lines, out.String())
			}
			for i, line := range lines {
				var e struct {
					File, Field, Error string
					Line               int
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil || e.File != c.path || strings.Contains(line, `"field":""`) {
					t.Errorf("%v in %s", err, line)
				}
				if at := fmt.Sprintf("%s:%d:%s", e.File, e.Line, e.Field); i < len(c.want) && at != c.want[i] {
					t.Errorf("at %s, want %s", at, c.want[i])
				}
			}
		})
	}
}
