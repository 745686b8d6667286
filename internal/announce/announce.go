package announce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Entry announces the UE pools of a network instance, and what their sessions add.
type Entry struct {
	// NetworkInstance is that of the pools in ue_pools; unset: pools that name none.
	NetworkInstance string `json:"network_instance,omitempty"`
	Pools           bool   `json:"pools,omitempty"` // announce the pools' prefixes
	// VPN names the slice in whose VPN the prefixes are announced, with the VPN's SID.
	// Unset: as unicast routes.
	VPN string `json:"vpn,omitempty"`
	// FramedRoutes announces the framed routes and delegated prefixes of the pools' UEs, as
	// long as their sessions exist. What an announced pool contains is not announced again.
	FramedRoutes bool `json:"framed_routes,omitempty"`
	// MaxFramedRoutes is how many of them are announced at most. Default 10000.
	MaxFramedRoutes uint32 `json:"max_framed_routes,omitempty"`
	// NextHops are this node's addresses on N6, at most one of each family. Default: the
	// address that the BGP session has here. An IPv4 prefix takes an IPv6 next hop where
	// there is no other (RFC 8950).
	NextHops []netip.Addr `json:"next_hops,omitempty"`
	// Communities are like 65001:100 or no-export, large ones like 65001:1:2.
	Communities []string `json:"communities,omitempty" secret:"no"`
	// LocalPreference for internal peers. Default 100.
	LocalPreference uint32 `json:"local_preference,omitempty"`
	// WithdrawOn lists what withdraws the prefixes: n3 (no port with the role n3 is up), n4
	// (no port with the role n4 is up, or no SMF is associated), n3_path (no gNB answers
	// Echo Requests). Default: n3 and n4.
	WithdrawOn []Cause `json:"withdraw_on,omitempty" jsonschema:"enum=n3,enum=n4,enum=n3_path"`
	// HoldTime is how many seconds no SMF may be associated, or no gNB answer, before the
	// prefixes are withdrawn. Default 10.
	HoldTime uint32 `json:"hold_time,omitempty"`
	// HoldDown is for how many seconds all must be well before they are announced again.
	// Default 30.
	HoldDown uint32 `json:"hold_down,omitempty"`
}

// Cause is why prefixes are withdrawn.
type Cause string

// The causes.
const (
	CauseN3     Cause = "n3"
	CauseN4     Cause = "n4"
	CauseN3Path Cause = "n3_path"
)

// The defaults of an Entry.
const (
	DefaultHoldTime        = 10
	DefaultHoldDown        = 30
	DefaultMaxFramedRoutes = 10000
)

// Name identifies an entry.
func (e *Entry) Name() string { return cmp.Or(e.NetworkInstance, "pools of no network instance") }

// NextHop is the next hop of a prefix; not valid: the BGP session's own address.
func (e *Entry) NextHop(p netip.Prefix) netip.Addr {
	var other netip.Addr
	for _, a := range e.NextHops {
		if a.Is4() == (p.Addr().Is4() && e.VPN == "") {
			return a
		}
		other = a
	}
	if p.Addr().Is4() {
		return other
	}
	return netip.Addr{}
}

// Pool is a pool of UE addresses.
type Pool struct {
	NetworkInstance string
	Prefixes        []netip.Prefix
	// Public are the addresses that the pool's UEs have outside, if a NAT hides the IPv4
	// ones. They are announced in place of these.
	Public netip.Prefix
}

// announced are the prefixes by which the data network reaches the pool's UEs.
func (p *Pool) announced() []netip.Prefix {
	if !p.Public.IsValid() {
		return p.Prefixes
	}
	out := slices.DeleteFunc(slices.Clone(p.Prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() })
	return append(out, p.Public)
}

// Session is what a session brings that has networks behind its UE.
type Session struct {
	UE     []netip.Prefix
	Routes []netip.Prefix // framed routes, and delegated prefixes
}

// Prefix is one that an entry announces.
type Prefix struct {
	netip.Prefix
	Framed bool // of a session
}

// Prefixes are what an entry announces while all is well. refused are framed routes that
// it does not announce, with the reason: they are beyond the limit, contain one of closed
// (or lie in it), or no router may have them.
func (e *Entry) Prefixes(pools []Pool, sessions []Session, closed []netip.Prefix) (out []Prefix, refused []Refused) {
	var mine, announced []netip.Prefix
	for _, p := range pools {
		if strings.EqualFold(p.NetworkInstance, e.NetworkInstance) {
			mine, announced = append(mine, p.Prefixes...), append(announced, p.announced()...)
		}
	}
	for _, p := range announced {
		if e.Pools && !slices.ContainsFunc(out, func(o Prefix) bool { return o.Prefix == p.Masked() }) {
			out = append(out, Prefix{Prefix: p.Masked()})
		}
	}
	if !e.FramedRoutes {
		return out, nil
	}
	framed, refused := e.framed(mine, pools, sessions, closed)
	most := int(cmp.Or(e.MaxFramedRoutes, DefaultMaxFramedRoutes))
	if len(framed) > most {
		for _, p := range framed[most:] {
			refused = append(refused, Refused{p.Prefix, fmt.Sprintf("max_framed_routes is %d", most)})
		}
		framed = framed[:most]
	}
	return append(out, framed...), refused
}

// Refused is a framed route that is not announced.
type Refused struct {
	Prefix netip.Prefix
	Why    string
}

// framed are the framed routes of the sessions whose UEs are in the pools `mine`, each
// once and in order, without those in an announced pool.
func (e *Entry) framed(mine []netip.Prefix, pools []Pool, sessions []Session, closed []netip.Prefix) (out []Prefix, refused []Refused) {
	inside := func(list []netip.Prefix, p netip.Prefix) bool {
		return slices.ContainsFunc(list, func(l netip.Prefix) bool { return Contains(l, p) })
	}
	var all []netip.Prefix
	for _, s := range sessions {
		if !slices.ContainsFunc(s.UE, func(u netip.Prefix) bool { return inside(mine, u) }) {
			continue
		}
		for _, r := range s.Routes {
			if r = r.Masked(); !e.Pools || !inside(mine, r) {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, r := range slices.Compact(all) {
		why := unfit(r, pools, closed)
		if why == "" && r.Addr().Is6() && !e.reachesIPv6(mine) {
			why = "next_hops has no IPv6 address"
		}
		if why != "" {
			refused = append(refused, Refused{r, why})
			continue
		}
		out = append(out, Prefix{r, true})
	}
	return out, refused
}

// reachesIPv6 says whether IPv6 prefixes have a next hop: a given one, or that of the pools.
func (e *Entry) reachesIPv6(mine []netip.Prefix) bool {
	return slices.ContainsFunc(e.NextHops, netip.Addr.Is6) || slices.ContainsFunc(mine, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// unfit says why no router may hear of a framed route, or "".
func unfit(r netip.Prefix, pools []Pool, closed []netip.Prefix) string {
	a := r.Addr()
	switch {
	case r.Bits() == 0:
		return "it is every address"
	case a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsUnspecified(), a.Is4In6():
		return "routers do not forward it"
	}
	for _, c := range closed {
		if c.Overlaps(r) {
			return fmt.Sprintf("it overlaps %s, which UEs must not have", c)
		}
	}
	for _, p := range pools {
		for _, other := range p.Prefixes {
			if r.Bits() < other.Bits() && Contains(r, other) {
				return fmt.Sprintf("it contains the pool %s", other)
			}
		}
	}
	return ""
}

// Contains says whether all of inner is in outer.
func Contains(outer, inner netip.Prefix) bool {
	return outer.IsValid() && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
