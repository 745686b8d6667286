package model

import "net/netip"

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
func (e endpoint) endLimit() Result {
	at := e.sid.SID.Bits()
	group := getBits(e.j.packet[24:40], at, int(e.sid.GroupBits))
	rate := getBits(e.j.packet[24:40], at+int(e.sid.GroupBits), int(e.sid.RateBits))
	bitsPerSecond := rate * uint64(max(e.sid.RateUnit, 1)) * 1000
	if rate != 0 && !e.j.m.take(limitKey{e.sid.SID, group}, bitsPerSecond, len(e.j.packet)) {
		return e.j.drop(Limited)
	}
	return e.end()
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
