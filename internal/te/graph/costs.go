package graph

import "math"

// Costs has in cost, by node, what a unit of flow to a destination costs where each link costs
// what price says: the sum over links of price times part. Nodes without a path have +Inf.
func (g *Graph) Costs(to int, price, cost []float64) {
	for i := range cost {
		cost[i] = math.Inf(1)
	}
	t := &g.to[to]
	cost[to] = 0
	for i := len(t.order) - 2; i >= 0; i-- { // the closest first
		node := t.order[i]
		var sum float64
		for _, l := range t.next[node] {
			sum += price[l] + cost[g.ends[l][1]]
		}
		cost[node] = sum / float64(len(t.next[node]))
	}
}

// All says by node whether each link that a flow to a destination takes has a property. Nodes
// without a path have not.
func (g *Graph) All(to int, has, all []bool) {
	clear(all)
	t := &g.to[to]
	all[to] = true
	for i := len(t.order) - 2; i >= 0; i-- {
		node := t.order[i]
		all[node] = true
		for _, l := range t.next[node] {
			all[node] = all[node] && has[l] && all[g.ends[l][1]]
		}
	}
}
