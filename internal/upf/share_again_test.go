package upf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// TestSetUpAgain: an SMF that sets up its association again loses its sessions. Once a request about
// one of them is refused, none is accepted, neither by the daemon nor by the data path.
func TestSetUpAgain(t *testing.T) {
	p := newPhones(t, open5gs, 1000, newTestDaemon(t, n4Places))
	refused := 0
	for range 4 { // only the first time our Recovery Time Stamp becomes a later one
		for _, one := range p.list {
			p.each(p.handover(), one)
		}
		refused += p.setUpAgain()
		for _, one := range p.list {
			p.establish(one)
		}
	}
	if refused == 0 {
		t.Error("all sessions were gone at once: the test shows nothing")
	}
}

func (p *phones) handover() []byte {
	return to(modification(handover), netip.AddrFrom4([4]byte{10, 200, 1, 3}), 7)
}

// setUpAgain sets up the association while handovers go on. It returns how many were refused.
func (p *phones) setUpAgain() (refused int) {
	p.t.Helper()
	smf := p.upfs[0].smf
	send := func(m []byte) {
		if _, err := smf.Write(m); err != nil {
			p.t.Fatal(err)
		}
	}
	stamp := p.setup[bytes.Index(p.setup, []byte{0, 96, 0, 4}):][:8] // Recovery Time Stamp
	p.sequence++
	binary.BigEndian.PutUint32(p.setup[4:], p.sequence<<8)
	send(p.setup)
	late := map[uint32]bool{} // sent when one had been refused, by sequence number
	for end := time.Now().Add(stormPatience); time.Now().Before(end); {
		for range 20 {
			one := p.list[p.random.IntN(len(p.list))]
			m := p.handover()
			p.sequence = (p.sequence + 1) & 0xffffff
			binary.BigEndian.PutUint32(m[12:], p.sequence<<8)
			binary.BigEndian.PutUint64(m[4:], p.seids[0][one.cpSEID])
			late[p.sequence] = refused > 0
			send(m)
		}
		for _, m := range p.received(2 * time.Millisecond) {
			switch m[1] {
			case message.MsgTypeHeartbeatRequest:
				send(append(append([]byte{0x20, message.MsgTypeHeartbeatResponse, 0, 12}, m[4:8]...), stamp...))
			case message.MsgTypeAssociationSetupResponse:
				p.received(50 * time.Millisecond)
				return refused
			case message.MsgTypeSessionModificationResponse:
				cause := m[bytes.Index(m, []byte{0, 19, 0, 1})+4]
				if cause != ie.CauseRequestAccepted {
					refused++
				} else if late[sequenceOf(m)] {
					p.t.Fatalf("accepted after %d requests about sessions that go were refused", refused)
				}
			}
		}
	}
	p.t.Fatal("the association is not set up")
	return 0
}

// received is what has come when nothing has for so long.
func (p *phones) received(pause time.Duration) (list [][]byte) {
	p.t.Helper()
	smf, b := p.upfs[0].smf, make([]byte, 2048)
	for {
		if err := smf.SetReadDeadline(time.Now().Add(pause)); err != nil {
			p.t.Fatal(err)
		}
		n, err := smf.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return list
		}
		if err != nil || n < 8 {
			p.t.Fatalf("read %x: %v", b[:n], err)
		}
		list = append(list, bytes.Clone(b[:n]))
	}
}
