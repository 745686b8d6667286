package upf

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
)

// onSmallDisk returns a directory on a filesystem of 1 MiB, which only the calling
// test sees.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill takes what is left of a disk, and returns how to give it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// refuses checks that the UPF refuses an establishment and a modification, and that
// neither has an effect.
func (w *world) refuses(s *session.Session) {
	w.t.Helper()
	before := w.Len()
	if err := w.Establish(sample.Session(100_000)); !errors.Is(err, pfcp.ErrNoResources) || w.Len() != before {
		w.t.Errorf("establishment: %v, %d of %d sessions", err, w.Len(), before)
	}
	to := sample.Copy(w.t, s)
	to.FARs[0].Action = session.Drop
	if _, err := w.Modify(s, to, session.Modification{}); !errors.Is(err, pfcp.ErrNoResources) ||
		w.Session(s.SEID).FARs[0].Action != session.Forward {
		w.t.Errorf("modification: %v", err)
	}
}

// On a full disk every session can be deleted, for good, also after a start. What
// needs more room is refused.
func TestFullDisk(t *testing.T) {
	w := &world{t: t, path: newFakePath(), smf: &smf{}, dir: onSmallDisk(t)}
	w.open()
	const sessions = 1000
	for seid := range uint64(sessions) {
		w.establish(sample.Session(seid + 1))
	}
	free := fill(t, w.dir)
	fillLog(w)
	left := w.Len()
	for seid := range uint64(sessions / 2) {
		if _, err := w.remove(seid + 1); err != nil {
			t.Fatalf("deletion of %d: %v", seid+1, err)
		}
	}
	left -= sessions / 2
	w.restart()
	if w.Len() != left {
		t.Fatalf("%d sessions after a start, want %d", w.Len(), left)
	}
	for _, e := range w.store.All() {
		if _, err := w.remove(e.SEID); err != nil {
			t.Fatalf("deletion of %d: %v", e.SEID, err)
		}
	}
	w.restart()
	if w.Len() != 0 {
		t.Fatalf("%d sessions came back", w.Len())
	}
	free()
	w.establish(sample.Session(1))
	w.restart()
	if w.Len() != 1 {
		t.Errorf("%d sessions after there was room, want 1", w.Len())
	}
}

// fillLog establishes and modifies sessions until the log is full.
func fillLog(w *world) {
	w.t.Helper()
	var err error
	for seid := uint64(10_000); err == nil; seid++ {
		err = w.Establish(sample.Session(seid))
	}
	mustBeFull(w.t, err)
	for err = nil; err == nil; {
		_, err = w.Modify(w.Session(1), w.Session(1), session.Modification{})
	}
	mustBeFull(w.t, err)
	w.refuses(w.Session(1))
}

func mustBeFull(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, pfcp.ErrNoResources) {
		t.Fatal(err)
	}
}

// A first start on a full disk serves, and takes sessions once there is room.
func TestStartOnFullDisk(t *testing.T) {
	w := &world{t: t, path: newFakePath(), smf: &smf{}, dir: onSmallDisk(t)}
	free := fill(t, w.dir)
	w.open()
	if err := w.Establish(sample.Session(1)); !errors.Is(err, pfcp.ErrNoResources) {
		t.Errorf("established: %v", err)
	}
	free()
	w.establish(sample.Session(1))
	w.restart()
	if w.Len() != 1 {
		t.Errorf("%d sessions, want 1", w.Len())
	}
}

// Starts leave one log.
func TestStartsLeaveOneFile(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	for range 5 {
		w.restart()
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "*"))
	if err != nil || len(files) != 1 || w.Len() != 1 {
		t.Errorf("%v, %v, %d sessions", files, err, w.Len())
	}
}

// breakLog has all writes to the log fail, as on a disk with I/O errors, and returns
// how to undo that.
func (w *world) breakLog() (repair func()) {
	w.t.Helper()
	name := w.file(w.generation(), "log")
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		w.t.Fatal(err)
	}
	log := -1
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && to == name {
			log, err = strconv.Atoi(filepath.Base(fd))
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
	saved, err := unix.FcntlInt(uintptr(log), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	readOnly, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	dup := func(from int) {
		if err := errors.Join(unix.Dup3(from, log, unix.O_CLOEXEC), unix.Close(from)); err != nil {
			w.t.Fatal(err)
		}
	}
	dup(readOnly)
	return func() { dup(saved) }
}

// A deletion that cannot be written down is refused: the session goes on, also its
// usage, and the next deletion reports all of it.
func TestDeletionFails(t *testing.T) {
	w := newWorld(t)
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(10_000)})
	s.SEID = 1
	w.establish(s)
	w.establish(sample.Session(2))
	w.path.packet(1, 1, 600)
	repair := w.breakLog()
	for seid := range uint64(2) {
		if last, err := w.remove(seid + 1); err == nil || last != nil || w.Session(seid+1) == nil || w.path.sessions[seid+1].ID == 0 {
			t.Errorf("deletion of %d: %v, %v", seid+1, last, err)
		}
	}
	if w.Journal() == nil {
		t.Error("nobody hears of it")
	}
	w.path.packet(1, 1, 700)
	repair()
	last, err := w.remove(1)
	if err != nil || len(last) != 1 || last[0].Volume.Uplink != 1300 {
		t.Errorf("then: %+v, %v", last, err)
	}
	if err := w.Journal(); err != nil {
		t.Error(err)
	}
	w.restart()
	if w.Len() != 1 || w.Session(2) == nil {
		t.Errorf("%d sessions after a start", w.Len())
	}
}

// What must end, whoever does not hear of it, ends in the journal as soon as that
// takes it.
func TestOwedRemoval(t *testing.T) {
	w := newWorld(t)
	for seid := range uint64(3) {
		w.establish(sample.Session(seid + 1))
	}
	repair := w.breakLog()
	if err := w.Drop(1); err != nil || w.Session(1) != nil {
		t.Error(err)
	}
	w.store.RenewGrown()
	repair()
	w.store.RenewGrown()
	w.restart()
	if w.Len() != 2 || w.Stats().JournalFailed.Load() != 0 {
		t.Errorf("%d sessions after a start", w.Len())
	}
}

// On a full disk there is still room for what the UPF has to remember of reports and
// associations.
func TestFullDiskKeepsState(t *testing.T) {
	w := &world{t: t, path: newFakePath(), smf: &smf{}, dir: onSmallDisk(t)}
	w.open()
	s := countedBy(session.URR{Volume: true, Trigger: session.TriggerPeriodic, Period: 10 * time.Second})
	s.SEID = 1
	w.establish(s)
	fill(t, w.dir)
	fillLog(w)
	if w.Journal() == nil {
		t.Error("nobody hears of the full disk")
	}
	w.path.packet(1, 1, 700)
	w.pass(11 * time.Second)
	if err := w.SaveState("it", []byte("associations")); err != nil {
		t.Error(err)
	}
	if n := len(w.smf.usage()); n != 1 || w.Stats().JournalFailed.Load() != 0 {
		t.Errorf("%d reports, %d not in the journal", n, w.Stats().JournalFailed.Load())
	}
	w.restart()
	w.pass(time.Second)
	if state, err := w.LoadState(); err != nil || string(state["it"]) != "associations" || len(w.smf.usage()) != 0 {
		t.Errorf("state %q, %v, or the report was sent again", state, err)
	}
}

// A disk that takes no usage reports is one line in the log, not one for each.
func TestUnwrittenUsageIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for seid := range uint64(20) {
		s := countedBy(session.URR{Volume: true, Trigger: session.TriggerPeriodic, Period: 10 * time.Second})
		s.SEID = seid + 1
		w.establish(s)
	}
	repair := w.breakLog()
	w.pass(11 * time.Second)
	repair()
	w.pass(10 * time.Second)
	w.breakLog()
	w.pass(10 * time.Second)
	if n := strings.Count(log.String(), "usage reports are not in the journal"); n != 2 || w.Stats().JournalFailed.Load() < 40 {
		t.Errorf("%d lines for %d records", n, w.Stats().JournalFailed.Load())
	}
}
