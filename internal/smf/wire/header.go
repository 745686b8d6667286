package wire

import "encoding/binary"

// Offsets in the header of a message about a session (TS 29.244 section
// 7.2.2.4.2). In one about a node the sequence number is where the SEID would be.
const (
	SEIDAt     = 4
	SequenceAt = 12
)

// Header is that of a message, and its IEs.
type Header struct {
	Kind     uint8
	SEID     uint64 // 0 in a message without one
	Sequence uint32
	Payload  []byte // the IEs; of the message's memory
}

// ParseHeader reads a PFCP header (TS 29.244 section 7.2.2) of version 1; ok
// says that the message is whole.
func ParseHeader(b []byte) (h Header, ok bool) {
	if len(b) < 8 || b[0]>>5 != 1 {
		return h, false
	}
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	at := SEIDAt
	if b[0]&1 != 0 {
		if len(b) < 16 {
			return h, false
		}
		h.SEID = binary.BigEndian.Uint64(b[at:])
		at = SequenceAt
	}
	if end > len(b) || end < at+4 {
		return h, false
	}
	h.Kind = b[1]
	h.Sequence = uint32(b[at])<<16 | uint32(b[at+1])<<8 | uint32(b[at+2])
	h.Payload = b[at+4 : end]
	return h, true
}

// Each calls f for each IE in b, and says whether they fill it.
func Each(b []byte, f func(kind uint16, value []byte)) bool {
	for len(b) >= 4 {
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		if end > len(b) {
			return false
		}
		f(binary.BigEndian.Uint16(b), b[4:end])
		b = b[end:]
	}
	return len(b) == 0
}

// AppendIE writes an IE behind b.
func AppendIE(b []byte, kind uint16, value ...byte) []byte {
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}

// SetSequence writes a sequence number into a message with a SEID or without.
func SetSequence(b []byte, seq uint32) {
	at := SequenceAt
	if b[0]&1 == 0 {
		at = SEIDAt
	}
	b[at], b[at+1], b[at+2] = byte(seq>>16), byte(seq>>8), byte(seq)
}
