package config

import (
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Senders are the prefixes of those who may send. In files the word "any" stands for
// every sender. No prefix means nobody.
type Senders []netip.Prefix

// Anyone returns the Senders that "any" stands for.
func Anyone() Senders {
	return Senders{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// Contain says whether a may send.
func (s Senders) Contain(a netip.Addr) bool {
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.Contains(a) })
}

// with returns s and those of others whom it does not contain yet.
func (s Senders) with(others Senders) Senders {
	out := slices.Clone(s)
	for _, p := range others {
		if !slices.ContainsFunc(out, func(has netip.Prefix) bool { return has.Bits() <= p.Bits() && has.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	return out
}

// Open says whether every sender of an address family may send.
func (s Senders) Open() bool {
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.IsValid() && p.Bits() == 0 })
}

// isAny says whether a file says "any" or [any].
func isAny(n *yaml.Node) bool {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	return n.Kind == yaml.ScalarNode && n.Value == "any"
}
