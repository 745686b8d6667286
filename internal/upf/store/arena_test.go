package store

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Pieces keep what was put into them, whatever is released and put beside them,
// and what was released is used again.
func TestArena(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s arena
	type piece struct{ have, want []byte }
	var list []piece
	random := func() []byte {
		b := make([]byte, r.IntN(arenaMost+arenaGrain))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for range 20_000 {
		b := random()
		switch i := r.IntN(len(list) + 1); {
		case len(list) < 100:
			list = append(list, piece{s.put(b), b})
		case i < len(list) && r.IntN(2) == 0:
			list[i] = piece{s.replace(list[i].have, b), b}
		case i < len(list):
			s.release(list[i].have)
			list[i] = piece{s.put(b), b}
		}
	}
	for i, p := range list {
		if !bytes.Equal(p.have, p.want) {
			t.Fatalf("piece %d of %d octets is not what was put", i, len(p.want))
		}
	}
	one := s.put(make([]byte, 100))
	one[0] = 1
	s.release(one)
	if again := s.put(make([]byte, 100)); &again[0] != &one[0] {
		t.Error("what was released is not used again")
	}
}
