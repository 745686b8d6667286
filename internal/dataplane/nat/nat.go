// Package nat reads which ports UEs behind a NAT use: the data path makes and forgets
// mappings by itself (bpf/nat.h).
package nat

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/nat"
)

// A slot of nat_bucket (bpf/def/tables.h).
const (
	used        = 1 << 40
	established = 1 << 41
	portShift   = 48
)

// Table is nat_bucket.
type Table struct {
	mu      *sync.Mutex
	buckets *table.Array[abi.NatSlots]
	book    *settings.Book
}

// Open takes the table.
func Open(mu *sync.Mutex, buckets *table.Array[abi.NatSlots], book *settings.Book) *Table {
	return &Table{mu, buckets, book}
}

// Counts are how many mappings the UEs of a pool have, by protocol.
func (t *Table) Counts(pool netip.Prefix) map[nat.Protocol]uint32 {
	out := map[nat.Protocol]uint32{}
	t.each(pool, func(n *abi.Nat, p nat.Protocol, first uint32) {
		addresses := ^n.AddressMask + 1
		for at := first; at < first+addresses*nat.Groups; at++ {
			for i := range t.buckets.Words(at) {
				if _, ok := live(n, p, t.buckets.Load(at, i)); ok {
					out[p]++
				}
			}
		}
	})
	return out
}

// Mappings are those of one UE of a pool.
func (t *Table) Mappings(pool netip.Prefix, of nat.NAT, ue netip.Addr) (list []nat.Mapping) {
	block, ok := of.BlockOf(pool, ue)
	if !ok {
		return nil
	}
	t.each(pool, func(n *abi.Nat, p nat.Protocol, first uint32) {
		at := first + of.IndexOf(block.Address)*nat.Groups + (uint32(block.First)-nat.FirstPort)/nat.Group
		for port := uint32(block.First); port <= uint32(block.Last); port++ {
			i := (port - uint32(block.First)) % nat.Group
			if m, ok := live(n, p, t.buckets.Load(at, int(i))); ok {
				m.Public = uint16(port)
				list = append(list, m)
			}
			if i == nat.Group-1 {
				at++
			}
		}
	})
	return list
}

// Forget forgets the ports of a UE. The caller holds the lock, and no packet of the UE makes
// others meanwhile.
func (t *Table) Forget(ue netip.Addr) {
	if len(t.book.Want.NATs) == 0 {
		return
	}
	number := binary.BigEndian.Uint32(ue.AsSlice())
	now := t.book.Get()
	for i := range now.Nat {
		n := &now.Nat[i]
		if settings.PoolOfNAT(n) == (netip.Prefix{}) || number&n.Mask != n.Prefix {
			continue
		}
		at := number &^ n.Mask
		for protocol := range uint32(abi.NatProtocolNAT_PROTOCOLS) {
			first := n.Buckets + (protocol*(^n.AddressMask+1)+at/n.Blocks)*nat.Groups + at%n.Blocks*n.BlockBuckets
			for bucket := first; bucket < first+n.BlockBuckets; bucket++ {
				for slot := range t.buckets.Words(bucket) {
					t.buckets.Change(bucket, slot, 0)
				}
			}
		}
	}
}

// each calls f for each protocol of the NAT of a pool, with the index of its first bucket.
func (t *Table) each(pool netip.Prefix, f func(n *abi.Nat, p nat.Protocol, first uint32)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.book.Get()
	for i := range now.Nat {
		n := &now.Nat[i]
		if settings.PoolOfNAT(n) != pool.Masked() {
			continue
		}
		for k, p := range []nat.Protocol{nat.UDP, nat.TCP, nat.ICMP} {
			f(n, p, n.Buckets+uint32(k)*(^n.AddressMask+1)*nat.Groups)
		}
	}
}

// live reads a slot, if its mapping has not run out.
func live(n *abi.Nat, p nat.Protocol, slot uint64) (m nat.Mapping, ok bool) {
	if slot&used == 0 {
		return m, false
	}
	life := map[nat.Protocol]uint32{nat.UDP: n.Udp, nat.ICMP: n.Icmp, nat.TCP: n.TcpTransitory}[p]
	m = nat.Mapping{Protocol: p, Private: uint16(slot >> portShift), Established: slot&established != 0 && p == nat.TCP}
	if m.Established {
		life = n.Tcp
	}
	idle := now() - uint32(slot)
	m.Idle = time.Duration(idle) << abi.NatLimitsNAT_TIME_SHIFT
	return m, idle <= life
}

// now is the time as the data path has it, CLOCK_MONOTONIC in units of 2^30 ns.
func now() uint32 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return uint32(t.Nano() >> abi.NatLimitsNAT_TIME_SHIFT)
}
