package dataplane

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// BenchmarkOtherLimits takes over tables for a million sessions, all of which are there, with
// room for another number of them. It tells the memory of the former tables, of the new ones, and
// the most that the daemon has of its own meanwhile.
func BenchmarkOtherLimits(b *testing.B) {
	const sessions = 1_000_000
	for _, to := range []uint32{1_200_000, sessions} {
		b.Run(fmt.Sprint(to), func(b *testing.B) {
			needRoot(b)
			from := 2_200_000 - to
			for range b.N {
				b.StopTimer()
				path := filepath.Join("/sys/fs/bpf", fmt.Sprintf("culvert-bench-%d", os.Getpid()))
				limits := smallLimits
				limits.Sessions = from
				d, err := Open(Options{PinPath: path, Limits: limits})
				must(b, err)
				must(b, d.SetSettings(Settings{GTPUAddresses: addrs("10.0.0.1"), UEPools: benchPools(sessions)}))
				for i := range uint32(sessions) {
					must(b, d.Sessions.Put(benchSession(i+1, plain)))
				}
				former := memoryOfMaps(b, d)
				must(b, d.Close())
				debug.FreeOSMemory()
				stop, most := make(chan struct{}), make(chan uint64)
				go watchMemory(stop, most)
				limits.Sessions = to
				b.StartTimer()
				d, err = Open(Options{PinPath: path, Limits: limits})
				b.StopTimer()
				must(b, err)
				close(stop)
				b.ReportMetric(float64(former>>20), "MiB-former-tables")
				b.ReportMetric(float64(memoryOfMaps(b, d)>>20), "MiB-new-tables")
				b.ReportMetric(float64(<-most>>20), "MiB-daemon")
				must(b, d.Sweep())
				must(b, d.Close())
				must(b, Remove(path))
			}
		})
	}
}

func memoryOfMaps(b *testing.B, d *DataPlane) (octets uint64) {
	b.Helper()
	for _, m := range d.maps {
		info, err := m.Info()
		must(b, err)
		n, _ := info.Memlock()
		octets += n
	}
	return octets
}

// watchMemory tells the most memory of its own that the process had until stop is closed.
func watchMemory(stop <-chan struct{}, most chan<- uint64) {
	peak := uint64(0)
	for {
		select {
		case <-stop:
			most <- peak
			return
		case <-time.After(5 * time.Millisecond):
		}
		status, _ := os.ReadFile("/proc/self/status")
		_, text, _ := strings.Cut(string(status), "RssAnon:")
		var kilobytes uint64
		if _, err := fmt.Sscan(text, &kilobytes); err == nil {
			peak = max(peak, kilobytes<<10)
		}
	}
}
