package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// maxMeters is how many meters a rule may share (MAX_METERS in bpf/session.h).
const maxMeters = 4

// Times of meters (bpf/meter.h), in units of 1024 ns.
const (
	meterTimeShift = 10
	meterWindow    = uint64(settings.MaxRateBurst >> meterTimeShift)
	meterPayout    = 3906  // 4 ms
	MeterPayoutMax = 16384 // octets that a bucket is paid at a time at least
	maxWindow      = 1 << 31
)

// Words of an entry of meter.
const (
	wordMeterUsed   = 0
	wordMeterBucket = 1
	wordMeterRate   = 2 // rate, next
	wordMeterUnit   = 3 // unit, window
)

// newBucket is that of a meter which begins at a volume: a window of its rate
// is to be paid out, as if nobody had sent for that long. The data path pays its
// burst of it. now is in ns.
func newBucket(now uint64, used, window uint32) uint64 {
	return uint64(uint32(now>>meterTimeShift)-window)<<32 | uint64(used)
}

// octetWindow is how much of the past counts at most at a rate in kbit/s.
func octetWindow(rate uint32) uint32 {
	least := (uint64(MeterPayoutMax)*15625 + 2*uint64(rate) - 1) / (2 * uint64(rate))
	return uint32(max(least, meterWindow))
}

// onePayment is what a bucket is paid at a time at most, in octets or packets.
func onePayment(m abi.Meter) uint32 {
	if m.Unit == uint32(abi.MeterUnitMETER_PACKETS) {
		return uint32(uint64(m.Window)*uint64(m.Rate)/976562500) + 1
	}
	return uint32(max(MeterPayoutMax, uint64(meterPayout)*uint64(m.Rate)*2/15625))
}

// slowDown takes back what a bucket was paid at a higher rate and has left,
// beyond one payment at the present one.
func slowDown[T any](m *table.Array[T], i uint32, bucket int, most uint32) {
	for {
		was, used := m.Load(i, bucket), uint32(m.Load(i, 0))
		if int32(uint32(was)-used) <= int32(most) ||
			m.Swap(i, bucket, was, was&^math.MaxUint32|uint64(used+most)) {
			return
		}
	}
}

// kilobits is a rate as tables have it.
func kilobits(rate uint64) uint32 { return uint32(min(rate, math.MaxUint32)) }

// meterEntry is m without what it counts.
func meterEntry(m Meter) abi.Meter {
	if m.Rate != 0 {
		return abi.Meter{Rate: kilobits(m.Rate), Unit: uint32(abi.MeterUnitMETER_OCTETS), Window: octetWindow(kilobits(m.Rate))}
	}
	period := max(m.Period, time.Microsecond)
	perKilosecond := (uint64(m.Packets)*uint64(1000*time.Second) + uint64(period)/2) / uint64(period)
	return abi.Meter{
		Rate:   uint32(min(max(perKilosecond, 1), math.MaxUint32)),
		Unit:   uint32(abi.MeterUnitMETER_PACKETS),
		Window: uint32(min(uint64(period)>>meterTimeShift, maxWindow)),
	}
}

// SetMeterRate changes the rate of a meter of octets, in kbit/s; 0: none. now is that
// of table.Now.
func SetMeterRate(m *table.Array[abi.Meter], i uint32, rate, now uint64) {
	setRate(m, i, wordMeterBucket, wordMeterRate, kilobits(rate), now)
}

// setRate changes the rate of an entry, in kbit/s. A bucket begins with a rate,
// and stays over a change of it.
func setRate[T any](m *table.Array[T], i uint32, bucket, word int, rate uint32, now uint64) {
	had := m.LoadHalf(i, word, 0)
	if had == rate {
		return
	}
	if had == 0 {
		m.Store(i, bucket, newBucket(now, uint32(m.Load(i, 0)), octetWindow(rate)))
	}
	m.StoreHalf(i, word, 0, rate)
	slowDown(m, i, bucket, onePayment(abi.Meter{Rate: rate}))
}

// noMeter is behind the last meter of a chain, unchained behind one that no rule
// has had yet.
const (
	noMeter   = -1
	unchained = -2
)

// chainMeters puts the meters of each rule in an order in which each is followed
// by the same one for all its rules: what more rules share comes later. It
// appends what follows each of the session's meters.
func (p *Plan) chainMeters() error {
	if len(p.session.Meters) == 0 {
		return nil
	}
	shared := make([]int, len(p.session.Meters))
	for i := range p.rules {
		for _, m := range p.rules[i].Meters {
			shared[m]++
		}
	}
	for range shared {
		p.next = append(p.next, unchained)
	}
	for i := range p.rules {
		r := &p.rules[i]
		r.chain = append(r.chain[:0], r.Meters...)
		slices.SortStableFunc(r.chain, func(a, b int) int { return cmp.Or(shared[a]-shared[b], a-b) })
		for n, m := range r.chain {
			behind := noMeter
			if n+1 < len(r.chain) {
				behind = r.chain[n+1]
			}
			if p.next[m] == unchained {
				p.next[m] = behind
			} else if p.next[m] != behind {
				return fmt.Errorf("rule %d: %w: meters %v: rules must share meters together: each meter is followed by one other", r.ID, ErrRules, r.Meters)
			}
		}
	}
	return nil
}

// findMeters finds the meters of a session that an earlier daemon put, by the
// chains that its rules have; 0: not found.
func (p *Plan) findMeters() {
	p.old.meters = make([]uint32, len(p.session.Meters))
	for i := range p.rules {
		r := &p.rules[i]
		if r.had == 0 || flagsOf(p.tables.loadDo(r.had))&flagMeters == 0 {
			continue
		}
		index := moreOf(p.tables.loadDo(r.had))
		for _, m := range r.chain {
			if index == 0 || index >= p.tables.Meter.Len {
				break
			}
			p.old.meters[m] = index
			index = p.tables.Meter.LoadHalf(index, wordMeterRate, 1)
		}
	}
}

// placeMeters appends the entries of a session's meters: those that it had, or
// new ones. A meter that stays what it is keeps its bucket.
func (p *Plan) placeMeters() error {
	for i, m := range p.session.Meters {
		index := uint32(0)
		if i < len(p.old.meters) {
			index = p.old.meters[i]
		}
		if index == 0 || p.tables.Meter.LoadHalf(index, wordMeterUnit, 0) != meterEntry(m).Unit {
			var err error
			if index, err = p.owners.take(&p.owners.meterFree); err != nil {
				return err
			}
			p.takenMeters = append(p.takenMeters, index)
		}
		p.meters = append(p.meters, index)
	}
	return nil
}
