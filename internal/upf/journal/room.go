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
	maxDeletion = recordHead + 1 + 10
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

// room sees to it that n more octets fit in the log, and after a record of another
// kind than Delete, the deletions of all sessions.
func (j *Journal) room(kind Kind, n int64) error {
	if j.closed {
		return errors.New("session journal: it is closed")
	}
	if j.file == nil {
		if err := j.open(j.generation, j.size); err != nil {
			return err
		}
	}
	if kind != Delete {
		n += maxDeletion * int64(j.deletions())
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
			err = unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.size, n)
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

// open opens a log of which the first size octets are whole, for Append.
func (j *Journal) open(generation int, size int64) error {
	file, err := os.OpenFile(j.path(generation, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return failed(err)
	}
	j.generation, j.file, j.size, j.allocated = generation, file, size, 0
	err = j.truncate()
	if err == nil && size == 0 {
		head := appendRecord(nil, Record{Kind: header, Body: j.boot})
		if err = j.allocate(int64(len(head)) + maxDeletion*int64(j.deletions())); err == nil {
			_, err = file.Write(head)
			j.size = int64(len(head))
		}
	}
	if err != nil {
		j.file, j.size = nil, size
		return failed(errors.Join(err, file.Close()))
	}
	return nil
}

// truncate removes what follows the last whole record. Where nothing does, it does
// nothing: truncating would give up the room that the log has.
func (j *Journal) truncate() error {
	info, err := j.file.Stat()
	if err != nil || info.Size() == j.size {
		return err
	}
	j.allocated = min(j.allocated, j.size)
	return j.file.Truncate(j.size)
}

func failed(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("session journal: %w", err)
}
