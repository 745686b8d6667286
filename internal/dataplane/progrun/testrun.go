package progrun

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LiveFrames makes a test run send what it forwards (BPF_F_TEST_XDP_LIVE_FRAMES).
const LiveFrames = 1 << 1

// TestRun is the part of union bpf_attr for BPF_PROG_TEST_RUN. The library's call
// does not set a batch, and gives the kernel's time only where there is no context.
type TestRun struct {
	Prog              uint32
	Verdict           uint32
	DataSizeIn        uint32
	_                 uint32
	DataIn, _         uint64
	Repeat            uint32
	Duration          uint32
	ContextSizeIn     uint32
	_                 uint32
	ContextIn, _      uint64
	Flags, CPU, Batch uint32
	_                 uint32
}

// Run does the system call. The caller keeps alive what the addresses are of.
func (r *TestRun) Run() error {
	const progTestRun = 10 // BPF_PROG_TEST_RUN
	if _, _, errno := unix.Syscall(unix.SYS_BPF, progTestRun, uintptr(unsafe.Pointer(r)), unsafe.Sizeof(*r)); errno != 0 {
		return errno
	}
	return nil
}

// WithSignals calls f while this thread, which must be locked, gets no signals but
// some: those of the Go scheduler end a system call before its time.
func WithSignals(f func() error, some ...unix.Signal) error {
	var block, before unix.Sigset_t
	for i := range block.Val {
		block.Val[i] = ^uint64(0)
	}
	for _, s := range some {
		block.Val[0] &^= 1 << (s - 1)
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &block, &before); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	err := f()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}
