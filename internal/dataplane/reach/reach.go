// Package reach owns the table ue_reach: what UEs must not reach, and what they may
// reach all the same. A UE that reaches a GTP-U peer can speak to it as this node
// does, so the peers of sessions are in the table as long as rules refer to them.
// Callers hold the data path's lock.
package reach

import (
	"errors"
	"iter"
	"maps"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Table is the table, and what it is made of.
type Table struct {
	hash  *table.Hash[abi.Lpm6Key, uint32]
	said  map[netip.Prefix]abi.Reach // by the configuration
	peers map[netip.Addr]int         // how much refers to each
	near  func(netip.Prefix)         // New
}

// New takes the table. changed runs after each write, and nearV4 before each of an IPv4 prefix.
func New(hash *table.Hash[abi.Lpm6Key, uint32], changed func(), nearV4 func(netip.Prefix)) *Table {
	hash.Changed = changed
	t := &Table{hash: hash, said: map[netip.Prefix]abi.Reach{}, peers: map[netip.Addr]int{}, near: nearV4}
	for p := range t.NearV4() {
		nearV4(p)
	}
	return t
}

// NearV4 are the IPv4 prefixes in the table.
func (t *Table) NearV4() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for k := range t.hash.All() {
			if k.Table == familyV4 && !yield(netip.PrefixFrom(netip.AddrFrom4([4]byte(k.Addr.B[:4])), int(k.Prefixlen)-32)) {
				return
			}
		}
	}
}

// Set closes prefixes to UEs, and opens others. A prefix that is in both is closed. Of
// an address the longest prefix decides, but a peer in an open prefix is open.
func (t *Table) Set(closed, open []netip.Prefix) error {
	former := t.said
	t.said = make(map[netip.Prefix]abi.Reach, len(closed)+len(open))
	for _, p := range open {
		t.said[p.Masked()] = abi.ReachREACH_OPEN
	}
	for _, p := range closed {
		t.said[p.Masked()] = abi.ReachREACH_CLOSED
	}
	if maps.Equal(former, t.said) {
		return nil
	}
	var errs []error
	for p := range t.said {
		errs = append(errs, t.write(p))
	}
	for p := range former {
		errs = append(errs, t.write(p))
	}
	for a := range t.peers {
		errs = append(errs, t.write(host(a)))
	}
	return errors.Join(errs...)
}

// Use closes the address of a peer to UEs, until as many calls of Unuse.
func (t *Table) Use(peer netip.Addr) error {
	t.peers[peer]++
	if t.peers[peer] > 1 {
		return nil
	}
	if err := t.write(host(peer)); err != nil {
		delete(t.peers, peer)
		return err
	}
	return nil
}

// Unuse ends a Use.
func (t *Table) Unuse(peer netip.Addr) error {
	if t.peers[peer]--; t.peers[peer] > 0 {
		return nil
	}
	delete(t.peers, peer)
	return t.write(host(peer))
}

// Sweep removes what an earlier daemon had closed or opened and this one has not.
func (t *Table) Sweep() error {
	err := t.hash.Sweep()
	t.hash.Settle()
	return err
}

// write closes or opens a prefix, or deletes it where neither is asked for.
func (t *Table) write(p netip.Prefix) error {
	if want := t.want(p); want != abi.ReachREACH_NONE {
		if p.Addr().Is4() {
			t.near(p)
		}
		return t.hash.Put(keyOf(p), uint32(want))
	}
	return t.hash.Delete(keyOf(p))
}

func (t *Table) want(p netip.Prefix) abi.Reach {
	if said := t.said[p]; said != abi.ReachREACH_NONE || !p.IsSingleIP() || t.peers[p.Addr()] == 0 {
		return said
	}
	for open, said := range t.said {
		if said == abi.ReachREACH_OPEN && open.Contains(p.Addr()) {
			return abi.ReachREACH_NONE
		}
	}
	return abi.ReachREACH_CLOSED
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// The families, in the place of a routing table.
const familyV4, familyV6 = 4, 6

func keyOf(p netip.Prefix) abi.Lpm6Key {
	p = p.Masked()
	k := abi.Lpm6Key{Prefixlen: 32 + uint32(p.Bits()), Table: familyV6}
	if p.Addr().Is4() {
		k.Table = familyV4
	}
	copy(k.Addr.B[:], p.Addr().AsSlice())
	return k
}
