package proc

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// NetDev are the counters of an interface. The namespace is a path; "" is that of the calling
// process.
func NetDev(namespace, name string) (line procfs.NetDevLine, err error) {
	err = Inside(namespace, func() error {
		fs, err := procfs.NewFS("/proc/thread-self")
		if err != nil {
			return err
		}
		devices, err := fs.NetDev()
		line = devices[name]
		return err
	})
	if err != nil {
		return line, fmt.Errorf("counters of interface %s: %w", name, err)
	}
	return line, nil
}
