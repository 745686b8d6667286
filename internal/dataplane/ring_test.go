package dataplane

import (
	"context"
	"testing"
	"time"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// ringRoom is how many records are in a full ring, without their headers.
const ringRoom = 1 << 23 / 2104

// TestInterfacesShareTheRing: what one interface brings leaves room in the ring for what others bring, while
// the daemon does not read it and after it has.
func TestInterfacesShareTheRing(t *testing.T) {
	ethernet := packet.Ethernet{}
	ours, peer := packet.IPv4{Src: addr("10.0.0.9"), Dst: addr("10.0.0.1")}, packet.UDP{Sport: 2152, Dport: 2152}
	floods := map[string][]byte{
		"fragments":                 packet.Frame(ethernet, packet.IPv4{Src: ours.Src, Dst: ours.Dst, Fragment: 0x2000}, peer, packet.Payload{Count: 24}),
		"IPv4 that is cut":          packet.Frame(ethernet, ours, peer, packet.GTPU{TEID: 7}, packet.IPv4{Src: addr("10.61.0.1"), Dst: addr("10.60.0.2")}, packet.Payload{Count: 1300}),
		"IPv6 that is encapsulated": packet.Frame(ethernet, packet.IPv6{Src: addr("2001:db8:9::1"), Dst: addr("2001:db8:45:3::1")}, packet.Payload{Count: 1240}),
	}
	all := []model.Port{{Name: "n6", Ifindex: 11}, {Name: "n3", Ifindex: 10}, {Name: "out", Ifindex: 13}}
	for name, frame := range floods {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, all, func() { shareTheRing(t, frame) })
		})
	}
}

// TestIdleUEsLeaveRoom: packets that wait for idle UEs leave room in the ring for others.
func TestIdleUEsLeaveRoom(t *testing.T) {
	u := newIdleUE(t)
	if n := handed(t, u.d, u.frame, 1, ringRoom); n < ringRoom*7/10 || n > ringRoom*8/10 {
		t.Errorf("an idle UE gets %d of %d records", n, ringRoom)
	}
	fragment := packet.Frame(packet.Ethernet{}, packet.IPv4{Src: addr("10.0.0.9"), Dst: addr("10.0.0.1"), Fragment: 0x2000}, packet.UDP{Sport: 2152, Dport: 2152}, packet.Payload{Count: 24})
	if n := handed(t, u.d, fragment, 1, 100); n != 100 {
		t.Errorf("fragments get %d of 100 records", n)
	}
}

// handed is how many of so many frames from the interface get into the ring.
func handed(t *testing.T, d *DataPlane, frame []byte, ifindex, frames int) int {
	t.Helper()
	before, err := d.Outcomes()
	must(t, err)
	for range frames {
		_, _, err := d.Frames.Test(frame, ifindex)
		must(t, err)
	}
	after, err := d.Outcomes()
	must(t, err)
	return int(after[abi.ReasonREASON_SLOW_PATH].Packets - before[abi.ReasonREASON_SLOW_PATH].Packets)
}

// shareTheRing sends the frame from three interfaces, from two of them as often as fills the ring.
func shareTheRing(t *testing.T, frame []byte) {
	d, err := Open(again(t, Options{}))
	must(t, err)
	defer d.Close()
	narrow(t, d)
	first := handed(t, d, frame, 10, ringRoom)
	if first < ringRoom/3 || first > ringRoom*6/10 {
		t.Fatalf("one interface gets %d of %d records", first, ringRoom)
	}
	second := handed(t, d, frame, 11, ringRoom)
	if second < ringRoom/6 || second > ringRoom/2 {
		t.Errorf("the second interface gets %d of %d records", second, ringRoom)
	}
	if third := handed(t, d, frame, 13, 100); third != 100 {
		t.Errorf("a third interface gets %d of 100 records", third)
	}
	must(t, d.Ports.Set(10, port.Port{})) // as each plan of the agent does
	if more := handed(t, d, frame, 10, 100); more != 0 {
		t.Errorf("the first interface gets %d more", more)
	}
	ctx, cancel := context.WithCancel(context.Background())
	read, done := make(chan bool, 2*ringRoom), make(chan error, 1)
	go func() { done <- d.Punts.Read(ctx, func(event.Punt) { read <- true }) }()
	for range first + second + 100 {
		select {
		case <-read:
		case <-time.After(10 * time.Second):
			t.Fatal("the daemon did not get what was handed up")
		}
	}
	if more := handed(t, d, frame, 10, 100); more != 100 {
		t.Errorf("after the daemon has read all, the first interface gets %d of 100", more)
	}
	cancel()
	must(t, <-done)
}

// narrow sets up a tunnel and a policy whose packets leave by next hops with an MTU of 1300.
func narrow(t *testing.T, d *DataPlane) {
	t.Helper()
	must(t, d.SetSettings(testSettings()))
	for _, ifindex := range []int{10, 11, 13} {
		must(t, d.Ports.Set(ifindex, port.Port{}))
	}
	must(t, d.Policies.Put(policyTo("one", "fc00:b::1")))
	must(t, d.Tunnels.Put(gtpu.Tunnel{Name: "n3", LocalTEID: 7, Decapsulate: true}))
	must(t, d.Steering.Put(srpolicy.Steering{Prefix: prefix("2001:db8:45:3::/64"), Policy: "one"}))
	must(t, d.Routes.Put(0, prefix("10.60.0.0/16"), []AdjacencyKey{{NextHop: addr("10.0.0.2")}}))
	hop := ready(13)
	hop.MTU = 1300
	for _, k := range d.Adjacencies.Keys() {
		must(t, d.Adjacencies.SetNextHop(k, hop))
	}
}
