package upf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// DataPath is what the UPF needs of *dataplane.DataPlane.
type DataPath interface {
	NewTEID() (uint32, error)
	TakeTEID(uint32) error
	FreeTEID(uint32)
	// PutSession is all or nothing; the volumes of rules that stay go on.
	PutSession(dataplane.Session) error
	// RemoveSession tells done what was forwarded to the last packet, once that
	// has left, unless it returns an error. DropSession is for who does not care.
	RemoveSession(id uint64, done func([]dataplane.RuleUsage, error)) error
	DropSession(id uint64) error
	// SessionUsage has the rules that the last PutSession took away, too.
	SessionUsage(id uint64) ([]dataplane.RuleUsage, error)
	SetRuleLimits(id uint64, rule uint16, l dataplane.RuleLimits) error
	// Stations are the hosts behind Ethernet sessions.
	Stations() ([]dataplane.Station, error)
	SessionEvents(context.Context, func(dataplane.SessionEvent)) error
	SetSlice(slice uint32, up, down uint64) error
	SliceCounters(slice uint32) (up, down dataplane.Counter, err error)
	Inject(frame []byte, ifindex int) error
	// InjectFor is Inject of a frame on a link, or InjectKept, for one Ethernet
	// session.
	InjectFor(session uint64, frame []byte, ifindex int, kept bool) error
	// InjectKept sends a frame on that was handed up to be kept, by a rule that
	// may still keep what comes. PuntsIdle: nothing is on its way up.
	InjectKept(frame []byte, ifindex int) error
	PuntsIdle() bool
}

// Options are what a UPF is told; zero values mean what is said.
type Options struct {
	DataPath DataPath
	// Journal is the directory where sessions outlive the process.
	Journal string
	Logger  *slog.Logger
	// Sessions is how many there may be: 1,000,000.
	Sessions int
	// BufferPackets is how many packets are kept for a session whose BAR says
	// nothing (128), BufferMost how many whatever it says (1024), and
	// BufferBytes bounds what all of them occupy (64 MiB).
	BufferPackets, BufferMost, BufferBytes int
	// EchoInterval is how often GTP-U peers are asked whether they are there:
	// 60 s, and not less (TS 29.281 section 7.2.1).
	EchoInterval time.Duration
	// Now is the clock: time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.Sessions, 1_000_000)
	set(&o.BufferPackets, 128)
	set(&o.BufferMost, max(1024, o.BufferPackets))
	set(&o.BufferBytes, 64<<20)
	if o.EchoInterval == 0 {
		o.EchoInterval = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Config is what may change while sessions are up.
type Config struct {
	// Addresses are where G-PDUs arrive.
	Addresses []netip.Addr
	Pools     []Pool
	Slices    []slice.Slice
	// BufferPackets, BufferBytes and EchoInterval stand for those of Options
	// where they are set.
	BufferPackets, BufferBytes int
	EchoInterval               time.Duration
}

// UPF is the user plane of an N4 server. Its methods may be called from any
// goroutine.
type UPF struct {
	o     Options
	dp    DataPath
	log   *slog.Logger
	now   func() time.Time
	stats Stats

	shards   [64]shard
	sessions atomic.Int64
	wheel    wheel
	paths    *paths
	links    links
	hosts    listeners
	journal  *journal
	reporter atomic.Pointer[pfcp.Reporter]

	// config is changed with changing held; who compiles holds it for reading,
	// so that nothing is made of what is about to go.
	changing sync.RWMutex
	config   atomic.Pointer[settings]
	ues      *addresses

	stateMu sync.Mutex
	state   []byte            // of the N4 server
	indices map[string]uint32 // of slices that there are or were
	lost    bool              // something was, at the start

	restored bool // sessions are in the data path: set once, by who configures
}

// settings are a Config, made ready.
type settings struct {
	Config
	indices []uint32 // of Slices
}

type shard struct {
	mu      sync.RWMutex
	entries session.Table[*entry]
}

// entry is one session. There may be a million: what is seldom needed is
// packed, or behind a pointer.
type entry struct {
	mu        sync.Mutex
	seid      uint64
	packed    []byte // in memory: the session and its usage, as in the journal
	usage     *usage // as long as mu is held, where anything is counted
	buffer    *buffer
	indicated int64 // when an Error Indication was told last, in ns
	slice     uint32
	gone      bool
	ethernet  bool
	timer     timer
}

// lock and unlock make the usage ready, and keep it.
func (e *entry) lock() {
	e.mu.Lock()
	if e.usage != nil {
		return
	}
	if _, counts := parts(e.packed); len(counts) > 0 {
		if err := e.readUsage(counts); err != nil {
			panic(err)
		}
	}
}

func (e *entry) unlock() {
	if e.usage != nil && !e.gone { // whoever ended it has the usage
		s, _ := parts(e.packed)
		e.keep(packBoth(s, e.usage))
	}
	e.mu.Unlock()
}

// keep stores what was packed of the session and its usage.
func (e *entry) keep(packed []byte) { e.packed, e.usage = memory.replace(e.packed, packed), nil }

// free ends an entry.
func (e *entry) free() {
	e.mu.Lock()
	defer e.mu.Unlock()
	memory.release(e.packed)
	e.packed, e.gone = nil, true
}

// packEntry encodes a session and its usage.
func packEntry(s *session.Session, usage *usage) []byte {
	c := newWriter()
	defer c.release()
	c.session(s)
	return packBoth(c.written(), usage)
}

func packBoth(packed []byte, usage *usage) []byte {
	c := newWriter()
	defer c.release()
	if usage != nil {
		c.usage(usage)
	}
	counts := c.written()
	out := make([]byte, 0, binary.MaxVarintLen16+len(packed)+len(counts))
	out = binary.AppendUvarint(out, uint64(len(packed)))
	return append(append(out, packed...), counts...)
}

// parts are the session and, where anything is counted, the usage that
// packEntry encoded.
func parts(b []byte) (packed, counts []byte) {
	c := codec{b: b, reading: true}
	packed = c.take(c.number(0))
	return packed, c.b
}

// session is what the SMF said last. What the journal was given can be read.
func (e *entry) session() *session.Session {
	packed, _ := parts(e.packed)
	s, err := unpack(packed)
	if err != nil {
		panic(err)
	}
	return s
}

var _ pfcp.UPF = (*UPF)(nil)

// New reads what an earlier process left in the journal. Nothing is put into
// the data path before Restore.
func New(o Options) (*UPF, error) {
	o = o.withDefaults()
	u := &UPF{o: o, dp: o.DataPath, log: o.Logger, now: o.Now, indices: map[string]uint32{}}
	u.links = newLinks(u.now)
	u.wheel.done = u.now().UnixNano() / int64(tick)
	u.config.Store(&settings{})
	u.ues = newAddresses(nil)
	u.paths = newPaths(u.echoInterval, o.Logger, o.Now, &u.stats)
	u.paths.indication = u.errorIndicated
	u.paths.failed = func(a netip.Addr) { u.tell(func(r pfcp.Reporter) { r.PathFailure(a) }) }
	u.paths.recovered = func(a netip.Addr) { u.tell(func(r pfcp.Reporter) { r.PathRecovery(a) }) }
	return u, u.read()
}

// header is what a journal begins with: what an earlier boot left may lack what
// the kernel had not written, and its volumes are gone.
func header() []byte {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil
	}
	return fmt.Appendf(nil, "culvert sessions %d %s", codecVersion, strings.TrimSpace(string(boot)))
}

func (u *UPF) read() error {
	journal, lost, err := openJournal(u.o.Journal, header(), u.replay)
	if err != nil {
		return err
	}
	if lost != nil {
		u.log.Warn("sessions of an earlier run are not taken over: SMFs will set them up again", "reason", lost)
		u.forget()
	}
	u.journal, u.lost = journal, lost != nil
	if err := u.journal.rotate(header()); err != nil {
		return fmt.Errorf("session journal: %w", err)
	}
	if u.lost { // so that it is not met again
		return u.renewJournal()
	}
	return nil
}

func (u *UPF) forget() {
	for i := range u.shards {
		for _, e := range u.shards[i].entries.All() {
			e.free()
		}
		u.shards[i].entries.Clear()
	}
	u.sessions.Store(0)
	u.state = nil
}

// replay takes a record of the journal.
func (u *UPF) replay(r record) error {
	sh := u.shard(r.seid)
	e := sh.entries.Get(r.seid)
	switch r.kind {
	case recordSession:
		if e == nil {
			e = &entry{seid: r.seid}
			sh.entries.Put(r.seid, e)
			u.sessions.Add(1)
		}
		return e.read(r.body)
	case recordUsage:
		if e == nil {
			return errRecord
		}
		e.lock()
		defer e.unlock()
		return e.readUsage(r.body)
	case recordTaken:
		if e == nil {
			return nil
		}
		e.lock()
		defer e.unlock()
		if e.usage != nil {
			e.usage.pending = nil
		}
	case recordDelete:
		if e != nil {
			sh.entries.Delete(r.seid)
			u.sessions.Add(-1)
			e.free()
		}
	case recordState:
		u.state = r.body
	case recordSlice:
		u.indices[string(r.body)] = uint32(r.seid)
	default:
		return errRecord
	}
	return nil
}

// usageRecord is of a session's usage alone.
func usageRecord(seid uint64, usage *usage) record {
	c := codec{b: make([]byte, 0, 256)}
	c.usage(usage)
	return record{recordUsage, seid, c.written()}
}

// read takes over a session and its usage from the journal.
func (e *entry) read(b []byte) error {
	packed, counts := parts(b)
	s, err := unpack(packed)
	if err != nil || s.SEID != e.seid {
		return errRecord
	}
	e.ethernet = isEthernet(s)
	if len(counts) > 0 {
		if err := e.readUsage(counts); err != nil {
			return err
		}
	}
	e.keep(b)
	return nil
}

func (e *entry) readUsage(b []byte) error {
	c := codec{b: b, reading: true}
	e.usage = &usage{}
	if c.usage(e.usage); !c.ended() {
		return errRecord
	}
	return nil
}

// renewJournal writes a new snapshot of everything.
func (u *UPF) renewJournal() error {
	return u.journal.renew(header(), func(put func(record) error) error {
		u.stateMu.Lock()
		records := []record{{kind: recordState, body: u.state}}
		for name, index := range u.indices {
			records = append(records, record{recordSlice, uint64(index), []byte(name)})
		}
		u.stateMu.Unlock()
		for _, r := range records {
			if err := put(r); err != nil {
				return err
			}
		}
		for _, e := range u.entries() {
			e.mu.Lock()
			var err error
			if !e.gone {
				err = put(record{recordSession, e.seid, e.packed})
			}
			e.mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (u *UPF) shard(seid uint64) *shard {
	return &u.shards[session.PageOf(seid)*0x9e3779b97f4a7c15>>58]
}

func (u *UPF) entry(seid uint64) *entry {
	sh := u.shard(seid)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.entries.Get(seid)
}

// entries are all that there are now.
func (u *UPF) entries() []*entry {
	out := make([]*entry, 0, u.sessions.Load())
	for i := range u.shards {
		sh := &u.shards[i]
		sh.mu.RLock()
		for _, e := range sh.entries.All() {
			out = append(out, e)
		}
		sh.mu.RUnlock()
	}
	return out
}

// Start says who reports go to. Before it there are none.
func (u *UPF) Start(r pfcp.Reporter) { u.reporter.Store(&r) }

func (u *UPF) tell(f func(pfcp.Reporter)) {
	if r := u.reporter.Load(); r != nil {
		f(*r)
	}
}

// Run does what has its time, until ctx ends, which is no error. What it keeps
// in the journal, and in the data path, stays.
func (u *UPF) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return u.dp.SessionEvents(ctx, func(e dataplane.SessionEvent) { u.check(u.entry(e.Session)) })
	})
	group.Go(func() error { return u.timers(ctx) })
	group.Go(func() error { return u.keepJournal(ctx) })
	group.Go(func() error { return u.floods(ctx) })
	group.Go(func() error { return u.listen(ctx) })
	group.Go(func() error {
		return u.paths.run(ctx, func() []netip.Addr { return u.config.Load().Addresses })
	})
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// bufferPackets is how many packets are kept for a session whose BAR says
// nothing, and how many whatever it says.
func (u *UPF) bufferPackets() (most, whatever int) {
	if n := u.config.Load().BufferPackets; n > 0 {
		return n, max(n, u.o.BufferMost)
	}
	return u.o.BufferPackets, u.o.BufferMost
}

func (u *UPF) bufferBytes() int {
	if n := u.config.Load().BufferBytes; n > 0 {
		return n
	}
	return u.o.BufferBytes
}

func (u *UPF) echoInterval() time.Duration {
	if d := u.config.Load().EchoInterval; d > 0 {
		return d
	}
	return u.o.EchoInterval
}

// Close lets go of the journal. Nothing may be called afterwards.
func (u *UPF) Close() error { return u.journal.close() }

func (u *UPF) timers(ctx context.Context) error {
	every := time.NewTicker(tick)
	defer every.Stop()
	var due []*entry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		due = u.wheel.take(u.now(), due[:0])
		for _, e := range due {
			u.check(e)
		}
		clear(due)
	}
}

func (u *UPF) keepJournal(ctx context.Context) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if !u.journal.grown() {
			continue
		}
		if err := u.renewJournal(); err != nil {
			u.stats.JournalFailed.Add(1)
			u.log.Error("cannot write the session journal anew; will try again", "error", err)
		}
	}
}

// NewTEID implements pfcp.UPF.
func (u *UPF) NewTEID() (uint32, error) {
	teid, err := u.dp.NewTEID()
	return teid, resources(err)
}

// TakeTEID implements pfcp.UPF.
func (u *UPF) TakeTEID(teid uint32) error {
	err := resources(u.dp.TakeTEID(teid))
	if errors.Is(err, dataplane.ErrTaken) {
		return fmt.Errorf("%w: %w", pfcp.ErrTaken, err)
	}
	return err
}

// FreeTEID implements pfcp.UPF.
func (u *UPF) FreeTEID(teid uint32) { u.dp.FreeTEID(teid) }

// resources says of a full table what the N4 server understands.
func resources(err error) error {
	var full *dataplane.FullError
	if errors.As(err, &full) {
		return fmt.Errorf("%w: %w", pfcp.ErrNoResources, err)
	}
	return err
}

// GTPUAddresses implements pfcp.UPF: the first of each family, for every
// interface.
func (u *UPF) GTPUAddresses(session.Interface, string) (v4, v6 netip.Addr) {
	for _, a := range u.config.Load().Addresses {
		switch {
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !v6.IsValid():
			v6 = a
		}
	}
	return v4, v6
}

// NewUE implements pfcp.UPF.
func (u *UPF) NewUE(instance string, v4, v6 bool) ([]netip.Prefix, error) {
	return u.ues.allocate(instance, v4, v6)
}

// TakeUE implements pfcp.UPF.
func (u *UPF) TakeUE(list []netip.Prefix) error { return u.ues.take(list) }

// FreeUE implements pfcp.UPF.
func (u *UPF) FreeUE(list []netip.Prefix) { u.ues.give(list) }

// SaveState implements pfcp.UPF.
func (u *UPF) SaveState(b []byte) error {
	u.stateMu.Lock()
	defer u.stateMu.Unlock()
	u.state = append([]byte(nil), b...)
	return u.journal.append(record{kind: recordState, body: u.state})
}

// LoadState implements pfcp.UPF.
func (u *UPF) LoadState() ([]byte, error) {
	u.stateMu.Lock()
	defer u.stateMu.Unlock()
	if u.lost {
		return nil, nil
	}
	return u.state, nil
}

// Features implements pfcp.UPF.
func (u *UPF) Features() pfcp.Features {
	return pfcp.Features{
		Ethernet:    true,
		UEAddresses: u.ues.any(), FramedRouting: true, EndMarkers: true, NotificationDelay: true,
		NumberOfPackets: true, QuotaValidity: true, QuotaAction: true, Duplication: true, PacketRate: true, PathReports: true,
	}
}

// Session implements pfcp.UPF.
func (u *UPF) Session(seid uint64) *session.Session {
	e := u.entry(seid)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return nil
	}
	return e.session()
}

// Sessions implements pfcp.UPF.
func (u *UPF) Sessions() iter.Seq[*session.Session] {
	return func(yield func(*session.Session) bool) {
		for _, e := range u.entries() {
			if s := u.Session(e.seid); s != nil && !yield(s) {
				return
			}
		}
	}
}

// Stats are the counters of the UPF, which go on.
func (u *UPF) Stats() *Stats { return &u.stats }

// Len is how many sessions there are.
func (u *UPF) Len() int { return int(u.sessions.Load()) }

// Max is how many there may be.
func (u *UPF) Max() int { return u.o.Sessions }
