package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/wmnsk/go-pfcp/ie"
)

// Flags of F-TEID (TS 29.244 section 8.2.3).
const (
	FTEIDV4   = 1
	FTEIDV6   = 2
	FTEIDCH   = 4
	FTEIDCHID = 8
)

// Flags of UE IP Address (TS 29.244 section 8.2.62).
const (
	UEV6   = 1
	UEV4   = 2
	UESD   = 4
	UECHV4 = 16
	UECHV6 = 32
)

// Answer is what is asked of every response: it is read without go-pfcp, which
// would cost more than all the rest of a request.
type Answer struct {
	Whole      bool
	Cause      uint8
	Offending  uint16 // IE type; 0: none named
	FailedRule []byte // Failed Rule ID as it is on the wire
	SEID       uint64 // of the UP F-SEID; 0: none
	Created    []CreatedPDR
}

// CreatedPDR is one that the UPF chose something for.
type CreatedPDR struct {
	ID           uint16
	TEID         uint32
	Addr4, Addr6 netip.Addr
	UE4          netip.Addr
	UE6          netip.Addr
}

// Read reads a response's IEs; a keeps its memory.
func (a *Answer) Read(payload []byte) {
	*a = Answer{Created: a.Created[:0]}
	a.Whole = Each(payload, func(kind uint16, value []byte) {
		switch {
		case kind == ie.Cause && len(value) == 1:
			a.Cause = value[0]
		case kind == ie.OffendingIE && len(value) == 2:
			a.Offending = binary.BigEndian.Uint16(value)
		case kind == ie.FailedRuleID:
			a.FailedRule = value
		case kind == ie.FSEID && len(value) >= 9:
			a.SEID = binary.BigEndian.Uint64(value[1:])
		case kind == ie.CreatedPDR:
			a.Created = append(a.Created, readCreated(value))
		}
	})
}

func readCreated(b []byte) (c CreatedPDR) {
	Each(b, func(kind uint16, value []byte) {
		switch {
		case kind == ie.PDRID && len(value) == 2:
			c.ID = binary.BigEndian.Uint16(value)
		case kind == ie.FTEID && len(value) >= 5:
			c.TEID = binary.BigEndian.Uint32(value[1:])
			c.Addr4, c.Addr6 = ReadAddrs(value[5:], value[0]&FTEIDV4 != 0, value[0]&FTEIDV6 != 0)
		case kind == ie.UEIPAddress && len(value) >= 1:
			c.UE4, c.UE6 = ReadAddrs(value[1:], value[0]&UEV4 != 0, value[0]&UEV6 != 0)
		}
	})
	return c
}

// ReadAddrs reads an IPv4 and then an IPv6 address, of which either may be
// missing.
func ReadAddrs(b []byte, has4, has6 bool) (v4, v6 netip.Addr) {
	if has4 && len(b) >= 4 {
		v4, b = netip.AddrFrom4([4]byte(b)), b[4:]
	}
	if has6 && len(b) >= 16 {
		v6 = netip.AddrFrom16([16]byte(b))
	}
	return v4, v6
}

// FailedRule reads Failed Rule ID (TS 29.244 section 8.2.80).
func FailedRule(b []byte) string {
	kinds := []string{"PDR", "FAR", "QER", "URR", "BAR", "MAR", "SRR"}
	if len(b) < 2 || int(b[0]&0x1f) >= len(kinds) {
		return ""
	}
	padded := make([]byte, 8)
	copy(padded[8-min(len(b)-1, 8):], b[1:])
	return fmt.Sprintf("%s %d", kinds[b[0]&0x1f], binary.BigEndian.Uint64(padded))
}
