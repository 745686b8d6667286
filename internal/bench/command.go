package bench

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/functions"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
	"github.com/culvert-net/culvert/internal/bench/scale"
)

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
	c.AddCommand(overlay.SpeakerCommand(), functionsCommand(l), slicesCommand(l), scaleCommand(l), deviceCommand(l), disruptCommand(l), overlayCommand(l), scalingCommand(l), upfCommand(l), reports.Command())
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
	}, functions.PrintTable, functions.PrintJSON)
	must(c.RegisterFlagCompletionFunc("functions", cobra.FixedCompletions(catalog.Names((&functions.Experiment{}).All(catalog.ShortSize)), cobra.ShellCompDirectiveNoFileComp)))
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
	must(c.RegisterFlagCompletionFunc("of", cobra.FixedCompletions((&scale.Experiment{}).Parts(), cobra.ShellCompDirectiveNoFileComp)))
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

func scalingCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("scaling", &cobra.Command{
		Short: "Two cores over one",
		Long: `Measures the CPU time of a packet with one core at work and with two, each with
a generator and queues of its own. The ratio is how many times as many packets
two cores forward.`,
	}, scale.PrintScalingTable, scale.PrintScalingJSON)
	must(c.RegisterFlagCompletionFunc("functions", cobra.FixedCompletions(catalog.Names(catalog.Functions(catalog.ShortSize)), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

func upfCommand(l *experiment.Library) *cobra.Command {
	c := l.Command("upf", &cobra.Command{
		Short: "CPU time of sessions' packets, and the rate and latency of N4",
		Long: `Sets up sessions in a UPF by PFCP and measures their packets beside L2 forwarding
of the same frame, each for a random session: the usual session, which has a QER
with an MBR and a URR with a volume threshold; "plain" ones with neither; and
sessions with 1, 4 and 16 SDF filters, of which the last one matches. It also
measures how quickly the UPF establishes, modifies and deletes sessions of the
first kind, the latency of that at 5,000 sessions a second, and, with 10,000
sessions, the time from kill -9 to the first answer of the restarted UPF.`,
		Example: "  culvert bench upf --entries 1,1000\n  culvert bench upf --functions uplink,downlink -o json",
	}, scale.PrintUPFTable, scale.PrintUPFJSON)
	must(c.RegisterFlagCompletionFunc("functions", cobra.FixedCompletions(catalog.Names(catalog.UPFFunctions(catalog.ShortSize)), cobra.ShellCompDirectiveNoFileComp)))
	return c
}

// must is for what only a wrong name in this file can break.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
