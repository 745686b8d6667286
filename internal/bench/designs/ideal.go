package designs

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// ideal is DPOffload behind a card that hands each UE's packets to the UE's core at no cost:
// the generator picks the queue. So each core makes the packets of its own UEs, and handles
// them until they are received.
const (
	ideal     = "ideal"
	idealCard = "ideal card"
)

// The measures are pps and cpu_ns in JSON. They have names of their own here, since a
// core's time holds the making of packets, unlike the other designs'.
const (
	metricIdealPackets = metricPackets + "_of_ideal"
	metricIdealCPU     = metricCPU + "_of_ideal"
	labelCores         = "cores"
)

// idealMeasures are what they are called in JSON.
var idealMeasures = map[string]string{metricIdealPackets: metricPackets, metricIdealCPU: metricCPU}

// idealPackets is how many packets each core has in a run.
const idealPackets = 1 << 19

// card is a UPF with a receive queue for each core.
type card struct {
	*cost.Bench
	row  *cost.Row
	cpus []int
}

// openCard starts the UPF, on all CPUs that this process may use.
func openCard(ctx context.Context, e *Experiment, s experiment.Setting) (_ *card, err error) {
	c := &card{}
	if c.cpus, err = proc.Allowed(); err != nil {
		return nil, err
	}
	all := catalog.UPFFunctions(catalog.ShortSize)
	i := slices.IndexFunc(all, func(f catalog.Function) bool { return f.Name == "open5gs_uplink" })
	c.row = &cost.Row{Function: all[i], Entries: uint32(e.Sessions)}
	c.Bench, err = cost.SetUp(ctx, cost.Plan{
		Binary: s.Culvert, BPFFS: s.BPFFS, CPU: s.CPU, Name: ideal, Packets: idealPackets,
		Functions: []catalog.Function{c.row.Function}, Entries: []uint32{c.row.Entries},
	}, slices.Max(c.cpus)+1)
	if err != nil {
		return nil, fmt.Errorf("design %s: %w", ideal, err)
	}
	return c, nil
}

// numbersOf are how many of n cores are measured: 1, 2, 4 and so on, and all.
func numbersOf(n int) (list []int) {
	for cores := 1; cores < n; cores *= 2 {
		list = append(list, cores)
	}
	return append(list, n)
}

// idealTasks are one.
func idealTasks() []task {
	cpus, _ := proc.Allowed() // Open reports the error
	return []task{{name: "cores", takes: cost.RunsTake(len(numbersOf(len(cpus))), idealPackets), measure: func(_ context.Context, b *bench, _ string) ([]experiment.Sample, error) {
		return b.card.measure()
	}}}
}

// measure takes a sample of each number of cores.
func (c *card) measure() (list []experiment.Sample, err error) {
	for _, cores := range numbersOf(len(c.cpus)) {
		took, err := c.Apart(c.row, c.cpus[len(c.cpus)-cores:])
		if err != nil {
			return nil, fmt.Errorf("%d cores: %w", cores, err)
		}
		labels := Labels(ideal).With(labelCores, strconv.Itoa(cores))
		list = append(list,
			experiment.Sample{Metric: metricIdealPackets, Labels: labels, Unit: "packets/s", Value: float64(cores) * 1e9 / took.CPU},
			experiment.Sample{Metric: metricIdealCPU, Labels: labels, Unit: "ns", Value: took.CPU})
	}
	return list, nil
}

// idealFigures show packets by cores.
func idealFigures(designs []string) []result.Figure {
	if !slices.Contains(designs, ideal) {
		return nil
	}
	return []result.Figure{{
		ID: "designs_ideal", Title: "An ideal card: packets per second by cores", Kind: result.Bars, Metric: metricIdealPackets, X: labelCores, Series: labelDesign,
		XTitle: "cores", YTitle: "packets/s",
		Caption: "The generator picks the queue by the UE, and thereby the core, as a card would that knows UEs and costs nothing. Short packets from UEs. Each core makes its packets itself, so the figures are not comparable with the other designs'. By CPU time. Nothing is said of more cores than there were.",
	}}
}

// idealClaims say how many times one core's packets several cores forward.
func idealClaims(r *result.Run) (claims []string) {
	one := r.Select(metricIdealPackets, Labels(ideal).With(labelCores, "1"))
	for _, m := range r.Select(metricIdealPackets, Labels(ideal)) {
		if cores := m.Labels[labelCores]; len(one) == 1 && cores != "1" && len(m.Samples) == len(one[0].Samples) && len(m.Samples) >= fewestRounds {
			times, low, high := stats.Interval(m.Samples, one[0].Samples)
			claims = append(claims, fmt.Sprintf("With an ideal card %s cores forward %.2f times one core's packets (%.2f to %.2f).", cores, times, low, high))
		}
	}
	return claims
}

// ofIdeal gives a measurement of an ideal card its names in JSON.
func ofIdeal(m result.Measurement, r *row) {
	if measure, ok := idealMeasures[m.Metric]; ok {
		r.Measure = measure
		r.Cores, _ = strconv.Atoi(m.Labels[labelCores])
	}
}
