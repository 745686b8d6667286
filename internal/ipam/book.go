package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.etcd.io/bbolt"
)

// Reasons why there is no address.
var (
	// ErrExhausted: every address of a family is held.
	ErrExhausted = errors.New("no address is left")
	// ErrNoPrefix: there is no prefix to take addresses from.
	ErrNoPrefix = errors.New("this node has no prefix for pods")
)

var (
	leaseBucket = []byte("lease")
	turnBucket  = []byte("lease-turn") // the last address given, by prefix
)

// Key names an attachment, as CNI does: a container's interface.
type Key struct {
	ContainerID string `json:"container_id"`
	Interface   string `json:"interface"`
}

// String is "container/interface".
func (k Key) String() string { return k.ContainerID + "/" + k.Interface }

func (k Key) bytes() []byte { return []byte(k.String()) }

// Lease is the addresses of an attachment, and what its holder stored with them.
type Lease[T any] struct {
	Key
	Tenant    uint8        `json:"tenant,omitempty"` // its id; 0: none
	Addresses []netip.Addr `json:"addresses"`
	Holder    T            `json:"holder"`
}

// Pool is how full a prefix is.
type Pool struct {
	Prefix netip.Prefix `json:"prefix"`
	Used   uint64       `json:"used"`
	Size   uint64       `json:"size"`
	Tenant uint8        `json:"tenant,omitempty"`
}

// Book is the node's addresses. Each tenant has addresses of its own, which may be the
// same as others'. The methods may be called from any goroutine, but those about one key
// one after the other.
type Book[T any] struct {
	db    *bbolt.DB
	isNew bool

	mu       sync.Mutex
	prefixes map[uint8][]netip.Prefix // by tenant
	leases   map[Key]Lease[T]
	used     map[home]bool
	turn     map[source]netip.Addr // the last given
}

// home is an address of a tenant, source a prefix of one.
type (
	home struct {
		tenant  uint8
		address netip.Addr
	}
	source struct {
		tenant uint8
		prefix netip.Prefix
	}
)

// String is how a source is named on disk: "10.9.1.0/24", or "7 10.9.1.0/24".
func (s source) String() string {
	if s.tenant == 0 {
		return s.prefix.String()
	}
	return fmt.Sprintf("%d %s", s.tenant, s.prefix)
}

func parseSource(text string) (s source, err error) {
	tenant, prefix, found := strings.Cut(text, " ")
	if !found {
		tenant, prefix = "0", text
	}
	id, errID := strconv.ParseUint(tenant, 10, 8)
	s.tenant = uint8(id)
	s.prefix, err = netip.ParsePrefix(prefix)
	return s, errors.Join(errID, err)
}

// Open reads what is held. Changes are one transaction each; those that come at
// the same time share one, as far as db's MaxBatchDelay lets them wait.
func Open[T any](db *bbolt.DB) (*Book[T], error) {
	b := &Book[T]{db: db, leases: map[Key]Lease[T]{}, used: map[home]bool{}, turn: map[source]netip.Addr{}}
	if err := db.Update(b.load); err != nil {
		return nil, fmt.Errorf("pods' addresses in %s: %w", db.Path(), err)
	}
	return b, nil
}

func (b *Book[T]) load(tx *bbolt.Tx) error {
	b.isNew = tx.Bucket(leaseBucket) == nil
	leases, err := tx.CreateBucketIfNotExists(leaseBucket)
	if err != nil {
		return err
	}
	turns, err := tx.CreateBucketIfNotExists(turnBucket)
	if err != nil {
		return err
	}
	err = leases.ForEach(func(key, value []byte) error {
		var l Lease[T]
		if err := json.Unmarshal(value, &l); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		for _, a := range l.Addresses {
			if b.used[home{l.Tenant, a}] {
				return fmt.Errorf("%s is held twice, by %s too", a, key)
			}
		}
		b.hold(l)
		return nil
	})
	if err != nil {
		return err
	}
	return turns.ForEach(func(key, value []byte) error {
		s, errSource := parseSource(string(key))
		a, errAddr := netip.ParseAddr(string(value))
		b.turn[s] = a
		return errors.Join(errSource, errAddr)
	})
}

// SetPrefixes says where addresses are taken from, by tenant, in this order for each
// family. What is held of others stays held.
func (b *Book[T]) SetPrefixes(of map[uint8][]netip.Prefix) error {
	next := make(map[uint8][]netip.Prefix, len(of))
	for tenant, list := range of {
		for _, p := range list {
			if _, ok := usable(p); !ok {
				return fmt.Errorf("%s holds no address for a pod: give an IPv4 prefix of /30 or an IPv6 prefix of /126 at most", p)
			}
			next[tenant] = append(next[tenant], p.Masked())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prefixes = next
	return nil
}

// Add gives key an address of each family that the tenant has a prefix of. A key that holds
// addresses keeps them, and holder replaces what was stored with them. Errors:
// ErrExhausted, ErrNoPrefix, or the disk's.
func (b *Book[T]) Add(key Key, tenant uint8, holder T) (l Lease[T], existed bool, err error) {
	l, existed, err = b.reserve(key, tenant, holder)
	if err != nil {
		return l, existed, err
	}
	if err := b.write(l); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !existed {
			b.drop(key)
		}
		return Lease[T]{}, existed, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases[key] = l
	return l, existed, nil
}

// IsNew says whether there was no book before Open.
func (b *Book[T]) IsNew() bool { return b.isNew }

// Adopt keeps a lease whose addresses somebody has already, and nobody in the book.
func (b *Book[T]) Adopt(l Lease[T]) error {
	b.mu.Lock()
	for _, a := range l.Addresses {
		if b.used[home{l.Tenant, a}] {
			b.mu.Unlock()
			return fmt.Errorf("%s is held already", a)
		}
	}
	b.hold(l)
	b.mu.Unlock()
	err := b.write(l)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.drop(l.Key)
	}
	return err
}

// Rename has another key hold the addresses of a lease, and what l stores with them. l has the addresses of
// former, and its key has none.
func (b *Book[T]) Rename(former Key, l Lease[T]) error {
	value, err := json.Marshal(l)
	if err != nil {
		return err
	}
	err = b.db.Batch(func(tx *bbolt.Tx) error {
		leases := tx.Bucket(leaseBucket)
		return errors.Join(leases.Delete(former.bytes()), leases.Put(l.bytes(), value))
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.leases, former)
	b.hold(l)
	return nil
}

// reserve takes addresses in memory, so that nobody else can.
func (b *Book[T]) reserve(key Key, tenant uint8, holder T) (Lease[T], bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, there := b.leases[key]; there {
		l.Holder = holder
		return l, true, nil
	}
	l := Lease[T]{Key: key, Tenant: tenant, Holder: holder}
	for _, is4 := range []bool{true, false} {
		a, wanted, err := b.choose(tenant, is4)
		if err != nil {
			return l, false, err
		}
		if wanted {
			l.Addresses = append(l.Addresses, a)
		}
	}
	if len(l.Addresses) == 0 {
		return l, false, ErrNoPrefix
	}
	b.hold(l)
	return l, false, nil
}

// choose finds a free address of a family. wanted is false where there is no
// prefix of it.
func (b *Book[T]) choose(tenant uint8, is4 bool) (a netip.Addr, wanted bool, err error) {
	var full []string
	for _, p := range b.prefixes[tenant] {
		if p.Addr().Is4() != is4 {
			continue
		}
		s := source{tenant, p}
		if a, ok := b.free(s); ok {
			b.turn[s] = a
			return a, true, nil
		}
		full = append(full, p.String())
	}
	if len(full) == 0 {
		return a, false, nil
	}
	return a, true, fmt.Errorf("%w in %s: every one is held by a pod", ErrExhausted, strings.Join(full, ", "))
}

// free is the first free address of a prefix after the one that was given last.
func (b *Book[T]) free(s source) (netip.Addr, bool) {
	o, _ := usable(s.prefix)
	n := uint64(0)
	if last, there := b.turn[s]; there {
		n = offsetOf(s.prefix, last)
	}
	// Among one more than are held there is one that is not.
	for range min(uint64(len(b.used))+1, o.count()) {
		if n++; n < o.first || n > o.last {
			n = o.first
		}
		if a := at(s.prefix, n); !b.used[home{s.tenant, a}] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (b *Book[T]) hold(l Lease[T]) {
	b.leases[l.Key] = l
	for _, a := range l.Addresses {
		b.used[home{l.Tenant, a}] = true
	}
}

func (b *Book[T]) drop(key Key) {
	for _, a := range b.leases[key].Addresses {
		delete(b.used, home{b.leases[key].Tenant, a})
	}
	delete(b.leases, key)
}

// write stores a lease on disk, and the address that each prefix gave last.
func (b *Book[T]) write(l Lease[T]) error {
	value, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return b.db.Batch(func(tx *bbolt.Tx) error {
		if err := tx.Bucket(leaseBucket).Put(l.bytes(), value); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.prefixes[l.Tenant] {
			s := source{l.Tenant, p}
			last, given := b.turn[s] // nothing yet, if all that is held was adopted
			if !given || !slices.ContainsFunc(l.Addresses, p.Contains) {
				continue
			}
			if err := tx.Bucket(turnBucket).Put([]byte(s.String()), []byte(last.String())); err != nil {
				return err
			}
		}
		return nil
	})
}

// Release gives back what key holds, if anything. Others can get the addresses once
// that is on disk.
func (b *Book[T]) Release(key Key) error {
	if _, there := b.Get(key); !there {
		return nil
	}
	err := b.db.Batch(func(tx *bbolt.Tx) error { return tx.Bucket(leaseBucket).Delete(key.bytes()) })
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(key)
	return nil
}

// Get returns what key holds.
func (b *Book[T]) Get(key Key) (Lease[T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, there := b.leases[key]
	return l, there
}

// Leases returns all leases, by their lowest address.
func (b *Book[T]) Leases() []Lease[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Lease[T], 0, len(b.leases))
	for _, l := range b.leases {
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y Lease[T]) int { return x.Addresses[0].Compare(y.Addresses[0]) })
	return out
}

// Pools are the prefixes that addresses are taken from, by tenant.
func (b *Book[T]) Pools() (out []Pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, tenant := range slices.Sorted(maps.Keys(b.prefixes)) {
		for _, p := range b.prefixes[tenant] {
			o, _ := usable(p)
			pool := Pool{Tenant: tenant, Prefix: p, Size: o.count()}
			for h := range b.used {
				if h.tenant == tenant && p.Contains(h.address) {
					pool.Used++
				}
			}
			out = append(out, pool)
		}
	}
	return out
}

// Room returns the reason why no other attachment without a tenant could get an address, or nil.
func (b *Book[T]) Room() error {
	var used, size [2]uint64 // by family
	pools := slices.DeleteFunc(b.Pools(), func(p Pool) bool { return p.Tenant != 0 })
	for _, p := range pools {
		family := 0
		if p.Prefix.Addr().Is6() {
			family = 1
		}
		used[family] += p.Used
		size[family] += p.Size
	}
	switch {
	case len(pools) == 0:
		return ErrNoPrefix
	case size[0] > 0 && used[0] == size[0]:
		return fmt.Errorf("%w: all %d of IPv4 are held", ErrExhausted, size[0])
	case size[1] > 0 && used[1] == size[1]:
		return fmt.Errorf("%w: all %d of IPv6 are held", ErrExhausted, size[1])
	}
	return nil
}
