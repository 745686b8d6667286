package adjacency

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// count is how many parts each next hop has.
func count(parts []uint32) map[uint32]int {
	out := map[uint32]int{}
	for _, index := range parts {
		out[index]++
	}
	return out
}

// moved is how many parts differ.
func moved(a, b []uint32) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func TestDivide(t *testing.T) {
	parts := make([]uint32, 64)
	three := []share{{7, 1}, {8, 1}, {9, 1}}
	divide(parts, three)
	if c := count(parts); c[7] != 22 || c[8] != 21 || c[9] != 21 {
		t.Fatalf("three next hops have %v", c)
	}
	whole := slices.Clone(parts)
	divide(parts, three)
	if n := moved(whole, parts); n != 0 {
		t.Errorf("nothing changed, and %d parts move", n)
	}
	divide(parts, []share{{7, 1}, {8, 0}, {9, 1}}) // one goes
	if c := count(parts); c[7] != 32 || c[9] != 32 || moved(whole, parts) != 21 {
		t.Errorf("without the second they have %v, and %d parts moved", c, moved(whole, parts))
	}
	two := slices.Clone(parts)
	divide(parts, three) // and returns
	if c := count(parts); c[7] < 21 || c[8] != 21 || c[9] < 21 || moved(two, parts) != 21 {
		t.Errorf("with it again they have %v, and %d parts moved", c, moved(two, parts))
	}
	divide(parts, []share{{7, 3}, {8, 1}})
	if c := count(parts); c[7] != 48 || c[8] != 16 {
		t.Errorf("by weights 3 to 1 they have %v", c)
	}
	divide(parts, []share{{7, 0}, {8, 0}})
	if c := count(parts); c[0] != 64 {
		t.Errorf("none is left, and they have %v", c)
	}
}

// Whatever comes and goes, each next hop has its share to the next whole part, a part moves
// only from a next hop that has too many or none, and if one goes, nobody else's moves.
func TestDivideMovesNoMoreThanItMust(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		parts := make([]uint32, 64)
		shares := make([]share, 1+random.IntN(7))
		for i := range shares {
			shares[i] = share{index: uint32(i + 1), weight: 1 + random.IntN(3)}
		}
		for range 20 {
			gone := random.IntN(len(shares))
			was := shares[gone].weight
			shares[gone].weight = random.IntN(4)
			before := slices.Clone(parts)
			divide(parts, shares)
			total := 0
			for _, s := range shares {
				total += s.weight
			}
			if total == 0 {
				continue
			}
			has := count(parts)
			for _, s := range shares {
				if low, high := 64*s.weight/total, (64*s.weight+total-1)/total; has[s.index] < low || has[s.index] > high {
					t.Fatalf("%+v: next hop %d has %d parts, want %d to %d", shares, s.index, has[s.index], low, high)
				}
			}
			for i := range parts {
				if shares[gone].weight == 0 && was > 0 && before[i] != 0 && before[i] != shares[gone].index && parts[i] != before[i] {
					t.Fatalf("%+v: next hop %d went, and part %d moves from %d to %d", shares, shares[gone].index, i, before[i], parts[i])
				}
			}
		}
	}
}
