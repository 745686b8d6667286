package n9

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/lab"
)

// load sends both slices' packets in one direction.
type load struct {
	direction string
	entry     *[2]slice
	lanes     [2]lane
	pairs     [2]*traffic.Pair
}

func openLoad(ctx context.Context, network *lab.Network, direction string, entry *[2]slice, size, cpu int, seed uint64, undo *node.Undo) (_ *load, err error) {
	l := &load{direction: direction, entry: entry}
	for i, s := range entry {
		way, err := laneOf(ctx, network, s, direction, size)
		if err != nil {
			return nil, err
		}
		o := traffic.Options{TX: way.tx, RX: way.rx, CPU: cpu, Method: traffic.Live, Expect: &way.expect, Seed: seed}
		if i == 0 {
			o.Watch = network.Daemons()
		} else {
			o.With = l.pairs[0]
		}
		l.lanes[i] = way
		if l.pairs[i], err = traffic.Open(ctx, o); err != nil {
			return nil, fmt.Errorf("slice %s, %s: %w", s.name, direction, err)
		}
		undo.Later(l.pairs[i].Close)
	}
	return l, nil
}

// outcome is what became of the packets of a trial, of both slices.
type outcome struct {
	slices [2]traffic.Outcome // A and B
	cpu    time.Duration      // of the nodes' core
}

// send offers packets at a rate, in packets/s of both slices together, which take
// turns.
func (l *load) send(ctx context.Context, rate float64, lasting time.Duration) (outcome, error) {
	var trials [2]traffic.Trial
	for i, way := range l.lanes {
		trials[i] = traffic.Trial{Template: way.send, Rate: rate / float64(len(l.lanes)), Duration: lasting}
	}
	list, err := traffic.Together(ctx, l.pairs, trials)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", l.direction, err)
	}
	return outcome{slices: list}, nil
}

// Of both slices.
func (o outcome) sent() uint64     { return o.slices[0].Sent + o.slices[1].Sent }
func (o outcome) received() uint64 { return o.slices[0].Received + o.slices[1].Received }
func (o outcome) lost() uint64     { return o.slices[0].Lost + o.slices[1].Lost }

// short says that the generator sent less than the trial offers.
func (o outcome) short() bool { return o.slices[0].AtLimit || o.slices[1].AtLimit }

// ratio is the packet delivery ratio of both slices.
func (o outcome) ratio() float64 { return float64(o.received()) / float64(o.sent()) }

// chatter are as many packets as nodes may say of their own accord in a trial: Echo
// Requests to the gNB.
const chatter = 20

// check says what must not be, however much is lost: what came out was not what
// was sent, or came twice, or nothing was sent.
func (o outcome) check() error {
	var errs []error
	for i, s := range o.slices {
		if s.Corrupt+s.Unreadable+s.Duplicated > 0 || s.Unexpected > chatter {
			errs = append(errs, fmt.Errorf("slice %s: of %d packets %d came out changed, %d were nobody's, %d unreadable, %d came twice: %v",
				bySessions[i].name, s.Received, s.Corrupt, s.Unexpected, s.Unreadable, s.Duplicated, s.Faults))
		}
		if s.Sent == 0 {
			errs = append(errs, fmt.Errorf("slice %s: nothing was sent", bySessions[i].name))
		}
	}
	return errors.Join(errs...)
}

// latency is of both slices' packets.
func (o outcome) latency() *result.Histogram {
	sum := &result.Histogram{}
	for _, s := range o.slices {
		sum.Add(s.Latency)
	}
	return sum
}
