package dataplane

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Limits size the tables. They are fixed while the data path is pinned.
type Limits struct {
	SIDs         uint32 // 65536 unless set
	Policies     uint32 // 4096 unless set
	SegmentLists uint32 // 16384 unless set
	Tunnels      uint32 // 65536 unless set
	Routes       uint32 // of each family, 65536 unless set
	Adjacencies  uint32 // 4096 unless set
	Sessions     uint32 // 0: no user plane function, and no memory for it
	Filters      uint32 // of all sessions, as many as Sessions unless set
}

func (l Limits) withDefaults() Limits {
	set := func(v *uint32, unset uint32) {
		if *v == 0 {
			*v = unset
		}
	}
	set(&l.SIDs, 65536)
	set(&l.Policies, 4096)
	set(&l.SegmentLists, 16384)
	set(&l.Tunnels, 65536)
	set(&l.Routes, 65536)
	set(&l.Adjacencies, 4096)
	l.Sessions = min(l.Sessions, teidSlotMask)
	if l.Sessions != 0 {
		set(&l.Filters, l.Sessions)
	}
	return l
}

// pdrRanges are where the entries of TEIDs end, those of UE pools begin, and the
// others do.
func (l Limits) pdrRanges() (slots, pools, free uint32) {
	return l.Sessions + 1, l.Sessions + 1, 3*l.Sessions + 1
}

// Options say where the data path lives and how large it is.
type Options struct {
	// PinPath is a directory below a bpffs, /sys/fs/bpf/culvert for example,
	// whose parent exists. If it is empty nothing is pinned, and everything
	// goes with Close.
	PinPath string
	Limits  Limits
	Logger  *slog.Logger

	// edit changes the build: tests upgrade from one to another.
	edit func(*ebpf.CollectionSpec)
}

// DataPlane is the loaded data path. Its methods may be called concurrently.
type DataPlane struct {
	mu     sync.Mutex
	log    *slog.Logger
	limits Limits
	build  string
	grace  *table.Grace
	pins   *pins // nil: not pinned
	maps   map[string]*ebpf.Map
	prog   *ebpf.Program
	// withoutSessions is how many entries the maps of sessions have where there
	// are none.
	withoutSessions map[string]uint32
	edit            func(*ebpf.CollectionSpec) // see Options
	links           map[int]*attachment
	podPrograms     map[string]*ebpf.Program // by name; nil: not loaded
	hooks           map[int]*hooked

	settings      *table.Array[abi.Settings]
	localSID      *table.Array[abi.LocalSid]
	srPolicy      *table.Array[abi.SrPolicy]
	tunnel        *table.Array[abi.Tunnel]
	sessionTables sessionTables
	sliceMeter    *table.Array[abi.Meter]
	names         *table.Names
	sidTable      *table.Hash[abi.SidKey, uint32]
	teidTable     *table.Hash[uint32, uint32]
	target4       *table.Hash[abi.Lpm4Key, abi.Target]
	target6       *table.Hash[abi.Lpm6Key, abi.Target]
	portRules     *table.Hash[abi.PortKey, abi.Target]
	route4        *table.Hash[abi.Lpm4Key, abi.Route]
	route6        *table.Hash[abi.Lpm6Key, abi.Route]

	sidIndex, mobileIndex, policyIndex, listIndex *table.Indexes
	tunnelIndex, adjacencyIndex, sourceIndex      *table.Indexes
	podIndex                                      *table.Indexes

	// Sessions are those of the UPF.
	Sessions *Sessions

	want        Settings // as SetSettings was last given it
	sids        map[netip.Prefix]*sid
	inside      map[uint32]int // see countInside
	policies    map[string]*policy
	tunnels     map[string]*tunnel
	teids       map[uint32]string // tunnel by local TEID
	steerings   map[string]*steering
	ethernet    map[Link]*ethernetLink
	pods        map[int]*pod // by ifindex
	podOf       map[netip.Addr]int
	ports       map[int]bool
	devices     map[int]bool
	local       map[netip.Addr]bool
	adjacencies map[AdjacencyKey]*adjacency
	changedAdj  map[AdjacencyKey]bool // since AdjacencyChanges; true: it is a new one
	sources     map[abi.In6]*source
	routes      map[routeKey][]AdjacencyKey
	waiting     map[string]map[string]bool // tunnels by the name of what they switch to
	sendNames   map[string]uint32          // send entries of tunnels, recovered
	policyNames map[string]uint32
	leaving     map[uint32]bool // bases of pools that are about to go
	reading     map[string]bool // ring buffers
	punts       atomic.Pointer[ringState]
	traceSince  uint64
	resting     map[uint32]uint64 // tunnel slots cleared in this epoch
}

// Open loads the data path, or takes over what is pinned at opts.PinPath: the
// maps stay as they are, and each pinned link changes to this build's program
// at once, so that no packet is lost. It attaches nothing.
//
// What an earlier daemon had put goes on working. Put it all again, then call
// Sweep.
func Open(opts Options) (*DataPlane, error) {
	spec, err := loadSpec()
	if err != nil {
		return nil, err
	}
	d := &DataPlane{
		log: opts.Logger, limits: opts.Limits.withDefaults(), grace: &table.Grace{},
		build: abi.Build(), links: map[int]*attachment{}, hooks: map[int]*hooked{}, edit: opts.edit,
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if opts.edit != nil {
		d.build = "" // which has no name
	}
	d.prepare(spec)
	if opts.PinPath == "" {
		err = d.load(spec, nil)
	} else {
		err = d.openPinned(spec, opts.PinPath)
	}
	if err == nil {
		err = d.openTables()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// prepare makes of the build what this data path loads of it.
func (d *DataPlane) prepare(spec *ebpf.CollectionSpec) {
	d.size(spec)
	if d.edit != nil {
		d.edit(spec)
	}
}

// mapSettings is the map of the program's one variable.
const mapSettings = "settings"

// loadSpec is the build. Its variable, which costs no look-up as a map's entry
// does, is in a map like the others: of its own name, to be pinned and written
// while packets pass.
func loadSpec() (*ebpf.CollectionSpec, error) {
	spec, err := abi.Load()
	if err != nil {
		return nil, err
	}
	const section = ".data." + mapSettings
	m := spec.Maps[section]
	data, ok := m.Value.(*btf.Datasec)
	if !ok || len(data.Vars) != 1 {
		return nil, fmt.Errorf("section %s: want one variable", section)
	}
	delete(spec.Maps, section)
	spec.Maps[mapSettings] = m
	m.Name, m.Contents = mapSettings, nil
	m.Key, m.Value = spec.Maps[abi.MapPort].Key, data.Vars[0].Type.(*btf.Var).Type
	for _, prog := range spec.Programs {
		for i, ins := range prog.Instructions {
			if ins.IsLoadFromMap() && ins.Reference() == section {
				prog.Instructions[i] = ins.WithReference(mapSettings)
			}
		}
	}
	return spec, nil
}

// Build is a hash of the object that is loaded.
func (d *DataPlane) Build() string { return d.build }

// size sets what maps.h leaves to the loader. SIDs found by index and those
// found by prefix have a half of local_sid each; tunnel has a quarter for
// TEIDs, one for UE pools, and two for entries that neither finds.
func (d *DataPlane) size(spec *ebpf.CollectionSpec) {
	l := d.limits
	for name, n := range map[string]uint32{
		abi.MapLocalSid: 2*l.SIDs + 1, abi.MapSidCounter: 2*l.SIDs + 1,
		abi.MapSidByPrefix: l.SIDs, abi.MapMobile: l.SIDs + 1,
		abi.MapSrPolicy:    l.Policies + 1,
		abi.MapSegmentList: l.SegmentLists + 1, abi.MapListCounter: l.SegmentLists + 1,
		abi.MapTunnel: 4 * l.Tunnels, abi.MapTunnelByTeid: l.Tunnels,
		abi.MapTargetByDst4: l.Routes, abi.MapTargetByDst6: l.Routes,
		abi.MapRoute4: l.Routes, abi.MapRoute6: l.Routes,
		abi.MapAdjacency: l.Adjacencies + 1,
	} {
		spec.Maps[name].MaxEntries = n
	}
	d.withoutSessions = map[string]uint32{}
	for name, n := range l.sessionMaps() {
		d.withoutSessions[name] = spec.Maps[name].MaxEntries
		if l.Sessions != 0 {
			spec.Maps[name].MaxEntries = n
		}
	}
	// These are written word by word, see mapped.
	for _, name := range []string{mapSettings, abi.MapLocalSid, abi.MapSrPolicy, abi.MapTunnel,
		abi.MapPdr, abi.MapRefused, abi.MapFilter, abi.MapFrameFilter, abi.MapForwarding, abi.MapMeter, abi.MapSliceMeter} {
		spec.Maps[name].Flags |= unix.BPF_F_MMAPABLE
	}
}

// sessionMaps are the maps of sessions, and the entries that there must be. In pdr
// each has one for a TEID, two for UE addresses, IPv4 and IPv6, in pools, and one
// for an address outside, and each filter one for its rule.
func (l Limits) sessionMaps() map[string]uint32 {
	_, _, free := l.pdrRanges()
	return map[string]uint32{
		abi.MapPdr: free + l.Sessions + l.Filters, abi.MapRefused: free + l.Sessions + l.Filters,
		abi.MapPdrByTeid: l.Sessions, abi.MapPdrByUe: l.Sessions,
		abi.MapFilter: firstFilter + l.Filters, abi.MapFrameFilter: firstFilter + l.Filters,
		abi.MapStation: min(l.Sessions, maxStations), abi.MapMeter: l.Sessions + 1,
		abi.MapForwarding:   firstForwarding + min(l.Sessions, maxForwardings),
		abi.MapSliceCounter: 2 * maxSlices, abi.MapSliceMeter: 2 * maxSlices,
	}
}

// load puts the build into the kernel, on top of maps that are there already; the
// programs for pods are left until they are needed.
func (d *DataPlane) load(spec *ebpf.CollectionSpec, pinned map[string]*ebpf.Map) error {
	coll, err := d.loadPrograms(spec, pinned, abi.ProgCulvertXdp)
	if err != nil {
		return err
	}
	d.maps = coll.Maps
	d.prog = coll.Programs[abi.ProgCulvertXdp]
	return nil
}

func (d *DataPlane) loadPrograms(spec *ebpf.CollectionSpec, there map[string]*ebpf.Map, names ...string) (*ebpf.Collection, error) {
	some := spec.Copy()
	maps.DeleteFunc(some.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	coll, err := ebpf.NewCollectionWithOptions(some, ebpf.CollectionOptions{MapReplacements: there})
	if err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			d.log.Debug("the kernel refused the data path", "log", fmt.Sprintf("%+v", verifier))
		}
		return nil, fmt.Errorf("load the data path: %w", err)
	}
	return coll, nil
}

func (d *DataPlane) openTables() error {
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	st := &d.sessionTables
	d.settings, err = table.OpenArray[abi.Settings](d.maps[mapSettings])
	check(err)
	d.localSID, err = table.OpenArray[abi.LocalSid](d.maps[abi.MapLocalSid])
	check(err)
	d.srPolicy, err = table.OpenArray[abi.SrPolicy](d.maps[abi.MapSrPolicy])
	check(err)
	d.tunnel, err = table.OpenArray[abi.Tunnel](d.maps[abi.MapTunnel])
	check(err)
	st.pdr, err = table.OpenArray[abi.Pdr](d.maps[abi.MapPdr])
	check(err)
	st.refused, err = table.OpenArray[abi.Refused](d.maps[abi.MapRefused])
	check(err)
	st.filter, err = table.OpenArray[abi.Filter](d.maps[abi.MapFilter])
	check(err)
	st.frameFilter, err = table.OpenArray[abi.FrameFilter](d.maps[abi.MapFrameFilter])
	check(err)
	st.forwarding, err = table.OpenArray[abi.Forwarding](d.maps[abi.MapForwarding])
	check(err)
	st.meter, err = table.OpenArray[abi.Meter](d.maps[abi.MapMeter])
	check(err)
	d.sliceMeter, err = table.OpenArray[abi.Meter](d.maps[abi.MapSliceMeter])
	check(err)
	st.teids, err = table.OpenHash[uint32, uint32]("pdr_by_teid", "sessions", d.maps[abi.MapPdrByTeid])
	check(err)
	st.ues, err = table.OpenHash[abi.In6, uint32]("pdr_by_ue", "sessions", d.maps[abi.MapPdrByUe])
	check(err)
	d.names, err = table.OpenNames(d.maps[abi.MapNameByIndex])
	check(err)
	d.sidTable, err = table.OpenHash[abi.SidKey, uint32]("sid_by_prefix", "sids", d.maps[abi.MapSidByPrefix])
	check(err)
	d.teidTable, err = table.OpenHash[uint32, uint32]("tunnel_by_teid", "tunnels", d.maps[abi.MapTunnelByTeid])
	check(err)
	d.target4, err = table.OpenHash[abi.Lpm4Key, abi.Target]("target_by_dst4", "routes", d.maps[abi.MapTargetByDst4])
	check(err)
	d.target6, err = table.OpenHash[abi.Lpm6Key, abi.Target]("target_by_dst6", "routes", d.maps[abi.MapTargetByDst6])
	check(err)
	d.portRules, err = table.OpenHash[abi.PortKey, abi.Target]("target_by_port", "", d.maps[abi.MapTargetByPort])
	check(err)
	d.route4, err = table.OpenHash[abi.Lpm4Key, abi.Route]("route4", "routes", d.maps[abi.MapRoute4])
	check(err)
	d.route6, err = table.OpenHash[abi.Lpm6Key, abi.Route]("route6", "routes", d.maps[abi.MapRoute6])
	check(err)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d.target4.Changed, d.target6.Changed = d.forgetLookups, d.forgetLookups
	d.route4.Changed, d.route6.Changed = d.forgetLookups, d.forgetLookups
	if d.settings.Get(0).Generation == 0 { // that of a slot never filled
		d.forgetLookups()
	}
	return d.recover()
}

// forgetLookups makes every CPU's cached lookup of a route or of steering old
// (bpf/cache.h). It comes after the change: what a packet remembers meanwhile
// carries the number from before.
func (d *DataPlane) forgetLookups() {
	d.storeSettings(func(s *abi.Settings) {
		if s.Generation++; s.Generation == 0 {
			s.Generation = 1
		}
	})
}

// Close lets go of the data path. What is pinned goes on forwarding.
func (d *DataPlane) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := &d.sessionTables
	errs := []error{d.settings.Close(), d.localSID.Close(), d.srPolicy.Close(), d.tunnel.Close(),
		st.pdr.Close(), st.refused.Close(), st.filter.Close(), st.frameFilter.Close(), st.forwarding.Close(), st.meter.Close(), d.sliceMeter.Close()}
	for _, a := range d.links {
		errs = append(errs, a.link.Close())
	}
	for _, m := range d.maps {
		errs = append(errs, m.Close())
	}
	for _, h := range d.hooks {
		errs = append(errs, h.link.Close())
	}
	for _, p := range d.podPrograms {
		errs = append(errs, p.Close())
	}
	if d.prog != nil {
		errs = append(errs, d.prog.Close())
	}
	if d.pins != nil {
		errs = append(errs, d.pins.close())
	}
	d.links, d.hooks, d.podPrograms = nil, nil, nil
	d.maps, d.prog, d.pins = nil, nil, nil
	if d.Sessions != nil {
		d.Sessions.closed = true
	}
	return errors.Join(errs...)
}
