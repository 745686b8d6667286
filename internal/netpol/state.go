package netpol

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// State is what a node knows of its cluster. Who has given it to a Compiler changes none of
// the values that it points to: he puts others in their place.
type State struct {
	Namespaces map[string]*Namespace // by name
	Pods       []*Pod
	Policies   []*Policy
	Local      []Local
	Node       string // this node
	// Closed are namespaces for whose policies there is no room: pods that these isolate are isolated
	// from everybody.
	Closed map[string]bool
	// Nodes are the names of nodes by their addresses. Only Explain reads them.
	Nodes map[netip.Addr]string
}

// Namespace is a namespace with its labels.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Pod is a pod of the cluster, of any node.
type Pod struct {
	Namespace, Name, UID string
	Labels               map[string]string
	Ports                []ContainerPort // those with names
	Addresses            []Address
	// HostNetwork: its addresses are the node's. Policies neither select nor mean it.
	HostNetwork bool
	// Finished: its containers have ended for good, and its addresses may be another's.
	Finished bool
	// Leaving: it is to end. Another pod that has one of its addresses has it by right.
	Leaving bool
	Created time.Time
	Node    string // that it is on. Only Explain reads it.
	// Workload is kind/name of what the pod belongs to; no policy asks for it.
	Workload string
}

// Key is the namespace and the name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// ContainerPort is a port that a container gives a name.
type ContainerPort struct {
	Name     string
	Protocol uint8
	Port     uint16
}

// Address is an address of a pod, the cluster's or a tenant's.
type Address struct {
	Tenant uint8
	netip.Addr
}

// peer is the address alone.
func (a Address) peer() Peer { return Peer{a.Tenant, netip.PrefixFrom(a.Addr, a.BitLen())} }

// Local is an interface of a pod on this node.
type Local struct {
	Ifindex int // of the host's end
	// Namespace and Name are empty for a container that is no pod of Kubernetes: no policy
	// selects it. UID is empty if the runtime does not say it.
	Namespace, Name, UID string
	Addresses            []Address
}

func (l *Local) key() podKey { return podKey{l.Namespace, l.Name} }

type podKey struct{ namespace, name string }

// is says whether a pod of the API is the one with the interface. A pod that was made anew
// under its name is another.
func (l *Local) is(p *Pod) bool {
	return p != nil && !p.HostNetwork && (l.UID == "" || l.UID == p.UID)
}

// named are the ports that containers give a name.
func (p *Pod) named(n namedPort) []Ports { return portsOf(p.Ports, n) }

func portsOf(list []ContainerPort, n namedPort) (out []Ports) {
	for _, c := range list {
		if c.Name == n.name && c.Protocol == n.protocol {
			out = append(out, Ports{n.protocol, c.Port, c.Port})
		}
	}
	return out
}

// before says whether a pod has an address by right that another claims, too: one that stays
// before one that is to end, then the one that was first.
func (p *Pod) before(o *Pod) bool {
	if p.Leaving != o.Leaving {
		return o.Leaving
	}
	if c := p.Created.Compare(o.Created); c != 0 {
		return c < 0
	}
	return strings.Compare(p.UID, o.UID) < 0
}

// Owners says whose the addresses of pods are.
func (s *State) Owners() map[Address]*Pod {
	owners := map[Address]*Pod{}
	for _, p := range s.Pods {
		for _, a := range p.peers() {
			if o := owners[a]; o == nil || p.before(o) {
				owners[a] = p
			}
		}
	}
	return owners
}

// peers are the addresses that a pod is a peer by.
func (p *Pod) peers() []Address {
	if p.HostNetwork || p.Finished {
		return nil
	}
	return p.Addresses
}

// hasNamed are the named ports among some names, in an order that depends on nothing else.
func (p *Pod) hasNamed(names map[string]bool) (out []ContainerPort) {
	for _, c := range p.Ports {
		if names[c.Name] {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b ContainerPort) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return (int(a.Protocol)-int(b.Protocol))<<16 + int(a.Port) - int(b.Port)
	})
	return slices.Compact(out)
}
