package pfcp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"
)

// header is a PFCP header (TS 29.244 section 7.2.2).
type header struct {
	msgType  uint8
	hasSEID  bool
	seid     uint64
	sequence uint32
	// priority is the octet behind the sequence number, if it has a meaning.
	hasPriority bool
	priority    uint8
	followed    bool // FO: another message follows in the datagram
}

const (
	pfcpVersion = 1
	flagSEID    = 1 << 0
	flagMP      = 1 << 1
	flagFO      = 1 << 2
)

// What can be wrong with a header.
var (
	errUnreadable = errors.New("too short for a PFCP header")
	errVersion    = errors.New("not PFCP version 1")
	errLength     = errors.New("the message's length is not that of the datagram")
)

// readHeader reads the first message of a datagram. Whenever the header itself
// could be read it is returned, also with an error, so that there can be an
// answer. body are the message's IEs, rest what is behind the message.
func readHeader(b []byte) (h header, body, rest []byte, err error) {
	if len(b) < 8 {
		return h, nil, nil, errUnreadable
	}
	flags := b[0]
	h.msgType = b[1]
	h.hasSEID = flags&flagSEID != 0
	h.hasPriority = flags&flagMP != 0
	h.followed = flags&flagFO != 0
	at := 4
	if h.hasSEID {
		if len(b) < 16 {
			return h, nil, nil, errUnreadable
		}
		h.seid = binary.BigEndian.Uint64(b[4:])
		at = 12
	}
	h.sequence = binary.BigEndian.Uint32(b[at:]) >> 8
	if h.hasPriority {
		h.priority = b[at+3] & 0xf0
	}
	if flags>>5 != pfcpVersion {
		return h, nil, nil, errVersion
	}
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	if end < at+4 || end > len(b) {
		return h, nil, nil, errLength
	}
	return h, b[at+4 : end], b[end:], nil
}

// appendMessage builds an answer to h, or a request that is described like one.
func appendMessage(dst []byte, msgType uint8, h header, ies ...*ie.IE) []byte {
	start := len(dst)
	flags := uint8(pfcpVersion << 5)
	if h.hasPriority {
		flags |= flagMP
	}
	if h.hasSEID {
		flags |= flagSEID
	}
	dst = append(dst, flags, msgType, 0, 0)
	if h.hasSEID {
		dst = binary.BigEndian.AppendUint64(dst, h.seid)
	}
	dst = binary.BigEndian.AppendUint32(dst, h.sequence<<8|uint32(h.priority))
	for _, i := range ies {
		dst = appendIE(dst, i)
	}
	binary.BigEndian.PutUint16(dst[start+2:], uint16(len(dst)-start-4))
	return dst
}

// appendIE takes payloads as they are: those of grouped IEs are complete when
// they are made.
func appendIE(dst []byte, i *ie.IE) []byte {
	if i == nil {
		return dst
	}
	dst = binary.BigEndian.AppendUint16(dst, i.Type)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(i.Payload)))
	return append(dst, i.Payload...)
}

// ies are encoded IEs, one behind another.
type ies []byte

// next takes off the first IE. Those of vendors have their Enterprise ID in the
// value; nobody knows their types.
func (l *ies) next() (ieType uint16, value []byte, err *reject) {
	b := *l
	if len(b) < 4 {
		return 0, nil, &reject{cause: ie.CauseInvalidLength}
	}
	ieType = binary.BigEndian.Uint16(b)
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	if end > len(b) {
		return ieType, nil, &reject{cause: ie.CauseInvalidLength, offending: ieType}
	}
	*l = b[end:]
	return ieType, b[4:end], nil
}

// reject is why a request is refused: what the answer says.
type reject struct {
	cause     uint8
	offending uint16  // type of an IE; 0: none is named
	rule      *ruleID // Failed Rule ID, or nil
	err       error   // for the log
}

type ruleID struct {
	kind RuleKind
	id   uint32
}

func (r *reject) Error() string {
	text := fmt.Sprintf("cause %d", r.cause)
	if r.offending != 0 {
		text += fmt.Sprintf(", IE %d", r.offending)
	}
	if r.rule != nil {
		text += fmt.Sprintf(", %s %d", r.rule.kind, r.rule.id)
	}
	if r.err != nil {
		text += ": " + r.err.Error()
	}
	return text
}

// ies of an answer that refuses.
func (r *reject) ies() []*ie.IE {
	list := []*ie.IE{ie.NewCause(r.cause)}
	if r.offending != 0 {
		list = append(list, ie.NewOffendingIE(r.offending))
	}
	if r.rule != nil {
		list = append(list, ie.NewFailedRuleID(uint8(r.rule.kind), r.rule.id))
	}
	return list
}

func missing(ieType uint16) *reject {
	return &reject{cause: ie.CauseMandatoryIEMissing, offending: ieType}
}

func conditionMissing(ieType uint16) *reject {
	return &reject{cause: ie.CauseConditionalIEMissing, offending: ieType}
}

func incorrect(ieType uint16) *reject {
	return &reject{cause: ie.CauseMandatoryIEIncorrect, offending: ieType}
}

func unsupported(ieType uint16) *reject {
	return &reject{cause: ie.CauseServiceNotSupported, offending: ieType}
}

func failedRule(kind RuleKind, id uint32, err error) *reject {
	return &reject{cause: ie.CauseRuleCreationModificationFailure, rule: &ruleID{kind, id}, err: err}
}

// fromUPF is the answer to an error of the user plane.
func fromUPF(err error) *reject {
	r := &reject{cause: ie.CauseSystemFailure, err: err}
	switch {
	case errors.Is(err, ErrNoResources):
		r.cause = ie.CauseNoResourcesAvailable
	case errors.Is(err, ErrTaken):
		r.cause = ie.CauseRuleCreationModificationFailure
	case errors.Is(err, ErrUnsupported):
		r.cause = ie.CauseServiceNotSupported
	}
	if rule, ok := errors.AsType[*RuleError](err); ok {
		r.rule = &ruleID{rule.Kind, rule.ID}
	}
	return r
}
