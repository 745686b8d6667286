package config

import (
	"fmt"
	"net/netip"

	"github.com/culvert-net/culvert/internal/nat"
)

const (
	maxNATs         = 8
	maxNATAddresses = 4096 // 6 GB of ports
	leastUDPTimeout = 120  // RFC 4787 REQ-5
)

// PublicAddresses is how many public addresses the NATs of the pools have.
func (u *UPF) PublicAddresses() (n uint64) {
	for _, p := range u.UEPools {
		if p.NAT != nil && p.NAT.Addresses.IsValid() && p.NAT.Addresses.Addr().Is4() {
			n += uint64(p.NAT.Count())
		}
	}
	return n
}

// checkNATs validates the NATs of UE pools.
func checkNATs(v *validator) {
	nats := 0
	for i, pool := range v.UPF.UEPools {
		if pool.NAT == nil {
			continue
		}
		nats++
		at := fmt.Sprintf("upf.ue_pools[%d]", i)
		var prefix netip.Prefix
		fours := 0
		for _, p := range pool.Prefixes {
			if p.IsValid() && p.Addr().Is4() {
				prefix = p
				fours++
			}
		}
		v.refuse(fours != 1, at+".prefixes", "one IPv4 prefix; give each prefix with NAT a pool of its own", "the pool has NAT, and %d IPv4 prefixes", fours)
		if checkNAT(v, at+".nat", pool.NAT) && fours == 1 && pool.NAT.Room() < 1<<(32-prefix.Bits()) {
			v.add(at+".nat.addresses", fmt.Sprintf("a /%d, fewer ports_per_ue, or a smaller pool", pool.NAT.Smallest(prefix)),
				"%s has room for %d UEs of %d ports each, and the pool has %d addresses", pool.NAT.Addresses, pool.NAT.Room(), pool.NAT.PortsPerUE, uint64(1)<<(32-prefix.Bits()))
		}
	}
	v.refuse(nats > maxNATs, "upf.ue_pools", "fewer pools with nat", "%d pools with NAT exceed the limit of %d", nats, maxNATs)
	n := v.UPF.PublicAddresses()
	v.refuse(n > maxNATAddresses, "upf.ue_pools", "fewer public addresses, each shared by more UEs (ports_per_ue)", "%d public addresses exceed the limit of %d", n, maxNATAddresses)
	v.refuse(n > uint64(v.Limits.NATAddresses), "limits.nat_addresses", fmt.Sprintf("at least %d, or leave it out", n), "%d is too few for the %d public addresses of the pools", v.Limits.NATAddresses, n)
}

// checkNAT validates one NAT, apart from its pool.
func checkNAT(v *validator, at string, n *nat.NAT) bool {
	before := len(v.problems.list)
	const fix = "public IPv4 addresses, a prefix of a length from 16 to 32 such as 198.51.100.0/28"
	v.refuse(!n.Addresses.IsValid(), at+".addresses", fix, "is missing")
	v.refuse(n.Addresses.IsValid() && (!n.Addresses.Addr().Is4() || n.Addresses.Bits() < 16), at+".addresses", fix, "%s is no such prefix", n.Addresses)
	v.refuse(n.PortsPerUE%nat.Group != 0 || n.PortsPerUE < nat.Group || n.PortsPerUE > nat.Groups*nat.Group,
		at+".ports_per_ue", "a multiple of 8 up to 64512, such as 1008", "%d ports are not possible", n.PortsPerUE)
	v.refuse(n.Timeouts.UDP < leastUDPTimeout, at+".timeouts.udp", fmt.Sprintf("at least %d seconds (RFC 4787)", leastUDPTimeout), "%d s is too short", n.Timeouts.UDP)
	for name, t := range map[string]uint32{"udp": n.Timeouts.UDP, "icmp": n.Timeouts.ICMP, "tcp": n.Timeouts.TCP, "tcp_transitory": n.Timeouts.TCPTransitory} {
		v.refuse(t < 2 || t > 7*86400, at+".timeouts."+name, "2 to 604800 seconds", "%d s is out of range", t)
	}
	return len(v.problems.list) == before
}
