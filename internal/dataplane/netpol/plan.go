package netpol

import (
	"iter"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/netpol"
)

// stepsAtOnce is how many steps the data path's lock is held for at once. A step is an entry that is
// looked at, planned or written: 1 to 10 us.
const stepsAtOnce = 256

// lock locks the Table, and the data path for stepsAtOnce at once (yield).
func (t *Table) lock() (unlock func()) {
	t.applying.Lock()
	t.mu.Lock()
	t.steps = 0
	return func() {
		t.mu.Unlock()
		t.applying.Unlock()
	}
}

// yield begins a step. It lets others have the data path's lock after so many. Nobody else changes the
// tables meanwhile; pods may come and go.
func (t *Table) yield() {
	if t.steps++; t.steps <= stepsAtOnce {
		return
	}
	t.mu.Unlock()
	t.mu.Lock()
	t.steps = 1
}

// plan are the entries that admit writes. They are found before any is written, so that there is room
// for all of them or nothing changes.
type plan struct {
	rules []abi.NetpolRuleKey
	of    map[uint32]int // how many of each list
}

// plan finds the rules of lists and identities that are new.
func (t *Table) plan(next numbered) (plan, error) {
	p := plan{of: map[uint32]int{}}
	need := map[string]int{} // by namespace
	add := func(list, identity uint32, ports []netpol.Ports) error {
		t.yield()
		before := len(p.rules)
		for _, v := range ports {
			t.yield()
			p.rules = append(p.rules, ruleKeys(list, identity, v)...)
		}
		more := len(p.rules) - before
		p.of[list] += more
		namespace := next.namespaces[list]
		if need[namespace] += more; namespace != "" && need[namespace] > netpol.MaxRules {
			return &netpol.ExceededError{Namespace: namespace, What: netpol.Rules, Need: need[namespace], Limit: netpol.MaxRules}
		}
		return nil
	}
	for i, list := range next.lists {
		if t.inUse[i] != nil {
			need[next.namespaces[i]] += t.sizes[i]
			continue
		}
		if err := add(i, everybody, list.Allows(nil)); err != nil {
			return p, err
		}
		for j, identity := range next.identities {
			if err := add(i, j, list.Allows(identity)); err != nil {
				return p, err
			}
		}
	}
	for j, identity := range next.identities {
		if t.known[j] != nil {
			continue
		}
		for i, list := range t.inUse { // until pods have other lists
			if err := add(i, j, list.Allows(identity)); err != nil {
				return p, err
			}
		}
	}
	return p, t.fits(next, need, len(p.rules))
}

// fits says whether there is room beside what the tables have. The namespace that needs most makes
// room.
func (t *Table) fits(next numbered, rules map[string]int, more int) error {
	if u := t.tables.Rules.Usage(); u.Used+more > u.Max {
		return isFull(rules, netpol.Rules, u)
	}
	fresh := 0
	for key := range next.peers {
		t.yield()
		if _, there := t.tables.Peers.Lookup(key); !there {
			fresh++
		}
	}
	if u := t.tables.Peers.Usage(); u.Used+fresh > u.Max {
		return isFull(next.prefixes, netpol.Prefixes, u)
	}
	return nil
}

func isFull(need map[string]int, what string, u table.Usage) error {
	e := &netpol.ExceededError{What: what, Limit: u.Max, Full: true}
	for namespace, n := range need {
		if namespace != "" && (n > e.Need || n == e.Need && namespace < e.Namespace) {
			e.Namespace, e.Need = namespace, n
		}
	}
	if e.Need == 0 { // of pods alone
		return &table.FullError{Table: "netpol_peer", Max: uint32(u.Max)}
	}
	return e
}

// admit writes what is new: rules, so that nobody misses one, and then peers. moved: an
// address has another identity than before. Where it fails what it has written is removed.
func (t *Table) admit(next numbered, p plan) (moved bool, err error) {
	for i, key := range p.rules {
		t.yield()
		if err := t.tables.Rules.Put(key, 1); err != nil {
			return false, t.undo(p.rules[:i], nil, err)
		}
	}
	var fresh []abi.Lpm6Key
	for key, i := range next.peers {
		t.yield()
		former, had := t.tables.Peers.Lookup(key)
		moved = moved || had && former != i
		if err := t.tables.Peers.Put(key, i); err != nil {
			if moved {
				return moved, err // who has the rules of before
			}
			return moved, t.undo(p.rules, fresh, err)
		}
		if !had {
			fresh = append(fresh, key)
		}
	}
	return moved, nil
}

// undo removes entries that no pod's list has yet.
func (t *Table) undo(rules []abi.NetpolRuleKey, peers []abi.Lpm6Key, because error) error {
	for _, key := range peers {
		t.yield()
		if err := t.tables.Peers.Delete(key); err != nil {
			return err
		}
	}
	for _, key := range rules {
		t.yield()
		if t.inUse[key.List] != nil && t.known[key.Identity] != nil {
			continue
		}
		if err := t.tables.Rules.Delete(key); err != nil {
			return err
		}
	}
	return because
}

// slowly are the elements of a table or a map, between which others may have the data path's lock.
func slowly[K, V any](t *Table, all iter.Seq2[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range all {
			if t.yield(); !yield(k, v) {
				return
			}
		}
	}
}
