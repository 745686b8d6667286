package signalling

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
)

// TS 29.244: message types (table 7.3-1), IEs (8.1.2-1), causes (8.2.1-1).
const (
	modificationRequest  = 52
	modificationResponse = 53
	firstOfSession       = 50
	reportRequest        = 56
	ieCause              = 19
	// RequestAccepted is the Cause of what the UPF has done.
	RequestAccepted = 1
)

// What Open5GS's SMF sends (internal/smf/replay/captures/open5gs.pcap), with other numbers.
var (
	// Update FAR of the downlink: forward to a gNB, with Outer Header Creation.
	forward = decode("21 34 0047 0000000000000000 00000000" + // header, SEID, sequence number
		"000a0037 006c000400000001 002c00020200" + // Update FAR: FAR ID, Apply Action
		"000b0025 002a000100 0016000908696e7465726e6574" + // parameters: Destination Interface, Network Instance
		"0054000a0100 00000000 00000000 00a000010b") // Outer Header Creation, 3GPP Interface Type
	// Update FAR of the downlink: buffer, and notify the SMF.
	idle = decode("21 34 0023 0000000000000000 00000000 000a0013 006c000400000001 002c00020c00 0058000101")
)

func decode(text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		panic(err) // only a wrong digit above
	}
	return b
}

// networkInstance is that of the sessions, as the messages say it.
const networkInstance = "internet"

// Offsets in these messages.
const (
	seidAt     = 4
	sequenceAt = 12
	tunnelAt   = 62 // F-TEID of the gNB in forward
	headerSize = 16
)

// ToForward writes the Session Modification Request that forwards a session's downlink to a
// gNB over b.
func ToForward(b []byte, seid uint64, sequence, teid uint32, gnb netip.Addr) []byte {
	b = toRequest(b, forward, seid, sequence)
	binary.BigEndian.PutUint32(b[tunnelAt:], teid)
	address := gnb.As4()
	copy(b[tunnelAt+4:], address[:])
	return b
}

// toRequest writes a message with SEID and sequence number over b.
func toRequest(b, template []byte, seid uint64, sequence uint32) []byte {
	b = append(b[:0], template...)
	binary.BigEndian.PutUint64(b[seidAt:], seid)
	binary.BigEndian.PutUint32(b[sequenceAt:], sequence<<8)
	return b
}

// ofClient says whether a message is no answer about a session: a message about the node, or the
// UPF's own request.
func ofClient(b []byte) bool {
	return len(b) >= 2 && (b[1] < firstOfSession || b[1] == reportRequest)
}

// Answer is a Session Modification Response.
type Answer struct {
	SEID     uint64 // the SMF's
	Sequence uint32
	Cause    uint8
}

// ParseAnswer reads a response with or without a message priority; ok is false for
// whatever is none, or has no Cause.
func ParseAnswer(b []byte) (a Answer, ok bool) {
	if len(b) < headerSize || b[0]&^2 != 0x21 || b[1] != modificationResponse || int(binary.BigEndian.Uint16(b[2:])) != len(b)-4 {
		return a, false
	}
	a.SEID, a.Sequence = binary.BigEndian.Uint64(b[seidAt:]), binary.BigEndian.Uint32(b[sequenceAt:])>>8
	for rest := b[headerSize:]; len(rest) >= 4; {
		kind, end := binary.BigEndian.Uint16(rest), 4+int(binary.BigEndian.Uint16(rest[2:]))
		if end > len(rest) {
			return a, false
		}
		if kind == ieCause && end == 5 {
			a.Cause = rest[4]
			return a, true
		}
		rest = rest[end:]
	}
	return a, false
}
