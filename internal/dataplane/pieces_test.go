package dataplane

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/model"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/testutil/golden"
)

// piece is more than the kernel has in one piece: a page, without what it keeps before and behind
// a frame.
const piece = 4096

// TestFramesInPieces runs the golden packets with so much more payload that the kernel has their
// frames in two pieces and in three (xdp.frags). The model says how they end.
func TestFramesInPieces(t *testing.T) {
	files, err := golden.LoadAll("testdata/behavior")
	must(t, err)
	inNamespace(t, allPorts(files), func() {
		r := newRig(t)
		forwarded := 0
		for _, f := range files {
			if f.Name() == "end_limit" { // its packets use up a bucket
				continue
			}
			for i := range f.Network.Adjacencies {
				f.Network.Adjacencies[i].MTU = 9000
			}
			m, err := model.New(f.Network)
			must(t, err)
			must(t, r.program(f.Network))
			w := &world{rig: r, t: t, model: m, counted: model.Counts{}}
			for i := range f.Rows {
				forwarded += w.longer(&f.Rows[i], piece) + w.longer(&f.Rows[i], 2*piece)
			}
			w.comparePunts()
			must(t, r.clear())
		}
		if forwarded < 200 {
			t.Errorf("%d frames were forwarded", forwarded)
		}
	})
}

// longer runs a row's packet with `more` octets of payload. It returns 1 if it was forwarded.
func (w *world) longer(row *golden.Row, more int) int {
	w.t.Helper()
	frame := withPayload(w.t, row, more)
	if frame == nil {
		return 0
	}
	_, ifindex := row.Input()
	before := w.counters(w.t)
	want := w.model.Run(frame, ifindex)
	w.expect(want, ifindex)
	verdict, out, err := w.d.Frames.Test(frame, ifindex)
	must(w.t, err)
	counted := since(before, w.counters(w.t))
	switch {
	case verdict != wantVerdict(want):
		w.t.Errorf("%s, %d octets: model: %s (%s), program: %s %v", row.Name, len(frame), xdp.VerdictName(wantVerdict(want)), want.Reason, xdp.VerdictName(verdict), counted)
	case verdict == xdp.VerdictRedirect && !slices.Equal(out, want.Out):
		at := 0
		for at < min(len(out), len(want.Out)) && out[at] == want.Out[at] {
			at++
		}
		w.t.Errorf("%s, %d octets: the program's %d differ from the model's %d at %d", row.Name, len(frame), len(out), len(want.Out), at)
	case verdict == xdp.VerdictRedirect && want.Reason == model.Forwarded:
		return 1
	}
	return 0
}

// withPayload is a row's frame with more payload; nil: it has none, or is made by hand.
func withPayload(t *testing.T, row *golden.Row, more int) []byte {
	t.Helper()
	if len(row.In) == 0 || len(row.Patch) > 0 || row.Cut > 0 || len(row.Append) > 0 {
		return nil
	}
	text, err := json.Marshal(row.In)
	must(t, err)
	var in packet.Layers
	must(t, json.Unmarshal(text, &in))
	last, is := in[len(in)-1].(packet.Payload)
	if !is || last.Count == 0 {
		return nil
	}
	last.Count += more
	in[len(in)-1] = last
	return packet.Frame(in...)
}

// Where the MTU is 9000 the program is attached in the driver, and long frames cross it.
func TestNativeWithLongFrames(t *testing.T) {
	w := newWire(t)
	d := open(t)
	for _, end := range []string{"near", "far"} {
		w.ns.IP(t, "link set mtu 9000 dev "+end)
	}
	w.ns.Run(t, "ethtool", "-K", "far", "gro", "on") // as in TestTestRunAndInject
	w.do(t, func() {
		forwarding(t, d, w)
		hop := ready(w.near.Index)
		hop.MTU = 9000
		must(t, d.Adjacencies.SetNextHop(AdjacencyKey{NextHop: addr("fe80::2"), Interface: "near"}, hop))
		if mode, err := d.XDP.Attach(w.near.Index, attach.ModeAuto); err != nil || mode != attach.ModeNative {
			t.Fatalf("attached in mode %q, %v", mode, err)
		}
		tx, rx := packetSocket(t, w.far.Index), packetSocket(t, w.far.Index)
		frame := append(endFrame("fc00:a:100::", "2001:db8::98"), bytes.Repeat([]byte{0xa5}, 2*piece)...)
		binary.BigEndian.PutUint16(frame[14+4:], uint16(len(frame)-14-40))
		_, out, err := d.Frames.Test(frame, w.near.Index)
		must(t, err)
		const n = 20
		for range n {
			must(t, unix.Sendto(tx, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.far.Index}))
		}
		if got := receive(rx, out, n); got != n {
			t.Errorf("%d of %d frames of %d octets came back", got, n, len(frame))
		}
	})
}

// Lengths beside a frame have 16 bits: one that leaves no room in them is dropped, and counted.
func TestTooLongFrame(t *testing.T) {
	w := newWire(t)
	d := open(t)
	w.do(t, func() {
		forwarding(t, d, w)
		for length, want := range map[int]uint32{0xf000: xdp.VerdictPass, 0xf001: xdp.VerdictDrop} {
			frame := append(endFrame("2001:db8::99", "2001:db8::98"), make([]byte, length)...)[:length] // not ours
			before, err := d.Outcomes()
			must(t, err)
			verdict, _, err := d.Frames.Test(frame, w.near.Index)
			must(t, err)
			after, err := d.Outcomes()
			must(t, err)
			dropped := after[abi.ReasonREASON_TOO_BIG].Packets - before[abi.ReasonREASON_TOO_BIG].Packets
			if verdict != want || (dropped == 1) != (want == xdp.VerdictDrop) {
				t.Errorf("a frame of %d octets: %s, %d are counted as too_big", length, xdp.VerdictName(verdict), dropped)
			}
		}
	})
}
