package optimize

import (
	"context"
	"math"
	"slices"
)

const (
	// gentle is what steepness begins with, steeper what it grows by, both in units of
	// ln(links)/utilisation: with prices of steepness s the least potential has a largest
	// utilisation of at most 1/s times that more than the least.
	gentle, steeper = 2, 1.5
	// settled is by how many times that the bound may miss before prices get steeper, and
	// patient after how many sweeps they do in any case.
	settled, patient = 2, 10
	mostSweeps       = 400
	// mostColumns is how many lists of a commodity a sweep chooses from, and dear what they
	// cost at most, by the cheapest.
	mostColumns, dear = 24, 1.5
	// level is the relative difference of costs at which flow stays.
	level = 1e-4
	// lowest bounds exponents, so that a price is never 0.
	lowest = -300
)

// flow approximates the fractional optimum of a round. The price of a link grows exponentially
// with its utilisation. A sweep has each commodity's flow leave its dearest list for the cheapest,
// as far as that lowers the sum of what links cost (the potential); when sweeps gain little,
// prices get steeper.
type flow struct {
	s *solver
	r round

	load    []float64 // of links, in bit/s
	steep   float64
	fullest float64   // utilisation that prices are relative to
	price   []float64 // of links
	tariff  *tariff   // by the prices at the beginning of the sweep
	costs   []float64 // of each commodity's cheapest list then, by the bit/s
	// columns are the lists of each commodity that a sweep chooses from, and sent those that it
	// has.
	columns  [][]column
	sent     [][]sent
	from, to *way // of lists that flow leaves and goes to

	found  float64 // utilisation
	best   [][]sent
	bound  float64
	prices []float64 // that prove bound, by total
}

// sent is what a list carries, in bit/s.
type sent struct {
	via    int32
	amount float64
}

func newFlow(s *solver, r round) *flow {
	links, n := len(s.g.Topology.Links), len(r.commodities)
	f := &flow{
		s: s, r: r, load: slices.Clone(r.fixed), price: make([]float64, links), tariff: newTariff(s), costs: make([]float64, n),
		columns: make([][]column, n), sent: make([][]sent, n), from: newWay(s), to: newWay(s), found: math.Inf(1), best: make([][]sent, n), prices: make([]float64, links),
	}
	for link := range f.price {
		if s.g.Used(link) {
			f.price[link] = 1 / s.capacity(link)
		}
	}
	f.choose()
	for i := range r.commodities { // lists without a waypoint, or the cheapest
		c := &r.commodities[i]
		via := int32(c.to)
		if !c.suits(via) || c.only != nil && !slices.Contains(c.only, via) {
			via = f.columns[i][0].via
		}
		f.sent[i] = []sent{{via, c.Rate}}
		f.to.take(c.from, via, c.to)
		f.to.carry(f.load, c.Rate)
	}
	f.keep()
	return f
}

// largest is the utilisation of the most used link.
func (s *solver) largest(load []float64) (u float64) {
	for link, v := range load {
		if v > 0 {
			u = max(u, v/s.capacity(link))
		}
	}
	return u
}

// run sweeps until the tolerance is met, or it gains nothing more, or ctx ends.
func (f *flow) run(ctx context.Context) error {
	unit := math.Log(float64(len(f.load)) + 1)
	f.steep = gentle * unit / f.found
	for sweep, stays := 0, 1; f.found > 0; sweep, stays = sweep+1, stays+1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.repriceAll()
		f.choose()
		if p := f.s.options.Progress; p != nil {
			p(Progress{Priority: f.r.priority, Sweeps: sweep, Found: f.found, Bound: f.bound})
		}
		if f.found <= f.bound*(1+f.s.options.Tolerance) || sweep == mostSweeps {
			return nil
		}
		if stays > patient || f.fullest-f.bound < settled*unit/f.steep {
			f.steep, stays = f.steep*steeper, 0
			f.repriceAll()
		}
		for i := range f.r.commodities {
			for again := 3; again > 0 && f.improve(i); again-- {
			}
		}
		f.keep()
	}
	return nil
}

func (f *flow) repriceAll() {
	f.fullest = f.s.largest(f.load)
	for link := range f.load {
		f.reprice(link)
	}
}

// reprice has the price of a link follow its load.
func (f *flow) reprice(link int) {
	if c := f.s.capacity(link); f.s.g.Used(link) {
		f.price[link] = math.Exp(max(f.steep*(f.load[link]/c-f.fullest), lowest)) / c
	}
}

// choose finds the columns by the prices, and the bound that these prove: each routing costs at
// least what all commodities cost by their cheapest lists, and at most its utilisation times total.
func (f *flow) choose() {
	f.tariff.set(f.price)
	each(len(f.columns), func(i int) {
		f.columns[i] = f.tariff.cheapest(f.columns[i][:0], &f.r.commodities[i], mostColumns, dear)
		f.costs[i] = f.columns[i][0].cost
	})
	var sum, total float64
	for i := range f.costs {
		sum += f.r.commodities[i].Rate * f.costs[i]
	}
	for link, price := range f.price {
		sum, total = sum+f.r.fixed[link]*price, total+f.s.capacity(link)*price
	}
	if bound := sum / total; bound > f.bound {
		f.bound = bound
		for link, price := range f.price {
			f.prices[link] = price / total
		}
	}
}

// pay is what a bit/s costs by a list now.
func (f *flow) pay(c *commodity, via int32) (cost float64) {
	enter, leave, link := f.s.legs(via)
	if link >= 0 {
		cost = f.price[link]
	}
	for _, s := range f.s.shares.of(c.from, enter) {
		cost += f.price[s.Link] * float64(s.Part)
	}
	for _, s := range f.s.shares.of(leave, c.to) {
		cost += f.price[s.Link] * float64(s.Part)
	}
	return cost
}

// improve has flow of a commodity leave its dearest list for the cheapest; it says whether some
// does.
func (f *flow) improve(commodity int) bool {
	c, list := &f.r.commodities[commodity], f.sent[commodity]
	least, most, cheapest, dearest := math.Inf(1), 0.0, int32(0), 0
	for i, s := range list {
		cost := f.pay(c, s.via)
		if cost < least {
			least, cheapest = cost, s.via
		}
		if cost > most {
			most, dearest = cost, i
		}
	}
	for _, column := range f.columns[commodity] {
		if slices.ContainsFunc(list, func(s sent) bool { return s.via == column.via }) {
			continue
		}
		if cost := f.pay(c, column.via); cost < least {
			least, cheapest = cost, column.via
		}
	}
	if most <= least*(1+level) {
		return false
	}
	f.from.take(c.from, list[dearest].via, c.to)
	f.to.take(c.from, cheapest, c.to)
	f.to.subtract(f.from)
	amount := f.step(list[dearest].amount)
	if amount <= 0 {
		return false
	}
	f.to.carry(f.load, amount)
	for _, link := range f.to.links {
		f.reprice(int(link))
	}
	f.note(commodity, cheapest, amount)
	f.note(commodity, list[dearest].via, -amount)
	return true
}

// step is how much flow has to take the way f.to, at most so much, so that the potential is least: by
// Newton's method, since that is convex.
func (f *flow) step(most float64) (amount float64) {
	for range 3 {
		var slope, bend float64
		for _, l := range f.to.links {
			part, c := f.to.part[l], f.s.capacity(int(l))
			p := f.price[l] * math.Exp(f.steep*amount*part/c) * part
			slope, bend = slope+p, bend+p*part/c
		}
		step := -slope / (bend * f.steep)
		amount = min(max(amount+step, 0), most)
		if amount == most || math.Abs(step) < 0.05*amount {
			break
		}
	}
	return amount
}

// note has a list carry more of a commodity, or less; what carries nothing is none.
func (f *flow) note(commodity int, via int32, amount float64) {
	list := f.sent[commodity]
	at := slices.IndexFunc(list, func(s sent) bool { return s.via == via })
	if at < 0 {
		f.sent[commodity] = append(list, sent{via, amount})
		return
	}
	if list[at].amount += amount; list[at].amount <= 1e-9*f.r.commodities[commodity].Rate {
		f.sent[commodity] = slices.Delete(list, at, at+1)
	}
}

// keep remembers what is sent if it is better.
func (f *flow) keep() {
	u := f.s.largest(f.load)
	if u >= f.found {
		return
	}
	f.found = u
	for i, list := range f.sent {
		f.best[i] = append(f.best[i][:0], list...)
	}
}
