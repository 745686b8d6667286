package journal

import (
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// disk is the file system. Tests put one in its place whose calls fail.
type disk interface {
	open(path string, flags int) (file, error)
	rename(from, to string) error
	remove(path string) error
	list(dir string) ([]fs.DirEntry, error)
}

// file is an open file.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	// reserve keeps room for n octets from an offset on.
	reserve(at, n int64) error
}

type system struct{}

func (system) open(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (system) rename(from, to string) error           { return os.Rename(from, to) }
func (system) remove(path string) error               { return os.Remove(path) }
func (system) list(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

type systemFile struct{ *os.File }

func (f systemFile) reserve(at, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, n)
}
