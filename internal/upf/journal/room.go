package journal

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// ErrFull reports that the disk has no room for a record.
var ErrFull = errors.New("the disk of the session journal is full")

const (
	step        = 1 << 20 // by which a log's room grows
	maxDeletion = recordHead
	// spare is kept for records that no SMF asked for: usage, taken reports, the
	// state of the N4 server.
	spare = 128 << 10
	// longSession is longer than the record of almost any session.
	longSession = 4 << 10
)

// KeepRoom keeps room for the Delete records of so many sessions, which others must
// not use. Callers call it before the first Append.
func (j *Journal) KeepRoom(sessions func() int) { j.deletions = sessions }

// Room returns nil if a Delete record fits.
func (j *Journal) Room() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.room(Delete, maxDeletion)
}

// Health returns nil if a session fits, and the last write did not fail.
func (j *Journal) Health() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room(Session, longSession); err != nil {
		return err
	}
	return j.failure
}

// room sees to it that n more octets fit in the log, and after them what is kept for
// records that matter more.
func (j *Journal) room(kind Kind, n int64) error {
	if j.closed {
		return errors.New("session journal: it is closed")
	}
	if j.file == nil {
		if err := j.open(j.log); err != nil {
			return err
		}
	}
	if err := j.whole(); err != nil {
		return err
	}
	if kind != Delete {
		n += maxDeletion * int64(j.deletions())
	}
	if kind == Session || kind == Slice {
		n += spare
	}
	if j.size+n <= j.allocated {
		return nil
	}
	return j.allocate(n)
}

// allocate makes room for n more octets. Where the filesystem cannot keep room, a
// write finds out whether there is some.
func (j *Journal) allocate(n int64) error {
	err := error(unix.ENOSPC)
	for _, n := range []int64{n + step, n} {
		if errors.Is(err, unix.ENOSPC) {
			err = j.file.reserve(j.size, n)
		}
		switch {
		case err == nil:
			j.allocated = j.size + n
			return nil
		case errors.Is(err, unix.EOPNOTSUPP):
			j.allocated = math.MaxInt64
			return nil
		}
	}
	return failed(err)
}

// open opens a log that has some records, or none, for Append. After an error its
// file is nil.
func (j *Journal) open(l log) error {
	file, err := j.disk.open(j.path(l.generation, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return failed(err)
	}
	j.log = l
	j.file, j.allocated = file, 0
	if err = j.truncate(); err == nil && l.size == 0 {
		err = j.begin()
	}
	if err != nil {
		j.log = l
		return failed(errors.Join(err, file.Close()))
	}
	return nil
}

// begin writes the first record of a log.
func (j *Journal) begin() error {
	j.chain = newChain(j.boot)
	head := j.chain.append(nil, Record{Kind: header, Body: j.boot})
	if err := j.allocate(int64(len(head)) + maxDeletion*int64(j.deletions())); err != nil {
		return err
	}
	j.size = int64(len(head))
	_, err := j.file.Write(head)
	return err
}

// whole removes what a failed Append may have left behind the last record.
func (j *Journal) whole() error {
	if !j.torn {
		return nil
	}
	return failed(j.truncate())
}

// truncate removes what follows the last record. Where nothing does, it does
// nothing: truncating would give up the room that the log has.
func (j *Journal) truncate() error {
	info, err := j.file.Stat()
	if err == nil && info.Size() != j.size {
		j.allocated = min(j.allocated, j.size)
		err = j.file.Truncate(j.size)
	}
	if err == nil {
		j.torn = false
	}
	return err
}

func failed(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("session journal: %w", err)
}
