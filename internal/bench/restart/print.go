package restart

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
)

// row is what the SMF noticed with a number of sessions: medians of all kills, in seconds, and
// the most.
type row struct {
	Sessions uint   `json:"sessions"`
	Kills    int    `json:"kills"`
	Beat     figure `json:"heartbeat_s"`
	Gap      figure `json:"heartbeat_gap_s"`
	Modified figure `json:"modification_s"`
	Later    figure `json:"later_s"`
	Restored figure `json:"restored_s"`
}

type figure struct {
	Median float64 `json:"median"`
	Most   float64 `json:"most"`
}

func (f figure) String() string { return fmt.Sprintf("%.3f (%.3f)", f.Median, f.Most) }

func rows(f *experiment.File, run *result.Run) (list []row) {
	for _, n := range f.With.(*Experiment).Sessions {
		r := row{Sessions: n}
		for metric, to := range map[string]*figure{
			metricHeartbeat: &r.Beat, metricGap: &r.Gap, metricModified: &r.Modified, metricLater: &r.Later, metricRestored: &r.Restored,
		} {
			for _, m := range run.Select(metric, labels(n)) {
				r.Kills = len(m.Samples)
				*to = figure{stats.Median(m.Samples), slices.Max(m.Samples)}
			}
		}
		if r.Kills > 0 { // else the run was stopped before
			list = append(list, r)
		}
	}
	return list
}

// PrintJSON writes the rows.
func PrintJSON(w io.Writer, f *experiment.File, run *result.Run) error {
	return experiment.WriteJSON(w, struct {
		Bench string `json:"bench"`
		Rows  []row  `json:"rows"`
	}{"restart", rows(f, run)})
}

// PrintTable writes the rows for people.
func PrintTable(w io.Writer, f *experiment.File, run *result.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sessions\tkills\tfirst heartbeat\tlongest gap\tmodification\tlater ones\tall restored\t")
	for _, r := range rows(f, run) {
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", r.Sessions, r.Kills, r.Beat, r.Gap, r.Modified, r.Later, r.Restored)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nSeconds from the start after kill -9, the median of all kills and the most. The longest gap is between two answers to heartbeats; modification:\n"+
		"until each of %d sessions that the SMF asks for from then on is modified; later ones: from a request to its answer\n", atOnce+3)
	return err
}

// Figures show the rows.
func (e *Experiment) Figures() []result.Figure {
	figure := func(id, metric, title, caption string) result.Figure {
		return result.Figure{ID: id, Title: title, Kind: result.Bars, Metric: metric, X: "sessions", XTitle: "sessions", YTitle: "s", Caption: caption}
	}
	return []result.Figure{
		figure("restart_modification", metricModified, "From kill -9 to modified sessions", "Until each session that the SMF asks for from then on is modified, whichever it is."),
		figure("restart_gap", metricGap, "Longest gap between answers to heartbeats", "While sessions are read and restored, with a heartbeat each 5 ms."),
		figure("restart_restored", metricRestored, "From the start until all sessions are restored", "SMFs are answered long before; the others wait in the journal and the tables."),
	}
}

// Claims are none: what there is to say stands in the rows.
func (*Experiment) Claims(*result.Run) []string { return nil }
