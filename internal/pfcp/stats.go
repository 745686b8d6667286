package pfcp

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-pfcp/message"

	"github.com/culvert-net/culvert/internal/logevent"
)

// Stats are the counters of the server since its start.
type Stats struct {
	// Received and Sent count messages by type, without those from addresses
	// that are not allowed. Answers counts the responses among Sent by cause.
	Received, Sent map[string]uint64
	Answers        []Answers

	// Events counts what else happened, by the names of the metric.
	Events         map[string]uint64
	ReportsPending int // Session Report Requests without an answer yet
}

// Answers are the responses of one type with one cause (TS 29.244 section
// 8.2.1).
type Answers struct {
	Message string
	Cause   uint8
	Count   uint64
}

// counters are the source of Stats.
type counters struct {
	received, sent [256]atomic.Uint64
	causes         [64][256]atomic.Uint64 // by message type, cause

	strangers                      atomic.Uint64 // datagrams from addresses that are not allowed
	astray                         atomic.Uint64 // datagrams by interfaces that are not N4's
	unauthorised                   atomic.Uint64 // requests for what belongs to another peer
	malformed                      atomic.Uint64 // datagrams without a readable PFCP message
	repeated                       atomic.Uint64 // requests that were answered from the cache
	overflows                      atomic.Uint64 // datagrams dropped because a queue was full
	excess, excessOctets           atomic.Uint64 // datagrams dropped because their senders send too many
	unsent                         atomic.Uint64 // messages that the socket refused
	retransmissions                atomic.Uint64 // of our requests
	unanswered                     atomic.Uint64 // our requests that were given up
	unexpected                     atomic.Uint64 // responses without a request of ours
	panics                         atomic.Uint64 // messages that made our reader panic
	unconfirmed                    atomic.Uint64 // Recovery Time Stamps that the SMF did not confirm
	associationsLost, peerRestarts atomic.Uint64
	reports                        atomic.Int64
}

func (c *counters) answered(msgType, cause uint8) {
	c.sent[msgType].Add(1)
	if int(msgType) < len(c.causes) {
		c.causes[msgType][cause].Add(1)
	}
}

// messageNames are TS 29.244 table 7.3-1.
var messageNames = map[uint8]string{
	message.MsgTypeHeartbeatRequest:             "heartbeat request",
	message.MsgTypeHeartbeatResponse:            "heartbeat response",
	message.MsgTypePFDManagementRequest:         "PFD management request",
	message.MsgTypePFDManagementResponse:        "PFD management response",
	message.MsgTypeAssociationSetupRequest:      "association setup request",
	message.MsgTypeAssociationSetupResponse:     "association setup response",
	message.MsgTypeAssociationUpdateRequest:     "association update request",
	message.MsgTypeAssociationUpdateResponse:    "association update response",
	message.MsgTypeAssociationReleaseRequest:    "association release request",
	message.MsgTypeAssociationReleaseResponse:   "association release response",
	message.MsgTypeVersionNotSupportedResponse:  "version not supported response",
	message.MsgTypeNodeReportRequest:            "node report request",
	message.MsgTypeNodeReportResponse:           "node report response",
	message.MsgTypeSessionSetDeletionRequest:    "session set deletion request",
	message.MsgTypeSessionSetDeletionResponse:   "session set deletion response",
	message.MsgTypeSessionEstablishmentRequest:  "session establishment request",
	message.MsgTypeSessionEstablishmentResponse: "session establishment response",
	message.MsgTypeSessionModificationRequest:   "session modification request",
	message.MsgTypeSessionModificationResponse:  "session modification response",
	message.MsgTypeSessionDeletionRequest:       "session deletion request",
	message.MsgTypeSessionDeletionResponse:      "session deletion response",
	message.MsgTypeSessionReportRequest:         "session report request",
	message.MsgTypeSessionReportResponse:        "session report response",
}

func messageName(msgType uint8) string {
	if s, ok := messageNames[msgType]; ok {
		return s
	}
	return fmt.Sprintf("message type %d", msgType)
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	c := &s.counters
	out := Stats{
		Received: map[string]uint64{}, Sent: map[string]uint64{},
		Events: map[string]uint64{
			"stranger": c.strangers.Load(), "wrong_interface": c.astray.Load(), "unauthorised": c.unauthorised.Load(), "malformed": c.malformed.Load(),
			"repeated": c.repeated.Load(), "overflow": c.overflows.Load(), "rate_limited": c.excess.Load(), "unsent": c.unsent.Load(),
			"retransmission": c.retransmissions.Load(), "unanswered": c.unanswered.Load(),
			"unexpected": c.unexpected.Load(), "panic": c.panics.Load(),
			"unconfirmed": c.unconfirmed.Load(), "association_lost": c.associationsLost.Load(), "peer_restart": c.peerRestarts.Load(),
		},
		ReportsPending: int(c.reports.Load()),
	}
	for _, c := range s.conns {
		out.Events["receive_buffer"] += c.overrun()
	}
	for i := range 256 {
		if n := c.received[i].Load(); n > 0 {
			out.Received[messageName(uint8(i))] = n
		}
		if n := c.sent[i].Load(); n > 0 {
			out.Sent[messageName(uint8(i))] = n
		}
	}
	for t := range c.causes {
		for cause := range c.causes[t] {
			if n := c.causes[t][cause].Load(); n > 0 {
				out.Answers = append(out.Answers, Answers{messageName(uint8(t)), uint8(cause), n})
			}
		}
	}
	return out
}

// Excess returns how many messages their senders' rate was too high for, and their
// octets.
func (s *Server) Excess() (messages, octets uint64) {
	return s.counters.excess.Load(), s.counters.excessOctets.Load()
}

// complaint limits a log message whose rate peers control.
type complaint struct {
	next   atomic.Int64 // when it may be logged again, in nanoseconds of Unix time
	hidden atomic.Uint64
}

// warn logs text with args once a second, and how many such messages were not
// logged before.
func (s *Server) warn(c *complaint, event *logevent.Event, text string, args ...any) {
	s.limited(c, time.Second, event, text, args)
}

// inform logs text with args once a minute, and how many such messages were not
// logged before.
func (s *Server) inform(c *complaint, event *logevent.Event, text string, args ...any) {
	s.limited(c, time.Minute, event, text, args)
}

func (s *Server) limited(c *complaint, every time.Duration, event *logevent.Event, text string, args []any) {
	now := time.Now().UnixNano()
	next := c.next.Load()
	if now < next || !c.next.CompareAndSwap(next, now+int64(every)) {
		c.hidden.Add(1)
		return
	}
	if n := c.hidden.Swap(0); n > 0 {
		args = append(args, "not_logged", n)
	}
	s.log.Log(context.Background(), event.Level(), text, "event", event, slog.Group("", args...))
}
