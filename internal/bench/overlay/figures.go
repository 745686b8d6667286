package overlay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/result"
)

// The metrics.
const (
	metricRate   = "throughput"         // bit/s of the CPU's time
	metricWall   = "throughput_by_wall" // bit/s by the clock on the wall
	metricPacket = "packet_ns"          // CPU time of a packet
	metricBeside = "throughput_beside"  // of ours, beside another tunnel
	metricPod    = "pod_add"            // time of a CNI ADD, and the agent's CPU time
	metricChange = "policy_change"      // until the tables have it, and the agent's CPU time
	metricMemory = "agent_memory"       // resident

	metricExchange = "exchange_ns" // CPU time of a request with its response
	metricLatency  = "latency"     // of them, by the clock on the wall
)

// Labels of them.
const (
	labelName     = "name"
	labelFamily   = "family"
	labelProtocol = "protocol"
	labelGSO      = "gso"
	labelServices = "services" // that nodes have the rules of
	labelBeside   = "beside"
	labelBy       = "by"
	labelNodes    = "nodes"    // that the agent knows
	labelQuantile = "quantile" // or the CPU time of each
)

// Quantiles.
const (
	p50 = "P50"
	p99 = "P99"
)

// GSO at the pods.
const (
	on  = "on"
	off = "off"
)

func (p point) gso() string { return gsoOf[p.traffic == tcpGSO || p.traffic == tcpFlows] }

// gsoOf is how pods are set, by whether they hand on large packets.
var gsoOf = map[bool]string{true: on, false: off}

func (p point) labels(name string) result.Labels {
	labels := result.Labels{labelName: name, labelFamily: p.family, labelProtocol: p.traffic, labelServices: strconv.Itoa(p.services)}
	if p.isExchange() {
		return labels
	}
	return labels.With(labelProtocol, strings.TrimSuffix(p.traffic, "-gso-off"), labelGSO, p.gso())
}

// samples are what each variant came to, beside flat routing.
func (r *rig) samples(p point, list []variant, sums []amount) (out []experiment.Sample) {
	byName := map[string]amount{}
	for i, v := range list {
		byName[v.name] = sums[i]
	}
	add := func(metric, unit string, labels result.Labels, of func(amount) float64, name, beside string) {
		baseline := of(byName[beside])
		out = append(out, experiment.Sample{Metric: metric, Labels: labels, Unit: unit, Value: of(byName[name]), Baseline: &baseline})
	}
	if p.isExchange() {
		for _, v := range list {
			add(metricExchange, "ns", p.labels(v.name), amount.perPacket, v.name, v.beside)
			for name, q := range map[string]float64{p50: 0.5, p99: 0.99} {
				quantile := func(a amount) float64 { return a.latency(q) }
				add(metricLatency, "ns", p.labels(v.name).With(labelQuantile, name), quantile, v.name, v.beside)
			}
		}
		return out
	}
	for _, v := range list {
		labels := p.labels(v.name)
		add(metricRate, "bit/s", labels, amount.rate, v.name, v.beside)
		add(metricWall, "bit/s", labels, amount.byWall, v.name, v.beside)
		add(metricPacket, "ns", labels, amount.perPacket, v.name, v.beside)
	}
	for _, other := range []string{vxlan, seg6, ipInIP} {
		if byName[ours].packets == 0 || byName[other].packets == 0 {
			continue
		}
		add(metricBeside, "bit/s", p.labels(ours).With(labelBeside, other), amount.rate, ours, other)
	}
	return out
}

const paper = "Lombardo, Salsano, Abdelsalam, Bernier, Filsfils: Extending Kubernetes Networking to make use of Segment Routing over IPv6 (SRv6), figure 15"

// Glossary says what the figures' words mean.
func (p *Params) Glossary() map[string]string {
	words := map[string]string{
		"gso on":  "the pod hands on packets of up to 64 KiB, which are cut up where somebody has to",
		"gso off": "the pod hands on packets of its MTU, so that each passes both nodes by itself",
	}
	for _, v := range variants {
		words[v.name] = v.meaning
	}
	return words
}

const oneCPU = "One CPU does all the work of the sender, both nodes and the receiver; by the CPU's time, so that it does not count who else uses it. "

// Figures show what is measured.
func (p *Params) Figures() (list []result.Figure) {
	for _, x := range []struct{ id, protocol, gso, title, about string }{
		{"fig15-tcp", "tcp", on, "TCP between pods of two nodes, GSO on", "Most of it is the copying of data into the kernel and out of it. "},
		{"fig15-tcp-gso-off", "tcp", off, "TCP between pods of two nodes, GSO off at the pod", "Each packet of the MTU passes both nodes by itself. "},
		{"tcp-flows", tcpFlows, on, "Many TCP connections between pods of two nodes, on two CPUs", fmt.Sprintf("Two CPUs do, with %d connections each: the sum of both. ", p.Connections)},
		{"fig15-udp", "udp", off, "UDP between pods of two nodes", fmt.Sprintf("Datagrams of %d octets. ", p.Datagram)},
	} {
		where := result.Labels{labelProtocol: x.protocol, labelGSO: x.gso, labelServices: strconv.Itoa(p.fewestServices())}
		rates := result.Figure{
			ID: x.id, Title: x.title, Kind: result.Bars, Metric: metricRate, Where: where, X: labelName, Series: labelFamily,
			YTitle: "throughput", Caption: "What comes through in a second. " + oneCPU + x.about,
		}
		// What the paper's text says of figure 15, which has no numbers on its points.
		if rate := map[string]float64{"fig15-tcp": 2e9, "fig15-udp": 1e9}[x.id]; rate > 0 {
			rates.Anchors = []result.Anchor{{
				Label: "paper 002, IP-in-IP and SRv6 of VPP", Source: paper, X: ours, Y: rate, Unit: "bit/s",
				Note: "order of magnitude, IPv4; virtual machines in KVM, each of 2 or 4 virtual CPUs, AMD Ryzen 9 5900HX; SRv6 slightly above IP-in-IP for TCP, the same for UDP",
			}}
		}
		list = append(list, rates, result.Figure{
			ID: x.id + "-ratio", Title: x.title + ", to flat routing", Kind: result.Bars, Metric: metricRate, Where: where, X: labelName, Series: labelFamily,
			Value: result.ToBaseline, YTitle: "throughput, flat routing = 1", Headline: "times the throughput of flat routing, " + x.title,
			Caption: "By that of flat routing with as many routers between, in the same round: 1.1 is a tenth more. The tunnels' headers count: a packet holds less of the user's.",
		})
	}
	list = append(list, p.exchangeFigures()...)
	return append(list, result.Figure{
		ID: "packets", Title: "Packets in a second of the CPU, to flat routing", Kind: result.Table, Metric: metricPacket, Value: result.OfBaseline,
		Caption: "CPU time of a packet on the wire, ns, of sender, nodes and receiver. Of flat routing by it: 1 is as good as flat routing, 0.5 costs twice.",
	}, result.Figure{
		ID: "tunnels", Title: "Culvert's SRv6 beside other tunnels", Kind: result.Table, Metric: metricBeside, Value: result.ToBaseline,
		Caption: "Throughput with one segment, by that of VXLAN, of the kernel's SRv6 and of IP-in-IP in the same round.",
	}, result.Figure{
		ID: "wall", Title: "Throughput by the clock on the wall", Kind: result.Table, Metric: metricWall, Value: result.ToBaseline,
		Caption: "The same where the time that others had the CPU counts, too: on an idle machine it is as above.",
	}, result.Figure{
		ID: "pod-add", Title: "Adding a pod", Kind: result.Table, Metric: metricPod,
		Caption: fmt.Sprintf("Of %d in a row: from the start of culvert-cni to its end (plugin), and what of that the agent took. CPU is the agent's, for one of them. Nodes are as many as the agent knows.", p.Pods),
	}, result.Figure{
		ID: "policy-change", Title: "Changing a path", Kind: result.Table, Metric: metricChange,
		Caption: fmt.Sprintf("Of %d changes of the active candidate path of a policy: from the call of the management API, or the message to a BGP speaker beside the node, until the tables have it. CPU is the agent's, for one change.", p.Changes),
	}, result.Figure{
		ID: "agent-memory", Title: "Memory of the agent", Kind: result.Table, Metric: metricMemory,
		Caption: "Resident, program included, after the pods and the changes. Of each node it knows two prefixes, two policies, and two candidate paths of BGP beside the node's own.",
	})
}

// Claims states the verdict on each goal, a sentence each.
func (p *Params) Claims(run *result.Run) (list []string) {
	for _, v := range Verdicts(run) {
		list = append(list, v.String()+".")
	}
	return list
}

// fewestServices are as many as figures show that have no room for others.
func (p *Params) fewestServices() int {
	if len(p.Services) == 0 {
		return 0
	}
	return slices.Min(p.Services)
}

// exchangeFigures show requests with their responses, and NetworkPolicies.
func (p *Params) exchangeFigures() (list []result.Figure) {
	for _, x := range []struct{ id, kind, title string }{
		{"tcp-rr", tcpRR, "A request and its response, of a TCP connection"},
		{"udp-rr", udpRR, "A request and its response, by UDP"},
		{"tcp-crr", tcpCRR, "A TCP connection with a request and its response"},
	} {
		list = append(list, result.Figure{
			ID: x.id, Title: x.title, Kind: result.Bars, Metric: metricExchange, Value: result.ToBaseline, X: labelName, Series: labelFamily,
			Where:  result.Labels{labelProtocol: x.kind, labelServices: strconv.Itoa(p.fewestServices())},
			YTitle: "CPU time, flat routing = 1", Caption: "CPU time by that of flat routing in the same round: less is better. One at a time. " + oneCPU,
		})
	}
	return append(list, result.Figure{
		ID: "exchanges", Title: "Requests with their responses, with Services and without", Kind: result.Table, Metric: metricExchange, Value: result.ToBaseline,
		Caption: "CPU time of one, ns, and by that of flat routing with as many Services. The nodes have the rules that kube-proxy makes for nftables; what passes the kernel is tracked (conntrack).",
	}, result.Figure{
		ID: "latency", Title: "Time from a request to its response", Kind: result.Table, Metric: metricLatency, Value: result.ToBaseline,
		Caption: "By the clock on the wall, so that it includes what others used of the CPU. Nobody has to be woken up: client and server are one thread.",
	}, result.Figure{
		ID: "policies", Title: "What NetworkPolicies cost a packet", Kind: result.Bars, Metric: metricPolicyCost, Value: result.ToBaseline, X: labelRules, Series: labelDirection,
		YTitle: "more CPU time, L2 forwarding = 1", Headline: "times the CPU time of L2 forwarding more, NetworkPolicies",
		Caption: fmt.Sprintf("More than a packet of others: a pod that no policy selects, beside pods with these rules. first: more than none, by the same pod, while a policy selects another pod of its node. none: more than on a node that does not enforce any. Of %d established flows at random, each with another end. L2 forwarding is of the same generator in the same round.", p.Flows),
	}, result.Figure{
		ID: "policy-packets", Title: "CPU time of packets of pods by their NetworkPolicies", Kind: result.Table, Metric: metricPolicy, Value: result.ToBaseline,
		Caption: fmt.Sprintf("Short packets from another node to a pod (ingress), and to pods of another node (egress). many: to %d pods at random, none of which a policy selects.", p.Pods),
	})
}
