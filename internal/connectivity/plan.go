package connectivity

import (
	"fmt"
	"net/netip"
	"slices"
)

// task is a probe that a pod is asked for, and the row that comes of it.
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

// place is the test's pods of a node.
type place struct {
	name                 string
	client, server, host Pod
}

// cluster is what tasks are made of.
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
			f.places = append(f.places, place{name: p.Node})
		}
		switch p.Role {
		case Client:
			f.places[i].client = p
		case Server:
			f.places[i].server = p
		case Host:
			f.places[i].host = p
		}
	}
	slices.SortFunc(f.places, func(a, b place) int { return compareNames(a.name, b.name) })
	return f
}

// compareNames orders node2 before node10.
func compareNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

// pairs calls f for the pairs of nodes, in each family.
func (f *field) pairs(which func(i, j int) bool, do func(family Family, from, to place)) {
	for _, family := range Families() {
		for i, from := range f.places {
			for j, to := range f.places {
				if which(i, j) {
					do(family, from, to)
				}
			}
		}
	}
}

func same(i, j int) bool  { return i == j }
func other(i, j int) bool { return i != j }
func every(int, int) bool { return true }

// around leads from each node to the next one: of what takes long.
func (f *field) around(i, j int) bool { return i != j && j == (i+1)%len(f.places) }

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

// ways are what goes to a port, small.
func ways(port uint16) []Probe {
	return []Probe{
		{Kind: UDP, Port: port, Count: fewPings, Size: packetSize},
		{Kind: TCP, Port: port, Count: 1, Bytes: fewBytes},
	}
}

func (f *field) podToPod(check string, which func(i, j int) bool) (list []task) {
	for _, p := range append([]Probe{{Kind: Ping, Count: fewPings}}, ways(f.ports.Pod)...) {
		f.pairs(which, func(family Family, from, to place) {
			list = append(list, between(name(check, p), family, from.client, to.server, p, arrived)...)
		})
	}
	return list
}

// nodeToNode is the underlay by itself.
func (f *field) nodeToNode(check string) (list []task) {
	for _, p := range ways(f.ports.Host) {
		f.pairs(other, func(family Family, from, to place) {
			list = append(list, between(name(check, p), family, from.host, to.host, p, arrived)...)
		})
	}
	return list
}

func (f *field) podToNode(check string, which func(i, j int) bool) (list []task) {
	for _, p := range ways(f.ports.Host) {
		f.pairs(which, func(family Family, from, to place) {
			list = append(list, between(name(check, p), family, from.client, to.host, p, arrived)...)
		})
	}
	return list
}

func (f *field) nodeToPod(check string, which func(i, j int) bool) (list []task) {
	for _, p := range ways(f.ports.Pod) {
		f.pairs(which, func(family Family, from, to place) {
			list = append(list, between(name(check, p), family, from.host, to.server, p, arrived)...)
		})
	}
	return list
}

func name(check string, p Probe) string { return fmt.Sprintf("%s, %s", check, p.Kind) }

// clusterIP goes to the Service until each pod behind it has answered, those of
// the asker's own node too.
func (f *field) clusterIP() (list []task) {
	for _, asker := range []struct {
		check string
		of    func(place) Pod
	}{
		{"pod to ClusterIP", func(p place) Pod { return p.client }},
		{"node to ClusterIP", func(p place) Pod { return p.host }},
	} {
		for _, p := range []Probe{
			{Kind: UDP, Count: fewPings, Size: packetSize},
			{Kind: TCP, Count: perServer * len(f.places), Servers: len(f.places), Bytes: 1 << 10},
		} {
			for _, family := range Families() {
				to, there := family.of(f.service.Addresses)
				for _, at := range f.places {
					p.To, p.Port = to, f.service.Port
					if _, asks := family.of(asker.of(at).Addresses); asks && there {
						list = append(list, task{Row{Check: name(asker.check, p), From: at.name, To: "Service", Family: family}, asker.of(at), p, f.served})
					}
				}
			}
		}
	}
	return list
}

// nodePort goes to the Service by each node.
func (f *field) nodePort() (list []task) {
	for _, p := range []Probe{
		{Kind: UDP, Port: f.service.NodePort, Count: fewPings, Size: packetSize},
		{Kind: TCP, Port: f.service.NodePort, Count: nodeConnect, Bytes: 1 << 10},
	} {
		f.pairs(every, func(family Family, from, to place) {
			if _, there := family.of(f.service.Addresses); there {
				list = append(list, between(name("pod to NodePort", p), family, from.client, to.host, p, f.served)...)
			}
		})
		f.pairs(other, func(family Family, from, to place) {
			if _, there := family.of(f.service.Addresses); there {
				list = append(list, between(name("node to NodePort", p), family, from.host, to.host, p, f.served)...)
			}
		})
	}
	return list
}

// big are packets at the limit of what a path takes, and longer ones.
func (f *field) big() (list []task) {
	for _, b := range []struct {
		check string
		probe Probe
		judge func(*Row, Answer)
	}{
		{"as long as the path takes, not to be fragmented", Probe{Kind: UDP, Count: fewPings, Full: true}, full},
		{"longer than the path takes", Probe{Kind: UDP, Count: 3, Full: true, Beyond: 1}, beyond},
		{"in fragments", Probe{Kind: UDP, Count: fewPings, Size: longPacket}, arrived},
		{"8 MiB of TCP", Probe{Kind: TCP, Count: 1, Bytes: manyBytes}, transferred},
	} {
		b.probe.Port = f.ports.Pod
		f.pairs(f.around, func(family Family, from, to place) {
			list = append(list, between(b.check, family, from.client, to.server, b.probe, b.judge)...)
		})
	}
	return list
}

// outside pings an address that is none of the cluster's.
func (f *field) outside(to netip.Addr) (list []task) {
	family := IPv6
	if to.Is4() {
		family = IPv4
	}
	for _, at := range f.places {
		if _, asks := family.of(at.client.Addresses); asks {
			list = append(list, task{
				Row{Check: "pod to outside, ping", From: at.name, To: to.String(), Family: family}, at.client,
				Probe{Kind: Ping, To: to, Count: fewPings}, arrived,
			})
		}
	}
	return list
}
