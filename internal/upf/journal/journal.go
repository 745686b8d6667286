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
	live       int64 // of the log's snapshot
}

// Open replays the records in dir, in the order in which they were written, and
// starts a new log. boot identifies this boot of the machine and the layout of
// the records. lost says why earlier records cannot be used: they are of another
// boot or layout, or damaged. replay has then seen some of them or none.
func Open(dir string, boot []byte, replay func(Record) error) (j *Journal, lost, err error) {
	j = &Journal{dir: dir, boot: boot}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, fmt.Errorf("session journal: %w", err)
	}
	generations, err := j.generations()
	if err != nil {
		return nil, nil, err
	}
	for _, g := range generations {
		j.generation = g
		if lost = j.replay(g, replay); lost != nil {
			break
		}
	}
	return j, lost, j.rotate()
}

// generations lists the generations to replay, oldest first: those from the last
// complete snapshot on.
func (j *Journal) generations() ([]int, error) {
	first := 0
	var out []int
	err := j.eachFile(func(n int, kind string) error {
		switch kind {
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

// replay reads a generation's snapshot, if there is one, and then its log.
func (j *Journal) replay(generation int, f func(Record) error) error {
	for _, kind := range []string{"snapshot", "log"} {
		err := j.replayFile(j.path(generation, kind), kind == "snapshot", f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// replayFile reads a file. whole says that it must be complete, as a snapshot is.
func (j *Journal) replayFile(path string, whole bool, f func(Record) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	fail := func(err error) error { return fmt.Errorf("%s: %w", path, err) }
	in := bufio.NewReaderSize(file, 1<<20)
	for first := true; ; first = false {
		r, err := readRecord(in)
		switch {
		case !whole && (errors.Is(err, errTorn) || errors.Is(err, io.EOF)):
			return nil // nobody got an answer for an incomplete record
		case err != nil:
			return fail(err)
		case first && (r.Kind != header || string(r.Body) != string(j.boot)):
			return fail(errors.New("another boot or another version of culvert wrote it"))
		case first:
			continue
		case r.Kind == end:
			return nil
		}
		if err := f(r); err != nil {
			return fail(err)
		}
	}
}

// Append writes a record. Once it returns nil, killing the process does not lose
// the record.
func (j *Journal) Append(r Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return errors.New("session journal: it is closed")
	}
	j.buffer = appendRecord(j.buffer[:0], r)
	n, err := j.file.Write(j.buffer)
	if err != nil {
		if n > 0 { // the next record begins where this one did
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return fmt.Errorf("session journal: %w", err)
	}
	j.size += int64(n)
	return nil
}

// smallJournal is the size below which a log needs no new snapshot.
const smallJournal = 32 << 20

// Grown says that the log is longer than its snapshot: it is time to call Renew.
func (j *Journal) Grown() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size > max(smallJournal, j.live)
}

// Renew starts a log and writes its snapshot: the records that write passes to
// put. Records that others append meanwhile go to the new log, which a replay
// reads after the snapshot.
func (j *Journal) Renew(write func(put func(Record) error) error) error {
	if err := j.rotate(); err != nil {
		return err
	}
	generation := j.generation
	size, err := j.snapshot(generation, write)
	if err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	j.mu.Lock()
	j.live = size
	j.mu.Unlock()
	return j.eachFile(func(n int, kind string) error {
		if n < generation { // the snapshot replaces it
			return os.Remove(j.path(n, kind))
		}
		return nil
	})
}

// rotate has Append write to the next log.
func (j *Journal) rotate() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	next := j.generation + 1
	file, err := os.OpenFile(j.path(next, "log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	head := appendRecord(nil, Record{Kind: header, Body: j.boot})
	_, err = file.Write(head)
	if err == nil && j.file != nil {
		err = j.file.Close()
	}
	if err != nil {
		return fmt.Errorf("session journal: %w", errors.Join(err, file.Close()))
	}
	j.generation, j.file, j.size = next, file, int64(len(head))
	return nil
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
		return 0, err
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
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}
