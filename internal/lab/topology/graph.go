package topology

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/culvert-net/culvert/internal/printer"
)

// PodInterface is what runtimes call the interface of a pod.
const PodInterface = "eth0"

var graphFormats = append([]string{"text", "dot", "mermaid"}, printer.Formats...)

// graph is a topology as `culvert lab graph` shows it.
type graph struct {
	Lab   string      `json:"lab"`
	Nodes []graphNode `json:"nodes"`
	Links []Link      `json:"links"`
}

type graphNode struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Role string `json:"role,omitempty"`
}

// WriteGraph draws a topology as text, dot, mermaid, table, json or yaml.
func WriteGraph(w io.Writer, t *Topology, format string) error {
	if !slices.Contains(graphFormats, format) {
		return fmt.Errorf("--output: %q: use %s", format, strings.Join(graphFormats, ", "))
	}
	g := graph{Lab: t.Name, Links: slices.Clone(t.Links)}
	for _, n := range t.Nodes {
		if n.Kind == Pod { // its link is culvert-cni's work
			g.Links = append(g.Links, Link{Ends: []End{{Node: n.Host, Name: "pods"}, {Node: n.Name, Name: PodInterface}}})
		}
		g.Nodes = append(g.Nodes, graphNode{n.Name, n.Kind, n.Role})
	}
	var b strings.Builder
	switch format {
	case "text":
		// A tree: each node hangs on the first node by the fewest links, and each link
		// is drawn once. A link beside the tree names a node that is drawn elsewhere.
		d := drawing{graph: g, b: &b, tree: g.tree(), drawn: map[string]bool{}, used: make([]bool, len(g.Links))}
		for _, n := range g.Nodes {
			if !d.drawn[n.Name] {
				d.drawn[n.Name] = true
				fmt.Fprintf(&b, "%s (%s)\n", n.Name, n.label())
				d.branch(n.Name, "")
			}
		}
	case "dot":
		fmt.Fprintf(&b, "graph %q {\n  rankdir=LR;\n  node [shape=box];\n", g.Lab)
		for _, n := range g.Nodes {
			fmt.Fprintf(&b, "  %q [label=\"%s\\n%s\"];\n", n.Name, n.Name, n.label())
		}
		for _, l := range g.Links {
			fmt.Fprintf(&b, "  %q -- %q [taillabel=%q, headlabel=%q];\n", l.Ends[0].Node, l.Ends[1].Node, end(l.Ends[0]), end(l.Ends[1]))
		}
		b.WriteString("}\n")
	case "mermaid":
		b.WriteString("graph LR\n")
		for _, n := range g.Nodes {
			fmt.Fprintf(&b, "  %s[\"%s<br>%s\"]\n", n.Name, n.Name, n.label())
		}
		for _, l := range g.Links {
			fmt.Fprintf(&b, "  %s ---|\"%s - %s\"| %s\n", l.Ends[0].Node, l.Ends[0].Name, l.Ends[1].Name, l.Ends[1].Node)
		}
	default:
		return printer.Format(format).Write(w, g, g.table)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (n graphNode) label() string {
	if n.Role == "" {
		return string(n.Kind)
	}
	return string(n.Kind) + ": " + n.Role
}

// tree says of each link of the tree which node hangs on it.
func (g graph) tree() map[int]string {
	hangs, seen := map[int]string{}, map[string]bool{}
	for _, root := range g.Nodes {
		seen[root.Name] = true // may be so already: then all that it reaches has been, too
		for queue := []string{root.Name}; len(queue) > 0; queue = queue[1:] {
			for _, i := range g.open(queue[0], make([]bool, len(g.Links))) {
				if _, there := g.Links[i].From(queue[0]); !seen[there.Node] {
					seen[there.Node] = true
					hangs[i] = there.Node
					queue = append(queue, there.Node)
				}
			}
		}
	}
	return hangs
}

// From returns a link's ends, that of the node first.
func (l Link) From(node string) (here, there End) {
	if l.Ends[0].Node == node {
		return l.Ends[0], l.Ends[1]
	}
	return l.Ends[1], l.Ends[0]
}

type drawing struct {
	graph
	b     *strings.Builder
	tree  map[int]string
	drawn map[string]bool
	used  []bool
}

func (d *drawing) branch(from, indent string) {
	for {
		// Asked again each time: what hangs on a branch uses links up.
		open := d.open(from, d.used)
		if len(open) == 0 {
			return
		}
		i := open[0]
		d.used[i] = true
		here, there := d.Links[i].From(from)
		line := fmt.Sprintf("%s+-- %s ---- %s: %s", indent, end(here), end(there), there.Node)
		switch {
		case d.drawn[there.Node]:
			fmt.Fprintf(d.b, "%s (see above)\n", line)
			continue
		case d.tree[i] != there.Node:
			fmt.Fprintf(d.b, "%s (see below)\n", line)
			continue
		}
		d.drawn[there.Node] = true
		to := slices.IndexFunc(d.Nodes, func(n graphNode) bool { return n.Name == there.Node }) // it exists: validated
		fmt.Fprintf(d.b, "%s (%s)\n", line, d.Nodes[to].label())
		next := "|   "
		if len(open) == 1 {
			next = "    "
		}
		d.branch(there.Node, indent+next)
	}
}

// open returns the links of a node that are not drawn yet.
func (g graph) open(node string, used []bool) (list []int) {
	for i, l := range g.Links {
		if !used[i] && slices.ContainsFunc(l.Ends, func(e End) bool { return e.Node == node }) {
			list = append(list, i)
		}
	}
	return list
}

// end names an interface, with its first address of each family.
func end(e End) string {
	text, seen := e.Name, map[bool]bool{}
	for _, a := range e.Addresses {
		if ipv6 := strings.Contains(a, ":"); !seen[ipv6] {
			seen[ipv6] = true
			text += " " + a
		}
	}
	return text
}

func (g graph) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tINTERFACE\tADDRESSES\tPEER\tINTERFACE\tADDRESSES")
	for _, l := range g.Links {
		a, b := l.Ends[0], l.Ends[1]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Node, a.Name, strings.Join(a.Addresses, " "),
			b.Node, b.Name, strings.Join(b.Addresses, " "))
	}
	return t.Flush()
}
