package trafficrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	bpfProgTestRun    = 10 // BPF_PROG_TEST_RUN
	testXDPLiveFrames = 2  // BPF_F_TEST_XDP_LIVE_FRAMES
	// stopSignal ends a system call. Go's runtime takes it and does nothing.
	stopSignal = unix.Signal(44)
	// ask is how often the generator is asked whether it is done.
	ask = 2 * time.Millisecond
)

// testRun is the part of union bpf_attr for BPF_PROG_TEST_RUN.
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

// ErrNoLiveFrames says that this kernel cannot send from XDP programs.
var ErrNoLiveFrames = errors.New("the kernel has no live frames (it needs Linux 5.18)")

// Send runs the prepared job, in the network namespace and on the CPU that the
// calling thread, which must be locked, is on. It returns when the job's time is
// over or stop is closed.
//
// It is one system call for all of the job: each takes tens of ms to begin. The
// program drops what is too early, and a signal ends the call.
func (e *Engine) Send(stop <-chan struct{}) error {
	done := make(chan struct{})
	watched := make(chan error, 1)
	tid := unix.Gettid()
	go func() { watched <- e.watch(tid, stop, done) }()
	err := onlyStopSignal(func() error { return e.send(stop) })
	close(done)
	return errors.Join(err, <-watched)
}

// send starts calls until one is ended. Each ends by itself after 2^31 frames,
// those that were too early included.
func (e *Engine) send(stop <-chan struct{}) error {
	for {
		err := e.call()
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		s, err := e.State()
		if err != nil || s.Over {
			return err
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

func (e *Engine) call() error {
	attr := testRun{
		prog: uint32(e.objects.TrafficSend.FD()), repeat: 1 << 31, flags: testXDPLiveFrames, batch: e.batch,
		dataSizeIn: uint32(len(e.frame)), dataIn: uint64(uintptr(unsafe.Pointer(&e.frame[0]))),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, bpfProgTestRun, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(e.frame)
	switch errno {
	case 0:
		return nil
	case unix.EINVAL:
		return ErrNoLiveFrames
	}
	return fmt.Errorf("send live frames: %w", errno)
}

// watch waits for the end of the job, and then interrupts the thread until it
// has noticed: a signal that comes between two calls is lost.
func (e *Engine) watch(tid int, stop, done <-chan struct{}) error {
	wait := time.NewTimer(e.duration)
	defer wait.Stop()
	for over := false; ; wait.Reset(ask) {
		select {
		case <-done:
			return nil
		case <-stop:
			over, stop = true, nil
		case <-wait.C:
		}
		if !over {
			s, err := e.State()
			if err != nil {
				return err
			}
			over = s.Over
		}
		if over {
			if err := unix.Tgkill(unix.Getpid(), tid, stopSignal); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end the generator: %w", err)
			}
		}
	}
}

// onlyStopSignal keeps the Go scheduler's signals, and others', from ending the
// system call before its time.
func onlyStopSignal(f func() error) error {
	var block, before unix.Sigset_t
	for i := range block.Val {
		block.Val[i] = ^uint64(0)
	}
	block.Val[0] &^= 1 << (stopSignal - 1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &block, &before); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	err := f()
	return errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// shown reads struct traffic_shown.
func shown(b []byte) Shown {
	u32 := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	s := Shown{
		Wrong: Wrong(u32(0)), Returned: u32(1) != 0, Length: int(u32(2)), Size: int(u32(3)),
		Stream: u32(4), Sequence: u32(5),
	}
	s.Data = b[shownLength-MaxFrame : shownLength-MaxFrame+min(s.Length, MaxFrame)]
	return s
}
