package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Part is what a file of the journal had at a moment. It stays readable while the
// journal goes on.
type Part struct {
	Name string
	Size int64
	file file
}

// Reader reads the part from its start.
func (p *Part) Reader() io.Reader { return io.NewSectionReader(p.file, 0, p.Size) }

// Close closes the part.
func (p *Part) Close() error { return p.file.Close() }

// Mark returns the files that have all records of now, and none that is appended
// later: a replay of copies of them finds the journal as it is at this moment.
func (j *Journal) Mark() (parts []*Part, err error) {
	j.renewing.Lock() // else a file could go before it is open
	defer j.renewing.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	defer func() {
		if err != nil {
			for _, p := range parts {
				_ = p.Close() // it was only read
			}
			parts = nil
		}
	}()
	generations, err := j.generations()
	if err != nil {
		return nil, err
	}
	for _, g := range generations {
		for _, kind := range []string{"snapshot", "log"} {
			p, err := j.part(g, kind)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return parts, failed(err)
			}
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// part opens a file as it is now. Behind the last record of the log that Append
// writes there may be a part of one, which no caller has an answer about.
func (j *Journal) part(generation int, kind string) (*Part, error) {
	path := j.path(generation, kind)
	f, err := j.disk.open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	size := info.Size()
	if kind == "log" && generation == j.generation {
		size = min(size, j.size)
	}
	return &Part{Name: filepath.Base(path), Size: size, file: f}, nil
}
