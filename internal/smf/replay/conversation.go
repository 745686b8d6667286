package replay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/wmnsk/go-pfcp/ie"
	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// Exchange is a request and its answer.
type Exchange struct {
	Request *Message
	Answer  *Message // nil: none was captured
	FromUPF bool
	// Session of the conversation that it is about, from 0; -1: none, or one that
	// began before the capture.
	Session int
}

// aboutSession says whether the request is about a session.
func (e *Exchange) aboutSession() bool {
	return e.Request.Kind >= message.MsgTypeSessionEstablishmentRequest
}

// Conversation are the exchanges between one SMF and one UPF.
type Conversation struct {
	SMF, UPF  netip.Addr
	Exchanges []*Exchange
	// Sessions are the CP SEIDs, each a session: one that is established again
	// stays the same.
	Sessions []uint64
}

// pair is an SMF and a UPF.
type pair struct{ smf, upf netip.Addr }

// Conversation returns that of an SMF and a UPF of the capture; an address that is
// not valid stands for the only one.
func (c *Capture) Conversation(smf, upf netip.Addr) (*Conversation, error) {
	var fitting, all []pair
	for _, p := range c.pairs() {
		all = append(all, p)
		if (!smf.IsValid() || p.smf == smf) && (!upf.IsValid() || p.upf == upf) {
			fitting = append(fitting, p)
		}
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("no request of an SMF in the capture: association and sessions are missing, or one direction is")
	case len(fitting) == 0:
		return nil, fmt.Errorf("no such conversation in the capture: it has %s: choose with from (the SMF) and to (the UPF)", describe(all))
	case len(fitting) > 1:
		return nil, fmt.Errorf("several conversations in the capture: %s: choose with from (the SMF) and to (the UPF)", describe(fitting))
	}
	return c.conversation(fitting[0]), nil
}

func describe(list []pair) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("SMF %s with UPF %s", p.smf, p.upf))
	}
	return strings.Join(texts, ", ")
}

// pairs are the SMFs and UPFs, by their order in the capture. An SMF asks for sessions,
// or sets an association up as a control plane.
func (c *Capture) pairs() (list []pair) {
	for _, m := range c.Messages {
		p := pair{m.From, m.To}
		switch m.Kind {
		case message.MsgTypeSessionEstablishmentRequest, message.MsgTypeSessionModificationRequest, message.MsgTypeSessionDeletionRequest:
		case message.MsgTypeAssociationSetupRequest:
			if find(m.Payload, ie.UPFunctionFeatures) != nil {
				p = pair{m.To, m.From}
			}
		default:
			continue
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// find is the first IE of a kind among those of b; nil: none.
func find(b []byte, kind uint16) (found []byte) {
	wire.Each(b, func(k uint16, value []byte) {
		if k == kind && found == nil {
			found = value
		}
	})
	return found
}

func (c *Capture) conversation(p pair) *Conversation {
	v := &Conversation{SMF: p.smf, UPF: p.upf}
	latest := map[requestKey]*Exchange{}
	for _, m := range c.Messages {
		if m.From == p.smf && m.To == p.upf || m.From == p.upf && m.To == p.smf {
			v.add(m, latest)
		}
	}
	v.findSessions()
	return v
}

// requestKey is what a request and its answer have in common.
type requestKey struct {
	from     netip.Addr
	kind     uint8
	sequence uint32
}

// repeated is how long after a request the same octets are a retransmission.
const repeated = 15 * time.Second

// add takes in the next message: a request, one that is sent again, or the answer
// to the latest request with its sequence number.
func (v *Conversation) add(m *Message, latest map[requestKey]*Exchange) {
	if kindNames[m.Kind] == "" {
		if e := latest[requestKey{m.To, m.Kind - 1, m.Sequence}]; e != nil && e.Answer == nil {
			e.Answer = m
		}
		return
	}
	key := requestKey{m.From, m.Kind, m.Sequence}
	if e := latest[key]; e != nil && bytes.Equal(e.Request.Data, m.Data) && (e.Answer == nil || m.Time.Sub(e.Request.Time) < repeated) {
		return
	}
	e := &Exchange{Request: m, FromUPF: m.From == v.UPF, Session: -1}
	latest[key] = e
	v.Exchanges = append(v.Exchanges, e)
}

// findSessions says of each exchange which session it is about, by the SEIDs that
// both sides gave.
func (v *Conversation) findSessions() {
	byUP := map[uint64]int{} // the UPF may give a SEID again
	for _, e := range v.Exchanges {
		switch {
		case !e.aboutSession():
		case e.FromUPF:
			e.Session = slices.Index(v.Sessions, e.Request.SEID)
		case e.Request.Kind == message.MsgTypeSessionEstablishmentRequest:
			cp := seidOf(find(e.Request.Payload, ie.FSEID))
			if e.Session = slices.Index(v.Sessions, cp); e.Session < 0 {
				v.Sessions = append(v.Sessions, cp)
				e.Session = len(v.Sessions) - 1
			}
			if e.Answer != nil {
				byUP[seidOf(find(e.Answer.Payload, ie.FSEID))] = e.Session
			}
		default:
			if i, known := byUP[e.Request.SEID]; known {
				e.Session = i
			}
		}
	}
}

// seidOf is the SEID of an F-SEID; 0: none.
func seidOf(fseid []byte) uint64 {
	if len(fseid) < 9 {
		return 0
	}
	return binary.BigEndian.Uint64(fseid[1:])
}

// kindNames are what TS 29.244 calls requests, by their kinds.
var kindNames = map[uint8]string{
	message.MsgTypeHeartbeatRequest: "Heartbeat Request", message.MsgTypePFDManagementRequest: "PFD Management Request",
	message.MsgTypeAssociationSetupRequest: "Association Setup Request", message.MsgTypeAssociationUpdateRequest: "Association Update Request",
	message.MsgTypeAssociationReleaseRequest: "Association Release Request", message.MsgTypeNodeReportRequest: "Node Report Request",
	message.MsgTypeSessionSetDeletionRequest: "Session Set Deletion Request", message.MsgTypeSessionEstablishmentRequest: "Session Establishment Request",
	message.MsgTypeSessionModificationRequest: "Session Modification Request", message.MsgTypeSessionDeletionRequest: "Session Deletion Request",
	message.MsgTypeSessionReportRequest: "Session Report Request",
}
