// Package netpol owns the tables by which the data path enforces NetworkPolicies: who peers
// are, what lists of rules allow them, which pods have which lists; and the hook in the
// kernel's forwarding.
//
//  1. Enforce, before pods are put.
//  2. Apply, whenever pods, peers or policies change. What an earlier daemon had applied
//     counts until the first.
//
// The data path's lock guards the Table. Its methods take it.
package netpol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/netip"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/netpol"
)

// Tables are the maps.
type Tables struct {
	Peers *table.Hash[abi.Lpm6Key, uint32]       `map:"netpol_peer"`
	Rules *table.Hash[abi.NetpolRuleKey, uint32] `map:"netpol_rule"`
}

// everybody is the identity of rules that do not ask for one.
const everybody = uint32(abi.NetpolLimitsNO_IDENTITY)

// Table is all of it.
type Table struct {
	mu     *sync.Mutex
	tables Tables
	names  *table.Names
	pods   *pod.Table
	hook   *attach.Netfilter

	lists      numbers
	identities numbers
	// What was applied last. Of an earlier daemon only the numbers are known.
	inUse   map[uint32]*netpol.List
	known   map[uint32]*netpol.Identity
	applied bool
}

// Open finds what an earlier daemon applied. mu is the data path's lock.
func Open(mu *sync.Mutex, tables Tables, names *table.Names, pods *pod.Table, hook *attach.Netfilter) *Table {
	return &Table{
		mu: mu, tables: tables, names: names, pods: pods, hook: hook,
		lists:      restore(names, table.NameList, uint32(abi.NetpolLimitsCLOSED_LIST)),
		identities: restore(names, table.NameIdentity, everybody),
		inUse:      map[uint32]*netpol.List{}, known: map[uint32]*netpol.Identity{},
	}
}

// Enforce has new pods closed until Apply knows them, and what the kernel forwards from and
// to pods asked about. false: nobody is isolated any more.
func (t *Table) Enforce(enforce bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.pods.Enforce(enforce); err != nil {
		return err
	}
	if enforce {
		return t.hook.Attach()
	}
	return errors.Join(t.apply(netpol.Desired{}), t.hook.Detach())
}

// Apply brings the tables to what is desired. At each moment a pod has the rules of before
// or those of afterwards; flows that no rule allows any more end. Pods of this node that
// desired does not name are isolated as they are.
func (t *Table) Apply(desired netpol.Desired) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.apply(desired)
}

func (t *Table) apply(desired netpol.Desired) error {
	next, err := t.number(desired)
	if err != nil {
		return err
	}
	moved, err := t.admit(next)
	if err != nil {
		return err
	}
	if err := t.isolate(next, desired); err != nil {
		return err
	}
	gone, err := t.forget(next)
	if err == nil && (moved || gone) {
		err = t.pods.Renew()
	}
	if err == nil {
		t.inUse, t.known, t.applied = next.lists, next.identities, true
	}
	return err
}

// numbered is what is desired, with the numbers of the tables.
type numbered struct {
	lists      map[uint32]*netpol.List
	identities map[uint32]*netpol.Identity
	peers      map[abi.Lpm6Key]uint32
	pods       map[int]pod.Lists
}

func (t *Table) number(desired netpol.Desired) (numbered, error) {
	n := numbered{map[uint32]*netpol.List{}, map[uint32]*netpol.Identity{}, map[abi.Lpm6Key]uint32{}, map[int]pod.Lists{}}
	numberOf := map[*netpol.Identity]uint32{}
	for peer, identity := range desired.Peers {
		i, ok := numberOf[identity]
		if !ok {
			var err error
			if i, err = t.identities.of(identity.Key()); err != nil {
				return n, err
			}
			numberOf[identity], n.identities[i] = i, identity
		}
		n.peers[peerKey(peer)] = i
	}
	listOf := func(l *netpol.List) (uint32, error) {
		if l == nil {
			return 0, nil
		}
		i, err := t.lists.of(l.Key())
		n.lists[i] = l
		return i, err
	}
	for ifindex, isolation := range desired.Pods {
		ingress, err := listOf(isolation.Ingress)
		egress, err2 := listOf(isolation.Egress)
		if err = errors.Join(err, err2); err != nil {
			return n, err
		}
		n.pods[ifindex] = pod.Lists{Ingress: ingress, Egress: egress}
	}
	return n, nil
}

// admit writes what is new: rules, so that nobody misses one, and then peers. moved: an
// address has another identity than before.
func (t *Table) admit(next numbered) (moved bool, err error) {
	for i, list := range next.lists {
		if t.inUse[i] != nil {
			continue
		}
		if err := t.allow(i, everybody, list.Allows(nil)); err != nil {
			return false, err
		}
		for j, identity := range next.identities {
			if err := t.allow(i, j, list.Allows(identity)); err != nil {
				return false, err
			}
		}
	}
	for j, identity := range next.identities {
		if t.known[j] != nil {
			continue
		}
		for i, list := range t.inUse { // until pods have other lists
			if err := t.allow(i, j, list.Allows(identity)); err != nil {
				return false, err
			}
		}
	}
	for key, i := range next.peers {
		former, had := t.tables.Peers.Lookup(key)
		moved = moved || had && former != i
		if err := t.tables.Peers.Put(key, i); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

func (t *Table) allow(list, identity uint32, ports []netpol.Ports) error {
	for _, p := range ports {
		for _, key := range ruleKeys(list, identity, p) {
			if err := t.tables.Rules.Put(key, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// isolate gives pods their lists.
func (t *Table) isolate(next numbered, desired netpol.Desired) error {
	for ifindex := range t.pods.ListsOf() {
		lists, named := next.pods[ifindex]
		if !named && desired.Pods != nil {
			continue
		}
		if err := t.pods.SetLists(ifindex, lists); err != nil {
			return err
		}
	}
	return nil
}

// forget removes what nobody has any more. gone: an address has no identity, and may get
// another.
func (t *Table) forget(next numbered) (gone bool, err error) {
	for key := range t.tables.Peers.All() {
		if _, wanted := next.peers[key]; !wanted {
			gone = true
			if err := t.tables.Peers.Delete(key); err != nil {
				return gone, err
			}
		}
	}
	kept := map[uint32]bool{}
	for _, l := range t.pods.ListsOf() {
		kept[l.Ingress], kept[l.Egress] = true, true
	}
	for i, list := range t.inUse {
		if kept[i] {
			next.lists[i] = list
		}
	}
	isKept := func(i uint32) bool { return next.lists[i] != nil || kept[i] }
	isKnown := func(i uint32) bool { return next.identities[i] != nil || i == everybody }
	lists, err := t.lists.keep(isKept)
	identities, err2 := t.identities.keep(isKnown)
	if err = errors.Join(err, err2); err != nil || t.applied && !lists && !identities {
		return gone, err
	}
	for key := range t.tables.Rules.All() {
		if isKept(key.List) && isKnown(key.Identity) {
			continue
		}
		if err := t.tables.Rules.Delete(key); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// Usage says how full the tables are.
func (t *Table) Usage() (peers, rules table.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tables.Peers.Usage(), t.tables.Rules.Usage()
}

// Enforced says whether the kernel's forwarding is asked about.
func (t *Table) Enforced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hook.Attached()
}

// peerKey is a key of netpol_peer: each tenant has a table for each family.
func peerKey(p netpol.Peer) abi.Lpm6Key {
	prefix, number := p.Prefix.Masked(), uint32(p.Tenant)<<1
	if prefix.Addr().Is4() {
		key := abi.Lpm6Key{Prefixlen: 32 + uint32(prefix.Bits()), Table: number}
		b := prefix.Addr().As4()
		copy(key.Addr.B[:], b[:])
		return key
	}
	return abi.LPM6(number+1, netip.PrefixFrom(prefix.Addr(), prefix.Bits()))
}

// ruleKeys are the entries of netpol_rule that allow these ports: one for each block of
// ports whose number is a power of two.
func ruleKeys(list, identity uint32, p netpol.Ports) (keys []abi.NetpolRuleKey) {
	key := abi.NetpolRuleKey{Prefixlen: uint32(abi.NetpolLimitsRULE_BITS_PEER), List: list, Identity: identity}
	if p.Protocol == 0 {
		return append(keys, key)
	}
	key.Protocol = abi.BE16(uint16(p.Protocol))
	for first, last := uint32(p.First), uint32(p.Last); first <= last; {
		bits := uint32(16)
		for bits > 0 {
			size := uint32(1) << (16 - bits + 1)
			if first%size != 0 || first+size-1 > last {
				break
			}
			bits--
		}
		key.Prefixlen, key.Port = uint32(abi.NetpolLimitsRULE_BITS_PROTOCOL)+bits, abi.BE16(uint16(first))
		keys = append(keys, key)
		first += 1 << (16 - bits)
	}
	return keys
}

// numbers gives each key a number, the same to the next daemon.
type numbers struct {
	names    *table.Names
	kind     uint32
	byDigest map[string]uint32 // of the key
	last     uint32
}

func restore(names *table.Names, kind, reserved uint32) numbers {
	n := numbers{names: names, kind: kind, byDigest: map[string]uint32{}, last: reserved}
	for i, digest := range names.All(kind) {
		n.byDigest[digest] = i
		n.last = max(n.last, i)
	}
	return n
}

func (n *numbers) of(key string) (uint32, error) {
	sum := sha256.Sum256([]byte(key))
	digest := hex.EncodeToString(sum[:])
	if i, ok := n.byDigest[digest]; ok {
		return i, nil
	}
	if err := n.names.Put(n.kind, n.last+1, digest); err != nil {
		return 0, err
	}
	n.last++
	n.byDigest[digest] = n.last
	return n.last, nil
}

// keep forgets the numbers that are not wanted. forgot: there were some.
func (n *numbers) keep(wanted func(uint32) bool) (forgot bool, err error) {
	for digest, i := range maps.All(n.byDigest) {
		if wanted(i) {
			continue
		}
		forgot = true
		if err := n.names.Delete(n.kind, i); err != nil {
			return forgot, err
		}
		delete(n.byDigest, digest)
	}
	return forgot, nil
}
