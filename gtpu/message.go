package gtpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// Types of information elements (TS 29.281 section 8.1).
const (
	ieRecovery    = 14  // 1 octet
	ieTEIDDataI   = 16  // 4 octets
	ieLength      = 128 // from here on, two octets of length follow the type
	iePeerAddress = 133
)

// Message is a GTP-U message to build.
type Message struct {
	Type        MessageType
	TEID        uint32
	HasSequence bool
	Sequence    uint16
	Container   PDUSessionContainer // of type none: no extension header
	// UDPPort, if not 0, is sent in an extension header: the source port of
	// the G-PDU that an Error Indication is about.
	UDPPort uint16
	Payload []byte
}

// Append appends the encoded message to b.
func (m Message) Append(b []byte) ([]byte, error) {
	var flags byte = flagsV1
	// The extension headers. Each is behind its type, which stands at the end of
	// what precedes it.
	chain := make([]byte, 0, 2*4)
	if c := m.Container; c.Type != srv6.ContainerNone {
		if c.QFI > qfiMask {
			return nil, fmt.Errorf("QFI %d is larger than 63", c.QFI)
		}
		first, second := byte(pduTypeDownlink<<4), c.QFI
		if c.Type == srv6.ContainerUplink {
			first = pduTypeUplink << 4
		} else if c.RQI {
			second |= rqiBit
		}
		chain = append(chain, byte(PDUSessionContainerType), 1, first, second)
	}
	if m.UDPPort != 0 {
		chain = append(chain, byte(UDPPortExtension), 1, byte(m.UDPPort>>8), byte(m.UDPPort))
	}
	if len(chain) > 0 {
		flags |= flagE
	}
	if m.HasSequence {
		flags |= flagS
	}
	length := len(chain) + len(m.Payload)
	if flags != flagsV1 {
		length += optionalLength
	}
	if length > math.MaxUint16 {
		return nil, fmt.Errorf("a GTP-U message of %d bytes is too long: at most %d", length, math.MaxUint16)
	}
	b = append(b, flags, byte(m.Type), byte(length>>8), byte(length))
	b = binary.BigEndian.AppendUint32(b, m.TEID)
	if flags != flagsV1 {
		b = append(b, byte(m.Sequence>>8), byte(m.Sequence), 0)
		b = append(append(b, chain...), byte(NoExtension))
	}
	return append(b, m.Payload...), nil
}

// AppendGPDU appends a G-PDU, with the container unless its type is none.
func AppendGPDU(b []byte, teid uint32, container PDUSessionContainer, tpdu []byte) ([]byte, error) {
	return Message{Type: GPDU, TEID: teid, Container: container, Payload: tpdu}.Append(b)
}

// AppendEchoRequest appends an Echo Request (TS 29.281 section 7.2.1).
func AppendEchoRequest(b []byte, sequence uint16) []byte {
	return mustAppend(b, Message{Type: EchoRequest, HasSequence: true, Sequence: sequence})
}

// AppendEchoResponse appends the answer to the Echo Request with a sequence number.
// The Recovery element is mandatory, but its value is 0 and nobody reads it (TS
// 29.281 section 8.2).
func AppendEchoResponse(b []byte, sequence uint16) []byte {
	return mustAppend(b, Message{Type: EchoResponse, HasSequence: true, Sequence: sequence,
		Payload: []byte{ieRecovery, 0}})
}

// AppendEndMarker appends an End Marker: the sender will send no more G-PDUs in the
// tunnel (TS 29.281 section 7.3.2).
func AppendEndMarker(b []byte, teid uint32) []byte {
	return mustAppend(b, Message{Type: EndMarker, TEID: teid})
}

// ErrorIndication informs the sender of a G-PDU that its TEID is unknown
// (TS 29.281 section 7.3.1).
type ErrorIndication struct {
	TEID uint32     // of the G-PDU
	Peer netip.Addr // the G-PDU's destination: the address that refuses
	// UDPPort is the G-PDU's source port, 0 for none.
	UDPPort uint16
	// Sequence is 0 unless a translator carried one.
	Sequence uint16
}

// Append appends the encoded message to b.
func (e ErrorIndication) Append(b []byte) ([]byte, error) {
	peer := e.Peer.Unmap().AsSlice()
	if len(peer) == 0 {
		return nil, fmt.Errorf("an Error Indication needs the GTP-U peer address")
	}
	payload := binary.BigEndian.AppendUint32([]byte{ieTEIDDataI}, e.TEID)
	payload = append(payload, iePeerAddress, 0, byte(len(peer)))
	return Message{Type: ErrorIndicationType, HasSequence: true, Sequence: e.Sequence,
		UDPPort: e.UDPPort, Payload: append(payload, peer...)}.Append(b)
}

// ParseErrorIndication parses an Error Indication, which needs both of its
// information elements.
func ParseErrorIndication(h Header) (ErrorIndication, bool) {
	if h.Type() != ErrorIndicationType {
		return ErrorIndication{}, false
	}
	var e ErrorIndication
	e.Sequence, _ = h.Sequence()
	for t, content := range h.Extensions() {
		if t == UDPPortExtension {
			e.UDPPort = binary.BigEndian.Uint16(content)
		}
	}
	hasTEID := false
	ok := elements(h.Payload(), func(t uint8, value []byte) {
		switch t {
		case ieTEIDDataI:
			e.TEID, hasTEID = binary.BigEndian.Uint32(value), true
		case iePeerAddress:
			e.Peer, _ = netip.AddrFromSlice(value)
		}
	})
	return e, ok && hasTEID && e.Peer.IsValid()
}

// elements calls yield with the information elements' types and values. It
// returns whether the last one ends where b does, and all have known lengths.
func elements(b []byte, yield func(t uint8, value []byte)) bool {
	for len(b) > 0 {
		t, start, length := b[0], 1, 0
		switch {
		case t == ieRecovery:
			length = 1
		case t == ieTEIDDataI:
			length = 4
		case t < ieLength:
			return false // of unknown length
		case len(b) < 3:
			return false
		default:
			start, length = 3, int(binary.BigEndian.Uint16(b[1:]))
		}
		if len(b) < start+length {
			return false
		}
		yield(t, b[start:start+length])
		b = b[start+length:]
	}
	return true
}

// mustAppend is for messages of constant length, which cannot be too long.
func mustAppend(b []byte, m Message) []byte {
	b, err := m.Append(b)
	if err != nil {
		panic(err)
	}
	return b
}
