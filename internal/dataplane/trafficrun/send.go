package trafficrun

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

const (
	// stopSignal ends a system call. Go's runtime takes it and does nothing.
	stopSignal = unix.Signal(44)
	// ask is the pause between two looks at whether the generator is done.
	ask = 2 * time.Millisecond
)

// ErrNoLiveFrames says that this kernel cannot send from XDP programs.
var ErrNoLiveFrames = errors.New("the kernel has no live frames (it needs Linux 5.18)")

// live are frames that a program makes, for as long as it says.
type live struct {
	program  *ebpf.Program
	frame    []byte // what it gets
	batch    uint32 // frames that are made before they are sent
	duration time.Duration
	over     func() (bool, error) // the program makes no more
}

// Send runs the prepared job, in the network namespace and on the CPU that the
// calling thread, which must be locked, is on. It returns when the job's time is
// over or stop is closed.
func (e *Engine) Send(stop <-chan struct{}) error {
	return live{program: e.objects.TrafficSend, frame: e.frame, batch: e.batch, duration: e.duration, over: func() (bool, error) {
		s, err := e.State()
		return s.Over, err
	}}.send(stop)
}

// send is one system call: each takes tens of ms to begin. The program drops what is too
// early, and a signal ends the call.
func (l live) send(stop <-chan struct{}) error {
	done := make(chan struct{})
	watched := make(chan error, 1)
	tid := unix.Gettid()
	go func() { watched <- l.watch(tid, stop, done) }()
	err := progrun.WithSignals(func() error { return l.call(stop) }, stopSignal)
	close(done)
	return errors.Join(err, <-watched)
}

// call starts calls until one is ended. Each ends by itself after 2^31 frames,
// those that were too early included.
func (l live) call(stop <-chan struct{}) error {
	r := progrun.TestRun{
		Prog: uint32(l.program.FD()), Repeat: 1 << 31, Flags: progrun.LiveFrames, Batch: l.batch,
		DataSizeIn: uint32(len(l.frame)), DataIn: uint64(uintptr(unsafe.Pointer(&l.frame[0]))),
	}
	defer runtime.KeepAlive(l.frame)
	for {
		one := r // Run writes into it
		switch err := one.Run(); {
		case errors.Is(err, unix.EINVAL):
			return ErrNoLiveFrames
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("send live frames: %w", err)
		}
		if over, err := l.over(); err != nil || over {
			return err
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// watch waits for the end of the job, and then interrupts the thread until it
// has noticed: a signal that comes between two calls is lost.
func (l live) watch(tid int, stop, done <-chan struct{}) error {
	wait := time.NewTimer(l.duration)
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
			var err error
			if over, err = l.over(); err != nil {
				return err
			}
		}
		if over {
			if err := unix.Tgkill(unix.Getpid(), tid, stopSignal); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end the generator: %w", err)
			}
		}
	}
}
