package smf

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer sleeps to some microseconds: the runtime's own timers are up to a
// millisecond late, and a thread that sleeps in the kernel keeps a processor
// from the goroutine that reads answers.
type timer struct {
	fd   int      // file's, which asked for it would make it block
	file *os.File // the runtime's poller reads it
}

func newTimer() (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return timer{}, fmt.Errorf("timerfd: %w", err)
	}
	return timer{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep returns after d, or earlier: interrupts are to be seen.
func (t timer) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(min(d, 50*time.Millisecond).Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err
}
