package demand

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

var (
	start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	flow  = te.Key{Headend: "r1", Endpoint: "r8", Color: 46}
)

// counter is a headend's, which a test reads.
type counter struct {
	m      *Matrix
	at     time.Time
	octets uint64
}

func counting(o Options) *counter {
	c := &counter{m: New(o), at: start}
	c.m.Read(flow, c.at, 0)
	return c
}

// send has rates in bit/s for 10 s each, with a reading at the end of each.
func (c *counter) send(rates ...float64) *counter {
	for _, r := range rates {
		c.pass(10*time.Second, r)
		c.m.Read(flow, c.at, c.octets)
	}
	return c
}

// pass is time without a reading.
func (c *counter) pass(d time.Duration, bits float64) {
	c.at = c.at.Add(d)
	c.octets += uint64(bits * d.Seconds() / 8)
}

// want is an estimate in bit/s; below 0: it is unknown.
func (c *counter) want(t *testing.T, what string, want float64) {
	t.Helper()
	known, unknown := c.m.At(c.at)
	switch {
	case want < 0 && (len(known) > 0 || !slices.Equal(unknown, []te.Key{flow})):
		t.Errorf("%s: known %v, unknown %v, want unknown", what, known, unknown)
	case want >= 0 && (len(known) != 1 || len(unknown) > 0 || known[0].Key != flow || math.Abs(known[0].Rate-want) > 1e-6*want+1):
		t.Errorf("%s: known %v, unknown %v, want %v bit/s", what, known, unknown, want)
	}
}

func TestRate(t *testing.T) {
	c := counting(Options{})
	c.want(t, "one reading", -1)
	c.send(8e6)
	c.want(t, "two readings", 8e6)
	c.send(8e6, 8e6, 8e6)
	c.want(t, "steady", 8e6)
	c.m.Read(flow, c.at, c.octets)
	c.want(t, "read twice at a time", 8e6)
	counting(Options{}).send(0, 0).want(t, "nothing is sent", 0)
}

// The estimate rises with the first rate above 95 % of the others, and falls when that rate
// leaves the window.
func TestPercentile(t *testing.T) {
	c := counting(Options{})
	c.send(slices.Repeat([]float64{1e6}, 57)...)
	c.send(9e6, 9e6)
	c.want(t, "2 of 59 are high: the average is above the percentile", 1e6+8e6*(1-math.Exp(-20./30)))
	c.send(9e6, 9e6)
	c.want(t, "4 of 60 are high", 9e6)
	c.send(slices.Repeat([]float64{1e6}, 40)...)
	c.want(t, "they are in the window", 9e6)
	c.send(slices.Repeat([]float64{1e6}, 20)...)
	c.want(t, "one of them is left in it", 1e6+8e6*(1-math.Exp(-40./30))*math.Exp(-20))
}

// A rate counts for as long as it lasted: one reading in three was missed, and is no peak.
func TestUnevenReadings(t *testing.T) {
	c := counting(Options{Average: time.Second})
	for range 10 {
		c.send(slices.Repeat([]float64{1e6}, 6)...)
		c.pass(20*time.Second, 2e6)
		c.m.Read(flow, c.at, c.octets)
	}
	c.send(1e6)
	c.want(t, "2 Mbit/s for a quarter of the time", 2e6)
}

func TestRestart(t *testing.T) {
	c := counting(Options{}).send(8e6, 8e6)
	c.octets = 0
	c.send(1e6)
	c.want(t, "a counter that fell gives no rate", 8e6)
	c.send(8e6)
	c.want(t, "counting goes on", 8e6)
	for octets := uint64(9e6); octets > 0; octets -= 1e6 {
		c.at = c.at.Add(5 * time.Second)
		c.m.Read(flow, c.at, octets)
	}
	c.want(t, "it falls again and again", -1)
}

// Times before the last reading say that the clock was set: what was measured is void.
func TestClockGoesBack(t *testing.T) {
	c := counting(Options{}).send(8e6, 8e6)
	c.at = start
	c.send(2e6)
	c.want(t, "one reading", -1)
	c.send(2e6)
	c.want(t, "two readings", 2e6)
}

func TestWrap(t *testing.T) {
	c := &counter{m: New(Options{}), at: start, octets: math.MaxUint64 - 5e6}
	c.m.Read(flow, c.at, c.octets)
	c.send(8e6)
	c.want(t, "64 bits are full on the way", 8e6)
}

func TestMissing(t *testing.T) {
	c := counting(Options{}).send(8e6)
	c.pass(30*time.Second, 4e6)
	c.want(t, "three readings are missing", 8e6)
	c.pass(time.Second, 4e6)
	c.want(t, "for longer", -1)
	c.m.Read(flow, c.at, c.octets)
	c.want(t, "the first reading after that", -1)
	c.send(2e6)
	c.want(t, "the second: the percentile has not forgotten", 8e6)
	c.pass(11*time.Minute, 0)
	if known, unknown := c.m.At(c.at); len(known)+len(unknown) > 0 {
		t.Errorf("nobody reads it any more: %v, %v", known, unknown)
	}
}

func TestOrder(t *testing.T) {
	m := New(Options{})
	keys := []te.Key{{Headend: "a", Endpoint: "b"}, {Headend: "a", Endpoint: "b", Color: 1}, {Headend: "a", Endpoint: "c"}, {Headend: "b", Endpoint: "a"}}
	for _, i := range []int{2, 0, 3, 1} {
		m.Read(keys[i], start, 0)
	}
	if _, unknown := m.At(start); !slices.Equal(unknown, keys) {
		t.Errorf("%v, want %v", unknown, keys)
	}
}
