// Package netpol owns the tables by which the data path enforces NetworkPolicies: who peers
// are, what lists of rules allow them, which pods have which lists; and the hook in the
// kernel's forwarding, which is there while a pod is isolated.
//
//  1. Enforce, before pods are put.
//  2. Apply, whenever pods, peers or policies change. What an earlier daemon had applied
//     counts until the first.
//
// Its methods take the data path's lock. A large change does not hold it: others have it between two
// entries. So a Table has a lock of its own, which comes first.
package netpol

import (
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
	applying sync.Mutex // held over a whole change

	mu     sync.Locker // the data path's
	steps  int         // of a change since it has taken mu
	tables Tables
	pods   *pod.Table
	hook   *attach.Netfilter
	grace  *table.Grace

	lists      numbers
	identities numbers
	// epoch tells this daemon's peers from those of the daemon before it, whose pods keep
	// theirs until they have lists of this one.
	epoch uint32
	// What was applied last.
	inUse map[uint32]*netpol.List
	sizes map[uint32]int // of inUse, in rules
	known map[uint32]*netpol.Identity
	// former: there may be rules of lists of an earlier daemon.
	former bool
}

// A table of peers has a number: the epoch, the tenant, and 1 for IPv6.
const (
	epochShift  = 9
	tenantShift = 1
)

// Open finds what an earlier daemon applied. mu is the data path's lock.
func Open(mu sync.Locker, tables Tables, pods *pod.Table, hook *attach.Netfilter, grace *table.Grace) *Table {
	t := &Table{
		mu: mu, tables: tables, pods: pods, hook: hook, grace: grace,
		lists:      numbers{map[string]uint32{}, uint32(abi.NetpolLimitsCLOSED_LIST)},
		identities: numbers{map[string]uint32{}, everybody},
		inUse:      map[uint32]*netpol.List{}, sizes: map[uint32]int{}, known: map[uint32]*netpol.Identity{}, former: true,
	}
	for key := range tables.Rules.All() {
		t.lists.last, t.identities.last = max(t.lists.last, key.List), max(t.identities.last, key.Identity)
	}
	for key, identity := range tables.Peers.All() {
		t.identities.last, t.epoch = max(t.identities.last, identity), max(t.epoch, key.Table>>epochShift)
	}
	for _, l := range pods.ListsOf() {
		t.lists.last, t.epoch = max(t.lists.last, l.Ingress, l.Egress), max(t.epoch, l.Peers>>epochShift)
	}
	t.epoch++
	pods.Isolating = func() error { return hook.Police(true) }
	return t
}

// Enforce has new pods closed until Apply knows them. What the kernel forwards is asked about, too, at
// least until Apply finds no pod isolated: so a kernel that cannot ask says so here. false: nobody is
// isolated any more.
func (t *Table) Enforce(enforce bool) error {
	defer t.lock()()
	if err := t.pods.Enforce(enforce); err != nil {
		return err
	}
	if enforce {
		return t.hook.Police(true)
	}
	return t.apply(netpol.Desired{})
}

// Apply brings the tables to what is desired. At each moment a pod has the rules of before
// or those of afterwards; flows that no rule allows any more end. Pods of this node that
// desired does not name are isolated as they are. *netpol.ExceededError: a namespace needs more than
// there is room for, and nothing has changed.
func (t *Table) Apply(desired netpol.Desired) error {
	defer t.lock()()
	return t.apply(desired)
}

func (t *Table) apply(desired netpol.Desired) error {
	next := t.number(desired)
	p, err := t.plan(next)
	if err != nil {
		t.renumber()
		return err
	}
	moved, err := t.admit(next, p)
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
	if err != nil {
		return err
	}
	t.use(next, p)
	if t.pods.AnyIsolated() {
		return nil
	}
	return t.hook.Police(false)
}

// use keeps what was applied.
func (t *Table) use(next numbered, p plan) {
	t.inUse, t.known = next.lists, next.identities
	for i, n := range p.of {
		t.sizes[i] += n
	}
	maps.DeleteFunc(t.sizes, func(i uint32, _ int) bool { return t.inUse[i] == nil })
}

// renumber forgets the numbers of what was not applied.
func (t *Table) renumber() {
	t.lists.keep(func(i uint32) bool { return t.inUse[i] != nil })
	t.identities.keep(func(i uint32) bool { return t.known[i] != nil })
}

// numbered is what is desired, with the numbers of the tables.
type numbered struct {
	lists      map[uint32]*netpol.List
	identities map[uint32]*netpol.Identity
	peers      map[abi.Lpm6Key]uint32
	pods       map[int]pod.Lists
	namespaces map[uint32]string // of lists
	prefixes   map[string]int    // by namespace
}

func (t *Table) number(desired netpol.Desired) numbered {
	n := numbered{
		lists: map[uint32]*netpol.List{}, identities: map[uint32]*netpol.Identity{}, peers: map[abi.Lpm6Key]uint32{}, pods: map[int]pod.Lists{},
		namespaces: map[uint32]string{}, prefixes: desired.Prefixes,
	}
	numberOf := map[*netpol.Identity]uint32{}
	for peer, identity := range slowly(t, maps.All(desired.Peers)) {
		i, ok := numberOf[identity]
		if !ok {
			i = t.identities.of(identity.Key())
			numberOf[identity], n.identities[i] = i, identity
		}
		n.peers[t.peerKey(peer)] = i
	}
	listOf := func(l *netpol.List, namespace string) (i uint32) {
		if l != nil {
			i = t.lists.of(l.Key())
			n.lists[i], n.namespaces[i] = l, namespace
		}
		return i
	}
	for ifindex, isolation := range desired.Pods {
		n.pods[ifindex] = pod.Lists{
			Ingress: listOf(isolation.Ingress, isolation.Namespace), Egress: listOf(isolation.Egress, isolation.Namespace), Peers: t.peersOf(t.pods.TenantOf(ifindex)),
		}
	}
	return n
}

// peersOf is the table of a tenant's peers.
func (t *Table) peersOf(tenant uint8) uint32 {
	return t.epoch<<epochShift | uint32(tenant)<<tenantShift
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

// forget removes what nobody has any more, once no packet is asking by it. gone: an address has no
// identity, and may get another.
func (t *Table) forget(next numbered) (gone bool, err error) {
	t.grace.Wait()
	kept, epochs := map[uint32]bool{}, map[uint32]bool{}
	for _, l := range t.pods.ListsOf() {
		kept[l.Ingress], kept[l.Egress] = true, true
		epochs[l.Peers>>epochShift] = l.Ingress|l.Egress != 0 || epochs[l.Peers>>epochShift]
	}
	for key := range slowly(t, t.tables.Peers.All()) {
		_, wanted := next.peers[key]
		if epoch := key.Table >> epochShift; wanted || epoch != t.epoch && epochs[epoch] {
			continue
		}
		gone = true
		if err := t.tables.Peers.Delete(key); err != nil {
			return gone, err
		}
	}
	for i, list := range t.inUse {
		if kept[i] {
			next.lists[i] = list
		}
	}
	isKept := func(i uint32) bool { return next.lists[i] != nil || kept[i] }
	isKnown := func(i uint32) bool { return next.identities[i] != nil || i == everybody }
	lists, identities := t.lists.keep(isKept), t.identities.keep(isKnown)
	if !t.former && !lists && !identities {
		return gone, nil
	}
	t.former = false
	for key := range slowly(t, t.tables.Rules.All()) {
		_, ours := next.lists[key.List]
		if kept := isKept(key.List); kept && !ours {
			t.former = true
			continue
		} else if kept && isKnown(key.Identity) {
			continue
		}
		if err := t.tables.Rules.Delete(key); err != nil {
			return gone, err
		}
		if t.inUse[key.List] != nil {
			t.sizes[key.List]--
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

// AsksKernel says whether what the kernel forwards is asked about.
func (t *Table) AsksKernel() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hook.Polices()
}

// peerKey is a key of netpol_peer.
func (t *Table) peerKey(p netpol.Peer) abi.Lpm6Key {
	prefix, number := p.Prefix.Masked(), t.peersOf(p.Tenant)
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

// numbers gives each key a number that none had before.
type numbers struct {
	byKey map[string]uint32
	last  uint32
}

func (n *numbers) of(key string) uint32 {
	i, ok := n.byKey[key]
	if !ok {
		n.last++
		i = n.last
		n.byKey[key] = i
	}
	return i
}

// keep forgets the numbers that are not wanted. forgot: there were some.
func (n *numbers) keep(wanted func(uint32) bool) (forgot bool) {
	for key, i := range n.byKey {
		if !wanted(i) {
			forgot = true
			delete(n.byKey, key)
		}
	}
	return forgot
}
