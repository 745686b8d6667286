package upf

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
	signalling "github.com/culvert-net/culvert/internal/dataplane/n4"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/path"
	"github.com/culvert-net/culvert/internal/upf/rules"
	"github.com/culvert-net/culvert/internal/upf/store"
)

// How often the daemon learns what the data path has changed, while it changes something and
// while it does not; and how often the daemon shows that it is alive.
const (
	learnInterval = 10 * time.Millisecond
	idleInterval  = 160 * time.Millisecond
	aliveInterval = time.Second
)

// sharer shares sessions with the data path, which answers requests that update FARs
// (docs/adr/0023-signalling-in-the-data-path.md). Without a table it does nothing.
type sharer struct {
	u     *UPF
	table *signalling.Table
	on    bool                              // the data path may answer
	smfs  atomic.Pointer[map[string]uint32] // numbers of associations by Node ID

	mu      sync.Mutex
	numbers map[uint64]uint32 // of the associations that there are, by serial
	highest uint32            // of all that there were
}

// Share has the data path answer for the sessions of u if on is set, and else learns what
// it did while it was. It comes before u.Restore. The N4 server has to call what it
// returns; nil: nobody else answers.
func Share(u *UPF, t *signalling.Table, on bool) pfcp.Signalling {
	if !on && t.Places() <= 1 { // it never answered
		return nil
	}
	s := &sharer{u: u, table: t, on: on}
	if u.install.share = s; !on {
		return nil
	}
	return s
}

// ---- sessions ----

// lock locks a session for the daemon alone, with what the data path did to it. It
// returns false, and locks nothing, if the session has ended.
func (i *installer) lock(e *store.Entry) bool {
	if !e.Lock() {
		return false
	}
	i.share.take(e)
	return true
}

// unlock gives a session back.
func (i *installer) unlock(e *store.Entry) {
	i.share.give(e)
	e.Unlock()
}

// take keeps the data path from a session, which is locked, and learns what it did.
func (s *sharer) take(e *store.Entry) {
	if s == nil || e.Taken || !s.table.Has(e.SEID) {
		return
	}
	s.table.Lock(e.SEID)
	s.learn(e)
}

// give lets the data path change a session again, if it can.
func (s *sharer) give(e *store.Entry) {
	if s == nil || e.Taken || !s.table.Has(e.SEID) {
		return
	}
	kept := e.Buffer.Holds()
	switch open := s.table.IsOpen(e.SEID); {
	case kept: // nothing may overtake these packets
		_ = s.shut(e)
	case !open && s.shut(e) == nil:
		s.open(e)
	}
	s.table.Unlock(e.SEID)
}

// join makes an entry for a new session.
func (s *sharer) join(of *session.Session) {
	if s != nil {
		s.table.Join(of.SEID, of.CPSEID)
		if s.table.Has(of.SEID) {
			s.table.Lock(of.SEID)
		}
	}
}

// close leaves a session to the daemon, which is about to change it. With other PDRs, an
// Update PDR that repeated what they were may change them.
func (s *sharer) close(e *store.Entry, from, to *session.Session) {
	if s == nil || !s.table.Has(e.SEID) {
		return
	}
	_ = s.shut(e)
	if !sameList(from.PDRs, to.PDRs) {
		s.table.Repeat(e.SEID)
	}
}

// shut leaves a session to the daemon alone. After an error the journal lacks what the data
// path did: the entry goes on saying it.
func (s *sharer) shut(e *store.Entry) error {
	err := s.u.store.Write(e)
	if err != nil {
		s.table.Keep(e.SEID)
	} else {
		s.table.Close(e.SEID)
	}
	return err
}

// sameList says whether two lists are one and the same.
func sameList[T any](a, b []T) bool {
	return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// end keeps the data path from a session that ends.
func (s *sharer) end(e *store.Entry) {
	if s == nil || !s.table.Has(e.SEID) {
		return
	}
	if !e.Taken {
		s.table.Lock(e.SEID)
	}
	_ = s.shut(e) // the session may have to go on
	s.table.Unlock(e.SEID)
	e.Taken = false
}

// forget clears the entry of a session that has ended.
func (s *sharer) forget(seid uint64) {
	if s != nil {
		s.table.Clear(seid)
	}
}

// ---- what the data path may do ----

// open lets the data path change those rules of a session that it can change.
func (s *sharer) open(e *store.Entry) {
	if e.Association == 0 {
		e.Association = s.association(e)
	}
	if e.Association == 0 || e.Ethernet {
		return
	}
	of := e.Session()
	some, err := s.rules(e, of)
	if err != nil {
		s.u.o.Logger.Error("the data path does not answer for a session", "event", logevent.N4FastFailed, "seid", e.SEID, "error", err)
	}
	if err == nil && some[0].Pdr != 0 {
		s.table.Open(e.SEID, e.Association, signalling.Owner{SEID: of.CPSEID, Addr: of.CPAddr}, some)
	}
}

// association is the number of the one that a session's Node ID has now; 0: nobody has said yet.
func (s *sharer) association(e *store.Entry) uint32 {
	numbers := s.smfs.Load()
	if numbers == nil {
		return 0
	}
	return (*numbers)[e.Session().Node]
}

// rules are those that the data path can change: of FARs that forward G-PDUs, or keep
// packets and would forward them. All rules of a FAR are among them, or none. Those
// towards UEs come first: they are what SMFs change.
func (s *sharer) rules(e *store.Entry, of *session.Session) (out [signalling.Rules]abi.N4Rule, err error) {
	var fars []*session.FAR
	for n := range of.FARs {
		if _, tunnel := path.TunnelOf(&of.FARs[n]); tunnel && turns(of.FARs[n].Action) {
			fars = append(fars, &of.FARs[n])
		}
	}
	if len(fars) == 0 {
		return out, nil
	}
	slices.SortStableFunc(fars, func(a, b *session.FAR) int {
		return cmp.Compare(a.Forwarding.Destination, b.Forwarding.Destination)
	})
	forward, err := s.as(e, of, session.Forward)
	if err != nil {
		return out, err
	}
	buffer, err := s.as(e, of, session.Buffer|session.Notify)
	if err != nil {
		return out, err
	}
	used := 0
	for _, f := range fars {
		some, err := s.rulesOf(of, f, forward.Rules, buffer.Rules)
		if err != nil {
			return out, err
		}
		if used+len(some) <= len(out) {
			used += copy(out[used:], some)
		}
	}
	return out, nil
}

// turns says whether a FAR does what the data path can change.
func turns(a session.Action) bool {
	return a == session.Forward || a == session.Buffer|session.Notify
}

// as is what the rules of a session are while its FARs that the data path can change all do
// the same.
func (s *sharer) as(e *store.Entry, of *session.Session, a session.Action) (datapath.Session, error) {
	other := *of
	other.FARs = slices.Clone(of.FARs)
	for n := range other.FARs {
		if turns(other.FARs[n].Action) {
			other.FARs[n].Action = a
		}
	}
	p, err := s.u.install.compile(&other, e.Usage)
	return p.rules, err
}

// rulesOf are the rules of a FAR; nil: the data path cannot change one of them.
func (s *sharer) rulesOf(of *session.Session, f *session.FAR, forward, buffer []datapath.Rule) (out []abi.N4Rule, err error) {
	for i := range forward {
		if p := rules.PDR(of, forward[i].ID); p == nil || p.FAR != f.ID {
			continue
		}
		turn, ok := s.u.o.DataPath.Turn(of.SEID, &forward[i], &buffer[i])
		if !ok {
			return nil, nil
		}
		if turn.Forwarding != 0 {
			if err := s.table.Learn(turn.Template, f.Forwarding.Outer.Addr, turn.Forwarding); err != nil {
				return nil, err
			}
		}
		out = append(out, ruleOf(f, turn))
	}
	return out, nil
}

// ruleOf is what the data path is told of a rule.
func ruleOf(f *session.FAR, t datapath.Turn) abi.N4Rule {
	out := abi.N4Rule{
		Far: f.ID, Pdr: t.Entry, Forward: t.Forward, Buffer: t.Buffer, Template: t.Template,
		Instance: instanceHash(f.Forwarding.NetworkInstance), Destination: uint8(f.Forwarding.Destination), Type: none, Bar: none,
		Forwards: uint8(session.Forward), Buffers: uint8(session.Buffer | session.Notify), Action: uint8(f.Action),
	}
	if t := f.Forwarding.InterfaceType; t != nil {
		out.Type = uint8(*t)
	}
	if f.BAR != nil {
		out.Bar = *f.BAR
	}
	if t.Leads {
		out.Leads = 1
	}
	return out
}

// none is N4_NONE of bpf/def/n4.h.
const none = 255

// instanceHash is n4_hash of bpf/n4/read.h: 32-bit FNV-1a.
func instanceHash(text string) uint32 {
	h := uint32(0x811c9dc5)
	for _, c := range []byte(text) {
		h = (h ^ uint32(c)) * 0x01000193
	}
	return h
}

// ---- what it did ----

// learn takes over what the data path did to a session, which is locked. Until that is in
// the journal, it is in the entry. The data path may go on meanwhile: the session is then
// to be learned from again.
func (s *sharer) learn(e *store.Entry) {
	if !s.table.Changed(e.SEID) {
		return
	}
	from := e.Session()
	entry := s.table.Entry(e.SEID)
	to := s.changed(from, entry)
	for !s.table.Still(e.SEID, entry) {
		entry = s.table.Entry(e.SEID)
		to = s.changed(from, entry)
	}
	_ = s.u.store.Learn(e, to) // see shut
	s.u.paths.Move(e.SEID, from, to)
	s.u.kept.update(e, from, to, false)
}

// changed is a session with what its entry says of its FARs.
func (s *sharer) changed(of *session.Session, entry abi.N4Session) *session.Session {
	to := *of
	to.FARs = slices.Clone(of.FARs)
	for i := range entry.Rule {
		r := &entry.Rule[i]
		n := slices.IndexFunc(to.FARs, func(f session.FAR) bool { return r.Pdr != 0 && f.ID == r.Far })
		if n < 0 {
			continue
		}
		f := &to.FARs[n]
		f.Action = session.Action(r.Action)
		gnb, teid, known := s.u.o.DataPath.LeadsTo(s.u.o.DataPath.Out(r.Pdr))
		if r.Leads == 0 || !known || f.Forwarding == nil || f.Forwarding.Outer == nil {
			continue
		}
		forwarding, outer := *f.Forwarding, *f.Forwarding.Outer
		outer.Addr, outer.TEID = gnb, teid
		forwarding.Outer, f.Forwarding = &outer, &forwarding
	}
	return &to
}

// recoverWays goes on with the ways to gNBs that the data path knows.
func (s *sharer) recoverWays() {
	if s == nil {
		return
	}
	var gone []signalling.Way
	for way, entry := range s.table.Taught() {
		known, err := s.u.o.DataPath.RecoverTurn(way.Template, way.GNB, entry)
		if err != nil {
			s.u.o.Logger.Error("the data path does not answer requests for a gNB", "event", logevent.N4FastFailed, "gnb", way.GNB, "error", err)
		}
		if !known {
			gone = append(gone, way)
		}
	}
	if len(gone) == 0 {
		return
	}
	err := s.table.Pause(func() (err error) {
		for _, way := range gone {
			err = errors.Join(err, s.table.Unlearn(way))
		}
		return err
	})
	if err != nil {
		s.u.o.Logger.Error("the data path knows ways to gNBs that are gone", "event", logevent.N4FastFailed, "error", err)
	}
}

// recover is a session of an earlier process, with what the data path did to it since. It
// may go on changing it when the caller has put it and unlocked it.
func (s *sharer) recover(e *store.Entry, of *session.Session) *session.Session {
	if s == nil {
		return of
	}
	entry, isTrue := s.table.Recover(of.SEID, of.CPSEID)
	if !isTrue {
		return of
	}
	to := s.changed(of, entry)
	if slices.EqualFunc(of.FARs, to.FARs, sameForwarding) {
		return of
	}
	_ = s.u.store.Learn(e, to) // see shut
	return to
}

// check closes a session of an earlier process if its rules are elsewhere now.
func (s *sharer) check(e *store.Entry) {
	if s == nil || !s.table.IsOpen(e.SEID) {
		return
	}
	for _, r := range s.table.Entry(e.SEID).Rule {
		if r.Pdr != 0 && s.u.o.DataPath.OwnerOf(r.Pdr) != e.SEID {
			s.table.Close(e.SEID)
		}
	}
}

// sameForwarding says whether the data path did not change a FAR.
func sameForwarding(a, b session.FAR) bool {
	x, is := path.TunnelOf(&a)
	y, _ := path.TunnelOf(&b)
	return a.Action == b.Action && (!is || x == y)
}

// endMarker sends the End Marker that an SMF asked the data path for.
func (s *sharer) endMarker(out uint64) {
	if gnb, teid, known := s.u.o.DataPath.LeadsTo(out); known {
		s.u.paths.EndMarker(session.PeerTEID{Addr: gnb, TEID: teid})
	}
}

// ---- requests: pfcp.Signalling ----

// Take implements pfcp.Signalling.
func (s *sharer) Take(seid uint64, sequence uint32) (answered bool) {
	e := s.u.store.Entry(seid)
	if e == nil || !s.u.install.lock(e) {
		return false
	}
	defer e.Unlock()
	if !s.table.Has(seid) {
		return false
	}
	e.Taken, e.Association = true, s.association(e)
	return s.table.Answered(seid, sequence)
}

// Places implements pfcp.Signalling.
func (s *sharer) Places() uint32 { return s.table.Places() }

// Give implements pfcp.Signalling.
func (s *sharer) Give(seid uint64, sequence uint32, accepted bool) {
	e := s.u.store.Entry(seid)
	if e == nil || !e.Lock() {
		return
	}
	if e.Taken {
		if e.Taken = false; !s.table.Answered(seid, sequence) {
			s.table.NoteAnswer(seid, sequence, accepted)
		}
		if entry := s.table.Entry(seid); entry.Open != 0 && entry.Association != e.Association {
			_ = s.shut(e)
		}
		s.give(e)
	}
	e.Unlock()
	s.table.Arrived(seid, sequence)
}

// Repeat implements pfcp.Signalling.
func (s *sharer) Repeat(seid uint64, updates [][]byte) {
	e := s.u.store.Entry(seid)
	if e == nil || !e.Lock() {
		return
	}
	if e.Taken {
		s.table.Repeat(seid, updates...)
	}
	e.Unlock()
}

// SetNode implements pfcp.Signalling.
func (s *sharer) SetNode(node pfcp.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := signalling.Node{Addresses: node.Addresses, Recovery: node.Recovery, Peers: map[netip.Addr]signalling.Peer{}}
	byNode, bySerial, shared := map[string]uint32{}, map[uint64]uint32{}, map[netip.Addr]bool{}
	for _, p := range node.Peers {
		number := s.number(p)
		byNode[p.Node], bySerial[p.Serial] = number, number
		for _, a := range p.Addrs {
			_, taken := to.Peers[a]
			shared[a] = shared[a] || taken
			to.Peers[a] = signalling.Peer{Association: number, Recovery: p.Recovery}
		}
	}
	maps.DeleteFunc(to.Peers, func(a netip.Addr, _ signalling.Peer) bool { return shared[a] }) // whose SMFs only the daemon can tell apart
	s.numbers = bySerial
	s.smfs.Store(&byNode)
	if err := s.table.SetNode(to); err != nil {
		s.u.o.Logger.Error("the data path answers SMFs as they were", "event", logevent.N4FastFailed, "error", err)
	}
}

// number is the one that an association has, or had for an earlier process, or a new one.
func (s *sharer) number(p pfcp.Peer) uint32 {
	if has := s.numbers[p.Serial]; has != 0 {
		return has
	}
	for _, a := range p.Addrs {
		if had := s.table.Association(a, p.Recovery); had != 0 && s.smfs.Load() == nil {
			return had
		}
	}
	s.highest = max(s.highest, s.table.Numbered()) + 1
	return s.highest
}

// ---- in the background ----

// run shares all sessions, and learns what the data path does to them, until ctx ends.
func (s *sharer) run(ctx context.Context) error {
	s.table.Start(func(seid uint64) bool { return s.u.store.Entry(seid) != nil })
	for _, e := range s.u.store.All() {
		if ctx.Err() == nil && s.u.install.lock(e) {
			s.u.install.unlock(e)
		}
	}
	pause := learnInterval
	learn, alive := time.NewTimer(pause), time.NewTicker(aliveInterval)
	defer learn.Stop()
	defer alive.Stop()
	for {
		if err := s.table.Alive(); err != nil {
			return err
		}
		for now := false; !now; {
			select {
			case <-ctx.Done():
				return nil
			case <-alive.C:
				now = true
			case <-learn.C:
				begun := time.Now()
				if pause = min(2*pause, idleInterval); s.learnAll() {
					pause = learnInterval
				}
				learn.Reset(max(pause, time.Since(begun))) // half of the time at most
			}
		}
	}
}

// learnAll learns what the data path has changed since the last call. some: it has.
func (s *sharer) learnAll() (some bool) {
	for seid := range s.table.Dirty() {
		some = true
		e := s.u.store.Entry(seid)
		if e == nil {
			s.table.Changed(seid)
			continue
		}
		if e.Lock() { // for the daemon only: who dies here leaves no lock in the entry
			s.learn(e)
			e.Unlock()
		}
	}
	return some
}
