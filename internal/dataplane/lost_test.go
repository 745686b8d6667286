package dataplane

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// lost are the frames that an interface did not send.
func lost(t *testing.T, d *DataPlane, ifindex int) uint64 {
	t.Helper()
	n, err := d.Ports.Lost(ifindex)
	must(t, err)
	return n
}

// inject has the data path forward a frame some times.
func inject(t *testing.T, d *DataPlane, frame []byte, ifindex, times int) {
	t.Helper()
	for range times {
		must(t, d.Frames.Inject(frame, ifindex))
	}
}

// What a device does not send is counted there, and as forwarded: where it lost its carrier
// because the other end is down, and where it is down itself.
func TestLostFramesAreCounted(t *testing.T) {
	w := newWire(t)
	d := open(t)
	must(t, d.Loss.Err())
	frame := endFrame("fc00:a:100::", "2001:db8::98")
	w.do(t, func() {
		forwarding(t, d, w)
		w.ns.Run(t, "ethtool", "-K", "far", "gro", "on") // or no frame of XDP arrives
		for _, c := range []struct {
			far, near string
			times     int
			lost      uint64 // in all
		}{
			{"up", "up", 20, 0},
			{"down", "up", 7, 7},
			{"up", "up", 20, 7},
			{"up", "down", 5, 12},
			{"up", "up", 20, 12},
		} {
			w.ns.IP(t, "link set far "+c.far)
			w.ns.IP(t, "link set near "+c.near)
			inject(t, d, frame, w.near.Index, c.times)
			if got := lost(t, d, w.near.Index); got != c.lost {
				t.Errorf("far %s, near %s: %d frames lost, want %d", c.far, c.near, got, c.lost)
			}
		}
	})
	outcomes, err := d.Outcomes()
	must(t, err)
	if got := outcomes[abi.ReasonREASON_FORWARDED].Packets; got != 72 {
		t.Errorf("%d frames forwarded, want all 72", got)
	}
	// The agent ends the use of a device that is down, and begins it again later.
	w.do(t, func() {
		must(t, d.Ports.DeleteDevice(w.near.Index))
		must(t, d.Ports.PutDevice(w.near.Index))
	})
	if got := lost(t, d, w.near.Index); got != 12 {
		t.Errorf("%d frames lost after the device came back, want 12", got)
	}
}

// An interface of the same index in another network namespace is another one, and so is what
// another data path redirects there.
func TestLostFramesOfOthersAreNot(t *testing.T) {
	w, other := newWire(t), newWire(t)
	d, theirs := open(t), open(t)
	if w.near.Index != other.near.Index {
		t.Fatalf("near is %d and %d: want the same index in both namespaces", w.near.Index, other.near.Index)
	}
	w.do(t, func() { must(t, d.Ports.PutDevice(w.near.Index)) })
	frame := endFrame("fc00:a:100::", "2001:db8::98")
	other.do(t, func() {
		forwarding(t, theirs, other)
		other.ns.IP(t, "link set far down")
		inject(t, theirs, frame, other.near.Index, 3)
		other.ns.IP(t, "link set near down")
		inject(t, theirs, frame, other.near.Index, 4)
	})
	if got := lost(t, d, w.near.Index); got != 0 {
		t.Errorf("%d frames lost, want none: they were another data path's", got)
	}
	if got := lost(t, theirs, other.near.Index); got != 7 {
		t.Errorf("the other data path lost %d frames, want 7", got)
	}
}

// The count outlives the daemon, also where another build follows.
func TestLostFramesOverRestart(t *testing.T) {
	w := newWire(t)
	path := pinPath(t)
	frame := endFrame("fc00:a:100::", "2001:db8::98")
	d := openPinned(t, path)
	w.do(t, func() {
		forwarding(t, d, w)
		w.ns.IP(t, "link set far down")
		inject(t, d, frame, w.near.Index, 3)
	})
	must(t, d.Close())
	d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: otherBuild})
	must(t, d.Loss.Err())
	w.do(t, func() {
		forwarding(t, d, w)
		inject(t, d, frame, w.near.Index, 2)
	})
	if got := lost(t, d, w.near.Index); got != 5 {
		t.Errorf("%d frames lost, want 3 before the restart and 2 after it", got)
	}
}

// A kernel that takes no program at its tracepoints does not keep the data path from starting.
func TestForwardsWithoutLossCounted(t *testing.T) {
	needRoot(t)
	refused := errors.New("refused")
	d, err := Open(Options{Limits: smallLimits, collect: func(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
		for _, p := range spec.Programs {
			if p.Type == ebpf.Tracing {
				return nil, refused
			}
		}
		return ebpf.NewCollectionWithOptions(spec, o)
	}})
	must(t, err)
	defer func() { must(t, d.Close()) }()
	if err := d.Loss.Err(); !errors.Is(err, refused) {
		t.Errorf("Loss.Err() = %v, want the kernel's", err)
	}
	w := newWire(t)
	w.do(t, func() {
		forwarding(t, d, w)
		w.ns.IP(t, "link set far down")
		inject(t, d, endFrame("fc00:a:100::", "2001:db8::98"), w.near.Index, 3)
	})
	if got := lost(t, d, w.near.Index); got != 0 {
		t.Errorf("%d frames lost, and nothing counts them", got)
	}
}
