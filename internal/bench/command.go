package bench

import (
	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/bench/ambr"
	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/designs"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/disrupt"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/functions"
	"github.com/culvert-net/culvert/internal/bench/n9"
	"github.com/culvert-net/culvert/internal/bench/overlay"
	reports "github.com/culvert-net/culvert/internal/bench/report"
	"github.com/culvert-net/culvert/internal/bench/restart"
	"github.com/culvert-net/culvert/internal/bench/scale"
	"github.com/culvert-net/culvert/internal/bench/sourcesink"
	"github.com/culvert-net/culvert/internal/bench/te"
	"github.com/culvert-net/culvert/internal/cmdline"
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
	c.AddCommand(overlay.SpeakerCommand(), reports.Command(papers()), reports.CompareCommand())
	for _, x := range commands {
		e := l.Command(x.name, &cobra.Command{Short: x.short, Long: x.long, Example: x.example}, x.table, x.json)
		for flag, values := range x.values {
			cmdline.Complete(e, flag, values())
		}
		for _, flag := range x.templates {
			must(e.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(device.TemplateNames(), cobra.ShellCompDirectiveDefault)))
		}
		c.AddCommand(e)
	}
	return c
}

// must is for what only a wrong name in this file can break.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func fixed(values ...string) func() []string { return func() []string { return values } }

// commands are those of the built-in experiments, with the values that their flags can
// have. The flags in templates take a template's name, or a file of the user's.
var commands = []struct {
	name, short, long, example string
	table, json                experiment.Printer
	values                     map[string]func() []string
	templates                  []string
}{
	{
		name: "functions", table: functions.PrintTable, json: functions.PrintJSON,
		short: "What every function costs, beside L2 forwarding and the kernel (paper 001)",
		long: `Measures every function beside L2 forwarding of the same frame and, where Linux
has it, beside Linux: the CPU time of a packet from generator to sink on one
core, and that of the program alone; then rate, loss and latency under light and
heavy load. It checks every frame that comes out. Rounds are interleaved; the
figures are medians with a 95 % interval. -o json prints the CPU time of the first
packet size; the run's folder holds everything.`,
		example: "  culvert bench functions\n  culvert bench functions --quick --functions end,h_m_gtp4_d -o json",
		values:  map[string]func() []string{"functions": func() []string { return catalog.Names((&functions.Experiment{}).All(catalog.ShortSize)) }},
	},
	{
		name: "slices", table: experiment.PrintTable, json: experiment.PrintJSON,
		short: "GTP-U or SRv6 between UPFs, for two slices (paper 000)",
		long: `Measures delivery ratio, CPU time of a packet and latency in the laboratory
slices-bench: two slices share a UPF, and N9 is GTP-U, SRv6 with one SID
(traditional), or SRv6 through service nodes (enhanced). With stateless, UPF1 has
SIDs (End.M.GTP6.D) in place of sessions, as in the paper's figure 4b; with
stateless-func, service nodes are behind the slices' UPFs, as in figure 4c. It
needs two CPUs: one makes the packets, the network runs on the other.`,
		example: "  culvert bench slices\n  culvert bench slices --n9 gtpu,stateless,stateless-func --direction uplink\n  culvert bench slices --n9 gtpu,enhanced --direction uplink --rates 1000,2000,4000 -o json",
		values:  map[string]func() []string{"n9": n9.Transports, "direction": n9.Directions},
	},
	{
		name: "scale", table: experiment.PrintTable, json: experiment.PrintJSON,
		short: "What a packet costs as tables grow, and on two cores",
		long: `Measures the CPU time of a packet beside L2 forwarding of the same frame, with
growing numbers of sessions, tunnels, SDF filters in a session, SIDs, SR policies,
pushed segments and routes; then how many times as many packets two cores forward
as one.`,
		example: "  culvert bench scale\n  culvert bench scale --of sessions,rules --sessions 1,1000",
		values:  map[string]func() []string{"of": (&scale.Experiment{}).Parts},
	},
	{
		name: "device", table: experiment.PrintTable, json: experiment.PrintJSON,
		short: "Throughput and latency of any device between two interfaces, beside Linux and Culvert",
		long: `Finds the highest rate at which a device loses nothing (NDR) and the highest rate at
which it loses at most 0.5 % (PDR), by MLRsearch (RFC 9971). Then it measures latency
at shares of PDR, and loss against the rate. The device is whatever forwards from the
interface --tx to the interface --rx: give the Ethernet address at which it receives
(--mac), what is sent (--template) and what must come out (--expect). Every packet is
checked.

--against measures built-in devices beside it: functions of Linux and of Culvert,
each in namespaces of its own. Without --tx and --rx it measures only these. They
need a CPU besides the generator's. A rate that the generator cannot reach by itself
is never held against a device.`,
		example: `  culvert bench device
  culvert bench device --tx eth1 --rx eth2 --mac 02:00:00:00:00:01 --template gtpu --expect ipv4
  culvert bench device --against kernel/end_dt6,culvert/end_dt6 --sizes 64,512,1518 -o json`,
		values: map[string]func() []string{
			"against": device.AgainstNames, "sizes": fixed("64", "128", "256", "512", "1024", "1280", "1518", "imix"), "method": fixed("live", "packet"),
		},
		templates: []string{"template", "expect"},
	},
	{
		name: "designs", table: experiment.PrintTable, json: designs.PrintJSON,
		short: "Designs of a UPF, on the same core (paper 003)",
		long: `Measures packets, CPU time, latency and handovers of UPFs with the same
sessions, which take turns on one core: dp (XDP does all of a packet), steer (XDP
hands packets to the core of their UE: spread), cp (N4 is answered in XDP, too:
upf.n4_fast), both (steer and cp together) and soft (the same C sources in user space over AF_XDP: make soft).
ideal is dp behind an ideal card, which has packets of a UE received by the UE's core: it
is measured on one core and on all that there are.
The paper's figures stand beside ours, and a sentence says where our interval
excludes what it finds.

--events says what happens under load: it doubles at once, a second core is added and
taken out again (steer and both can), one UE sends eight times as much as all others.

--against NAME=COMMAND starts another UPF, which has all the same sessions and
measures: any that speaks N4. A shell runs the command in a network namespace with
interfaces n3, out0 and n4: docs/how-to/measure.md says which addresses it uses.`,
		example: "  culvert bench designs\n  culvert bench designs --designs dp,cp --against 'eupf=exec eupf --config eupf.yaml'\n  culvert bench designs --designs dp,cp --sizes 64 --quick -o json",
		values:  map[string]func() []string{"designs": designs.Names, "events": designs.EventNames, "sizes": fixed("64", "512", "1400", "imix")},
	},
	{
		name: "disrupt", table: experiment.PrintTable, json: experiment.PrintJSON,
		short: "How long packets are blocked by restarts, upgrades and changes under load",
		long: `Holds a load, does something to the daemon or its configuration, and counts the
packets that are lost: blocked time is packets lost divided by the offered rate. The
load is --rate, or NDR, which it finds first. For each event it holds the same load
for as long with nothing done. --rounds repeats each event.

The event signalling is another load: --handovers a second on N4, while the daemon is
killed, restarted and replaced. It counts those that are not answered within T1 (3 s),
and the longest gap: where the data path answers (upf.n4_fast: on, the default), and
where the daemon does (off). --n4-fast chooses.`,
		example: "  culvert bench disrupt\n  culvert bench disrupt --events upgrade,kill --rate 0.5 --rounds 10\n  culvert bench disrupt --events signalling --n4-fast on",
		values:  map[string]func() []string{"events": disrupt.EventNames, "n4-fast": disrupt.N4Fast},
	},
	{
		name: "overlay", table: overlay.PrintTable, json: overlay.PrintJSON,
		short: "Traffic between pods, beside flat routing, VXLAN and the kernel's SRv6 (paper 002)",
		long: `Measures TCP and UDP between pods of two nodes, and the CPU time of a packet, in the
laboratory overlay-bench: over Culvert's SRv6 without an SRH, with an SRH and with 3
SIDs, over flat routing, VXLAN, the kernel's SRv6 and IP-in-IP. Then it measures how long it
takes to add pods and to change a path, and the agent's memory. One CPU does all
the work of both pods and both nodes. Each result stands beside its goal.`,
		example: "  culvert bench overlay\n  culvert bench overlay --variants srv6,vxlan --traffic tcp-gso-off --pods 0 --changes 0 -o json",
		values:  map[string]func() []string{"variants": overlay.Variants, "families": overlay.Families, "traffic": overlay.Traffics},
	},
	{
		name: "knb", table: overlay.PrintKNBTable, json: overlay.PrintKNBJSON,
		short: "What knb measures between pods of two nodes: throughput, CPU and memory (paper 002)",
		long: `Measures what the Kubernetes Network Benchmark (knb) does, in the laboratory
overlay-bench and with iperf3: TCP and UDP from pod to pod and from pod to Service, and
idling, with the CPU of the client's host and of the server's by state, and memory. Each
host has a CPU of this machine. The paper's length is --time 120s --rounds 10.`,
		example: "  culvert bench knb\n  culvert bench knb --variants srv6,ipip --cases p2ptcp,p2pudp --time 120s --rounds 10",
		values:  map[string]func() []string{"variants": overlay.Variants, "families": overlay.Families, "cases": overlay.KNBCases},
	},
	{
		name: "scaling", table: scale.PrintScalingTable, json: scale.PrintScalingJSON,
		short: "Two cores over one",
		long: `Measures the CPU time of a packet with one core at work and with two, each with
a generator and queues of its own. The ratio is how many times as many packets
two cores forward. Packets of sessions are for random ones of as many, the same
on both cores.`,
		example: "  culvert bench scaling --functions open5gs_uplink,open5gs_downlink --entries 1,1000",
		values:  map[string]func() []string{"functions": func() []string { return catalog.Names(scale.CoresFunctions()) }},
	},
	{
		name: "upf", table: scale.PrintUPFTable, json: scale.PrintUPFJSON,
		short: "CPU time of sessions' packets, and the rate and latency of N4",
		long: `Sets up sessions in a UPF by PFCP and measures their packets beside L2 forwarding
of the same frame, each for a random session: the usual session, which has a QER
with an MBR and a URR with a volume threshold; "plain" ones with neither; "nat44"
ones whose UE is behind a NAT; and
sessions with 1, 4 and 16 SDF filters, of which the last one matches. It also
measures how quickly the UPF establishes, modifies and deletes sessions of the
first kind, the latency of that at 5,000 sessions a second, and, with 10,000
sessions, the time from kill -9 to the first answer of the restarted UPF.`,
		example: "  culvert bench upf --entries 1,1000\n  culvert bench upf --functions uplink,downlink -o json",
		values:  map[string]func() []string{"functions": func() []string { return catalog.Names(catalog.UPFFunctions(catalog.ShortSize)) }},
	},
	{
		name: "te", table: te.PrintTable, json: te.PrintJSON,
		short: "How good segment lists are beside the optimum, and how long they take to find",
		long: `Computes ways for all demands of networks of 8 to 100 nodes: by the IGP's shortest path
(igp), by all that are equally short (ecmp), by CSPF, one demand after the other
(cspf), and by the optimiser of culvert te (culvert). The largest utilisation of each
stands beside the smallest that segment lists with one waypoint can have, by HiGHS.`,
		example: "  culvert bench te\n  culvert bench te --graphs n50 --methods ecmp,culvert -o json",
		values:  map[string]func() []string{"graphs": te.Graphs, "methods": te.Methods},
	},
	{
		name: "ambr", table: ambr.PrintTable, json: ambr.PrintJSON,
		short: "How much of a session's AMBR TCP gets, and the most that its meter lets go",
		long: `Measures TCP (iperf3) between a UE and a data network through a session with an AMBR,
in the laboratory ambr-bench, with a delay line in user space: one connection, four at
once, short ones one after another, and UDP at twice the AMBR. Goodput stands beside
the AMBR, and so does the most that the meter lets go in any 10 s, in octets of IP
packets behind it.`,
		example: "  culvert bench ambr\n  culvert bench ambr --ambr 100 --rtt 500us,20ms --traffic tcp --direction downlink -o json",
		values:  map[string]func() []string{"direction": ambr.Directions, "traffic": ambr.Traffics},
	},
	{
		name: "source-sink", table: experiment.PrintTable, json: experiment.PrintJSON,
		short: "CPU of the two ends of a tunnel, by encapsulation (paper 000)",
		long: `Sends 10 Mbit/s of UDP over IPv6 through the laboratory source-sink, 100 kB at once as
in figure 6 of the paper, and measures the CPU time of the node that encapsulates and
of the one that decapsulates: with GTP-U, and with SRv6 of 1, 2 and 3 SIDs. UDP's
length has 16 bits, so that 100 kB are two datagrams of 50 kB. It needs two CPUs: one
sends and receives, the nodes run on the other.`,
		example: "  culvert bench source-sink\n  culvert bench source-sink --encapsulations traditional --rate 100 -o json",
		values:  map[string]func() []string{"encapsulations": sourcesink.Encapsulations},
	},
	{
		name: "restart", table: restart.PrintTable, json: restart.PrintJSON,
		short: "What an SMF notices when a UPF with many sessions is killed and started again",
		long: `Sets up sessions as Open5GS does, kills the daemon (kill -9) and starts it again at
once. An SMF on the same machine sends a heartbeat each 5 ms and asks from then on
for changes of 13 sessions: the first, the middle and the last one, and others at
random; then for one more each 100 ms. The table says when the first heartbeat is
answered, the longest gap between two answers, when all 13 sessions are modified, how
long later modifications take, and when all sessions are restored.`,
		example: "  culvert bench restart --sessions 100000 --kills 3\n  culvert bench restart --quick -o json",
	},
}
