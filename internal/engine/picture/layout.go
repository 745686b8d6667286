package picture

import (
	"math"
	"slices"
)

// position is where a node is drawn.
type position struct{ x, y float64 }

// rounds of a layout: more move nodes by less than anybody sees.
const rounds = 80

// layout places n nodes so that their distances in the picture are as those by links, as far as
// a plane allows: stress majorization (Gansner, Koren and North, 2004). The unit is a link. The
// longer side is horizontal. It is the same for the same links.
func layout(n int, links [][2]int) []position {
	distances := hops(n, links)
	at := make([]position, n)
	for i := range at { // apart, and on no line: from there nodes find their places
		angle := 2 * math.Pi * float64(i) / float64(n)
		at[i] = position{float64(n) / 4 * math.Cos(angle), float64(n) / 4 * math.Sin(angle)}
	}
	for range rounds {
		for i := range at {
			var to position
			var sum float64
			for j := range at {
				if i == j {
					continue
				}
				d := distances[i][j]
				dx, dy := at[i].x-at[j].x, at[i].y-at[j].y
				apart, weight := max(math.Hypot(dx, dy), 1e-9), 1/(d*d)
				to.x += weight * (at[j].x + d*dx/apart)
				to.y += weight * (at[j].y + d*dy/apart)
				sum += weight
			}
			if sum > 0 {
				at[i] = position{to.x / sum, to.y / sum}
			}
		}
	}
	return lying(at)
}

// hops are the links between each two nodes. Parts that no link joins are as far from each other
// as the longest way in one of them, and a little more.
func hops(n int, links [][2]int) [][]float64 {
	next := make([][]int, n)
	for _, l := range links {
		next[l[0]], next[l[1]] = append(next[l[0]], l[1]), append(next[l[1]], l[0])
	}
	all, longest := make([][]float64, n), 1.0
	for i := range all {
		d := make([]float64, n)
		for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
			for _, j := range next[queue[0]] {
				if j != i && d[j] == 0 {
					d[j] = d[queue[0]] + 1
					longest = max(longest, d[j])
					queue = append(queue, j)
				}
			}
		}
		all[i] = d
	}
	for i, d := range all {
		for j := range d {
			if i != j && d[j] == 0 {
				d[j] = longest + 1
			}
		}
	}
	return all
}

// lying turns the picture so that it is widest horizontally, and begins it at 0, 0.
func lying(at []position) []position {
	if len(at) == 0 {
		return at
	}
	var middle position
	for _, p := range at {
		middle.x += p.x / float64(len(at))
		middle.y += p.y / float64(len(at))
	}
	var xx, xy, yy float64
	for _, p := range at {
		dx, dy := p.x-middle.x, p.y-middle.y
		xx, xy, yy = xx+dx*dx, xy+dx*dy, yy+dy*dy
	}
	sin, cos := math.Sincos(math.Atan2(2*xy, xx-yy) / 2)
	for i, p := range at {
		dx, dy := p.x-middle.x, p.y-middle.y
		at[i] = position{dx*cos + dy*sin, dy*cos - dx*sin}
	}
	left := slices.MinFunc(at, func(a, b position) int { return sign(a.x - b.x) }).x
	top := slices.MinFunc(at, func(a, b position) int { return sign(a.y - b.y) }).y
	for i := range at {
		at[i].x, at[i].y = at[i].x-left, at[i].y-top
	}
	return at
}

func sign(v float64) int {
	switch {
	case v < 0:
		return -1
	case v > 0:
		return 1
	}
	return 0
}
