package store

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
