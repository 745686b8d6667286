package designs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/search"
	"github.com/culvert-net/culvert/internal/bench/signalling"
)

// series is what there is more and more of while packets are measured.
type series struct {
	title, label string
	flag, field  string // of the numbers
	numbers      *[]uint
	most         uint
	extent       func(e *Experiment, n int) extent
	row          func(r *row, n int)
}

// labelSessions is the label with how many sessions there are.
const labelSessions = "sessions"

// metric is its own, since its measurements have other labels than those of sizes.
func (s series) metric() string { return metricPackets + "_of_" + s.label }

func (e *Experiment) series() []series {
	return []series{
		{"sessions", labelSessions, "of-sessions", "of_sessions", &e.OfSessions, mostSessions,
			func(_ *Experiment, n int) extent { return extent{sessions: n, gnbs: 1} }, func(r *row, n int) { r.Sessions = n }},
		{"SDF filters of a session", "filters", "of-filters", "of_filters", &e.OfFilters, catalog.MostRules,
			func(e *Experiment, n int) extent { return extent{sessions: e.Sessions, filters: n, gnbs: 1} }, func(r *row, n int) { r.Filters = n }},
		{"gNBs", "gnbs", "of-gnbs", "of_gnbs", &e.OfGNBs, 1000,
			func(e *Experiment, n int) extent { return extent{sessions: e.Sessions, gnbs: n} }, func(r *row, n int) { r.GNBs = n }},
	}
}

// establishedPerSecond is how many sessions a UPF gets a second, for the time that a run
// takes.
const establishedPerSecond = 30_000

// seriesTrial is how long trials are: there are many points.
func (e *Experiment) seriesTrial() time.Duration { return time.Duration(e.Trial) / 2 }

// seriesTasks are one for each number. Each makes a UPF of its own.
func (e *Experiment) seriesTasks() (list []task) {
	for _, s := range e.series() {
		if !e.Series {
			break
		}
		for _, n := range *s.numbers {
			has := s.extent(e, int(n))
			list = append(list, task{
				name: fmt.Sprintf("%d %s", n, s.title),
				takes: 2*time.Second + time.Duration(has.sessions)*time.Second/establishedPerSecond +
					time.Duration(device.TrialsOfSearch)*(e.seriesTrial()+device.SetUpTrial),
				measure: func(ctx context.Context, b *bench, design string) ([]experiment.Sample, error) {
					return b.oneOfSeries(ctx, design, s, int(n), has)
				},
			})
		}
	}
	return list
}

// oneOfSeries measures a UPF that is made for it: packets, and by sessions handovers too.
func (b *bench) oneOfSeries(ctx context.Context, name string, s series, n int, has extent) (list []experiment.Sample, err error) {
	d := chosenAs(b.Experiment, name)
	u, err := openUPF(ctx, b, name+"-series", d, has)
	switch {
	case err != nil && d.command != "" && ctx.Err() == nil: // it has its own limits
		b.Warn("%s", heldAgainst(d, fmt.Errorf("%d %s: %w", n, s.title, err)))
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer func() { err = errors.Join(err, u.Close()) }()
	pps, err := b.packetsWith(ctx, name, u)
	if err != nil {
		return nil, err
	}
	if pps > 0 {
		list = append(list, experiment.Sample{Metric: s.metric(), Labels: Labels(name).With(s.label, strconv.Itoa(n)), Unit: "packets/s", Value: pps})
	}
	if s.label != labelSessions || b.Requests == 0 {
		return list, nil
	}
	flooded, err := u.flood(ctx, b, name)
	return append(list, flooded...), err
}

// packetsWith is PDR of a UPF; 0: it has none.
func (b *bench) packetsWith(ctx context.Context, name string, u *upf) (pps float64, err error) {
	pair, sent, err := b.pair(ctx, u, b.Sizes[0])
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	pdr, err := b.pdr(ctx, pair, sent, b.seriesTrial())
	if err == nil && pdr.Cause != search.Regular {
		b.Warn("%s with %+v: %s", name, u.has, pdr)
	}
	return max(pdr.Throughput, pdr.Lower), err
}

// seriesFigures show packets per second against each.
func (e *Experiment) seriesFigures() (list []result.Figure) {
	for _, s := range e.series() {
		if !e.Series || len(*s.numbers) == 0 {
			continue
		}
		list = append(list, result.Figure{
			ID: "designs_of_" + s.label, Title: "Packets per second by " + s.title, Kind: result.Lines, Metric: s.metric(), X: s.label, Series: labelDesign,
			XTitle: s.title, YTitle: "packets/s", LogX: true,
			Caption: "PDR of one core with frames of the first size, in a UPF that was made for each point. Packets are of all sessions and gNBs by turns.",
		})
	}
	return list
}

// ofSeries makes a measurement of a series a row of packets per second.
func (e *Experiment) ofSeries(m result.Measurement, r *row) {
	if n, err := strconv.Atoi(m.Labels[labelSessions]); err == nil && m.Metric == signalling.Flooded {
		r.Sessions = n
	}
	for _, s := range e.series() {
		if n, err := strconv.Atoi(m.Labels[s.label]); err == nil && m.Metric == s.metric() {
			r.Measure = metricPackets
			s.row(r, n)
		}
	}
}
