package model

import (
	"cmp"
	"time"
)

// The unit of time of meters is 1024 ns.
const (
	meterUnit     = 1024
	aheadUnits    = 62500 // 64 ms
	paymentUnits  = 3906  // 4 ms: less than that pays only for paymentOctets
	paymentOctets = 512
	mostOctets    = 16384
	rateBurst     = 190 * time.Millisecond // unless the network says otherwise
)

// bucketState is section 7's bucket: volumes and times modulo 2^32.
type bucketState struct {
	rate         uint64 // kbit/s
	packets      uint64 // in 1000 s, where rate is 0
	window       uint64 // in units of time; 0: no limit
	limit, since uint32
}

// sharedMeter is a bucket with a count of its own.
type sharedMeter struct {
	*bucketState
	used uint32
}

// now is the model's clock in units.
func (m *Model) now() uint32 { return uint32(m.nanosecond / meterUnit) }

// newBucket is full: a whole window is to be paid.
func (m *Model) newBucket(rate, packets, window uint64) *bucketState {
	if rate != 0 {
		window = max(uint64(cmp.Or(m.network.RateBurst, rateBurst)/meterUnit), mostOctets*15625/(2*rate))
	}
	return &bucketState{rate: rate, packets: packets, window: window, since: m.now() - uint32(window)}
}

func (m *Model) octetMeter(rate uint64) *sharedMeter {
	return &sharedMeter{bucketState: m.newBucket(rate, 0, 0)}
}

func (m *Model) newMeter(meter Meter) *sharedMeter {
	if meter.Rate != 0 || meter.Period <= 0 {
		return m.octetMeter(meter.Rate)
	}
	period := uint64(meter.Period)
	packets := max((uint64(meter.Packets)*1e12+period/2)/period, 1)
	return &sharedMeter{bucketState: m.newBucket(0, packets, min(period/meterUnit, 1<<31))}
}

func (b *bucketState) limits() bool { return b.window != 0 }

// lets says whether a packet may go at a volume.
func (b *bucketState) lets(volume, now uint32) bool {
	if !b.limits() || int32(volume-b.limit) < 0 {
		return true
	}
	b.pay(uint64(volume-b.limit), now)
	return int32(volume-b.limit) < 0
}

// pay pays the rate out for the time since it was last. What does not pay a debt waits.
func (b *bucketState) pay(debt uint64, now uint32) {
	if ahead := b.since - now; ahead != 0 && ahead <= aheadUnits {
		return
	}
	age := min(uint64(now-b.since), b.window)
	// earned = age * up / down, and paid is worth paid * down / up.
	up, down := 2*b.rate, uint64(15625)
	if b.rate == 0 {
		up, down = b.packets, 976562500
	}
	earned := age * up / down
	switch {
	case earned == 0, b.rate != 0 && age < paymentUnits && (earned < paymentOctets || earned <= debt):
		return
	case b.rate != 0 && age > paymentUnits:
		earned = min(earned, max(paymentUnits*up/down, mostOctets))
	}
	b.limit += uint32(earned)
	b.since = now - uint32(age) + uint32((earned*down+up-1)/up)
}

// slowDown takes back what a higher rate paid, beyond one payment.
func (b *bucketState) slowDown(volume uint32) {
	most := max(paymentUnits*2*b.rate/15625, mostOctets)
	if b.rate == 0 {
		most = b.window*b.packets/976562500 + 1
	}
	if ahead := int32(b.limit - volume); b.limits() && int64(ahead) > int64(most) {
		b.limit = volume + uint32(most)
	}
}

// pass asks a shared meter for a packet, and takes it.
func (s *sharedMeter) pass(octets int, now uint32) bool {
	if s == nil || !s.limits() {
		return true
	}
	if !s.lets(s.used, now) {
		return false
	}
	if s.rate == 0 {
		octets = 1
	}
	s.used += uint32(octets)
	return true
}
