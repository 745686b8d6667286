package settings

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/nat"
)

// NAT is that of a pool's UEs.
type NAT struct {
	Pool netip.Prefix
	nat.NAT
}

// nats are those of an entry.
type nats [8]abi.Nat

// noNAT is one that matches nothing: prefix and mask share one word.
var noNAT = abi.Nat{Prefix: off4, Mask: off4}

// BucketsOfAddress is how many entries of nat_bucket a public address has.
const BucketsOfAddress = nat.Groups * uint32(abi.NatProtocolNAT_PROTOCOLS)

// natTime is how the data path counts seconds: in units of 2^30 ns, and rather one more than one
// less.
func natTime(seconds uint32) uint32 {
	const unit = 1 << abi.NatLimitsNAT_TIME_SHIFT
	return uint32((uint64(seconds)*1_000_000_000 + unit - 1) / unit)
}

func natEntry(n NAT) abi.Nat {
	four := func(a netip.Addr) uint32 {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:])
	}
	mask := func(p netip.Prefix) uint32 { return ^uint32(0) << (32 - p.Bits()) }
	return abi.Nat{
		Prefix: four(n.Pool.Masked().Addr()), Mask: mask(n.Pool),
		Address: four(n.Addresses.Masked().Addr()), AddressMask: mask(n.Addresses),
		Blocks: n.UEsPerAddress(), BlockBuckets: n.PortsPerUE / nat.Group,
		Udp: natTime(n.Timeouts.UDP), Icmp: natTime(n.Timeouts.ICMP), Tcp: natTime(n.Timeouts.TCP), TcpTransitory: natTime(n.Timeouts.TCPTransitory),
	}
}

// sizeOf is how many buckets an entry leads to.
func sizeOf(n abi.Nat) uint32 { return (^n.AddressMask + 1) * BucketsOfAddress }

// PoolOfNAT is the pool of an entry; the zero Prefix: the entry is none.
func PoolOfNAT(n *abi.Nat) netip.Prefix {
	if !isNAT(*n) {
		return netip.Prefix{}
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n.Prefix)
	return netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(n.Mask))
}

// samePorts says whether ports of one entry mean the same in another: all but the timeouts, and
// where its buckets are, is the same.
func samePorts(a, b abi.Nat) bool {
	for _, n := range []*abi.Nat{&a, &b} {
		n.Buckets, n.Udp, n.Icmp, n.Tcp, n.TcpTransitory = 0, 0, 0, 0, 0
	}
	return a == b
}

// isNAT says whether a slot of an entry holds one.
func isNAT(n abi.Nat) bool { return n.Blocks != 0 && n != noNAT }

// natsIn are the wanted NATs that are there now, each with its buckets; if add is set, also
// those that are new, as far as they fit.
func (b *Book) natsIn(now nats, s *Settings, add bool) nats {
	var want []abi.Nat
	for _, n := range s.NATs {
		want = append(want, natEntry(n))
	}
	var ranges [][2]uint32
	for i, n := range now {
		at := slices.IndexFunc(want, func(w abi.Nat) bool { return samePorts(w, n) })
		if !isNAT(n) || at < 0 {
			now[i] = noNAT
			continue
		}
		now[i] = want[at]
		now[i].Buckets = n.Buckets
		want = slices.Delete(want, at, at+1)
		ranges = append(ranges, [2]uint32{n.Buckets, sizeOf(n)})
	}
	for i := range now {
		if !add || len(want) == 0 || isNAT(now[i]) {
			continue
		}
		n := want[0]
		want = want[1:]
		if first, ok := fit(ranges, sizeOf(n), 0, b.limits.NATAddresses*BucketsOfAddress); ok {
			ranges = append(ranges, [2]uint32{first, sizeOf(n)})
			n.Buckets = first
			now[i] = n
		}
	}
	return now
}

// checkNATs says what does not fit.
func (b *Book) checkNATs(s *Settings) error {
	addresses := uint32(0)
	for _, n := range s.NATs {
		addresses += n.Count()
	}
	if addresses > b.limits.NATAddresses {
		return &table.FullError{Table: abi.MapNatBucket, Max: b.limits.NATAddresses, Limit: "nat_addresses"}
	}
	return nil
}

// ClearNATs frees the ports of the NATs of now that are not in keep: no packet is led to them.
func ClearNATs(buckets *table.Array[abi.NatSlots], now, keep Ranges) {
	for i, n := range now.NAT {
		if !isNAT(n) || keep.NAT[i].Buckets == n.Buckets && samePorts(keep.NAT[i], n) {
			continue
		}
		for at := n.Buckets; at < n.Buckets+sizeOf(n); at++ {
			for word := range buckets.Words(at) {
				buckets.Change(at, word, 0)
			}
		}
	}
}
