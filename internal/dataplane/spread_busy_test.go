package dataplane

import (
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/spread"
)

// busyCPU gets twice the frames of a bucket that it handles: its queue is always full.
type busyCPU struct {
	*spreader
	bucket, cpu int
	handled     uint64
	rounds      int
}

// round has the CPU handle about 10 packets while 20 come.
func (c *busyCPU) round(t *testing.T) {
	for range 20 {
		c.buckets(t, numbered(1))
	}
	b := c.d.Spread.Buckets()[c.bucket]
	if b.CPU != c.cpu { // it moved, and what it has at the other CPU is not handled
		return
	}
	c.rounds++
	c.handled = min(c.handled+7+uint64(c.rounds%7), b.In)
	c.d.spreadTables.Buckets.Store(uint32(c.bucket), 8, c.handled)
	c.d.spreadTables.Queues.Store(uint32(2*c.cpu), 8, c.handled)
}

// TestSpreadLeavesBusyCPU: a bucket that never has no packet on its way moves all the
// same, or is split: what comes meanwhile has no room. Nothing is taken for lost.
func TestSpreadLeavesBusyCPU(t *testing.T) {
	cpus := allCPUs()
	for name, leave := range map[string]func(c *busyCPU){
		"moved": func(c *busyCPU) { c.d.Spread.Move(c.bucket, cpus[(c.cpu+1)%len(cpus)]) },
		"split": func(c *busyCPU) { c.d.Spread.Split(c.bucket) },
	} {
		w := newWire(t)
		d := open(t)
		w.do(t, func() {
			forwarding(t, d, w)
			must(t, d.Spread.Set(spread.Config{By: spread.UE, CPUs: cpus}))
			c := &busyCPU{spreader: newSpreader(t, d, w.near.Index)}
			c.bucket = c.buckets(t, numbered(1))[0]
			c.cpu = d.Spread.Buckets()[c.bucket].CPU
			for range 300 {
				c.round(t)
			}
			full := d.Spread.Queues()[c.cpu].Full
			if full == 0 {
				t.Fatal("the queue is not full")
			}
			leave(c)
			start := time.Now()
			for d.Spread.Buckets()[c.bucket].CPU == c.cpu {
				if time.Since(start) > time.Minute { // it hangs
					t.Fatalf("%s: still there: %+v", name, d.Spread.Buckets()[c.bucket])
				}
				c.round(t)
				if lost, err := d.Spread.Settle(); lost != 0 || err != nil {
					t.Fatalf("%s: %d packets are taken for lost, %v", name, lost, err)
				}
			}
			t.Logf("%s after %s, %d had no room", name, time.Since(start), d.Spread.Queues()[c.cpu].Full-full)
			if in := c.buckets(t, numbered(1)); len(in) == 0 {
				t.Errorf("%s, and the next packet has no room", name)
			}
		})
	}
}
