package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Settings are what every packet's handling depends on.
type Settings struct {
	HopLimit        uint8      // of what headends push, 64 unless set
	Source          netip.Addr // of policies that have none
	ErrorsPerSecond uint32     // ICMP errors and Error Indications, on each CPU
	Domain          []netip.Prefix
	GTPUAddresses   []netip.Addr
	Pools           []netip.Prefix // UE addresses that tunnels lead to
	UEPools         []netip.Prefix // UE addresses of sessions
	Protected       []netip.Prefix // what UEs do not reach
	Locators        []Locator
	MSSClamp        bool // of sessions' TCP connections
}

// Locator is a prefix whose SIDs of exactly Prefix + FunctionBits are found by
// index.
type Locator struct {
	Prefix       netip.Prefix
	FunctionBits uint8 // 16 unless set
}

const defaultHopLimit = 64

// elements describes one of the lists in settings. The first word of an
// element decides whether it matches.
type elements struct{ first, size, n int } // in words

// settingsLists are the lists of struct settings (bpf/def/tables.h).
var settingsLists = func() []elements {
	t := reflect.TypeFor[abi.Settings]()
	var out []elements
	for _, name := range []string{"Locator", "Domain", "Protected", "Gtpu6", "Pool4", "Pool6"} {
		f, _ := t.FieldByName(name)
		out = append(out, elements{int(f.Offset / 8), int(f.Type.Elem().Size() / 8), f.Type.Len()})
	}
	return out
}()

// SetSettings changes what is different. At most 8 domain prefixes, 8 protected
// ones, 4 GTP-U addresses of each family, 8 pools of each family and 8 locators
// fit. A locator or pool that is too large for its table is not an error: its
// SIDs and UE addresses are found by prefix, which takes a little longer. A
// session pool must fit (*FullError), and stays while sessions have addresses of
// it.
func (d *DataPlane) SetSettings(s Settings) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.HopLimit == 0 {
		s.HopLimit = defaultHopLimit
	}
	if err := checkSettings(s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	now := d.settings.Get(0)
	if err := d.checkUEPools(now, s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	former := d.want
	d.want = s
	// Ranges that go make room for those that come, so they go first; what
	// lives in them moves before that.
	keep := d.locatorsIn(now, s, false)
	pools4, pools6 := d.poolsIn(now, s, false)
	if err := d.leaveRanges(now, keep, pools4, pools6); err != nil {
		d.want, d.leaving = former, nil
		return fmt.Errorf("settings: %w", err)
	}
	next := d.settingsEntry(d.settings.Get(0), s)
	next.Locator, next.Pool4, next.Pool6 = keep, pools4, pools6
	d.writeSettings(next)
	d.clearRanges(now, keep, pools4, pools6)

	now = d.settings.Get(0)
	next = now
	next.Locator = d.locatorsIn(now, s, true)
	next.Pool4, next.Pool6 = d.poolsIn(now, s, true)
	// A daemon that died here may have left something in the new ranges.
	d.clearRanges(next, now.Locator, now.Pool4, now.Pool6)
	d.writeSettings(next)
	d.Sessions.setPools(sessionPoolsOf(new(d.settings.Get(0))))
	d.countInside()
	if err := d.sourcesChanged(former); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

func checkSettings(s Settings) error {
	if s.Source.IsValid() && !s.Source.Is6() {
		return fmt.Errorf("source %s: want an IPv6 address", s.Source)
	}
	for _, p := range s.Domain {
		if !p.IsValid() || !p.Addr().Is6() {
			return fmt.Errorf("domain %s: want an IPv6 prefix", p)
		}
	}
	for _, p := range slices.Concat(s.Protected, s.UEPools) {
		if !p.IsValid() {
			return fmt.Errorf("prefix %s: want one of IPv4 or IPv6", p)
		}
	}
	for _, l := range s.Locators {
		if !l.Prefix.IsValid() || !l.Prefix.Addr().Is6() {
			return fmt.Errorf("locator %s: want an IPv6 prefix", l.Prefix)
		}
	}
	four := 0
	for _, a := range s.GTPUAddresses {
		if a.Is4() {
			four++
		}
	}
	var e abi.Settings
	for _, c := range []struct {
		what      string
		have, max int
	}{
		{"domain prefixes", len(s.Domain), len(e.Domain)},
		{"protected prefixes", len(s.Protected), len(e.Protected)},
		{"IPv4 GTP-U addresses", four, len(e.Gtpu4)},
		{"IPv6 GTP-U addresses", len(s.GTPUAddresses) - four, len(e.Gtpu6)},
	} {
		if c.have > c.max {
			return fmt.Errorf("%d %s: at most %d", c.have, c.what, c.max)
		}
	}
	return nil
}

// sourcesChanged rewrites what holds a source that it did not name itself.
func (d *DataPlane) sourcesChanged(former Settings) error {
	if former.Source != d.want.Source {
		for _, p := range d.policies {
			if p.model.Source.IsValid() {
				continue
			}
			if err := d.putPolicy(p.model); err != nil {
				return err
			}
		}
	}
	if err := d.Sessions.sourcesChanged(); err != nil {
		return err
	}
	if slices.Equal(former.GTPUAddresses, d.want.GTPUAddresses) {
		return nil
	}
	for _, t := range d.tunnels {
		if t.model.Source.IsValid() || !t.model.Remote.IsValid() || abi.In6Of(d.tunnelSource(t.model)) == t.source {
			continue
		}
		if err := d.putTunnel(t.model); err != nil {
			return err
		}
	}
	return nil
}

// storeSettings changes numbers, not lists.
func (d *DataPlane) storeSettings(change func(*abi.Settings)) {
	s := d.settings.Get(0)
	change(&s)
	d.writeSettings(s)
}

// settingsEntry is s less locators and pools, with what is there now in its
// place.
func (d *DataPlane) settingsEntry(now abi.Settings, s Settings) abi.Settings {
	e := now
	e.TeidSlots, e.ErrorsPerSecond, e.HopLimit = d.limits.Tunnels, s.ErrorsPerSecond, s.HopLimit
	e.MssClamp = 0
	if s.MSSClamp {
		e.MssClamp = 1
	}
	var domain []abi.Prefix6
	for _, p := range s.Domain {
		hi, lo := abi.Halves(p.Masked().Addr())
		domain = append(domain, abi.Prefix6{Hi: hi, Lo: lo, MaskHi: abi.Ones(p.Bits()), MaskLo: abi.Ones(p.Bits() - 64)})
	}
	var protected []abi.Prefix6
	for _, p := range s.Protected {
		hi, lo := abi.Halves(netip.AddrFrom16(abi.In6Of(p.Masked().Addr()).B))
		n := int(mappedBits(p))
		protected = append(protected, abi.Prefix6{Hi: hi, Lo: lo, MaskHi: abi.Ones(n), MaskLo: abi.Ones(n - 64)})
	}
	var gtpu4 []uint32
	var gtpu6 []abi.In6
	for _, a := range s.GTPUAddresses {
		if a.Is4() {
			gtpu4 = append(gtpu4, abi.BE32(a))
		} else {
			gtpu6 = append(gtpu6, abi.In6Of(a))
		}
	}
	none := abi.In6{}
	for i := range none.B {
		none.B[i] = 0xff
	}
	place(e.Domain[:], domain, abi.Prefix6{Hi: abi.Off})
	place(e.Protected[:], protected, abi.Prefix6{Hi: abi.Off})
	place(e.Gtpu4[:], gtpu4, ^uint32(0))
	place(e.Gtpu6[:], gtpu6, none)
	return e
}

// place changes list so that it holds what is wanted: what is there already
// stays where it is, the rest comes to where nothing is. What does not fit is
// left out.
func place[T comparable](list, want []T, nothing T) {
	var zero T
	missing := slices.Clone(want)
	for i, e := range list {
		if n := slices.Index(missing, e); n >= 0 && e != zero {
			missing = slices.Delete(missing, n, n+1)
		} else {
			list[i] = nothing
		}
	}
	for i, e := range list {
		if e == nothing && len(missing) > 0 {
			list[i], missing = missing[0], missing[1:]
		}
	}
}

// writeSettings changes words so that no packet sees a half of an element:
// what changes is off first, then its other words, then on.
func (d *DataPlane) writeSettings(next abi.Settings) {
	count := func(n int, isOff func(int) bool) uint32 {
		for n > 0 && isOff(n-1) {
			n--
		}
		return uint32(n)
	}
	to := table.ToWords(next)
	ends := make([]uint32, len(settingsLists))
	for i, l := range settingsLists {
		ends[i] = count(l.n, func(n int) bool { return to[l.first+n*l.size] == abi.Off })
	}
	next.Locators, next.Domains, next.ProtectedCount, next.Gtpu6Count = ends[0], ends[1], ends[2], ends[3]
	next.Pools4, next.Pools6 = ends[4], ends[5]
	next.Gtpu4Count = count(len(next.Gtpu4), func(n int) bool { return next.Gtpu4[n] == ^uint32(0) })
	to = table.ToWords(next)
	from := table.ToWords(d.settings.Get(0))
	if slices.Equal(from, to) {
		return
	}
	d.switchOff(from, to)
	guard := map[int]bool{}
	for _, l := range settingsLists {
		for n := range l.n {
			guard[l.first+n*l.size] = true
		}
	}
	// Bodies, then the words that let them match, then the counts, which are
	// in the first words.
	header := settingsLists[0].first
	for w := header; w < len(to); w++ {
		if !guard[w] && from[w] != to[w] {
			d.settings.Store(0, w, to[w])
		}
	}
	for w := len(to) - 1; w >= 0; w-- {
		if (guard[w] || w < header) && d.settings.Load(0, w) != to[w] {
			d.settings.Store(0, w, to[w])
		}
	}
}

// switchOff makes elements match nothing that are going to change, and waits
// for the packets that read them.
func (d *DataPlane) switchOff(from, to []uint64) {
	changed := false
	for _, l := range settingsLists {
		for n := range l.n {
			at := l.first + n*l.size
			was := from[at : at+l.size]
			if was[0] == abi.Off || slices.Max(was) == 0 || slices.Equal(was, to[at:at+l.size]) {
				continue
			}
			d.settings.Store(0, at, abi.Off)
			changed = true
		}
	}
	if changed {
		d.grace.Wait()
	}
}

// locatorEntry is a locator without its range; ok is false if it is not one
// that can be found by index.
func (d *DataPlane) locatorEntry(l Locator) (e abi.Locator, ok bool) {
	function := int(l.FunctionBits)
	if function == 0 {
		function = 16
	}
	shift := 64 - l.Prefix.Bits() - function
	if shift < 0 || l.Prefix.Bits() == 0 || function > 31 || uint32(1)<<function > d.limits.SIDs {
		return e, false
	}
	hi, _ := abi.Halves(l.Prefix.Masked().Addr())
	return abi.Locator{
		Hi: hi, Mask: abi.Ones(l.Prefix.Bits()), FunctionMask: uint32(1)<<function - 1, Shift: uint8(shift),
	}, true
}

// locatorsIn are the wanted locators that are there now, each where it is; if
// add is set, also those that are new, as far as they fit.
func (d *DataPlane) locatorsIn(now abi.Settings, s Settings, add bool) [8]abi.Locator {
	out := [len(now.Locator)]abi.Locator{}
	nothing := abi.Locator{Hi: abi.Off}
	var want []abi.Locator
	for _, l := range s.Locators {
		if e, ok := d.locatorEntry(l); ok {
			want = append(want, e)
		}
	}
	for i, e := range now.Locator {
		base := e.Base
		e.Base = 0
		out[i] = nothing
		if n := slices.Index(want, e); e.Enabled() && n >= 0 {
			want = slices.Delete(want, n, n+1)
			e.Base = base
			out[i] = e
		}
	}
	if !add {
		return out
	}
	var ranges [][2]uint32
	for _, e := range out {
		if e.Enabled() {
			ranges = append(ranges, [2]uint32{e.Base, e.Size()})
		}
	}
	for i := range out {
		for !out[i].Enabled() && len(want) > 0 {
			e := want[0]
			want = want[1:]
			if slices.ContainsFunc(out[:], e.Overlaps) {
				continue // one locator leads to each SID
			}
			if base, ok := fit(ranges, e.Size(), 1, d.limits.SIDs+1); ok {
				e.Base = base
				ranges = append(ranges, [2]uint32{base, e.Size()})
				out[i] = e
			}
		}
	}
	return out
}

// fit finds room for size entries in [first, end) beside ranges of {base,
// size}.
func fit(ranges [][2]uint32, size, first, end uint32) (uint32, bool) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]uint32) int { return int(a[0]) - int(b[0]) })
	at := first
	for _, r := range ranges {
		if r[0] >= at && r[0]-at >= size {
			return at, true
		}
		at = max(at, r[0]+r[1])
	}
	return at, at <= end && end-at >= size
}

// leaveRanges moves the SIDs and steering entries of ranges that are about to
// go to where they are found by prefix.
func (d *DataPlane) leaveRanges(now abi.Settings, keep [8]abi.Locator, pools4 [8]abi.Pool4, pools6 [8]abi.Pool6) error {
	for i, l := range now.Locator {
		if !l.Enabled() || keep[i] == l {
			continue
		}
		for index := l.Base; index < l.Base+l.Size(); index++ {
			if d.localSID.Get(index).Behavior == 0 {
				continue
			}
			if err := d.moveSID(l.PrefixOf(index), index); err != nil {
				return err
			}
		}
	}
	d.leaving = map[uint32]bool{}
	for i, p := range now.Pool4 {
		if p.Enabled() && p.Sessions == 0 && pools4[i] != p {
			d.leaving[p.Base] = true
		}
	}
	for i, p := range now.Pool6 {
		if p.Enabled() && p.Sessions == 0 && pools6[i] != p {
			d.leaving[p.Base] = true
		}
	}
	var errs []error
	for _, s := range d.steerings {
		if s.slot != 0 && d.poolSlot(s.prefix) == 0 {
			errs = append(errs, d.placeSteering(s))
		}
	}
	return errors.Join(errs...)
}

// moveSID gives a SID an entry that is found by prefix. The one in the range
// goes with the range.
func (d *DataPlane) moveSID(p netip.Prefix, from uint32) error {
	to, err := d.newSIDIndex()
	if err != nil {
		return err
	}
	if err := counter.Copy(d.maps[abi.MapSidCounter], from, to); err != nil {
		return err
	}
	if s := d.sids[p]; s != nil {
		s.index = to
	}
	_, err = d.writeSID(p, to, d.localSID.Get(from))
	return err
}

// clearRanges empties the ranges of `now` that are not in keep and pools: no
// packet is led to them.
func (d *DataPlane) clearRanges(now abi.Settings, keep [8]abi.Locator, pools4 [8]abi.Pool4, pools6 [8]abi.Pool6) {
	for i, l := range now.Locator {
		if l.Enabled() && keep[i] != l {
			for index := l.Base; index < l.Base+l.Size(); index++ {
				d.localSID.Store(index, 0, 0)
			}
		}
	}
	for i, p := range now.Pool4 {
		if p.Enabled() && pools4[i] != p {
			d.clearPool(p.Sessions, p.Base, p.Size())
		}
	}
	for i, p := range now.Pool6 {
		if p.Enabled() && pools6[i] != p {
			d.clearPool(p.Sessions, p.Base, p.Size())
		}
	}
	d.leaving = nil
}

// clearPool empties a pool's range. One of sessions goes when none has an
// address there (checkUEPools), so that only a crash can have left something.
func (d *DataPlane) clearPool(sessions, base, size uint32) {
	if sessions != 0 {
		for index := base; index < base+size; index++ {
			d.sessionTables.pdr.Change(index, wordPDRDo, 0)
		}
		return
	}
	for index := base; index < base+size; index++ {
		d.tunnel.Store(index, wordAction, 0)
		delete(d.resting, index)
	}
}
