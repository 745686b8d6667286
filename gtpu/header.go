package gtpu

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Port is GTP-U's UDP port (TS 29.281 section 4.4.2).
const Port = 2152

// MessageType is a GTP-U message type (TS 29.281 section 6.1).
type MessageType uint8

// The messages that the user plane knows.
const (
	EchoRequest               MessageType = 1
	EchoResponse              MessageType = 2
	ErrorIndicationType       MessageType = 26
	SupportedExtensionHeaders MessageType = 31
	EndMarker                 MessageType = 254
	GPDU                      MessageType = 255
)

// String returns the message's name in TS 29.281.
func (t MessageType) String() string {
	switch t {
	case EchoRequest:
		return "Echo Request"
	case EchoResponse:
		return "Echo Response"
	case ErrorIndicationType:
		return "Error Indication"
	case SupportedExtensionHeaders:
		return "Supported Extension Headers Notification"
	case EndMarker:
		return "End Marker"
	case GPDU:
		return "G-PDU"
	}
	return fmt.Sprintf("message type %d", uint8(t))
}

// ExtensionType is the type of an extension header (TS 29.281 section 5.2.1).
// Its two upper bits say whether a receiver that does not know it may skip it.
type ExtensionType uint8

// Extension header types.
const (
	NoExtension             ExtensionType = 0x00
	ServiceClassIndicator   ExtensionType = 0x20
	UDPPortExtension        ExtensionType = 0x40
	RANContainer            ExtensionType = 0x81
	LongPDCPPDUNumber       ExtensionType = 0x82
	XwRANContainer          ExtensionType = 0x83
	NRRANContainer          ExtensionType = 0x84
	PDUSessionContainerType ExtensionType = 0x85
	PDCPPDUNumber           ExtensionType = 0xc0
)

// MustUnderstand says whether an endpoint that does not know the type must drop the
// message.
func (t ExtensionType) MustUnderstand() bool { return t&0x80 != 0 }

func (t ExtensionType) known() bool {
	switch t {
	case ServiceClassIndicator, UDPPortExtension, RANContainer, LongPDCPPDUNumber,
		XwRANContainer, NRRANContainer, PDUSessionContainerType, PDCPPDUNumber:
		return true
	}
	return false
}

const (
	headerLength   = 8
	optionalLength = 4 // sequence number, N-PDU number, next extension type
	maxExtensions  = 8

	flagsV1 = 0x30 // version 1, protocol type GTP
	flagE   = 0x04
	flagS   = 0x02
	flagPN  = 0x01
)

// Header is a view of a GTP-U message, from its header on. It shares the packet's
// bytes. A view that ParseHeader returned needs no further checks.
type Header []byte

// ParseHeader returns a view of the GTP-U message that b, a UDP payload, begins with.
// It cuts b to the message's length. It refuses other versions, GTP', truncated
// messages, and chains of more than 8 extension headers or of headers that run past
// the message's end or have no length.
func ParseHeader(b []byte) (Header, bool) {
	if len(b) < headerLength || b[0]&0xf0 != flagsV1 {
		return nil, false
	}
	end := headerLength + int(binary.BigEndian.Uint16(b[2:]))
	if end > len(b) {
		return nil, false
	}
	h := Header(b[:end:end])
	if h.hasOptional() && end < headerLength+optionalLength {
		return nil, false
	}
	if _, ok := h.walk(func(ExtensionType, []byte) bool { return true }); !ok {
		return nil, false
	}
	return h, true
}

// Type returns the message type.
func (h Header) Type() MessageType { return MessageType(h[1]) }

// Flags returns the first octet: version, protocol type, E, S, PN.
func (h Header) Flags() uint8 { return h[0] }

// TEID returns the tunnel endpoint that the message is for.
func (h Header) TEID() uint32 { return binary.BigEndian.Uint32(h[4:]) }

// SetTEID sets the tunnel endpoint.
func (h Header) SetTEID(teid uint32) { binary.BigEndian.PutUint32(h[4:], teid) }

// hasOptional says that the 4 octets of optional fields are there: any of the
// flags brings them all.
func (h Header) hasOptional() bool { return h[0]&(flagE|flagS|flagPN) != 0 }

// Sequence returns the sequence number, if there is one.
func (h Header) Sequence() (uint16, bool) {
	if h[0]&flagS == 0 {
		return 0, false
	}
	return binary.BigEndian.Uint16(h[8:]), true
}

// NPDU returns the N-PDU number, if there is one.
func (h Header) NPDU() (uint8, bool) {
	if h[0]&flagPN == 0 {
		return 0, false
	}
	return h[10], true
}

// walk calls yield with each extension header's type and content until it
// returns false. It returns where it stopped: for the whole chain, where the
// payload starts.
func (h Header) walk(yield func(ExtensionType, []byte) bool) (int, bool) {
	if !h.hasOptional() {
		return headerLength, true
	}
	at, next := headerLength+optionalLength, NoExtension
	if h[0]&flagE != 0 {
		next = ExtensionType(h[at-1])
	}
	for n := 0; next != NoExtension; n++ {
		if n == maxExtensions || at >= len(h) {
			return at, false
		}
		length := 4 * int(h[at])
		if length == 0 || at+length > len(h) {
			return at, false
		}
		last := at + length - 1
		if !yield(next, h[at+1:last:last]) {
			return at, true
		}
		at, next = at+length, ExtensionType(h[last])
	}
	return at, true
}

// Extensions yields the extension headers in order: their type, and their content
// without length and next type.
func (h Header) Extensions() iter.Seq2[ExtensionType, []byte] {
	return func(yield func(ExtensionType, []byte) bool) { h.walk(yield) }
}

// NotUnderstood returns the first extension header that must be understood, but is
// unknown here.
func (h Header) NotUnderstood() (ExtensionType, bool) {
	for t := range h.Extensions() {
		if t.MustUnderstand() && !t.known() {
			return t, true
		}
	}
	return NoExtension, false
}

// Payload returns what follows the header and its extension headers: the T-PDU, or
// information elements.
func (h Header) Payload() []byte {
	at, _ := h.walk(func(ExtensionType, []byte) bool { return true })
	return h[at:]
}
