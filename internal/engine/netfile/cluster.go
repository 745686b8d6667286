package netfile

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/culvert-net/culvert/internal/te"
)

// fill takes from a cluster's node what the file does not say of it.
func (n *Node) fill(cluster Node, agents Agents) {
	if !n.SID.IsValid() && (!n.Locator.IsValid() || n.Locator.Contains(cluster.SID)) {
		n.SID = cluster.SID
	}
	if !n.Locator.IsValid() && (!n.SID.IsValid() || cluster.Locator.Contains(n.SID)) {
		n.Locator = cluster.Locator
	}
	if len(n.Addresses) == 0 {
		n.Addresses = cluster.Addresses
	}
	n.Outside = n.Outside || cluster.Outside
	if n.API == "" && agents.Port != 0 && len(cluster.Addresses) > 0 {
		n.API, n.TLSName = net.JoinHostPort(cluster.Addresses[0].String(), strconv.Itoa(int(agents.Port))), agents.TLSName
	}
}

// dropUnknown leaves out what asks for nodes that are not there.
func (n *Network) dropUnknown() (left []te.LeftOut) {
	known := map[string]bool{}
	for _, o := range n.Nodes {
		known[o.Name] = true
	}
	unknown := func(what string, names ...string) bool {
		for _, name := range names {
			if !known[name] {
				left = append(left, te.LeftOut{What: what, Why: fmt.Sprintf("neither the file nor the cluster has a node %s", name)})
				return true
			}
		}
		return false
	}
	n.Links = slices.DeleteFunc(n.Links, func(l Link) bool { return unknown(direction(l.From, l.To, l.Name), l.From, l.To) })
	n.Demands = slices.DeleteFunc(n.Demands, func(d Demand) bool {
		return unknown(fmt.Sprintf("demand %s to %s, color %d", d.Headend, d.Endpoint, d.Color), d.Headend, d.Endpoint)
	})
	for i := range n.Groups {
		g := &n.Groups[i]
		g.Demands = slices.DeleteFunc(g.Demands, func(d te.Key) bool {
			return unknown(fmt.Sprintf("demand %s of group %s", d.Name(), g.Name), d.Headend, d.Endpoint)
		})
	}
	for _, l := range n.topology().Links { // lists visit these, too
		known[l.Direction()] = true
	}
	n.Policies = slices.DeleteFunc(n.Policies, func(p Policy) bool {
		names := []string{p.Headend, p.Endpoint}
		for _, l := range p.Lists {
			names = append(names, l.Via...)
		}
		return unknown(fmt.Sprintf("policy %s to %s, color %d", p.Headend, p.Endpoint, p.Color), names...)
	})
	return left
}
