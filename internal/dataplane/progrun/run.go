package progrun

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	bpfProgTestRun    = 10 // BPF_PROG_TEST_RUN
	testXDPLiveFrames = 2  // BPF_F_TEST_XDP_LIVE_FRAMES
	batchSize         = 64
)

// Redirect is the verdict XDP_REDIRECT.
const Redirect = 4

// flagRestore is BENCH_RESTORE: runs follow each other on one buffer.
const flagRestore = 1

// testRun is the part of union bpf_attr for BPF_PROG_TEST_RUN. The library's
// call gives the kernel's time only where there is no context.
type testRun struct {
	prog              uint32
	retval            uint32
	dataSizeIn        uint32
	dataSizeOut       uint32
	dataIn, dataOut   uint64
	repeat            uint32
	duration          uint32
	ctxSizeIn         uint32
	ctxSizeOut        uint32
	ctxIn, ctxOut     uint64
	flags, cpu, batch uint32
	pad               uint32
}

// xdpMD is struct xdp_md: data, data_end, data_meta, ingress_ifindex,
// rx_queue_index, egress_ifindex.
type xdpMD [6]uint32

// Run runs the prepared program `repeat` times in one buffer, as if frames
// came in on an interface of the caller's network namespace, and returns the
// last verdict and the time of one run, the front's included. Nothing leaves.
func (b *Bench) Run(f Frame, ifindex int, repeat uint32) (verdict uint32, ns float64, err error) {
	if err := b.writeFrame(f, flagRestore); err != nil {
		return 0, 0, err
	}
	attr := testRun{prog: uint32(b.objects.BenchFront.FD()), repeat: repeat}
	err = run(&attr, f, ifindex)
	return attr.retval, float64(attr.duration), err
}

// RunLive sends `packets` frames on their way as if they came in on an
// interface of the caller's network namespace. They are received, sent and
// sunk on the CPU that the calling thread is on.
func (b *Bench) RunLive(f Frame, ifindex int, packets uint32) error {
	attr := testRun{prog: uint32(b.objects.BenchFront.FD()), repeat: packets, flags: testXDPLiveFrames, batch: batchSize}
	return run(&attr, f, ifindex)
}

func run(attr *testRun, f Frame, ifindex int) error {
	ctx := xdpMD{1: uint32(len(f.Data)), 3: uint32(ifindex)}
	attr.dataSizeIn, attr.dataIn = uint32(len(f.Data)), address(&f.Data[0])
	attr.ctxSizeIn, attr.ctxIn = uint32(unsafe.Sizeof(ctx)), address(&ctx)
	err := withoutSignals(func() error {
		_, _, errno := unix.Syscall(unix.SYS_BPF, bpfProgTestRun, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
		if errno != 0 {
			return errno
		}
		return nil
	})
	runtime.KeepAlive(f.Data)
	runtime.KeepAlive(&ctx)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("run programs on interface %d: %w: is it up, with an XDP program in native mode?", ifindex, err)
	}
	if err != nil {
		return fmt.Errorf("run programs on interface %d: %w", ifindex, err)
	}
	return nil
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// withoutSignals keeps the Go scheduler's signals from ending the system call
// before all frames are sent. A run is short.
func withoutSignals(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^uint64(0)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	err := f()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}
