// Package result is what an experiment found: raw samples, what they were
// measured on, and which figures show them. Whoever measures writes it, whoever
// draws reads it, and neither knows the other.
package result

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/stats"
)

// Version is that of the format on disk; a reader refuses a later one.
const Version = 1

// Run is one run of an experiment: the content of run.json.
type Run struct {
	Version    int    `json:"version"`
	Experiment string `json:"experiment"` // "functions", "slices", "scale", "disrupt", "device", or a user's
	Title      string `json:"title"`
	// Summary says in a sentence or two what was done, for a reader who has
	// not seen the code.
	Summary string    `json:"summary"`
	Command string    `json:"command"` // that repeats it
	Seed    uint64    `json:"seed"`
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended"`
	// Complete is false where the run was stopped: what is there still holds.
	Complete bool `json:"complete"`
	// Rounds are how often each point was measured.
	Rounds int `json:"rounds"`
	// NoiseLimit is the Environment.Noise above which the run claims nothing; 0: the run
	// is from before there was one.
	NoiseLimit   float64       `json:"noise_limit,omitempty"`
	Environment  Environment   `json:"environment"`
	Measurements []Measurement `json:"measurements"`
	Figures      []Figure      `json:"figures"`
	// Warnings are reasons to doubt: noise, a generator at its limit. A claim
	// that a warning forbids is not in Claims.
	Warnings []string `json:"warnings,omitempty"`
	// Claims are sentences that the measurements bear out.
	Claims []string `json:"claims,omitempty"`
	// Glossary says what values of labels mean, for a reader who does not know
	// them: "H.M.GTP4.D": "GTP-U over IPv4 becomes SRv6, with no table of tunnels".
	Glossary map[string]string `json:"glossary,omitempty"`
}

// Ran is how many rounds were measured: of a run that was stopped, those that some point has.
func (r *Run) Ran() int {
	if r.Complete {
		return r.Rounds
	}
	ran := 0
	for _, m := range r.Measurements {
		ran = max(ran, len(m.Samples))
	}
	return min(ran, r.Rounds)
}

// Environment is where figures come from.
type Environment struct {
	Kernel   string            `json:"kernel"`
	CPU      string            `json:"cpu"`
	CPUs     int               `json:"cpus"`
	MemoryMB int               `json:"memory_mb"`
	Load     string            `json:"load"` // average, when it began
	Commit   string            `json:"commit"`
	Version  string            `json:"version"`
	DataPath string            `json:"data_path,omitempty"` // hash of the loaded build
	Offloads map[string]string `json:"offloads,omitempty"`  // of the receiving interface
	// Noise is what the machine did to a loop of known length before, after and
	// in the median round: the share of time that somebody else took (0 to 1).
	Noise float64 `json:"noise"`
	// GeneratorLimit is the rate at which the generator reaches itself, in
	// packets/s; 0: it was not needed.
	GeneratorLimit float64 `json:"generator_limit,omitempty"`
	// TimestampNS is the CPU time that the time in its tag, and counting the latency,
	// adds to each packet of a trial; nil: no packet was timed.
	TimestampNS *float64 `json:"timestamp_ns,omitempty"`
}

func (e Environment) String() string {
	return fmt.Sprintf("%s, Linux %s, %d CPUs, load %s, commit %s", e.CPU, e.Kernel, e.CPUs, e.Load, e.Commit)
}

// Labels tell measurements apart: {"function": "end", "entries": "1000"}.
type Labels map[string]string

// With returns these labels and more: names and values in turns.
func (l Labels) With(more ...string) Labels {
	out := maps.Clone(l)
	for pair := range slices.Chunk(more, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// Measurement is one quantity at one point, with a sample for each round.
type Measurement struct {
	// Metric names the quantity; Metrics describes the ones that are used.
	Metric string `json:"metric"`
	Labels Labels `json:"labels"`
	Unit   string `json:"unit"` // "ns", "packets/s", "bit/s", "" for a ratio
	// Samples are one for each round, in order.
	Samples []float64 `json:"samples"`
	// Baseline are what stood beside each sample in the same round, so that
	// Baseline[i]/Samples[i] is free of what the machine did to both.
	Baseline []float64 `json:"baseline,omitempty"`
	// Histogram is of single packets, all rounds together.
	Histogram *Histogram `json:"histogram,omitempty"`
}

// Histogram counts values in buckets of the width that the receiver has.
type Histogram struct {
	Unit  string   `json:"unit"`  // "ns"
	Lower []uint64 `json:"lower"` // lowest value of each bucket that is not empty, rising
	Upper []uint64 `json:"upper"` // lowest value above it
	Count []uint64 `json:"count"`
}

// Total is how many values there are.
func (h *Histogram) Total() (n uint64) {
	for _, c := range h.Count {
		n += c
	}
	return n
}

// Quantile is the value that a share q (0 to 1) of the packets do not exceed: the
// upper end of its bucket, so that it never looks too good. It is 0 of nothing.
func (h *Histogram) Quantile(q float64) float64 {
	want, seen := q*float64(h.Total()), uint64(0)
	for i, c := range h.Count {
		if seen += c; float64(seen) >= want {
			return float64(h.Upper[i] - 1)
		}
	}
	return 0
}

// Add puts the values of another histogram with the same buckets in.
func (h *Histogram) Add(other *Histogram) {
	type bucket struct{ upper, count uint64 }
	all := map[uint64]bucket{}
	for _, from := range []*Histogram{h, other} {
		for i, low := range from.Lower {
			all[low] = bucket{from.Upper[i], all[low].count + from.Count[i]}
		}
	}
	h.Unit, h.Lower, h.Upper, h.Count = other.Unit, nil, nil, nil
	for _, low := range slices.Sorted(maps.Keys(all)) {
		h.Lower, h.Upper, h.Count = append(h.Lower, low), append(h.Upper, all[low].upper), append(h.Count, all[low].count)
	}
}

// Check says what is wrong with a run that was read.
func (r *Run) Check() error {
	if r.Version < 1 || r.Version > Version {
		return fmt.Errorf("version %d: this program reads up to %d", r.Version, Version)
	}
	var errs []error
	for i, m := range r.Measurements {
		if len(m.Baseline) > 0 && len(m.Baseline) != len(m.Samples) {
			errs = append(errs, fmt.Errorf("measurement %d (%s %v): %d samples beside %d of the baseline", i, m.Metric, m.Labels, len(m.Samples), len(m.Baseline)))
		}
		if err := m.Histogram.check(); err != nil {
			errs = append(errs, fmt.Errorf("measurement %d (%s %v): %w", i, m.Metric, m.Labels, err))
		}
	}
	ids := map[string]bool{}
	for _, f := range r.Figures {
		if ids[f.ID] {
			errs = append(errs, fmt.Errorf("figure %q: there are two", f.ID))
		}
		ids[f.ID] = true
		if err := f.check(); err != nil {
			errs = append(errs, fmt.Errorf("figure %q: %w", f.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (h *Histogram) check() error {
	if h == nil {
		return nil
	}
	if len(h.Lower) != len(h.Count) || len(h.Upper) != len(h.Count) {
		return fmt.Errorf("histogram with %d, %d and %d columns", len(h.Lower), len(h.Upper), len(h.Count))
	}
	for i := range h.Lower {
		if h.Lower[i] >= h.Upper[i] || i > 0 && h.Lower[i] < h.Upper[i-1] {
			return fmt.Errorf("histogram: bucket %d is from %d to %d: buckets rise", i, h.Lower[i], h.Upper[i])
		}
	}
	return nil
}

// Select are the measurements of a metric with all of these labels.
func (r *Run) Select(metric string, labels Labels) []Measurement {
	keys := slices.Collect(maps.Keys(labels))
	return slices.DeleteFunc(slices.Clone(r.Measurements), func(m Measurement) bool {
		return m.Metric != metric || slices.ContainsFunc(keys, func(k string) bool { return m.Labels[k] != labels[k] })
	})
}

// Doubts says whether a measurement is one that a figure leaves out.
func (r *Run) Doubts(m Measurement, d *Doubt) bool {
	if d == nil {
		return false
	}
	labels := maps.Clone(m.Labels)
	maps.Copy(labels, d.Where)
	beside := r.Select(d.Metric, labels)
	return slices.ContainsFunc(beside, func(b Measurement) bool { return stats.Median(b.Samples) > d.Above })
}
