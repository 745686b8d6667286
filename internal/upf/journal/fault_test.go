package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// fault says which system calls fail, and how.
type fault struct {
	first, last int // calls, counted from 1
	errno       error
	part        int // a write that fails writes this many percent
	some        int // of these calls so many percent fail; 0: all
}

// faulty is a disk whose calls fail. It notes which.
type faulty struct {
	system
	fault
	calls  int
	did    []string // calls that failed
	chance *rand.Rand
}

func (d *faulty) fails(call string) error {
	d.calls++
	if d.calls < d.first || d.calls > d.last || d.some > 0 && d.chance.IntN(100) >= d.some {
		return nil
	}
	d.did = append(d.did, call)
	return d.errno
}

func (d *faulty) open(path string, flags int) (file, error) {
	if err := d.fails("open"); err != nil {
		return nil, err
	}
	f, err := d.system.open(path, flags)
	return faultyFile{f, d}, err
}

func (d *faulty) rename(from, to string) error {
	if err := d.fails("rename"); err != nil {
		return err
	}
	return d.system.rename(from, to)
}

func (d *faulty) remove(path string) error {
	if err := d.fails("remove"); err != nil {
		return err
	}
	return d.system.remove(path)
}

func (d *faulty) list(dir string) ([]fs.DirEntry, error) {
	if err := d.fails("list"); err != nil {
		return nil, err
	}
	return d.system.list(dir)
}

type faultyFile struct {
	file
	d *faulty
}

func (f faultyFile) Write(b []byte) (int, error) {
	err := f.d.fails("write")
	if err == nil {
		return f.file.Write(b)
	}
	n, wrote := f.file.Write(b[:len(b)*f.d.part/100])
	return n, errors.Join(err, wrote)
}

func (f faultyFile) ReadAt(b []byte, at int64) (int, error) {
	if err := f.d.fails("read"); err != nil {
		return 0, err
	}
	return f.file.ReadAt(b, at)
}

func (f faultyFile) Stat() (fs.FileInfo, error) {
	if err := f.d.fails("stat"); err != nil {
		return nil, err
	}
	return f.file.Stat()
}

func (f faultyFile) Truncate(n int64) error {
	if err := f.d.fails("truncate"); err != nil {
		return err
	}
	return f.file.Truncate(n)
}

func (f faultyFile) Close() error {
	return errors.Join(f.d.fails("close"), f.file.Close())
}

func (f faultyFile) reserve(at, n int64) error {
	if err := f.d.fails("reserve"); err != nil {
		return err
	}
	return f.file.reserve(at, n)
}

// process is a user of the journal, and what it has answered.
type process struct {
	t       *testing.T
	disk    *faulty
	dir     string
	journal *Journal
	told    sessions
	refused []Record // since the last Append that succeeded
	gone    bool     // all, by a start that failed later
	lost    int      // times that all was lost, and said so
}

// start opens the journal, as processes do after a kill, until one succeeds. Where
// none of the server's state is left, there is a new Recovery Time Stamp: then all
// may be lost, and nothing else.
func (p *process) start() {
	before := len(p.disk.did)
	for range 30 {
		read := sessions{}
		j, lost, err := openOn(p.disk, p.dir, testBoot, read.take)
		failed := p.disk.did[before:]
		if lost != nil && !slices.Contains(failed, "open") && !slices.Contains(failed, "read") && !slices.Contains(failed, "stat") {
			p.t.Fatalf("%+v, %v failed: %v", p.disk.fault, failed, lost)
		}
		p.gone = p.gone || lost != nil
		if err != nil {
			continue
		}
		if lost != nil || p.gone && len(read) == 0 {
			p.told, p.refused, read = sessions{}, nil, sessions{}
			p.lost++
		}
		p.check(read)
		p.journal, p.told, p.refused, p.gone = j, read, nil, false
		j.KeepRoom(func() int { return len(p.told) })
		return
	}
	p.t.Fatalf("it does not start: %+v", p.disk.fault)
}

// check compares what a start has read with what was answered. If the last Appends
// failed, one of them may have come true: nothing was answered after it.
func (p *process) check(read sessions) {
	p.t.Helper()
	if maps.Equal(read, p.told) {
		return
	}
	for _, record := range p.refused {
		also := maps.Clone(p.told)
		if _ = also.take(record); maps.Equal(read, also) {
			return
		}
	}
	p.t.Fatalf("%+v, %v failed: read\n%v, answered\n%v, refused %v", p.disk.fault, p.disk.did, read, p.told, p.refused)
}

// step does the next of a random sequence.
func (p *process) step(r *rand.Rand) {
	switch r.IntN(12) {
	case 0:
		_ = p.journal.Renew(func(put func(Record) error) error {
			for seid, body := range p.told {
				if err := put(Record{Kind: Session, SEID: seid, Body: []byte(body)}); err != nil {
					return err
				}
			}
			return nil
		})
	case 1:
		p.start()
	default:
		record := randomRecord(r)
		if p.journal.Append(record) != nil {
			p.refused = append(p.refused, record)
			return
		}
		p.refused = nil
		_ = p.told.take(record)
	}
}

// run does a sequence. It kills the process after the step in which the first call
// fails if kill is set, and at the end.
func run(t *testing.T, seed uint64, f fault, kill bool) *process {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, disk: &faulty{fault: f, chance: rand.New(rand.NewPCG(seed, uint64(f.first)))}, dir: dir, told: sessions{}}
	p.start()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 40 {
		p.step(r)
		if kill && len(p.disk.did) > 0 {
			break
		}
	}
	p.disk.fault = fault{}
	p.start()
	return p
}

// Whatever system call fails at whatever point, once or a few times, what the next
// process reads is what was answered.
func TestFaults(t *testing.T) {
	failed := map[string]int{}
	runs, lost := 0, 0
	const seed = 1
	calls := run(t, seed, fault{}, false).disk.calls
	for call := 1; call <= calls; call++ {
		for _, f := range []fault{
			{first: call, last: call, errno: unix.EIO},
			{first: call, last: call, errno: unix.EIO, part: 100},
			{first: call, last: call, errno: unix.ENOSPC, part: 50},
			{first: call, last: call + 4, errno: unix.EIO, part: 100},
			{first: call, last: call + 9, errno: unix.ENOSPC, part: 50},
			{first: call, last: call + 20, errno: unix.EIO, part: 100, some: 50},
		} {
			for _, kill := range []bool{false, true} {
				p := run(t, seed, f, kill)
				runs++
				lost += min(1, p.lost)
				for _, call := range p.disk.did {
					failed[call]++
				}
			}
		}
	}
	for _, call := range []string{"open", "write", "read", "stat", "truncate", "reserve", "close", "rename", "remove", "list"} {
		if failed[call] == 0 {
			t.Errorf("%s never failed", call)
		}
	}
	t.Log(fmt.Sprint(runs, " runs; failed: ", failed, "; all was lost, and said so, in ", lost))
}
