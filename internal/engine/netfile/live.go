package netfile

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/te"
)

// pair is a direction between two nodes, and the name of one of its links.
type pair struct{ from, to, name string }

// Over lays the file over the topology of a running network. That one says which nodes and
// links there are, and their metrics; capacity, delay, affinity and SIDs are the file's where
// it has them. An entry of links without a name is for all links between its nodes. Links
// lose their names where two nodes have one only.
//
// Nodes that only the file has stay, without links: what is asked of them has no path. Those
// that are outside keep their links.
func (n *Network) Over(live te.Topology) (te.Network, []te.LeftOut) {
	v := n.Values()
	said := map[pair]te.Link{}
	for _, l := range v.Topology.Links {
		said[pair{l.From, l.To, l.Name}] = l
	}
	nodes := map[string]te.Node{}
	for _, node := range v.Topology.Nodes {
		nodes[node.Name] = node
	}
	beside, directions := map[pair]int{}, map[pair]bool{}
	for _, l := range live.Links {
		beside[pair{l.From, l.To, ""}]++
	}
	outside := map[string]bool{}
	for _, node := range n.Nodes {
		outside[node.Name] = node.Outside
	}
	out, left := te.Topology{}, []te.LeftOut(nil)
	for _, node := range live.Nodes {
		out.Nodes = append(out.Nodes, layNode(node, nodes[node.Name]))
		delete(nodes, node.Name)
	}
	for _, node := range v.Topology.Nodes {
		if _, absent := nodes[node.Name]; !absent {
			continue
		}
		if out.Nodes = append(out.Nodes, node); !outside[node.Name] {
			left = append(left, te.LeftOut{What: "node " + node.Name, Why: "the running network does not have it: it has no links"})
		}
	}
	for _, l := range live.Links {
		over, has := said[pair{l.From, l.To, l.Name}]
		if !has {
			over = said[pair{l.From, l.To, ""}]
		}
		l = layLink(l, over)
		directions[pair{l.From, l.To, l.Name}] = true
		directions[pair{l.From, l.To, ""}] = true
		if l.Capacity <= 0 {
			left = append(left, te.LeftOut{What: fmt.Sprintf("link %s to %s", l.From, l.To), Why: "its capacity is unknown: add it to links"})
			continue
		}
		if beside[pair{l.From, l.To, ""}] == 1 {
			l.Name = ""
		}
		out.Links = append(out.Links, l)
	}
	for _, l := range v.Topology.Links {
		if outside[l.From] || outside[l.To] {
			out.Links = append(out.Links, l)
		} else if !directions[pair{l.From, l.To, l.Name}] {
			left = append(left, te.LeftOut{What: direction(l.From, l.To, l.Name), Why: "the running network does not have it"})
		}
	}
	v.Topology, v.Routing = out, n.installed(out)
	return v, left
}

func layNode(live, file te.Node) te.Node {
	if file.SID.IsValid() {
		live.SID = file.SID
	}
	if file.Locator.IsValid() {
		live.Locator = file.Locator
	}
	if file.MaxSegments > 0 {
		live.MaxSegments = file.MaxSegments
	}
	if len(file.Addresses) > 0 {
		live.Addresses = file.Addresses
	}
	return live
}

func layLink(live, file te.Link) te.Link {
	if file.Capacity > 0 {
		live.Capacity = file.Capacity
	}
	if file.Delay > 0 {
		live.Delay = file.Delay
	}
	if file.Affinity != 0 {
		live.Affinity = file.Affinity
	}
	if len(file.SRLG) > 0 {
		live.SRLG = file.SRLG
	}
	if file.SID != (netip.Addr{}) {
		live.SID = file.SID
	}
	return live
}
