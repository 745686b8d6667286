package session

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/dchest/siphash"
)

// secret orders numbers so that nobody without it can tell which one follows. It lives as
// long as the process: what was handed out is in the sessions and in their entries, so a
// restart needs no key to find it.
type secret struct{ a, b uint64 }

func newSecret() secret {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	return secret{binary.NativeEndian.Uint64(key[:]), binary.NativeEndian.Uint64(key[8:])}
}

// order is the number at a position of a secret order of 256 numbers: a Feistel network of
// four rounds with SipHash. Each of `of` has an order of its own.
func (s secret) order(of uint64, position uint8) uint8 {
	var in [10]byte
	binary.NativeEndian.PutUint64(in[:], of)
	left, right := position>>4, position&15
	for round := range uint8(4) {
		in[8], in[9] = round, right
		left, right = right, left^uint8(siphash.Hash(s.a, s.b, in[:]))&15
	}
	return left<<4 | right
}
