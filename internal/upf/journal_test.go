package upf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// A kill loses nothing that was answered: sessions, what was counted, what the
// server keeps; and what is taken stays taken.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	pool := Pool{NetworkInstance: "internet", Prefixes: prefixes("10.0.0.0/24")}
	if err := w.SetConfig(Config{Pools: []Pool{pool}}); err != nil {
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
	if err := w.SaveState([]byte("associations")); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		w.path.packet(3, 1, 1000)
		w.settle()
	}
	to := copyOf(t, want[4])
	to.FARs[1].Action = session.Buffer
	w.modify(want[4], to, pfcp.Modification{})
	want[4] = to
	if _, err := w.remove(9); err != nil {
		t.Fatal(err)
	}
	want = slices.Delete(want, 8, 9)
	reports := w.smf.usage()
	w.path.packet(3, 1, 500) // nobody asks for it before the kill

	w.restart()
	if err := w.SetConfig(Config{Pools: []Pool{pool}}); err != nil {
		t.Fatal(err)
	}
	var got []*session.Session
	for s := range w.Sessions() {
		got = append(got, s)
	}
	slices.SortFunc(got, func(a, b *session.Session) int { return int(a.SEID) - int(b.SEID) })
	if len(got) != len(want) {
		t.Fatalf("%d sessions, want %d", len(got), len(want))
	}
	for i := range want {
		if string(pack(got[i])) != string(pack(want[i])) {
			t.Errorf("session %d: %+v, want %+v", want[i].SEID, got[i], want[i])
		}
	}
	if state, err := w.LoadState(); err != nil || string(state) != "associations" {
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
		w.establish(ordinary(seid + 1))
	}
	if err := w.SaveState([]byte("state")); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		if err := w.renewJournal(); err != nil {
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
	if err := w.journal.rotate(header()); err != nil {
		t.Fatal(err)
	}
	w.establish(ordinary(100))
	if err := os.WriteFile(w.journal.path(w.journal.generation, "new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if w.Len() != 48 {
		t.Errorf("%d sessions, want 48", w.Len())
	}
	if state, err := w.LoadState(); err != nil || string(state) != "state" {
		t.Errorf("state %q, %v", state, err)
	}
}

func lastLog(t *testing.T, w *world) string {
	t.Helper()
	return w.journal.path(w.journal.generation, "log")
}

// A record that was cut off was never answered; damage before the end loses
// everything, and says so by LoadState.
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
		{"a bit", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, 0, true},
		{"another boot", func(b []byte) []byte {
			return appendRecord(nil, record{kind: recordHeader, body: []byte("culvert sessions 1 other")})
		}, 0, true},
	} {
		w := newWorld(t)
		if err := w.SaveState([]byte("state")); err != nil {
			t.Fatal(err)
		}
		for seid := range uint64(3) {
			w.establish(ordinary(seid + 1))
		}
		path := lastLog(t, w)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, tt.damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		w.restart()
		state, err := w.LoadState()
		if w.Len() != tt.left || err != nil || (state == nil) != tt.lost {
			t.Errorf("%s: %d sessions, state %q, %v", tt.name, w.Len(), state, err)
		}
		w.establish(ordinary(50))
		w.restart() // and what came after it is there
		if w.Len() != tt.left+1 {
			t.Errorf("%s: then %d sessions", tt.name, w.Len())
		}
	}
}

// What cannot be written down is not answered, and is not there.
func TestJournalFails(t *testing.T) {
	w := newWorld(t)
	s := ordinary(1)
	w.establish(s)
	if err := w.journal.close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Establish(ordinary(2)); err == nil || w.Session(2) != nil || len(w.path.sessions) != 1 {
		t.Errorf("established: %v", err)
	}
	to := copyOf(t, s)
	to.FARs[0].Action = session.Drop
	if _, err := w.Modify(s, to, pfcp.Modification{}); err == nil || w.Session(1).FARs[0].Action != session.Forward {
		t.Errorf("modified: %v", err)
	}
	if r := w.path.rule(t, 1, 1); r.Action != 2 {
		t.Errorf("the data path has %+v", r)
	}
}

func TestSessionsLimit(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Sessions = 2 })
	w.establish(ordinary(1))
	w.establish(ordinary(2))
	if err := w.Establish(ordinary(3)); !errors.Is(err, pfcp.ErrNoResources) {
		t.Errorf("a third: %v", err)
	}
	if _, err := w.remove(1); err != nil {
		t.Fatal(err)
	}
	w.establish(ordinary(3))
}

func TestPools(t *testing.T) {
	a := newAddresses([]Pool{
		{NetworkInstance: "internet", Prefixes: prefixes("10.0.0.0/29", "2001:db8::/62")},
		{Prefixes: prefixes("10.1.0.0/30")},
	})
	var got []string
	for {
		list, err := a.allocate("Internet", true, false)
		if err != nil {
			if !errors.Is(err, pfcp.ErrNoResources) || !strings.Contains(err.Error(), "IPv4") {
				t.Error(err)
			}
			break
		}
		got = append(got, list[0].String())
	}
	want := []string{"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32", "10.0.0.5/32", "10.0.0.6/32", "10.1.0.1/32", "10.1.0.2/32"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	// Both or none.
	if _, err := a.allocate("internet", true, true); !errors.Is(err, pfcp.ErrNoResources) {
		t.Error(err)
	}
	for range 4 {
		if _, err := a.allocate("internet", false, true); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.allocate("internet", false, true); err == nil {
		t.Error("a fifth /64 of a /62")
	}
	a.give(prefixes("2001:db8:0:2::/64", "10.0.0.2/32"))
	if list, err := a.allocate("internet", true, true); err != nil || list[1] != netip.MustParsePrefix("2001:db8:0:2::/64") {
		t.Errorf("%v, %v", list, err)
	}
	if err := a.take(prefixes("192.0.2.1/32", "10.0.0.1/32")); !errors.Is(err, pfcp.ErrTaken) {
		t.Error(err)
	}
	if err := a.take(prefixes("192.0.2.1/32")); err != nil {
		t.Errorf("after one that was refused: %v", err)
	}
	if err := a.take([]netip.Prefix{netip.MustParsePrefix("2001:db8:0:1::5/128")}); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("an address of a /64 that is taken: %v", err)
	}
	a.replace([]Pool{{Prefixes: prefixes("192.0.2.0/30")}})
	if list, err := a.allocate("", true, false); err != nil || list[0].String() != "192.0.2.2/32" {
		t.Errorf("in other pools: %v, %v", list, err)
	}
	if err := a.take(prefixes("10.0.0.1/32")); !errors.Is(err, pfcp.ErrTaken) {
		t.Errorf("of a pool that is gone: %v", err)
	}
}
