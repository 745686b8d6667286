package upf

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/session"
)

// noResources is the IE Cause 75, No resources available (TS 29.244, 8.2.1).
var noResources = []byte{0, 19, 0, 1, 75}

// TestSharedSessionsOnAFullDisk: the journal takes nothing of what the data path does, the
// daemon refuses requests, and is killed amid them again and again. What the data path has
// answered stays true, and is in the journal when that has room again.
func TestSharedSessionsOnAFullDisk(t *testing.T) {
	dir := onSmallDisk(t)
	d := newTestDaemonIn(t, n4Places, dir)
	p := newPhones(t, open5gs, 20, d)
	for _, one := range p.list {
		p.each(p.core.another(p, one), one)
	}
	free := fill(t, dir)
	for n := 0; !bytes.Contains(p.each(modification(quota), p.list[0])[0], noResources); n++ {
		if n == 100_000 {
			t.Fatal("the journal does not get full")
		}
	}
	for range 10 {
		here := d.everything().Here
		for _, one := range p.list {
			p.moveInDataPath(one)
		}
		if more := d.everything().Here - here; more < uint64(len(p.list)) {
			t.Errorf("the data path answered %d of %d", more, len(p.list))
		}
		p.quotasUntil(time.Duration(p.random.IntN(3000)) * time.Microsecond)
		d.kill()
		d.start()
		for _, one := range p.list { // its last request may be lost: until the next one it is the daemon's
			p.await(one)
		}
		p.check()
	}
	free()
	for _, one := range p.list {
		if answer := p.each(modification(quota), one)[0]; bytes.Contains(answer, noResources) {
			t.Errorf("refused although there is room: %x", answer)
		}
	}
	d.kill()
	d.config.Places = 0 // the table is not asked any more
	d.start()
	p.check()
}

// moveInDataPath hands a phone over, which the data path answers.
func (p *phones) moveInDataPath(one *phone) {
	p.t.Helper()
	gnb, teid := one.gnb, p.random.Uint32N(1000)+1
	if answer := p.each(to(modification(handover), gnb, teid), one)[0]; bytes.Contains(answer, noResources) {
		p.t.Fatalf("refused: %x", answer)
	}
	one.action, one.gnb, one.teid = session.Forward, gnb, teid
}

// quotasUntil asks the daemon of all sessions, and reads no answers.
func (p *phones) quotasUntil(after time.Duration) {
	p.t.Helper()
	m := modification(quota)
	for end := time.Now().Add(after); time.Now().Before(end); {
		for _, one := range p.list {
			p.sequence++
			binary.BigEndian.PutUint64(m[4:], p.seids[0][one.cpSEID])
			binary.BigEndian.PutUint32(m[12:], p.sequence<<8)
			if _, err := p.upfs[0].smf.Write(m); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}
