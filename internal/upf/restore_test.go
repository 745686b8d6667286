package upf

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/codec"
	"github.com/culvert-net/culvert/internal/upf/journal"
	"github.com/culvert-net/culvert/internal/upf/store"
)

// What identifies a session is the same after a restart, when the rest of its record
// is not looked at.
func TestRestoreIdentities(t *testing.T) {
	w := newWorld(t)
	want := map[uint64]pfcp.Identity{}
	for seid := range uint64(200) {
		s := sample.Session(seid + 1)
		if seid%3 == 0 {
			s.Node = fmt.Sprintf("smf%d.example", seid)
		}
		if seid%5 == 0 {
			s.PDRs[0].PDI.ApplicationID = "video"
		}
		w.establish(s)
		want[s.SEID] = pfcp.Identity{SEID: s.SEID, CPSEID: s.CPSEID, CPAddr: s.CPAddr, Node: s.Node, Applications: seid%5 == 0}
	}
	check := func(when string) {
		t.Helper()
		seen := 0
		for got := range w.Sessions() {
			if seen++; got != want[got.SEID] {
				t.Errorf("%s: %+v, want %+v", when, got, want[got.SEID])
			}
		}
		if seen != len(want) {
			t.Errorf("%s: %d sessions, want %d", when, seen, len(want))
		}
	}
	check("before a restart")
	w.reserve()
	check("for the N4 server")
	check("for others")
	if _, err := w.remove(7); err != nil {
		t.Fatal(err)
	}
	delete(want, 7)
	check("while sessions are restored")
	w.Restore()
	check("after a restart")
	w.restart()
	check("after another one")
}

// record adds a record of a session to the journal of a process that was killed.
func (w *world) record(seid uint64, packed []byte) {
	w.t.Helper()
	j, lost, err := journal.Open(w.dir, []byte(store.Header()), func(journal.Record) error { return nil })
	if err != nil || lost != nil {
		w.t.Fatal(err, lost)
	}
	body := append(binary.AppendUvarint(nil, uint64(len(packed))), packed...)
	if err := errors.Join(j.Append(journal.Record{Kind: journal.Session, SEID: seid, Body: body}), j.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// headless is sample.Session(1) as a build wrote it whose records had no TEIDs and UE
// addresses in front.
const headless = "04010804c0000201123139322e302e322e310101010110696e7465726e657400000201ff0100010b038180800804c0000202000001040a00000121" +
	"00000109000001010101010102ff010101110380000401040a00000121800006020101010102010201010003800005020201000003010004c0000203028000050101000001c0843dc0843d000001090001010100000380d88ee16f0101a0c21e800014"

// Sessions of a build before this one go on, and nobody else gets what they have.
func TestRestoreEarlierBuild(t *testing.T) {
	packed, err := hex.DecodeString(headless)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.record(1, packed)
	want := sample.Session(1)
	for _, build := range []string{"earlier", "this"} { // which a modification writes anew
		w.restart()
		if d := cmp.Diff(want, w.Session(1), sample.Same); d != "" {
			t.Fatalf("the session that the %s build wrote (-want +got)\n%s", build, d)
		}
		if err := w.TakeUE(want.UEs()); !errors.Is(err, pfcp.ErrTaken) {
			t.Errorf("its UE address: %v", err)
		}
		if err := w.TakeTEID(want.TEIDs()[0]); !errors.Is(err, pfcp.ErrTaken) {
			t.Errorf("its TEID: %v", err)
		}
		to := forwardTo(want, 0x777)
		w.modify(want, to, session.Modification{})
		want = to
	}
}

// A record that is whole, and that no store wrote, costs its session and the Recovery
// Time Stamp, and nothing else.
func TestRestoreMalformed(t *testing.T) {
	w := newWorld(t)
	for seid := range uint64(20) {
		w.establish(sample.Session(seid + 1))
	}
	if err := w.SaveState("it", []byte("associations")); err != nil {
		t.Fatal(err)
	}
	c := codec.NewWriter()
	defer c.Release()
	c.Session(sample.Session(7))
	cut := c.Bytes()[:len(c.Bytes())-3]
	w.record(7, cut)
	for range 2 {
		w.restart()
		if w.Len() != 19 || w.Session(7) != nil || w.Session(8) == nil {
			t.Fatalf("%d sessions, session 7: %v", w.Len(), w.Session(7))
		}
		if state, err := w.LoadState(); err != nil || len(state) != 0 {
			t.Errorf("state %q, %v", state, err)
		}
	}
	if w.path.teids[sample.Session(7).PDRs[0].PDI.TEID] {
		t.Error("the TEID of the session that was given up is taken")
	}
}
