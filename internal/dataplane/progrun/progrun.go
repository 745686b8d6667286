package progrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// MaxFrame is the longest frame that a Bench makes; kept is what a sink keeps of
// its start.
const (
	MaxFrame = 2048
	kept     = 256
)

// Program is one that a Bench runs.
type Program struct{ prog *ebpf.Program }

// OpenPinned opens a pinned XDP program.
func OpenPinned(path string) (*Program, error) {
	p, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return nil, fmt.Errorf("open pinned program %s: %w", path, err)
	}
	if p.Type() != ebpf.XDP {
		return nil, errors.Join(fmt.Errorf("pinned program %s: is %s, not XDP", path, p.Type()), p.Close())
	}
	return &Program{p}, nil
}

// Close lets go of the program.
func (p *Program) Close() error { return p.prog.Close() }

// Bench is the loaded object of bpf/bench.c.
type Bench struct {
	objects benchObjects
	links   []link.Link
}

// Load loads the programs that measure.
func Load() (*Bench, error) {
	b := &Bench{}
	if err := loadBenchObjects(&b.objects, nil); err != nil {
		return nil, fmt.Errorf("load the benchmark's programs: %w", err)
	}
	return b, nil
}

// Close detaches and unloads everything.
func (b *Bench) Close() error {
	var errs []error
	for _, l := range b.links {
		errs = append(errs, l.Close())
	}
	b.links = nil
	return errors.Join(append(errs, b.objects.Close())...)
}

// NextHop is where the baseline sends every frame, in the caller's network
// namespace.
type NextHop struct {
	Ifindex  int
	Dst, Src net.HardwareAddr
}

// Baseline is the program l2_forward: both Ethernet addresses rewritten, and
// out. It belongs to b.
func (b *Bench) Baseline(hop NextHop) (*Program, error) {
	if len(hop.Dst) != 6 || len(hop.Src) != 6 {
		return nil, fmt.Errorf("next hop %s, %s: want Ethernet addresses", hop.Dst, hop.Src)
	}
	var a benchAdjacency
	a.Half[0].Ifindex = uint32(hop.Ifindex)
	copy(a.Half[0].Dst[:], hop.Dst)
	copy(a.Half[0].Src[:], hop.Src)
	if err := b.objects.BenchAdjacency.Put(uint32(1), &a); err != nil {
		return nil, fmt.Errorf("write the baseline's next hop: %w", err)
	}
	device := uint32(hop.Ifindex)
	if err := b.objects.BenchDevice.Put(device, device); err != nil {
		return nil, fmt.Errorf("write the baseline's device %d: %w", hop.Ifindex, err)
	}
	return &Program{b.objects.L2Forward}, nil
}

// Forward makes an interface of the caller's network namespace forward all that
// it receives as the baseline does.
func (b *Bench) Forward(ifindex int, hop NextHop) error {
	p, err := b.Baseline(hop)
	if err != nil {
		return err
	}
	return b.attachXDP(p.prog, ifindex)
}

// Nothing drops every frame: what is left of a run is the front's own cost.
func (b *Bench) Nothing() *Program { return &Program{b.objects.BenchNothing} }

// Pass hands every frame to the kernel.
func (b *Bench) Pass() *Program { return &Program{b.objects.BenchPass} }

// OpenReceive lets frames be run as if an interface of the caller's network
// namespace had received them, where no other XDP program does.
func (b *Bench) OpenReceive(ifindex int) error { return b.attachXDP(b.objects.BenchPass, ifindex) }

// SinkXDP counts and drops the frames that an interface of the caller's
// network namespace receives.
func (b *Bench) SinkXDP(ifindex int) error { return b.attachXDP(b.objects.BenchSink, ifindex) }

func (b *Bench) attachXDP(p *ebpf.Program, ifindex int) error {
	l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifindex, Flags: link.XDPDriverMode})
	if err != nil {
		return fmt.Errorf("attach XDP to interface %d: %w", ifindex, err)
	}
	b.links = append(b.links, l)
	return nil
}

// SinkSKB is SinkXDP for frames that the kernel sent: it needs no copy of them.
func (b *Bench) SinkSKB(ifindex int) error {
	return b.attachTCX(b.objects.BenchSinkSkb, ebpf.AttachTCXIngress, ifindex)
}

// Silence drops what the kernel itself sends by an interface, so that only what
// XDP redirects is sunk.
func (b *Bench) Silence(ifindex int) error {
	return b.attachTCX(b.objects.BenchSilence, ebpf.AttachTCXEgress, ifindex)
}

func (b *Bench) attachTCX(p *ebpf.Program, where ebpf.AttachType, ifindex int) error {
	l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: ifindex, Attach: where})
	if err != nil {
		return fmt.Errorf("attach tcx to interface %d: %w", ifindex, err)
	}
	b.links = append(b.links, l)
	return nil
}

// Frame says what the front makes.
type Frame struct {
	Data []byte
	// Keys different frames are made at random if it is more than 1, by a number
	// at Key, and the same at Twin if that has an offset.
	Keys uint32
	// CPUs have numbers of their own each, of as many: those with the same remainder. None: all
	// numbers are made on any CPU.
	CPUs      []int
	Key, Twin Place
	// Frames belong at random to Flows flows, a power of two, by a number in 16 bits at Flow. None:
	// all belong to one.
	Flows uint32
	Flow  Place
	// Pairs are Keys pairs of numbers to add to the bases of Key and Twin, of which each frame has one
	// at random. None: both have the same number, below Keys.
	Pairs []Pair
}

// differ says whether not all frames are the same.
func (f *Frame) differ() bool { return f.Keys > 1 || f.Flows > 1 }

// Pair are the numbers of one frame.
type Pair = benchBenchDraw

// Place is where a frame has a number: the 32 bits at Offset are Base and up.
type Place struct {
	Offset, Base uint32
	// Checksum is the offset of the checksum over it; 0: none.
	Checksum uint32
}

func (p Place) entry() benchBenchPlace {
	return benchBenchPlace{Offset: p.Offset, Base: p.Base, ChecksumOffset: p.Checksum}
}

// within says whether a number is inside of a frame.
func (p Place) within(frame []byte) bool {
	return p.Offset != 0 && int(p.Offset)+4 <= len(frame)
}

// Prepare makes the front make f and then run p.
func (b *Bench) Prepare(f Frame, p *Program) error {
	if len(f.Data) < 14 || len(f.Data) > MaxFrame {
		return fmt.Errorf("frame of %d octets: want 14 to %d", len(f.Data), MaxFrame)
	}
	if f.differ() && (!f.Key.within(f.Data) || (f.Twin.Offset != 0 && !f.Twin.within(f.Data))) {
		return fmt.Errorf("keys at %d and %d of a frame of %d octets", f.Key.Offset, f.Twin.Offset, len(f.Data))
	}
	if f.Flows > 0 && (bits.OnesCount32(f.Flows) != 1 || !f.Flow.within(f.Data)) {
		return fmt.Errorf("%d flows at %d of a frame of %d octets", f.Flows, f.Flow.Offset, len(f.Data))
	}
	if len(f.CPUs) > int(max(f.Keys, 1)) {
		return fmt.Errorf("%d keys for %d CPUs", f.Keys, len(f.CPUs))
	}
	if err := errors.Join(b.draw(f.Pairs, max(1, len(f.CPUs))), b.writeFrame(f, 0)); err != nil {
		return err
	}
	if err := b.objects.BenchNext.Put(uint32(0), p.prog); err != nil {
		return fmt.Errorf("set the program that runs: %w", err)
	}
	return nil
}

// draw fills the front's list with pairs at random. CPUs with numbers of their own have every n-th entry.
func (b *Bench) draw(pairs []Pair, cpus int) error {
	if len(pairs) == 0 {
		return nil
	}
	list, err := b.objects.BenchDraw.Memory()
	if err != nil {
		return fmt.Errorf("map the list of numbers: %w", err)
	}
	size := int(b.objects.BenchDraw.MaxEntries())
	if size%cpus != 0 {
		return fmt.Errorf("a list of %d numbers for %d CPUs: want as many for each", size, cpus)
	}
	drawn := make([]byte, 0, list.Size())
	for i := range size {
		p := pairs[rand.IntN(len(pairs)/cpus)*cpus+i%cpus]
		drawn = binary.NativeEndian.AppendUint32(drawn, p.Key)
		drawn = binary.NativeEndian.AppendUint32(drawn, p.Twin)
	}
	if _, err := list.WriteAt(drawn, 0); err != nil {
		return fmt.Errorf("write the list of numbers: %w", err)
	}
	return nil
}

func (b *Bench) writeFrame(f Frame, flags uint32) error {
	e := benchBenchFrame{Length: uint32(len(f.Data)), Flags: flags}
	if f.differ() {
		e.Keys, e.Key, e.Twin, e.Flows, e.Flow = max(1, f.Keys), f.Key.entry(), f.Twin.entry(), f.Flows, f.Flow.entry()
		if len(f.Pairs) > 0 {
			e.Flags |= flagDrawn
		}
	}
	cpus := make([]benchBenchCpu, ebpf.MustPossibleCPU())
	for i := range cpus {
		cpus[i].Draw = rand.Uint32() // or CPUs would go through the list side by side
	}
	if n := uint32(len(f.CPUs)); n > 0 {
		e.Keys, e.Cpus = e.Keys/n, n
		for i, cpu := range f.CPUs {
			cpus[cpu].Number = uint32(i)
		}
	}
	if err := b.objects.BenchCpu.Put(uint32(0), cpus); err != nil {
		return fmt.Errorf("set what CPUs have for themselves: %w", err)
	}
	copy(e.Data[:], f.Data)
	if err := b.objects.BenchFrame.Put(uint32(0), &e); err != nil {
		return fmt.Errorf("set the frame: %w", err)
	}
	return nil
}

// Sunk is what the sinks saw.
type Sunk struct {
	Packets, Bytes uint64
	// First is the first frame's start, of Length octets in all.
	First  []byte
	Length int
}

// ResetSinks starts the counts again.
func (b *Bench) ResetSinks() error {
	zeros := make([]benchCounter, ebpf.MustPossibleCPU())
	err := b.objects.BenchSunk.Put(uint32(0), zeros)
	return errors.Join(err, b.objects.BenchSample.Put(uint32(0), &benchBenchSample{}))
}

// Sunk reads the counts.
func (b *Bench) Sunk() (Sunk, error) {
	var counts []benchCounter
	var sample benchBenchSample
	if err := b.objects.BenchSunk.Lookup(uint32(0), &counts); err != nil {
		return Sunk{}, fmt.Errorf("read the sink's counter: %w", err)
	}
	if err := b.objects.BenchSample.Lookup(uint32(0), &sample); err != nil {
		return Sunk{}, fmt.Errorf("read the sink's sample: %w", err)
	}
	s := Sunk{Length: int(sample.Length)}
	s.First = append(s.First, sample.Data[:min(sample.Length, kept)]...)
	for _, c := range counts {
		s.Packets += c.Packets
		s.Bytes += c.Bytes
	}
	return s, nil
}
