package signalling

import "time"

// request is a request under way.
type request struct {
	sequence uint32 // that it was sent with, beyond 24 bits too
	under    bool   // way
	smf      int32
	session  int32 // of the SMF's
	sent     time.Duration
}

// pending are requests by sequence number. Numbers are consecutive, except for those
// whose place an older request still has.
type pending struct {
	places []request // a power of two of them
	next   uint32
	count  int
	again  uint32 // no request before it waits for its first T1 to pass
	lost   uint32 // no request before it waits for its second
}

// newPending has places for twice as many requests as can be under way at once.
func newPending(most int, first uint32) *pending {
	size := 64
	for size < 2*most {
		size *= 2
	}
	return &pending{places: make([]request, size), next: first, again: first, lost: first}
}

func (p *pending) place(sequence uint32) *request {
	return &p.places[sequence&uint32(len(p.places)-1)]
}

// add takes a place for a request, and its sequence number.
func (p *pending) add() *request {
	for p.place(p.next).under {
		p.next++
	}
	r := p.place(p.next)
	*r = request{sequence: p.next, under: true}
	p.next++
	p.count++
	return r
}

// find is the request with a sequence number of 24 bits; nil: none is under way.
func (p *pending) find(sequence uint32) *request {
	r := p.place(sequence)
	if !r.under || r.wire() != sequence {
		return nil
	}
	return r
}

// wire is the sequence number in the message.
func (r *request) wire() uint32 { return r.sequence & 0xffffff }

// end takes a request out.
func (p *pending) end(r *request) {
	r.under = false
	p.count--
}

// due calls f with each request that was sent by a time, once, from the number on up to
// which that was done before.
func (p *pending) due(from *uint32, by time.Duration, f func(*request)) {
	for ; *from != p.next; *from++ {
		r := p.place(*from)
		if !r.under || r.sequence != *from {
			continue
		}
		if r.sent > by {
			return
		}
		f(r)
	}
}
