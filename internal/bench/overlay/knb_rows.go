package overlay

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// KNBRow is a case by one variant, as knb reports it: medians of the rounds.
type KNBRow struct {
	Case   string  `json:"case"`
	Name   string  `json:"name"`
	Family string  `json:"family,omitempty"`
	Gbit   float64 `json:"gbit_per_s"`
	// Ratio is throughput by that of flat routing in the same round, with its 95 % interval.
	Ratio  float64 `json:"ratio"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Lost   float64 `json:"lost"` // share of UDP's datagrams
	Client KNBHost `json:"client"`
	Server KNBHost `json:"server"`
	RAM    float64 `json:"ram_mb"` // of the machine
	N      int     `json:"n"`      // rounds
}

// KNBHost is what a host took: shares of its CPU in %, by state, and its agent's memory.
type KNBHost struct {
	CPU   map[string]float64 `json:"cpu"`
	Agent float64            `json:"agent_mb,omitempty"`
}

// knbRows are in the order in which they were measured. Each case has the machine's memory.
func knbRows(run *result.Run) (rows []KNBRow) {
	value := func(metric string, labels result.Labels) float64 {
		return one(run, metric, labels).Estimate(result.Plain).Value
	}
	for _, m := range run.Select(metricKNBRAM, result.Labels{labelOf: "machine"}) {
		labels := result.Labels{labelName: m.Labels[labelName], labelCase: m.Labels[labelCase]}
		if family := m.Labels[labelFamily]; family != "" {
			labels = labels.With(labelFamily, family)
		}
		r := KNBRow{Case: m.Labels[labelCase], Name: m.Labels[labelName], Family: m.Labels[labelFamily], RAM: m.Estimate(result.Plain).Value, N: len(m.Samples)}
		if rate := one(run, metricKNB, labels); len(rate.Samples) > 0 {
			e := rate.Estimate(result.ToBaseline)
			r.Gbit, r.Ratio, r.Low, r.High = rate.Estimate(result.Plain).Value/1e9, e.Value, e.Low, e.High
		}
		if strings.HasSuffix(r.Case, "udp") {
			r.Lost = value(metricKNBLost, labels)
		}
		for i, host := range []*KNBHost{&r.Client, &r.Server} {
			at := labels.With(labelHost, knbHosts[i])
			host.CPU = map[string]float64{}
			for _, state := range knbStates {
				host.CPU[state] = value(metricKNBCPU, at.With(labelState, state))
			}
			if agent := one(run, metricKNBRAM, at.With(labelOf, "agent")); len(agent.Samples) > 0 {
				host.Agent = agent.Estimate(result.Plain).Value
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// PrintKNBJSON writes the rows of a run.
func PrintKNBJSON(w io.Writer, _ *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, struct {
		Bench       string             `json:"bench"`
		Environment result.Environment `json:"environment"`
		Rows        []KNBRow           `json:"rows"`
		Warnings    []string           `json:"warnings,omitempty"`
	}{"knb", run.Environment, knbRows(run), run.Warnings})
}

// PrintKNBTable writes them for people.
func PrintKNBTable(w io.Writer, _ *experiment.File, run *result.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tname\tfamily\tGbit/s\tto flat\t95 %\tlost\tclient CPU %\tuser\tsystem\tsteal\tserver CPU %\tuser\tsystem\tsteal\tagents MB\tRAM MB")
	for _, r := range knbRows(run) {
		fmt.Fprintf(t, "%s\t%s\t%s\t", r.Case, r.Name, r.Family)
		if r.Gbit > 0 {
			fmt.Fprintf(t, "%.2f\t%.3f\t%.3f to %.3f\t%.1f %%", r.Gbit, r.Ratio, r.Low, r.High, 100*r.Lost)
		} else {
			fmt.Fprint(t, "-\t-\t-\t-")
		}
		for _, h := range []KNBHost{r.Client, r.Server} {
			fmt.Fprintf(t, "\t%.0f\t%.0f\t%.0f\t%.0f", h.CPU["total"], h.CPU["user"], h.CPU["system"], h.CPU["steal"])
		}
		fmt.Fprintf(t, "\t%s, %s\t%.0f\n", figure(r.Client.Agent), figure(r.Server.Agent), r.RAM)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range append(run.Claims, run.Warnings...) {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintln(w, run.Environment)
	return err
}
