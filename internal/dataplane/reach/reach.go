// Package reach owns the table ue_reach: what UEs must not reach, and what they may
// reach all the same. A UE that reaches a GTP-U peer can speak to it as this node
// does, so the peers of sessions are in the table as long as rules refer to them.
// Callers hold the data path's lock.
package reach

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Table is the table, and what it is made of.
type Table struct {
	by    *lpm.Table[uint32]         // destination
	said  map[netip.Prefix]abi.Reach // by the configuration
	peers map[netip.Addr]int         // how much refers to each
}

// New takes the table. changed runs after each write.
func New(hash *table.Hash[abi.Lpm6Key, uint32], trie *lpm.Trie, changed func()) *Table {
	leaf := func(reach uint32) uint32 { return reach }
	return &Table{
		by:   lpm.New(lpm.Mixed[uint32]{Hash: hash}, trie, uint32(abi.TrieTableTRIE_REACH), leaf, changed),
		said: map[netip.Prefix]abi.Reach{}, peers: map[netip.Addr]int{},
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
	err := t.by.Sweep()
	t.by.Settle()
	return err
}

// write closes or opens a prefix, or deletes it where neither is asked for.
func (t *Table) write(p netip.Prefix) error {
	if want := t.want(p); want != abi.ReachREACH_NONE {
		return t.by.Put(lpm.At{Prefix: p}, uint32(want))
	}
	return t.by.Delete(lpm.At{Prefix: p})
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
