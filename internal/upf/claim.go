package upf

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
)

// Reserved is a prefix that no SMF may claim for a UE or a network behind one: its packets would
// be taken from whoever has it.
type Reserved struct {
	netip.Prefix
	What string // in the words of the configuration
}

// claims says which prefixes SMFs may claim.
type claims struct {
	pools    []netip.Prefix
	reserved []Reserved
	// allowed, if there are any, are the prefixes in which networks behind UEs have to be. They
	// open what is reserved: to the prefix itself, and to what is in one that is as long as the
	// reserved prefix.
	allowed []netip.Prefix

	log  *slog.Logger
	mu   sync.Mutex
	said map[netip.Prefix]bool
}

// maxClaimsLogged bounds what is remembered of SMFs' claims.
const maxClaimsLogged = 256

func newClaims(c *Config, log *slog.Logger) *claims {
	out := &claims{reserved: c.Reserved, allowed: c.FramedRoutes, log: log, said: map[netip.Prefix]bool{}}
	for _, p := range c.Pools {
		out.pools = append(out.pools, p.Prefixes...)
	}
	return out
}

// check refuses what a session claims and did not claim before; from is nil for a new one.
func (c *claims) check(from, to *session.Session) error {
	var had *claimed
	for i := range to.PDRs {
		p := &to.PDRs[i]
		for n, list := range [][]netip.Prefix{p.PDI.UE, p.PDI.FramedRoutes} {
			for _, prefix := range list {
				kind := claimKind(n)
				why := c.refusal(prefix.Masked(), kind)
				if why == "" {
					continue
				}
				if had == nil {
					had = claimedBy(from)
				}
				if slices.Contains(had[n], prefix) {
					continue
				}
				c.note(to, prefix, kind, why)
				return &session.RuleError{Kind: session.RulePDR, ID: uint32(p.ID), Err: fmt.Errorf("%s %s: %w: %s", kind, prefix, pfcp.ErrClosed, why)}
			}
		}
	}
	return nil
}

// claimKind is what a prefix is for a session.
type claimKind int

const (
	claimUE claimKind = iota
	claimRoute
)

func (k claimKind) String() string { return [...]string{"UE address", "framed route"}[k] }

// claimed are the prefixes that a session has, by their kind.
type claimed [2][]netip.Prefix

func claimedBy(s *session.Session) *claimed {
	out := &claimed{}
	if s == nil {
		return out
	}
	for i := range s.PDRs {
		out[claimUE] = append(out[claimUE], s.PDRs[i].PDI.UE...)
		out[claimRoute] = append(out[claimRoute], s.PDRs[i].PDI.FramedRoutes...)
	}
	return out
}

// refusal says why nobody may claim a prefix; empty: an SMF may. Pools are the UEs'.
func (c *claims) refusal(p netip.Prefix, kind claimKind) string {
	within := func(l netip.Prefix) bool { return l.Bits() <= p.Bits() && l.Contains(p.Addr()) }
	if slices.ContainsFunc(c.pools, within) {
		return ""
	}
	if a := p.Addr(); p.Bits() > 0 && (a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified()) {
		return "routers do not forward it"
	}
	var opens []netip.Prefix
	if kind == claimRoute {
		for _, l := range c.allowed {
			if within(l) {
				opens = append(opens, l)
			}
		}
		if len(c.allowed) > 0 && len(opens) == 0 {
			return "upf.framed_routes does not list it"
		}
	}
	if p.Bits() == 0 && !slices.Contains(opens, p) {
		return "it is every address"
	}
	for _, r := range c.reserved {
		open := func(l netip.Prefix) bool { return l == p || l.Bits() >= r.Bits() }
		if r.Overlaps(p) && !slices.ContainsFunc(opens, open) {
			return fmt.Sprintf("it overlaps %s, of %s", r.Prefix, r.What)
		}
	}
	return ""
}

// note logs a refusal, the first of its prefix.
func (c *claims) note(s *session.Session, p netip.Prefix, kind claimKind, why string) {
	c.mu.Lock()
	known := c.said[p] || len(c.said) >= maxClaimsLogged
	if !known {
		c.said[p] = true
	}
	c.mu.Unlock()
	if known {
		return
	}
	fix := "list it in upf.framed_routes if UEs may have it"
	if kind == claimUE {
		fix = "list it in a pool of upf.ue_pools if UEs may have it"
	}
	c.log.Warn("an SMF claims a prefix that UEs must not have: its session is refused", "event", logevent.SessionClaimRefused,
		"association", s.Node, "seid", fmt.Sprintf("%#x", s.SEID), "claim", kind.String(), "prefix", p.String(), "reason", why, "fix", fix)
}
