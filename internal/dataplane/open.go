package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/attach"
	"github.com/culvert-net/culvert/internal/dataplane/class"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	"github.com/culvert-net/culvert/internal/dataplane/event"
	"github.com/culvert-net/culvert/internal/dataplane/lpm"
	"github.com/culvert-net/culvert/internal/dataplane/member"
	"github.com/culvert-net/culvert/internal/dataplane/mobile"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	"github.com/culvert-net/culvert/internal/dataplane/nat"
	"github.com/culvert-net/culvert/internal/dataplane/netpol"
	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/pod"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/port"
	"github.com/culvert-net/culvert/internal/dataplane/reach"
	"github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/sid"
	"github.com/culvert-net/culvert/internal/dataplane/spread"
	"github.com/culvert-net/culvert/internal/dataplane/steering"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
	"github.com/culvert-net/culvert/internal/dataplane/tunnel"
	"github.com/culvert-net/culvert/internal/dataplane/xdp"
	"github.com/culvert-net/culvert/internal/logevent"
)

// Options say where the data path lives and how large it is.
type Options struct {
	// PinPath is a directory below a bpffs, /sys/fs/bpf/culvert for example,
	// whose parent exists. If it is empty nothing is pinned, and everything
	// goes with Close.
	PinPath string
	Limits  settings.Limits
	// N4Places is for how many places of SEIDs the data path answers requests; 0: it
	// answers none.
	N4Places uint32
	// Closed are interfaces to close before anything else, where there is a PinPath
	// (docs/adr/0033-fail-closed.md). nil: none.
	Closed []ClosedPort
	Logger *slog.Logger

	// edit changes the build: tests upgrade from one to another.
	edit func(*ebpf.CollectionSpec)
	// collect replaces ebpf.NewCollectionWithOptions: tests use a data path of an earlier
	// test again.
	collect func(*ebpf.CollectionSpec, ebpf.CollectionOptions) (*ebpf.Collection, error)
}

// DataPlane is the loaded data path. Each of its concepts is a field, with the
// methods that read and write its tables. All methods may be called concurrently.
type DataPlane struct {
	// Ports and devices; what is attached to interfaces.
	Ports *port.Table
	XDP   *attach.XDP
	TCX   *attach.TCX
	// Closed has the interfaces that XDP is to be on and is not; nil: none.
	Closed *Closed
	// Loss counts what devices do not send, if the kernel lets it: Ports.Lost reads that.
	Loss *attach.Tracing
	// Spread sends packets to the CPUs that handle them.
	Spread *spread.Spread
	// Where packets leave.
	Adjacencies *adjacency.Table
	Routes      *adjacency.Routes
	// SRv6, and GTP-U tunnels.
	SIDs     *sid.Table
	Policies *policy.Table
	Classes  *class.Table
	Tunnels  *tunnel.Table
	Steering *steering.Table
	// Sessions are those of the UPF, and N4 what answers PFCP for them.
	Sessions *session.Sessions
	N4       *n4.Table
	// NAT has the ports of UEs.
	NAT *nat.Table
	// Pods of this node, who is inside its cluster's SR domain, and links of Ethernet
	// sessions.
	Pods    *pod.Table
	Members *member.Table
	// NetworkPolicies isolate pods.
	NetworkPolicies *netpol.Table
	Links           *ethernet.Links
	// Frames that the daemon hands to the data path, and packets that it gets.
	Frames *xdp.Program
	Punts  *event.Punts
	Trace  *event.Tracer
	// Flows are records of pods' packets.
	Flows *event.Flows

	mu     sync.Mutex
	log    *slog.Logger
	limits settings.Limits
	places uint32 // Options.N4Places
	build  string
	grace  *table.Grace
	pins   *pin.Dir // nil: not pinned
	// pinPath is Options.PinPath.
	pinPath string
	maps    map[string]*ebpf.Map
	prog    *ebpf.Program
	// netfilter has the kernel ask about what it forwards.
	netfilter *attach.Netfilter
	unused    map[string]pin.Unused      // maps that a node may do without
	stays     map[string]uint32          // entries of maps that are larger than this node needs
	renewal   *renewal                   // nil: packets meet these tables
	edit      func(*ebpf.CollectionSpec) // see Options
	// collect makes maps and programs in the kernel.
	collect func(*ebpf.CollectionSpec, ebpf.CollectionOptions) (*ebpf.Collection, error)

	tables   tables
	settings *settings.Book
	names    *table.Names
	sources  *adjacency.Sources
	targets  *target.Table
	reach    *reach.Table
	mobiles  *mobile.Table
	entries  *tunnel.Entries
	rings    *event.Rings

	sessionTables session.Tables
	spreadTables  spread.Tables
	n4Tables      n4.Tables
}

// tables are those of all concepts but sessions.
type tables struct {
	Settings   *table.Array[abi.Settings]                       `map:"settings"`
	Names      *table.Hash[abi.NameKey, [table.NameLength]byte] `map:"name_by_index"`
	Trie       lpm.TrieTables
	Routes     adjacency.RouteTables
	Shared     *adjacency.Parts `map:"shared_hop"`
	Ports      port.Maps
	Targets    target.Tables
	Policies   policy.Tables
	Classes    class.Tables
	SIDs       sid.Tables
	Tunnels    tunnel.Tables
	SliceMeter *table.Array[abi.Meter] `map:"slice_meter"`
	Netpol     netpol.Tables
	NAT        *table.Array[abi.NatSlots]       `map:"nat_bucket"`
	Reach      *table.Hash[abi.Lpm6Key, uint32] `map:"ue_reach" limit:"sessions"`
}

// Open loads the data path, or takes over what is pinned at opts.PinPath: the
// maps stay as they are, and each pinned link changes to this build's program
// at once, so that no packet is lost. Maps with another layout or of another size are copied, and
// links change when Sweep is called (pin.ErrIncompatible: a limit is too small for what is there,
// and nothing has changed). It attaches nothing.
//
// What an earlier daemon had put goes on working. Put it all again, then call
// Sweep.
func Open(opts Options) (*DataPlane, error) {
	spec, err := loadSpec()
	if err != nil {
		return nil, err
	}
	d := &DataPlane{
		log: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler)), limits: opts.Limits.WithDefaults(), pinPath: opts.PinPath, places: opts.N4Places, grace: &table.Grace{},
		build: abi.Build(), edit: opts.edit, collect: ebpf.NewCollectionWithOptions,
	}
	if opts.collect != nil {
		d.collect = opts.collect
	}
	if opts.edit != nil {
		d.build = "" // which has no name
	}
	d.prepare(spec)
	if d.Closed, err = guardFirst(&opts, d.log); err != nil {
		return nil, err
	}
	if opts.PinPath == "" {
		if err = d.load(spec, nil); err == nil {
			err = d.openAttachments()
		}
	} else {
		err = d.openPinned(spec, opts.PinPath)
	}
	if err == nil {
		err = d.openTables()
	}
	if err == nil && d.renewal != nil {
		err = d.renewal.followRings()
	}
	if err == nil {
		err = d.openN4(spec)
	}
	if err == nil {
		countLoss(d)
	}
	if err == nil && d.pins != nil {
		err = d.pins.Remember()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// MissingPins returns the pins of d that somebody has removed.
func MissingPins(d *DataPlane) []string {
	if d.pins == nil {
		return nil
	}
	return d.pins.Missing()
}

// openAttachments makes what attaches the programs, which are loaded.
func (d *DataPlane) openAttachments() (err error) {
	d.XDP = attach.NewXDP(&d.mu, d.log, d.pins, d.prog)
	if d.Closed != nil {
		d.XDP.Guarded(d.Closed.XDP)
	}
	d.TCX = attach.NewTCX(&d.mu, d.pins, d.maps[abi.MapOverlay], func() (map[string]*ebpf.Program, error) { return d.loadAndPin(podPrograms) })
	d.netfilter = attach.NewNetfilter(d.pins, func() (*ebpf.Program, error) {
		p, err := d.loadAndPin([]string{abi.ProgCulvertForward})
		return p[abi.ProgCulvertForward], err
	})
	d.Frames = xdp.New(d.prog)
	if err := table.Open(&d.spreadTables, d.maps); err != nil {
		return err
	}
	d.Spread, err = spread.Open(d.spreadTables, d.loadSpreadPrograms, d.XDP.RunFirst)
	return err
}

// GuardForwarded has nobody reach SIDs through the kernel's translation, or ends that.
func (d *DataPlane) GuardForwarded(guard bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.netfilter.Guard(guard)
}

// openTables gives each concept its maps, from the lowest to those that refer to
// others. Each finds what an earlier daemon left, so that none of it is
// overwritten.
func (d *DataPlane) openTables() (err error) {
	m, l, t := d.maps, d.limits, &d.tables
	if err = errors.Join(table.Open(t, m), table.Open(&d.sessionTables, m), table.Open(&d.n4Tables, m)); err != nil {
		return err
	}
	d.settings, d.names = settings.Open(t.Settings, d.grace, l), &table.Names{Hash: t.Names}
	d.NAT = nat.Open(&d.mu, t.NAT, d.settings)
	if d.Ports, err = port.Open(&d.mu, t.Ports, d.grace); err != nil {
		return err
	}
	if d.Adjacencies, err = adjacency.Open(&d.mu, m[abi.MapAdjacency], t.Shared, d.names, d.grace); err != nil {
		return err
	}
	if d.sources, err = adjacency.OpenSources(m[abi.MapSource], d.grace); err != nil {
		return err
	}
	trie := lpm.OpenTrie(t.Trie, d.grace)
	d.Routes = adjacency.NewRoutes(&d.mu, d.Adjacencies, t.Routes, trie, d.settings.ForgetLookups)
	d.targets = target.New(t.Targets, trie, d.Ports, target.Hooks{Changed: d.settings.ForgetLookups, Steers: d.settings.Steer})
	d.reach = reach.New(t.Reach, trie, d.settings.ForgetLookups)
	trie.Settle()
	d.Policies = policy.New(&d.mu, t.Policies, d.names, d.grace, d.settings, d.Adjacencies, d.sources)
	d.mobiles = mobile.New(m[abi.MapMobile], d.grace)
	d.SIDs = sid.New(&d.mu, t.SIDs, d.grace, d.settings, d.Adjacencies, d.Policies, d.mobiles)
	d.entries = tunnel.NewEntries(t.Tunnels.Entries, d.grace)
	d.Tunnels = tunnel.New(&d.mu, d.entries, t.Tunnels.ByTEID, d.names, d.grace, d.settings, d.Adjacencies, d.sources, d.Policies)
	d.Classes = class.New(&d.mu, t.Classes, d.names, d.grace, d.Policies)
	d.Steering = steering.New(&d.mu, d.settings, d.targets, d.mobiles, d.Policies, d.Classes, d.Tunnels, d.entries)
	d.Classes.Restore(d.Steering.Rows())
	taken := d.SIDs.Mobiles()
	maps.Copy(taken, d.Steering.Mobiles())
	d.mobiles.Restore(taken)
	if d.Pods, err = pod.Open(&d.mu, m[abi.MapPod], pod.Counts{Policies: m[abi.MapNetpolCounter], Records: m[abi.MapFlowBudget]}, d.grace, d.targets, d.Ports, d.Steering, d.TCX); err != nil {
		return err
	}
	d.Members = member.New(&d.mu, d.targets)
	d.NetworkPolicies = netpol.Open(&d.mu, t.Netpol, d.Pods, d.netfilter, d.grace)
	d.Links = ethernet.New(&d.mu, l.Sessions != 0, d.Adjacencies, d.targets)
	d.rings = event.New(d.log, m)
	linkAt := func(number uint32) ethernet.Link {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.Links.At(number)
	}
	// The sessions are others after a restart.
	ruleAt := func(pdr uint32) (uint64, uint16) { return d.Sessions.RuleAt(pdr) }
	taking := func(pdr uint32) { d.Sessions.Turns.Taking(pdr) }
	d.Punts = &event.Punts{Rings: d.rings, RuleAt: ruleAt, Taking: taking, LinkAt: linkAt}
	d.Trace = event.NewTracer(&d.mu, d.settings, m[abi.MapTraceFilter], d.rings, d.nameEvent)
	d.Flows = event.NewFlows(&d.mu, d.rings, d.Policies.ListAt, d.Classes.NameAt)
	// Concepts tell those above them that have to know of a change.
	d.Policies.SIDs, d.Policies.Changed = d.SIDs, d.Steering.Replace
	d.Policies.Reap = func() error { return d.Sessions.Reap() }
	d.Tunnels.Steering = d.Steering
	d.Steering.IsLink, d.Links.Steered = d.Links.Has, d.Steering.HasPort
	if d.Sessions != nil {
		d.Sessions.Close()
	}
	d.Sessions = session.Open(&d.mu, sessionNode{d}, d.limits, d.sessionTables)
	if d.limits.Sessions != 0 {
		d.settings.Change(func(e *abi.Settings) { session.PutSettings(e, d.limits) })
		d.Sessions.SetPools(settings.PoolsOf(new(d.settings.Get())))
	}
	return nil
}

// openN4 has the data path answer PFCP, or leave all of it to the daemon.
func (d *DataPlane) openN4(spec *ebpf.CollectionSpec) (err error) {
	d.N4 = n4.Open(d.n4Tables, d.places != 0)
	d.Sessions.Turns.Share(d.N4.Pause, d.N4.Moved)
	next := d.maps[abi.MapNextProgram]
	if d.places == 0 {
		return leaveN4(next)
	}
	p := d.samePrograms(spec, n4Programs)
	if p == nil {
		if p, err = d.loadAndPin(n4Programs); err != nil {
			closeAll(p)
			return err
		}
	}
	d.Ports.CarriesN4Alone = d.XDP.CarriesN4Alone
	return errors.Join(
		next.Put(uint32(abi.ProgramPROGRAM_DATA_PATH), d.prog),
		next.Put(uint32(abi.ProgramPROGRAM_N4), p[abi.ProgCulvertN4]),
		next.Put(uint32(abi.ProgramPROGRAM_N4FIRST), p[abi.ProgCulvertN4First]),
		d.XDP.RunOnN4(p[abi.ProgCulvertN4Port]),
		p[abi.ProgCulvertN4].Close(), p[abi.ProgCulvertN4First].Close()) // the table keeps them
}

// n4Programs answer PFCP.
var n4Programs = []string{abi.ProgCulvertN4, abi.ProgCulvertN4First, abi.ProgCulvertN4Port}

// leaveN4 leaves PFCP to the daemon.
func leaveN4(next *ebpf.Map) error {
	for _, slot := range []abi.Program{abi.ProgramPROGRAM_N4, abi.ProgramPROGRAM_N4FIRST} {
		// a former build's table is smaller
		if err := next.Delete(uint32(slot)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) && uint32(slot) < next.MaxEntries() {
			return fmt.Errorf("write table %s: %w", abi.MapNextProgram, err)
		}
	}
	return nil
}

// countLoss counts the frames that devices do not send. Packets are forwarded without, too.
func countLoss(d *DataPlane) {
	d.Loss = attach.NewTracing(func() (map[string]*ebpf.Program, error) {
		return d.loadLater(abi.ProgCulvertRefused, abi.ProgCulvertUnsent)
	})
	if err := d.Loss.Err(); err != nil {
		d.log.Warn("packets that an interface fails to send are not counted", "event", logevent.DataPathLossUncounted, "error", err)
	}
}

// Build is a hash of the object that is loaded.
func (d *DataPlane) Build() string { return d.build }

// Close lets go of the data path. What is pinned goes on forwarding.
func (d *DataPlane) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := []error{table.Close(&d.tables), table.Close(&d.sessionTables), table.Close(&d.spreadTables), table.Close(&d.n4Tables), d.Spread.Close(), d.XDP.Close(), d.Closed.Close(), d.TCX.Close(), d.netfilter.Close(), d.Loss.Close(), d.prog.Close()}
	if d.rings != nil {
		d.rings.Close()
	}
	for _, m := range d.maps {
		errs = append(errs, m.Close())
	}
	if d.pins != nil {
		errs = append(errs, d.pins.Close())
	}
	if d.renewal != nil {
		errs = append(errs, d.renewal.close())
	}
	if d.Sessions != nil {
		d.Sessions.Close()
	}
	d.maps, d.prog, d.pins, d.renewal, d.Closed = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// Remove detaches and unpins everything that Open and the attachments pinned at
// pinPath. Nothing there is not an error; anything of somebody else's there is
// (pin.ErrForeign), and then nothing is removed. A running daemon keeps its pins
// (pin.ErrInUse).
func Remove(pinPath string) error { return pin.Remove(pinPath) }
