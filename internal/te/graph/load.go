package graph

import (
	"time"

	"github.com/culvert-net/culvert/internal/te"
)

// Way is where a list's packets go: from its headend to each waypoint, and to its endpoint.
type Way struct {
	Shares []Share // of links, one as often as the list visits it
	// Delay is the mean of the paths that share the flow, by their parts, and the longest.
	Delay, Longest time.Duration
}

// Way finds where a list leads. It says false where a waypoint is not there, or one cannot
// be reached from the one before.
func (f *Flows) Way(key te.Key, list te.List) (w Way, leads bool) {
	at, known := f.g.Node(key.Headend)
	end, also := f.g.Node(key.Endpoint)
	if !known || !also {
		return w, false
	}
	for _, p := range list.Waypoints {
		next, known := f.g.Node(p.Node)
		if !known || !f.leg(&w, at, next) {
			return w, false
		}
		if at = next; p.Link == 0 {
			continue
		}
		link := p.Link - 1
		if link < 0 || link >= len(f.g.used) || !f.g.used[link] || f.g.ends[link][0] != at {
			return w, false
		}
		d := f.g.Topology.Links[link].Delay
		w.Shares = append(w.Shares, Share{Link: int32(link), Part: 1})
		w.Delay, w.Longest, at = w.Delay+d, w.Longest+d, f.g.ends[link][1]
	}
	return w, f.leg(&w, at, end)
}

// leg goes on to a node by the IGP.
func (f *Flows) leg(w *Way, from, to int) bool {
	if !f.g.Reaches(from, to) {
		return false
	}
	w.Shares = f.Append(w.Shares, from, to)
	mean, longest := f.g.Delay(from, to)
	w.Delay, w.Longest = w.Delay+mean, w.Longest+longest
	return true
}

// Fate is what becomes of a demand.
type Fate int

// A demand goes by lists, by the IGP where no list leads to its endpoint, or nowhere.
const (
	ByLists Fate = iota
	ByIGP
	Nowhere
)

// Ways finds where a demand's packets go, with the part of the demand that each way carries.
// Weights of lists that lead nowhere go to the others.
func (f *Flows) Ways(key te.Key, lists []te.List) (ways []Way, parts []float64, fate Fate) {
	var sum float64
	for _, l := range lists {
		if w, leads := f.Way(key, l); leads && l.Weight > 0 {
			ways, parts, sum = append(ways, w), append(parts, float64(l.Weight)), sum+float64(l.Weight)
		}
	}
	for i := range parts {
		parts[i] /= sum
	}
	if len(ways) > 0 {
		return ways, parts, ByLists
	}
	if w, leads := f.Way(key, te.List{}); leads {
		return []Way{w}, []float64{1}, ByIGP
	}
	return nil, nil, Nowhere
}

// Load adds to the loads of links, in bit/s, what a demand puts on them.
func (f *Flows) Load(loads []float64, d te.Demand, lists []te.List) Fate {
	ways, parts, fate := f.Ways(d.Key, lists)
	for i, w := range ways {
		for _, s := range w.Shares {
			loads[s.Link] += d.Rate * parts[i] * float64(s.Part)
		}
	}
	return fate
}

// Fullest is the most used of the links that have a load, and its utilisation; -1: none has.
func (g *Graph) Fullest(loads []float64) (link int, utilisation float64) {
	link = -1
	for i, load := range loads {
		if u := load / g.Topology.Links[i].Capacity; load > 0 && u > utilisation {
			link, utilisation = i, u
		}
	}
	return link, utilisation
}
