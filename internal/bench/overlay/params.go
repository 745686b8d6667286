package overlay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/overlay/policies"
	"github.com/culvert-net/culvert/internal/bench/overlay/services"
	"github.com/culvert-net/culvert/internal/bench/proc"
)

// variant is a way between two pods: in the laboratory the nodes NAME-1 and NAME-2,
// and the pods NAME-a and NAME-b.
type variant struct {
	name    string
	beside  string // flat routing with as many routers between
	meaning string
	way     way
	proof   proof
}

// Names that others refer to.
const (
	flat       = "flat"
	flatRouter = "flat-router"
	ours       = "srv6"
	vxlan      = "vxlan"
	seg6       = "seg6"
	hostRouted = "ebpf"
	ipInIP     = "ipip"
)

// variants are all, what others stand beside first.
var variants = []variant{
	{flat, flat, "pods' prefixes are routed between the nodes as they are: no tunnel", way{hops: 1}, proof{}},
	{ours, flat, "Culvert, one segment: an IPv6 header, no SRH", way{outer: "IPv6", hops: 1},
		proof{node: "srv6-1", policy: "srv6-2:%s", sids: map[string]string{"srv6-2": "fc00:0:2:%d::/64", "srv6-1": "fc00:0:1:%d::/64"}}},
	{"srv6-srh", flat, "Culvert, two segments: the node's, then its DT SID, which need not be routable; one of them is in the SRH", way{outer: "IPv6, SRH of 1", hops: 1},
		proof{node: "srv6-srh-1", policy: "srv6-srh-2:%s", sids: map[string]string{"srv6-srh-2": "fc00:0:4:%d::/64", "srv6-srh-1": "fc00:0:3:%d::/64"}}},
	{vxlan, flat, "the kernel's VXLAN over IPv4, without UDP checksums", way{outer: "IPv4, UDP, VXLAN, Ethernet", hops: 1}, proof{}},
	{seg6, flat, "the kernel's SRv6: H.Encaps.Red with one segment, End.DX4 and End.DX6", way{outer: "IPv6", hops: 0},
		proof{sids: map[string]string{"seg6-2": "fc00:0:8:%d::/64", "seg6-1": "fc00:0:7:%d::/64"}}},
	{hostRouted, flat, "host routing by a small eBPF program at each pod's veth and at the uplink (bpf/hostroute.c): no tunnel, and no routing by the kernel", way{hops: 1}, proof{}},
	{ipInIP, flat, "IP-in-IP over IPv4, by a second program there: host routing as ebpf, with an IPv4 header around the packets between nodes. It is no device of the kernel, and checks and counts nothing", way{outer: "IPv4", hops: 1}, proof{}},
	{flatRouter, flatRouter, "flat routing with a router between the nodes", way{hops: 2}, proof{}},
	{"srv6-3-sids", flatRouter, "Culvert, three segments, the first of them of a router between the nodes (the kernel's End)", way{outer: "IPv6, SRH of 2", hops: 1},
		proof{node: "srv6-3-sids-1", policy: "by-router-%d", sids: map[string]string{"router": "fc00:0:f:e::/64", "srv6-3-sids-2": "fc00:0:6:%d::/64", "srv6-3-sids-1": "fc00:0:5:%d::/64"}}},
}

// Variants returns the names of the variants.
func Variants() (names []string) {
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

func variantOf(name string) variant {
	return variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == name })]
}

// The families of pods' addresses, and kinds of traffic.
const (
	ipv4 = "ipv4"
	ipv6 = "ipv6"

	tcpGSO = "tcp"         // the pod hands on packets of up to 64 KiB
	tcpMTU = "tcp-gso-off" // the pod hands on packets of its MTU
	udp    = "udp"

	// One at a time, and what each takes: a request and its response, of a connection or without
	// one; and a connection with both.
	tcpRR  = "tcp-rr"
	udpRR  = "udp-rr"
	tcpCRR = "tcp-crr"

	tcpFlows = "tcp-flows" // many connections, on two CPUs
)

// Params are the parameters of the experiment.
type Params struct {
	// Variants are measured beside flat routing.
	Variants []string `json:"variants"`
	Families []string `json:"families"`
	Traffic  []string `json:"traffic"`
	// Services are numbers of Services that all nodes have the rules of.
	Services []int `json:"services"`
	// Connections are as many as tcp-flows has on each of two CPUs.
	Connections int `json:"connections"`
	// Trial is how long a variant sends at once; in each round it does so `passes` times.
	Trial experiment.Duration `json:"trial"`
	// Datagram is the payload of UDP, in octets.
	Datagram int `json:"datagram"`
	// Pods are as many as are added in a row, and Changes as many changes of a path,
	// with so many Nodes known.
	Pods    int   `json:"pods"`
	Changes int   `json:"changes"`
	Nodes   []int `json:"nodes"`
	// Rules are numbers of rules of pods' NetworkPolicies, Flows what each such pod has, and Packets
	// how many of them are sent at once.
	Rules   []int `json:"rules"`
	Flows   int   `json:"flows"`
	Packets int   `json:"packets"`
}

// Kind is the experiment's.
var Kind = experiment.Kind{Name: "overlay", NoiseLimit: experiment.NoiseOfRatios, New: func() experiment.Experiment {
	return &Params{Variants: Variants(), Families: Families(), Traffic: Traffics(),
		Services: []int{0, 100}, Connections: 32,
		Trial: experiment.Duration(130 * time.Millisecond), Datagram: mostDatagram, Pods: 100, Changes: 100, Nodes: []int{10, 1000},
		Rules: []int{1, 100, 10_000}, Flows: 10_000, Packets: 1 << 17}
}}

// Families returns the names of the address families.
func Families() []string { return []string{ipv4, ipv6} }

// Traffics returns the names of the kinds of traffic.
func Traffics() []string {
	return []string{tcpGSO, tcpMTU, udp, tcpRR, udpRR, tcpCRR, tcpFlows}
}

// Flags offers the parameters.
func (p *Params) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&p.Variants, "variants", p.Variants, "`names` of the ways between pods: "+strings.Join(Variants(), ", "))
	f.StringSliceVar(&p.Families, "families", p.Families, "`families` of pods' addresses: ipv4, ipv6")
	f.StringSliceVar(&p.Traffic, "traffic", p.Traffic, "`kinds` of traffic: "+strings.Join(Traffics(), ", "))
	f.IntSliceVar(&p.Services, "services", p.Services, "`numbers` of Services whose rules all nodes have")
	f.IntVar(&p.Connections, "connections", p.Connections, "`number` of connections of tcp-flows on each of two CPUs")
	f.TextVar(&p.Trial, "trial", p.Trial, "`duration` for which each sends, four times in a round")
	f.IntVar(&p.Datagram, "datagram", p.Datagram, "`octets` of UDP's payload")
	f.IntVar(&p.Pods, "pods", p.Pods, "`number` of pods that are added in a row; 0: none")
	f.IntVar(&p.Changes, "changes", p.Changes, "`number` of changes of a path; 0: none")
	f.IntSliceVar(&p.Nodes, "nodes", p.Nodes, "`numbers` of nodes that are known when paths change")
	f.IntSliceVar(&p.Rules, "rules", p.Rules, "`numbers` of rules of pods' NetworkPolicies; empty: none are measured")
	f.IntVar(&p.Flows, "flows", p.Flows, "`number` of established flows of each pod with NetworkPolicies")
	f.IntVar(&p.Packets, "packets", p.Packets, "`number` of packets that are sent at once where NetworkPolicies are measured")
}

// Quick makes it seconds.
func (p *Params) Quick() {
	p.Trial = experiment.Duration(30 * time.Millisecond)
	p.Pods, p.Changes = min(p.Pods, 20), min(p.Changes, 20)
	p.Services, p.Families = p.Services[:min(1, len(p.Services))], p.Families[:min(1, len(p.Families))]
	p.Rules, p.Packets = slices.DeleteFunc(slices.Clone(p.Rules), func(n int) bool { return n > quickRules }), min(p.Packets, 1<<14)
}

// quickRules are as many as are in the tables soon.
const quickRules = 1000

// CPUs are those that it measures on.
func (*Params) CPUs(chosen int) ([]int, error) {
	return proc.One(chosen)
}

// What there may be.
const (
	leastTrial    = 10 * time.Millisecond
	leastDatagram = 16
	mostDatagram  = 1372 // of IPv6 where three segments leave 1420 octets
	mostPods      = 200

	mostConnections = 1000
	mostRules       = 16_384
	mostFlows       = 16_384 // each of which begins with a packet of the first run
	mostPackets     = 1 << 24
	mostChanges     = 10_000
	leastNodes      = 3 // a node, the one that its path goes by, and another one
	mostNodes       = 4000
)

// Validate says everything that is wrong.
func (p *Params) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	within := func(field string, value, least, most int) {
		want(value >= least && value <= most, field, fmt.Sprintf("give %d to %d", least, most), "%d is out of range", value)
	}
	experiment.Chosen(want, "variants", p.Variants, Variants())
	experiment.Chosen(want, "families", p.Families, Families())
	if len(p.Traffic) > 0 || len(p.Rules) == 0 {
		experiment.Chosen(want, "traffic", p.Traffic, Traffics())
	}
	distinct := func(field string, values []int, least, most int) {
		for i, n := range values {
			at := fmt.Sprintf("%s[%d]", field, i)
			within(at, n, least, most)
			want(!slices.Contains(values[:i], n), at, "give it once", "%d is there twice", n)
		}
	}
	distinct("services", p.Services, 0, services.Most)
	want(len(p.Services) > 0, "services", "give 0 for none", "no number is given")
	within("connections", p.Connections, 1, mostConnections)
	want(time.Duration(p.Trial) >= leastTrial, "trial", "give "+leastTrial.String()+" or more", "%v is too short", p.Trial)
	within("datagram", p.Datagram, leastDatagram, mostDatagram)
	within("pods", p.Pods, 0, mostPods)
	within("changes", p.Changes, 0, mostChanges)
	distinct("rules", p.Rules, 1, mostRules)
	within("flows", p.Flows, 1, mostFlows)
	within("packets", p.Packets, 1, mostPackets)
	distinct("nodes", p.Nodes, leastNodes, mostNodes)
	return experiment.Check(list)
}

// measured are the variants that are measured: those that are asked for, and the
// flat routing beside them.
func (p *Params) measured() (list []variant) {
	for _, v := range variants {
		if slices.ContainsFunc(p.Variants, func(name string) bool { return name == v.name || variantOf(name).beside == v.name }) {
			list = append(list, v)
		}
	}
	return list
}

// point is traffic of one kind, by all variants.
type point struct {
	traffic, family string
	services        int
}

func (p point) id() string {
	return fmt.Sprintf("%s, %s, %d Services", p.traffic, p.family, p.services)
}

// isExchange says whether requests are sent, each of which has a response.
func (p point) isExchange() bool { return slices.Contains([]string{tcpRR, udpRR, tcpCRR}, p.traffic) }

func (p *Params) points() (list []point) {
	for _, t := range p.Traffic {
		for _, f := range p.Families {
			for _, n := range p.Services {
				list = append(list, point{t, f, n})
			}
		}
	}
	return list
}

// agentNodes are the numbers of nodes with which the agent is measured.
func (p *Params) agentNodes() []int {
	if p.Pods == 0 && p.Changes == 0 {
		return nil
	}
	return p.Nodes
}

func agentPoint(nodes int) string { return fmt.Sprintf("agent, %d nodes", nodes) }

// policyPoint is a direction in which NetworkPolicies are measured.
func policyPoint(direction string) string { return "NetworkPolicies, " + direction }

// directions are those in which NetworkPolicies are measured.
func (p *Params) directions() []string {
	if len(p.Rules) == 0 {
		return nil
	}
	return []string{policies.Ingress, policies.Egress, policies.Forwarded}
}

// agentRounds are in how many rounds the agent is measured: each is of many times.
const agentRounds = 3

// How long things take beside the packets: what was seen, and some more.
const (
	takesLab    = 15 * time.Second
	takesTrial  = warmUp + 10*time.Millisecond
	takesAround = time.Second // opening flows, reading counters
	takesPod    = 150 * time.Millisecond
	takesChange = 100 * time.Millisecond
	takesNode   = 20 * time.Millisecond // until it is known

	takesCluster   = 20 * time.Second
	takesPolicyPod = 200 * time.Millisecond
	takesRule      = 3 * time.Millisecond // until it is in the tables
	takesRun       = 100 * time.Millisecond
	takesPacket    = 2 * time.Microsecond
)

// Plan is everything that will be measured.
func (p *Params) Plan() (experiment.Plan, error) {
	plan := experiment.Plan{SetUp: takesLab}
	each := takesAround + time.Duration(passes*len(p.measured()))*(time.Duration(p.Trial)+takesTrial)
	for _, x := range p.points() {
		plan.Points = append(plan.Points, experiment.Point{ID: x.id(), Takes: each})
	}
	for _, n := range p.agentNodes() {
		takes := time.Duration(n)*takesNode + time.Duration(p.Pods)*takesPod + time.Duration(p.Changes*len(sources))*takesChange
		plan.Points = append(plan.Points, experiment.Point{ID: agentPoint(n), Takes: takes, Rounds: agentRounds})
	}
	for _, d := range p.directions() {
		runs := policyPasses * (len(p.policyPlan().Names(d)) + 1)
		plan.Points = append(plan.Points, experiment.Point{ID: policyPoint(d), Takes: time.Duration(runs) * (takesRun + time.Duration(p.Packets)*takesPacket)})
	}
	if len(p.Rules) > 0 {
		plan.SetUp += takesCluster + time.Duration(p.Pods)*takesPolicyPod + time.Duration(slices.Max(p.Rules))*takesRule
	}
	return plan, nil
}
