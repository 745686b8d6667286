package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/session"
)

// Header is a PFCP header (TS 29.244 section 7.2.2).
type Header struct {
	Type     uint8
	HasSEID  bool
	SEID     uint64
	Sequence uint32
	// Priority is the message priority, in the upper half of its octet.
	HasPriority bool
	Priority    uint8
	Followed    bool // FO: another message follows in the datagram
}

const (
	pfcpVersion = 1
	// FlagSEID says that the header has a SEID (S, TS 29.244 clause 7.2.2.1).
	FlagSEID = 1 << 0
	flagMP   = 1 << 1
	flagFO   = 1 << 2
)

// Errors of ReadHeader.
var (
	ErrUnreadable = errors.New("datagram is too short for a PFCP header")
	ErrVersion    = errors.New("not PFCP version 1")
	ErrLength     = errors.New("message length does not match the datagram")
)

// ReadHeader reads the first message of a datagram. It returns the header with
// ErrVersion and ErrLength too, so that the message can be answered. body is the
// message's IEs, rest what follows the message.
func ReadHeader(b []byte) (h Header, body, rest []byte, err error) {
	if len(b) < 8 {
		return h, nil, nil, ErrUnreadable
	}
	flags := b[0]
	h.Type = b[1]
	h.HasSEID = flags&FlagSEID != 0
	h.HasPriority = flags&flagMP != 0
	h.Followed = flags&flagFO != 0
	at := 4
	if h.HasSEID {
		if len(b) < 16 {
			return h, nil, nil, ErrUnreadable
		}
		h.SEID = binary.BigEndian.Uint64(b[4:])
		at = 12
	}
	h.Sequence = binary.BigEndian.Uint32(b[at:]) >> 8
	if h.HasPriority {
		h.Priority = b[at+3] & 0xf0
	}
	if flags>>5 != pfcpVersion {
		return h, nil, nil, ErrVersion
	}
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	if end < at+4 || end > len(b) {
		return h, nil, nil, ErrLength
	}
	return h, b[at+4 : end], b[end:], nil
}

// AppendMessage appends a message with the sequence number, SEID and priority
// of h.
func AppendMessage(dst []byte, msgType uint8, h Header, list ...*ie.IE) []byte {
	start := len(dst)
	flags := uint8(pfcpVersion << 5)
	if h.HasPriority {
		flags |= flagMP
	}
	if h.HasSEID {
		flags |= FlagSEID
	}
	dst = append(dst, flags, msgType, 0, 0)
	if h.HasSEID {
		dst = binary.BigEndian.AppendUint64(dst, h.SEID)
	}
	dst = binary.BigEndian.AppendUint32(dst, h.Sequence<<8|uint32(h.Priority))
	for _, i := range list {
		dst = AppendIE(dst, i)
	}
	binary.BigEndian.PutUint16(dst[start+2:], uint16(len(dst)-start-4))
	return dst
}

// AppendIE appends an IE with its payload as it is: go-pfcp completes the payload
// of a grouped IE when it makes it. nil appends nothing.
func AppendIE(dst []byte, i *ie.IE) []byte {
	if i == nil {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, i.Type)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(i.Payload)))
	return append(dst, i.Payload...)
}

// IEs is a list of encoded IEs.
type IEs []byte

// Next removes the first IE and returns its octets.
func (l *IEs) Next() (octets []byte, err *Refusal) {
	b := *l
	if len(b) < ieHeader {
		return nil, &Refusal{Cause: ie.CauseInvalidLength}
	}
	end := ieHeader + int(binary.BigEndian.Uint16(b[2:]))
	if end > len(b) {
		return nil, &Refusal{Cause: ie.CauseInvalidLength, Offending: binary.BigEndian.Uint16(b)}
	}
	*l = b[end:]
	return b[:end], nil
}

// Refusal says why a request is refused, and what the answer says.
type Refusal struct {
	Cause     uint8
	Offending uint16             // type of an IE; 0: none is named
	Rule      *session.RuleError // Failed Rule ID, or nil
	Err       error              // for the log
}

// Error returns cause, offending IE, rule and error, for the log.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("cause %d", r.Cause)
	if r.Offending != 0 {
		text += fmt.Sprintf(", IE %d", r.Offending)
	}
	if r.Rule != nil {
		text += fmt.Sprintf(", %s %d", r.Rule.Kind, r.Rule.ID)
	}
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// IEs returns the IEs of an answer that refuses a request.
func (r *Refusal) IEs() []*ie.IE {
	list := []*ie.IE{ie.NewCause(r.Cause)}
	if r.Offending != 0 {
		list = append(list, ie.NewOffendingIE(r.Offending))
	}
	if r.Rule != nil {
		list = append(list, ie.NewFailedRuleID(uint8(r.Rule.Kind), r.Rule.ID))
	}
	return list
}

// Missing refuses a request with Cause 66 (mandatory IE missing).
func Missing(ieType uint16) *Refusal {
	return &Refusal{Cause: ie.CauseMandatoryIEMissing, Offending: ieType}
}

// ConditionMissing refuses a request with Cause 67 (conditional IE missing).
func ConditionMissing(ieType uint16) *Refusal {
	return &Refusal{Cause: ie.CauseConditionalIEMissing, Offending: ieType}
}

// Unsupported refuses a request with Cause 76 (service not supported).
func Unsupported(ieType uint16) *Refusal {
	return &Refusal{Cause: ie.CauseServiceNotSupported, Offending: ieType}
}

// FailedRule refuses a request with Cause 73 (rule creation or modification
// failure).
func FailedRule(kind session.RuleKind, id uint32, err error) *Refusal {
	return &Refusal{Cause: ie.CauseRuleCreationModificationFailure, Rule: &session.RuleError{Kind: kind, ID: id}, Err: err}
}
