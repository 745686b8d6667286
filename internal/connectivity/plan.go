package connectivity

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// task is a probe that a pod sends, and the row of its result.
type task struct {
	row   Row
	pod   Pod
	probe Probe
	judge func(*Row, Answer)
}

// How much is sent.
const (
	fewPings    = 20
	packetSize  = 1000    // of data
	smallSize   = 64      // the same
	fewBytes    = 1 << 18 // 256 KiB
	manyBytes   = 8 << 20
	longPacket  = 4000 // of data: has to go in fragments
	perServer   = 20   // connections, until each has been met
	nodeConnect = 4    // connections to a NodePort
)

// place is a node with the test's pods on it.
type place struct {
	name string
	pods map[string]Pod // by role
}

// field is the pods and the Service that tasks use.
type field struct {
	places  []place
	service Service
	ports   Ports
}

func newField(pods []Pod, service Service, ports Ports) *field {
	f := &field{service: service, ports: ports}
	at := map[string]int{}
	for _, p := range pods {
		i, there := at[p.Node]
		if !there {
			i = len(f.places)
			at[p.Node] = i
			f.places = append(f.places, place{p.Node, map[string]Pod{}})
		}
		f.places[i].pods[p.Role] = p
	}
	slices.SortFunc(f.places, func(a, b place) int { return compareNames(a.name, b.name) })
	return f
}

// compareNames orders node2 before node10.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// flow is traffic between nodes: who sends what to whom, and how it is judged.
type flow struct {
	check    string // the name of its rows
	from, to string // roles
	// receiver is in place of to: one for all.
	receiver Pod
	nodes    func(i, j int) bool // the pairs of nodes between which it flows
	probes   []Probe
	judge    func(*Row, Answer)
	service  bool // it is for the Service: only in its families
}

// Pairs of nodes.
func same(i, j int) bool  { return i == j }
func other(i, j int) bool { return i != j }
func every(int, int) bool { return true }

// around leads from each node to the next one: of what takes long.
func (f *field) around(i, j int) bool { return i != j && j == (i+1)%len(f.places) }

// plan is the tasks of flows: each probe in each family, between each pair of nodes.
func (f *field) plan(flows ...flow) (list []task) {
	for _, l := range flows {
		for _, p := range l.probes {
			for _, family := range Families() {
				list = append(list, f.ofFamily(l, p, family)...)
			}
		}
	}
	return list
}

func (f *field) ofFamily(l flow, p Probe, family Family) (list []task) {
	if _, there := family.of(f.service.Addresses); l.service && !there {
		return nil
	}
	for i, from := range f.places {
		for j, to := range f.places {
			if !l.nodes(i, j) {
				continue
			}
			receiver := l.receiver
			if l.to != "" {
				receiver = to.pods[l.to]
			}
			list = append(list, between(l.check, family, from.pods[l.from], receiver, p, l.judge)...)
		}
	}
	return list
}

// between is a task from one pod to another, if both have the family.
func between(check string, family Family, from, to Pod, p Probe, judge func(*Row, Answer)) []task {
	_, asks := family.of(from.Addresses)
	address, answers := family.of(to.Addresses)
	if !asks || !answers {
		return nil
	}
	p.To = address
	return []task{{row: Row{Check: check, From: from.Node, To: to.Node, Family: family}, pod: from, probe: p, judge: judge}}
}

// byKind is a flow for each of the probes, whose kind is a part of its name.
func byKind(l flow, probes ...Probe) (list []flow) {
	for _, p := range probes {
		kind := l
		kind.check, kind.probes = fmt.Sprintf("%s, %s", l.check, p.Kind), []Probe{p}
		list = append(list, kind)
	}
	return list
}

// small sends a little from pods or nodes to the ports of pods or nodes.
func (f *field) small(check, from, to string, nodes func(i, j int) bool) []task {
	port := f.ports.Pod
	if to == Host {
		port = f.ports.Host
	}
	return f.plan(byKind(flow{check: check, from: from, to: to, nodes: nodes, judge: arrived},
		Probe{Kind: UDP, Port: port, Count: fewPings, Size: packetSize}, Probe{Kind: TCP, Port: port, Count: 1, Bytes: fewBytes})...)
}

func (f *field) podToPod(check string, nodes func(i, j int) bool) []task {
	ping := flow{check: check, from: Client, to: Server, nodes: nodes, judge: arrived}
	return append(f.plan(byKind(ping, Probe{Kind: Ping, Count: fewPings})...), f.small(check, Client, Server, nodes)...)
}

// clusterIP goes to the Service until each pod behind it has answered, those of
// the sender's own node too.
func (f *field) clusterIP() []task {
	probes := []Probe{
		{Kind: UDP, Port: f.service.Port, Count: fewPings, Size: packetSize},
		{Kind: TCP, Port: f.service.Port, Count: perServer * len(f.places), Servers: len(f.places), Bytes: 1 << 10},
	}
	receiver := Pod{Node: "Service", Addresses: f.service.Addresses}
	service := flow{check: "pod to ClusterIP", from: Client, receiver: receiver, nodes: same, judge: f.served}
	fromNodes := service
	fromNodes.check, fromNodes.from = "node to ClusterIP", Host
	return f.plan(append(byKind(service, probes...), byKind(fromNodes, probes...)...)...)
}

// nodePort goes to the Service through each node.
func (f *field) nodePort() (list []task) {
	for _, p := range []Probe{
		{Kind: UDP, Port: f.service.NodePort, Count: fewPings, Size: packetSize},
		{Kind: TCP, Port: f.service.NodePort, Count: nodeConnect, Bytes: 1 << 10},
	} {
		pods := flow{check: "pod to NodePort", from: Client, to: Host, nodes: every, judge: f.served, service: true}
		nodes := flow{check: "node to NodePort", from: Host, to: Host, nodes: other, judge: f.served, service: true}
		list = append(list, f.plan(append(byKind(pods, p), byKind(nodes, p)...)...)...)
	}
	return list
}

// sized are probes at the limit of what a path takes, and beyond it: of a stage
// whose rows have a prefix.
func (f *field) sized(prefix string) []flow {
	row := func(check string, p Probe, judge func(*Row, Answer)) flow {
		p.Port = f.ports.Pod
		return flow{check: prefix + check, from: Client, to: Server, nodes: f.around, probes: []Probe{p}, judge: judge}
	}
	return []flow{
		row("as long as the path takes", Probe{Kind: UDP, Count: fewPings, Full: true}, full),
		row("longer than the path takes", Probe{Kind: UDP, Count: 3, Full: true, Beyond: 1}, beyond),
		row("8 MiB of TCP", Probe{Kind: TCP, Count: 1, Bytes: manyBytes}, transferred),
	}
}

// big are packets at the limit of what a path takes, and longer ones.
func (f *field) big() []task {
	flows := f.sized("")
	flows[0].check += ", not to be fragmented"
	fragments := flow{check: "in fragments", from: Client, to: Server, nodes: f.around, judge: arrived,
		probes: []Probe{{Kind: UDP, Port: f.ports.Pod, Count: fewPings, Size: longPacket}}}
	return f.plan(slices.Insert(flows, 2, fragments)...)
}

// outside pings an address that is none of the cluster's.
func (f *field) outside(to netip.Addr) []task {
	return f.plan(flow{
		check: "pod to outside, ping", from: Client, receiver: Pod{Node: to.String(), Addresses: []netip.Addr{to}}, nodes: same,
		probes: []Probe{{Kind: Ping, Count: fewPings}}, judge: arrived,
	})
}
