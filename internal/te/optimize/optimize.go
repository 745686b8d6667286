// Package optimize finds the segment lists of demands that keep the most used link of a
// network as little used as possible.
//
// A list has no waypoint or one, a node (its End SID) or a link that packets leave a node by (its
// End.X SID); on the way to it and behind it packets follow the shortest paths of the IGP and
// share equal ones ("2-segment routing": Bhatia et al., INFOCOM 2015). The smallest utilisation over all such routings is a linear program. Solve
// approximates it by an exponential potential (Shahrokhi and Matula; Plotkin, Shmoys and Tardos):
// a link costs more the fuller it is, and one demand after the other goes over from its dearest
// list to its cheapest. Any prices of links prove a bound that no routing is below, so that each
// result says how far it may be from the optimum. Solve goes on until that is Tolerance.
package optimize

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Options say how well is well enough. The zero value is valid.
type Options struct {
	// Tolerance is how far above the proven bound the largest utilisation may be before it is
	// rounded to weights, relative to the bound; 0: 0.01.
	Tolerance float64
	// Target is the largest utilisation that is no trouble: below it lists are chosen by
	// delay alone. 0: none is.
	Target float64
	// Groups have demands that must be disjoint from each other.
	Groups []te.Group
	// Fixed has demands that keep these lists.
	Fixed te.Routing
	// Progress is called now and then, by the goroutine of Solve; nil: by nobody.
	Progress func(Progress)
}

// Progress is how far Solve is with the demands of a priority.
type Progress struct {
	Priority int
	Sweeps   int     // how often each demand was looked at
	Found    float64 // utilisation
	Bound    float64
}

// Result is a routing, and how good it is.
type Result struct {
	// Routing has all demands but those that have no path. Demands that no list suits have
	// the IGP's way.
	Routing te.Routing `json:"-"`
	// Utilisation is that of the most used link: 1 is full, and more is lost.
	Utilisation float64 `json:"utilisation"`
	// Fractional is what it would be if weights were not whole numbers. Target does not count
	// for it.
	Fractional float64 `json:"fractional"`
	// Bound is what no routing by such lists is below, while demands of higher priority stay
	// where they were placed.
	Bound float64 `json:"bound"`
	// Loads are in bit/s, of each link of the topology.
	Loads []float64 `json:"-"`
	// Prices are of each link: what a bit/s more of its capacity would lower the bound by. They
	// are of the lowest priority.
	Prices   []float64 `json:"-"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is why a demand has not what its class asks for.
type Problem struct {
	te.Key
	Why string `json:"why"`
}

// Solve places demands, those of the highest priority first and those of lower ones on what
// they leave. Demands of a color that is no class have priority 0, and ask for nothing.
// It returns ctx's error if that ends before there is any routing of all demands, and
// otherwise the best one until then.
func Solve(ctx context.Context, g *graph.Graph, classes []te.Class, demands []te.Demand, o Options) (Result, error) {
	if o.Tolerance == 0 {
		o.Tolerance = 0.01
	}
	s := newSolver(g, o)
	if err := s.check(classes, demands); err != nil {
		return Result{}, err
	}
	s.prepare()
	s.absent(demands)
	for _, r := range s.rounds(classes, demands) {
		if err := s.place(ctx, r); err != nil {
			return Result{}, err
		}
	}
	for link, load := range s.result.Loads {
		s.result.Utilisation = max(s.result.Utilisation, load/s.capacity(link))
	}
	return s.result, nil
}

// solver holds what all priorities share.
type solver struct {
	g       *graph.Graph
	options Options
	result  Result

	shares *pairs
	into   [][]int32 // by node: links with a SID that lead into it
	links  int       // how many have a SID
	byKind map[te.Disjoint]*graph.Risks
	// random has links cost random numbers, and delays their delay.
	random, delays *tariff
}

func newSolver(g *graph.Graph, o Options) *solver {
	return &solver{g: g, options: o, byKind: map[te.Disjoint]*graph.Risks{}, result: Result{Routing: te.Routing{}, Loads: make([]float64, len(g.Topology.Links))}}
}

// prepare computes what all priorities share.
func (s *solver) prepare() {
	s.shares, s.into = allShares(s.g), make([][]int32, len(s.g.Topology.Nodes))
	random, delay, r := make([]float64, len(s.g.Topology.Links)), make([]float64, len(s.g.Topology.Links)), rand.New(rand.NewPCG(1, 2))
	for i, l := range s.g.Topology.Links {
		random[i], delay[i] = 1+r.Float64(), float64(l.Delay)
		if l.SID.IsValid() && s.g.Used(i) {
			_, to := s.g.Ends(i)
			s.into[to] = append(s.into[to], int32(i))
			s.links++
		}
	}
	s.random, s.delays = newTariff(s), newTariff(s)
	s.random.set(random)
	s.delays.set(delay)
}

// visits says whether lists of a headend may have a node as their waypoint.
func (s *solver) visits(headend, node int) bool {
	return node != headend && s.g.Topology.Nodes[node].SID.IsValid() && s.pushes(headend)
}

// leaves says whether lists of a headend may have links of a node as their waypoint. Its own are
// none: a headend has no route to its own SIDs.
func (s *solver) leaves(headend, node int) bool { return node != headend && s.pushes(headend) }

// pushes says whether lists of a headend may have a waypoint before the last segment, which is
// the endpoint's.
func (s *solver) pushes(headend int) bool { return s.g.Topology.Nodes[headend].MaxSegments != 1 }

func (s *solver) capacity(link int) float64 { return s.g.Topology.Links[link].Capacity }

// check finds what makes the question meaningless.
func (s *solver) check(classes []te.Class, demands []te.Demand) error {
	for link, l := range s.g.Topology.Links {
		if s.g.Used(link) && !(l.Capacity > 0) {
			return fmt.Errorf("link %s to %s: capacity is %v bit/s: give one above 0", l.From, l.To, l.Capacity)
		}
	}
	colors := map[uint32]bool{}
	for _, c := range classes {
		if colors[c.Color] {
			return fmt.Errorf("color %d has two classes: give one", c.Color)
		}
		colors[c.Color] = true
		if c.Disjoint != "" && c.MaxLists == 1 {
			return fmt.Errorf("color %d asks for disjoint lists, and for one at most: give max_lists of 2 or more", c.Color)
		}
	}
	for _, d := range demands {
		for _, name := range []string{d.Headend, d.Endpoint} {
			if _, known := s.g.Node(name); !known {
				return fmt.Errorf("demand %s to %s: the topology has no node %s", d.Headend, d.Endpoint, name)
			}
		}
		if !(d.Rate >= 0) || d.Rate > 1e18 {
			return fmt.Errorf("demand %s to %s: rate is %v bit/s: give 0 or more", d.Headend, d.Endpoint, d.Rate)
		}
	}
	return nil
}

// place finds the lists of one priority's demands.
func (s *solver) place(ctx context.Context, r round) error {
	r.fixed = slices.Clone(s.result.Loads)
	f := newFlow(s, r)
	if err := f.run(ctx); err != nil {
		return err
	}
	f, err := s.apart(ctx, r, f)
	if err != nil {
		return err
	}
	s.result.Fractional, s.result.Bound, s.result.Prices = f.found, f.bound, f.prices
	p := newPlacement(s, f.r, f)
	p.relieve(ctx)
	p.shorten(ctx)
	for i, c := range r.commodities {
		s.result.Routing[c.Key] = p.lists(i)
	}
	s.result.Loads = p.loads
	return nil
}

// lists are a commodity's as the headend has them: the heaviest first, and of equal ones that
// without a waypoint.
func (p *placement) lists(commodity int) (lists []te.List) {
	for _, part := range p.parts[commodity] {
		lists = append(lists, te.List{Weight: uint32(part.units), Waypoints: p.solver.waypoints(part.via, p.round.commodities[commodity].to)})
	}
	slices.SortStableFunc(lists, func(a, b te.List) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(len(a.Waypoints), len(b.Waypoints)))
	})
	return lists
}

// waypoints are those of a list.
func (s *solver) waypoints(via int32, to int) []te.Waypoint {
	switch enter, _, link := s.legs(via); {
	case link >= 0:
		return []te.Waypoint{{Node: s.g.Topology.Nodes[enter].Name, Link: link + 1}}
	case enter == to:
		return nil
	default:
		return []te.Waypoint{{Node: s.g.Topology.Nodes[enter].Name}}
	}
}
