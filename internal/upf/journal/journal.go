package upf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// journal is what survives the process: an append-only file of records, and a
// snapshot that says what was before it. A record is in the kernel's page cache
// before the caller goes on, which a kill of the daemon does not touch; what is
// behind a reboot counts as lost (docs/adr/0008-session-journal.md).
//
// In the directory are N.snapshot and N.log for one N, or, when a snapshot was
// being made, N.log and N+1.log.
type journal struct {
	dir string

	mu         sync.Mutex
	generation int
	file       *os.File
	buffer     []byte
	size       int64 // of the log
	live       int64 // of the snapshot that it goes with
}

// recordKind is what a record says.
type recordKind uint8

const (
	recordHeader  recordKind = iota // which boot, and which layout
	recordSession                   // a session and its usage
	recordUsage                     // its usage
	recordTaken                     // the SMF has taken the pending reports
	recordDelete
	recordState // of the N4 server
	recordSlice // the index of a slice
	recordEnd   // the snapshot is whole
)

// record is one entry of the journal.
type record struct {
	kind recordKind
	seid uint64
	body []byte
}

const (
	recordHead = 8 // length, CRC-32C
	maxRecord  = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendRecord(b []byte, r record) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(r.kind))
	b = binary.AppendUvarint(b, r.seid)
	b = append(b, r.body...)
	payload := b[at+recordHead:]
	binary.LittleEndian.PutUint32(b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(b[at+4:], crc32.Checksum(payload, castagnoli))
	return b
}

// errTorn is the end of a file whose last record was not written to its end.
var errTorn = errors.New("the last record is not whole")

// readRecord reads the next one: io.EOF at the end, errTorn for a last one that
// is not whole.
func readRecord(r *bufio.Reader) (record, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errTorn
		}
		return record{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > maxRecord {
		return record{}, errRecord
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return record{}, errTorn
	}
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return record{}, errRecord
	}
	seid, used := binary.Uvarint(payload[1:])
	if used <= 0 {
		return record{}, errRecord
	}
	return record{recordKind(payload[0]), seid, payload[1+used:]}, nil
}

// openJournal reads what is there, in the order in which it was written, and
// opens a log for what comes. Without a journal of this boot and layout, or
// with one that is damaged, f is not called, or called with records that are
// not all, and lost says why.
func openJournal(dir string, header []byte, f func(record) error) (j *journal, lost, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, fmt.Errorf("session journal: %w", err)
	}
	j = &journal{dir: dir}
	generations, err := j.generations()
	if err != nil {
		return nil, nil, err
	}
	for _, g := range generations {
		j.generation = g
		if lost = j.replay(g, header, f); lost != nil {
			break
		}
	}
	return j, lost, nil
}

// generations are those to be read, oldest first: from the last whole snapshot
// on.
func (j *journal) generations() ([]int, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("session journal: %w", err)
	}
	first := 0
	var out []int
	for _, e := range entries {
		name, kind, _ := strings.Cut(e.Name(), ".")
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		switch kind {
		case "snapshot":
			first = max(first, n)
		case "log":
			out = append(out, n)
		}
	}
	out = slices.DeleteFunc(out, func(n int) bool { return n < first })
	if first > 0 && !slices.Contains(out, first) {
		out = append(out, first)
	}
	slices.Sort(out)
	return out, nil
}

func (j *journal) path(generation int, kind string) string {
	return filepath.Join(j.dir, strconv.Itoa(generation)+"."+kind)
}

// replay reads a snapshot, if there is one, and the log behind it.
func (j *journal) replay(generation int, header []byte, f func(record) error) error {
	if err := j.replayFile(j.path(generation, "snapshot"), header, true, f); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := j.replayFile(j.path(generation, "log"), header, false, f)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (j *journal) replayFile(path string, header []byte, whole bool, f func(record) error) error {
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
		case errors.Is(err, errTorn) && !whole:
			return nil // nobody was answered for it
		case errors.Is(err, io.EOF) && !whole:
			return nil
		case err != nil:
			return fail(err)
		case first && (r.kind != recordHeader || string(r.body) != string(header)):
			return fail(errors.New("it is of another boot, or another culvert wrote it"))
		case first:
			continue
		case r.kind == recordEnd:
			return nil
		}
		if err := f(r); err != nil {
			return fail(err)
		}
	}
}

// append writes a record: when it returns, a kill loses it no more.
func (j *journal) append(r record) error {
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

// smallJournal is not worth a new snapshot.
const smallJournal = 32 << 20

// grown says that it is time for a snapshot: the log is longer than what it
// goes with.
func (j *journal) grown() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size > max(smallJournal, j.live)
}

// renew begins a log, and makes the snapshot that goes with it of all that
// write calls its argument with. What changes meanwhile is in the new log, and
// is read after the snapshot.
func (j *journal) renew(header []byte, write func(func(record) error) error) error {
	if err := j.rotate(header); err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	generation := j.generation
	size, err := j.snapshot(generation, header, write)
	if err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	j.mu.Lock()
	j.live = size
	j.mu.Unlock()
	return j.removeBefore(generation)
}

// rotate has records go to the next log.
func (j *journal) rotate(header []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	next := j.generation + 1
	file, err := os.OpenFile(j.path(next, "log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	head := appendRecord(nil, record{kind: recordHeader, body: header})
	if _, err := file.Write(head); err != nil {
		return errors.Join(err, file.Close())
	}
	if j.file != nil {
		if err := j.file.Close(); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	j.generation, j.file, j.size = next, file, int64(len(head))
	return nil
}

func (j *journal) snapshot(generation int, header []byte, write func(func(record) error) error) (size int64, err error) {
	temporary := j.path(generation, "new")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	var buffer []byte
	put := func(r record) error {
		buffer = appendRecord(buffer[:0], r)
		size += int64(len(buffer))
		_, err := out.Write(buffer)
		return err
	}
	err = put(record{kind: recordHeader, body: header})
	if err == nil {
		err = write(put)
	}
	if err == nil {
		err = put(record{kind: recordEnd})
	}
	if err = errors.Join(err, out.Flush(), file.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(temporary, j.path(generation, "snapshot"))
}

// removeBefore removes what the snapshot of a generation has made useless.
func (j *journal) removeBefore(generation int) error {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		if n, err := strconv.Atoi(name); err == nil && n < generation {
			errs = append(errs, os.Remove(filepath.Join(j.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}
