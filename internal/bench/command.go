package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
)

// options are the flags of the benchmarks.
type options struct {
	output    string
	functions []string
	entries   []uint
	repeat    int
	packets   uint32
	cpu       int
	quick     bool
	binary    string
	bpffs     string
}

// Command is `culvert bench`.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what packets cost on this machine",
		Long: `Benchmarks start culvert in network namespaces of their own, hand frames to its
data path, and leave nothing behind. They need root.`,
	}
	l := library()
	c.AddCommand(l.Commands()...)
	c.AddCommand(overlay.SpeakerCommand(), functionsCommand(l), slicesCommand(l), scaleCommand(l), deviceCommand(l), disruptCommand(l), overlayCommand(l), scalingCommand(), upfCommand(), reports.Command())
	return c
}

func functionsCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("functions", &cobra.Command{
		Short: "What every function costs, beside L2 forwarding and the kernel (paper 001)",
		Long: `Measures every function beside L2 forwarding of the same frame and, where Linux
has it, beside Linux: the CPU time of a packet from generator to sink on one
core, and that of the program alone; then rate, loss and latency under light and
heavy load. Every frame must come out as it must be. Rounds are interleaved; the
figures are medians with a 95 % interval. -o json is of the CPU time of the first
size of packets; the run's folder has all.`,
		Example: "  culvert bench functions\n  culvert bench functions --quick --functions end,h_m_gtp4_d -o json",
	}, printFunctionsTable, printFunctionsJSON)
	must(c.RegisterFlagCompletionFunc("functions", cobra.FixedCompletions(names((&functionsExperiment{}).all(shortSize)), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func slicesCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("slices", &cobra.Command{
		Short: "What carries slices between UPFs: GTP-U or SRv6 (paper 000)",
		Long: `Measures what is delivered of what is offered, what a packet costs the CPU, and how
long it takes, where two slices share a UPF and N9 is GTP-U, SRv6 with one SID
(traditional), or SRv6 by way of service nodes (enhanced): the laboratory
slices-bench. It needs two CPUs: one makes the packets, the other is the network's.`,
		Example: "  culvert bench slices\n  culvert bench slices --n9 gtpu,enhanced --direction uplink --rates 1000,2000,4000 -o json",
	}, nil, nil)
	must(c.RegisterFlagCompletionFunc("n9", cobra.FixedCompletions(n9.Transports(), cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions(n9.Directions(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func scaleCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("scale", &cobra.Command{
		Short: "What a packet costs as tables grow, and on two cores",
		Long: `Measures the CPU time of a packet beside L2 forwarding of the same frame, as
there are more sessions, tunnels, SDF filters in a session, SIDs, SR policies,
segments that are pushed, and routes; and how many times as many packets two
cores forward as one.`,
		Example: "  culvert bench scale\n  culvert bench scale --of sessions,rules --sessions 1,1000",
	}, nil, nil)
	must(c.RegisterFlagCompletionFunc("of", cobra.FixedCompletions((&scaleExperiment{}).parts(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func overlayCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("overlay", &cobra.Command{
		Short: "What pods of two nodes get, beside flat routing, VXLAN and the kernel's SRv6 (paper 002)",
		Long: `Measures TCP and UDP between pods of two nodes, and the CPU time of a packet: by
Culvert's SRv6 with no SRH, with an SRH and with 3 SIDs, by flat routing, VXLAN and
the kernel's SRv6, in the laboratory overlay-bench. Then how long it takes to add
pods and to change a path, and the agent's memory. One CPU does all the work of
both pods and both nodes. What is wanted of each is told beside it.`,
		Example: "  culvert bench overlay\n  culvert bench overlay --variants srv6,vxlan --traffic tcp-gso-off --pods 0 --changes 0 -o json",
	}, overlay.PrintTable, overlay.PrintJSON)
	must(c.RegisterFlagCompletionFunc("variants", cobra.FixedCompletions(overlay.Variants(), cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("families", cobra.FixedCompletions(overlay.Families(), cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("traffic", cobra.FixedCompletions(overlay.Traffics(), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func scalingCommand() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use:   "scaling",
		Short: "Two cores over one",
		Long: `Measures the CPU time of a packet with one core at work and with two, each with
a generator and queues of its own. The ratio is how many times as many packets
two cores forward.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.measure(c, functions(shortSize), func(ctx context.Context, p plan) (writer, error) { return runScaling(ctx, &o, p, c.ErrOrStderr()) })
		},
	}
	o.flags(c, []uint{1000}, functions(shortSize))
	return c
}

func (o *options) flags(c *cobra.Command, entries []uint, all []function) {
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	f.StringSliceVar(&o.functions, "functions", nil, "`names` of the functions to measure (default: all)")
	f.UintSliceVar(&o.entries, "entries", entries, "how many `entries` (sessions, SIDs, TEIDs) frames are for, at random")
	f.IntVar(&o.repeat, "repeat", 15, "`rounds`")
	f.Uint32Var(&o.packets, "packets", 1<<17, "`packets` of one run")
	f.IntVar(&o.cpu, "cpu", -1, "`CPU` to measure on (default: the last that may be used)")
	f.BoolVar(&o.quick, "quick", false, "two short rounds with few entries: whether it works, not how fast it is")
	f.StringVar(&o.binary, "culvert", "", "culvert `binary` to measure (default: the one beside this program, or in PATH)")
	f.StringVar(&o.bpffs, "bpffs", "/sys/fs/bpf", "bpffs `directory` for the pins")
	must(c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)))
	must(c.RegisterFlagCompletionFunc("functions", cobra.FixedCompletions(names(all), cobra.ShellCompDirectiveNoFileComp)))
}

// must is for what only a wrong name in this file can break.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// writer is a report.
type writer interface {
	writeTable(io.Writer) error
	writeJSON(io.Writer) error
}

func (o *options) measure(c *cobra.Command, all []function, run func(context.Context, plan) (writer, error)) error {
	p, err := o.plan(all)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("the benchmarks make network namespaces and load programs: run them as root")
	}
	report, err := run(c.Context(), p)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return report.writeJSON(c.OutOrStdout())
	}
	return report.writeTable(c.OutOrStdout())
}

// plan reads the flags.
func (o *options) plan(all []function) (plan, error) {
	p := plan{functions: all, repeat: o.repeat, packets: o.packets, cpu: o.cpu}
	if o.output != "table" && o.output != "json" {
		return p, fmt.Errorf("--output %q: give table or json", o.output)
	}
	for _, n := range o.entries {
		if n < 1 || n > manyEntries {
			return p, fmt.Errorf("--entries %d: give 1 to %d", n, manyEntries)
		}
		p.entries = append(p.entries, uint32(n))
	}
	if o.quick {
		p.repeat, p.packets = 2, 1<<13
		p.entries = slices.DeleteFunc(p.entries, func(n uint32) bool { return n > 1000 })
	}
	if len(p.entries) == 0 {
		return p, errors.New("--entries: give one number or more, at most 1000 with --quick")
	}
	slices.Sort(p.entries)
	p.entries = slices.Compact(p.entries)
	if p.repeat < 1 || p.packets < morePackets {
		return p, fmt.Errorf("--repeat: give at least 1; --packets: at least %d", morePackets)
	}
	return p, p.only(o.functions)
}

// only keeps the functions of some names.
func (p *plan) only(wanted []string) error {
	if len(wanted) == 0 {
		return nil
	}
	for _, name := range wanted {
		if !slices.Contains(names(p.functions), name) {
			return fmt.Errorf("--functions: there is no %q: give some of %s", name, strings.Join(names(p.functions), ", "))
		}
	}
	p.functions = slices.DeleteFunc(p.functions, func(f function) bool { return !slices.Contains(wanted, f.name) })
	return nil
}

func names(list []function) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.name)
	}
	return out
}

// progress shows how far a long measurement is, to whoever watches a terminal.
func progress(w io.Writer, steps int, what string) *progressbar.ProgressBar {
	terminal := false
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		terminal = err == nil
	}
	return progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(w), progressbar.OptionSetVisibility(terminal), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
}
