package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// How a limit is measured.
const (
	limitTrials   = 3
	limitDuration = 150 * time.Millisecond
)

// Limit is the rate, in packets/s, that generator and receiver reach on their CPU
// without a device between them: over a veth pair of their own. It is measured
// once for a template.
func (p *Pair) Limit(ctx context.Context, t Template) (float64, error) {
	key := fmt.Sprintf("%+v", t)
	if limit, ok := p.limits[key]; ok {
		return limit, nil
	}
	var rates []float64
	err := p.withoutDevice(ctx, t, func(run func(untimed bool) (Outcome, error)) error {
		o, err := run(false)
		rates = append(rates, float64(o.Received)/o.Elapsed.Seconds())
		return err
	})
	if err == nil {
		p.limits[key] = stats.Median(rates)
	}
	return p.limits[key], err
}

// TimestampCost is the CPU time, in ns, that the time in its tag adds to a packet,
// reading the clock and counting the latency, from trials with and without it in turns.
func (p *Pair) TimestampCost(ctx context.Context, t Template) (float64, error) {
	var costs []float64
	err := p.withoutDevice(ctx, t, func(run func(untimed bool) (Outcome, error)) error {
		timed, err := run(false)
		if err != nil {
			return err
		}
		untimed, err := run(true)
		costs = append(costs, timed.perPacket()-untimed.perPacket())
		return err
	})
	return stats.Median(costs), err
}

// Describe says what the generator and its receiver reach without a device, and
// what they pay for the time in each packet.
func (p *Pair) Describe(ctx context.Context, t Template, e *result.Environment) (err error) {
	if e.GeneratorLimit, err = p.Limit(ctx, t); err != nil {
		return err
	}
	cost, err := p.TimestampCost(ctx, t)
	e.TimestampNS = &cost
	return err
}

// perPacket is the generator's CPU time for a packet, ns.
func (o Outcome) perPacket() float64 { return float64(o.CPU.Generator) / float64(o.Sent) }

// withoutDevice calls f limitTrials times, with what runs a trial as fast as possible
// over a veth pair.
func (p *Pair) withoutDevice(ctx context.Context, t Template, f func(run func(untimed bool) (Outcome, error)) error) (err error) {
	c, err := newCable()
	if err != nil {
		return fmt.Errorf("make a veth pair to measure the generator alone: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	o := p.options
	o.TX, o.RX, o.Method, o.Expect, o.With = c.port("tx"), c.port("rx"), p.method, nil, nil
	own, err := Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	t.Ethernet = Ethernet{Destination: MAC(own.rx.MAC)}
	for range limitTrials {
		err := f(func(untimed bool) (Outcome, error) {
			return own.Run(ctx, Trial{Template: t, Duration: limitDuration, Untimed: untimed})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cable is a veth pair in a network namespace that has no name, and goes with
// the process at the latest.
type cable struct{ namespace *os.File }

func newCable() (*cable, error) {
	c := &cable{}
	err := proc.Inside("", func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if c.namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		// Nobody is to say anything but the generator.
		for _, which := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0o644); err != nil {
				return err
			}
		}
		return ip("link add name tx type veth peer name rx", "link set dev tx up", "link set dev rx up")
	})
	if err != nil && c.namespace != nil {
		err = errors.Join(err, c.Close())
	}
	return c, err
}

// Close lets go of the namespace, which takes all with it.
func (c *cable) Close() error { return c.namespace.Close() }

func (c *cable) port(name string) Port {
	return Port{Namespace: fmt.Sprintf("/proc/self/fd/%d", c.namespace.Fd()), Interface: name}
}

// ip runs lines of ip(8) in the calling thread's network namespace.
func ip(lines ...string) error {
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
