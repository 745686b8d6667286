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
	rounds, err := p.withoutDevice(ctx, t, false)
	if err != nil {
		return 0, err
	}
	var rates []float64
	for _, o := range rounds {
		rates = append(rates, float64(o[0].Received)/o[0].Elapsed.Seconds())
	}
	p.limits[key] = stats.Median(rates)
	return p.limits[key], nil
}

// TimestampCost is the CPU time, in ns, that the time in its tag adds to a packet,
// reading the clock and counting the latency, from trials with and without it in turns.
func (p *Pair) TimestampCost(ctx context.Context, t Template) (float64, error) {
	rounds, err := p.withoutDevice(ctx, t, false, true)
	var costs []float64
	for _, o := range rounds { // the generator's CPU time for a packet
		costs = append(costs, float64(o[0].CPU.Generator)/float64(o[0].Sent)-float64(o[1].CPU.Generator)/float64(o[1].Sent))
	}
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

// withoutDevice runs trials as fast as possible over a veth pair: limitTrials rounds, of
// one for each of untimed.
func (p *Pair) withoutDevice(ctx context.Context, t Template, untimed ...bool) (rounds [][]Outcome, err error) {
	cable, err := proc.NewNamespace(func() error {
		// Nobody is to say anything but the generator.
		for _, which := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0o644); err != nil {
				return err
			}
		}
		c := exec.Command("ip", "-batch", "-")
		c.Stdin = strings.NewReader("link add name tx type veth peer name rx\nlink set dev tx up\nlink set dev rx up\n")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("ip: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("make a veth pair to measure the generator alone: %w", err)
	}
	defer func() { err = errors.Join(err, cable.Close()) }()
	o, path := p.options, fmt.Sprintf("/proc/self/fd/%d", cable.Fd())
	o.TX, o.RX, o.Method, o.Expect, o.With = Port{path, "tx"}, Port{path, "rx"}, p.method, nil, nil
	own, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	t.Ethernet = Ethernet{Destination: MAC(own.rx.MAC)}
	for range limitTrials {
		round := make([]Outcome, len(untimed))
		for i := range round {
			if round[i], err = own.Run(ctx, Trial{Template: t, Duration: limitDuration, Untimed: untimed[i]}); err != nil {
				return nil, err
			}
		}
		rounds = append(rounds, round)
	}
	return rounds, nil
}
