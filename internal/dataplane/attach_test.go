package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/testutil/netns"
	"github.com/culvert-net/culvert/srv6"
)

// wire is a veth pair: what is sent on far comes in on near.
type wire struct {
	ns        *netns.NS
	near, far net.Interface
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{ns: netns.New(t)}
	w.near, w.far = netns.Veth(t, w.ns, "near", w.ns, "far")
	return w
}

// do runs f in the namespace; interface indices are those there.
func (w *wire) do(t *testing.T, f func()) { t.Helper(); w.ns.Do(t, f) }

// packetSocket sends and receives frames on an interface.
func packetSocket(t *testing.T, ifindex int) int {
	t.Helper()
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifindex}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	return fd
}

// endFrame is an IPv6 packet to a SID, with an SRH of one segment more.
func endFrame(sid, next string) []byte {
	f := make([]byte, 14+40+24+8)
	copy(f, hostA)
	copy(f[6:], hostB)
	binary.BigEndian.PutUint16(f[12:], 0x86dd)
	ip := f[14:]
	ip[0], ip[6], ip[7] = 0x60, 43, 64
	binary.BigEndian.PutUint16(ip[4:], 32)
	copy(ip[8:], addr("2001:db8::7").AsSlice())
	copy(ip[24:], addr(sid).AsSlice())
	srh := ip[40:]
	srh[0], srh[1], srh[2], srh[3] = 59, 2, 4, 1
	copy(srh[8:], addr(next).AsSlice())
	// Segments Left 1 wants two segments; the list has one: Last Entry 0 and
	// Segments Left 1 is what a reduced SRH looks like.
	return f
}

func TestAttachModes(t *testing.T) {
	w := newWire(t)
	d := openPinned(t, pinPath(t))
	w.do(t, func() {
		for _, c := range []struct {
			ifindex  int
			ask, got Mode
		}{
			{w.near.Index, attach.ModeNative, attach.ModeNative},
			{w.near.Index, attach.ModeAuto, attach.ModeNative}, // stays
			{w.near.Index, attach.ModeGeneric, attach.ModeGeneric},
			{w.near.Index, "", attach.ModeGeneric},   // stays
			{1, attach.ModeAuto, attach.ModeGeneric}, // lo has no native XDP
		} {
			if got, err := d.XDP.Attach(c.ifindex, c.ask); err != nil || got != c.got {
				t.Errorf("Attach(%d, %q) = %q, %v, want %q", c.ifindex, c.ask, got, err, c.got)
			}
		}
		if got := d.XDP.Attached(); len(got) != 2 || got[1] != attach.ModeGeneric || got[w.near.Index] != attach.ModeGeneric {
			t.Errorf("Attached() = %v", got)
		}
		if got := list(t, filepath.Join(d.pins.Path(), "links")); len(got) != 2 {
			t.Errorf("pinned links: %v", got)
		}
		must(t, d.XDP.Detach(1))
		must(t, d.XDP.Detach(1)) // again: nothing to do
		if _, err := d.XDP.Attach(1, attach.ModeNative); err == nil || !strings.Contains(err.Error(), "generic") {
			t.Errorf("native on lo: %v, want an error that names generic mode", err)
		}
		if _, err := d.XDP.Attach(1, "fast"); err == nil {
			t.Error("mode fast is taken")
		}
		if _, err := d.XDP.Attach(4242, attach.ModeAuto); err == nil {
			t.Error("an interface that is not there is attached to")
		}
	})
	if out := w.ns.IP(t, "link show dev lo"); strings.Contains(out, "xdp") {
		t.Errorf("lo still has a program: %s", out)
	}
}

func TestForeignProgramStays(t *testing.T) {
	w := newWire(t)
	d := open(t)
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	must(t, err)
	defer other.Close()
	w.do(t, func() {
		l, err := link.AttachXDP(link.XDPOptions{Program: other, Interface: w.near.Index, Flags: link.XDPDriverMode})
		must(t, err)
		defer l.Close()
		for _, mode := range []Mode{attach.ModeAuto, attach.ModeNative, attach.ModeGeneric} {
			_, err := d.XDP.Attach(w.near.Index, mode)
			if !errors.Is(err, attach.ErrForeignProgram) || !strings.Contains(err.Error(), "interface near") {
				t.Errorf("%s: %v, want ErrForeignProgram that names the interface", mode, err)
			}
		}
	})
}

func TestLinkOfLostInterfaceGoes(t *testing.T) {
	w := newWire(t)
	path := pinPath(t)
	d := openPinned(t, path)
	w.do(t, func() {
		for _, ifindex := range []int{w.near.Index, 1} {
			_, err := d.XDP.Attach(ifindex, attach.ModeAuto)
			must(t, err)
		}
	})
	must(t, d.Close())
	w.ns.IP(t, "link delete near")
	d = openPinned(t, path)
	if got := d.XDP.Attached(); len(got) != 1 || got[1] != attach.ModeGeneric {
		t.Errorf("Attached() = %v, want lo alone", got)
	}
	if got := list(t, path, "links"); len(got) != 1 || got[0] != "xdp_1_generic" {
		t.Errorf("pinned links: %v", got)
	}
}

// TestUpgradeLosesNothing sends while the daemon restarts with one build and
// another: the program counts every packet, and every packet arrives.
func TestUpgradeLosesNothing(t *testing.T) {
	w := newWire(t)
	path := pinPath(t)
	d := openPinned(t, path)
	var tx, rx int
	w.do(t, func() {
		_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
		must(t, err)
		must(t, d.Ports.Set(w.near.Index, port.Port{}))
		tx, rx = packetSocket(t, w.far.Index), packetSocket(t, w.near.Index)
	})
	before, err := d.Outcomes()
	must(t, err)
	must(t, d.Close())

	frame := endFrame("2001:db8::99", "2001:db8::98") // not ours: passes
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				sent <- n
				return
			default:
			}
			if err := unix.Sendto(tx, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.far.Index}); err == nil {
				n++
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	for _, edit := range []func(*ebpf.CollectionSpec){otherBuild, nil, otherBuild} {
		d = openWith(t, Options{PinPath: path, Limits: smallLimits, edit: edit})
		must(t, d.Close())
	}
	close(stop)
	n := <-sent
	d = openPinned(t, path)
	after, err := d.Outcomes()
	must(t, err)
	passed := after[abi.ReasonREASON_PASSED].Packets - before[abi.ReasonREASON_PASSED].Packets
	// Neighbour discovery of the two ends is counted as well.
	if n < 100 || passed < uint64(n) {
		t.Errorf("%d packets sent, %d counted", n, passed)
	}
	if got := receive(rx, frame, n); got != n {
		t.Errorf("%d packets sent, %d arrived", n, got)
	}
}

// receive counts arrivals of a frame, up to want.
func receive(fd int, frame []byte, want int) int {
	buf, got := make([]byte, 16<<10), 0
	for got < want {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return got
		}
		if bytes.Equal(buf[:n], frame) {
			got++
		}
	}
	return got
}

// forwarding makes w's near end forward to its other end with one End SID.
func forwarding(t *testing.T, d *DataPlane, w *wire) {
	t.Helper()
	must(t, d.SetSettings(testSettings()))
	must(t, d.SIDs.Put(srv6.LocalSID{SID: prefix("fc00:a:100::/40"), Behavior: srv6.EndX, NextHop: addr("fe80::2"), Interface: "near"}))
	must(t, d.Adjacencies.SetNextHop(AdjacencyKey{NextHop: addr("fe80::2"), Interface: "near"}, ready(w.near.Index)))
	must(t, d.Ports.Set(w.near.Index, port.Port{}))
	must(t, d.Ports.PutDevice(w.near.Index))
}

func TestTestRunAndInject(t *testing.T) {
	w := newWire(t)
	d := open(t)
	w.do(t, func() {
		forwarding(t, d, w)
		frame := endFrame("fc00:a:100::", "2001:db8::98")
		verdict, out, err := d.Frames.Test(frame, w.near.Index)
		must(t, err)
		if verdict != xdp.VerdictRedirect || !bytes.Equal(out[:6], hostB) || !bytes.Equal(out[38:54], addr("2001:db8::98").AsSlice()) {
			t.Fatalf("%s, frame %x", xdp.VerdictName(verdict), out)
		}
		count, err := d.SIDs.Counter(prefix("fc00:a:100::/40"))
		must(t, err)
		if count != (counter.Counter{Packets: 1, Bytes: uint64(len(frame) - 14)}) {
			t.Errorf("the SID counted %+v", count)
		}
		// veth takes frames of XDP only if the other end has NAPI.
		w.ns.Run(t, "ethtool", "-K", "far", "gro", "on")
		rx := packetSocket(t, w.far.Index)
		must(t, d.Frames.Inject(frame, w.near.Index))
		if got := receive(rx, out, 1); got != 1 {
			t.Error("the injected frame did not leave")
		}
		for _, c := range []struct {
			frame   []byte
			ifindex int
		}{{frame[:13], w.near.Index}, {frame, 4242}} {
			if _, _, err := d.Frames.Test(c.frame, c.ifindex); err == nil {
				t.Errorf("TestRun of %d bytes on %d: no error", len(c.frame), c.ifindex)
			}
			if err := d.Frames.Inject(c.frame, c.ifindex); err == nil {
				t.Errorf("Inject of %d bytes on %d: no error", len(c.frame), c.ifindex)
			}
		}
		outcomes, err := d.Outcomes()
		must(t, err)
		var sum uint64
		for _, o := range outcomes {
			sum += o.Packets
		}
		if n := d.Frames.Injected(); n != 1 || sum != 1+n {
			t.Errorf("%d frames injected, %d with an outcome; want 1, and 2 with the one that was tested", n, sum)
		}
	})
}

func TestPuntsAndTrace(t *testing.T) {
	w := newWire(t)
	d := open(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	punts, events := make(chan event.Punt, 16), make(chan event.TraceEvent, 16)
	done := make(chan error, 2)
	go func() { done <- d.Punts.Read(ctx, func(p event.Punt) { punts <- p }) }()
	go func() { done <- d.Trace.Read(ctx, func(e event.TraceEvent) { events <- e }) }()
	frame := endFrame("fc00:a:100::", "2001:db8::98")
	late := bytes.Clone(frame)
	late[14+7] = 1 // hop limit
	w.do(t, func() {
		forwarding(t, d, w)
		run := func(f []byte) {
			_, _, err := d.Frames.Test(f, w.near.Index)
			must(t, err)
		}
		run(frame) // nobody traces
		must(t, d.Trace.Set(&event.TraceFilter{Source: prefix("2001:db8::/64"), Ifindex: w.near.Index}))
		run(frame)
		must(t, d.Trace.Set(&event.TraceFilter{Source: prefix("2001:db8:1::/64")}))
		run(frame)
		must(t, d.Trace.Set(&event.TraceFilter{Destination: prefix("fc00:a::/32"), DropsOnly: true}))
		run(frame)
		run(late)
		must(t, d.Trace.Set(nil))
		run(frame)
	})
	p := <-punts
	if p.Kind != event.PuntICMP || p.Ifindex != w.near.Index || p.L3 != 14 || p.Type != 3 || !bytes.Equal(p.Data, late) {
		t.Errorf("record for the slow path: %+v", p)
	}
	first, second := <-events, <-events
	if first.Reason.String() != "forwarded" || first.SID != prefix("fc00:a:100::/40") || first.Verdict != "XDP_REDIRECT" ||
		first.Adjacency.Interface != "near" || !bytes.Equal(first.In, frame) || first.OutLength != len(frame) || first.List != -1 {
		t.Errorf("forwarded: %+v", first)
	}
	if second.Reason.String() != "hop_limit" || !second.Reason.Drop() || second.Ifindex != w.near.Index || !bytes.Equal(second.In, late) {
		t.Errorf("dropped: %+v", second)
	}
	if err := d.Punts.Read(ctx, func(event.Punt) {}); err == nil {
		t.Error("a second reader is taken")
	}
	cancel()
	for range 2 {
		must(t, <-done)
	}
	if len(punts) != 0 || len(events) != 0 {
		t.Errorf("%d records and %d events more than there should be", len(punts), len(events))
	}
}

// TestTraceSkipsWhatAnEarlierOneLeft leaves a record unread.
func TestTraceSkipsWhatAnEarlierOneLeft(t *testing.T) {
	w := newWire(t)
	d := open(t)
	frame := endFrame("fc00:a:100::", "2001:db8::98")
	second := bytes.Clone(frame)
	second[14+7] = 9 // hop limit
	w.do(t, func() {
		forwarding(t, d, w)
		for _, f := range [][]byte{frame, second} {
			must(t, d.Trace.Set(&event.TraceFilter{}))
			_, _, err := d.Frames.Test(f, w.near.Index)
			must(t, err)
			must(t, d.Trace.Set(nil))
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got [][]byte
	must(t, d.Trace.Read(ctx, func(e event.TraceEvent) {
		got = append(got, e.In)
		cancel()
	}))
	if len(got) != 1 || !bytes.Equal(got[0], second) {
		t.Errorf("traced %x, want %x alone", got, second)
	}
}

func TestRemoveDetaches(t *testing.T) {
	w := newWire(t)
	path := filepath.Join(pinParent(t), "culvert")
	d := openPinned(t, path)
	w.do(t, func() {
		_, err := d.XDP.Attach(w.near.Index, attach.ModeNative)
		must(t, err)
	})
	must(t, d.Close())
	if out := w.ns.IP(t, "link show dev near"); !strings.Contains(out, "xdp") {
		t.Errorf("Close detached: %s", out)
	}
	must(t, Remove(path))
	if out := w.ns.IP(t, "link show dev near"); strings.Contains(out, "xdp") {
		t.Errorf("Remove left the program: %s", out)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pins are still there: %v", err)
	}
}
