package session

import (
	"math/bits"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// What pdr_by_ue has of IPv4 UEs outside of the pools, ue_bucket has as well (bpf/def/ue.h): there
// packets look first, and in pdr_by_ue only where a bucket was full. pdr_by_ue says what is true: a key
// comes to it first and leaves it last, and a daemon that starts makes the buckets agree.

const (
	ueSlots = int(abi.UeBucketsUE_SLOTS)
	ueMore  = ueSlots // the word behind the slots
	ueHash  = uint32(abi.UeBucketsUE_HASH)
)

// bucketsFor are the buckets for so many sessions, a power of two: if all their UEs are outside, there is
// one in each, and one in fifty finds no slot.
func bucketsFor(sessions uint32) uint32 { return 1 << max(1, bits.Len32(max(sessions, 1)-1)) }

// ueBuckets are in the buckets' table.
type ueBuckets struct {
	table *table.Array[abi.UeBucket]
	shift uint32 // of the hash: settings.ues
}

func newUEBuckets(t *table.Array[abi.UeBucket]) ueBuckets {
	return ueBuckets{t, 32 - uint32(bits.TrailingZeros32(t.Len))}
}

// addressOf4 is the IPv4 address of a key of pdr_by_ue, as packets load it; false for other keys.
func addressOf4(e abi.In6) (address uint32, is bool) {
	a := netip.AddrFrom16(e.B).Unmap()
	if !a.Is4() {
		return 0, false
	}
	return abi.BE32(a), true
}

func (b ueBuckets) of(address uint32) (bucket uint32) { return address * ueHash >> b.shift }

// slotOf is the place of an address in its bucket, or of nothing (0); -1: the bucket has no such.
func (b ueBuckets) slotOf(address uint32, nothing bool) (slot int) {
	for i, word := range b.table.Words(b.of(address))[:ueSlots] {
		if nothing && word == 0 || !nothing && word != 0 && uint32(word>>32) == address {
			return i
		}
	}
	return -1
}

// put leads packets to an address to an index. had: pdr_by_ue had the address before.
func (b ueBuckets) put(address, index uint32, had bool) {
	bucket, slot := b.of(address), b.slotOf(address, false)
	if slot < 0 && !had {
		if slot = b.slotOf(address, true); slot < 0 {
			b.table.Store(bucket, ueMore, b.table.Load(bucket, ueMore)+1)
		}
	}
	if slot >= 0 {
		b.table.Change(bucket, slot, uint64(address)<<32|uint64(index))
	}
}

// del is the reverse of put.
func (b ueBuckets) del(address uint32) {
	bucket, slot := b.of(address), b.slotOf(address, false)
	if slot >= 0 {
		b.table.Store(bucket, slot, 0)
	} else {
		b.table.Store(bucket, ueMore, b.table.Load(bucket, ueMore)-1)
	}
}

// agree makes the buckets agree with pdr_by_ue, whatever an earlier daemon left.
func (b ueBuckets) agree(ues *table.Hash[abi.In6, uint32]) {
	for bucket := range b.table.Len {
		for slot, word := range b.table.Words(bucket)[:ueSlots] {
			e := abi.In6Of(abi.FromBE32(uint32(word >> 32)))
			if word != 0 && ues.Get(e) != uint32(word) {
				b.table.Store(bucket, slot, 0)
			}
		}
	}
	more := map[uint32]uint64{}
	for e, index := range ues.All() {
		address, is4 := addressOf4(e)
		if !is4 || b.slotOf(address, false) >= 0 {
			continue
		}
		if slot := b.slotOf(address, true); slot >= 0 {
			b.table.Store(b.of(address), slot, uint64(address)<<32|uint64(index))
		} else {
			more[b.of(address)]++
		}
	}
	for bucket := range b.table.Len {
		b.table.Change(bucket, ueMore, more[bucket])
	}
}

// openUEs finds what an earlier daemon has put.
func (t *tables) openUEs() {
	t.ues = newUEBuckets(t.UEBucket)
	t.ues.agree(t.UEs)
	t.setUEs()
}

// setUEs has packets skip pdr_by_ue while it is empty.
func (t *tables) setUEs() {
	if t.UEs.Len() == 0 {
		t.node.SetUEs(0)
	} else {
		t.node.SetUEs(t.ues.shift)
	}
}

// putUE leads a key of pdr_by_ue to an index. Other UEs may have sent to its address before, when it
// was free to reach: packets must not remember that.
func (t *tables) putUE(e abi.In6, index uint32) error {
	address, is4 := addressOf4(e)
	_, had := t.UEs.Lookup(e)
	if err := t.UEs.Put(e, index); err != nil {
		return err
	}
	if is4 {
		t.ues.put(address, index, had)
	}
	if t.UEs.Len() == 1 {
		t.setUEs()
	}
	if !had && !isSIDEntry(e) && !isLinkEntry(e) {
		t.node.ForgetLookups()
	}
	return nil
}

// delUE is the reverse of putUE.
func (t *tables) delUE(e abi.In6) error {
	_, had := t.UEs.Lookup(e)
	if address, is4 := addressOf4(e); is4 && had {
		t.ues.del(address)
	}
	err := t.UEs.Delete(e)
	if t.UEs.Len() == 0 {
		t.setUEs()
	}
	return err
}
