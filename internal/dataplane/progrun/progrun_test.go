package progrun

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/testutil/netns"
)

const xdpDrop = 1

// frame is IPv4 in Ethernet, to an address that is the key.
func frame() Frame {
	data := make([]byte, 60)
	copy(data, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 10, 0, 0, 0})
	binary.BigEndian.PutUint16(data[24:], ^sum(data[14:34]))
	return Frame{Data: data, Keys: 1000, Key: Place{Offset: 30, Base: 0x0a000000, Checksum: 24}}
}

func sum(b []byte) uint16 {
	var total uint32
	for i := 0; i < len(b); i += 2 {
		total += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// moves is a program that, as headends do, makes the frame start 40 octets
// earlier, and drops it; if that is not possible it aborts.
func moves(t *testing.T) *Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "Dual BSD/GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R2, -40),
			asm.FnXdpAdjustHead.Call(),
			asm.JNE.Imm(asm.R0, 0, "failed"),
			asm.Mov.Imm(asm.R0, xdpDrop),
			asm.Return(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("failed"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &Program{p}
}

func TestRunRestoresTheFrame(t *testing.T) {
	ns := netns.New(t)
	b, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	ns.IP(t, "link add port0 type veth peer name port1")
	ns.Up(t, "port0")
	ns.Up(t, "port1")
	index := ns.Interface(t, "port0").Index
	ns.Do(t, func() {
		f := frame()
		if err := b.Prepare(f, b.Nothing()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Run(f, index+1000, 10); err == nil || !strings.Contains(err.Error(), "on interface ") {
			t.Errorf("on an interface that is not there: %v", err)
		}
		if err := b.OpenReceive(index); err != nil {
			t.Fatal(err)
		}
		if verdict, ns, err := b.Run(f, index, 1000); err != nil || verdict != xdpDrop || ns <= 0 {
			t.Errorf("nothing: verdict %d, %v ns, %v", verdict, ns, err)
		}
		// 1000 times 40 octets are far more than a buffer has in front.
		if err := b.Prepare(f, moves(t)); err != nil {
			t.Fatal(err)
		}
		if verdict, _, err := b.Run(f, index, 1000); err != nil || verdict != xdpDrop {
			t.Errorf("a program that moves the frame: verdict %d, %v", verdict, err)
		}
	})
}

// line is a Bench with an interface to receive by, and a sink behind another one.
type line struct {
	*Bench
	ns       *netns.NS
	in       int
	l2       *Program
	dst, src net.HardwareAddr // of what arrives
}

func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{ns: netns.New(t)}
	var err error
	if l.Bench, err = Load(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, pair := range []string{"in type veth peer name source", "out type veth peer name sink"} {
		l.ns.IP(t, "link add "+pair)
	}
	for _, name := range []string{"in", "out", "source", "sink"} {
		l.ns.Up(t, name)
	}
	in, out, sink := l.ns.Interface(t, "in"), l.ns.Interface(t, "out"), l.ns.Interface(t, "sink")
	l.in, l.dst, l.src = in.Index, sink.HardwareAddr, out.HardwareAddr
	l.ns.Do(t, func() {
		if err := errors.Join(l.SinkXDP(sink.Index), l.OpenReceive(in.Index)); err != nil {
			t.Fatal(err)
		}
		if l.l2, err = l.Baseline(NextHop{Ifindex: out.Index, Dst: l.dst, Src: l.src}); err != nil {
			t.Fatal(err)
		}
	})
	return l
}

// run sends frames live: all of them arrive. It returns the first one.
func (l *line) run(t *testing.T, f Frame) []byte {
	t.Helper()
	const packets = 128
	if err := errors.Join(l.ResetSinks(), l.RunLive(f, l.in, packets)); err != nil {
		t.Fatal(err)
	}
	got, err := l.Sunk()
	if err != nil {
		t.Fatal(err)
	}
	if got.Packets != packets || got.Bytes != packets*uint64(len(f.Data)) || got.Length != len(f.Data) {
		t.Fatalf("sunk %d packets, %d octets, the first of %d", got.Packets, got.Bytes, got.Length)
	}
	if !bytes.HasPrefix(got.First, append(bytes.Clone(l.dst), l.src...)) {
		t.Errorf("addresses %x", got.First[:12])
	}
	if sum(got.First[14:34]) != 0xffff {
		t.Errorf("checksum of %x", got.First[14:34])
	}
	return got.First
}

// onSecondOf does something on CPU 0, for which frames say that it is the second.
func onSecondOf(t *testing.T, f *Frame, do func()) {
	t.Helper()
	var before, first unix.CPUSet
	first.Set(0)
	f.CPUs = []int{1, 0}
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &first)); err != nil {
		t.Fatal(err)
	}
	do()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
}

// What is sent live has different keys.
func TestLiveFrames(t *testing.T) {
	l := newLine(t)
	l.ns.Do(t, func() {
		f := frame()
		if err := l.Prepare(f, l.l2); err != nil {
			t.Fatal(err)
		}
		keys := map[uint32]bool{}
		for range 20 {
			key := binary.BigEndian.Uint32(l.run(t, f)[30:])
			if key < f.Key.Base || key >= f.Key.Base+f.Keys {
				t.Errorf("key %#x", key)
			}
			keys[key] = true
		}
		if len(keys) < 15 { // 20 draws of 1000
			t.Errorf("%d different keys in 20 runs: they are not random", len(keys))
		}
		onSecondOf(t, &f, func() {
			if err := l.Prepare(f, l.l2); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if key := binary.BigEndian.Uint32(l.run(t, f)[30:]) - f.Key.Base; key >= f.Keys || key%2 != 1 {
					t.Errorf("the second of 2 CPUs made key %d of %d", key, f.Keys)
				}
			}
		})
		f.Data = append(f.Data, make([]byte, 1514-len(f.Data))...)
		l.run(t, f)
	})
}

// Frames have both numbers of a pair, as a session's TEID and its UE's address go together.
func TestPairs(t *testing.T) {
	l := newLine(t)
	l.ns.Do(t, func() {
		f := frame()
		f.Keys, f.Key.Base, f.Twin = 100, 0, Place{Offset: 26, Base: 0xc000_0200, Checksum: 24}
		number := map[uint32]int{}
		for i := range int(f.Keys) {
			key := uint32(i) * 0x9e37_79b9
			f.Pairs = append(f.Pairs, Pair{Key: key, Twin: uint32(i)})
			number[key] = i
		}
		seen := map[int]bool{}
		runs := func() {
			if err := l.Prepare(f, l.l2); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				first := l.run(t, f)
				i, ok := number[binary.BigEndian.Uint32(first[30:])]
				if !ok || binary.BigEndian.Uint32(first[26:]) != f.Twin.Base+uint32(i) {
					t.Errorf("frame %x has no pair", first[26:34])
				}
				seen[i] = true
			}
		}
		runs()
		if len(seen) < 12 { // 20 draws of 100
			t.Errorf("%d different pairs in 20 runs: they are not random", len(seen))
		}
		clear(seen)
		onSecondOf(t, &f, runs)
		for i := range seen {
			if i%2 != 1 {
				t.Errorf("the second of 2 CPUs made pair %d", i)
			}
		}
	})
}

// Frames of one session, of many and of pairs belong to as many flows as are asked for, and the checksum
// over the port follows.
func TestFlows(t *testing.T) {
	l := newLine(t)
	one, many, pairs := frame(), frame(), frame()
	one.Keys, pairs.Keys, pairs.Pairs = 1, 1, []Pair{{Key: 7}}
	l.ns.Do(t, func() {
		for name, f := range map[string]Frame{"one": one, "many": many, "pairs": pairs} {
			f.Flows, f.Flow = 8, Place{Offset: 34, Base: 4000, Checksum: 40}
			binary.BigEndian.PutUint16(f.Data[f.Flow.Offset:], 4000)
			want := sum(f.Data[34:])
			ports := map[uint16]bool{}
			for range 20 {
				if err := l.Prepare(f, l.l2); err != nil {
					t.Fatal(err)
				}
				first := l.run(t, f)
				port := binary.BigEndian.Uint16(first[34:])
				if port < 4000 || port >= 4008 {
					t.Errorf("%s: port %d", name, port)
				}
				if got := sum(first[34:]); got != want {
					t.Errorf("%s: the sum is %#x, want %#x", name, got, want)
				}
				ports[port] = true
			}
			if len(ports) < 4 { // 20 draws of 8
				t.Errorf("%s: %d ports in 20 runs: they are not random", name, len(ports))
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs")
	}
	b, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := OpenPinned("/sys/fs/bpf/there-is-none"); err == nil {
		t.Error("a program that is not there was opened")
	}
	if _, err := b.Baseline(NextHop{Ifindex: 1}); err == nil {
		t.Error("a next hop without addresses was taken")
	}
	for says, change := range map[string]func(*Frame){
		"frame of 13":   func(f *Frame) { f.Data = f.Data[:13] },
		"frame of 2049": func(f *Frame) { f.Data = make([]byte, MaxFrame+1) },
		"keys at 0":     func(f *Frame) { f.Key.Offset = 0 },
		"keys at 57":    func(f *Frame) { f.Key.Offset = 57 },
		"3 flows at 34": func(f *Frame) { f.Flows, f.Flow.Offset = 3, 34 },
		"8 flows at 0":  func(f *Frame) { f.Flows = 8 },
	} {
		f := frame()
		change(&f)
		if err := b.Prepare(f, b.Nothing()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
