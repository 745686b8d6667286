package instance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrBusy says that an instance is somebody else's at the moment.
var ErrBusy = errors.New("another command is working on lab")

// lockName makes this process the only one that works on the name.
func (in *Instance) lockName() error {
	if err := os.MkdirAll(StateDir, 0o755); err != nil {
		return err
	}
	for {
		f, err := os.OpenFile(in.Dir()+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = fmt.Errorf("%w %s: wait for it, or choose another name with --as", ErrBusy, in.Name)
			}
			return errors.Join(err, f.Close())
		}
		// Whoever held the lock before may have removed the file: then this
		// is a lock on nothing.
		mine, err1 := f.Stat()
		named, err2 := os.Stat(in.Dir() + ".lock")
		if err1 == nil && err2 == nil && os.SameFile(mine, named) {
			in.lock = f
			return nil
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// Close gives the name free. Directories that are empty by now are removed.
func (in *Instance) Close() error {
	err := errors.Join(os.Remove(in.Dir()+".lock"), in.lock.Close())
	for _, dir := range []string{StateDir, filepath.Dir(StateDir)} {
		if os.Remove(dir) != nil {
			break // in use
		}
	}
	return err
}
