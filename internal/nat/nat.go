package nat

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"
)

// The ports of a public address that UEs get, FirstPort to 65535, in groups of Group.
const (
	FirstPort = 1024
	Group     = 8
	Groups    = (65536 - FirstPort) / Group
)

// Defaults of what is not set: 64 UEs share an address. The times are those of RFC 4787
// (UDP), RFC 5382 (TCP) and RFC 5508 (ICMP), in seconds.
const (
	DefaultPortsPerUE    = 1008
	DefaultUDP           = 300
	DefaultICMP          = 60
	DefaultTCP           = 7440
	DefaultTCPTransitory = 240
)

// NAT translates the IPv4 addresses of a pool's UEs into public ones (NAT44). Which public
// address and ports a UE has follows from its address alone, so that no log is needed to
// know who had a port (RFC 7422).
type NAT struct {
	// Addresses are the public ones: a prefix, of which no address is used otherwise.
	Addresses netip.Prefix `json:"addresses"`
	// PortsPerUE is how many ports each UE has of one address, for each of TCP, UDP and
	// ICMP: a multiple of 8. Default 1008, so that 64 UEs share an address.
	PortsPerUE uint32 `json:"ports_per_ue,omitempty"`
	// Timeouts say when a port is free again that the UE has not sent from.
	Timeouts Timeouts `json:"timeouts,omitzero"`
}

// Timeouts of mappings, in seconds.
type Timeouts struct {
	UDP  uint32 `json:"udp,omitempty"`  // 300 unless set, at least 120
	ICMP uint32 `json:"icmp,omitempty"` // 60 unless set
	// TCP of connections that carry data: 7440 unless set.
	TCP uint32 `json:"tcp,omitempty"`
	// TCPTransitory of connections that are set up or have ended: 240 unless set.
	TCPTransitory uint32 `json:"tcp_transitory,omitempty"`
}

// WithDefaults is the NAT with what is unset set.
func (n NAT) WithDefaults() NAT {
	for _, d := range []struct {
		value *uint32
		to    uint32
	}{
		{&n.PortsPerUE, DefaultPortsPerUE},
		{&n.Timeouts.UDP, DefaultUDP},
		{&n.Timeouts.ICMP, DefaultICMP},
		{&n.Timeouts.TCP, DefaultTCP},
		{&n.Timeouts.TCPTransitory, DefaultTCPTransitory},
	} {
		if *d.value == 0 {
			*d.value = d.to
		}
	}
	return n
}

// UEsPerAddress is how many UEs share a public address.
func (n NAT) UEsPerAddress() uint32 { return Groups / (n.PortsPerUE / Group) }

// Count is how many public addresses there are.
func (n NAT) Count() uint32 { return 1 << (32 - n.Addresses.Bits()) }

// Room is how many UEs can be served.
func (n NAT) Room() uint64 { return uint64(n.Count()) * uint64(n.UEsPerAddress()) }

// Block is what a UE has: a public address, and there the ports from First to Last.
type Block struct {
	Address netip.Addr `json:"public_address"`
	First   uint16     `json:"first_port"`
	Last    uint16     `json:"last_port"`
}

// BlockOf is the block of a UE of a pool; false: it is not of the pool.
func (n NAT) BlockOf(pool netip.Prefix, ue netip.Addr) (Block, bool) {
	if !pool.Contains(ue) {
		return Block{}, false
	}
	at := number(ue) - number(pool.Masked().Addr())
	first := FirstPort + at%n.UEsPerAddress()*n.PortsPerUE
	return Block{
		address(number(n.Addresses.Masked().Addr()) + at/n.UEsPerAddress()), uint16(first), uint16(first + n.PortsPerUE - 1),
	}, true
}

// Choices are the public ports that a port of a UE may have: two groups of Group, each by its
// first one (docs/reference/semantics.md section 7, "NAT44").
func (n NAT) Choices(b Block, port uint16) (first [2]uint16) {
	h := uint32(port) * 0x9E3779B1
	for i, h := range []uint32{h, (h ^ h>>15) * 0x85EBCA6B} {
		first[i] = b.First + uint16((h>>16)*(n.PortsPerUE/Group)>>16)*Group
	}
	return first
}

// UEOf is the UE of a pool that has a public port; false: nobody has it.
func (n NAT) UEOf(pool netip.Prefix, public netip.Addr, port uint16) (netip.Addr, bool) {
	if !n.Addresses.Contains(public) || port < FirstPort {
		return netip.Addr{}, false
	}
	block := (uint32(port) - FirstPort) / n.PortsPerUE
	at := uint64(n.IndexOf(public))*uint64(n.UEsPerAddress()) + uint64(block)
	if block >= n.UEsPerAddress() || at >= 1<<(32-pool.Bits()) {
		return netip.Addr{}, false
	}
	return address(number(pool.Masked().Addr()) + uint32(at)), true
}

// number is an IPv4 address as a number, address the reverse.
func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// Smallest is the longest prefix of public addresses with room for the UEs of a pool.
func (n NAT) Smallest(pool netip.Prefix) int {
	ues := uint64(1) << (32 - pool.Bits())
	addresses := (ues + uint64(n.UEsPerAddress()) - 1) / uint64(n.UEsPerAddress())
	return 32 - bits.Len64(addresses-1)
}

// IndexOf counts the public addresses from 0.
func (n NAT) IndexOf(public netip.Addr) uint32 {
	return number(public) - number(n.Addresses.Masked().Addr())
}

// Protocol has ports of its own.
type Protocol string

// The protocols. What is a port elsewhere is the identifier of ICMP's queries.
const (
	UDP  Protocol = "udp"
	TCP  Protocol = "tcp"
	ICMP Protocol = "icmp"
)

// Mapping is a port of a UE that has a public one.
type Mapping struct {
	Protocol    Protocol      `json:"protocol"`
	Private     uint16        `json:"private_port"`
	Public      uint16        `json:"public_port"`
	Established bool          `json:"established,omitempty"` // TCP: it carries data
	Idle        time.Duration `json:"idle_ns"`               // since the UE has sent by it, to a second
}
