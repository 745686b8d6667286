package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Limits of an archive unless Options say otherwise.
const (
	mostBytes     = 64 << 20 // of all files, before compression
	mostItemBytes = 16 << 20
	itemTime      = 10 * time.Second
	wholeTime     = 3 * time.Minute
)

// Item collects one file.
type Item struct {
	Name string // of the file, below the archive's directory
	// Collect returns a string or []byte, which is text, or a value, which becomes JSON.
	// With an error it may return what there is all the same.
	// It returns soon after ctx ends; if not, its result is ignored.
	Collect func(ctx context.Context) (any, error)
}

// Options say how items become an archive.
type Options struct {
	Version string
	Time    time.Time
	Host    string
	Note    string    // what a reader has to know first, such as that the daemon is dead
	Mask    *Mask     // nil: identities stay
	Notes   io.Writer // where progress goes
	// ItemTime, ItemBytes, Bytes are limits; 0: the defaults.
	ItemTime  time.Duration
	ItemBytes int
	Bytes     int
}

// Manifest says what is in an archive.
type Manifest struct {
	Archive string    `json:"archive"`
	Version string    `json:"version"`
	Host    string    `json:"host"`
	Time    time.Time `json:"time"`
	Masked  bool      `json:"masked"` // addresses and identities of subscribers are placeholders
	Note    string    `json:"note,omitempty"`
	Items   []Result  `json:"items"`
}

// Result is what became of an item.
type Result struct {
	Name      string `json:"name"`
	Bytes     int    `json:"bytes"`
	Truncated bool   `json:"truncated,omitempty"` // the end is missing, because of a limit
	Error     string `json:"error,omitempty"`     // why it, or a part of it, is missing
}

// Failed counts the items that are missing, or of which a part is.
func (m *Manifest) Failed() (n int) {
	for _, r := range m.Items {
		if r.Error != "" {
			n++
		}
	}
	return n
}

// file is where an archive is written before it has its name.
type file interface {
	io.WriteCloser
	Name() string
}

// Write collects the items, one after the other, into a new archive at path with mode
// 0600. It returns an error, and leaves no file, if the archive cannot be written, if
// path exists, or if ctx ends.
func Write(ctx context.Context, path string, items []Item, o Options) (Manifest, error) {
	return write(ctx, path, items, o, func(dir string) (file, error) { return os.CreateTemp(dir, ".culvert-support-*") })
}

func write(ctx context.Context, path string, items []Item, o Options, create func(dir string) (file, error)) (m Manifest, err error) {
	if _, err := os.Lstat(path); err == nil {
		return m, fmt.Errorf("%s exists: name another file with --output", path)
	}
	f, err := create(filepath.Dir(path)) // mode 0600
	if err != nil {
		return m, fmt.Errorf("cannot write %s: %w: name a file in another directory with --output", path, cause(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	m, err = pack(ctx, f, path, items, o)
	closed := f.Close()
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case err == nil:
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return m, fmt.Errorf("cannot write %s: %w: name a file on another disk with --output", path, cause(err))
	}
	return m, nil
}

// cause is an error without the name of the temporary file.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func pack(ctx context.Context, w io.Writer, path string, items []Item, o Options) (Manifest, error) {
	setDefaults(&o)
	m := Manifest{Archive: path, Version: o.Version, Host: o.Host, Time: o.Time, Masked: o.Mask != nil, Note: o.Mask.Text(o.Note), Items: []Result{}}
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	add := func(name string, data []byte) error {
		h := &tar.Header{Name: "culvert-support/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: o.Time, Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err := archive.Write(data)
		return err
	}
	whole, cancel := context.WithTimeout(ctx, wholeTime)
	defer cancel()
	for i, item := range items {
		data, r := collect(whole, item, &o)
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
		state := fmt.Sprintf("%d bytes", r.Bytes)
		if r.Error != "" {
			state = r.Error
		}
		if r.Error == "" || r.Bytes > 0 {
			if err := add(item.Name, data); err != nil {
				return m, err
			}
		}
		fmt.Fprintf(o.Notes, "[%d/%d] %s: %s\n", i+1, len(items), item.Name, state)
		m.Items, o.Bytes = append(m.Items, r), o.Bytes-r.Bytes
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	return m, errors.Join(add("manifest.json", append(data, '\n')), archive.Close(), zipped.Close())
}

func setDefaults(o *Options) {
	if o.ItemTime == 0 {
		o.ItemTime = itemTime
	}
	if o.ItemBytes == 0 {
		o.ItemBytes = mostItemBytes
	}
	if o.Bytes == 0 {
		o.Bytes = mostBytes
	}
	if o.Notes == nil {
		o.Notes = io.Discard
	}
}

type answer struct {
	value any
	err   error
}

// collect returns an item's file, masked and cut to what there is room for.
func collect(ctx context.Context, item Item, o *Options) ([]byte, Result) {
	r := Result{Name: item.Name}
	limited, cancel := context.WithTimeoutCause(ctx, o.ItemTime, fmt.Errorf("no answer within %s", o.ItemTime))
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		value, err := item.Collect(limited)
		done <- answer{value, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-limited.Done():
		a.err = context.Cause(limited)
	}
	text, err := masked(a.value, o.Mask)
	if err = errors.Join(a.err, err); err != nil {
		r.Error = o.Mask.Text(err.Error())
	}
	if room := min(o.ItemBytes, o.Bytes); len(text) > room {
		text, r.Truncated = text[:max(room, 0)], true
	}
	r.Bytes = len(text)
	return []byte(text), r
}

func masked(v any, m *Mask) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return m.Text(v), nil
	case []byte:
		return m.Text(string(v)), nil
	}
	data, err := json.MarshalIndent(v, "", "  ")
	return m.JSON(string(data) + "\n"), err
}
