// Package frr reads the topology that FRR's isisd has in its traffic engineering database:
// what "show isis mpls-te database json" prints (FRR 8.4; each router has "mpls-te on", a
// "mpls-te router-address ipv6", and "link-params enable" on each interface).
//
// FRR knows neither SIDs nor locators, and the bandwidth that it prints without "max-bw" is
// the interface's speed in 32-bit arithmetic: a file says these.
package frr

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// database is what FRR prints.
type database struct {
	TED *struct {
		Vertices []vertex `json:"vertices"`
		Edges    []edge   `json:"edges"`
	} `json:"ted"`
}

type vertex struct {
	ID     uint64 `json:"vertex-id"`
	Status string `json:"status"`
	Name   string `json:"name"`
}

// edge is one direction of a link.
type edge struct {
	ID     uint64     `json:"edge-id"`
	Status string     `json:"status"`
	Local  uint64     `json:"local-vertex-id"`
	Remote uint64     `json:"remote-vertex-id"`
	Metric uint32     `json:"metric"`
	Attrs  attributes `json:"edge-attributes"`
}

type attributes struct {
	AdminGroup uint32     `json:"admin-group"`
	Local4     netip.Addr `json:"local-address"`
	Remote4    netip.Addr `json:"remote-address"`
	Local6     netip.Addr `json:"local-address-v6"`
	Remote6    netip.Addr `json:"remote-address-v6"`
	MaxBW      float64    `json:"max-link-bandwidth"` // octets/s
	Delay      int64      `json:"delay"`              // us, the mean
	MinDelay   int64      `json:"min-delay"`          // us
}

// ends are the addresses of a link, of the near end first.
func (e edge) ends() [2]netip.Addr {
	if e.Attrs.Local6.IsValid() {
		return [2]netip.Addr{e.Attrs.Local6, e.Attrs.Remote6}
	}
	return [2]netip.Addr{e.Attrs.Local4, e.Attrs.Remote4}
}

// inSync is the status of what the LSPs of now say; others are new, changing, or going.
const inSync = "Sync"

// Parse reads a database. Links are named by the lower address of their ends, and have the
// capacity that FRR prints (0: none). What cannot be used is in the list, with its reason.
func Parse(text []byte) (te.Topology, []te.LeftOut, error) {
	var d database
	if err := json.Unmarshal(text, &d); err != nil {
		return te.Topology{}, nil, fmt.Errorf("FRR's database: %w (fix: give what vtysh -c 'show isis mpls-te database json' prints)", err)
	}
	if d.TED == nil {
		return te.Topology{}, nil, fmt.Errorf("FRR's database: ted is missing (fix: configure mpls-te on, and give what vtysh -c 'show isis mpls-te database json' prints)")
	}
	r := reader{names: map[uint64]string{}, back: map[[2]netip.Addr]edge{}}
	r.readVertices(d.TED.Vertices)
	for _, e := range d.TED.Edges {
		if e.Status == inSync {
			r.back[e.ends()] = e
		}
	}
	for _, e := range d.TED.Edges {
		if why := r.readEdge(e); why != "" {
			r.leaveOut(fmt.Sprintf("link %s to %s (FRR's edge %d)", r.name(e.Local), r.name(e.Remote), e.ID), why)
		}
	}
	return r.topology, r.left, nil
}

// reader turns a database into a topology.
type reader struct {
	topology te.Topology
	left     []te.LeftOut
	names    map[uint64]string      // of vertices that are nodes
	back     map[[2]netip.Addr]edge // by ends
}

func (r *reader) leaveOut(what, why string) {
	r.left = append(r.left, te.LeftOut{What: what, Why: why})
}

// name is that of a vertex, or its number.
func (r *reader) name(id uint64) string {
	if name, has := r.names[id]; has {
		return name
	}
	return fmt.Sprintf("vertex %d", id)
}

func (r *reader) readVertices(list []vertex) {
	ids := map[string]uint64{}
	for _, v := range list {
		what := fmt.Sprintf("node %s (FRR's vertex %d)", v.Name, v.ID)
		first, again := ids[v.Name]
		switch {
		case v.Status != inSync:
			r.leaveOut(what, fmt.Sprintf("its status is %q, and not %q", v.Status, inSync))
		case v.Name == "":
			r.leaveOut(what, "it has no host name")
		case again:
			r.leaveOut(what, fmt.Sprintf("vertex %d has its host name too", first))
		default:
			ids[v.Name], r.names[v.ID] = v.ID, v.Name
			r.topology.Nodes = append(r.topology.Nodes, te.Node{Name: v.Name})
		}
	}
}

// readEdge adds a link, or says why not.
func (r *reader) readEdge(e edge) (why string) {
	from, known := r.names[e.Local]
	to, also := r.names[e.Remote]
	ends := e.ends()
	back, both := r.back[[2]netip.Addr{ends[1], ends[0]}]
	switch {
	case e.Status != inSync:
		return fmt.Sprintf("its status is %q, and not %q", e.Status, inSync)
	case !known || !also:
		return "an end of it is no node"
	case from == to:
		return "it ends where it begins"
	case !ends[0].IsValid() || !ends[1].IsValid():
		return "it has no addresses"
	case !both:
		return "its other direction is missing"
	case back.Local != e.Remote || back.Remote != e.Local:
		return "its addresses are of another link: FRR confuses links whose addresses have equal last 64 bits; give each interface others"
	case e.Metric == 0:
		return "it has no metric"
	case e.Attrs.MaxBW < 0 || e.Attrs.Delay < 0 || e.Attrs.MinDelay < 0:
		return "its bandwidth or delay is negative"
	}
	name := ends[0]
	if ends[1].Less(name) {
		name = ends[1]
	}
	delay := e.Attrs.Delay
	if delay == 0 {
		delay = e.Attrs.MinDelay
	}
	r.topology.Links = append(r.topology.Links, te.Link{
		From: from, To: to, Name: name.String(), Metric: e.Metric, Affinity: e.Attrs.AdminGroup,
		Capacity: 8 * e.Attrs.MaxBW, Delay: time.Duration(delay) * time.Microsecond,
	})
	return ""
}
