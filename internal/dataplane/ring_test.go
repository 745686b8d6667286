package dataplane

import (
	"context"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
)

// TestFragmentsShareTheRing: fragments of one interface leave room in the ring for those of others, while
// the daemon does not read it and after it has.
func TestFragmentsShareTheRing(t *testing.T) {
	all := []model.Port{{Name: "n6", Ifindex: 11}, {Name: "n3", Ifindex: 10}, {Name: "out", Ifindex: 13}}
	inNamespace(t, all, func() {
		d, err := Open(again(t, Options{}))
		must(t, err)
		defer d.Close()
		must(t, d.SetSettings(Settings{GTPUAddresses: addrs("10.0.3.1")}))
		for _, p := range all {
			must(t, d.Ports.Set(p.Ifindex, port.Port{}))
		}
		fragment := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.9"), Dst: addr("10.0.3.1"), Fragment: 0x2000}, packet.UDP{Sport: 2152, Dport: 2152}, packet.Payload{Count: 24})
		// handed is how many of so many fragments get into the ring.
		handed := func(ifindex, frames int) (n int) {
			t.Helper()
			before, err := d.Outcomes()
			must(t, err)
			for range frames {
				_, _, err := d.Frames.Test(fragment, ifindex)
				must(t, err)
			}
			after, err := d.Outcomes()
			must(t, err)
			return int(after[abi.ReasonREASON_SLOW_PATH].Packets - before[abi.ReasonREASON_SLOW_PATH].Packets)
		}
		const room = 1 << 23 / 2104 // records, without their headers
		first := handed(10, room)
		if first < room/3 || first > room*6/10 {
			t.Fatalf("one interface gets %d of %d records", first, room)
		}
		second := handed(11, room)
		if second < room/6 || second > room/2 {
			t.Errorf("the second interface gets %d of %d records", second, room)
		}
		if third := handed(13, 100); third != 100 {
			t.Errorf("a third interface gets %d of 100 records", third)
		}
		must(t, d.Ports.Set(10, port.Port{})) // as each plan of the agent does
		if more := handed(10, 100); more != 0 {
			t.Errorf("the first interface gets %d more", more)
		}
		ctx, cancel := context.WithCancel(context.Background())
		read, done := make(chan bool, 2*room), make(chan error, 1)
		go func() { done <- d.Punts.Read(ctx, func(event.Punt) { read <- true }) }()
		for range first + second + 100 {
			select {
			case <-read:
			case <-time.After(10 * time.Second):
				t.Fatal("the daemon did not get what was handed up")
			}
		}
		if more := handed(10, 100); more != 100 {
			t.Errorf("after the daemon has read all, the first interface gets %d of 100", more)
		}
		cancel()
		must(t, <-done)
	})
}
