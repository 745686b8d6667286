package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stateVariable has a test's process open this file only.
const stateVariable = "CULVERT_TEST_STATE_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(stateVariable); path != "" {
		if _, err := Open(path, slog.New(slog.DiscardHandler)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// One that was killed may hold the file for longer than a start takes to ask.
func TestDaemonThatEndsIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	first, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*silence, func() { first.Close() })
	said := make(chan string, 1)
	second, err := Open(path, slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { said <- string(b) }), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if line := <-said; !strings.Contains(line, "waiting for it to end") {
		t.Errorf("the log says %q", line)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// A file that cannot be opened now is not lost: only of a damaged one somebody may say so.
func TestStateFileThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	whole, err := Open(path, slog.New(slog.DiscardHandler))
	if err == nil {
		err = whole.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty meta": strings.Repeat("\x00", 1<<15), "short": "abc"} {
		bad := filepath.Join(dir, "bad")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(bad, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "it is damaged: write a backup to its place") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(filepath.Join(path, "below-a-file"), slog.New(slog.DiscardHandler)); err == nil || strings.Contains(err.Error(), "damaged") {
		t.Errorf("a path that cannot be: %v", err)
	}
	// With too few addresses for the mapping, in a process of its own.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -v 900000 && exec "$@"`, "sh", os.Args[0])
	cmd.Env = append(os.Environ(), stateVariable+"="+path)
	text, err := cmd.CombinedOutput()
	if want := "state file " + path + ": cannot allocate memory: the file is whole; the daemon may not have the 1024 MiB of addresses"; err == nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: %s", err, text)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the file is another: %v", err)
	}
	if list, err := filepath.Glob(path + ".*"); err != nil || len(list) > 0 {
		t.Errorf("it was moved away: %v, %v", list, err)
	}
}
