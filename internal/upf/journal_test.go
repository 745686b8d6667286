package upf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/journal"
	"github.com/culvert-net/culvert/internal/upf/pool"
)

// A kill loses nothing that was answered: sessions, what was counted, what the
// server keeps; and what is taken stays taken.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	ues := pool.Pool{NetworkInstance: "internet", Prefixes: sample.Prefixes("10.0.0.0/24")}
	if err := w.SetConfig(Config{Pools: []pool.Pool{ues}}); err != nil {
		t.Fatal(err)
	}
	var want []*session.Session
	for seid := range uint64(20) {
		s := countedBy(session.URR{Volume: true, Trigger: session.TriggerVolumeThreshold, VolumeThreshold: octets(10_000)})
		s.SEID = seid + 1
		ue, err := w.NewUE("internet", true, false)
		if err != nil {
			t.Fatal(err)
		}
		s.PDRs[0].PDI.UE, s.PDRs[1].PDI.UE, s.PDRs[0].PDI.TEID = ue, ue, uint32(seid+1)
		w.establish(s)
		want = append(want, s)
	}
	if err := w.SaveState("it", []byte("associations")); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		w.path.packet(3, 1, 1000)
		w.settle()
	}
	to := sample.Copy(t, want[4])
	to.FARs[1].Action = session.Buffer
	w.modify(want[4], to, session.Modification{})
	want[4] = to
	if _, err := w.remove(9); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 8, 9)
	reports := w.smf.usage()
	w.path.packet(3, 1, 500) // nobody asks for it before the kill

	w.restart()
	if err := w.SetConfig(Config{Pools: []pool.Pool{ues}}); err != nil {
		t.Fatal(err)
	}
	var got []*session.Session
	for s := range w.Sessions() {
		got = append(got, w.Session(s.SEID))
	}
	slices.SortFunc(got, func(a, b *session.Session) int { return int(a.SEID) - int(b.SEID) })
	if len(got) != len(want) {
		t.Fatalf("%d sessions, want %d", len(got), len(want))
	}
	for i := range want {
		if !cmp.Equal(got[i], want[i], sample.Same) {
			t.Errorf("session %d: %+v, want %+v", want[i].SEID, got[i], want[i])
		}
	}
	if state, err := w.LoadState(); err != nil || string(state["it"]) != "associations" {
		t.Errorf("state %q, %v", state, err)
	}
	if err := w.TakeTEID(3); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("TEID of a session: %v", err)
	}
	if err := w.TakeUE(want[2].PDRs[0].PDI.UE); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("UE address of a session: %v", err)
	}
	last, err := w.remove(3)
	if err != nil || len(reports) != 1 || len(last) != 1 {
		t.Fatalf("%+v, %+v, %v", reports, last, err)
	}
	if sum := reports[0].Volume.Uplink + last[0].Volume.Uplink; sum != 12_500 || last[0].Sequence != 1 {
		t.Errorf("reported %d of 12500, then UR-SEQN %d", sum, last[0].Sequence)
	}
}

// A report that had no answer when the daemon was killed is sent again, with
// its number and volume.
func TestRestartRepeatsReports(t *testing.T) {
	w := newWorld(t)
	w.smf.silent = true
	w.establish(countedBy(session.URR{Volume: true, Trigger: session.TriggerPeriodic, Period: 10 * time.Second}))
	w.path.packet(1, 1, 700)
	w.pass(11 * time.Second)
	first := w.smf.usage()
	w.restart()
	w.pass(time.Second)
	again := w.smf.usage()
	if len(first) != 1 || len(again) != 1 || again[0].Sequence != first[0].Sequence || again[0].Volume.Uplink != 700 {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	w.restart() // it was taken
	w.pass(time.Second)
	if more := w.smf.usage(); len(more) != 0 {
		t.Errorf("once more: %+v", more)
	}
}

// Snapshots take the place of what was before them, and a kill may come at any
// time.
func TestSnapshot(t *testing.T) {
	w := newWorld(t)
	for seid := range uint64(50) {
		w.establish(sample.Session(seid + 1))
	}
	if err := w.SaveState("it", []byte("state")); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		if err := w.store.Renew(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.remove(uint64(round + 1)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("files: %v, %v", files, err)
	}
	w.restart()
	if w.Len() != 47 {
		t.Errorf("%d sessions, want 47", w.Len())
	}
	// Killed while a snapshot was made: two logs, and what it was to be.
	first, log := w.generation(), w.log()
	snapshot, err := os.ReadFile(w.file(first, "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Renew(); err != nil {
		t.Fatal(err)
	}
	w.establish(sample.Session(100))
	w.write(first, "snapshot", snapshot)
	w.write(first, "log", log)
	if err := os.Rename(w.file(first+1, "snapshot"), w.file(first+1, "new")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if w.Len() != 48 {
		t.Errorf("%d sessions, want 48", w.Len())
	}
	if state, err := w.LoadState(); err != nil || string(state["it"]) != "state" {
		t.Errorf("state %q, %v", state, err)
	}
}

// generation is the number of the last log.
func (w *world) generation() int {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "*.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	last := 0
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".log"))
		if err != nil {
			w.t.Fatal(err)
		}
		last = max(last, n)
	}
	return last
}

func (w *world) file(generation int, kind string) string {
	return filepath.Join(w.dir, fmt.Sprintf("%d.%s", generation, kind))
}

// log is the last log.
func (w *world) log() []byte {
	w.t.Helper()
	b, err := os.ReadFile(w.file(w.generation(), "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) write(generation int, kind string, b []byte) {
	w.t.Helper()
	if err := os.WriteFile(w.file(generation, kind), b, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// logOf is the log of another boot.
func logOf(t *testing.T, boot string) []byte {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	j, _, err := journal.Open(w.dir, []byte(boot), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return w.log()
}

// A record that was cut off was never answered. A damaged one costs its session.
// Where nobody knows which sessions are damaged, all are lost; LoadState says so.
func TestDamage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func([]byte) []byte
		left   int
		lost   bool
	}{
		{"whole", func(b []byte) []byte { return b }, 3, false},
		{"cut off", func(b []byte) []byte { return b[:len(b)-5] }, 2, false},
		{"cut off in the head", func(b []byte) []byte { return append(b, 9, 9) }, 3, false},
		{"garbage behind it", func(b []byte) []byte { return append(b, bytes.Repeat([]byte{9}, 5000)...) }, 3, false},
		{"a bit of the second session", func(b []byte) []byte { b[len(b)-len(b)/3] ^= 1; return b }, 2, false},
		{"all sessions", func(b []byte) []byte { clear(b[len(b)/8 : len(b)-len(b)/8]); return b }, 0, true},
		{"another boot", func([]byte) []byte { return logOf(t, "culvert sessions 1 other") }, 0, true},
	} {
		w := newWorld(t)
		if err := w.SaveState("it", []byte("state")); err != nil {
			t.Fatal(err)
		}
		for seid := range uint64(3) {
			w.establish(sample.Session(seid + 1))
		}
		w.write(w.generation(), "log", tt.damage(w.log()))
		for range 2 { // the second start finds the same
			w.restart()
			state, err := w.LoadState()
			if w.Len() != tt.left || err != nil || (len(state) == 0) != tt.lost {
				t.Errorf("%s: %d sessions, state %q, %v", tt.name, w.Len(), state, err)
			}
			if tt.lost {
				break
			}
		}
		w.establish(sample.Session(50))
		w.restart() // and what came after it is there
		if w.Len() != tt.left+1 {
			t.Errorf("%s: then %d sessions", tt.name, w.Len())
		}
	}
}

// A session whose modification is damaged does not come back as it was before, also
// when the start has cut off what was damaged.
func TestDamagedModification(t *testing.T) {
	w := newWorld(t)
	for seid := range uint64(3) {
		w.establish(sample.Session(seid + 1))
	}
	to := sample.Copy(t, w.Session(2))
	to.FARs[0].Action = session.Drop
	w.modify(w.Session(2), to, session.Modification{})
	log := w.log()
	log[len(log)-5] ^= 1
	w.write(w.generation(), "log", log)
	for range 3 {
		w.restart()
		if w.Len() != 2 || w.Session(2) != nil {
			t.Errorf("%d sessions, the damaged one: %v", w.Len(), w.Session(2))
		}
	}
	if n := w.Stats().JournalDamaged.Load(); n != 0 {
		t.Errorf("the last start still found %d damaged places", n)
	}
	w.establish(sample.Session(2))
	w.restart()
	if w.Len() != 3 {
		t.Errorf("%d sessions after the SMF established it again", w.Len())
	}
}

// Once a session is lost, no later start finds what the server kept.
func TestLostState(t *testing.T) {
	w := newWorld(t)
	w.establish(sample.Session(1))
	if err := w.SaveState("it", []byte("state")); err != nil {
		t.Fatal(err)
	}
	w.path.failPut = errors.New("no room")
	w.restart()
	for range 2 {
		if state, err := w.LoadState(); len(state) != 0 || err != nil {
			t.Errorf("state %q, %v", state, err)
		}
		w.path.failPut = nil
		w.restart()
	}
}

// What cannot be written down is not answered, and is not there.
func TestJournalFails(t *testing.T) {
	w := newWorld(t)
	s := sample.Session(1)
	w.establish(s)
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Establish(sample.Session(2)); err == nil || w.Session(2) != nil || len(w.path.sessions) != 1 {
		t.Errorf("established: %v", err)
	}
	to := sample.Copy(t, s)
	to.FARs[0].Action = session.Drop
	if _, err := w.Modify(s, to, session.Modification{}); err == nil || w.Session(1).FARs[0].Action != session.Forward {
		t.Errorf("modified: %v", err)
	}
	if r := w.path.rule(t, 1, 1); r.Action != 2 {
		t.Errorf("the data path has %+v", r)
	}
}

func TestSessionsLimit(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Sessions = 2 })
	w.establish(sample.Session(1))
	w.establish(sample.Session(2))
	if err := w.Establish(sample.Session(3)); !errors.Is(err, pfcp.ErrNoResources) {
		t.Errorf("a third: %v", err)
	}
	if _, err := w.remove(1); err != nil {
		t.Fatal(err)
	}
	w.establish(sample.Session(3))
}
