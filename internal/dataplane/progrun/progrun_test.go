package progrun

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// What is sent live arrives: all of it, with different keys and right
// checksums.
func TestLiveFrames(t *testing.T) {
	ns := netns.New(t)
	b, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, pair := range []string{"in type veth peer name source", "out type veth peer name sink"} {
		ns.IP(t, "link add "+pair)
	}
	for _, name := range []string{"in", "out", "source", "sink"} {
		ns.Up(t, name)
	}
	in, out, sink := ns.Interface(t, "in"), ns.Interface(t, "out"), ns.Interface(t, "sink")
	ns.Do(t, func() {
		if err := b.SinkXDP(sink.Index); err != nil {
			t.Fatal(err)
		}
		if err := b.OpenReceive(in.Index); err != nil {
			t.Fatal(err)
		}
		l2, err := b.Baseline(NextHop{Ifindex: out.Index, Dst: sink.HardwareAddr, Src: out.HardwareAddr})
		if err != nil {
			t.Fatal(err)
		}
		f := frame()
		if err := b.Prepare(f, l2); err != nil {
			t.Fatal(err)
		}
		keys := map[uint32]bool{}
		for range 20 {
			if err := b.ResetSinks(); err != nil {
				t.Fatal(err)
			}
			if err := b.RunLive(f, in.Index, 128); err != nil {
				t.Fatal(err)
			}
			got, err := b.Sunk()
			if err != nil {
				t.Fatal(err)
			}
			if got.Packets != 128 || got.Bytes != 128*60 || got.Length != 60 {
				t.Fatalf("sunk %d packets, %d octets, the first of %d", got.Packets, got.Bytes, got.Length)
			}
			if !bytes.HasPrefix(got.First, append(bytes.Clone(sink.HardwareAddr), out.HardwareAddr...)) {
				t.Errorf("addresses %x", got.First[:12])
			}
			if sum(got.First[14:34]) != 0xffff {
				t.Errorf("checksum of %x", got.First[14:34])
			}
			key := binary.BigEndian.Uint32(got.First[30:])
			if key < f.Key.Base || key >= f.Key.Base+f.Keys {
				t.Errorf("key %#x", key)
			}
			keys[key] = true
		}
		var before, first unix.CPUSet
		first.Set(0)
		f.CPUs = []int{1, 0}
		if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &first), b.Prepare(f, l2)); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := errors.Join(b.ResetSinks(), b.RunLive(f, in.Index, 128)); err != nil {
				t.Fatal(err)
			}
			got, err := b.Sunk()
			if err != nil {
				t.Fatal(err)
			}
			if key := binary.BigEndian.Uint32(got.First[30:]) - f.Key.Base; key >= f.Keys || key%2 != 1 {
				t.Errorf("the second of 2 CPUs made key %d of %d", key, f.Keys)
			}
		}
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Fatal(err)
		}
		f.Data = append(f.Data, make([]byte, 1514-len(f.Data))...)
		if err := b.ResetSinks(); err != nil {
			t.Fatal(err)
		}
		if err := b.RunLive(f, in.Index, 128); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Sunk(); err != nil || got.Packets != 128 || got.Bytes != 128*1514 || got.Length != 1514 {
			t.Errorf("long frames: %d packets, %d octets, the first of %d, %v", got.Packets, got.Bytes, got.Length, err)
		}
		if len(keys) < 15 { // 20 draws of 1000
			t.Errorf("%d different keys in 20 runs: they are not random", len(keys))
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
	} {
		f := frame()
		change(&f)
		if err := b.Prepare(f, b.Nothing()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
