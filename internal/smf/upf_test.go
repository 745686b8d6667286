package smf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"
)

// upf is a UPF that reads everything by go-pfcp, remembers it, and answers as
// the test wants.
type upf struct {
	t       *testing.T
	conn    *net.UDPConn
	started time.Time

	mu       sync.Mutex
	requests []request
	smf      netip.AddrPort
	teid     uint32
	last     uint64
	cp       map[uint64]uint64 // CP SEID by ours
	// lose says whether a datagram got lost, the n-th of all.
	lose func(n int, kind uint8) bool
	// say is what an answer holds in place of acceptance; nil: acceptance.
	say func(m message.Message) []*ie.IE
	// usage is put into answers to modifications and deletions.
	usage *ie.IE
	// noCreated and otherSEID spoil answers.
	noCreated bool
	otherSEID uint64
	answers   chan message.Message // to what the UPF asked
}

type request struct {
	raw     []byte
	message message.Message
}

func newUPF(t *testing.T) *upf {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(free("127.0.0.3")))
	if err != nil {
		t.Fatal(err)
	}
	u := &upf{t: t, conn: conn, started: time.Unix(1_700_000_000, 0), cp: map[uint64]uint64{}, answers: make(chan message.Message, 100)}
	var ended sync.WaitGroup
	ended.Go(u.serve)
	t.Cleanup(func() {
		conn.Close()
		ended.Wait()
	})
	return u
}

func (u *upf) addr() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), u.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
}

func (u *upf) serve() {
	b := make([]byte, 1<<16)
	for n := 0; ; n++ {
		size, from, err := u.conn.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		raw := bytes.Clone(b[:size])
		m, err := message.Parse(bytes.Clone(raw))
		if err != nil {
			u.t.Errorf("the SMF sent what go-pfcp cannot read: %v: % x", err, raw)
			continue
		}
		switch m.(type) {
		case *message.SessionReportResponse, *message.HeartbeatResponse, *message.NodeReportResponse, *message.AssociationReleaseResponse:
			u.answers <- m
			continue
		}
		u.mu.Lock()
		u.smf = from
		u.requests = append(u.requests, request{raw, m})
		lost := u.lose != nil && u.lose(n, m.MessageType())
		var out message.Message
		if !lost {
			out = u.answer(m)
		}
		u.mu.Unlock()
		if out != nil {
			u.send(out, from)
		}
	}
}

func (u *upf) send(m message.Message, to netip.AddrPort) {
	b := make([]byte, m.MarshalLen())
	if err := m.MarshalTo(b); err != nil {
		u.t.Errorf("%s: %v", m.MessageTypeName(), err)
		return
	}
	if _, err := u.conn.WriteToUDPAddrPort(b, to); err != nil && !errors.Is(err, net.ErrClosed) {
		u.t.Errorf("%s: %v", m.MessageTypeName(), err)
	}
}

// ask sends the SMF a request of the UPF's and returns its answer.
func (u *upf) ask(m message.Message) message.Message {
	u.t.Helper()
	u.mu.Lock()
	to := u.smf
	u.mu.Unlock()
	u.send(m, to)
	select {
	case a := <-u.answers:
		return a
	case <-time.After(2 * time.Second):
		u.t.Fatalf("%s: the SMF does not answer", m.MessageTypeName())
		return nil
	}
}

func (u *upf) answer(m message.Message) message.Message {
	node, accepted := ie.NewNodeID("127.0.0.3", "", ""), []*ie.IE{ie.NewCause(ie.CauseRequestAccepted)}
	if u.say != nil {
		if other := u.say(m); other != nil {
			accepted = other
		}
	}
	switch m := m.(type) {
	case *message.HeartbeatRequest:
		return message.NewHeartbeatResponse(m.SequenceNumber, ie.NewRecoveryTimeStamp(u.started))
	case *message.AssociationSetupRequest:
		return message.NewAssociationSetupResponse(m.SequenceNumber, append([]*ie.IE{node, ie.NewRecoveryTimeStamp(u.started), ie.NewUPFunctionFeatures(0x10, 0x01)}, accepted...)...)
	case *message.AssociationReleaseRequest:
		return message.NewAssociationReleaseResponse(m.SequenceNumber, node, accepted[0])
	case *message.SessionEstablishmentRequest:
		return u.established(m, append([]*ie.IE{node}, accepted...))
	case *message.SessionModificationRequest:
		return message.NewSessionModificationResponse(0, 0, u.cp[m.SEID()], m.SequenceNumber, 0, u.withUsage(accepted, ie.UsageReportWithinSessionModificationResponse)...)
	case *message.SessionDeletionRequest:
		return message.NewSessionDeletionResponse(0, 0, u.cp[m.SEID()], m.SequenceNumber, 0, u.withUsage(accepted, ie.UsageReportWithinSessionDeletionResponse)...)
	}
	u.t.Errorf("the SMF sent a %s", m.MessageTypeName())
	return nil
}

func (u *upf) withUsage(ies []*ie.IE, kind uint16) []*ie.IE {
	if u.usage == nil {
		return ies
	}
	report := *u.usage
	report.Type = kind
	return append(ies, &report)
}

// established chooses an F-TEID for each PDR that asks for one, the same for
// the same CHOOSE ID.
func (u *upf) established(m *message.SessionEstablishmentRequest, ies []*ie.IE) message.Message {
	cp, err := m.CPFSEID.FSEID()
	if err != nil {
		u.t.Errorf("F-SEID: %v", err)
		return nil
	}
	u.last++
	seid := 0xab00000000 + u.last
	u.cp[seid] = cp.SEID
	ies = append(ies, ie.NewFSEID(seid, net.IPv4(127, 0, 0, 3), nil))
	chosen := map[uint8]uint32{}
	for _, pdr := range m.CreatePDR {
		id, _ := pdr.PDRID()
		pdi := child(pdr, ie.PDI)
		var created []*ie.IE
		if f := child(pdi, ie.FTEID); f != nil {
			if want, err := f.FTEID(); err == nil && want.HasCh() {
				if chosen[want.ChooseID] == 0 || !want.HasChID() {
					u.teid++
					chosen[want.ChooseID] = u.teid
				}
				created = append(created, ie.NewFTEID(1, chosen[want.ChooseID], net.IPv4(127, 0, 0, 3), nil, 0))
			}
		}
		if a := child(pdi, ie.UEIPAddress); a != nil && (a.HasCHV4() || a.HasCHV6()) {
			created = append(created, ie.NewUEIPAddress(2|1, "10.99.0.7", "2001:db8:99:7::", 0, 0))
		}
		if len(created) > 0 && !u.noCreated {
			ies = append(ies, ie.NewCreatedPDR(append([]*ie.IE{ie.NewPDRID(id)}, created...)...))
		}
	}
	if u.otherSEID != 0 {
		cp.SEID = u.otherSEID
	}
	return message.NewSessionEstablishmentResponse(0, 0, cp.SEID, m.SequenceNumber, 0, ies...)
}

// child returns the first IE of a type within another, or nil.
func child(i *ie.IE, kind uint16) *ie.IE {
	if i == nil {
		return nil
	}
	for _, c := range i.ChildIEs {
		if c.Type == kind {
			return c
		}
	}
	return nil
}

// of are the requests of a type, so far.
func (u *upf) of(kind uint8) []request {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []request
	for _, r := range u.requests {
		if r.message.MessageType() == kind {
			list = append(list, r)
		}
	}
	return list
}

// lastModification returns the latest modification request.
func (u *upf) lastModification() *message.SessionModificationRequest {
	u.t.Helper()
	list := u.of(message.MsgTypeSessionModificationRequest)
	if len(list) == 0 {
		u.t.Fatal("no modification was sent")
	}
	return list[len(list)-1].message.(*message.SessionModificationRequest)
}

// change sets how the UPF answers.
func (u *upf) change(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}
