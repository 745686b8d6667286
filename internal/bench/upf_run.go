package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
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
and deletes sessions of the first kind.`,
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
	packets report
	pfcp    []pfcpRow
	held    held
}

// held is what is kept when all sessions are there: octets of the daemon,
// resident, and of the data path's tables.
type held struct {
	Sessions    uint32 `json:"sessions"`
	DaemonBytes uint64 `json:"daemon_bytes"`
	TableBytes  uint64 `json:"table_bytes"`
}

func runUPF(ctx context.Context, o *options, p plan, stderr io.Writer) (_ *upfReport, err error) {
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
	deleted, err := perform(ctx, b.control.groups[0].Delete)
	out.pfcp = append(b.control.rows, deleted...)
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
	_, err := fmt.Fprintf(w, "\n%d sessions: the daemon has %d MiB, the tables %d MiB\nN4: %d requests under way; the SMF is on the same machine\n",
		r.held.Sessions, r.held.DaemonBytes>>20, r.held.TableBytes>>20, window)
	return err
}
