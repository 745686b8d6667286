package upf

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/testutil/sample"
	"github.com/culvert-net/culvert/internal/upf/codec"
	"github.com/culvert-net/culvert/internal/upf/journal"
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
	for _, when := range []string{"before", "after"} {
		seen := 0
		for got := range w.Sessions() {
			if seen++; got != want[got.SEID] {
				t.Errorf("%s a restart: %+v, want %+v", when, got, want[got.SEID])
			}
		}
		if seen != len(want) {
			t.Errorf("%s a restart: %d sessions, want %d", when, seen, len(want))
		}
		w.restart()
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
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	header := fmt.Appendf(nil, "culvert sessions %d %s", codec.Version, strings.TrimSpace(string(boot)))
	j, lost, err := journal.Open(w.dir, header, func(journal.Record) error { return nil })
	if err != nil || lost != nil {
		t.Fatal(err, lost)
	}
	body := append(binary.AppendUvarint(nil, uint64(len(cut))), cut...)
	if err := j.Append(journal.Record{Kind: journal.Session, SEID: 7, Body: body}); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
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
