package experiment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// journalFile is what was measured, a line for each point of each round, as it
// was measured: what ends a run takes at most the point under way with it.
const journalFile = "journal.jsonl"

// entry is a line of the journal: one of these.
type entry struct {
	Begin   *beginning `json:"begin,omitempty"`
	Point   *taken     `json:"point,omitempty"`
	Noise   *float64   `json:"noise,omitempty"` // of the machine, at this place
	Warning string     `json:"warning,omitempty"`
	End     *time.Time `json:"end,omitempty"` // every point is there
}

// beginning is the start of a run, or where it was taken up again.
type beginning struct {
	At          time.Time          `json:"at"`
	Command     string             `json:"command"`
	Environment result.Environment `json:"environment"`
}

// taken are the samples of a point in a round.
type taken struct {
	ID      string   `json:"id"`
	Round   int      `json:"round"`
	Samples []Sample `json:"samples"`
}

// journal is an open one.
type journal struct {
	path    string
	file    *os.File
	size    int64 // of whole lines
	entries []entry
}

var errHeld = errors.New("another run is writing into it")

// openJournal opens the journal in a folder, and reads what is there.
func openJournal(dir string) (_ *journal, err error) {
	j := &journal{path: filepath.Join(dir, journalFile)}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.file.Close())
		}
	}()
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errHeld)
	}
	if err := j.read(); err != nil {
		return nil, err
	}
	return j, j.cut()
}

// read takes all whole lines. The last one may have been cut short, by a kill
// or a full disk: then it is not there.
func (j *journal) read() error {
	lines := bufio.NewReader(j.file)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s: line %d is damaged: %w: remove this line, or give another folder with --dir", j.path, number, err)
		}
		j.entries = append(j.entries, e)
		j.size += int64(len(line))
	}
}

// cut truncates the journal after its last whole line.
func (j *journal) cut() error {
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}

// add writes an entry, whole or not at all, to the disk.
func (j *journal) add(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	line = append(bytes.TrimSpace(line), '\n')
	if _, err = j.file.Write(line); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("what was measured cannot be kept: %w", err), j.cut())
	}
	j.entries, j.size = append(j.entries, e), j.size+int64(len(line))
	return nil
}
