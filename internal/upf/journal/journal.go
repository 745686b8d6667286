package journal

import (
	"bufio"
	"errors"
	"fmt"
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
	disk disk
	dir  string
	boot []byte // the body of each file's first record

	renewing sync.Mutex // locked before mu

	mu sync.Mutex
	log
	live      int64 // octets of the log's snapshot
	owed      bool  // the log's snapshot could not be written
	damaged   int   // files up to this generation have octets that are no record
	closed    bool
	buffer    []byte
	deletions func() int // how many Delete records must always fit
}

// log is the file that Append writes.
type log struct {
	generation int  // N
	file       file // nil: not open
	chain      chain
	size       int64 // of its records
	torn       bool  // there may be part of a record behind them
	failure    error // of the last Append
	allocated  int64 // how long it can become whatever else fills the disk
}

// Open replays the records in dir, in the order in which they were written, and
// goes on with the last log. boot identifies this boot of the machine and the layout
// of the records. The body of a record is valid until replay returns. replay gets a
// Damage record in place of each record that is lost. lost says why earlier records
// cannot be used: they are of another boot or layout, or so damaged that nobody
// knows which sessions they are about. replay has then seen some of them or none,
// and the journal is empty. A full disk is no error: Append tries again.
func Open(dir string, boot []byte, replay func(Record) error) (j *Journal, lost, err error) {
	return openOn(system{}, dir, boot, replay)
}

func openOn(d disk, dir string, boot []byte, replay func(Record) error) (j *Journal, lost, err error) {
	j = &Journal{disk: d, dir: dir, boot: boot, deletions: func() int { return 0 }}
	j.generation = 1
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
			j.generation = generations[len(generations)-1]
			if err := j.clear(errors.Is(lost, errOther)); err != nil {
				return nil, lost, fmt.Errorf("session journal: %w", err)
			}
			break
		}
	}
	if err := j.open(j.log); err != nil && !errors.Is(err, ErrFull) {
		return nil, lost, err
	}
	return j, lost, nil
}

// clear removes all records. Of ours the next start must not find some: an empty
// snapshot replaces them at once, unless there is no room.
func (j *Journal) clear(others bool) error {
	j.log, j.live, j.owed = log{generation: j.generation + 1}, 0, false
	if !others {
		_, err := j.snapshot(j.generation, func(func(Record) error) error { return nil })
		if err == nil {
			_ = j.retire(j.generation) // nobody reads them any more; the next Renew tries again
			return nil
		}
		if !errors.Is(failed(err), ErrFull) {
			return err
		}
	}
	return j.retire(j.generation)
}

// retire removes the files of the generations before one. Damaged ones it keeps
// under another name, in place of those of the last time.
func (j *Journal) retire(before int) error {
	const kept = "damaged-"
	entries, err := j.disk.list(j.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if j.damaged > 0 && strings.HasPrefix(e.Name(), kept) {
			err = errors.Join(err, j.disk.remove(filepath.Join(j.dir, e.Name())))
		}
	}
	err = errors.Join(err, j.eachFile(func(n int, kind string) error {
		path := j.path(n, kind)
		if n >= before || n <= j.damaged && j.disk.rename(path, filepath.Join(j.dir, kept+filepath.Base(path))) == nil {
			return nil
		}
		return j.disk.remove(path)
	}))
	if err == nil {
		j.damaged = 0
	}
	return err
}

// generations lists the generations to replay, oldest first: those from the last
// complete snapshot on.
func (j *Journal) generations() ([]int, error) {
	first := 0
	var out []int
	err := j.eachFile(func(n int, kind string) error {
		switch kind {
		case "new": // the process died while it wrote a snapshot
			return j.disk.remove(j.path(n, kind))
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
	snapshot, err := j.replayFile(j.path(generation, "snapshot"), f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		snapshot = reader{}
	case err != nil:
		return err
	case !snapshot.complete && snapshot.size-snapshot.end != recordHead: // which the last record has
		return fmt.Errorf("%s: %w", snapshot.path, snapshot.unknown(snapshot.end, snapshot.size))
	}
	j.live = snapshot.end
	records, err := j.replayFile(j.path(generation, "log"), f)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		j.size, j.chain = records.end, records.chain
		return nil
	}
	return err
}

// replayFile reads a file of the generation that replay has got to.
func (j *Journal) replayFile(path string, f func(Record) error) (reader, error) {
	file, err := j.disk.open(path, os.O_RDONLY)
	if err != nil {
		return reader{}, err
	}
	defer file.Close()
	r := reader{file: file, path: path, boot: j.boot, replay: f}
	info, err := file.Stat()
	if err == nil {
		r.size = info.Size()
		err = r.read()
	}
	if r.damaged || err != nil && !errors.Is(err, errOther) {
		j.damaged = j.generation
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return r, err
}

// Append writes a record. Once it returns nil, killing the process does not lose
// the record. After an error nothing is written.
func (j *Journal) Append(r Record) error {
	if len(r.Body) > maxBody {
		return fmt.Errorf("session journal: a record of %d octets is too long", len(r.Body))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room(r.Kind, int64(recordHead+len(r.Body))); err != nil {
		return err
	}
	next := j.chain
	j.buffer = next.append(j.buffer[:0], r)
	n, err := j.file.Write(j.buffer)
	if err != nil { // the next record begins where this one did
		j.torn = true
		j.failure = failed(errors.Join(err, j.truncate()))
		return j.failure
	}
	j.failure = nil
	j.size += int64(n)
	j.chain = next
	return nil
}

// smallJournal is the size below which a log needs no new snapshot.
const smallJournal = 32 << 20

// Grown says that the log is longer than its snapshot, lacks one, or is damaged: it
// is time to call Renew.
func (j *Journal) Grown() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.owed || j.damaged > 0 || j.size > max(smallJournal, j.live)
}

// Renew starts a log and writes its snapshot: the records that write passes to
// put. Records that others append meanwhile go to the new log, which a replay
// reads after the snapshot. If the snapshot fails, the next Renew writes it.
func (j *Journal) Renew(write func(put func(Record) error) error) error {
	j.renewing.Lock()
	defer j.renewing.Unlock()
	generation, err := j.rotate()
	if err != nil {
		return err
	}
	size, err := j.snapshot(generation, write)
	if err != nil {
		return failed(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live, j.owed = size, false
	return failed(j.retire(generation)) // the snapshot replaces them
}

// rotate has Append write to the next log, unless it already writes to one that is
// owed its snapshot. After an error it may write to the same one as before.
func (j *Journal) rotate() (generation int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.owed && j.generation > j.damaged {
		return j.generation, nil
	}
	old := j.log
	if err := j.whole(); err != nil {
		return 0, err
	}
	if err := j.open(log{generation: old.generation + 1}); err != nil {
		j.log = old
		return 0, errors.Join(err, j.disk.remove(j.path(old.generation+1, "log")))
	}
	j.owed = true
	if old.file != nil { // what the old log kept free is free for the snapshot
		err = failed(errors.Join(old.file.Truncate(old.size), old.file.Close()))
	}
	return j.generation, err
}

func (j *Journal) snapshot(generation int, write func(func(Record) error) error) (size int64, err error) {
	temporary := j.path(generation, "new")
	file, err := j.disk.open(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	var buffer []byte
	c := newChain(j.boot)
	put := func(r Record) error {
		buffer = c.append(buffer[:0], r)
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
	if err = errors.Join(err, out.Flush(), file.Close()); err == nil {
		err = j.disk.rename(temporary, j.path(generation, "snapshot"))
	}
	if err != nil {
		return 0, errors.Join(err, j.disk.remove(temporary)) // it may have filled the disk
	}
	return size, nil
}

// eachFile calls f for each file of the journal.
func (j *Journal) eachFile(f func(generation int, kind string) error) error {
	entries, err := j.disk.list(j.dir)
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
