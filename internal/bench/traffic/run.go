package traffic

import (
	"context"
	"errors"
)

// Pair is a generator and a receiver.
type Pair struct{ options Options }

var errUnfinished = errors.New("the generator is being built")

// Open prepares both interfaces. What it does to them is undone by Close.
func Open(_ context.Context, o Options) (*Pair, error) { return &Pair{o}, errUnfinished }

// Close detaches everything.
func (p *Pair) Close() error { return nil }

// Limit is the rate, in packets/s, that generator and receiver reach without a
// device between them.
func (p *Pair) Limit(context.Context, Template) (float64, error) { return 0, errUnfinished }

// Run sends a trial's packets and waits for what comes out.
func (p *Pair) Run(context.Context, Trial) (Outcome, error) { return Outcome{}, errUnfinished }
