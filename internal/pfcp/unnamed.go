package pfcp

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/pfcp/request"
	"github.com/culvert-net/culvert/internal/session"
)

// unnamed has the sessions of an association that no request has named by their SEID
// since they were established, or since a restart, by their CP F-SEIDs. Of these alone
// the SMF may not have got the SEID: if it repeats the establishment it gets the answer
// again. All workers use it: a repetition comes to the worker of its sequence number,
// which another start may have with another number of workers.
type unnamed struct {
	// mu and seids are of a share of the keys. Two CP F-SEIDs with one key cost the
	// first its second answer, nothing else.
	shards [16]struct {
		mu    sync.Mutex
		seids map[uint64]uint64 // our SEIDs by keyOf the CP F-SEID
	}
}

var keySeed = maphash.MakeSeed()

// keyOf returns the key of a CP F-SEID.
func keyOf(seid uint64, addr netip.Addr) uint64 {
	type fseid struct {
		seid uint64
		addr netip.Addr
	}
	return maphash.Comparable(keySeed, fseid{seid, addr})
}

// put adds a session.
func (u *unnamed) put(s *session.Session) {
	key := keyOf(s.CPSEID, s.CPAddr)
	shard := &u.shards[key%uint64(len(u.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.seids == nil {
		shard.seids = map[uint64]uint64{}
	}
	shard.seids[key] = s.SEID
}

// restored is a session of an earlier process.
type restored struct{ key, seid uint64 }

// fill adds all sessions of an earlier process, before anybody else uses u: maps that are made
// for so many take half the time.
func (u *unnamed) fill(all []restored) {
	var sizes [len(u.shards)]int
	for _, r := range all {
		sizes[r.key%uint64(len(u.shards))]++
	}
	for i, n := range sizes {
		if n > 0 {
			u.shards[i].seids = make(map[uint64]uint64, n)
		}
	}
	for _, r := range all {
		u.shards[r.key%uint64(len(u.shards))].seids[r.key] = r.seid
	}
}

// find returns the SEID of the session with the CP F-SEID of s, and whether there is one.
func (u *unnamed) find(s *session.Session) (uint64, bool) {
	key := keyOf(s.CPSEID, s.CPAddr)
	shard := &u.shards[key%uint64(len(u.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	seid, found := shard.seids[key]
	return seid, found
}

// remove removes a session, and says whether it was there.
func (u *unnamed) remove(s *session.Session) bool {
	key := keyOf(s.CPSEID, s.CPAddr)
	shard := &u.shards[key%uint64(len(u.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if seid, found := shard.seids[key]; !found || seid != s.SEID {
		return false
	}
	if delete(shard.seids, key); len(shard.seids) == 0 {
		shard.seids = nil // a map keeps the memory of what it has had
	}
	return true
}

// repeated returns the session that an establishment has made before, with what the
// request left to us; nil: none. It is the same request if it makes the same session.
func (w *worker) repeated(b *request.Builder, of *association) (*session.Session, *allocation) {
	seid, found := of.unnamed.find(b.To)
	if !found {
		return nil, nil
	}
	s := w.s.upf.Session(seid)
	if s == nil {
		return nil, nil
	}
	to := *b.To
	to.SEID, to.Node, to.PDRs = s.SEID, of.node, slices.Clone(to.PDRs)
	a := &allocation{}
	for i := range b.Wants {
		want := &b.Wants[i]
		pdr, had := to.PDR(want.PDR), s.PDR(want.PDR)
		if pdr == nil || had == nil {
			return nil, nil
		}
		c, ok := chosenBefore(want, pdr, &had.PDI)
		if !ok {
			return nil, nil
		}
		a.chosen = append(a.chosen, c)
	}
	if !same(&to, s) {
		return nil, nil
	}
	return s, a
}

// chosenBefore gives a PDR what we chose for it before: had is its PDI of then. ok is
// false if had lacks what the request leaves to us.
func chosenBefore(want *request.Want, pdr *session.PDR, had *session.PDI) (c chosen, ok bool) {
	c = chosen{Want: want, pdr: pdr, teid: want.FTEID.Choose}
	pdi := &pdr.PDI
	if c.teid {
		pdi.TEID, pdi.TEID4, pdi.TEID6, pdi.ChooseID = had.TEID, had.TEID4, had.TEID6, want.FTEID.ChooseID
		ok = had.TEID != 0
	}
	if want.Choose4 || want.Choose6 {
		c.ues = had.UE[min(len(pdi.UE), len(had.UE)):]
		pdi.UE = slices.Concat(pdi.UE, c.ues)
		ok = (ok || !c.teid) &&
			want.Choose4 == slices.ContainsFunc(c.ues, func(p netip.Prefix) bool { return p.Addr().Is4() }) &&
			want.Choose6 == slices.ContainsFunc(c.ues, func(p netip.Prefix) bool { return p.Addr().Is6() })
	}
	return c, ok
}

// same says whether two sessions say the same, whatever they have in memory.
func same(a, b *session.Session) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
