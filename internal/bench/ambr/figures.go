package ambr

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// The metrics.
const (
	metricGoodput     = "goodput"        // bit/s of payload that arrived, beside the AMBR
	metricPassed      = "passed"         // bit/s of T-PDUs that the meter let go
	metricMost        = "passed_at_most" // the most over any window
	metricRetransmits = "retransmits"    // segments
	metricRefused     = "refused"        // packets, by the meter: more retransmits say that others lost some
	metricEach        = "connection"     // time that a short connection takes
	metricAgain       = "again"          // runs before this one in which the laboratory held packets for too long
)

// Labels of them.
const (
	labelTraffic   = "traffic"
	labelDirection = "direction"
	labelAMBR      = "ambr" // Mbit/s
	labelRTT       = "rtt"
)

// What is required: of one connection over 30 s, and of all traffic over any window.
const (
	leastGoodput = 0.90
	mostPassed   = 1.02
)

// Glossary says what the figures' words mean.
func (*Params) Glossary() map[string]string {
	words := map[string]string{}
	for _, t := range traffics {
		words[t.name] = t.meaning
	}
	return words
}

// Figures show what is measured.
func (p *Params) Figures() (list []result.Figure) {
	for _, t := range traffics {
		for _, direction := range Directions() {
			list = append(list, result.Figure{
				ID: "ambr-" + t.name + "-" + direction, Title: fmt.Sprintf("Goodput of %s, %s", t.meaning, direction), Kind: result.Bars,
				Metric: metricGoodput, Where: result.Labels{labelTraffic: t.name, labelDirection: direction}, X: labelAMBR, Series: labelRTT, Value: result.ToBaseline,
				XTitle: "AMBR in Mbit/s", YTitle: "goodput by AMBR",
				Caption: "Payload that arrived, by the session's AMBR, which counts the octets of IP packets: the headers of TCP and IP are 4 % of full segments. Bars of a group differ in round-trip time.",
			})
		}
	}
	return append(list, result.Figure{
		ID: "ambr-most", Title: "The most that the meter lets go", Kind: result.Table, Metric: metricMost, Value: result.ToBaseline,
		Caption: fmt.Sprintf("Octets of T-PDUs behind the meter, over that window of %v which has most of them, by the AMBR.", window),
	})
}

// Claims say whether what is required is met.
func (p *Params) Claims(run *result.Run) (claims []string) {
	worst, most := 0, 0
	list := rows(run)
	if len(list) == 0 {
		return nil
	}
	one := -1
	for i, r := range list {
		if r.Traffic == traffics[0].name && (one < 0 || r.GoodputShare < list[worst].GoodputShare) {
			one, worst = i, i
		}
		if r.MostShare > list[most].MostShare {
			most = i
		}
	}
	if one >= 0 {
		claims = append(claims, fmt.Sprintf("One connection gets at least %.1f %% of the AMBR (%s); required are %.0f %%.", 100*list[worst].GoodputShare, list[worst].where(), 100*leastGoodput))
	}
	return append(claims, fmt.Sprintf("In no %v does the meter let more than %.1f %% of the AMBR go (%s); at most %.0f %% are allowed over %v.",
		min(window, time.Duration(p.Time)), 100*list[most].MostShare, list[most].where(), 100*mostPassed, window))
}

// Report is what `culvert bench ambr -o json` prints.
type Report struct {
	Bench       string             `json:"bench"`
	Window      float64            `json:"window_s"` // of passed_at_most
	Rows        []row              `json:"rows"`
	Warnings    []string           `json:"warnings,omitempty"`
	Environment result.Environment `json:"environment"`
}

// row is traffic through an AMBR. Shares are of the AMBR.
type row struct {
	Traffic      string  `json:"traffic"`
	Direction    string  `json:"direction"`
	AMBR         int     `json:"ambr_mbit_s"`
	RTT          float64 `json:"rtt_ms"`
	Goodput      float64 `json:"goodput_mbit_s"`
	GoodputShare float64 `json:"goodput_share"`
	PassedShare  float64 `json:"passed_share"`
	MostShare    float64 `json:"passed_at_most_share"`
	Retransmits  float64 `json:"retransmits"`
	Refused      float64 `json:"refused"` // packets
	EachMS       float64 `json:"connection_ms,omitempty"`
	Again        float64 `json:"again"` // runs of all rounds that do not count, as the laboratory held packets for too long
	N            int     `json:"n"`     // rounds; the figures are their medians
}

func (r row) where() string {
	return fmt.Sprintf("%s %s, %d Mbit/s, RTT %v ms", r.Traffic, r.Direction, r.AMBR, r.RTT)
}

// rows are what a run has measured.
func rows(run *result.Run) (list []row) {
	value := func(metric string, labels result.Labels, of result.Value) float64 {
		for _, m := range run.Select(metric, labels) {
			return m.Estimate(of).Value
		}
		return 0
	}
	for _, m := range run.Select(metricGoodput, nil) {
		rate, err := strconv.Atoi(m.Labels[labelAMBR])
		rtt, err2 := time.ParseDuration(m.Labels[labelRTT])
		if err != nil || err2 != nil {
			continue // somebody else's
		}
		list = append(list, row{
			Traffic: m.Labels[labelTraffic], Direction: m.Labels[labelDirection], AMBR: rate, RTT: rtt.Seconds() * 1e3,
			Goodput: m.Estimate(result.Plain).Value / 1e6, GoodputShare: m.Estimate(result.ToBaseline).Value,
			PassedShare: value(metricPassed, m.Labels, result.ToBaseline), MostShare: value(metricMost, m.Labels, result.ToBaseline),
			Retransmits: value(metricRetransmits, m.Labels, result.Plain), Refused: value(metricRefused, m.Labels, result.Plain), EachMS: 1e3 * value(metricEach, m.Labels, result.Plain), Again: again(run, m.Labels), N: len(m.Samples),
		})
	}
	return list
}

func again(run *result.Run, labels result.Labels) (sum float64) {
	for _, m := range run.Select(metricAgain, labels) {
		for _, n := range m.Samples {
			sum += n
		}
	}
	return sum
}

// PrintJSON writes the rows.
func PrintJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, Report{Bench: "ambr", Window: windowOf(f).Seconds(), Rows: rows(run), Warnings: run.Warnings, Environment: run.Environment})
}

// windowOf is the window of a file's measurements.
func windowOf(f *experiment.File) time.Duration {
	p, ok := f.With.(*Params)
	if !ok {
		return window
	}
	return min(window, time.Duration(p.Time))
}

// PrintTable writes the rows for people.
func PrintTable(w io.Writer, f *experiment.File, run *result.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "traffic\tdirection\tAMBR Mbit/s\tRTT ms\tgoodput Mbit/s\tof AMBR\tpassed\tmost in %v\trefused\tretransmits\tconnection ms\tagain\n", windowOf(f))
	for _, r := range rows(run) {
		fmt.Fprintf(t, "%s\t%s\t%d\t%v\t%.2f\t%.1f %%\t%.1f %%\t%.1f %%\t%.0f\t%.0f\t%.0f\t%.0f\n", r.Traffic, r.Direction, r.AMBR, r.RTT, r.Goodput,
			100*r.GoodputShare, 100*r.PassedShare, 100*r.MostShare, r.Refused, r.Retransmits, r.EachMS, r.Again)
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
