package designs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// steady is how many requests a second are sent where their latency is measured.
const steady = 5000

// handoverTasks are one: requests, alone and beside packets of the first size.
func (e *Experiment) handoverTasks() []task {
	if e.Requests == 0 {
		return nil
	}
	const waiting = time.Second // for answers of a UPF that is short of time
	return []task{{name: "N4", takes: 2*floodTime + time.Duration(2*len(e.Offered))*(time.Duration(e.Requests)+waiting), measure: func(ctx context.Context, b *bench, design string) ([]experiment.Sample, error) {
		return b.handovers(ctx, design)
	}}}
}

// handovers measures N4 by itself, and beside packets at shares of PDR.
func (b *bench) handovers(ctx context.Context, design string) (list []experiment.Sample, err error) {
	u, size := b.uut[design], b.Sizes[0]
	pair, sent, err := b.pair(ctx, u, size)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	pdr, err := b.pdrOf(ctx, design, size, pair, sent)
	if err != nil {
		return nil, err
	}
	packets := signalling.Packets{Pair: pair, Template: sent, PDR: max(pdr.Throughput, pdr.Lower)}
	for _, share := range b.Offered {
		r, err := u.requests.RunBeside(ctx, packets, share, signalling.Settings{
			Window: window, Rate: steady, Duration: time.Duration(b.Requests), On: b.cpus.Generator, Seed: b.Seed,
		})
		if err != nil {
			return nil, fmt.Errorf("handovers: %w", err)
		}
		if err := r.Err(); err != nil {
			b.Warn("%s, N4 beside packets at %.0f %% of PDR: %v", design, 100*share, err)
		}
		for _, row := range r.Rows(0) {
			list = append(list, experiment.Sample{Metric: row.Measure, Unit: unitOf[row.Measure], Value: row.Value,
				Labels: Labels(design).With("offered", strconv.FormatFloat(share, 'g', -1, 64))})
		}
	}
	flooded, err := u.flood(ctx, b, design)
	return append(list, flooded...), err
}

// floodTime is how long requests are sent that are more than the UPF can answer.
const floodTime = time.Second

// flood measures how many requests a UPF answers if more come than it can. Each of the two gNBs
// has been named before.
func (u *upf) flood(ctx context.Context, b *bench, design string) ([]experiment.Sample, error) {
	_, err := u.requests.Run(ctx, signalling.Settings{Window: min(window, u.has.ues()), Duration: floodTime / 4, On: b.cpus.Generator, Seed: b.Seed})
	if err != nil {
		return nil, fmt.Errorf("handovers: %w", err)
	}
	f, err := u.requests.Flood(ctx, u.Net, b.cpus.Generator, floodTime)
	if err != nil {
		return nil, fmt.Errorf("handovers: %w", err)
	}
	if err := f.Err(); err != nil {
		b.Warn("%s: %v", design, err)
	}
	return []experiment.Sample{{Metric: signalling.Flooded, Unit: "requests/s", Value: f.PerSecond,
		Labels: Labels(design).With(labelSessions, strconv.Itoa(u.has.sessions))}}, nil
}

var unitOf = map[string]string{signalling.PerSecond: "requests/s", signalling.P99: "us", signalling.Unanswered: "requests", signalling.Lost: "packets"}

// alone is N4 without packets.
var alone = result.Labels{"offered": "0"}

// handoverFigures show what N4 can do, alone and beside packets.
func (*Experiment) handoverFigures() []result.Figure {
	return []result.Figure{
		{
			ID: "designs_n4_flooded", Title: "Handovers per second if more are asked for", Kind: result.Lines, Metric: signalling.Flooded, X: labelSessions, Series: labelDesign,
			XTitle: "sessions", YTitle: "requests/s", LogX: true, LogY: true,
			Caption: "Session Modification Requests that XDP sends, each session's by turns, as fast as it can; those that the UPF's core accepts. Where the daemon answers, packets that are received take the core from it.",
		},
		{
			ID: "designs_n4", Title: "Handovers per second", Kind: result.Bars, Metric: signalling.PerSecond, Where: alone, X: labelDesign, YTitle: "requests/s", LogY: true,
			Headline: "handovers/s",
			Caption:  "Session Modification Requests as Open5GS sends them, 64 under way, from four SMFs. The SMFs' sockets share the generator's core: what is answered in XDP is faster than they can send.",
			Anchors: []result.Anchor{
				anchor(softUPF, 5100, "requests/s", "SoftUPF"), anchor(dpOffload, 666, "requests/s", "DPOffload: the card's rules are changed over its driver"),
				anchor(cpOffload, 2.05e6, "requests/s", "CPOffload: a programmable card, one fixed message"),
			},
		},
		{
			ID: "designs_n4_latency", Title: "Latency of a handover's answer, P99", Kind: result.Bars, Metric: signalling.P99, Where: alone, X: labelDesign, YTitle: "latency", LogY: true,
			Caption: "From sending a request until its answer was read, of 99 in 100, at 5,000 requests a second.",
			Anchors: []result.Anchor{anchor(softUPF, 113, "us", "SoftUPF"), anchor(dpOffload, 1646, "us", "DPOffload"), anchor(cpOffload, 26, "us", "CPOffload")},
		},
		{
			ID: "designs_n4_unanswered", Title: "Handovers without an answer in time", Kind: result.Lines, Metric: signalling.Unanswered, X: "offered", Series: labelDesign,
			XTitle: "packets offered, as a share of the design's PDR", YTitle: "requests", Better: result.BetterLess,
			Caption: "Of those 5,000 requests a second, also beside packets: no answer came within T1 (3 s). The latency is of the others.",
		},
		{
			ID: "designs_n4_offered", Title: "Handovers per second beside packets", Kind: result.Lines, Metric: signalling.PerSecond, X: "offered", Series: labelDesign,
			XTitle: "packets offered, as a share of the design's PDR", YTitle: "requests/s", LogY: true,
			Caption: "The paper's question: what is left for N4 while packets go through the same core. Frames are of the first size; 64 requests are under way.",
		},
		{
			ID: "designs_n4_lost", Title: "Packets lost beside handovers", Kind: result.Lines, Metric: signalling.Lost, Where: result.Labels{"event": ""}, X: "offered", Series: labelDesign,
			XTitle: "packets offered, as a share of the design's PDR", YTitle: "packets",
			Caption: "Packets of the same time that did not come out: what N4 takes from them.",
		},
	}
}
