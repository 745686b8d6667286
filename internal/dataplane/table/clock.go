package table

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Monotonic is the data path's clock, in nanoseconds.
func Monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	return uint64(now.Nano()), nil
}
