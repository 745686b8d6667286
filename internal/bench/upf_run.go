package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/smf"
)

func upfCommand() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use:   "upf",
		Short: "CPU time of sessions' packets, and what N4 takes",
		Long: `Sets sessions up in a UPF by PFCP, and measures their packets beside L2
forwarding of the same frame, each for a session at random: the usual session,
which has a QER with an MBR and a URR with a volume threshold; "plain" ones with
neither; and such with 1, 4 and 16 SDF filters, of which the last one matches.
Before that, and after, it measures how quickly the UPF establishes, modifies
and deletes sessions of the first kind, and the latency of that at 5,000 a
second; and at last how long it is, with 10,000 sessions, from kill -9 to the
first answer of the UPF that is started again.`,
		Example: "  culvert bench upf --entries 1,1000\n  culvert bench upf --functions uplink,downlink -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.measure(c, upfFunctions(shortSize), func(ctx context.Context, p plan) (writer, error) { return runUPF(ctx, &o, p, c.ErrOrStderr()) })
		},
	}
	o.flags(c, []uint{1, 1000, 100_000, 1_000_000}, upfFunctions(shortSize))
	return c
}

// upfReport is what `culvert bench upf` says.
type upfReport struct {
	packets  report
	pfcp     []pfcpRow
	recovery recoverRow
	held     held
}

// held is what is kept when all sessions are there: octets of the daemon,
// resident, and of the data path's tables.
type held struct {
	Sessions    uint32 `json:"sessions"`
	DaemonBytes uint64 `json:"daemon_bytes"`
	TableBytes  uint64 `json:"table_bytes"`
}

func runUPF(ctx context.Context, o *options, p plan, stderr io.Writer) (*upfReport, error) {
	out, err := runSessions(ctx, o, p, stderr)
	if err != nil {
		return nil, err
	}
	out.recovery, err = recovery(ctx, o, p)
	return out, err
}

// runSessions measures packets, and N4.
func runSessions(ctx context.Context, o *options, p plan, stderr io.Writer) (_ *upfReport, err error) {
	b, err := setUp(ctx, o, p, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	e, err := b.environment(ctx)
	if err != nil {
		return nil, err
	}
	out := &upfReport{}
	for _, g := range b.control.groups {
		out.held.Sessions += uint32(g.Count())
	}
	if out.held.DaemonBytes, out.held.TableBytes, err = b.daemon.memory(); err != nil {
		return nil, err
	}
	bar := progress(stderr, len(b.rows())*b.repeat, "measuring")
	b.step = func() { _ = bar.Add(1) }
	rows, err := b.run(ctx)
	if err != nil {
		return nil, err
	}
	_ = bar.Finish()
	out.packets = makeReport(rows, e)
	deleted, err := perform(ctx, smf.Pace{Window: window}, b.control.groups[0].Delete)
	if err != nil {
		return nil, err
	}
	atRate, err := paced(ctx, b.control.groups[0])
	out.pfcp = slices.Concat(b.control.rows, deleted, atRate)
	return out, err
}

func (r *upfReport) writeJSON(w io.Writer) error {
	var rows []any
	for _, row := range r.packets.Rows {
		rows = append(rows, row)
	}
	for _, row := range r.pfcp {
		rows = append(rows, row)
	}
	rows = append(rows, r.recovery)
	return writeJSON(w, struct {
		Bench    string `json:"bench"`
		Baseline string `json:"baseline"`
		Rows     []any  `json:"rows"`
		held
		Environment environment  `json:"environment"`
		Samples     []rowSamples `json:"samples"`
	}{"upf", r.packets.Baseline, rows, r.held, r.packets.Environment, r.packets.Samples})
}

func (r *upfReport) writeTable(w io.Writer) error {
	if err := r.packets.writeTable(w); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nN4\tsessions\ta second\tp50, us\tp99, us\t")
	for _, row := range r.pfcp {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t\n", row.Name, row.Entries, row.PerSecond, row.P50, row.P99)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d sessions: the daemon has %d MiB, the tables %d MiB\nN4: %d requests under way; the SMF is on the same machine\n"+
		"from kill -9 to the first answer, with %d sessions, %d times: %.2f s, at most %.2f s\n",
		r.held.Sessions, r.held.DaemonBytes>>20, r.held.TableBytes>>20, window,
		r.recovery.Entries, r.recovery.Repeats, r.recovery.Median, r.recovery.Max)
	return err
}
