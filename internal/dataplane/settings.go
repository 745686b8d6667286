package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// SetSettings changes what is different. At most 8 domain prefixes, 4 GTP-U addresses of each family, 8 pools of each family and 8 locators
// fit. A locator or pool that is too large for its table is not an error: its
// SIDs and UE addresses are found by prefix, which takes a little longer. A
// session pool must fit (*FullError), and stays while sessions have addresses of
// it.
func (d *DataPlane) SetSettings(s settings.Settings) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.setSettings(s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

// CheckSettings says what d.SetSettings would refuse. It changes nothing.
func CheckSettings(d *DataPlane, s settings.Settings) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := checkSettings(d, s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

func checkSettings(d *DataPlane, s settings.Settings) error {
	if err := d.settings.Check(s); err != nil {
		return err
	}
	now := d.settings.Get()
	kept := d.settings.PoolsIn(settings.PoolsOf(&now), &s, false)
	return d.Sessions.CheckPools(s.UEPools, kept, d.settings.PoolsIn(kept, &s, true))
}

func (d *DataPlane) setSettings(s settings.Settings) error {
	s.HopLimit = cmp.Or(s.HopLimit, settings.DefaultHopLimit)
	if err := checkSettings(d, s); err != nil {
		return err
	}
	book := d.settings
	now := book.Get()
	if err := d.reach.Set(s.Protected, s.MayReach); err != nil {
		return err
	}
	former := book.Want
	book.Want = s
	// Ranges that go make room for those that come, so they go first; what
	// lives in them moves before that.
	keep := book.Ranges(&now, &s, false)
	if err := d.leaveRanges(settings.RangesOf(&now), keep); err != nil {
		book.Want, book.Leaving = former, nil
		return err
	}
	next := book.Entry(book.Get(), s)
	keep.PutIn(&next)
	book.Write(next)
	d.clearRanges(settings.RangesOf(&now), keep)

	now = book.Get()
	next = now
	all := book.Ranges(&now, &s, true)
	all.PutIn(&next)
	// A daemon that died here may have left something in the new ranges.
	d.clearRanges(all, settings.RangesOf(&now))
	book.Write(next)
	book.ForgetLookups() // routes to what is no longer, or now, the data path's own
	d.Sessions.SetPools(settings.PoolsOf(new(d.settings.Get())))
	d.SIDs.CountInside()
	// What holds a source that it did not name itself is written again.
	if former.Source != s.Source {
		if err := d.Policies.SourceChanged(); err != nil {
			return err
		}
	}
	if err := d.Sessions.SourcesChanged(); err != nil || slices.Equal(former.GTPUAddresses, s.GTPUAddresses) {
		return err
	}
	return d.Tunnels.SourceChanged()
}

// leaveRanges moves the SIDs and steering entries of ranges that are about to
// go to where they are found by prefix.
func (d *DataPlane) leaveRanges(now, keep settings.Ranges) error {
	locators, pools := now.Without(keep)
	for _, l := range locators {
		if err := d.SIDs.Leave(l); err != nil {
			return err
		}
	}
	d.settings.Leaving = map[uint32]bool{}
	for _, p := range pools {
		if p.Sessions == 0 {
			d.settings.Leaving[p.Base] = true
		}
	}
	return d.Steering.LeavePools()
}

// clearRanges empties the ranges of now that are not in keep: no packet is led to
// them. A range of sessions goes when none has an address there (CheckPools), so
// that only a crash can have left something.
func (d *DataPlane) clearRanges(now, keep settings.Ranges) {
	locators, pools := now.Without(keep)
	for _, l := range locators {
		d.SIDs.Clear(l)
	}
	settings.ClearNATs(d.tables.NAT, now, keep)
	for _, p := range pools {
		if p.Sessions == 0 {
			d.entries.Wipe(p.Base, p.Size())
			continue
		}
		for index := p.Base; index < p.Base+p.Size(); index++ {
			session.Clear(d.sessionTables.PDR, index)
		}
	}
	d.settings.Leaving = nil
}

// Sweep removes what an earlier daemon had put and this one has not. Call it
// once everything that is wanted is put. What others refer to goes last. Packets that met
// tables of another layout meet these from here on.
func (d *DataPlane) Sweep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.renewal != nil {
		if err := d.renewal.switchOver(); err != nil {
			return fmt.Errorf("change to the new tables: %w", err)
		}
	}
	err := errors.Join(d.Routes.Sweep(), d.Pods.Sweep(), d.TCX.Sweep(), d.Steering.Sweep(), d.Ports.Sweep(), d.Sessions.Sweep(),
		d.SIDs.Sweep(), d.Tunnels.Sweep(), d.Policies.Sweep(), d.Adjacencies.Sweep())
	err = errors.Join(err, d.reach.Sweep())
	d.sources.Sweep()
	d.names.Settle()
	d.targets.Settle()
	return err
}

// Renewing says whether packets meet tables of another layout, until Sweep.
func Renewing(d *DataPlane) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renewal != nil
}

// nameEvent says what the indices in a record mean. Only while somebody
// traces are they looked for, so nothing is kept to find them fast.
func (d *DataPlane) nameEvent(e *event.TraceEvent, r *abi.TraceEvent) {
	e.Session, e.Rule = d.Sessions.Owner(r.Pdr)
	e.SID = d.SIDs.PrefixAt(r.Sid)
	e.Policy = d.Policies.NameAt(r.Policy)
	if name, list := d.Policies.ListAt(r.List); list >= 0 {
		e.Policy, e.List = name, list
	}
	e.Tunnel = cmp.Or(d.Steering.TunnelAt(r.Tunnel), d.Tunnels.NameAt(r.Tunnel))
	e.Adjacency = d.Adjacencies.KeyAt(r.Adjacency)
}
