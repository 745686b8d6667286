package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/backup"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/apiserve"
	"github.com/culvert-net/culvert/internal/api/apitest"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/upf/journal"
	sessions "github.com/culvert-net/culvert/internal/upf/store"
)

// keeper has a state file and a journal as a daemon has them, and answers on a socket.
type keeper struct {
	dir, socket string
	fail        error // of backups
}

func startKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{dir: t.TempDir()}
	k.socket = filepath.Join(k.dir, "c.sock")
	s, err := store.Open(filepath.Join(k.dir, "kept.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	added := desired.Resource{Ref: desired.Ref{Kind: desired.KindPolicy, Key: "added"}, Origin: desired.OriginAPI, Value: srpolicy.Policy{Name: "added"}}
	if err := s.Save(nil, []desired.Resource{added}, observed.State{}, nil); err != nil {
		t.Fatal(err)
	}
	handler := api.NewHandler(apitest.New(&config.Config{}), nil)
	handler.SetBackup(func(_ context.Context, w io.Writer) error { return errors.Join(k.backup(s, w), k.fail) })
	apiserve.Serve(t, config.API{Socket: k.socket}, handler)
	return k
}

// backup writes one with a session.
func (k *keeper) backup(s *store.Store, w io.Writer) error {
	j, _, err := journal.Open(filepath.Join(k.dir, "sessions"), []byte(sessions.Header()), func(journal.Record) error { return nil })
	if err != nil {
		return err
	}
	defer j.Close()
	if err := j.Append(journal.Record{Kind: journal.Session, SEID: 1, Body: []byte("{}")}); err != nil {
		return err
	}
	marks, err := j.Mark()
	if err != nil {
		return err
	}
	var parts []backup.Part
	for _, m := range marks {
		defer m.Close()
		parts = append(parts, backup.Part{Name: m.Name, Size: m.Size, Reader: m.Reader()})
	}
	tx, err := s.DB().Begin(false)
	if err != nil {
		return err
	}
	info := backup.Info{Version: "v1.2.3", Node: "upf-1", Time: apitest.Started, Journal: sessions.Header()}
	return errors.Join(backup.Write(w, info, tx, parts), tx.Rollback())
}

// TestState goes through a backup and its restores, as people see them.
func TestState(t *testing.T) {
	k := startKeeper(t)
	file, state := filepath.Join(k.dir, "b"), filepath.Join(k.dir, "state.db")
	var said strings.Builder
	run := func(stdin string, args ...string) result {
		t.Helper()
		r := command(t.Context(), stdin, args...)
		line := "$ culvert " + strings.Join(args, " ") + "\n" + r.stdout + r.stderr
		said.WriteString(strings.ReplaceAll(strings.ReplaceAll(line, "--socket "+k.socket+" ", ""), k.dir, "DIR") + "\n")
		return r
	}
	ok := func(args ...string) {
		t.Helper()
		if r := run("", args...); r.code != cmdline.ExitOK {
			t.Errorf("culvert %s: exit %d: %s", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	ok("--socket", k.socket, "state", "backup", file)
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v: only the owner may read it", info.Mode(), err)
	}
	ok("state", "show", file)
	ok("state", "restore", "--state", state, file)
	run("no\n", "state", "restore", "--state", state, file)
	if _, err := os.Stat(state + store.Before); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("overwritten without consent: %v", err)
	}
	run("yes\n", "state", "restore", "--state", state, file)
	if _, err := os.Stat(state + store.Before); err != nil {
		t.Errorf("the former file: %v", err)
	}
	ok("state", "restore", "--state", state, "--yes", "--sessions", file)
	if entries, err := os.ReadDir(state + ".sessions"); err != nil || len(entries) == 0 {
		t.Errorf("no sessions: %v, %v", entries, err)
	}
	ok("state", "restore", "--state", state, "--yes", file) // the journal that is there stays
	golden(t, "state", said.String())
}

func TestStateJSON(t *testing.T) {
	k := startKeeper(t)
	file, state := filepath.Join(k.dir, "b"), filepath.Join(k.dir, "state.db")
	for _, args := range [][]string{{"--socket", k.socket, "state", "backup", file}, {"state", "show", file}} {
		r := command(t.Context(), "", append(args, "-o", "json")...)
		var c backup.Content
		if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || c.Sessions != 1 || c.Node != "upf-1" || c.Version != "v1.2.3" ||
			!c.Time.Equal(apitest.Started) || len(c.Resources) != 1 || c.Resources[0].Key != "added" {
			t.Errorf("%v: exit %d, %v: %s%s", args, r.code, err, r.stdout, r.stderr)
		}
	}
	for _, former := range []string{"", state + store.Before} {
		r := command(t.Context(), "", "state", "restore", "--state", state, "--yes", "-o", "json", file)
		var got backup.Result
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || got.State != state || got.Former != former || got.Resources != 1 || got.Sessions != 0 || got.LeftOut == "" {
			t.Errorf("exit %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
		}
	}
}

func TestStateRefuses(t *testing.T) {
	k := startKeeper(t)
	file, state := filepath.Join(k.dir, "b"), filepath.Join(k.dir, "state.db")
	backUp := []string{"--socket", k.socket, "state", "backup"}
	if r := command(t.Context(), "", append(backUp, file)...); r.code != cmdline.ExitOK {
		t.Fatal(r.stderr)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(k.dir, "bad")
	if err := os.WriteFile(bad, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := store.Open(state, slog.New(slog.DiscardHandler)) // as a daemon that runs
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	k.fail = errors.New("the disk of the journal fails")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"state", "show"}, cmdline.ExitUsage, "one FILE"},
		{[]string{"state", "show", filepath.Join(k.dir, "none")}, cmdline.ExitError, "none: no such file"},
		{[]string{"state", "show", bad}, cmdline.ExitError, "truncated or damaged"},
		{[]string{"state", "show", "state_test.go"}, cmdline.ExitError, "it is no backup of culvert"},
		{[]string{"state", "restore", "--state", filepath.Join(k.dir, "new.db"), bad}, cmdline.ExitError, "truncated or damaged"},
		{[]string{"state", "restore", "--state", state, "--yes", file}, cmdline.ExitError, "systemctl stop culvert\n  culvert state restore --state " + state + " " + file},
		{append(backUp, filepath.Join(k.dir, "none", "b")), cmdline.ExitError, "no such file or directory"},
		{append(backUp, file), cmdline.ExitError, "the disk of the journal fails"},
		{[]string{"--socket", filepath.Join(k.dir, "none.sock"), "state", "backup", file}, cmdline.ExitError, "no daemon at"},
	} {
		if r := command(t.Context(), "", tt.args...); r.code != tt.code || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("culvert %s: exit %d, want %d with %q: %s", strings.Join(tt.args, " "), r.code, tt.code, tt.want, r.stderr)
		}
	}
	// A backup that fails replaces nothing, and leaves nothing.
	if now, err := os.ReadFile(file); err != nil || string(now) != string(whole) {
		t.Errorf("the former backup is gone: %v", err)
	}
	if rest, err := filepath.Glob(filepath.Join(k.dir, ".b.*")); err != nil || len(rest) > 0 {
		t.Errorf("left: %v, %v", rest, err)
	}
	if _, err := os.Stat(filepath.Join(k.dir, "new.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a damaged backup was restored: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if r := command(t.Context(), "", "state", "restore", "--state", state, "-o", "json", file); r.code != cmdline.ExitUsage || !strings.Contains(r.stderr, "give --yes") {
		t.Errorf("a question in JSON: exit %d: %s", r.code, r.stderr)
	}
}
