// Package generate makes topologies and demands to measure with. Equal parameters make equal
// ones on every machine.
package generate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Parameters say what is made.
type Parameters struct {
	Nodes int // at least 3
	Links int // directed, at least 2 per node; an odd one is left out
	Seed  uint64
	// Colors are those of the demands; none: 0 alone.
	Colors []uint32
	// Pairs is how many pairs of nodes have a demand in each color, those that send most; 0: all.
	Pairs int
	// Utilisation is that of the fullest link if all demands follow the IGP; 0: 1.
	Utilisation float64
	// LinkSIDs gives links an End.X SID.
	LinkSIDs bool
}

// Make places nodes at random in a square of 3,000 km, joins them to a ring, and adds links
// by Waxman's rule: the closer two nodes, the likelier. Metric and delay are by length, 200
// km for each ms. Capacities are 10, 40 or 100 Gbit/s. Rates follow a gravity model with
// masses of a log-normal distribution.
func Make(p Parameters) (te.Topology, []te.Demand) {
	r := rand.New(rand.NewPCG(p.Seed, 14))
	n := max(p.Nodes, 3)
	at := make([][2]float64, n)
	var t te.Topology
	for i := range n {
		at[i] = [2]float64{3000 * r.Float64(), 3000 * r.Float64()}
		a := netip.MustParseAddr("fc00::").As16()
		a[2], a[3] = byte(i>>8), byte(i)
		locator := netip.PrefixFrom(netip.AddrFrom16(a), 48)
		a[7] = 1
		t.Nodes = append(t.Nodes, te.Node{Name: fmt.Sprintf("n%d", i), SID: netip.AddrFrom16(a), Locator: locator})
	}
	joined := map[[2]int]bool{}
	join := func(a, b int) {
		km := math.Hypot(at[a][0]-at[b][0], at[a][1]-at[b][1])
		joined[[2]int{min(a, b), max(a, b)}] = true
		l := te.Link{Metric: uint32(10 + km/10), Capacity: []float64{1e10, 4e10, 1e11}[r.IntN(3)], Delay: time.Duration(km / 200 * float64(time.Millisecond))}
		for _, ends := range [][2]int{{a, b}, {b, a}} {
			l.From, l.To = t.Nodes[ends[0]].Name, t.Nodes[ends[1]].Name
			if p.LinkSIDs {
				l.SID = endX(t.Nodes[ends[0]].Locator, len(t.Links))
			}
			t.Links = append(t.Links, l)
		}
	}
	// The ring goes by angle, so that it is no longer than it has to be.
	ring := make([]int, n)
	for i := range ring {
		ring[i] = i
	}
	slices.SortFunc(ring, func(a, b int) int {
		return cmp.Compare(math.Atan2(at[a][1]-1500, at[a][0]-1500), math.Atan2(at[b][1]-1500, at[b][0]-1500))
	})
	for i, node := range ring {
		join(node, ring[(i+1)%n])
	}
	for len(t.Links) < min(p.Links-p.Links%2, n*(n-1)) {
		a, b := r.IntN(n), r.IntN(n)
		if a == b || joined[[2]int{min(a, b), max(a, b)}] {
			continue
		}
		km := math.Hypot(at[a][0]-at[b][0], at[a][1]-at[b][1])
		if r.Float64() < math.Exp(-km/600)+0.001 {
			join(a, b)
		}
	}
	list := demands(t, p, r)
	scale(t, list, cmp.Or(p.Utilisation, 1))
	return t, list
}

// endX is an End.X SID of a link in its node's locator.
func endX(locator netip.Prefix, link int) netip.Addr {
	a := locator.Addr().As16()
	a[6], a[7], a[8], a[9] = 0, 2, byte(link>>8), byte(link)
	return netip.AddrFrom16(a)
}

// scale has the IGP fill the fullest link as far as `utilisation`.
func scale(t te.Topology, demands []te.Demand, utilisation float64) {
	g := graph.New(t, graph.Without{})
	flows, load, fullest := g.Flows(), make([]float64, len(t.Links)), 0.0
	for _, d := range demands {
		from, _ := g.Node(d.Headend)
		to, _ := g.Node(d.Endpoint)
		for _, s := range flows.Append(nil, from, to) {
			load[s.Link] += d.Rate * float64(s.Part)
			fullest = max(fullest, load[s.Link]/t.Links[s.Link].Capacity)
		}
	}
	for i := range demands {
		demands[i].Rate *= utilisation / fullest
	}
}

func demands(t te.Topology, p Parameters, r *rand.Rand) (list []te.Demand) {
	mass := make([]float64, len(t.Nodes))
	for i := range mass {
		mass[i] = math.Exp(r.NormFloat64())
	}
	colors := p.Colors
	if len(colors) == 0 {
		colors = []uint32{0}
	}
	for _, color := range colors {
		var of []te.Demand
		for i, from := range t.Nodes {
			for j, to := range t.Nodes {
				if i != j {
					of = append(of, te.Demand{Key: te.Key{Headend: from.Name, Endpoint: to.Name, Color: color}, Rate: mass[i] * mass[j] * (0.5 + r.Float64())})
				}
			}
		}
		if p.Pairs > 0 && p.Pairs < len(of) {
			slices.SortStableFunc(of, func(a, b te.Demand) int { return cmp.Compare(b.Rate, a.Rate) })
			of = of[:p.Pairs]
		}
		list = append(list, of...)
	}
	return list
}
