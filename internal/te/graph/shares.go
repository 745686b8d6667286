package graph

// Share is the part of a flow that a link carries.
type Share struct {
	Link int32
	Part float32 // above 0, at most 1
}

// Flows computes shares: it holds what one after the other needs, and is not shared by
// goroutines.
type Flows struct {
	g    *Graph
	node []float64
}

// Flows prepares to compute shares.
func (g *Graph) Flows() *Flows { return &Flows{g: g, node: make([]float64, len(g.Topology.Nodes))} }

// Append appends the shares of a flow: each node sends equal parts by its links of
// shortest paths to the destination. A flow to the node itself, and one without a path,
// has none.
func (f *Flows) Append(shares []Share, from, to int) []Share {
	t := &f.g.to[to]
	if from == to || t.distance[from] == Far {
		return shares
	}
	f.node[from] = 1
	for _, node := range t.order[t.place[from]:] {
		flow := f.node[node]
		if flow == 0 {
			continue
		}
		f.node[node] = 0
		for _, l := range t.next[node] {
			part := flow / float64(len(t.next[node]))
			shares = append(shares, Share{Link: int32(l), Part: float32(part)})
			f.node[f.g.ends[l][1]] += part
		}
	}
	return shares
}
