package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"go.etcd.io/bbolt"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/store"
	"github.com/culvert-net/culvert/internal/upf/journal"
)

// Content is what is in a backup.
type Content struct {
	Info
	Resources []desired.Ref `json:"resources"`
	Sessions  int           `json:"sessions"`
}

// File is a backup that was checked as a whole.
type File struct {
	Content
	path string
	dir  string // of its parts, which Close removes
}

var (
	errForeign  = errors.New("it is no backup of culvert")
	errDamaged  = errors.New("it is truncated or damaged: its checksum differs; use another copy")
	journalFile = regexp.MustCompile(`^sessions/[0-9]{1,9}\.(snapshot|log)$`)
)

// maxInfo bounds culvert-backup.json.
const maxInfo = 1 << 16

// Open checks a backup, and says what is in it. Close follows.
func Open(path string) (*File, error) {
	f := &File{path: path}
	err := f.open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	return f, nil
}

// Close removes what Open made.
func (f *File) Close() error {
	if f.dir == "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

func (f *File) open() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := checkSum(file); err != nil {
		return err
	}
	if f.dir, err = os.MkdirTemp("", "culvert-backup-"); err != nil {
		return err
	}
	if err := os.Mkdir(f.journal(), 0o700); err != nil {
		return err
	}
	if err := f.extract(tar.NewReader(file)); err != nil {
		return err
	}
	return f.look()
}

func (f *File) state() string   { return filepath.Join(f.dir, stateName) }
func (f *File) journal() string { return filepath.Join(f.dir, journalName) }

// checkSum checks that a file is a backup, and whole. Then it is read from its start.
func checkSum(file *os.File) error {
	name := make([]byte, len(infoName)+1)
	if _, err := io.ReadFull(file, name); err != nil || string(name) != infoName+"\x00" {
		return errForeign
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	end, err := ending(make([]byte, sha256.Size))
	if err != nil {
		return err
	}
	body := info.Size() - int64(len(end))
	if body < int64(len(name)) {
		return errDamaged
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, body)); err != nil {
		return err
	}
	found := make([]byte, len(end))
	if _, err := file.ReadAt(found, body); err != nil {
		return err
	}
	if end, err = ending(sum.Sum(nil)); err != nil {
		return err
	}
	if !bytes.Equal(end, found) {
		return errDamaged
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// extract writes the parts to the directory.
func (f *File) extract(in *tar.Reader) error {
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case h.Name == infoName:
			text, err := io.ReadAll(io.LimitReader(in, maxInfo))
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, &f.Info); err != nil {
				return fmt.Errorf("%s: %w", infoName, err)
			}
			if f.Format != Format {
				return fmt.Errorf("its format is %d, this culvert knows %d: use culvert %s, which made it", f.Format, Format, f.Version)
			}
		case h.Typeflag == tar.TypeReg && (h.Name == stateName || journalFile.MatchString(h.Name)):
			if err := writeFile(filepath.Join(f.dir, filepath.FromSlash(h.Name)), in); err != nil {
				return err
			}
		case h.Name == sumName:
		default:
			return fmt.Errorf("it has a part %q, which no backup of culvert has", h.Name)
		}
	}
}

func writeFile(path string, r io.Reader) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Sync(), out.Close())
}

// look reads all parts, as a daemon would.
func (f *File) look() error {
	if _, err := os.Stat(f.state()); err != nil {
		return fmt.Errorf("it has no %s", stateName)
	}
	f.Resources = []desired.Ref{}
	err := store.Read(f.state(), func(_ *bbolt.Tx, api []desired.Resource) error {
		for _, r := range api {
			f.Resources = append(f.Resources, r.Ref)
		}
		return nil
	})
	if err != nil || f.Journal == "" {
		return err
	}
	known := map[uint64]bool{}
	damaged := false
	j, lost, err := journal.Open(f.journal(), []byte(f.Journal), func(r journal.Record) error {
		switch r.Kind {
		case journal.Session:
			known[r.SEID] = true
		case journal.Delete:
			delete(known, r.SEID)
		case journal.Damage:
			damaged = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	if lost != nil || damaged {
		return errors.Join(errors.New("the sessions in it are damaged"), lost)
	}
	f.Sessions = len(known)
	return nil
}
