package optimize

import (
	"cmp"
	"context"
	"slices"
	"time"
)

const (
	// whole is how many units of weight a commodity has: no list has less than 2 %.
	whole = 50
	// slack is what utilisation may grow by for shorter delay.
	slack = 1.01
	// nearby is how many of the cheapest lists are tried.
	nearby = 24
)

// placement is a routing with weights that are whole numbers, and its improvement move by
// move.
type placement struct {
	solver *solver
	round  round
	parts  [][]part // by commodity
	loads  []float64
	flow   *flow
	way    *way
	change []float64  // by link, of a move
	near   [][]column // by commodity: the cheapest lists; nil: not looked for yet
}

// part is a list's units of a commodity.
type part struct {
	via   int32
	units int
}

// newPlacement rounds the fractional routing.
func newPlacement(s *solver, r round, f *flow) *placement {
	p := &placement{solver: s, round: r, parts: make([][]part, len(r.commodities)), loads: slices.Clone(r.fixed), flow: f, way: f.to,
		change: make([]float64, len(s.g.Topology.Links)), near: make([][]column, len(r.commodities))}
	for i, c := range r.commodities {
		p.parts[i] = apportion(f.best[i], c.most)
		if len(p.parts[i]) == 0 { // nothing was sent
			p.parts[i] = []part{{f.sent[i][0].via, whole}}
		}
		p.parts[i] = spread(p.parts[i], c)
		for _, part := range p.parts[i] {
			p.add(i, part.via, part.units, p.loads)
		}
	}
	f.tariff.set(f.prices) // the best ones say which lists to try
	return p
}

// apportion gives the units to at most `most` lists, the largest parts first and the rest
// by the largest remainders.
func apportion(list []sent, most int) []part {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b sent) int { return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.via, b.via)) })
	list = list[:min(len(list), most)]
	var sum float64
	for _, s := range list {
		sum += s.amount
	}
	if sum == 0 {
		return nil
	}
	type rest struct {
		at   int
		left float64
	}
	parts, rests, left := make([]part, len(list)), make([]rest, len(list)), whole
	for i, s := range list {
		exact := s.amount / sum * whole
		parts[i] = part{s.via, int(exact)}
		rests[i] = rest{i, exact - float64(parts[i].units)}
		left -= parts[i].units
	}
	slices.SortFunc(rests, func(a, b rest) int { return cmp.Or(cmp.Compare(b.left, a.left), cmp.Compare(a.at, b.at)) })
	for i := range left {
		parts[rests[i%len(rests)].at].units++
	}
	return slices.DeleteFunc(parts, func(p part) bool { return p.units == 0 })
}

// spread has a commodity have as many lists as it needs: a unit for each that it does not have.
func spread(parts []part, c commodity) []part {
	for _, via := range c.only {
		if len(parts) >= c.fewest {
			break
		}
		if !slices.ContainsFunc(parts, func(p part) bool { return p.via == via }) {
			parts[0].units--
			parts = append(parts, part{via, 1})
		}
	}
	return parts
}

// add has links carry units more of a commodity by a list; units may be negative.
func (p *placement) add(commodity int, via int32, units int, loads []float64) {
	c := p.round.commodities[commodity]
	p.way.take(c.from, via, c.to)
	rate := c.Rate * float64(units) / whole
	for _, l := range p.way.links {
		loads[l] += rate * p.way.part[l]
	}
}

func (p *placement) utilisation(link int) float64 {
	return p.loads[link] / p.solver.capacity(link)
}

// fullest is the most used link.
func (p *placement) fullest() (link int, u float64) {
	for l := range p.loads {
		if v := p.utilisation(l); v > u {
			link, u = l, v
		}
	}
	return link, u
}

// limit is what utilisation may be for shorter delay.
func (p *placement) limit() float64 {
	_, u := p.fullest()
	return max(slack*u, p.solver.options.Target)
}

// relieve moves units away from the fullest link while that makes the fullest one less
// full.
func (p *placement) relieve(ctx context.Context) {
	for range 20 * len(p.loads) {
		link, u := p.fullest()
		if u <= max(p.solver.options.Target, p.flow.bound) || ctx.Err() != nil || !p.relieveLink(link, u) {
			return
		}
	}
}

// relieveLink does the move that lowers the utilisation of a link, and lifts no other as
// high; it says whether there is one.
func (p *placement) relieveLink(link int, u float64) bool {
	best, at := move{}, u
	for i := range p.round.commodities {
		for _, from := range p.parts[i] {
			if p.partOn(i, from.via, link) == 0 {
				continue
			}
			for _, via := range p.others(i, from.via) {
				for units := from.units; units > 0; units /= 2 {
					m := move{i, from.via, via, units}
					if v := p.after(m, link); v < at {
						best, at = m, v
					}
				}
			}
		}
	}
	if at > u*(1-1e-6) {
		return false
	}
	p.do(best)
	return true
}

// move is units of a commodity that change their list.
type move struct {
	commodity int
	from, to  int32
	units     int
}

// partOn is how much of a list's flow takes a link.
func (p *placement) partOn(commodity int, via int32, link int) float64 {
	c := p.round.commodities[commodity]
	p.way.take(c.from, via, c.to)
	return p.way.part[link]
}

// others are lists that a commodity may have besides one: those that it has, and where it
// may have more, the cheapest.
func (p *placement) others(commodity int, besides int32) []int32 {
	c := &p.round.commodities[commodity]
	var list []int32
	for _, part := range p.parts[commodity] {
		if part.via != besides {
			list = append(list, part.via)
		}
	}
	if p.near[commodity] == nil {
		p.near[commodity] = p.flow.tariff.cheapest(nil, c, nearby, 0)
	}
	for _, n := range p.near[commodity] {
		if n.via != besides && !slices.Contains(list, n.via) {
			list = append(list, n.via)
		}
	}
	return list
}

// after is the utilisation of the fullest of the links that a move changes, and of one more.
func (p *placement) after(m move, also int) (u float64) {
	if !p.fits(m) {
		return 2 * p.utilisation(also)
	}
	defer p.undo(p.plan(m))
	u = (p.loads[also] + p.change[also]) / p.solver.capacity(also)
	for _, l := range p.way.links {
		u = max(u, (p.loads[l]+p.change[l])/p.solver.capacity(int(l)))
	}
	return u
}

// fits says whether the commodity has no more lists than it may have after a move, and as many as
// it needs.
func (p *placement) fits(m move) bool {
	n := len(p.parts[m.commodity])
	for _, part := range p.parts[m.commodity] {
		if part.via == m.from && part.units == m.units || part.via == m.to {
			n--
		}
	}
	c := &p.round.commodities[m.commodity]
	return n < c.most && n+1 >= c.fewest
}

// plan has in change what a move does to links, and in way the list that it goes to.
func (p *placement) plan(m move) (touched []int32) {
	p.add(m.commodity, m.from, -m.units, p.change)
	touched = slices.Clone(p.way.links)
	p.add(m.commodity, m.to, m.units, p.change)
	return append(touched, p.way.links...)
}

func (p *placement) undo(touched []int32) {
	for _, l := range touched {
		p.change[l] = 0
	}
}

func (p *placement) do(m move) {
	p.add(m.commodity, m.from, -m.units, p.loads)
	p.add(m.commodity, m.to, m.units, p.loads)
	parts := p.parts[m.commodity]
	at := slices.IndexFunc(parts, func(q part) bool { return q.via == m.to })
	if at < 0 {
		parts, at = append(parts, part{via: m.to}), len(parts)
	}
	parts[at].units += m.units
	parts[slices.IndexFunc(parts, func(q part) bool { return q.via == m.from })].units -= m.units
	p.parts[m.commodity] = slices.DeleteFunc(parts, func(q part) bool { return q.units == 0 })
}

// shorten moves units to lists of less delay while no link gets fuller than the limit.
func (p *placement) shorten(ctx context.Context) {
	limit := p.limit()
	for i := range p.round.commodities {
		if ctx.Err() != nil {
			return
		}
		c, slowest := &p.round.commodities[i], time.Duration(0)
		for _, part := range p.parts[i] {
			slowest = max(slowest, p.delay(c, part.via))
		}
		for _, to := range p.solver.delays.cheapest(nil, c, nearby, 0) {
			for _, from := range slices.Clone(p.parts[i]) {
				if p.delay(c, to.via) < p.delay(c, from.via) {
					p.shift(move{i, from.via, to.via, from.units}, limit)
				}
			}
		}
	}
}

// shift does as much of a move as keeps links below the limit.
func (p *placement) shift(m move, limit float64) {
	left := m.units
	for m.units > 0 {
		if !p.keeps(m, limit) {
			m.units /= 2
			continue
		}
		p.do(m)
		left -= m.units
		m.units = min(m.units, left)
	}
}

// keeps says whether no link that a move fills more is above the limit then.
func (p *placement) keeps(m move, limit float64) bool {
	touched := p.plan(m)
	defer p.undo(touched)
	for _, l := range touched {
		if then := p.loads[l] + p.change[l]; then > p.loads[l] && then > limit*p.solver.capacity(int(l)) {
			return false
		}
	}
	return p.fits(m)
}

// delay is the mean of a list's equal paths. Of lists of the same delay that with a
// waypoint counts as longer: it pushes a segment more.
func (p *placement) delay(c *commodity, via int32) time.Duration {
	d := time.Duration(p.solver.delays.of(c.from, via, c.to))
	if int(via) != c.to {
		d++
	}
	return d
}
