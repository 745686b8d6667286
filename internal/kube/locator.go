package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ErrPoolExhausted is that each locator of a pool is some node's.
var ErrPoolExhausted = errors.New("no locator is left in the pool")

// nextLocator is the free one behind the last that is taken, or the first free
// one: what was given back rests for as long as it can. The first of all has
// nothing but zeros behind the pool, which is easily taken for something else.
func nextLocator(pool netip.Prefix, bits int, taken []netip.Prefix) (netip.Prefix, error) {
	zero := netip.PrefixFrom(pool.Masked().Addr(), bits)
	last := zero
	for _, p := range taken {
		if pool.Contains(p.Addr()) && p.Addr().Compare(last.Addr()) > 0 {
			last = netip.PrefixFrom(p.Addr(), bits).Masked()
		}
	}
	for _, behind := range []netip.Prefix{last, zero} {
		p, inside := following(behind, pool)
		for inside {
			i := slices.IndexFunc(taken, p.Overlaps)
			if i < 0 {
				return p, nil
			}
			whole := netip.PrefixFrom(p.Addr(), min(bits, taken[i].Bits())).Masked()
			whole, inside = following(whole, pool)
			p = netip.PrefixFrom(whole.Addr(), bits)
		}
	}
	return netip.Prefix{}, fmt.Errorf("%w %s", ErrPoolExhausted, pool)
}

// following is the prefix behind p, if it is in the pool.
func following(p, pool netip.Prefix) (netip.Prefix, bool) {
	b := p.Addr().As16()
	carry := uint16(1) << (7 - (p.Bits()-1)%8)
	for i := (p.Bits() - 1) / 8; i >= 0 && carry > 0; i-- {
		carry += uint16(b[i])
		b[i] = byte(carry)
		carry >>= 8
	}
	next := netip.PrefixFrom(netip.AddrFrom16(b), p.Bits())
	return next, carry == 0 && pool.Contains(next.Addr())
}
