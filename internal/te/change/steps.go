package change

import (
	"maps"
	"slices"

	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/graph"
)

// Step is changes that may be made in any order, and at the same time.
type Step struct {
	Lists te.Routing `json:"-"` // of the demands that change
	// Fullest is the largest utilisation that a link can have in the step, whichever of the
	// headends have changed.
	Fullest float64 `json:"fullest"`
}

// parts is in how many parts a demand changes that cannot change at once.
const parts = 32

// Sequence is steps that lead from one routing to another.
type Sequence struct {
	Steps []Step
	Moves []te.Key // what changes
	// Left are the demands that keep their lists, because no order of steps has room for their change.
	Left []te.Key
	// Overload is the utilisation that a link can reach in a step that gives lost demands a path where
	// there is no room for it; else 0.
	Overload float64
}

// Steps leads from one routing to another so that no link carries more than it can, or, where
// it does before or after, than then. A demand may change in parts: then it has old and new
// lists for a step. Demands for which there is no such way keep their lists, and so do the others of
// their groups, except those that are lost: of these packets lead nowhere, which is worse than a link
// that is full.
func Steps(g *graph.Graph, demands []te.Demand, now, wanted te.Routing, moves []te.Key, lost map[te.Key]bool, groups []te.Group) Sequence {
	s, with := Sequence{Moves: moves}, companions(groups)
	for {
		p := newPlanner(g, demands, now, wanted, s.Moves)
		if s.Steps, s.Overload = p.steps(lost); len(p.open) == 0 {
			return s
		}
		// What has found room may have done so because others were to leave.
		left := map[te.Key]bool{}
		for _, m := range p.open {
			for _, key := range append(with[m.demand.Key], m.demand.Key) {
				if !left[key] && !lost[key] && slices.Contains(s.Moves, key) {
					left[key] = true
					s.Left = append(s.Left, key)
				}
			}
		}
		s.Moves = slices.DeleteFunc(slices.Clone(s.Moves), func(key te.Key) bool { return left[key] })
	}
}

// steps are those of all demands, or of those that come before what has no room.
func (p *planner) steps(lost map[te.Key]bool) (steps []Step, overload float64) {
	for len(p.open) > 0 {
		step := Step{Lists: te.Routing{}}
		worst := slices.Clone(p.loads)
		for _, m := range p.open {
			p.offer(m, worst, step.Lists)
		}
		if len(step.Lists) == 0 {
			for _, m := range p.open {
				if lost[m.demand.Key] {
					step.Lists[m.demand.Key] = m.to
					raise(worst, m.now, p.on(m, m.to))
				}
			}
			if len(step.Lists) == 0 {
				break
			}
			_, u := p.g.Fullest(worst)
			overload = max(overload, u)
		}
		_, step.Fullest = p.g.Fullest(worst)
		steps = append(steps, step)
		p.finish(step)
	}
	return steps, overload
}

// planner holds what is installed after the steps so far.
type planner struct {
	g     *graph.Graph
	flows *graph.Flows
	open  []*moving
	loads []float64
	limit []float64 // of each link, in bit/s
}

// moving is a demand that has not all of its new lists yet.
type moving struct {
	demand te.Demand
	from   []te.List // what it had at the beginning
	to     []te.List
	now    map[int]float64 // loads of what it has
	done   int             // parts that have changed
	next   int             // parts that will have, after the step
}

func newPlanner(g *graph.Graph, demands []te.Demand, now, wanted te.Routing, moves []te.Key) *planner {
	p := &planner{g: g, flows: g.Flows(), loads: make([]float64, len(g.Topology.Links)), limit: make([]float64, len(g.Topology.Links))}
	after := make([]float64, len(p.loads))
	for _, d := range demands {
		old := on(p.flows, d, now[d.Key])
		add(p.loads, old, 1)
		if !slices.Contains(moves, d.Key) {
			add(after, old, 1)
			continue
		}
		add(after, on(p.flows, d, wanted[d.Key]), 1)
		p.open = append(p.open, &moving{demand: d, from: now[d.Key], to: wanted[d.Key], now: old})
	}
	for link, l := range g.Topology.Links {
		p.limit[link] = max(l.Capacity, p.loads[link], after[link]) * (1 + 1e-9)
	}
	return p
}

func (p *planner) on(m *moving, lists []te.List) map[int]float64 {
	return on(p.flows, m.demand, lists)
}

// offer has a demand change in the step, as many parts of it as fit. worst is what each link
// carries if those have changed that put more on it, and those not that take from it.
func (p *planner) offer(m *moving, worst []float64, step te.Routing) {
	for done := parts; done > m.done; done-- {
		lists, ok := m.after(done)
		if !ok {
			continue
		}
		then := p.on(m, lists)
		if p.fits(worst, m.now, then) {
			raise(worst, m.now, then)
			step[m.demand.Key], m.next = lists, done
			return
		}
	}
}

func (p *planner) fits(worst []float64, now, then map[int]float64) bool {
	for link, load := range then {
		if more := load - now[link]; more > 0 && worst[link]+more > p.limit[link] {
			return false
		}
	}
	return true
}

// raise adds what a change puts on links, and leaves what it takes from them.
func raise(worst []float64, now, then map[int]float64) {
	for link, load := range then {
		worst[link] += max(0, load-now[link])
	}
}

// after is what a demand has when so many of its parts have changed; false: that is more lists
// than a policy holds.
func (m *moving) after(done int) ([]te.List, bool) {
	if done == parts {
		return m.to, true
	}
	old, new := brief(orIGP(m.from)), brief(m.to)
	lists := lowest(append(scaled(old, parts-done, total(new)), scaled(new, done, total(old))...))
	return lists, len(lists) <= srpolicy.MaxSegmentLists
}

// brief has weights whose sum is about 2^13 at most, so that products of two such sums and parts
// are weights too.
func brief(lists []te.List) []te.List {
	const most = 1 << 13
	lists = lowest(lists)
	var sum uint64
	for _, l := range lists {
		sum += uint64(l.Weight)
	}
	if sum <= most {
		return lists
	}
	for i := range lists {
		lists[i].Weight = uint32(max(1, uint64(lists[i].Weight)*most/sum))
	}
	return lists
}

// lowest has the smallest whole weights of the same ratio.
func lowest(lists []te.List) []te.List {
	lists = slices.Clone(lists)
	var divisor uint32
	for _, l := range lists {
		for a := l.Weight; a > 0; {
			divisor, a = a, divisor%a
		}
	}
	for i := range lists {
		lists[i].Weight /= max(divisor, 1)
	}
	return lists
}

func total(lists []te.List) (sum uint32) {
	for _, l := range lists {
		sum += l.Weight
	}
	return sum
}

// scaled has lists with weights times both factors.
func scaled(lists []te.List, by int, and uint32) []te.List {
	lists = slices.Clone(lists)
	for i := range lists {
		lists[i].Weight *= uint32(by) * and
	}
	return lists
}

// finish has the step's changes done.
func (p *planner) finish(s Step) {
	for _, m := range p.open {
		lists, changes := s.Lists[m.demand.Key]
		if !changes {
			continue
		}
		add(p.loads, m.now, -1)
		m.now, m.done = p.on(m, lists), max(m.next, m.done)
		add(p.loads, m.now, 1)
		if same(lists, m.to) {
			m.done = parts
		}
	}
	p.open = slices.DeleteFunc(p.open, func(m *moving) bool { return m.done == parts })
}

// same says whether lists and the ratio of their weights are equal.
func same(a, b []te.List) bool {
	return slices.EqualFunc(lowest(a), lowest(b), func(x, y te.List) bool { return x.Weight == y.Weight && slices.Equal(x.Waypoints, y.Waypoints) })
}

// Apply is a routing after a step.
func Apply(r te.Routing, s Step) te.Routing {
	r = maps.Clone(r)
	if r == nil {
		r = te.Routing{}
	}
	maps.Copy(r, s.Lists)
	return r
}
