package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/culvert-net/culvert/internal/agent/desired"
)

// ErrHeld says that a daemon runs with the state file.
var ErrHeld = errors.New("a daemon holds the state file")

// Before is behind the name of what Restore keeps.
const Before = ".before"

// brief is how long Read and Restore wait for the file.
const brief = 100 * time.Millisecond

// Read calls f with the resources of the API in a state file, and their transaction.
func Read(path string, f func(tx *bbolt.Tx, api []desired.Resource) error) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: brief})
	if err != nil {
		return fmt.Errorf("state file %s: %w", path, held(err))
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if err := checkLayout(tx); err != nil {
			return err
		}
		api, err := resourcesOf(tx)
		if err != nil {
			return err
		}
		return f(tx, api)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("state file %s: %w", path, err)
	}
	return nil
}

// Check returns ErrHeld if a daemon runs with the state file. there says whether there
// is one.
func Check(path string) (there bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: brief})
	if err == nil {
		return true, db.Close()
	}
	if err = held(err); errors.Is(err, ErrHeld) {
		return true, err
	}
	return true, nil // Restore moves a damaged one away
}

func held(err error) error {
	if errors.Is(err, berrors.ErrTimeout) {
		return ErrHeld
	}
	return err
}

func checkLayout(tx *bbolt.Tx) error {
	b := tx.Bucket(versionBucket)
	if b == nil {
		return errors.New("it is no state file of culvert")
	}
	if found := string(b.Get(versionKey)); found != layout {
		return fmt.Errorf("it has layout %q, this culvert knows %s: use the culvert that wrote it", found, layout)
	}
	return nil
}

// Restore has the state file at path hold the resources of the API, and the
// configuration that was applied, of another state file. The rest of it stays. It is
// one transaction: all, or nothing. The former file is kept as path.before; a damaged one,
// too, and a new one takes its place.
func Restore(path string, from *bbolt.Tx) error {
	db, err := openFormer(path)
	if err != nil {
		return fmt.Errorf("state file %s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(versionBucket) == nil {
			if err := copyBucket(tx, from, versionBucket); err != nil {
				return err
			}
		} else if err := checkLayout(tx); err != nil {
			return err
		}
		for _, kind := range desired.Kinds {
			if err := copyBucket(tx, from, []byte(kind)); err != nil {
				return err
			}
		}
		return copyBucket(tx, from, appliedBucket)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("state file %s: %w", path, err)
	}
	return nil
}

// openFormer opens the state file and keeps a copy of it, or makes one.
func openFormer(path string) (*bbolt.DB, error) {
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: brief})
	if err = held(err); errors.Is(err, ErrHeld) {
		return nil, err
	}
	if damaged(err) && !isNew {
		if err := os.Rename(path, path+Before); err != nil {
			return nil, err
		}
		return bbolt.Open(path, 0o600, &bbolt.Options{Timeout: brief})
	}
	if err != nil || isNew {
		return db, err
	}
	err = db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path+Before, 0o600) })
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// copyBucket replaces a bucket by that of another file.
func copyBucket(to, from *bbolt.Tx, name []byte) error {
	if err := to.DeleteBucket(name); err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
		return err
	}
	source := from.Bucket(name)
	if source == nil {
		return nil
	}
	b, err := to.CreateBucket(name)
	if err != nil {
		return err
	}
	return source.ForEach(b.Put)
}
