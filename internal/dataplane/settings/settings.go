package settings

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
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
	Protected       []netip.Prefix // what UEs do not reach: peers of sessions beside that
	MayReach        []netip.Prefix // what they reach all the same
	Locators        []Locator
	NATs            []NAT // of pools of sessions
	MSSClamp        bool  // of sessions' TCP connections
	MSSClampGateway bool  // of those in T-PDUs between GTP-U and SRv6
	// RateBurst is how much of the past counts for rates in octets, at most MaxRateBurst;
	// DefaultRateBurst unless set.
	RateBurst time.Duration
	// FlowSampling is that one in so many packets of pods has a record; 0: there are no records.
	FlowSampling uint16
}

// The burst of rates: at most 2 % of what a rate lets go in 10 s.
const (
	DefaultRateBurst = 190 * time.Millisecond
	MaxRateBurst     = 200 * time.Millisecond
)

// meterBurst is a burst as the data path has it.
func meterBurst(d time.Duration) uint32 { return uint32(cmp.Or(d, DefaultRateBurst) / 1024) }

// Locator is a prefix whose SIDs of exactly Prefix + FunctionBits are found by
// index.
type Locator struct {
	Prefix       netip.Prefix
	FunctionBits uint8 // 16 unless set
}

// DefaultHopLimit is what headends push unless Settings say otherwise.
const DefaultHopLimit = 64

// Map is the name of the map of settings.
const Map = "settings"

// Limits size the tables. They are fixed while a daemon runs.
type Limits struct {
	SIDs         uint32 // 65536 unless set
	Policies     uint32 // 4096 unless set
	SegmentLists uint32 // 16384 unless set
	Tunnels      uint32 // 65536 unless set
	Routes       uint32 // of each family, 65536 unless set
	Adjacencies  uint32 // 4096 unless set
	Sessions     uint32 // 0: no user plane function, and no memory for it
	Filters      uint32 // of all sessions, 12 for each of Sessions unless set
	NATAddresses uint32 // public ones, each with 1.5 MB of ports
	PodFlows     uint32 // 0: no pods
}

// MaxSessions bounds Limits.Sessions: the low 24 bits of a TEID are an entry.
const MaxSessions = 1<<24 - 1

// FiltersOfSession is how many filters there are for each session unless
// Limits.Filters says otherwise: Open5GS' session for IPv4 and IPv6 with one
// dedicated QoS flow has three runs of four.
const FiltersOfSession = 12

// WithDefaults are the limits with what is unset set.
func (l Limits) WithDefaults() Limits {
	l.SIDs = cmp.Or(l.SIDs, 65536)
	l.Policies = cmp.Or(l.Policies, 4096)
	l.SegmentLists = cmp.Or(l.SegmentLists, 16384)
	l.Tunnels = cmp.Or(l.Tunnels, 65536)
	l.Routes = cmp.Or(l.Routes, 65536)
	l.Adjacencies = cmp.Or(l.Adjacencies, 4096)
	l.Sessions = min(l.Sessions, MaxSessions)
	l.Filters = cmp.Or(l.Filters, FiltersOfSession*l.Sessions)
	return l
}

// PDRRanges are where the entries of TEIDs end in table pdr, those of UE pools
// begin, and the others do. A session has two TEIDs: Open5GS' has one for packets
// of the SMF.
func (l Limits) PDRRanges() (slots, pools, free uint32) {
	slots = min(2*l.Sessions, MaxSessions) + 1
	return slots, slots, slots + 2*l.Sessions
}

// FlowBuckets is a power of two: the buckets of netpol_flow, with room for PodFlows.
func (l Limits) FlowBuckets() uint32 {
	const ways = uint32(len(abi.PodFlowBucket{}.Flow))
	if l.PodFlows <= ways {
		return 1
	}
	return 1 << bits.Len32((l.PodFlows-1)/ways)
}

// FlowCacheSets is how many sets flow_cache has, with room for PodFlows.
func (l Limits) FlowCacheSets() uint32 {
	return l.FlowBuckets() * uint32(len(abi.PodFlowBucket{}.Flow)/len(abi.CachedFlows{}.Way))
}

// Book is the entry of map settings, and what it was made of.
type Book struct {
	words  *table.Array[abi.Settings]
	grace  *table.Grace
	limits Limits
	// Want is what SetSettings was last given.
	Want Settings
	// Leaving are the bases of pools that are about to go: PoolSlot finds nothing
	// there.
	Leaving map[uint32]bool
}

// Open takes the table.
func Open(words *table.Array[abi.Settings], grace *table.Grace, limits Limits) *Book {
	b := &Book{words: words, grace: grace, limits: limits}
	b.Change(func(s *abi.Settings) {
		s.TeidSlots, s.FlowBuckets = limits.Tunnels, limits.FlowBuckets()
		s.HopLimit = cmp.Or(s.HopLimit, DefaultHopLimit)
		s.MeterBurst = cmp.Or(s.MeterBurst, meterBurst(0))
		if s.FlowKey == (abi.Settings{}.FlowKey) {
			s.FlowKey = randomKey()
		}
	})
	if b.Get().Generation == 0 { // that of a slot never filled
		b.ForgetLookups()
	}
	return b
}

// randomKey is a key that nobody knows.
func randomKey() (key [len(abi.Settings{}.FlowKey)]uint64) {
	var b [8 * len(key)]byte
	rand.Read(b[:]) // never fails
	for i := range key {
		key[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return key
}

// GTPUSource is the first GTP-U address of the family of remote; the zero Addr: there
// is none.
func (b *Book) GTPUSource(remote netip.Addr) netip.Addr {
	for _, a := range b.Want.GTPUAddresses {
		if a.Is4() == remote.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// Get is what packets see now.
func (b *Book) Get() abi.Settings { return b.words.Get(0) }

// ForgetLookups makes every CPU's cached lookup of a route or of steering old
// (bpf/cache.h). It comes after the change: what a packet remembers meanwhile
// carries the number from before.
func (b *Book) ForgetLookups() {
	b.Change(func(s *abi.Settings) {
		if s.Generation++; s.Generation == 0 {
			s.Generation = 1
		}
	})
}

// Steer says that target_by_dst4 or target_by_dst6 steer packets. It comes before the first such
// target.
func (b *Book) Steer() {
	if b.Get().Steered == 0 {
		b.Change(func(s *abi.Settings) { s.Steered = 1 })
	}
}

// elements describes one of the lists in settings. The first word of an
// element decides whether it matches.
type elements struct{ first, size, n int } // in words

// lists are the lists of struct settings (bpf/def/tables.h).
var lists = func() []elements {
	t := reflect.TypeFor[abi.Settings]()
	var out []elements
	for _, name := range []string{"Locator", "Domain", "Gtpu6", "Pool4", "Pool6", "Nat"} {
		f, _ := t.FieldByName(name)
		out = append(out, elements{int(f.Offset / 8), int(f.Type.Elem().Size() / 8), f.Type.Len()})
	}
	return out
}()

// Check refuses what cannot be written.
func (b *Book) Check(s Settings) error {
	if err := b.checkNATs(&s); err != nil {
		return err
	}
	if s.Source.IsValid() && !s.Source.Is6() {
		return fmt.Errorf("source %s: want an IPv6 address", s.Source)
	}
	for _, p := range s.Domain {
		if !p.IsValid() || !p.Addr().Is6() {
			return fmt.Errorf("domain %s: want an IPv6 prefix", p)
		}
	}
	for _, p := range slices.Concat(s.Protected, s.MayReach, s.UEPools) {
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
		{"IPv4 GTP-U addresses", four, len(e.Gtpu4)},
		{"IPv6 GTP-U addresses", len(s.GTPUAddresses) - four, len(e.Gtpu6)},
		{"pools with NAT", len(s.NATs), len(e.Nat)},
	} {
		if c.have > c.max {
			return fmt.Errorf("%d %s: at most %d", c.have, c.what, c.max)
		}
	}
	return nil
}

// Change changes numbers, not lists.
func (b *Book) Change(change func(*abi.Settings)) {
	s := b.Get()
	change(&s)
	b.Write(s)
}

// Entry is s less locators and pools, with what is there now in its
// place.
func (b *Book) Entry(now abi.Settings, s Settings) abi.Settings {
	e := now
	e.TeidSlots, e.ErrorsPerSecond, e.HopLimit = b.limits.Tunnels, s.ErrorsPerSecond, s.HopLimit
	e.MssClamp = 0
	if s.MSSClamp {
		e.MssClamp |= uint8(abi.MssClampMSS_OF_SESSIONS)
	}
	if s.MSSClampGateway {
		e.MssClamp |= uint8(abi.MssClampMSS_OF_GATEWAY)
	}
	e.MeterBurst = meterBurst(s.RateBurst)
	e.FlowSampling = s.FlowSampling
	var domain []abi.Prefix6
	for _, p := range s.Domain {
		hi, lo := abi.Halves(p.Masked().Addr())
		domain = append(domain, abi.Prefix6{Hi: hi, Lo: lo, MaskHi: abi.Ones(p.Bits()), MaskLo: abi.Ones(p.Bits() - 64)})
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
	place(e.Gtpu4[:], gtpu4, ^uint32(0))
	place(e.Gtpu6[:], gtpu6, none)
	return e
}

// place changes list so that it holds the elements of want: those that it already
// holds keep their slots, the others fill the free slots, whose value is nothing.
// Elements that do not fit are left out.
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

// Write changes words so that no packet sees a half of an element:
// what changes is off first, then its other words, then on.
func (b *Book) Write(next abi.Settings) {
	count := func(n int, isOff func(int) bool) uint32 {
		for n > 0 && isOff(n-1) {
			n--
		}
		return uint32(n)
	}
	to := table.ToWords(next)
	ends := make([]uint32, len(lists))
	for i, l := range lists {
		ends[i] = count(l.n, func(n int) bool { return to[l.first+n*l.size] == abi.Off })
	}
	next.Locators, next.Domains, next.Gtpu6Count = ends[0], ends[1], ends[2]
	next.Pools4, next.Pools6, next.Nats = ends[3], ends[4], ends[5]
	next.Gtpu4Count = count(len(next.Gtpu4), func(n int) bool { return next.Gtpu4[n] == ^uint32(0) })
	to = table.ToWords(next)
	from := table.ToWords(b.Get())
	if slices.Equal(from, to) {
		return
	}
	b.switchOff(from, to)
	guard := map[int]bool{}
	for _, l := range lists {
		for n := range l.n {
			guard[l.first+n*l.size] = true
		}
	}
	// Bodies, then the words that let them match, then the counts, which are
	// in the first words.
	header := lists[0].first
	for w := header; w < len(to); w++ {
		if !guard[w] && from[w] != to[w] {
			b.words.Store(0, w, to[w])
		}
	}
	for w := len(to) - 1; w >= 0; w-- {
		if (guard[w] || w < header) && b.words.Load(0, w) != to[w] {
			b.words.Store(0, w, to[w])
		}
	}
}

// switchOff makes elements match nothing that are going to change, and waits
// for the packets that read them.
func (b *Book) switchOff(from, to []uint64) {
	changed := false
	for _, l := range lists {
		for n := range l.n {
			at := l.first + n*l.size
			was := from[at : at+l.size]
			if was[0] == abi.Off || slices.Max(was) == 0 || slices.Equal(was, to[at:at+l.size]) {
				continue
			}
			b.words.Store(0, at, abi.Off)
			changed = true
		}
	}
	if changed {
		b.grace.Wait()
	}
}
