package progrun

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const batchSize = 64

// Redirect is the verdict XDP_REDIRECT.
const Redirect = 4

// The flags of a frame: BENCH_RESTORE, by which runs follow each other on one buffer, and
// BENCH_DRAWN, by which the numbers are those of the list.
const (
	flagRestore = 1
	flagDrawn   = 2
)

// Run runs the prepared program `repeat` times in one buffer, as if frames
// came in on an interface of the caller's network namespace, and returns the
// last verdict and the time of one run, the front's included. Nothing leaves.
func (b *Bench) Run(f Frame, ifindex int, repeat uint32) (verdict uint32, ns float64, err error) {
	if err := b.writeFrame(f, flagRestore); err != nil {
		return 0, 0, err
	}
	r := TestRun{Prog: uint32(b.objects.BenchFront.FD()), Repeat: repeat}
	err = run(&r, f, ifindex)
	return r.Verdict, float64(r.Duration), err
}

// RunLive sends `packets` frames on their way as if they came in on an
// interface of the caller's network namespace. They are received, sent and
// sunk on the CPU that the calling thread is on.
func (b *Bench) RunLive(f Frame, ifindex int, packets uint32) error {
	r := TestRun{Prog: uint32(b.objects.BenchFront.FD()), Repeat: packets, Flags: LiveFrames, Batch: batchSize}
	return run(&r, f, ifindex)
}

func run(r *TestRun, f Frame, ifindex int) error {
	// struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	ctx := [6]uint32{1: uint32(len(f.Data)), 3: uint32(ifindex)}
	r.DataSizeIn, r.DataIn = uint32(len(f.Data)), address(&f.Data[0])
	r.ContextSizeIn, r.ContextIn = uint32(unsafe.Sizeof(ctx)), address(&ctx)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := WithSignals(r.Run) // a run is short
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
