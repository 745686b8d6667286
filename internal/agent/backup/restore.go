package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/store"
	sessions "github.com/culvert-net/culvert/internal/upf/store"
)

// Result says what Restore did.
type Result struct {
	State     string `json:"state"`
	Former    string `json:"former,omitempty"` // what was in the place of State
	Resources int    `json:"resources"`
	Sessions  int    `json:"sessions"` // that came back
	// LeftOut says why sessions of the backup did not come back.
	LeftOut string `json:"left_out,omitempty"`
}

// Restore writes a backup to the state file at path, and beside it. No daemon may use
// it (store.ErrHeld). A backup that cannot be used changes nothing.
//
// With withSessions the sessions come back, too, with their Recovery Time Stamp. It
// promises SMFs that nothing of what they were answered is lost (TS 29.244 clause
// 8.2.65, TS 23.527). So there must be no later journal, and it must be of this boot,
// whose tables have what was forwarded. Without them the next daemon makes a new stamp
// if it finds no journal, and SMFs set their sessions up again.
func (f *File) Restore(path string, withSessions bool) (*Result, error) {
	if _, err := store.Check(path); err != nil {
		return nil, err
	}
	out := &Result{State: path, Resources: len(f.Resources)}
	dir := path + ".sessions"
	why, err := f.whyNot(dir, withSessions)
	if err != nil {
		return nil, err
	}
	if withSessions && why != "" {
		return nil, fmt.Errorf("--sessions: %s", why)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	undo := func() error { return nil }
	if withSessions {
		if err := f.restoreJournal(dir); err != nil {
			return nil, err
		}
		undo = func() error { return undoJournal(dir) }
		out.Sessions = f.Sessions
	} else if f.Sessions > 0 {
		out.LeftOut = why
	}
	there, err := store.Check(path)
	if err == nil {
		err = store.Read(f.state(), func(tx *bbolt.Tx, _ []desired.Resource) error { return store.Restore(path, tx) })
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	if there {
		out.Former = path + store.Before
	}
	return out, nil
}

// whyNot says why sessions stay out; empty: they need not.
func (f *File) whyNot(dir string, asked bool) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	switch {
	case f.Journal == "":
		return "the backup has no sessions: its daemon was no user plane function", nil
	case len(entries) > 0:
		return dir + " has later sessions, which stay", nil
	case f.Journal != sessions.Header():
		return "the sessions are of another boot of the machine, or of another culvert: the data path lacks what they had used, and SMFs set them up again", nil
	case !asked:
		return "SMFs may have changed them since, and will set them up again: --sessions brings them back if you know that none did", nil
	}
	return "", nil
}

// restoreJournal writes the journal, under another name until it is whole. The stamp
// beside it would be of later sessions.
func (f *File) restoreJournal(dir string) error {
	next := dir + ".new"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	err := os.CopyFS(next, os.DirFS(f.journal()))
	if err == nil {
		err = os.Chmod(next, 0o750)
	}
	if err == nil {
		err = os.Remove(dir) // it is empty, if it is there
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(next))
	}
	if err := renameIf(stampOf(dir), stampOf(dir)+store.Before); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// undoJournal goes back to before restoreJournal, when there was no journal.
func undoJournal(dir string) error {
	return errors.Join(os.RemoveAll(dir), renameIf(stampOf(dir)+store.Before, stampOf(dir)))
}

// stampOf is where the Recovery Time Stamp of a journal is.
func stampOf(dir string) string { return strings.TrimSuffix(dir, ".sessions") + ".recovery" }

// renameIf renames a file, if there is one.
func renameIf(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
