package xdp

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// Program is the XDP program, to which the daemon hands frames itself.
type Program struct {
	prog     *ebpf.Program
	injected atomic.Uint64
}

// New takes the program.
func New(prog *ebpf.Program) *Program { return &Program{prog: prog} }

// Injected is how many frames were sent through the program, which counts each with its outcome.
func (p *Program) Injected() uint64 { return p.injected.Load() }

// Verdicts of an XDP program.
const (
	VerdictAborted  = 0
	VerdictDrop     = 1
	VerdictPass     = 2
	VerdictTX       = 3
	VerdictRedirect = 4
)

// VerdictName is the kernel's word for a verdict, such as "XDP_PASS".
func VerdictName(v uint32) string {
	names := []string{"XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"}
	if int(v) >= len(names) {
		return fmt.Sprintf("XDP_%d", v)
	}
	return names[v]
}

// minFrame is the shortest frame that the kernel runs a program on.
const minFrame = 14

// LiveFrames makes a test run send what it forwards
// (BPF_F_TEST_XDP_LIVE_FRAMES).
const LiveFrames = 1 << 1

// MD is the kernel's struct xdp_md.
type MD struct {
	Data, DataEnd, DataMeta       uint32
	IngressIfindex, RxQueue, Exit uint32
}

// Test runs the program on a frame of at least 14 bytes as if it had come
// in on an interface, and returns the verdict and the frame as it is then.
// Nothing is sent, but everything is counted.
func (p *Program) Test(frame []byte, ifindex int) (verdict uint32, out []byte, err error) {
	opts := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+1024),
		Context: MD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	if err := checkFrame(frame); err != nil {
		return 0, nil, err
	}
	if verdict, err = p.prog.Run(&opts); err != nil {
		return 0, nil, fmt.Errorf("test run on interface %s: %w", port.Name(ifindex), err)
	}
	return verdict, opts.DataOut, nil
}

func checkFrame(frame []byte) error {
	if len(frame) < minFrame {
		return fmt.Errorf("frame of %d bytes: want at least %d", len(frame), minFrame)
	}
	return nil
}

// Inject sends a frame through the program as if it had come in on an
// interface.
func (p *Program) Inject(frame []byte, ifindex int) error {
	return p.InjectWith(nil, frame, ifindex)
}

// InjectKept does so with a frame that PuntBuffer handed up: rules that still
// keep what comes send it on.
func (p *Program) InjectKept(frame []byte, ifindex int) error {
	return p.InjectWith(KeptMark, frame, ifindex)
}

// KeptMark is KEPT_MARK of bpf/def/tables.h.
var KeptMark = binary.NativeEndian.AppendUint32(nil, 0x6b657074)

// InjectWith sends a frame through the program with metadata before it.
func (p *Program) InjectWith(meta, frame []byte, ifindex int) error {
	if err := checkFrame(frame); err != nil {
		return err
	}
	data := frame
	if len(meta) > 0 {
		data = slices.Concat(meta, frame)
	}
	_, err := p.prog.Run(&ebpf.RunOptions{
		Data: data, Repeat: 1, Flags: LiveFrames,
		Context: MD{Data: uint32(len(meta)), DataEnd: uint32(len(data)), IngressIfindex: uint32(ifindex)},
	})
	if err != nil {
		return fmt.Errorf("inject on interface %s: %w", port.Name(ifindex), err)
	}
	p.injected.Add(1)
	return nil
}
