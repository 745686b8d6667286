package dataplane

import (
	"errors"
	"fmt"
	"testing"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

func TestTEIDs(t *testing.T) {
	d := sessionRig(t, Options{})
	must(t, d.Sessions.TakeTEID(5))
	must(t, d.Sessions.TakeTEID(9<<24|5)) // the same entry: found by the hash
	must(t, d.Sessions.TakeTEID(0xfffffff0))
	for _, teid := range []uint32{5, 9<<24 | 5, 0xfffffff0} {
		if err := d.Sessions.TakeTEID(teid); !errors.Is(err, ErrTaken) {
			t.Errorf("TEID %#x taken again: %v", teid, err)
		}
	}
	if err := d.Sessions.TakeTEID(0); err == nil {
		t.Error("TEID 0 was taken")
	}
	seen := map[uint32]bool{5: true}
	entries := 2 * sessionLimits.Sessions // two for each session
	for range entries - 1 {
		teid, err := d.Sessions.NewTEID()
		must(t, err)
		if seen[teid&settings.MaxSessions] || teid&settings.MaxSessions > entries {
			t.Fatalf("TEID %#x: its entry is taken, or not there", teid)
		}
		seen[teid&settings.MaxSessions] = true
	}
	var full *table.FullError
	if teid, err := d.Sessions.NewTEID(); !errors.As(err, &full) {
		t.Errorf("one more: %#x, %v", teid, err)
	}
	d.Sessions.FreeTEID(5)
	d.Sessions.FreeTEID(5) // once more does nothing
	teid, err := d.Sessions.NewTEID()
	must(t, err)
	if teid == 5 || teid&settings.MaxSessions != 5 {
		t.Errorf("after 5 was free: %#x", teid)
	}
	d.Sessions.FreeTEID(teid)
	d.Sessions.FreeTEID(0xfffffff0)
	must(t, d.Sessions.TakeTEID(0xfffffff0))
	// Over a restart generations go on.
	must(t, d.Sessions.Put(plain(5, teid)))
	must(t, d.Sessions.Drop(5))
	restart(t, d)
	must(t, d.Sweep())
	for range 5 {
		again, err := d.Sessions.NewTEID()
		must(t, err)
		if again == teid {
			t.Errorf("TEID %#x is handed out at once after a restart", teid)
		}
	}
}

// TestTEIDsOfACountingSMF: an SMF that chooses TEIDs counts up, beyond the entries that there are for TEIDs.
// No hash has to find them, and each leads to its own session.
func TestTEIDsOfACountingSMF(t *testing.T) {
	d := sessionRig(t, Options{})
	const first, n, same = 4242, 3, 128 // TEIDs with the same entry are so far apart
	put := func(i, teid uint32, hashed int) {
		t.Helper()
		must(t, d.Sessions.TakeTEID(teid))
		must(t, d.Sessions.Put(plain(i, teid)))
		if got := d.Usage()[abi.MapPdrByTeid].Used; got != hashed {
			t.Errorf("TEID %d: a hash finds %d, want %d", teid, got, hashed)
		}
	}
	passes := func(what string, i, teid uint32, reason string) {
		t.Helper()
		wantReason(t, d, fmt.Sprintf("%s: TEID %d", what, teid), uplinkFrame(teid, ue4(i).String(), "192.0.2.1", 80), reason)
	}
	for i := range uint32(n) {
		put(1+i, first+i, 0)
	}
	resolve(t, d)
	for i := range uint32(n) {
		passes("its own UE", 1+i, first+i, "forwarded")
		passes("another UE", 5+i, first+i, "ue_source")
		passes("of the same entry", 1+i, first+i+same, "teid_unknown")
		passes("of the same entry", 1+i, (first+i)%same, "teid_unknown")
		passes("of the same entry", 1+i, 33<<24|(first+i)%same, "teid_unknown")
	}
	put(5, first+same, 1)
	put(6, 33<<24|(first+1)%same, 2)
	resolve(t, d)
	again := func(what string) {
		t.Helper()
		passes(what, 1, first, "forwarded")
		passes(what, 5, first+same, "forwarded")
		passes(what, 2, first+1, "forwarded")
		passes(what, 6, 33<<24|(first+1)%same, "forwarded")
	}
	again("of the same entry")
	for range sessionLimits.Sessions {
		if teid, err := d.Sessions.NewTEID(); err != nil || teid&settings.MaxSessions == first%same {
			t.Fatalf("TEID %#x is handed out, whose entry is taken (%v)", teid, err)
		}
	}
	restart(t, d)
	for _, i := range []uint32{1, 2, 3} {
		must(t, d.Sessions.Put(plain(i, first+i-1)))
	}
	must(t, d.Sessions.Put(plain(5, first+same)))
	must(t, d.Sessions.Put(plain(6, 33<<24|(first+1)%same)))
	must(t, d.Sweep())
	again("after a restart")
	for _, i := range []uint64{1, 2, 3, 5, 6} {
		must(t, d.Sessions.Drop(i))
	}
	checkEmpty(t, d)
	d.Sessions.FreeTEID(first)
	must(t, d.Sessions.TakeTEID(first))
}
