package smf

import (
	"encoding/binary"
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
)

// header is what every answer is known by.
type header struct {
	kind     uint8
	seid     uint64
	sequence uint32
	payload  []byte
}

// parseHeader reads a PFCP header (TS 29.244 section 7.2.2) of version 1; ok
// says that the message is whole.
func parseHeader(b []byte) (h header, ok bool) {
	if len(b) < 8 || b[0]>>5 != 1 {
		return h, false
	}
	end := 4 + int(binary.BigEndian.Uint16(b[2:]))
	at := seidAt
	if b[0]&1 != 0 {
		if len(b) < 16 {
			return h, false
		}
		h.seid = binary.BigEndian.Uint64(b[at:])
		at = sequenceAt
	}
	if end > len(b) || end < at+4 {
		return h, false
	}
	h.kind = b[1]
	h.sequence = uint32(b[at])<<16 | uint32(b[at+1])<<8 | uint32(b[at+2])
	h.payload = b[at+4 : end]
	return h, true
}

// each calls f for each IE in b, and says whether they fill it.
func each(b []byte, f func(kind uint16, value []byte)) bool {
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

// answer is what is asked of every response: it is read without go-pfcp, which
// would cost more than all the rest of a request.
type answer struct {
	whole      bool
	cause      uint8
	offending  uint16 // IE type; 0: none named
	failedRule []byte // Failed Rule ID as it is on the wire
	seid       uint64 // of the UP F-SEID; 0: none
	created    []createdPDR
}

// createdPDR is one that the UPF chose something for.
type createdPDR struct {
	id           uint16
	teid         uint32
	addr4, addr6 netip.Addr
	ue4          netip.Addr
	ue6          netip.Addr
}

// read reads a response's IEs; a keeps its memory.
func (a *answer) read(payload []byte) {
	*a = answer{created: a.created[:0]}
	a.whole = each(payload, func(kind uint16, value []byte) {
		switch {
		case kind == ie.Cause && len(value) == 1:
			a.cause = value[0]
		case kind == ie.OffendingIE && len(value) == 2:
			a.offending = binary.BigEndian.Uint16(value)
		case kind == ie.FailedRuleID:
			a.failedRule = value
		case kind == ie.FSEID && len(value) >= 9:
			a.seid = binary.BigEndian.Uint64(value[1:])
		case kind == ie.CreatedPDR:
			a.created = append(a.created, readCreated(value))
		}
	})
}

func readCreated(b []byte) (c createdPDR) {
	each(b, func(kind uint16, value []byte) {
		switch {
		case kind == ie.PDRID && len(value) == 2:
			c.id = binary.BigEndian.Uint16(value)
		case kind == ie.FTEID && len(value) >= 5:
			c.teid = binary.BigEndian.Uint32(value[1:])
			c.addr4, c.addr6 = readAddrs(value[5:], value[0]&fteidV4 != 0, value[0]&fteidV6 != 0)
		case kind == ie.UEIPAddress && len(value) >= 1:
			c.ue4, c.ue6 = readAddrs(value[1:], value[0]&ueV4 != 0, value[0]&ueV6 != 0)
		}
	})
	return c
}

// readAddrs reads an IPv4 and then an IPv6 address, of which either may be
// missing.
func readAddrs(b []byte, has4, has6 bool) (v4, v6 netip.Addr) {
	if has4 && len(b) >= 4 {
		v4, b = netip.AddrFrom4([4]byte(b)), b[4:]
	}
	if has6 && len(b) >= 16 {
		v6 = netip.AddrFrom16([16]byte(b))
	}
	return v4, v6
}
