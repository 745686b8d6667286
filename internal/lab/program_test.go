package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/lab/check"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// TestPrograms runs programs of others, which are shell scripts here, and sees every event
// and check about them pass and fail where it must.
func TestPrograms(t *testing.T) {
	text := fixture("core")
	from, to := strings.Index(text, "    subscribers:"), strings.Index(text, "  - {name: gnb")
	text = text[:from] + text[to:]
	text = strings.Replace(text, "kind: culvert, config: {}", "kind: host", 1)
	text = text[:strings.Index(text, "  - {name: moved")]
	in := open(t, parse(t, text), unique("core"))
	wantError(t, up(t.Context(), in, "", quiet), "lab core", "--core")
	in.Core = t.TempDir()
	script := "#!/bin/sh\necho it is ready; sleep .3; echo it is ready, and again; cat \"$1\" || [ \"$2\" != once ] || exit 3; [ \"$2\" = once ] || exec sleep 60\n"
	if err := os.WriteFile(filepath.Join(in.Core, "culvert-test-say"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := up(t.Context(), in, "", quiet); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Says(in, in.Node("x"), "first", "and again", 1); err != nil {
		t.Errorf("first is ready before it has said so twice: %v", err)
	}
	file, err := os.ReadFile(in.File(in.Node("x"), "x.yaml"))
	if want := "dir: '" + filepath.Join(in.Dir(), "x") + "'\nlist:\n- 1\n- 2\n"; err != nil || string(file) != want {
		t.Errorf("%q, %v: want %q", file, err, want)
	}
	got, err := runChecks(t.Context(), &disturb.Runner{Instance: in}, []string{""}, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ // "": passes
		"says": "", "silent": `first said "again" 1 times: want 2`, "ended": "second does not run", "twice": "first runs already", "captured": "x.pcap",
		"once": "", "not well": "ill: exit status 3", "killed": "", "killed twice": "first does not run",
		"judged": "", "blamed": `sh does not say "is nice": all is lost`, "broken": "exit status 3: oh",
	}
	for _, c := range got.Checks {
		words, known := want[c.Name]
		if !known || c.Pass != (words == "") || !strings.Contains(c.Detail, words) {
			t.Errorf("%s: pass %v, %s", c.Name, c.Pass, c.Detail)
		}
	}
	if len(got.Checks) != len(want) {
		t.Errorf("%d checks: want %d", len(got.Checks), len(want))
	}
	wantCaptures(in, t)
}

// heartbeat is a capture of one frame: a Heartbeat Request over IPv4 without a link layer.
const heartbeat = "\xd4\xc3\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x65\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x2c\x00\x00\x00\x2c\x00\x00\x00" +
	"\x45\x00\x00\x2c\x00\x00\x00\x00\x40\x11\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02" +
	"\x22\x65\x22\x65\x00\x18\x00\x00" +
	"\x20\x01\x00\x0c\x00\x00\x01\x00\x00\x60\x00\x04\xe0\x00\x00\x00"

// wantCaptures looks for frames that are in a capture, and for others.
func wantCaptures(in *instance.Instance, t *testing.T) {
	t.Helper()
	if err := os.WriteFile(in.File(in.Node("x"), "x.pcap"), []byte(heartbeat), 0o600); err != nil {
		t.Fatal(err)
	}
	checker := check.New(&disturb.Runner{Instance: in})
	tests := []struct {
		filter  string
		count   int // 0: nothing is expected
		problem string
	}{
		{"pfcp.msg_type == 1", 1, ""}, {"pfcp.msg_type == 2", 0, ""},
		{"pfcp.msg_type == 1", 2, "1 frames match"}, {"pfcp.msg_type == 1", 0, "1 frames match"}, {"pfcp.none", 1, "pfcp.none"},
	}
	for _, tt := range tests {
		c := &topology.Check{Name: "c", Kind: "captured", From: "x", Capture: "x.pcap", Filter: tt.filter, Count: tt.count}
		c.Expect.Nothing = tt.count == 0
		got := checker.Run(t.Context(), topology.Planned{Check: c})
		if got.Pass != (tt.problem == "") || !strings.Contains(got.Detail, tt.problem) {
			t.Errorf("%s, %d: pass %v, %s", tt.filter, tt.count, got.Pass, got.Detail)
		}
	}
}
