package model

import (
	"net/netip"

	"github.com/culvert-net/culvert/srv6"
)

// limitKey is one group's bucket at one SID.
type limitKey struct {
	sid   netip.Prefix
	group uint64
}

// bucket holds tokens in bits x 10^9, so that nanoseconds times bit/s need no
// division.
type bucket struct {
	at     int64
	tokens uint64
}

// endLimit is End.Limit (RFC 9433 section 6.8): a token bucket for each
// group, then End.
func (j *journey) endLimit(sid *srv6.LocalSID) Result {
	at := sid.SID.Bits()
	group := getBits(j.packet[24:40], at, int(sid.GroupBits))
	rate := getBits(j.packet[24:40], at+int(sid.GroupBits), int(sid.RateBits))
	bitsPerSecond := rate * uint64(max(sid.RateUnit, 1)) * 1000
	if rate != 0 && !j.m.take(limitKey{sid.SID, group}, bitsPerSecond, len(j.packet)) {
		return j.drop(Limited)
	}
	return j.end(sid)
}

// take takes a packet's bits from a bucket, which starts full.
func (m *Model) take(key limitKey, bitsPerSecond uint64, bytes int) bool {
	const second = 1e9
	burst := max(bitsPerSecond/10, 2*1514*8) * second
	b := m.limits[key]
	if b == nil {
		b = &bucket{at: m.nanosecond, tokens: burst}
		m.limits[key] = b
	}
	b.tokens = min(burst, b.tokens+uint64(m.nanosecond-b.at)*bitsPerSecond)
	b.at = m.nanosecond
	need := uint64(bytes) * 8 * second
	if b.tokens < need {
		return false
	}
	b.tokens -= need
	return true
}
