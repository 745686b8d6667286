package te

import (
	"fmt"
	"time"

	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Class says what packets of a color ask of the network.
type Class struct {
	Color uint32 `json:"color"`
	Name  string `json:"name,omitempty"`
	// Priority orders classes: the higher one is placed first, and is not moved for a
	// lower one.
	Priority int `json:"priority,omitempty"`
	// MaxDelay bounds each list's sum of link delays; 0: no bound.
	MaxDelay time.Duration `json:"max_delay,omitempty"`
	// Exclude and IncludeAny are affinities: of links that are never used, and of which
	// each link has one bit at least; 0: any.
	Exclude    uint32 `json:"exclude,omitempty"`
	IncludeAny uint32 `json:"include_any,omitempty"`
	// MaxLists is how many lists share a demand; 0: 8, the most that a policy has.
	MaxLists int `json:"max_lists,omitempty"`
	// Disjoint is what no two lists of a demand share, so that one failure does not take both.
	Disjoint Disjoint `json:"disjoint,omitempty"`
	// Standby has headends hold a list ready that shares nothing of this kind with the lists in use.
	Standby Disjoint `json:"standby,omitempty"`
	// DelayConstraint is of the candidate paths: headends choose among the lists by measured round
	// trips. MaxDelay is what the topology says of one direction.
	srpolicy.DelayConstraint
}

// Disjoint is a kind of what fails at once.
type Disjoint string

// Lists that are disjoint by link take no link in common, in either direction. By node they visit
// no node in common either but headend and endpoint, and by SRLG they take no links of one SRLG.
const (
	DisjointByLink Disjoint = "link"
	DisjointByNode Disjoint = "node"
	DisjointBySRLG Disjoint = "srlg"
)

// Group is demands that have to be disjoint from each other: no list of one shares with a list of
// another what fails at once. Nodes that two demands begin or end at are theirs both, and do not count
// between these.
type Group struct {
	Name     string   `json:"name"`
	Disjoint Disjoint `json:"disjoint"`
	Demands  []Key    `json:"demands"`
}

// Key names a demand, and the policy at its headend (RFC 9256 section 2.1).
type Key struct {
	Headend  string `json:"headend"`
	Endpoint string `json:"endpoint"`
	Color    uint32 `json:"color"`
}

// Name is HEADEND:ENDPOINT, with :COLOR where it is not 0.
func (k Key) Name() string {
	if k.Color == 0 {
		return k.Headend + ":" + k.Endpoint
	}
	return fmt.Sprintf("%s:%s:%d", k.Headend, k.Endpoint, k.Color)
}

// Demand is what a headend sends to an endpoint in a class.
type Demand struct {
	Key
	Rate float64 `json:"rate"` // bit/s
	// Measured is what it is now, where Rate is a forecast; else 0.
	Measured float64 `json:"measured,omitempty"`
}

// List is a way from headend to endpoint: between its waypoints packets follow the IGP's
// shortest paths, and share those that are equally short.
type List struct {
	// Waypoints are visited in turn, without headend and endpoint; none is the IGP's way.
	Waypoints []Waypoint `json:"waypoints,omitempty"`
	// Weight is the list's part of the demand, relative to the others' weights.
	Weight uint32 `json:"weight"`
}

// Waypoint is a node (its End SID), or a link that packets leave it by (an End.X SID).
type Waypoint struct {
	Node string `json:"node"`
	// Link is the index of a link that begins at Node in Topology.Links, plus 1; 0: none.
	Link int `json:"link,omitempty"`
}

// Routing is the lists of each demand. A demand that it does not have follows the IGP.
type Routing map[Key][]List

// Network is a topology, what is asked of it, and what is installed.
type Network struct {
	Topology Topology
	Classes  []Class
	Groups   []Group
	Demands  []Demand
	Routing  Routing
}

// Delays is what headends are told of the delays of a color.
func (n Network) Delays(color uint32) srpolicy.DelayConstraint {
	for _, c := range n.Classes {
		if c.Color == color {
			return c.DelayConstraint
		}
	}
	return srpolicy.DelayConstraint{}
}
