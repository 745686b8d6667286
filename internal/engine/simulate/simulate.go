// Package simulate finds out what failures do to a network and its routing.
package simulate

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
	"github.com/culvert-net/culvert/internal/te/optimize"
)

// Failure is of a node, or of a link in both directions.
type Failure struct {
	Name    string
	Without graph.Without
}

// Outcome is what a failure does.
type Outcome struct {
	Failure string `json:"failure"`
	// Utilisation is that of the fullest link after the IGP has found its new paths: weights of
	// lists that are broken have gone to the others, and demands without one follow the IGP.
	Utilisation float64 `json:"utilisation"`
	Link        string  `json:"link,omitempty"` // the fullest
	// Repaired is it after the engine's new lists.
	Repaired float64 `json:"repaired"`
	// Bound is what no lists of two segments are below.
	Bound float64 `json:"bound"`
	// Broken is how many demands lost a list, ByIGP of how many all are broken, and Nowhere
	// those without any path. Demands that begin or end at a node that failed are Gone.
	Broken  int      `json:"broken"`
	ByIGP   int      `json:"by_igp"`
	Nowhere []te.Key `json:"nowhere,omitempty"`
	Gone    int      `json:"gone"`
	// Together are the demands that have no disjoint lists left, where their class asks for them:
	// the next failure may take all that they have after repair.
	Together []te.Key `json:"together,omitempty"`
}

// Failures are those of a name: "all", a node's, or FROM-TO of a link, with :NAME where there
// are several between two nodes and one of them fails.
func Failures(t te.Topology, name string) ([]Failure, error) {
	var all, found []Failure
	for i, n := range t.Nodes {
		all = append(all, Failure{n.Name, graph.Without{Nodes: []int{i}}})
	}
	all = append(all, links(t)...)
	if name == "all" {
		return all, nil
	}
	for _, f := range all {
		if f.Name == name || reversed(f.Name) == name {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no node or link is called %q: give all, a node, or FROM-TO of a link", name)
	}
	return found, nil
}

// links are those of all nodes, with both directions as one.
func links(t te.Topology) (all []Failure) {
	at := map[string]int{}
	for i, l := range t.Links {
		ends := []string{l.From, l.To}
		slices.Sort(ends)
		name := strings.Join(ends, "-")
		if l.Name != "" {
			name += ":" + l.Name
		}
		if _, known := at[name]; !known {
			at[name] = len(all)
			all = append(all, Failure{Name: name})
		}
		f := &all[at[name]].Without
		f.Links = append(f.Links, i)
	}
	return all
}

// reversed is a link's name from the other end.
func reversed(name string) string {
	ends, rest, named := strings.Cut(name, ":")
	from, to, link := strings.Cut(ends, "-")
	if !link {
		return name
	}
	if named {
		rest = ":" + rest
	}
	return to + "-" + from + rest
}

// Run finds the outcome of each failure. progress is called with how many are done; nil: it
// is not.
func Run(ctx context.Context, n te.Network, failures []Failure, progress func(done int)) ([]Outcome, error) {
	outcomes, done := make([]Outcome, len(failures)), make(chan struct{}, len(failures))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		i := 0
		for range done {
			if i++; progress != nil {
				progress(i)
			}
		}
	}()
	for i, f := range failures {
		group.Go(func() (err error) {
			outcomes[i], err = one(ctx, n, f)
			done <- struct{}{}
			return err
		})
	}
	err := group.Wait()
	close(done)
	<-counted
	return outcomes, err
}

// one is the outcome of a failure.
func one(ctx context.Context, n te.Network, f Failure) (Outcome, error) {
	before, g := graph.New(n.Topology, graph.Without{}).Flows(), graph.New(n.Topology, f.Without)
	o, loads, flows := Outcome{Failure: f.Name}, make([]float64, len(n.Topology.Links)), g.Flows()
	var left []te.Demand
	for _, d := range n.Demands {
		if from, to := node(g, d.Headend), node(g, d.Endpoint); slices.Contains(f.Without.Nodes, from) || slices.Contains(f.Without.Nodes, to) {
			o.Gone++
			continue
		}
		left = append(left, d)
		lists := n.Routing[d.Key]
		had, _, _ := before.Ways(d.Key, lists)
		has, _, fate := flows.Ways(d.Key, lists)
		if fate == graph.ByLists && len(has) < len(had) {
			o.Broken++
		}
		switch flows.Load(loads, d, lists); {
		case fate == graph.ByIGP && len(lists) > 0:
			o.Broken, o.ByIGP = o.Broken+1, o.ByIGP+1
		case fate == graph.Nowhere:
			o.Nowhere = append(o.Nowhere, d.Key)
		}
	}
	var link int
	if link, o.Utilisation = g.Fullest(loads); link >= 0 {
		l := n.Topology.Links[link]
		o.Link = l.From + "-" + l.To
	}
	r, err := optimize.Solve(ctx, g, n.Classes, left, optimize.Options{Groups: n.Groups})
	o.Repaired, o.Bound = r.Utilisation, r.Bound
	together := g.Together(n.Classes, n.Groups, left, r.Routing)
	for _, d := range left {
		if together[d.Key] != nil {
			o.Together = append(o.Together, d.Key)
		}
	}
	return o, err
}

func node(g *graph.Graph, name string) int {
	n, _ := g.Node(name)
	return n
}
