package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/nat"
)

// ErrNoNAT is returned by a node whose UEs are behind no NAT.
var ErrNoNAT = errors.New("no UE pool has a NAT: see upf.ue_pools in the configuration")

// NATStatus is the NAT of a UE pool, or of one of its UEs.
type NATStatus struct {
	Pool            netip.Prefix `json:"pool"`
	NetworkInstance string       `json:"network_instance,omitempty"`
	Addresses       netip.Prefix `json:"addresses"`
	PortsPerUE      uint32       `json:"ports_per_ue"`
	UEsPerAddress   uint32       `json:"ues_per_address"`
	// UDP, TCP and ICMP are how many mappings are in use.
	UDP  uint32 `json:"udp"`
	TCP  uint32 `json:"tcp"`
	ICMP uint32 `json:"icmp"`
	// UE is set where one was asked for, with what it has.
	UE       netip.Addr    `json:"ue,omitzero"`
	Block    *nat.Block    `json:"block,omitempty"`
	Mappings []nat.Mapping `json:"mappings,omitempty"`
}

// NATs are those of all pools. `of` asks for one of them by its pool, for a UE, or for the UE
// that has a public port, such as 198.51.100.1:4711.
func (a *Agent) NATs(of string) (list []NATStatus, err error) {
	err = a.core.read(func() error {
		has := false
		for _, p := range a.core.goal.Desired.Process.UPF.UEPools {
			at := slices.IndexFunc(p.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
			if p.NAT == nil || at < 0 {
				continue
			}
			has = true
			if s := a.core.natOf(p.Prefixes[at], p.NAT, of); s.Pool.IsValid() {
				s.NetworkInstance = p.NetworkInstance
				list = append(list, s)
			}
		}
		switch {
		case !has:
			return ErrNoNAT
		case len(list) == 0:
			return fmt.Errorf("%w: %q is neither a pool with NAT, nor a UE of one, nor a public address and port of one", desired.ErrNotFound, of)
		}
		return nil
	})
	return list, err
}

// natOf is the NAT of a pool, or of its UE that is asked for; the zero NATStatus: it is not
// asked for.
func (c *core) natOf(pool netip.Prefix, n *nat.NAT, of string) NATStatus {
	s := NATStatus{Pool: pool, Addresses: n.Addresses, PortsPerUE: n.PortsPerUE, UEsPerAddress: n.UEsPerAddress()}
	count := func(mappings map[nat.Protocol]uint32) {
		s.UDP, s.TCP, s.ICMP = mappings[nat.UDP], mappings[nat.TCP], mappings[nat.ICMP]
	}
	if p, err := netip.ParsePrefix(of); of == "" || err == nil && p.Masked() == pool.Masked() {
		count(c.dp.NAT.Counts(pool))
		return s
	}
	ue, err := netip.ParseAddr(of)
	if public, notPort := netip.ParseAddrPort(of); notPort == nil {
		ue, _ = n.UEOf(pool, public.Addr(), public.Port())
	} else if err != nil {
		return NATStatus{}
	}
	block, ok := n.BlockOf(pool, ue)
	if !ok {
		return NATStatus{}
	}
	s.UE, s.Block, s.Mappings = ue, &block, c.dp.NAT.Mappings(pool, *n, ue)
	counts := map[nat.Protocol]uint32{}
	for _, m := range s.Mappings {
		counts[m.Protocol]++
	}
	count(counts)
	return s
}
