package graph

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// treeTo finds the shortest paths to a node (Dijkstra, from the destination on). into has
// the links that lead into each node.
func (g *Graph) treeTo(destination int, into [][]int) tree {
	n := len(g.Topology.Nodes)
	t := tree{place: make([]int, n), next: make([][]int, n), delay: make([]time.Duration, n), longest: make([]time.Duration, n)}
	t.distance, t.order = g.distances(destination, into)
	for i, node := range t.order { // the destination first
		t.place[node] = len(t.order) - 1 - i
		if node != destination {
			g.share(&t, node)
		}
	}
	slices.Reverse(t.order)
	return t
}

// distances are those to a node, and the nodes that lead there, the closest first.
func (g *Graph) distances(destination int, into [][]int) (distance []uint64, order []int) {
	distance = make([]uint64, len(g.Topology.Nodes))
	for i := range distance {
		distance[i] = Far
	}
	distance[destination] = 0
	queue := &frontier{{node: destination}}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(reached)
		if at.distance > distance[at.node] {
			continue
		}
		order = append(order, at.node)
		for _, l := range into[at.node] {
			from, d := g.ends[l][0], at.distance+uint64(g.Topology.Links[l].Metric)
			if d < distance[from] {
				distance[from] = d
				heap.Push(queue, reached{from, d})
			}
		}
	}
	return distance, order
}

// Distances are those to a node where only some links are kept, by node. From where nothing leads
// there it is Far.
func (g *Graph) Distances(to int, keeps []bool) []uint64 {
	into := make([][]int, len(g.Topology.Nodes))
	for i, used := range g.used {
		if used && keeps[i] {
			into[g.ends[i][1]] = append(into[g.ends[i][1]], i)
		}
	}
	distance, _ := g.distances(to, into)
	return distance
}

// share finds the links that a node's packets share, and their delay. Those of the nodes
// closer to the destination are known.
func (g *Graph) share(t *tree, node int) {
	for _, l := range g.out[node] {
		to := g.ends[l][1]
		if t.distance[to] == Far || t.distance[node] != t.distance[to]+uint64(g.Topology.Links[l].Metric) {
			continue
		}
		t.next[node] = append(t.next[node], l)
		d := g.Topology.Links[l].Delay
		t.delay[node] += d + t.delay[to]
		t.longest[node] = max(t.longest[node], d+t.longest[to])
	}
	t.delay[node] /= time.Duration(len(t.next[node]))
}

// reached is a node with the length of a path from it.
type reached struct {
	node     int
	distance uint64
}

// frontier is a heap of nodes, the closest first.
type frontier []reached

func (f frontier) Len() int { return len(f) }
func (f frontier) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(f[i].distance, f[j].distance), cmp.Compare(f[i].node, f[j].node)) < 0
}
func (f frontier) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *frontier) Push(x any)   { *f = append(*f, x.(reached)) }
func (f *frontier) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
