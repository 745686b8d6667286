package dataplane

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/packet"
)

// atHalves are counts at which one half or the other is about to turn.
func atHalves() []counter.Counter {
	var out []counter.Counter
	for _, packets := range []uint64{0, 1<<23 - 1, 1<<24 - 1, 5<<23 - 1, 1<<55 - 1<<24} {
		for _, bytes := range []uint64{0, 1<<39 - 1, 1<<40 - 1, 7<<39 - 1, 1<<63 - 1<<40} {
			out = append(out, counter.Counter{Packets: packets, Bytes: bytes})
		}
	}
	return out
}

// TestVolumeOfTheProgram lets several CPUs count in one entry, across each
// half, while it is read: the totals are exact and never go back.
func TestVolumeOfTheProgram(t *testing.T) {
	d := open(t)
	must(t, d.SetSettings(testSettings()))
	must(t, d.Ports.PutDevice(1))
	must(t, d.Ports.Set(1, port.Port{}))
	must(t, d.Routes.Put(0, prefix("10.60.0.0/16"), []AdjacencyKey{{Interface: "lo"}}))
	must(t, d.Adjacencies.SetNextHop(AdjacencyKey{Interface: "lo"}, ready(1)))
	must(t, d.Tunnels.Put(gtpu.Tunnel{Name: "n3", LocalTEID: 7, Decapsulate: true}))
	inner := []packet.Layer{packet.IPv4{Src: addr("10.45.0.1"), Dst: addr("10.60.0.1")}, packet.Payload{Count: 1000}}
	frame := packet.Frame(append([]packet.Layer{packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.9"), Dst: addr("10.0.0.1")},
		packet.UDP{Sport: 2152, Dport: 2152}, packet.GTPU{TEID: 7}}, inner...)...)
	const runs, each = 4, 100
	all := counter.Counter{Packets: runs * each, Bytes: runs * each * uint64(len(packet.Frame(inner...)))}
	for _, start := range atHalves() {
		start.Packets -= min(start.Packets, all.Packets/2)
		start.Bytes -= min(start.Bytes, all.Bytes/2)
		for w, v := range table.ToWords(counter.VolumeOf(start)) {
			d.entries.Store(7, w, v)
		}
		var done atomic.Bool
		var running, reading sync.WaitGroup
		reading.Go(func() { watchCounter(t, d, start, &done) })
		for range runs {
			running.Go(func() {
				for range each {
					if verdict, _, err := d.Frames.Test(frame, 1); err != nil || verdict != xdp.VerdictRedirect {
						t.Errorf("%s, %v", xdp.VerdictName(verdict), err)
					}
				}
			})
		}
		running.Wait()
		done.Store(true)
		reading.Wait()
		got, _, err := d.Tunnels.Counters("n3")
		must(t, err)
		if want := (counter.Counter{Packets: start.Packets + all.Packets, Bytes: start.Bytes + all.Bytes}); got != want {
			t.Errorf("from %+v: %+v, want %+v", start, got, want)
		}
	}
}

// watchCounter fails where what a tunnel counted goes back.
func watchCounter(t *testing.T, d *DataPlane, last counter.Counter, done *atomic.Bool) {
	for !done.Load() {
		now, _, err := d.Tunnels.Counters("n3")
		if err != nil || now.Packets < last.Packets || now.Bytes < last.Bytes {
			t.Errorf("%+v, and then %+v, %v", last, now, err)
			return
		}
		last = now
	}
}
