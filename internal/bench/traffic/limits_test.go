package traffic

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/testutil/netns"
)

// tapDevice makes a tap, up, in the calling thread's namespace, that nobody reads:
// it takes as many frames as its queue holds.
func tapDevice(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, r); err != nil {
		t.Fatal(err)
	}
}

// What the sending interface has no room for was not sent: the device did not
// lose it.
func TestRefused(t *testing.T) {
	ns := netns.New(t)
	quietly(t, ns)
	ns.Do(t, func() { tapDevice(t, "tap0") })
	ns.IP(t, "link set tap0 txqueuelen 100 up")
	netns.Veth(t, ns, "rx", ns, "other")
	p := open(t, Options{TX: Port{ns.Path, "tap0"}, RX: Port{ns.Path, "rx"}, Method: Live, CPU: 1})
	o, err := p.Run(context.Background(), Trial{Template: plain4(), Rate: 10000, Duration: 100 * time.Millisecond})
	if err == nil || o.Refused < 800 || o.Sent+o.Refused != 1000 || o.Sent < 64 || !o.AtLimit {
		t.Errorf("%d refused, %d sent, at the limit: %v, %v", o.Refused, o.Sent, o.AtLimit, err)
	}
}

// What the receiver is too slow for came out all the same.
func TestMissed(t *testing.T) {
	o := joined(t)
	o.CheckEvery = 1024
	p := open(t, o)
	threads, err := napi.Start(o.RX.Namespace, "rx", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := threads.Stop(); err != nil {
			t.Error(err)
		}
	}()
	missed := uint64(0)
	for range 20 { // until the receiver's CPU is too slow once
		out, err := p.Run(context.Background(), Trial{Template: plain4(), Duration: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if out.Lost != 0 || out.Received+out.Missed != out.Sent {
			t.Fatalf("a cable lost packets: %+v", out)
		}
		if missed += out.Missed; missed > 0 {
			return
		}
	}
	t.Error("the receiver was never too slow")
}

// What a device is too slow for waits in its queue until that is full: the rest is lost.
func TestWaiting(t *testing.T) {
	around, device := netns.New(t), netns.New(t)
	quietly(t, around, device)
	netns.Veth(t, around, "tx", device, "in")
	netns.Veth(t, around, "rx", device, "out")
	device.IP(t, "link add bridge type bridge")
	for _, port := range []string{"in", "out"} {
		device.IP(t, "link set "+port+" master bridge")
	}
	device.Run(t, "ethtool", "-K", "in", "gro", "on") // runs its NAPI
	device.IP(t, "link set bridge up")

	p := open(t, Options{TX: Port{around.Path, "tx"}, RX: Port{around.Path, "rx"}, Method: Live, CPU: 1})
	threads, err := napi.Start(device.Path, "in", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := threads.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for range 20 { // until the bridge is too slow once
		o, err := p.Run(t.Context(), Trial{Template: plain4(), Duration: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if o.Waiting > o.Lost {
			t.Fatalf("%d packets lost, and of them %d while they waited", o.Lost, o.Waiting)
		}
		if o.Waiting > 0 {
			return
		}
	}
	t.Error("the bridge was never too slow")
}
