package designs

import (
	"fmt"
	"io"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// paper says where the anchors stand: its machines and a programmable network card are not
// ours.
const paper = "paper 003, section IV"

func anchor(design string, y float64, unit, note string) result.Anchor {
	return result.Anchor{Label: "paper 003", Source: paper, X: design, Y: y, Unit: unit, Note: note}
}

// Figures show the designs beside each other.
func (e *Experiment) Figures() []result.Figure {
	return slices.Concat(e.packetFigures(), e.handoverFigures(), e.eventFigures(), e.seriesFigures(), idealFigures(e.Designs), e.costFigures())
}

// Glossary says what the figures' words mean.
func (e *Experiment) Glossary() map[string]string {
	words := map[string]string{}
	for _, d := range designs {
		words[d.paper] = d.title
	}
	for _, d := range e.Against.foreign() {
		words[d.paper] = d.title
	}
	return words
}

// fewestRounds is how many it takes for an interval that says something.
const fewestRounds = 3

// half is where latencies are compared.
var half = result.Labels{"load": "50 %"}

// findings are the paper's: a measure of one design is higher than another's.
var findings = []struct {
	says, metric  string
	where         result.Labels
	higher, lower string
}{
	{"SteerOffload forwards up to 45 % more than SoftUPF", metricPackets, result.Labels{}, steerOffload, softUPF},
	{"SteerOffload's latency is up to 37 % lower than SoftUPF's", metricP50, half, softUPF, steerOffload},
	{"DPOffload's latency is up to 24 % lower than SoftUPF's", metricP50, half, softUPF, dpOffload},
	{"SoftUPF answers 7.7 times as many requests as DPOffload", signalling.PerSecond, alone, softUPF, dpOffload},
	{"CPOffload answers 402 times as many requests as SoftUPF", signalling.PerSecond, alone, cpOffload, softUPF},
	{"CPOffload answers 3,000 times as many requests as DPOffload", signalling.PerSecond, alone, cpOffload, dpOffload},
	{"DPOffload takes 15 times as long as SoftUPF for an answer", signalling.P99, alone, dpOffload, softUPF},
	{"CPOffload takes 77 % less time than SoftUPF for an answer", signalling.P99, alone, softUPF, cpOffload},
	{"SteerOffload's latency of a heavy UE is 7 times SoftUPF's, on several cores", metricP99, result.Labels{"event": heavy, "ue": heavy}, steerOffload, softUPF},
}

// incomparable is why ours say nothing of a finding: what the paper finds of a heavy UE is of
// several cores, and each of our UPFs has one.
func incomparable(where result.Labels) string {
	if where["event"] == heavy {
		return "one core"
	}
	return ""
}

// Claims hold the paper's findings against ours.
func (e *Experiment) Claims(r *result.Run) (claims []string) {
	for _, f := range findings {
		for _, m := range r.Select(f.metric, f.where.With(labelDesign, f.higher)) {
			others := r.Select(f.metric, m.Labels.With(labelDesign, f.lower))
			if len(others) != 1 || len(others[0].Samples) != len(m.Samples) || len(m.Samples) < fewestRounds {
				continue
			}
			times, low, high := stats.Interval(m.Samples, others[0].Samples)
			where := ""
			if size := m.Labels["size"]; size != "" {
				where = ", frames of " + size
			}
			is := "bears it out"
			switch {
			case incomparable(f.where) != "":
				is = "is not comparable (" + incomparable(f.where) + ")"
			case high < 1:
				is = "excludes it"
			case low <= 1:
				is = "leaves it open"
			}
			claims = append(claims, fmt.Sprintf("The paper finds that %s. Our interval %s%s: %s is %.2f times %s's (%.2f to %.2f).",
				f.says, is, where, f.higher, times, f.lower, low, high))
		}
	}
	return slices.Concat(claims, e.Against.claims(r, e.Designs), eventClaims(r), idealClaims(r))
}

// nameOf is the parameter that chooses what the paper calls so.
func nameOf(paper string) string {
	for _, d := range designs {
		if d.paper == paper {
			return d.name
		}
	}
	return paper
}

// row is a line of the JSON.
type row struct {
	Design   string  `json:"design"`
	Measure  string  `json:"measure"`
	Size     string  `json:"size,omitempty"`
	Load     string  `json:"load,omitempty"`    // share of PDR
	Offered  string  `json:"offered,omitempty"` // packets beside N4, as a share of PDR
	Rate     string  `json:"rate,omitempty"`    // of UEs' traffic: for cores, watts, price
	Event    string  `json:"event,omitempty"`   // or what one is held against
	UE       string  `json:"ue,omitempty"`      // heavy, others
	Sessions int     `json:"sessions"`
	Filters  int     `json:"filters,omitempty"` // SDF filters of each session
	GNBs     int     `json:"gnbs,omitempty"`
	Cores    int     `json:"cores,omitempty"` // of the ideal card
	Value    float64 `json:"value"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// PrintJSON writes {"bench":"designs","rows":[...]}: medians with their 95 % intervals.
func PrintJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	out := struct {
		Bench string `json:"bench"`
		Rows  []row  `json:"rows"`
	}{Bench: "designs", Rows: []row{}}
	e, _ := f.With.(*Experiment)
	for _, m := range run.Measurements {
		value, low, high := stats.Interval(m.Samples, nil)
		at := row{
			Design: nameOf(m.Labels[labelDesign]), Measure: m.Metric, Size: m.Labels["size"], Load: m.Labels["load"], Offered: m.Labels["offered"], Rate: m.Labels["rate"],
			Event: m.Labels["event"], UE: m.Labels["ue"], Sessions: e.Sessions, Value: value, Low: low, High: high,
		}
		e.ofSeries(m, &at)
		ofIdeal(m, &at)
		out.Rows = append(out.Rows, at)
	}
	order := Names()
	for _, d := range e.Against.foreign() {
		order = append(order, d.name)
	}
	place := func(r row) int { return slices.Index(order, r.Design) }
	slices.SortStableFunc(out.Rows, func(a, b row) int { return place(a) - place(b) })
	return experiment.WriteJSON(w, out)
}
