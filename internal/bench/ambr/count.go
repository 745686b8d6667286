package ambr

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// headers are what stands before a T-PDU behind the meter, in octets: an Ethernet header
// on N6; on N3 also IPv4, UDP, and GTP-U with a PDU Session Container.
var headers = map[string]uint64{uplink: 14, downlink: 14 + 20 + 8 + 16}

// amount is what an interface received until a time.
type amount struct {
	at     time.Time
	octets uint64 // of T-PDUs
}

// counted reads what an interface of this namespace received.
func counted(device string, header uint64) (amount, error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	at := time.Now()
	if err != nil {
		return amount{}, err
	}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if string(name) != device {
			continue
		}
		var octets, packets uint64
		if _, err := fmt.Sscan(string(rest), &octets, &packets); err != nil {
			return amount{}, fmt.Errorf("the counters of %s: %w", device, err)
		}
		return amount{at, octets - packets*header}, nil
	}
	return amount{}, fmt.Errorf("there is no interface %s", device)
}

// counts are what was counted so far.
type counts struct {
	refused uint64  // packets, by rates
	delayed float64 // connections of the sender, as delayed says
}

// delayed is how many connections of this namespace have ended slow start because their round
// trips took longer (HyStart). The meter holds no packet: the laboratory held it.
func delayed() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	thread, err := fs.Thread(os.Getpid(), unix.Gettid())
	if err != nil {
		return 0, err
	}
	all, err := thread.Netstat()
	if err != nil {
		return 0, err
	}
	if all.TCPHystartDelayDetect == nil {
		return 0, errors.New("this kernel does not count how slow start ends (TCPHystartDelayDetect)")
	}
	return *all.TCPHystartDelayDetect, nil
}

// look is how often an interface's counters are read.
const look = 50 * time.Millisecond

// counter reads an interface's counters until it is told to end.
type counter struct {
	seen []amount
	end  chan struct{}
	done chan error
}

// count begins to; in calls a function in the interface's namespace.
func count(in func(func() error) error, device string, header uint64) *counter {
	c := &counter{end: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		c.done <- in(func() error {
			tick := time.NewTicker(look)
			defer tick.Stop()
			for {
				a, err := counted(device, header)
				if err != nil {
					return err
				}
				c.seen = append(c.seen, a)
				select {
				case <-c.end:
					return nil
				case <-tick.C:
				}
			}
		})
	}()
	return c
}

// stop ends the counting, and returns what was counted.
func (c *counter) stop() ([]amount, error) {
	close(c.end)
	err := <-c.done
	if err == nil && len(c.seen) < 2 {
		err = errors.New("the counters were not read twice")
	}
	return c.seen, err
}

// octets are all that passed.
func octets(seen []amount) uint64 { return seen[len(seen)-1].octets - seen[0].octets }

// most is the highest rate over any time as long as a window, or over all of it where
// that is shorter, in bit/s.
func most(seen []amount, window time.Duration) (rate float64) {
	window = min(window, seen[len(seen)-1].at.Sub(seen[0].at))
	from := 0
	for _, a := range seen {
		for from+1 < len(seen) && a.at.Sub(seen[from+1].at) >= window {
			from++
		}
		if took := a.at.Sub(seen[from].at); took >= window {
			rate = max(rate, float64(a.octets-seen[from].octets)*8/took.Seconds())
		}
	}
	return rate
}
