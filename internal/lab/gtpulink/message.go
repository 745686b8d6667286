package gtpulink

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Port is the UDP port of GTP-U.
const Port = 2152

// Message types (TS 29.281 section 6.1).
const (
	echoRequest     = 1
	echoResponse    = 2
	errorIndication = 26
	endMarker       = 254
	gPDU            = 255
)

// Information elements of an Error Indication (TS 29.281 section 8.1).
const (
	ieTEID        = 16  // TEID Data I: 4 octets, without a length
	iePeerAddress = 133 // GTP-U Peer Address, behind its length
)

// First octet: version 1, protocol type GTP.
const (
	flagsBase      = 0x30
	flagExtension  = 0x04
	flagSequence   = 0x02
	flagsOptional  = 0x07 // any of E, S and PN: four more octets
	typeContainer  = 0x85 // PDU Session Container
	headerLength   = 8
	optionalLength = 4
)

var (
	errShort     = errors.New("cut short")
	errVersion   = errors.New("not GTP-U version 1")
	errExtension = errors.New("broken extension header")
)

// message is a GTP-U message.
type message struct {
	kind      uint8
	teid      uint32
	sequence  uint16
	sequenced bool
	container Container
	qfi       uint8
	rqi       bool
	payload   []byte
}

// appendTo appends the message in wire form.
func (m *message) appendTo(b []byte) []byte {
	flags, length, next := byte(flagsBase), len(m.payload), byte(0)
	if m.sequenced {
		flags |= flagSequence
	}
	if m.container != NoContainer {
		flags |= flagExtension
		length += 4
		next = typeContainer
	}
	if flags != flagsBase {
		length += optionalLength
	}
	b = append(b, flags, m.kind)
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = binary.BigEndian.AppendUint32(b, m.teid)
	if flags != flagsBase {
		b = binary.BigEndian.AppendUint16(b, m.sequence)
		b = append(b, 0, next) // N-PDU number, next extension header
	}
	if m.container != NoContainer {
		pduType, octet := byte(0), m.qfi&0x3f
		if m.container == Uplink {
			pduType = 1
		}
		if m.rqi {
			octet |= 1 << 6
		}
		b = append(b, 1, pduType<<4, octet, 0) // the length in units of 4 octets; no extension header follows
	}
	return append(b, m.payload...)
}

// parse reads a message; its payload is part of b.
func parse(b []byte) (message, error) {
	var m message
	if len(b) < headerLength {
		return m, errShort
	}
	if b[0]&0xf0 != flagsBase {
		return m, errVersion
	}
	m.kind = b[1]
	m.teid = binary.BigEndian.Uint32(b[4:])
	end := headerLength + int(binary.BigEndian.Uint16(b[2:]))
	if end > len(b) {
		return m, errShort
	}
	rest := b[headerLength:end]
	if b[0]&flagsOptional == 0 {
		m.payload = rest
		return m, nil
	}
	if len(rest) < optionalLength {
		return m, errShort
	}
	m.sequenced = b[0]&flagSequence != 0
	m.sequence = binary.BigEndian.Uint16(rest)
	next := rest[3]
	rest = rest[optionalLength:]
	if b[0]&flagExtension == 0 {
		next = 0
	}
	for next != 0 {
		if len(rest) < 4 || rest[0] == 0 || int(rest[0])*4 > len(rest) {
			return m, errExtension
		}
		n := int(rest[0]) * 4
		if next == typeContainer {
			m.qfi = rest[2] & 0x3f
			switch rest[1] >> 4 {
			case 0:
				m.container = Downlink
				m.rqi = rest[2]&(1<<6) != 0
			case 1:
				m.container = Uplink
			}
		}
		next = rest[n-1]
		rest = rest[n:]
	}
	m.payload = rest
	return m, nil
}

// appendFTEID appends the information elements of an Error Indication about an F-TEID.
func appendFTEID(b []byte, teid uint32, addr netip.Addr) []byte {
	b = binary.BigEndian.AppendUint32(append(b, ieTEID), teid)
	b = binary.BigEndian.AppendUint16(append(b, iePeerAddress), uint16(addr.BitLen()/8))
	return append(b, addr.AsSlice()...)
}

// refusedFTEID reads the information elements of an Error Indication. ok is false if
// they do not begin with an F-TEID.
func refusedFTEID(b []byte) (teid uint32, addr netip.Addr, ok bool) {
	const fixed = 1 + 4 + 1 + 2
	if len(b) < fixed || b[0] != ieTEID || b[5] != iePeerAddress {
		return 0, addr, false
	}
	end := fixed + int(binary.BigEndian.Uint16(b[6:]))
	if end > len(b) {
		return 0, addr, false
	}
	addr, ok = netip.AddrFromSlice(b[fixed:end])
	return binary.BigEndian.Uint32(b[1:]), addr, ok
}
