package experiment

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/result"
)

// collect makes a run of what the journal holds.
func collect(f *File, plan Plan, j *journal) *result.Run {
	run := &result.Run{
		Version: result.Version, Experiment: f.Name, Title: f.Title, Summary: f.Summary,
		Seed: f.Seed, Rounds: f.Rounds, NoiseLimit: f.NoiseLimit, Measurements: measurements(plan, j),
	}
	for _, figure := range f.With.Figures() {
		if len(run.Select(figure.Metric, figure.Where)) > 0 { // else the run was stopped before
			run.Figures = append(run.Figures, figure)
		}
	}
	if g, ok := f.With.(interface{ Glossary() map[string]string }); ok {
		run.Glossary = g.Glossary()
	}
	for _, e := range j.entries {
		switch {
		case e.Begin != nil && run.Begun.IsZero():
			run.Begun, run.Command, run.Environment = e.Begin.At, e.Begin.Command, e.Begin.Environment
		case e.Warning != "" && !slices.Contains(run.Warnings, e.Warning):
			run.Warnings = append(run.Warnings, e.Warning)
		case e.End != nil:
			run.Ended, run.Complete = *e.End, true
		}
	}
	run.Environment.Noise = noiseOf(j.entries)
	if !run.Complete {
		run.Ended = time.Now().UTC().Truncate(time.Second)
	}
	return run
}

// noiseOf is the noise of the median round: values are medians of rounds. That of
// a round is the most that the loop has found before, within or after it.
func noiseOf(entries []entry) float64 {
	byRound := map[int]float64{}
	round, latest := -1, 0.0
	for _, e := range entries {
		switch {
		case e.Point != nil:
			round = e.Point.Round
			byRound[round] = max(byRound[round], latest)
		case e.Noise != nil:
			if latest = *e.Noise; round >= 0 {
				byRound[round] = max(byRound[round], latest)
			}
		case e.Begin != nil:
			round = -1 // the run was stopped and resumed: the next noise belongs to no round
		}
	}
	if len(byRound) == 0 {
		return latest
	}
	sorted := slices.Sorted(maps.Values(byRound))
	return sorted[len(sorted)/2]
}

// measurements puts samples of the same metric and labels together: in the
// order of the plan, and of rounds.
func measurements(plan Plan, j *journal) []result.Measurement {
	byPoint := map[string][]*taken{}
	for _, e := range j.entries {
		if e.Point != nil {
			byPoint[e.Point.ID] = append(byPoint[e.Point.ID], e.Point)
		}
	}
	var list []result.Measurement
	place := map[string]int{}
	for _, p := range plan.Points {
		rounds := byPoint[p.ID]
		slices.SortStableFunc(rounds, func(a, b *taken) int { return a.Round - b.Round })
		for _, t := range rounds {
			for _, s := range t.Samples {
				key := fmt.Sprintf("%q %q", s.Metric, s.Labels) // fmt sorts labels
				at, known := place[key]
				if !known {
					at, place[key] = len(list), len(list)
					list = append(list, result.Measurement{Metric: s.Metric, Labels: s.Labels, Unit: s.Unit})
				}
				m := &list[at]
				m.Samples = append(m.Samples, s.Value)
				if s.Baseline != nil {
					m.Baseline = append(m.Baseline, *s.Baseline)
				}
				if m.Histogram == nil && s.Histogram != nil {
					m.Histogram = &result.Histogram{}
				}
				if s.Histogram != nil {
					m.Histogram.Add(s.Histogram)
				}
			}
		}
	}
	return list
}
