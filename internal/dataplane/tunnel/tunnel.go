package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/dataplane/abi"
	"github.com/culvert-net/culvert/internal/dataplane/adjacency"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/policy"
	"github.com/culvert-net/culvert/internal/dataplane/ref"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/dataplane/table"
)

// Tunnel is a GTP-U tunnel that was put since Open.
type Tunnel struct {
	ref.Users // steering that sends into it
	// switchers are the tunnels whose SwitchTo it is: those that wait for one of
	// its name, when it comes.
	switchers map[string]bool

	model   gtpu.Tunnel
	failed  bool   // the tables do not say what model does
	receive uint32 // index, 0: none
	send    uint32 // index of an entry that target_by_dst refers to, 0: none
	sendRef int    // steering entries there
	out     abi.Tunnel
	adj     []adjacency.Key
	source  abi.In6
	// sentBefore is what entries that are gone had sent.
	sentBefore, receivedBefore counter.Counter
}

// Table is the tunnels, and the table tunnel_by_teid.
type Table struct {
	mu       *sync.Mutex
	settings *settings.Book
	hops     *adjacency.Table
	sources  *adjacency.Sources
	policies *policy.Table
	names    *table.Names

	entries *Entries
	byTEID  *table.Hash[uint32, uint32]
	indexes *table.Indexes // of entries that byTEID leads to, and of those that send

	tunnels   map[string]*Tunnel
	teids     map[uint32]string          // tunnel by local TEID
	waiting   map[string]map[string]bool // tunnels by the name of what they switch to
	sendNames map[string]uint32          // entries that send, those of an earlier daemon too

	// The table reports changes to Steering. Who opens the data path sets it.
	Steering Steering
}

// Steering is what steers packets into tunnels.
type Steering interface {
	// Replace writes an entry that holds a copy of what a tunnel sends.
	Replace(who ref.User) error
	// Retarget lets an entry that refers to what t sends refer to another index.
	Retarget(who ref.User, t *Tunnel, index uint32) error
	// SlotOf is the entry of a UE pool that steering has; 0: none.
	SlotOf(who ref.User) uint32
}

// Tables are the tables as packets see them.
type Tables struct {
	Entries *table.Array[abi.Tunnel]    `map:"tunnel"`
	ByTEID  *table.Hash[uint32, uint32] `map:"tunnel_by_teid" limit:"tunnels"`
}

// New takes the tables, and from names what an earlier daemon put. mu is the data
// path's lock.
func New(mu *sync.Mutex, entries *Entries, byTEID *table.Hash[uint32, uint32], names *table.Names, grace *table.Grace, book *settings.Book, hops *adjacency.Table, sources *adjacency.Sources, policies *policy.Table) *Table {
	x := &Table{
		mu: mu, settings: book, hops: hops, sources: sources, policies: policies, names: names, entries: entries, byTEID: byTEID,
		indexes: table.NewIndexes(grace, abi.MapTunnel, "tunnels", 2*entries.slots, 4*entries.slots),
		tunnels: map[string]*Tunnel{}, teids: map[uint32]string{}, waiting: map[string]map[string]bool{}, sendNames: map[string]uint32{},
	}
	taken := map[uint32]bool{}
	for _, index := range x.byTEID.All() {
		taken[index] = true
	}
	for index, name := range names.All(table.NameTunnel) {
		taken[index] = true
		x.sendNames[name] = index
	}
	x.indexes.Restore(taken)
	return x
}

// Get is a tunnel that was put since Open, or nil.
func (x *Table) Get(name string) *Tunnel { return x.tunnels[name] }

// Waiting is the number of tunnels that others switch to, there or not.
func (x *Table) Waiting() int { return len(x.waiting) }

// ByTEID names the tunnel that has a local TEID.
func (x *Table) ByTEID(teid uint32) (name string, found bool) {
	name, found = x.teids[teid]
	return name, found
}

// SourceChanged writes tunnels again whose source was the node's former one. The
// caller holds the lock.
func (x *Table) SourceChanged() error {
	for _, t := range x.tunnels {
		if t.model.Source.IsValid() || !t.model.Remote.IsValid() || abi.In6Of(x.sourceOf(t.model)) == t.source {
			continue
		}
		if err := x.PutLocked(t.model); err != nil {
			return err
		}
	}
	return nil
}

// PathChanged writes tunnels to a remote end again, whose next hop is another one now. The
// caller holds the lock.
func (x *Table) PathChanged(remote netip.Addr) error {
	var errs []error
	for _, t := range x.tunnels {
		if t.model.Remote == remote {
			errs = append(errs, x.PutLocked(t.model))
		}
	}
	return errors.Join(errs...)
}

// Paths calls f for the outer source and the remote end of each tunnel. The caller holds the
// lock.
func (x *Table) Paths(f func(source, remote netip.Addr)) {
	for _, t := range x.tunnels {
		if t.model.Remote.IsValid() {
			f(x.sourceOf(t.model), t.model.Remote)
		}
	}
}

// Sweep removes what an earlier daemon put and this one has not. The caller holds
// the lock.
func (x *Table) Sweep() error {
	var errs []error
	for teid, index := range x.byTEID.All() {
		if t := x.tunnels[x.teids[teid]]; t == nil || t.receive != index {
			errs = append(errs, x.unlinkTEID(teid))
		}
	}
	for slot := uint32(1); slot < x.entries.slots; slot++ {
		teid := uint32(x.entries.Load(slot, WordKey))
		if teid == 0 {
			continue
		}
		if t := x.tunnels[x.teids[teid]]; t == nil || t.receive != slot {
			x.entries.Clear(slot, WordKey)
		}
	}
	for index, name := range x.names.All(table.NameTunnel) {
		if t := x.tunnels[name]; t == nil || t.send != index {
			if x.sendNames[name] == index {
				delete(x.sendNames, name)
			}
			x.indexes.Retire(index)
			errs = append(errs, x.names.Delete(table.NameTunnel, index))
		}
	}
	x.byTEID.Settle()
	return errors.Join(errs...)
}

// Usage says how full tunnel is, less the entries that UE pools lead to.
func (x *Table) Usage() table.Usage {
	tunnels := x.indexes.Usage()
	tunnels.Max = 4*int(x.entries.slots) - 1
	for _, t := range x.tunnels {
		if t.receive != 0 && t.receive < x.entries.slots {
			tunnels.Used++
		}
	}
	return tunnels
}

// NameAt names the tunnel that has an entry; empty: none.
func (x *Table) NameAt(index uint32) string {
	return table.KeyOf(x.tunnels, func(t *Tunnel) bool { return index != 0 && (t.receive == index || t.send == index) })
}

// Receive is the local TEID, and the entry that it leads to; 0: none.
func (t *Tunnel) Receive() (teid, index uint32) { return t.model.LocalTEID, t.receive }

// Out is what the tunnel sends, if it has somewhere to.
func (t *Tunnel) Out() (e abi.Tunnel, ok bool) { return t.out, t.model.Remote.IsValid() }

// SentBy adds what an entry counted that is about to go.
func (t *Tunnel) SentBy(c counter.Counter) { t.sentBefore.Add(c) }

func check(t gtpu.Tunnel) error {
	if t.Name == "" || len(t.Name) > table.NameLength {
		return fmt.Errorf("name: want 1 to %d bytes", table.NameLength)
	}
	after := 0
	for _, set := range []bool{t.Decapsulate, t.SwitchTo != "", t.Policy != ""} {
		if set {
			after++
		}
	}
	switch {
	case t.LocalTEID != 0 && after != 1:
		return errors.New("local_teid: want exactly one of decapsulate, switch_to and policy with it")
	case t.LocalTEID == 0 && after != 0:
		return errors.New("decapsulate, switch_to and policy want a local_teid")
	case t.Source.IsValid() && t.Remote.IsValid() && t.Source.Is4() != t.Remote.Is4():
		return errors.New("source: want the family of remote")
	}
	return nil
}

// Put adds a GTP-U tunnel, or changes it. The policy that it names must
// be there. The tunnel that it switches to may come later (two tunnels may
// switch to each other): until then its TEID is unknown.
func (x *Table) Put(m gtpu.Tunnel) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.tunnels[m.Name]; old != nil && old.model == m && !old.failed {
		return nil
	}
	if err := x.PutLocked(m); err != nil {
		return fmt.Errorf("tunnel %s: %w", m.Name, err)
	}
	return nil
}

// PutLocked is Put under the data path's lock.
func (x *Table) PutLocked(m gtpu.Tunnel) error {
	if err := check(m); err != nil {
		return err
	}
	if other, ok := x.teids[m.LocalTEID]; ok && other != m.Name {
		return fmt.Errorf("local_teid %d: tunnel %s has it", m.LocalTEID, other)
	}
	if m.Policy != "" && x.policies.Get(m.Policy) == nil {
		return fmt.Errorf("policy %q: there is none of that name", m.Policy)
	}
	t, old := x.tunnels[m.Name], Tunnel{}
	if t == nil {
		t = &Tunnel{switchers: maps.Clone(x.waiting[m.Name])}
	} else {
		old = *t
	}
	if err := x.fill(t, m); err != nil {
		return err
	}
	x.tunnels[m.Name] = t
	err := x.program(t, &old)
	t.failed = err != nil
	return errors.Join(err, x.release(&old))
}

// Hop is the next hop that a tunnel refers to; zero: none.
func Hop(m gtpu.Tunnel) adjacency.Key { return adjacency.Key{NextHop: m.Remote} }

// fill takes the references of m and says what is sent.
func (x *Table) fill(t *Tunnel, m gtpu.Tunnel) error {
	out, src, adj := abi.Tunnel{}, abi.In6{}, []adjacency.Key(nil)
	if m.Remote.IsValid() {
		key := x.hops.Toward(m.Remote)
		index, err := x.hops.Acquire(key)
		if err != nil {
			return err
		}
		adj = []adjacency.Key{key}
		src = abi.In6Of(x.sourceOf(m))
		srcIndex, err := x.sources.Acquire(src)
		if err != nil {
			return x.hops.OrRelease(err, adj)
		}
		out = abi.Tunnel{
			Teid: m.RemoteTEID, Remote: abi.In6Of(m.Remote), Source: srcIndex, Adjacency: index,
			Action: uint8(abi.TunnelActionTUNNEL_GTPU), Qfi: m.QFI, Container: uint8(m.PDUSessionContainer),
		}
		abi.SetFlag(&out.Ipv4, m.Remote.Is4())
	}
	if m.Policy != "" {
		x.policies.Get(m.Policy).Use(ref.User{Kind: ref.Tunnel, Key: m.Name})
	}
	t.model, t.out, t.source, t.adj = m, out, src, adj
	return nil
}

// release ends the references of a tunnel's former state.
func (x *Table) release(old *Tunnel) error {
	if old.model.Policy != "" {
		x.policies.Get(old.model.Policy).Unuse(ref.User{Kind: ref.Tunnel, Key: old.model.Name})
	}
	x.sources.Release(old.source)
	return x.hops.Release(old.adj...)
}

// sourceOf is the outer source: the first GTP-U address of the family
// unless the tunnel has its own.
func (x *Table) sourceOf(m gtpu.Tunnel) netip.Addr {
	return cmp.Or(m.Source, x.settings.GTPUSource(m.Remote))
}

// program makes the tables say what t is: first its own entries, then
// those that hold a copy of what it sends.
func (x *Table) program(t, old *Tunnel) error {
	name := t.model.Name
	if old.model.SwitchTo != t.model.SwitchTo {
		x.switchAway(name, old.model.SwitchTo)
		if to := t.model.SwitchTo; to != "" {
			if x.waiting[to] == nil {
				x.waiting[to] = map[string]bool{}
			}
			x.waiting[to][name] = true
			if target := x.tunnels[to]; target != nil {
				if target.switchers == nil {
					target.switchers = map[string]bool{}
				}
				target.switchers[name] = true
			}
		}
	}
	if err := x.programReceive(t, old.model.LocalTEID); err != nil {
		return err
	}
	if err := x.programSend(t); err != nil {
		return err
	}
	for who := range t.switchers {
		if s := x.tunnels[who]; s != nil && who != name {
			if err := x.programReceive(s, s.model.LocalTEID); err != nil {
				return err
			}
		}
	}
	for who := range t.Users {
		if err := x.Steering.Replace(who); err != nil {
			return err
		}
	}
	return nil
}

func (x *Table) switchAway(name, from string) {
	if from == "" {
		return
	}
	delete(x.waiting[from], name)
	if len(x.waiting[from]) == 0 {
		delete(x.waiting, from)
	}
	if target := x.tunnels[from]; target != nil {
		delete(target.switchers, name)
	}
}

// receiveEntry is what is done with G-PDUs for the local TEID; ok is false
// while that is unknown.
func (x *Table) receiveEntry(t *Tunnel) (e abi.Tunnel, ok bool) {
	m := t.model
	switch {
	case m.LocalTEID == 0:
		return e, false
	case m.SwitchTo != "":
		to := x.tunnels[m.SwitchTo]
		if to == nil || !to.model.Remote.IsValid() {
			return e, false
		}
		e = to.out
		e.Action = uint8(abi.TunnelActionTUNNEL_SWITCH)
	case m.Policy != "":
		e.Action = uint8(abi.TunnelActionTUNNEL_POLICY)
		e.Index = x.policies.Get(m.Policy).Index()
	default:
		e.Action = uint8(abi.TunnelActionTUNNEL_DECAP)
		e.Index = abi.KernelTable(m.Table)
	}
	e.Key = m.LocalTEID
	return e, true
}

// programReceive makes the data path find t by its TEID, and no more by the
// TEID that it had.
func (x *Table) programReceive(t *Tunnel, had uint32) error {
	e, ok := x.receiveEntry(t)
	if t.model.LocalTEID != 0 {
		x.teids[t.model.LocalTEID] = t.model.Name
	}
	former := t.receive
	t.receive = 0
	if ok {
		index, err := x.publishReceive(e, t.model.LocalTEID)
		if err != nil {
			return err
		}
		t.receive = index
	} else if former != 0 { // what an earlier daemon put stays until Sweep
		if err := x.unpublishReceive(t.model.LocalTEID); err != nil {
			return err
		}
	}
	moved := had != 0 && had != t.model.LocalTEID
	if moved || !ok {
		t.receivedBefore.Add(x.entries.Counter(former))
	}
	if moved {
		delete(x.teids, had)
		return x.unpublishReceive(had)
	}
	return nil
}

// Find is where the data path finds a TEID; 0: nowhere.
func (x *Table) Find(teid uint32) uint32 {
	if slot := x.teidSlot(teid); slot != 0 && x.entries.Get(slot).Key == teid {
		return slot
	}
	return x.byTEID.Get(teid)
}

// teidSlot is the entry that a TEID leads to by itself; 0: none.
func (x *Table) teidSlot(teid uint32) uint32 {
	if slot := teid & 0xffffff; slot < x.entries.slots {
		return slot
	}
	return 0
}

// publishReceive changes the entry of a TEID where one word is all that
// changes; otherwise it writes another entry and lets the TEID lead there.
func (x *Table) publishReceive(e abi.Tunnel, teid uint32) (uint32, error) {
	now := x.Find(teid)
	if now != 0 {
		if x.entries.Change(now, e) {
			if x.byTEID.Get(e.Key) == now {
				return now, x.byTEID.Put(e.Key, now) // seen, for Sweep
			}
			return now, nil
		}
		e.Volume = counter.VolumeOf(x.entries.Counter(now))
	}
	slot := x.teidSlot(e.Key)
	if slot != 0 && slot != now && x.entries.Free(slot) && x.entries.Get(slot).Key == 0 {
		x.entries.Write(slot, e, WordKey)
		return slot, x.unlinkTEID(e.Key)
	}
	index, err := x.indexes.Alloc()
	if err != nil {
		return 0, err
	}
	x.entries.Write(index, e, WordKey)
	if err := x.byTEID.Put(e.Key, index); err != nil {
		x.indexes.Retire(index)
		return 0, err
	}
	if now == slot && now != 0 {
		x.entries.Clear(now, WordKey)
	} else {
		x.indexes.Retire(now)
	}
	return index, nil
}

// unlinkTEID ends what tunnel_by_teid says of a TEID.
func (x *Table) unlinkTEID(teid uint32) error {
	index := x.byTEID.Get(teid)
	if err := x.byTEID.Delete(teid); err != nil {
		return err
	}
	x.indexes.Retire(index)
	return nil
}

func (x *Table) unpublishReceive(teid uint32) error {
	if slot := x.teidSlot(teid); slot != 0 && x.entries.Get(slot).Key == teid {
		x.entries.Clear(slot, WordKey)
	}
	return x.unlinkTEID(teid)
}

// Delete removes a tunnel that no steering refers to. One that is not
// there is not an error. Tunnels that switch to it become unknown.
func (x *Table) Delete(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tunnels[name]
	if t == nil {
		return nil
	}
	if len(t.Users) > 0 {
		return fmt.Errorf("tunnel %s: %s uses it: delete that first", name, t.Any())
	}
	delete(x.tunnels, name)
	x.switchAway(name, t.model.SwitchTo)
	if teid := t.model.LocalTEID; teid != 0 {
		delete(x.teids, teid)
		if err := x.unpublishReceive(teid); err != nil {
			return err
		}
	}
	for who := range t.switchers {
		if s := x.tunnels[who]; s != nil {
			if err := x.programReceive(s, 0); err != nil {
				return err
			}
		}
	}
	return x.release(t)
}

// Counters counts the T-PDUs of a tunnel in each direction.
func (x *Table) Counters(name string) (received, sent counter.Counter, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tunnels[name]
	if t == nil {
		return counter.Counter{}, counter.Counter{}, nil
	}
	received, sent = t.receivedBefore, t.sentBefore
	received.Add(x.entries.Counter(t.receive))
	sent.Add(x.entries.Counter(t.send))
	for who := range t.Users {
		sent.Add(x.entries.Counter(x.Steering.SlotOf(who)))
	}
	return received, sent, nil
}
