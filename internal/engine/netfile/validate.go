package netfile

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/srv6"
)

// ListenOff is the address of an engine that serves nothing.
const ListenOff = "off"

// checker collects what is wrong with a network.
type checker struct {
	found config.Errors
	nodes []string
	links []string          // by direction
	keys  map[string]string // field by what may be there once
}

func (c *checker) add(field, fix, format string, args ...any) {
	c.found = append(c.found, config.Error{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *checker) fields(at string, errs []srv6.FieldError) {
	for _, e := range errs {
		c.add(at+"."+e.Field, e.Fix, "%s", e.Problem)
	}
}

// once refuses a second one.
func (c *checker) once(at, what string) {
	if first, has := c.keys[what]; has {
		c.add(at, "keep one", "%s is also %s", what, first)
		return
	}
	c.keys[what] = at
}

// node refuses a name that no node has.
func (c *checker) node(field, name string) {
	if !slices.Contains(c.nodes, name) {
		c.add(field, "give the name of one in nodes", "no node is called %q", name)
	}
}

func (n *Network) validate() error {
	c := &checker{keys: map[string]string{}}
	for _, v := range n.Nodes {
		c.nodes = append(c.nodes, v.Name)
	}
	for _, l := range n.topology().Links {
		c.links = append(c.links, l.Direction())
	}
	for i, v := range n.Nodes {
		c.checkNode(fmt.Sprintf("nodes[%d]", i), v)
	}
	for i, v := range n.Links {
		c.checkLink(fmt.Sprintf("links[%d]", i), v)
	}
	for i, v := range n.Classes {
		c.checkClass(fmt.Sprintf("classes[%d]", i), v)
	}
	for i, v := range n.Groups {
		c.checkGroup(fmt.Sprintf("groups[%d]", i), v, n.Classes)
	}
	for i, d := range n.Demands {
		at := fmt.Sprintf("demands[%d]", i)
		c.checkKey(at, d.Headend, d.Endpoint)
		c.once(at, fmt.Sprintf("demand %s to %s, color %d", d.Headend, d.Endpoint, d.Color))
	}
	for i, p := range n.Policies {
		at := fmt.Sprintf("policies[%d]", i)
		c.checkKey(at, p.Headend, p.Endpoint)
		c.once(at, fmt.Sprintf("policy %s to %s, color %d", p.Headend, p.Endpoint, p.Color))
		c.checkLists(at, p.Lists)
	}
	c.checkEngine(n.Engine)
	c.checkWrite(n)
	if len(c.found) > 0 {
		return c.found
	}
	return nil
}

func (c *checker) checkEngine(e Engine) {
	c.checkBGP(&e.BGP)
	c.fields("engine", srv6.CheckName("name", e.Name))
	switch {
	case !(*e.Target > 0 && *e.Target <= 100):
		c.add("engine.target", "give more than 0, and at most 100 percent", "is %v", *e.Target)
	case e.Changes < 1:
		c.add("engine.changes", "give 1 or more, or leave it out", "is %d", e.Changes)
	}
	if (e.Lease.Namespace == "") != (e.Lease.Name == "") {
		c.add("engine.lease", "give namespace and name, or neither", "is not whole")
	}
	if e.Agents.TLSName != "" && e.Agents.Port == 0 {
		c.add("engine.agents.port", "give the port of api.listen of the agents", "is missing")
	}
	if e.Agents.LocatorPool.IsValid() {
		c.fields("engine.agents", srv6.CheckPrefix("locator_pool", e.Agents.LocatorPool))
	}
	c.checkAccept(&e.Agents.Accept)
	if _, _, err := net.SplitHostPort(e.Listen); err != nil && e.Listen != ListenOff {
		c.add("engine.listen", `give host:port, such as 127.0.0.1:9474, or "off"`, "%q is no address", e.Listen)
	}
}

func (c *checker) checkAccept(a *overlay.Accept) {
	for field, list := range map[string][]netip.Prefix{"addresses": a.Addresses, "pod_prefixes": a.PodPrefixes, "sids": a.SIDs} {
		for i, p := range list {
			c.fields("engine.agents.accept", srv6.CheckPrefix(fmt.Sprintf("%s[%d]", field, i), p))
		}
	}
}

func (c *checker) checkNode(at string, n Node) {
	c.fields(at, srv6.CheckName("name", n.Name))
	c.once(at, "node "+n.Name)
	if n.SID.IsValid() {
		c.fields(at, srv6.CheckUnicast6("sid", n.SID))
		if n.Locator.IsValid() && !n.Locator.Contains(n.SID) {
			c.add(at+".sid", "give one in locator, or leave locator out", "%s is not in %s", n.SID, n.Locator)
		}
	}
	for i, a := range n.Addresses {
		c.fields(at, srv6.CheckUnicast6(fmt.Sprintf("addresses[%d]", i), a))
		c.once(fmt.Sprintf("%s.addresses[%d]", at, i), "address "+a.String())
	}
	if _, _, err := net.SplitHostPort(n.API); n.API != "" && !strings.HasPrefix(n.API, "/") && err != nil {
		c.add(at+".api", "give host:port, or the path of a socket", "%q is no address", n.API)
	}
	c.want(!n.RouterID.IsValid() || n.RouterID.Is4(), at+".router_id", "give an IPv4 address, the bgp.router_id of the node's daemon", "%v is no router ID", n.RouterID)
	if n.RouterID.IsValid() {
		c.once(at+".router_id", "router ID "+n.RouterID.String())
	}
	if n.MaxSegments < 0 {
		c.add(at+".max_segments", "give 1 or more, or leave it out", "is %d", n.MaxSegments)
	}
}

func (c *checker) checkLink(at string, l Link) {
	c.node(at+".from", l.From)
	c.node(at+".to", l.To)
	if l.From == l.To {
		c.add(at+".to", "give another node", "is where the link begins")
	}
	if l.Capacity <= 0 {
		c.add(at+".capacity", "give one such as 10Gbit", "is missing")
	}
	if l.SID.IsValid() {
		c.fields(at, srv6.CheckUnicast6("sid", l.SID))
		c.once(at, "SID "+l.SID.String())
	}
	if l.ReverseSID.IsValid() {
		c.fields(at, srv6.CheckUnicast6("reverse_sid", l.ReverseSID))
		c.once(at, "SID "+l.ReverseSID.String())
		if l.OneWay {
			c.add(at+".reverse_sid", "remove it, or one_way", "is of a direction that the link does not have")
		}
	}
	c.affinity(at+".affinity", l.Affinity)
	c.once(at, direction(l.From, l.To, l.Name))
	if !l.OneWay {
		c.once(at, direction(l.To, l.From, l.Name))
	}
}

// direction names a link's direction.
func direction(from, to, name string) string {
	if name == "" {
		return "link " + from + " to " + to + " without a name"
	}
	return "link " + from + " to " + to + " called " + name
}

func (c *checker) affinity(field string, numbers []uint8) {
	for i, b := range numbers {
		if b > 31 {
			c.add(fmt.Sprintf("%s[%d]", field, i), "give 0 to 31", "%d is no bit of an affinity", b)
		}
	}
}

func (c *checker) checkClass(at string, v Class) {
	c.once(at, fmt.Sprintf("class of color %d", v.Color))
	c.affinity(at+".exclude", v.Exclude)
	c.affinity(at+".include_any", v.IncludeAny)
	if both := bits(v.Exclude) & bits(v.IncludeAny); both != 0 && bits(v.IncludeAny)&^both == 0 {
		c.add(at+".include_any", "remove the bits from one of them", "asks only for what exclude forbids: no link suits")
	}
	if v.MaxLists < 0 || v.MaxLists > srpolicy.MaxSegmentLists {
		c.add(at+".max_lists", "give 1 to 8, or leave it out", "is %d", v.MaxLists)
	}
	c.fields(at, v.DelayConstraint.Check())
	c.disjoint(at+".disjoint", v.Disjoint, "give link, node or srlg, or leave it out", "")
	c.disjoint(at+".standby", v.Standby, "give link, node or srlg, or leave it out", "")
	if v.Disjoint != "" && v.MaxLists == 1 {
		c.add(at+".max_lists", "give 2 or more, or remove disjoint", "is 1, and disjoint asks for two lists")
	}
}

// disjoint refuses what is no kind of it.
func (c *checker) disjoint(field string, v te.Disjoint, fix string, also ...te.Disjoint) {
	if !slices.Contains(append(also, te.DisjointByLink, te.DisjointByNode, te.DisjointBySRLG), v) {
		c.add(field, fix, "is %q", v)
	}
}

func (c *checker) checkGroup(at string, g Group, classes []Class) {
	c.fields(at, srv6.CheckName("name", g.Name))
	c.once(at, "group "+g.Name)
	c.disjoint(at+".disjoint", g.Disjoint, "give link, node or srlg")
	priorities := map[int]bool{}
	for i, d := range g.Demands {
		field := fmt.Sprintf("%s.demands[%d]", at, i)
		c.checkKey(field, d.Headend, d.Endpoint)
		c.once(field, fmt.Sprintf("demand %s of group %s", d.Name(), g.Name))
		priority := 0
		if class := slices.IndexFunc(classes, func(v Class) bool { return v.Color == d.Color }); class >= 0 {
			priority = classes[class].Priority
		}
		priorities[priority] = true
	}
	if len(priorities) > 1 {
		c.add(at+".demands", "give their classes one priority", "have different priorities: the higher one would be placed without regard to the lower one")
	}
}

func (c *checker) checkKey(at, headend, endpoint string) {
	c.node(at+".headend", headend)
	c.node(at+".endpoint", endpoint)
	if headend == endpoint {
		c.add(at+".endpoint", "give another node", "is the headend")
	}
}

func (c *checker) checkLists(at string, lists []List) {
	if n := len(lists); n == 0 || n > srpolicy.MaxSegmentLists {
		c.add(at+".lists", "give 1 to 8", "has %d lists", n)
	}
	for i, l := range lists {
		for j, name := range l.Via {
			if !slices.Contains(c.nodes, name) && !slices.Contains(c.links, name) {
				c.add(fmt.Sprintf("%s.lists[%d].via[%d]", at, i, j), "give the name of one in nodes, or FROM-TO of a link", "no node or link is called %q", name)
			}
		}
	}
}
