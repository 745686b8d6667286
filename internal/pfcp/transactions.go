package pfcp

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"time"
)

// transactions keeps the answers that we have given, so that a repeated request
// gets the same one (TS 29.244 section 6.4). The key of a request is its sender
// and all of its octets: a peer that has restarted may use a sequence number for
// another request.
//
// There are two generations of answers. When the younger one is old or large
// enough it replaces the older one, whose answers are forgotten. This bounds
// memory and time without an ordered list.
type transactions struct {
	seed       maphash.Seed
	young, old generation
	since      time.Time // when the young generation began
}

type generation struct {
	answers []byte
	at      map[uint64]span
}

// newGeneration allocates room: find must not return nil for an empty answer.
func newGeneration() generation {
	return generation{answers: make([]byte, 0, 1024), at: map[uint64]span{}}
}

type span struct{ from, to uint32 }

const (
	// answerTime is how long an answer is kept at least, unless a generation is
	// full: longer than a peer repeats its request (T1 * N1).
	answerTime = 20 * time.Second
	// answerBytes and answerCount bound a generation.
	answerBytes = 4 << 20
	answerCount = 1 << 16
)

func newTransactions() *transactions {
	return &transactions{seed: maphash.MakeSeed(), young: newGeneration(), old: newGeneration()}
}

func (t *transactions) key(from netip.AddrPort, request []byte) uint64 {
	return maphash.Bytes(t.seed, request) ^ bits.RotateLeft64(maphash.Comparable(t.seed, from), 32)
}

// find returns the answer that was given; nil: none.
func (t *transactions) find(key uint64) []byte {
	for _, g := range [...]*generation{&t.young, &t.old} {
		if s, ok := g.at[key]; ok {
			return g.answers[s.from:s.to]
		}
	}
	return nil
}

// keep keeps an answer.
func (t *transactions) keep(key uint64, answer []byte, now time.Time) {
	full := len(t.young.answers)+len(answer) > answerBytes || len(t.young.at) >= answerCount
	if full || now.Sub(t.since) > answerTime {
		t.young, t.old = t.old, t.young
		clear(t.young.at)
		t.young.answers = t.young.answers[:0]
		t.since = now
	}
	from := len(t.young.answers)
	t.young.answers = append(t.young.answers, answer...)
	t.young.at[key] = span{uint32(from), uint32(len(t.young.answers))}
}
