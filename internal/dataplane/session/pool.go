package session

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// PoolError says why the UE pools of sessions cannot become those that are wanted.
type PoolError struct {
	Pool         netip.Prefix
	Problem, Fix string
	Err          error // a *table.FullError, or nil
}

func (e *PoolError) Error() string {
	return fmt.Sprintf("UE pool %s: %s: %s", e.Pool, e.Problem, e.Fix)
}

// Unwrap returns Err.
func (e *PoolError) Unwrap() error { return e.Err }

// ofSessions are the pools whose UEs have sessions.
func ofSessions(all settings.Pools) []settings.Pool {
	return slices.DeleteFunc(all[:], func(p settings.Pool) bool { return p.Sessions == 0 })
}

// SetPools takes over the UE pools that packets find in the settings now.
func (s *Sessions) SetPools(now settings.Pools) { s.tables.pools = ofSessions(now) }

// CheckPools says whether the UE pools of sessions can become those that are
// wanted: all are in the next settings, sessions have no address of those that
// are not kept, and none of those that are new by another lookup (*PoolError).
func (s *Sessions) CheckPools(want []netip.Prefix, kept, next settings.Pools) error {
	if !s.room {
		if len(want) > 0 {
			return fmt.Errorf("UE pool %s: %w", want[0], ErrNone)
		}
		return nil
	}
	stay, all := ofSessions(kept), ofSessions(next)
	for _, p := range want {
		isIt := func(l settings.Pool) bool { return l.Prefix() == p.Masked() }
		if !slices.ContainsFunc(all, isIt) {
			full := &table.FullError{Table: abi.MapPdr, Max: 2 * s.owners.most, Limit: "sessions"}
			return &PoolError{p, full.Error(), "use smaller pools, or restart the daemon with this configuration", full}
		}
		if slices.ContainsFunc(stay, isIt) {
			continue
		}
		for k := range s.tables.UEs.All() {
			if a := netip.AddrFrom16(k.B).Unmap(); !isLinkEntry(k) && !isSIDEntry(k) && p.Contains(a) {
				return &PoolError{p, fmt.Sprintf("a session has %s already, outside of a pool", a), "release it first", nil}
			}
		}
	}
	for _, l := range s.tables.pools {
		isOwned := func(e owner) bool { return e.session != 0 }
		if !slices.Contains(stay, l) && slices.ContainsFunc(s.owners.entries[l.Base:l.Base+l.Size()], isOwned) {
			return &PoolError{l.Prefix(), "sessions have addresses of it", "keep the pool, or release them first", nil}
		}
	}
	return nil
}
