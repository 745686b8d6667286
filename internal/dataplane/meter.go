package dataplane

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// maxMeters is how many meters a rule may share (MAX_METERS in bpf/session.h).
const maxMeters = 4

// Times of meters (bpf/meter.h), in units of 1024 ns.
const (
	meterTimeShift = 10
	meterWindow    = 62500 // 64 ms
	meterPayout    = 3906  // 4 ms
	meterPayoutMax = 16384 // octets
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
// is to be paid out, as if nobody had sent for that long. now is in ns.
func newBucket(now uint64, used, window uint32) uint64 {
	return uint64(uint32(now>>meterTimeShift)-window)<<32 | uint64(used)
}

// octetWindow is how much of the past counts at a rate in kbit/s.
func octetWindow(rate uint32) uint32 {
	least := (uint64(meterPayoutMax)*15625 + 2*uint64(rate) - 1) / (2 * uint64(rate))
	return uint32(max(least, meterWindow))
}

// onePayment is what a bucket is paid at a time at most, in octets or packets.
func onePayment(m abi.Meter) uint32 {
	if m.Unit == uint32(abi.MeterUnitMETER_PACKETS) {
		return uint32(uint64(m.Window)*uint64(m.Rate)/976562500) + 1
	}
	return uint32(max(meterPayoutMax, uint64(meterPayout)*uint64(m.Rate)*2/15625))
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

func checkMeters(s *Session) error {
	for i, m := range s.Meters {
		if m.Rate == 0 && (m.Packets == 0 || m.Period <= 0) {
			return fmt.Errorf("meter %d: want a rate, or packets and a period", i)
		}
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		if len(r.Meters) > maxMeters {
			return fmt.Errorf("rule %d: %d meters: at most %d", r.ID, len(r.Meters), maxMeters)
		}
		for n, m := range r.Meters {
			if m < 0 || m >= len(s.Meters) || slices.Contains(r.Meters[:n], m) {
				return fmt.Errorf("rule %d: meter %d: want one of the session's %d, once", r.ID, m, len(s.Meters))
			}
		}
	}
	return nil
}

// chainMeters puts the meters of rules in an order in which each is followed by
// the same one for all its rules: what more rules share comes later. next is
// what follows each meter, -1: nothing.
func (p *plan) chainMeters(s *Session) error {
	if len(s.Meters) == 0 {
		return nil
	}
	shared := make([]int, len(s.Meters))
	for i := range s.Rules {
		for _, m := range s.Rules[i].Meters {
			shared[m]++
		}
	}
	p.nextMeter = p.nextMeter[:0]
	for range s.Meters {
		p.nextMeter = append(p.nextMeter, unchained)
	}
	for i := range p.rules {
		r := &p.rules[i]
		r.chain = append(r.chain[:0], r.Meters...)
		slices.SortStableFunc(r.chain, func(a, b int) int {
			if shared[a] != shared[b] {
				return shared[a] - shared[b]
			}
			return a - b
		})
		for n, m := range r.chain {
			next := -1
			if n+1 < len(r.chain) {
				next = r.chain[n+1]
			}
			if p.nextMeter[m] == unchained {
				p.nextMeter[m] = next
			} else if p.nextMeter[m] != next {
				return fmt.Errorf("rule %d: meters %v: what rules share must be shared together: a meter is followed by one other", r.ID, r.Meters)
			}
		}
	}
	return nil
}

// unchained is a meter that no rule has had yet.
const unchained = -2

// planMeters finds the entries of the session's meters, or new ones. A meter
// that stays what it is keeps its bucket.
func (d *DataPlane) planMeters(s *Session) error {
	p := &d.sessions.plan
	if len(s.Meters) == 0 {
		return nil
	}
	for place, m := range s.Meters {
		want := meterEntry(m)
		index := uint32(0)
		if place < len(p.hadMeters) {
			index = p.hadMeters[place]
		}
		if index != 0 && d.meter.LoadHalf(index, wordMeterUnit, 0) != want.Unit {
			index = 0
		}
		if index == 0 {
			var err error
			if index, err = d.takeIndex(&d.sessions.meterFree); err != nil {
				return err
			}
			p.freshMeters = append(p.freshMeters, index)
		}
		p.meters = append(p.meters, index)
	}
	return nil
}

// meterAt is the entry of the session's meter at a place; 0 for -1.
func (p *plan) meterAt(place int) uint32 {
	if place < 0 {
		return 0
	}
	return p.meters[place]
}

// writeMeters makes the entries say what the session does: new ones whole,
// others by the words that changed. Packets in between may see a rate with
// another's window: how large a burst may be, nothing else.
func (d *DataPlane) writeMeters() {
	p := &d.sessions.plan
	for place, m := range p.session.Meters {
		want := meterEntry(m)
		want.Next = p.meterAt(p.nextMeter[place])
		index := p.meters[place]
		if slices.Contains(p.freshMeters, index) {
			want.Bucket = newBucket(p.now, 0, want.Window)
			d.meter.Put(index, &want)
			continue
		}
		d.meter.Change(index, wordMeterRate, uint64(want.Rate)|uint64(want.Next)<<32)
		d.meter.Change(index, wordMeterUnit, uint64(want.Unit)|uint64(want.Window)<<32)
		slowDown(d.meter, index, wordMeterBucket, onePayment(want))
	}
}
