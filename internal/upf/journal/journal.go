package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Journal is an open journal.
type Journal struct {
	dir  string
	boot []byte // the body of each file's first record

	mu         sync.Mutex
	generation int // N of the log that Append writes
	file       *os.File
	buffer     []byte
	size       int64 // of the log
	allocated  int64 // how long the log can become whatever else fills the disk
	live       int64 // of the log's snapshot
	owed       bool  // the log's snapshot could not be written
	closed     bool
	deletions  func() int // how many Delete records must always fit
}

// Open replays the records in dir, in the order in which they were written, and
// goes on with the last log. boot identifies this boot of the machine and the layout
// of the records. lost says why earlier records cannot be used: they are of another
// boot or layout, or damaged. replay has then seen some of them or none, and the
// journal is empty. A full disk is no error: Append tries again.
func Open(dir string, boot []byte, replay func(Record) error) (j *Journal, lost, err error) {
	j = &Journal{dir: dir, boot: boot, generation: 1, deletions: func() int { return 0 }}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, fmt.Errorf("session journal: %w", err)
	}
	generations, err := j.generations()
	if err != nil {
		return nil, nil, err
	}
	j.owed = len(generations) > 1
	for _, g := range generations {
		j.generation = g
		if lost = j.replay(g, replay); lost != nil {
			err = j.clear()
			break
		}
	}
	if err == nil {
		err = j.open(j.generation, j.size)
	}
	if err != nil && !errors.Is(err, ErrFull) {
		return nil, lost, err
	}
	return j, lost, nil
}

// clear removes all records.
func (j *Journal) clear() error {
	j.size, j.live = 0, 0
	return j.eachFile(func(n int, kind string) error { return os.Remove(j.path(n, kind)) })
}

// generations lists the generations to replay, oldest first: those from the last
// complete snapshot on.
func (j *Journal) generations() ([]int, error) {
	first := 0
	var out []int
	err := j.eachFile(func(n int, kind string) error {
		switch kind {
		case "new": // the process died while it wrote a snapshot
			return os.Remove(j.path(n, kind))
		case "snapshot":
			first = max(first, n)
		case "log":
			out = append(out, n)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(n int) bool { return n < first })
	if first > 0 && !slices.Contains(out, first) {
		out = append(out, first)
	}
	slices.Sort(out)
	return out, nil
}

func (j *Journal) path(generation int, kind string) string {
	return filepath.Join(j.dir, strconv.Itoa(generation)+"."+kind)
}

// replay reads a generation's snapshot, if there is one, and then its log. It sets
// how long they are.
func (j *Journal) replay(generation int, f func(Record) error) (err error) {
	j.live, err = j.replayFile(j.path(generation, "snapshot"), true, f)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		j.size, err = j.replayFile(j.path(generation, "log"), false, f)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// replayFile reads a file and returns where its last whole record ends. whole says
// that the file must be complete, as a snapshot is.
func (j *Journal) replayFile(path string, whole bool, f func(Record) error) (size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	fail := func(err error) (int64, error) { return 0, fmt.Errorf("%s: %w", path, err) }
	in := bufio.NewReaderSize(file, 1<<20)
	for {
		r, n, err := readRecord(in)
		switch {
		case !whole && (errors.Is(err, errTorn) || errors.Is(err, io.EOF)):
			return size, nil // nobody got an answer for an incomplete record
		case err != nil:
			return fail(err)
		case size == 0 && (r.Kind != header || string(r.Body) != string(j.boot)):
			return fail(errors.New("another boot or another version of culvert wrote it"))
		case r.Kind == end:
			return size + n, nil
		case size > 0:
			err = f(r)
		}
		if err != nil {
			return fail(err)
		}
		size += n
	}
}

// Append writes a record. Once it returns nil, killing the process does not lose
// the record. After ErrFull nothing is written.
func (j *Journal) Append(r Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.buffer = appendRecord(j.buffer[:0], r)
	if err := j.room(r.Kind, int64(len(j.buffer))); err != nil {
		return err
	}
	n, err := j.file.Write(j.buffer)
	if err != nil {
		if n > 0 { // the next record begins where this one did
			err = errors.Join(err, j.truncate())
		}
		return failed(err)
	}
	j.size += int64(n)
	return nil
}

// smallJournal is the size below which a log needs no new snapshot.
const smallJournal = 32 << 20

// Grown says that the log is longer than its snapshot, or lacks one: it is time to call Renew.
func (j *Journal) Grown() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.owed || j.size > max(smallJournal, j.live)
}

// Renew starts a log and writes its snapshot: the records that write passes to
// put. Records that others append meanwhile go to the new log, which a replay
// reads after the snapshot. If the snapshot fails, the next Renew writes it.
func (j *Journal) Renew(write func(put func(Record) error) error) error {
	if !j.owed {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	generation := j.generation
	size, err := j.snapshot(generation, write)
	j.mu.Lock()
	if j.owed = err != nil; !j.owed {
		j.live = size
	}
	j.mu.Unlock()
	if err != nil {
		return failed(err)
	}
	return j.eachFile(func(n int, kind string) error {
		if n < generation { // the snapshot replaces it
			return os.Remove(j.path(n, kind))
		}
		return nil
	})
}

// rotate has Append write to the next log. After an error it writes to the same one.
func (j *Journal) rotate() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	generation, file, size, allocated := j.generation, j.file, j.size, j.allocated
	if err := j.open(generation+1, 0); err != nil {
		err = errors.Join(err, os.Remove(j.path(generation+1, "log")))
		j.generation, j.file, j.size, j.allocated = generation, file, size, allocated
		return err
	}
	if file == nil {
		return nil
	}
	// What the old log kept free is free for the snapshot.
	return errors.Join(file.Truncate(size), file.Close())
}

func (j *Journal) snapshot(generation int, write func(func(Record) error) error) (size int64, err error) {
	temporary := j.path(generation, "new")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	var buffer []byte
	put := func(r Record) error {
		buffer = appendRecord(buffer[:0], r)
		size += int64(len(buffer))
		_, err := out.Write(buffer)
		return err
	}
	err = put(Record{Kind: header, Body: j.boot})
	if err == nil {
		err = write(put)
	}
	if err == nil {
		err = put(Record{Kind: end})
	}
	if err = errors.Join(err, out.Flush(), file.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(temporary)) // it may have filled the disk
	}
	return size, os.Rename(temporary, j.path(generation, "snapshot"))
}

// eachFile calls f for each file of the journal.
func (j *Journal) eachFile(f func(generation int, kind string) error) error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name, kind, _ := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(name); err == nil {
			errs = append(errs, f(n, kind))
		}
	}
	return errors.Join(errs...)
}

// Close closes the log. Append fails afterwards.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}
