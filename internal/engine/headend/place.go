package headend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// Installed is what headends have of a network.
type Installed struct {
	// Policies are those of each demand: one for IPv4 and one for IPv6, say. Odd says of a
	// demand why the lists of one of its policies cannot be changed.
	Policies map[te.Key][]Policy
	Odd      map[te.Key]string
	// Octets is what they have sent together, and Routing the lists that they have. Policies of a
	// demand with different lists count alike.
	Octets  map[te.Key]uint64
	Routing te.Routing
	// LeftOut are policies that carry no demand.
	LeftOut []te.LeftOut
}

// Find places the policies of all headends that answered.
func Find(t te.Topology, readings []Reading) Installed {
	in := Installed{Policies: map[te.Key][]Policy{}, Odd: map[te.Key]string{}, Octets: map[te.Key]uint64{}, Routing: te.Routing{}}
	for _, r := range readings {
		for _, p := range r.Policies {
			key, why := demandOf(t, r.Headend, p)
			if why != "" {
				in.LeftOut = append(in.LeftOut, te.LeftOut{What: fmt.Sprintf("policy %s of %s", p.Name, r.Headend), Why: why})
				continue
			}
			in.Octets[key] += p.Octets
			lists, why := listsOf(t, key, p)
			if why != "" {
				in.Odd[key] = fmt.Sprintf("policy %s cannot be changed: %s", p.Name, why)
				continue
			}
			in.Policies[key] = append(in.Policies[key], p)
			in.Routing[key] = union(in.Routing[key], lists, len(in.Policies[key]))
		}
	}
	return in
}

// demandOf finds the demand that a policy carries.
func demandOf(t te.Topology, headend string, p Policy) (key te.Key, why string) {
	endpoint := t.Owner(p.Endpoint)
	switch {
	case !p.Endpoint.IsValid():
		return key, "it has no endpoint"
	case endpoint == "":
		return key, fmt.Sprintf("no node has %s as its SID, or in its locator", p.Endpoint)
	case endpoint == headend:
		return key, "its endpoint is the headend"
	}
	return te.Key{Headend: headend, Endpoint: endpoint, Color: p.Color}, ""
}

// listsOf finds a policy's lists.
func listsOf(t te.Topology, key te.Key, p Policy) (lists []te.List, why string) {
	for _, l := range p.Lists {
		list, why := visits(t, key, l)
		switch {
		case why != "":
			return nil, why
		case p.last() != l.Segments[len(l.Segments)-1]:
			return nil, fmt.Sprintf("its lists end with different SIDs, %s and %s", p.last(), l.Segments[len(l.Segments)-1])
		}
		lists = append(lists, list)
	}
	if len(lists) == 0 {
		return nil, "it has no segment list"
	}
	return lists, ""
}

// visits finds the nodes and links that a list visits before its last segment, which has to be
// the endpoint's.
func visits(t te.Topology, key te.Key, l srpolicy.SegmentList) (list te.List, why string) {
	list.Weight = l.EffectiveWeight()
	last := len(l.Segments) - 1
	for i, s := range l.Segments {
		owner := t.Owner(s)
		switch {
		case owner == "":
			return list, fmt.Sprintf("its list visits %s, which no node has as its SID, or in its locator", s)
		case i < last:
			list.Waypoints = append(list.Waypoints, waypoint(t, owner, s))
		case owner != key.Endpoint:
			return list, fmt.Sprintf("its list ends at %s of %s, and its endpoint is %s", s, owner, key.Endpoint)
		}
	}
	// The endpoint's own End before its last SID is no detour.
	if n := len(list.Waypoints); n > 0 && list.Waypoints[n-1] == (te.Waypoint{Node: key.Endpoint}) {
		list.Waypoints = list.Waypoints[:n-1]
	}
	return list, ""
}

// waypoint is a link where the SID is that link's End.X, and else the node.
func waypoint(t te.Topology, owner string, sid netip.Addr) te.Waypoint {
	at := slices.IndexFunc(t.Links, func(l te.Link) bool { return l.From == owner && l.SID == sid })
	return te.Waypoint{Node: owner, Link: at + 1}
}

// union are the lists of so many policies: those of all before the last, and of the last one.
func union(all, last []te.List, policies int) []te.List {
	if policies == 1 || slices.EqualFunc(all, last, func(a, b te.List) bool { return a.Weight == b.Weight && slices.Equal(a.Waypoints, b.Waypoints) }) {
		return last
	}
	return append(slices.Clone(all), last...)
}

// last is the SID that the policy's lists end with.
func (p Policy) last() netip.Addr {
	s := p.Lists[0].Segments
	return s[len(s)-1]
}

// Path makes a candidate path of a policy with the lists of a demand.
func (p Policy) Path(t te.Topology, c srpolicy.CandidatePath, lists []te.List) (Path, error) {
	c.Policy = p.Name
	for _, l := range lists {
		out := srpolicy.SegmentList{Weight: max(1, l.Weight)}
		for _, w := range l.Waypoints {
			sid, err := sidOf(t, w)
			if err != nil {
				return Path{}, err
			}
			out.Segments = append(out.Segments, sid)
		}
		out.Segments = append(out.Segments, p.last())
		c.SegmentLists = append(c.SegmentLists, out)
	}
	return Path{CandidatePath: c, Of: p}, nil
}

// sidOf is the SID that visits a waypoint.
func sidOf(t te.Topology, w te.Waypoint) (sid netip.Addr, err error) {
	what := "node " + w.Node
	if w.Link > 0 {
		l := t.Links[w.Link-1]
		what, sid = fmt.Sprintf("link %s to %s", l.From, l.To), l.SID
	} else if i := slices.IndexFunc(t.Nodes, func(n te.Node) bool { return n.Name == w.Node }); i >= 0 {
		sid = t.Nodes[i].SID
	}
	if !sid.IsValid() {
		return sid, fmt.Errorf("%s has no SID", what)
	}
	return sid, nil
}

// Equal says whether a policy's active lists are those of a path, chosen among by the same delays.
func (p Policy) Equal(c srpolicy.CandidatePath) bool {
	return p.Active().DelayConstraint == c.DelayConstraint.Or(p.Delays) && slices.EqualFunc(p.Lists, c.SegmentLists, func(a, b srpolicy.SegmentList) bool {
		return cmp.Or(a.Weight, 1) == cmp.Or(b.Weight, 1) && slices.Equal(a.Segments, b.Segments)
	})
}
