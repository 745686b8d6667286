package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var testBoot = []byte("layout 1 of boot 5a0b")

// sessions is what a journal says: the body of each session's last record.
type sessions map[uint64]string

// take takes over a record, as the store does.
func (s sessions) take(r Record) error {
	switch r.Kind {
	case Session, Usage:
		s[r.SEID] = string(r.Body)
	case Delete, Damage:
		delete(s, r.SEID)
	}
	return nil
}

// reopen reads a journal as the next process does.
func reopen(t *testing.T, dir string) (s sessions, damage []Record, lost error) {
	t.Helper()
	s = sessions{}
	j, lost, err := Open(dir, testBoot, func(r Record) error {
		if r.Kind == Damage {
			damage = append(damage, r)
		}
		return s.take(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return s, damage, lost
}

// randomRecord changes one of a few sessions.
func randomRecord(r *rand.Rand) Record {
	record := Record{Kind: Session, SEID: 1 + r.Uint64N(12), Body: make([]byte, r.IntN(60))}
	for i := range record.Body {
		record.Body[i] = byte(r.Uint32())
	}
	if r.IntN(4) == 0 {
		record.Kind, record.Body = Delete, nil
	}
	return record
}

// written is the log of a journal with some records, where each begins, and what
// each makes of the sessions.
func written(t *testing.T, records int) (log []byte, starts []int, after []sessions) {
	t.Helper()
	r, dir, s := rand.New(rand.NewPCG(1, 2)), t.TempDir(), sessions{}
	j, _, err := Open(dir, testBoot, s.take)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for range records {
		starts, after = append(starts, int(j.size)), append(after, maps.Clone(s))
		record := randomRecord(r)
		if err := errors.Join(j.Append(record), s.take(record)); err != nil {
			t.Fatal(err)
		}
	}
	log, err = os.ReadFile(j.path(1, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return log, starts, append(after, s)
}

// onDisk makes a log all there is in a directory, which it returns.
func onDisk(t *testing.T, dir string, log []byte) string {
	t.Helper()
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "1.log"), log, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// differ lists the sessions that are not as they should be.
func differ(got, want sessions) (seids []uint64) {
	for seid := range uint64(20) {
		g, has := got[seid]
		if w, should := want[seid]; g != w || has != should {
			seids = append(seids, seid)
		}
	}
	return seids
}

// Whatever octet of a log is wrong, at most the session whose record it is in is
// given up. All others are as they were answered. The next start finds the same.
func TestWrongOctet(t *testing.T) {
	log, starts, after := written(t, 40)
	dir := t.TempDir()
	want, last := after[len(after)-1], starts[len(starts)-1]
	for i := range log {
		if i >= last+16 && i < last+24 {
			continue // nothing else says which session the last record is about
		}
		wrong := bytes.Clone(log)
		wrong[i] ^= 0x41
		onDisk(t, dir, wrong)
		got, damage, lost := reopen(t, dir)
		if lost != nil || len(damage) != 1 {
			t.Fatalf("octet %d: lost %v, damage %v", i, lost, damage)
		}
		for _, seid := range differ(got, want) {
			if _, has := got[seid]; has || damage[0].SEID != seid {
				t.Fatalf("octet %d: session %d is %q, want %q", i, seid, got[seid], want[seid])
			}
		}
	}
}

// Whatever is wrong, cut out or put in before the last record, in one place or a few:
// no session is as it was before. Each is as answered, or given up, or all are.
func TestWrongStretches(t *testing.T) {
	log, starts, after := written(t, 300)
	want, end := after[len(after)-1], starts[len(starts)-1]
	r := rand.New(rand.NewPCG(5, 6))
	kept, dir := 0, t.TempDir()
	for range 1000 {
		wrong, last := bytes.Clone(log[:end]), log[end:]
		for range 1 + r.IntN(3) {
			at := r.IntN(len(wrong))
			n := min(1<<r.IntN(10), len(wrong)-at)
			switch stretch := wrong[at : at+n]; r.IntN(4) {
			case 0:
				clear(stretch)
			case 1:
				for i := range stretch {
					stretch[i] = byte(r.Uint32())
				}
			case 2:
				wrong = slices.Delete(wrong, at, at+n)
			case 3: // some of it twice
				wrong = slices.Insert(wrong, at, bytes.Clone(stretch)...)
			}
		}
		got, damage, lost := reopen(t, onDisk(t, dir, append(wrong, last...)))
		if lost != nil {
			continue
		}
		kept++
		for _, seid := range differ(got, want) {
			if body, has := got[seid]; has {
				t.Fatalf("session %d is %q, want %q; damage %v", seid, body, want[seid], damage)
			}
		}
	}
	if kept < 250 {
		t.Errorf("all were lost in all but %d of 1000", kept)
	}
}

// What a process left when it died in a write, and garbage, lose nothing. What is
// written behind it is there.
func TestTail(t *testing.T) {
	log, starts, after := written(t, 12)
	dir := t.TempDir()
	check := func(name string, log []byte, want sessions) {
		t.Helper()
		onDisk(t, dir, log)
		if got, _, lost := reopen(t, dir); lost != nil || len(differ(got, want)) != 0 {
			t.Fatalf("%s: lost %v, differ %v", name, lost, differ(got, want))
		}
		j, _, err := Open(dir, testBoot, sessions{}.take)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(j.Append(Record{Kind: Session, SEID: 19, Body: []byte("new")}), j.Close()); err != nil {
			t.Fatal(err)
		}
		want = maps.Clone(want)
		want[19] = "new"
		if got, _, lost := reopen(t, dir); lost != nil || len(differ(got, want)) != 0 {
			t.Fatalf("%s: then lost %v, differ %v", name, lost, differ(got, want))
		}
	}
	for n := range log {
		whole := 0 // records
		for whole+1 < len(starts) && starts[whole+1] <= n {
			whole++
		}
		if n < starts[0] {
			whole = 0
		}
		check(fmt.Sprintf("cut off at %d", n), log[:n], after[whole])
	}
	for _, n := range []int{1, 7, 8, 9, 35, 36, 500, 3 * window} {
		garbage := make([]byte, n)
		for i := range garbage {
			garbage[i] = byte(i * i)
		}
		check(fmt.Sprintf("%d octets of garbage", n), append(bytes.Clone(log), garbage...), after[len(after)-1])
		check(fmt.Sprintf("%d zeros", n), append(bytes.Clone(log), make([]byte, n)...), after[len(after)-1])
	}
	check("its own records again", append(bytes.Clone(log), log...), after[len(after)-1])
	for _, at := range starts { // as a failed write leaves it that could not be removed
		check("garbage in the middle", bytes.Join([][]byte{log[:at], make([]byte, 57), log[at:]}, nil), after[len(after)-1])
		check("part of a record", bytes.Join([][]byte{log[:at], log[at : at+36], log[at:]}, nil), after[len(after)-1])
	}
}

// Where nobody knows which sessions lost a record, all are lost: then they get a
// new Recovery Time Stamp. What was damaged is kept under another name.
func TestUnknownSessions(t *testing.T) {
	log, starts, _ := written(t, 40)
	clear(log[starts[10]:starts[14]])
	dir := onDisk(t, t.TempDir(), log)
	if _, _, lost := reopen(t, dir); lost == nil {
		t.Error("nothing was lost")
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "damaged-1.log")); err != nil || !bytes.Equal(kept, log) {
		t.Errorf("the damaged log: %v", err)
	}
	if got, damage, lost := reopen(t, dir); lost != nil || len(damage)+len(got) != 0 {
		t.Errorf("the next start: %v, %v, %v", got, damage, lost)
	}
}

// A damaged snapshot is like a damaged log. The next one is whole.
func TestDamagedSnapshot(t *testing.T) {
	dir := t.TempDir()
	write := func(put func(Record) error) error {
		for seid := range uint64(9) {
			if err := put(Record{Kind: Session, SEID: seid + 1, Body: []byte("it")}); err != nil {
				return err
			}
		}
		return nil
	}
	open := func() *Journal {
		j, lost, err := Open(dir, testBoot, sessions{}.take)
		if err != nil || lost != nil {
			t.Fatal(err, lost)
		}
		return j
	}
	j := open()
	if err := errors.Join(j.Renew(write), j.Close()); err != nil {
		t.Fatal(err)
	}
	path := j.path(j.generation, "snapshot")
	snapshot, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range snapshot {
		wrong := bytes.Clone(snapshot)
		wrong[i] ^= 1
		if err := os.WriteFile(path, wrong, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, lost := reopen(t, dir); lost != nil || len(got) < 8 {
			t.Fatalf("octet %d: %d sessions, lost %v", i, len(got), lost)
		}
	}
	j = open()
	if !j.Grown() {
		t.Error("nobody replaces the damaged snapshot")
	}
	if err := errors.Join(j.Renew(write), j.Close()); err != nil || j.Grown() {
		t.Error(err, j.Grown())
	}
	if got, damage, lost := reopen(t, dir); lost != nil || len(damage) != 0 || len(got) != 9 {
		t.Errorf("%v, %v, %v", got, damage, lost)
	}
	path = j.path(j.generation, "snapshot")
	if err := os.Truncate(path, int64(len(snapshot)/2)); err != nil {
		t.Fatal(err)
	}
	if _, _, lost := reopen(t, dir); lost == nil {
		t.Error("half a snapshot counts as whole")
	}
}

// Nothing of another boot is read, whatever the disk kept of it.
func TestPowerLoss(t *testing.T) {
	log, _, _ := written(t, 2000)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		left := bytes.Clone(log[:r.IntN(len(log))]) // pages that were not written are zero
		for at := 0; at < len(left); at += 4096 {
			if r.IntN(3) == 0 {
				clear(left[at:min(at+4096, len(left))])
			}
		}
		onDisk(t, dir, left)
		j, lost, err := Open(dir, []byte("layout 1 of boot 77ff"), func(r Record) error {
			return fmt.Errorf("a record of another boot: %v", r)
		})
		if err != nil || lost != nil && !errors.Is(lost, errOther) || lost == nil && len(left) > 100 {
			t.Fatalf("%d octets: %v, %v", len(left), lost, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
