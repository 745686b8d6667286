package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/agent/backup"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/config"
)

// backedUp writes a backup of a daemon to a file and opens it.
func backedUp(t *testing.T, d *daemon) (path string, f *backup.File) {
	t.Helper()
	var b bytes.Buffer
	if err := Backup(t.Context(), d.Agent, &b); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, readBackup(t, path)
}

func readBackup(t *testing.T, path string) *backup.File {
	t.Helper()
	f, err := backup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A restore brings the resources back; a daemon that runs keeps it from doing so, and
// what is added after the backup is in the former file.
func TestBackupAndRestore(t *testing.T) {
	d := prepareUserPlane(t, t.TempDir(), byGTPU, newFake()).start(t, links("eth0", "eth1"))
	c := dial(t)
	if _, err := c.Associate(t.Context()); err != nil {
		t.Fatal(err)
	}
	established(t, c)
	_, f := backedUp(t, d)
	if f.Sessions != 1 || len(f.Resources) != 0 {
		t.Errorf("sessions %d, resources %v", f.Sessions, f.Resources)
	}
	state := filepath.Join(d.dir, "state.db")
	if _, err := f.Restore(state, false); !errors.Is(err, store.ErrHeld) {
		t.Errorf("with a daemon: %v", err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	// The journal that is there is later than the backup.
	r, err := f.Restore(state, false)
	if err != nil || r.Sessions != 0 || !strings.Contains(r.LeftOut, "later sessions") || r.Former == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := f.Restore(state, true); err == nil || !strings.Contains(err.Error(), "--sessions") {
		t.Errorf("over later sessions: %v", err)
	}
	// Where all is lost, sessions come back only if somebody says so.
	elsewhere := t.TempDir()
	if r, err := f.Restore(filepath.Join(elsewhere, "a", "state.db"), false); err != nil || r.Sessions != 0 || r.LeftOut == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := f.Restore(filepath.Join(elsewhere, "state.db"), true); err != nil || r.Sessions != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	next := prepareUserPlane(t, elsewhere, byGTPU, newFake()).start(t, links("eth0", "eth1"))
	if list, n, err := next.Sessions(SessionFilter{}); err != nil || n != 1 || len(list) != 1 {
		t.Errorf("the next daemon has %v, %v", list, err)
	}
}

// Any octet that differs, and any that is missing, is found.
func TestDamagedBackup(t *testing.T) {
	path, f := backedUp(t, start(t))
	if f.Journal != "" {
		t.Errorf("a gateway has a journal %q", f.Journal)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	state := filepath.Join(filepath.Dir(bad), "state.db")
	refused := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := backup.Open(bad)
		if err == nil {
			f.Close()
			t.Errorf("%s is read", what)
		}
	}
	for at := 0; at < len(whole); at += 97 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x10
		refused("a damaged one", damaged)
		refused("a truncated one", whole[:at])
	}
	refused("a longer one", append(bytes.Clone(whole), 0))
	refused("a text", []byte("policies: []\n"))
	if _, err := os.Stat(state); err == nil {
		t.Error("something was restored")
	}
}

// A backup that is made while resources come has a prefix of them, and a restore
// brings back exactly these.
func TestBackupUnderChanges(t *testing.T) {
	d := start(t)
	name := func(i int) string { return fmt.Sprintf("added-%03d", i) }
	const all, before = 60, 10
	add, begun := make(chan error, 1), make(chan struct{})
	go func() {
		for i := range all {
			if i == before {
				close(begun)
			}
			c, err := config.Decode(fmt.Appendf(nil, "policies: [{name: %s, segment_lists: [{segments: ['fc00:9::1']}]}]", name(i)))
			if err == nil {
				_, err = d.Add(t.Context(), c)
			}
			if err != nil {
				add <- err
				return
			}
		}
		add <- nil
	}()
	select {
	case <-begun:
	case err := <-add:
		t.Fatal(err)
	}
	_, f := backedUp(t, d)
	if err := <-add; err != nil {
		t.Fatal(err)
	}
	if len(f.Resources) < before {
		t.Errorf("%d resources are in the backup, of which %d were there before", len(f.Resources), before)
	}
	for i, r := range f.Resources {
		if r.Key != name(i) {
			t.Fatalf("resource %d is %s: not of one moment", i, r)
		}
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Restore(filepath.Join(d.dir, "state.db"), false); err != nil {
		t.Fatal(err)
	}
	next := prepare(t, d.dir, gateway, newFake()).start(t, links("eth0", "eth1"))
	n := 0
	for _, p := range next.Running().Policies {
		if strings.HasPrefix(p.Name, "added-") {
			n++
		}
	}
	if n != len(f.Resources) {
		t.Errorf("the next daemon has %d of %d", n, len(f.Resources))
	}
}

// Starts leave no file behind: neither in the state directory nor in the journal's.
func TestStartsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	var first []string
	for n := range 4 {
		d := prepareUserPlane(t, dir, byGTPU, newFake()).start(t, links("eth0", "eth1"))
		if n == 0 {
			c := dial(t)
			if _, err := c.Associate(t.Context()); err != nil {
				t.Fatal(err)
			}
			established(t, c)
		}
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		var files []string
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			files = append(files, path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = files
		}
		if !slices.Equal(files, first) {
			t.Errorf("start %d: %v, the first had %v", n, files, first)
		}
	}
}
