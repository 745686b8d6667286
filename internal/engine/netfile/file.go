// Package netfile reads a network from a file: its nodes, links, classes of traffic, demands,
// and the lists that are installed. docs/how-to/traffic-engineering.md shows one.
package netfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// Network is what a file says.
type Network struct {
	Nodes   []Node   `json:"nodes"`
	Links   []Link   `json:"links"`
	Classes []Class  `json:"classes"`
	Groups  []Group  `json:"groups"`
	Demands []Demand `json:"demands"`
	// Policies are the lists that headends have now. A demand without a policy follows the IGP.
	Policies []Policy `json:"policies"`
	Engine   Engine   `json:"engine"`
}

// Engine says what `culvert te run` may do.
type Engine struct {
	// Apply has it change headends; else it says what it would change.
	Apply bool   `json:"apply"`
	Every Period `json:"every"` // default 10s
	Hold  Period `json:"hold"`  // default 60s
	// Horizon is how far ahead rising demands are forecast: 0s does not. Default: a round, and the
	// 10 s that a change may take.
	Horizon *Span `json:"horizon"`
	// Target is the utilisation in percent up to which nothing has to change; default 80.
	Target     *float64 `json:"target"`
	Changes    int      `json:"changes"`    // demands in a round; default 20
	Preference uint32   `json:"preference"` // of its candidate paths; default 150
	Name       string   `json:"name"`       // in the names of its candidate paths; default te
	// Repair has headends hold repair lists ready for the loss of the link that they send by.
	Repair bool   `json:"repair"`
	Listen string `json:"listen"` // of its state and metrics; default 127.0.0.1:9474
	// Write says how candidate paths reach headends: WriteAPI, the default, WriteBGP or
	// WriteKubernetes. It and BGP are read when the engine starts.
	Write string `json:"write"`
	BGP   BGP    `json:"bgp"`
	// Lease is a Lease of Kubernetes that an engine has to hold to change headends.
	Lease  Lease  `json:"lease"`
	Agents Agents `json:"agents"`
}

// Lease names a Lease of Kubernetes.
type Lease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Duration is how long others wait for a holder that does not renew it; default 15s.
	Duration Period `json:"duration"`
}

// Agents says where the management API of cluster nodes is, and which nodes are members.
type Agents struct {
	Port uint16 `json:"port"` // at each node's address; 0: their counters are not read
	// TLSName is in the certificate that all have.
	TLSName string `json:"tls_name"`
	// Namespace has the ConfigMaps by which nodes claim locators; default kube-system.
	Namespace string `json:"namespace"`
	// LocatorPool is overlay.locator_pool of the agents: what nodes claim elsewhere counts for
	// nobody.
	LocatorPool netip.Prefix `json:"locator_pool"`
	// Accept is overlay.accept of the agents: what nodes may say of themselves although the
	// Kubernetes API does not vouch for it.
	Accept overlay.Accept `json:"accept"`
}

// Node is te.Node.
type Node struct {
	Name        string       `json:"name"`
	SID         netip.Addr   `json:"sid"`
	Locator     netip.Prefix `json:"locator"`
	MaxSegments int          `json:"max_segments"`
	Addresses   []netip.Addr `json:"addresses"`
	// API is where the node's daemon is: host:port, or the path of its socket.
	API string `json:"api"`
	// RouterID is bgp.router_id of its daemon, where Engine.Write is WriteBGP.
	RouterID netip.Addr `json:"router_id"`
	// TLSName is in the daemon's certificate; the host of API unless set.
	TLSName string `json:"tls_name"`
	// Outside says that the node speaks no IGP: its links are always as the file has them.
	Outside bool `json:"outside"`
}

// Link is both directions of a link, or with OneWay one of them: two such links may differ.
type Link struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Name     string   `json:"name"`
	Metric   uint32   `json:"metric"` // default 10
	Capacity Rate     `json:"capacity"`
	Delay    Delay    `json:"delay"`
	Affinity []uint8  `json:"affinity"` // numbers of bits, 0 to 31
	SRLG     []uint32 `json:"srlg"`     // groups of links that fail together
	// SID is the End.X SID at From, and ReverseSID that of the other direction at To.
	SID        netip.Addr `json:"sid"`
	ReverseSID netip.Addr `json:"reverse_sid"`
	OneWay     bool       `json:"one_way"`
}

// Class is te.Class.
type Class struct {
	Color      uint32  `json:"color"`
	Name       string  `json:"name"`
	Priority   int     `json:"priority"`
	MaxDelay   Delay   `json:"max_delay"`
	Exclude    []uint8 `json:"exclude"`
	IncludeAny []uint8 `json:"include_any"`
	MaxLists   int     `json:"max_lists"`
	// Disjoint and Standby are link, node or srlg.
	Disjoint te.Disjoint `json:"disjoint"`
	Standby  te.Disjoint `json:"standby"`
	// DelayConstraint is of the candidate paths that the engine writes.
	srpolicy.DelayConstraint
}

// Group is te.Group: demands that have to be disjoint from each other.
type Group struct {
	Name     string      `json:"name"`
	Disjoint te.Disjoint `json:"disjoint"` // link, node or srlg
	Demands  []te.Key    `json:"demands"`  // of the file, or measured
}

// Demand is te.Demand.
type Demand struct {
	Headend  string `json:"headend"`
	Endpoint string `json:"endpoint"`
	Color    uint32 `json:"color"`
	Rate     Rate   `json:"rate"`
	// Measured is what it is now, where Rate is a forecast.
	Measured Rate `json:"measured,omitempty"`
}

// Policy is the lists of a headend for an endpoint and color.
type Policy struct {
	Headend  string `json:"headend"`
	Endpoint string `json:"endpoint"`
	Color    uint32 `json:"color"`
	Lists    []List `json:"lists"`
}

// List visits nodes, and links that leave one, and has a part of the demand.
type List struct {
	Via    []string `json:"via"`    // NODE, or FROM-TO of a link, with :NAME where it has one
	Weight uint32   `json:"weight"` // default 1
}

// Load reads and validates the file at path. Its error is a config.Errors where the file is at
// fault.
func Load(path string) (*Network, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network %s does not exist", path)
	}
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	return Parse(data)
}

// Parse reads and validates a network, YAML or JSON.
func Parse(data []byte) (*Network, error) {
	n := &Network{}
	lines, err := config.Unmarshal(data, n)
	if err != nil {
		return nil, err
	}
	n.setDefaults()
	if err := n.validate(); err != nil {
		return nil, lines.Of(err)
	}
	return n, nil
}

// ParseWith is Parse for a file whose nodes are those of a cluster, too. A node of both has what
// the file says, and the rest from the cluster. What asks for a node that neither has is left
// out: a cluster's nodes come and go.
func ParseWith(data []byte, cluster []Node) (*Network, []te.LeftOut, error) {
	n := &Network{}
	lines, err := config.Unmarshal(data, n)
	if err != nil {
		return nil, nil, err
	}
	n.setDefaults()
	for _, node := range cluster {
		at := slices.IndexFunc(n.Nodes, func(o Node) bool { return o.Name == node.Name })
		if at < 0 {
			at = len(n.Nodes)
			n.Nodes = append(n.Nodes, Node{Name: node.Name})
		}
		n.Nodes[at].fill(node, n.Engine.Agents)
	}
	left := n.dropUnknown()
	if err := n.validate(); err != nil {
		return nil, nil, lines.Of(err)
	}
	return n, left, nil
}

// ParseEngine reads and validates what a file says of the engine.
func ParseEngine(data []byte) (Engine, error) {
	n := &Network{}
	lines, err := config.Unmarshal(data, n)
	if err != nil {
		return Engine{}, err
	}
	n.setDefaults()
	c := &checker{keys: map[string]string{}}
	if c.checkEngine(n.Engine); len(c.found) > 0 {
		return Engine{}, lines.Of(c.found)
	}
	return n.Engine, nil
}

const defaultMetric = 10

func (n *Network) setDefaults() {
	for i := range n.Links {
		if n.Links[i].Metric == 0 {
			n.Links[i].Metric = defaultMetric
		}
	}
	for i := range n.Policies {
		for j := range n.Policies[i].Lists {
			if l := &n.Policies[i].Lists[j]; l.Weight == 0 {
				l.Weight = 1
			}
		}
	}
	e, target := &n.Engine, 80.0
	e.Every, e.Hold = cmp.Or(e.Every, Period(10*time.Second)), cmp.Or(e.Hold, Period(time.Minute))
	ahead := Span(e.Every) + Span(10*time.Second)
	e.Horizon = cmp.Or(e.Horizon, &ahead)
	e.Target, e.Changes, e.Preference = cmp.Or(e.Target, &target), cmp.Or(e.Changes, 20), cmp.Or(e.Preference, 150)
	e.Name, e.Listen, e.Write = cmp.Or(e.Name, "te"), cmp.Or(e.Listen, "127.0.0.1:9474"), cmp.Or(e.Write, WriteAPI)
	e.BGP.setDefaults()
	e.Lease.Duration, e.Agents.Namespace = cmp.Or(e.Lease.Duration, Period(15*time.Second)), cmp.Or(e.Agents.Namespace, config.DefaultKubeNamespace)
}

// Values are the network as the engine computes with it.
func (n *Network) Values() te.Network {
	t := n.topology()
	return te.Network{Topology: t, Classes: n.classes(), Groups: n.groups(), Demands: n.matrix(), Routing: n.installed(t)}
}

func (n *Network) topology() (t te.Topology) {
	for _, v := range n.Nodes {
		t.Nodes = append(t.Nodes, te.Node{Name: v.Name, SID: v.SID, Locator: v.Locator, MaxSegments: v.MaxSegments, Addresses: v.Addresses})
	}
	for _, v := range n.Links {
		l := te.Link{From: v.From, To: v.To, Name: v.Name, Metric: v.Metric, Capacity: float64(v.Capacity), Delay: time.Duration(v.Delay), Affinity: bits(v.Affinity), SRLG: v.SRLG, SID: v.SID}
		t.Links = append(t.Links, l)
		if !v.OneWay {
			l.From, l.To, l.SID = v.To, v.From, v.ReverseSID
			t.Links = append(t.Links, l)
		}
	}
	return t
}

// bits is an affinity by the numbers of its bits.
func bits(numbers []uint8) (affinity uint32) {
	for _, b := range numbers {
		affinity |= 1 << b
	}
	return affinity
}

func (n *Network) classes() (list []te.Class) {
	for _, c := range n.Classes {
		list = append(list, te.Class{Color: c.Color, Name: c.Name, Priority: c.Priority, MaxDelay: time.Duration(c.MaxDelay),
			Exclude: bits(c.Exclude), IncludeAny: bits(c.IncludeAny), MaxLists: c.MaxLists, Disjoint: c.Disjoint, Standby: c.Standby, DelayConstraint: c.DelayConstraint})
	}
	return list
}

func (n *Network) groups() (list []te.Group) {
	for _, g := range n.Groups {
		list = append(list, te.Group(g))
	}
	return list
}

func (n *Network) matrix() (list []te.Demand) {
	for _, d := range n.Demands {
		list = append(list, te.Demand{Key: te.Key{Headend: d.Headend, Endpoint: d.Endpoint, Color: d.Color}, Rate: float64(d.Rate), Measured: float64(d.Measured)})
	}
	return list
}

// installed are the lists of policies. Where a list visits what the topology does not have, it
// leads nowhere.
func (n *Network) installed(t te.Topology) te.Routing {
	r, waypoints := te.Routing{}, waypoints(t)
	for _, p := range n.Policies {
		key := te.Key{Headend: p.Headend, Endpoint: p.Endpoint, Color: p.Color}
		for _, l := range p.Lists {
			list := te.List{Weight: l.Weight}
			for _, name := range l.Via {
				at, has := waypoints[name]
				if !has {
					at.Node = name
				}
				list.Waypoints = append(list.Waypoints, at)
			}
			r[key] = append(r[key], list)
		}
	}
	return r
}

// waypoints are what lists can visit, by name: a node rather than a link of that name.
func waypoints(t te.Topology) map[string]te.Waypoint {
	all := map[string]te.Waypoint{}
	for i, l := range t.Links {
		all[l.Direction()] = te.Waypoint{Node: l.From, Link: i + 1}
	}
	for _, v := range t.Nodes {
		all[v.Name] = te.Waypoint{Node: v.Name}
	}
	return all
}
