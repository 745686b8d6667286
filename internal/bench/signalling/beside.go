package signalling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/traffic"
)

// The measures of N4.
const (
	PerSecond = "n4_per_s"  // requests accepted in a second, in a closed loop
	P99       = "n4_p99_us" // time of a request, at a rate
	// Unanswered are requests without an answer within T1, at a rate.
	Unanswered = "n4_unanswered"
	Lost       = "lost" // packets lost beside the closed loop
)

// Shares of PDR at which packets are offered beside N4.
var Shares = []float64{0, 0.25, 0.5, 0.75, 0.9}

// Packets are what goes through the UPF beside N4.
type Packets struct {
	Pair     *traffic.Pair
	Template traffic.Template
	PDR      float64 // packets/s
}

// Beside is N4 and packets at the same time. The second of each is of the open loop.
type Beside struct {
	Offered float64 // share of PDR
	N4      [2]Result
	Packets [2]traffic.Outcome
}

// Row is a value of a measure.
type Row struct {
	Measure string  `json:"measure"`
	Size    int     `json:"size"`    // octets of a packet's frame
	Offered float64 `json:"offered"` // share of PDR
	Value   float64 `json:"value"`
}

// Rows are the values of all measures.
func (b *Beside) Rows(size int) []Row {
	return []Row{
		{PerSecond, size, b.Offered, b.N4[0].PerSecond},
		{P99, size, b.Offered, float64(b.N4[1].P99) / float64(time.Microsecond)},
		{Unanswered, size, b.Offered, float64(b.N4[1].Unanswered)},
		{Lost, size, b.Offered, float64(b.Packets[0].Lost)},
	}
}

// enough is the share of the packets' rate that must be held: SMFs on the same CPU take a
// part of the generator's time.
const enough = 0.75

// Err says what makes the values worthless: what the UPF did wrong, or that the packets'
// generator did not hold the rate. Requests without an answer are a result.
func (b *Beside) Err() error {
	for i := range b.N4 {
		if err := b.N4[i].Err(); err != nil && !errors.Is(err, ErrUnanswered) {
			return err
		}
	}
	for _, o := range b.Packets {
		if float64(o.Sent) < enough*float64(o.Offered) {
			return fmt.Errorf("signalling: %d of %d packets were sent: others use the generator's CPU", o.Sent, o.Offered)
		}
	}
	return nil
}

// RunBeside measures N4 with s.Window requests under way, and then at s.Rate, while
// packets are offered at a share of PDR.
func (l *Load) RunBeside(ctx context.Context, p Packets, share float64, s Settings) (Beside, error) {
	b := Beside{Offered: share}
	closed, open := s, s
	closed.Rate, open.Window = 0, 0
	for i, s := range []Settings{closed, open} {
		err := p.during(ctx, share, &b.Packets[i], func(ctx context.Context) (err error) {
			b.N4[i], err = l.Run(ctx, s)
			return err
		})
		if err != nil {
			return b, err
		}
	}
	return b, nil
}

// lead is how long packets go before N4 does.
const lead = 100 * time.Millisecond

// during offers packets for as long as f takes.
func (p *Packets) during(ctx context.Context, share float64, o *traffic.Outcome, f func(context.Context) error) error {
	if share == 0 {
		return f(ctx)
	}
	var err error
	*o, err = p.Pair.During(ctx, traffic.Trial{Template: p.Template, Rate: share * p.PDR}, func(ctx context.Context) error {
		if err := node.Wait(ctx, lead); err != nil {
			return err
		}
		return f(ctx)
	})
	return err
}

// Uplink are packets of CountedSpec's sessions, as they come from the gNB and as they leave:
// what N4 changes is the downlink.
func Uplink(sessions int) (sent, want traffic.Template) {
	want = traffic.Template{UEs: sessions, Inner: traffic.Inner{Source: catalog.FirstUE, Destination: catalog.Dst4, UE: traffic.Source}}
	sent = want
	sent.TEIDs = sessions
	sent.Outer = traffic.Outer{Kind: traffic.GTPU, Source: catalog.GNB, Destination: catalog.UPF, TEID: catalog.FirstTEID, Container: traffic.Uplink, QFI: 9}
	sent.Ethernet.Destination = traffic.MAC(node.MAC(1))
	return sent, want
}
