package liveness

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/checksum"
)

// port is the UDP port that probes are from and to. Nobody listens there: probes are read off
// the interfaces.
const port = 55862

// trafficClass is CS6, network control (RFC 4594 section 3.1): a full queue must not look
// like a path that is gone.
const trafficClass = 48 << 2

const (
	ipv6Header   = 40
	srhHeader    = 8
	segment      = 16
	udpHeader    = 8
	protocolSRH  = 43
	protocolUDP  = 17
	routingSRH   = 4
	hopLimit     = 64
	payload      = 4 + 4 + 8 + tagLength
	tagLength    = 16
	noMoreHeader = ipv6Header + udpHeader + payload
)

// probe is what a probe carries: which list, which one, and when it left, in nanoseconds of
// the wall clock. A tag made of a key that only this process knows says that it is its own:
// nobody can keep a list alive, or make it look fast, that is not on its path.
type probe struct {
	list, seq uint32
	sent      int64
}

// packet is a probe of a flow that visits the path, and ends at the SID.
func (p probe) packet(key []byte, flow uint32, source netip.Addr, path []netip.Addr, sid netip.Addr) []byte {
	segments := len(path) + 1
	srh := srhHeader + segments*segment
	b := make([]byte, ipv6Header+srh+udpHeader+payload)
	binary.BigEndian.PutUint32(b, 6<<28|trafficClass<<20|(p.list*flows+flow)&0xfffff) // no flow label is that of two lists
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Header))
	b[6], b[7] = protocolSRH, hopLimit
	copy(b[8:], source.AsSlice())
	copy(b[24:], path[0].AsSlice())

	h := b[ipv6Header:]
	h[0], h[1], h[2] = protocolUDP, uint8(2*segments), routingSRH
	h[3], h[4] = uint8(segments-1), uint8(segments-1) // Segments Left, Last Entry
	copy(h[srhHeader:], sid.AsSlice())                // the last segment comes first (RFC 8754)
	for i, s := range path {
		copy(h[srhHeader+(segments-1-i)*segment:], s.AsSlice())
	}

	u := b[ipv6Header+srh:]
	binary.BigEndian.PutUint16(u, port)
	binary.BigEndian.PutUint16(u[2:], port)
	binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
	d := u[udpHeader:]
	binary.BigEndian.PutUint32(d, p.list)
	binary.BigEndian.PutUint32(d[4:], p.seq)
	binary.BigEndian.PutUint64(d[8:], uint64(p.sent))
	copy(d[16:], tag(key, d[:16]))
	binary.BigEndian.PutUint16(u[6:], checksum.UDP(source, sid, u))
	return b
}

func tag(key, of []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(of)
	return h.Sum(nil)[:tagLength]
}

// read reads a packet that came back, with its SRH or, where a router on the way removed it
// (PSP), without. ok is false for what is no probe of this key's.
func read(b, key []byte) (p probe, ok bool) {
	if len(b) < noMoreHeader {
		return p, false
	}
	next, at := b[6], ipv6Header
	if next == protocolSRH {
		next = b[at]
		at += srhHeader + 8*int(b[at+1])
	}
	if next != protocolUDP || len(b) < at+udpHeader+payload || binary.BigEndian.Uint16(b[at+2:]) != port {
		return p, false
	}
	d := b[at+udpHeader:][:payload]
	if !hmac.Equal(d[16:], tag(key, d[:16])) {
		return p, false
	}
	return probe{binary.BigEndian.Uint32(d), binary.BigEndian.Uint32(d[4:]), int64(binary.BigEndian.Uint64(d[8:]))}, true
}

// trip is how long a probe was on its way by the wall clock, which may have been set meanwhile.
func (p probe) trip(arrived time.Time) time.Duration {
	return max(0, arrived.Sub(time.Unix(0, p.sent)))
}
