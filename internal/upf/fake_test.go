package upf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/target"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/wheel"
)

// fakePath is a data path to which a test says what packets come.
type fakePath struct {
	messages []string // G-PDUs of SMFs, and End Markers
	silent   int      // the index of an interface by which the data path answers nothing
	mu       sync.Mutex
	held     map[uint32]int // packets on their way up, by entryOf a rule
	sessions map[uint64]datapath.Session
	volumes  map[uint64]map[uint16]*volume
	gone     map[uint64]map[uint16]*volume // by the last put
	slices   map[uint32][2]uint64
	// sliceSIDs are whose sessions receive at SIDs.
	sliceSIDs map[netip.Prefix]uint32
	teids     map[uint32]bool
	next      uint32
	stations  []dataplane.Station
	events    chan datapath.Event
	injected  []string
	puts      int
	failPut   error
	// during is called by a put, with the session as it was.
	during func(before datapath.Session)
}

type volume struct {
	counter.Counter
	refused                           counter.Counter
	sentNotify, sentStop, sentRefused bool
}

func newFakePath() *fakePath {
	return &fakePath{
		sessions: map[uint64]datapath.Session{}, volumes: map[uint64]map[uint16]*volume{}, gone: map[uint64]map[uint16]*volume{}, slices: map[uint32][2]uint64{}, sliceSIDs: map[netip.Prefix]uint32{},
		held: map[uint32]int{}, teids: map[uint32]bool{}, events: make(chan datapath.Event, 1000),
	}
}

func (f *fakePath) NewTEID() (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	f.teids[f.next] = true
	return f.next, nil
}

func (f *fakePath) TakeTEID(teid uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.teids[teid] {
		return target.ErrTaken
	}
	f.teids[teid] = true
	return nil
}

func (f *fakePath) FreeTEID(teid uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.teids, teid)
}

func (f *fakePath) PutSession(s datapath.Session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failPut != nil {
		return f.failPut
	}
	f.puts++
	s.Rules = slices.Clone(s.Rules)
	before := f.sessions[s.ID]
	f.sessions[s.ID] = s
	now := map[uint16]*volume{}
	for i, r := range s.Rules {
		if r.Action == datapath.ActionForward && holdsBack(before.Rules, r.ID) && f.held[entryOf(s.ID, r.ID)] > 0 {
			s.Rules[i].Action = datapath.ActionHold
		}
		if r.ID == 0 {
			return errors.New("rule 0")
		}
		now[r.ID] = &volume{}
	}
	if f.during != nil {
		f.during(before)
	}
	f.gone[s.ID] = map[uint16]*volume{}
	for rule, v := range f.volumes[s.ID] {
		if now[rule] == nil {
			f.gone[s.ID][rule] = v
		} else {
			now[rule].Counter, now[rule].refused = v.Counter, v.refused
		}
	}
	f.volumes[s.ID] = now
	return nil
}

func (f *fakePath) usage(id uint64) []datapath.RuleUsage {
	var out []datapath.RuleUsage
	for rule, v := range f.volumes[id] {
		out = append(out, datapath.RuleUsage{Rule: rule, Volume: v.Counter, Refused: v.refused})
	}
	return out
}

func (f *fakePath) RemoveSession(id uint64, done func([]datapath.RuleUsage, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.sessions[id]; !ok {
		return fmt.Errorf("no session %d", id)
	}
	go done(f.usage(id), nil)
	delete(f.sessions, id)
	delete(f.volumes, id)
	return nil
}

func (f *fakePath) SessionUsage(id uint64) ([]datapath.RuleUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.sessions[id]; !ok {
		return nil, fmt.Errorf("no session %d", id)
	}
	out := f.usage(id)
	for rule, v := range f.gone[id] {
		out = append(out, datapath.RuleUsage{Rule: rule, Volume: v.Counter, Refused: v.refused})
	}
	return out, nil
}

func (f *fakePath) DropSession(id uint64) error {
	return f.RemoveSession(id, func([]datapath.RuleUsage, error) {})
}

func (f *fakePath) SetRuleLimits(id uint64, rule uint16, l datapath.RuleLimits) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.sessions[id].Rules {
		r := &f.sessions[id].Rules[i]
		if r.ID == rule {
			v := f.volumes[id][rule]
			v.sentNotify = false // the data path gets the word again
			v.sentStop = v.sentStop && r.StopAt == l.StopAt
			v.sentRefused = v.sentRefused && r.RefusedNotifyAt == l.RefusedNotifyAt
			r.RuleLimits = l
			return nil
		}
	}
	return fmt.Errorf("no rule %d in session %d", rule, id)
}

func (f *fakePath) SetQuotas(id uint64, list []datapath.Quota) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.sessions[id]
	if !ok || s.Quotas == nil {
		return fmt.Errorf("session %d has no quotas", id)
	}
	s.Quotas = list
	f.sessions[id] = s
	return nil
}

func (f *fakePath) Stations() ([]dataplane.Station, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stations), nil
}

func (f *fakePath) SessionEvents(ctx context.Context, event func(datapath.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events:
			event(e)
		}
	}
}

func (f *fakePath) SetSliceSID(sid netip.Prefix, slice uint32, _ bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sliceSIDs[sid] = slice
}

func (f *fakePath) SetSlice(slice uint32, up, down uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slices[slice] = [2]uint64{up, down}
	return nil
}

func (f *fakePath) SliceCounters(uint32) (up, down counter.Counter, err error) { return }

func (f *fakePath) Inject(frame []byte, ifindex int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.injected = append(f.injected, fmt.Sprintf("%d:%x", ifindex, frame[len(frame)-1]))
	return nil
}

func (f *fakePath) SessionOf(teid uint32) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.sessions {
		for i := range s.Rules {
			if s.Rules[i].TEID == teid {
				return id
			}
		}
	}
	return 0
}

func (f *fakePath) IsSilent(ifindex int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ifindex == f.silent
}

func (f *fakePath) InjectGTPU(message []byte, tos, ttl uint8) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, fmt.Sprintf("%x tos %d ttl %d", message, tos, ttl))
	return nil
}

// givenBack are the GTP-U messages that the data path got.
func (f *fakePath) givenBack() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages)
}

func (f *fakePath) InjectFor(session uint64, frame []byte, ifindex int, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.injected = append(f.injected, fmt.Sprintf("%d:%x for %d", ifindex, frame[len(frame)-1], session))
	return nil
}

func (f *fakePath) InjectKept(frame []byte, ifindex int) error { return f.Inject(frame, ifindex) }

// entryOf is the entry of a rule.
func entryOf(id uint64, rule uint16) uint32 { return uint32(id)<<8 | uint32(rule) }

// holdsBack says whether a rule hands up or drops what it might forward.
func holdsBack(list []datapath.Rule, id uint16) bool {
	return slices.ContainsFunc(list, func(r datapath.Rule) bool {
		return r.ID == id && (r.Action == datapath.ActionBuffer || r.Action == datapath.ActionHold || r.Action == datapath.ActionFull)
	})
}

// comes has a packet of a rule on its way up: Buffer gets it later.
func (f *fakePath) comes(id uint64, rule uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[entryOf(id, rule)]++
}

func (f *fakePath) Taken(entry uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[entry] = max(f.held[entry]-1, 0)
}

func (f *fakePath) Open(id uint64, rule uint16, force bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !holdsBack(f.sessions[id].Rules, rule) {
		return true
	}
	if !force && f.held[entryOf(id, rule)] > 0 {
		return false
	}
	f.setAction(id, rule, datapath.ActionForward)
	return true
}

func (f *fakePath) Shut(id uint64, rule uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if holdsBack(f.sessions[id].Rules, rule) {
		f.setAction(id, rule, datapath.ActionFull)
	}
}

func (f *fakePath) setAction(id uint64, rule uint16, a datapath.Action) {
	for i := range f.sessions[id].Rules {
		if r := &f.sessions[id].Rules[i]; r.ID == rule {
			r.Action = a
		}
	}
}

// rule is what the data path holds of a PDR.
func (f *fakePath) rule(t *testing.T, id uint64, rule uint16) datapath.Rule {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.sessions[id].Rules {
		if r.ID == rule {
			return r
		}
	}
	t.Fatalf("session %d has no rule %d", id, rule)
	return datapath.Rule{}
}

// packet passes a rule as section 7 of docs/reference/semantics.md says, and whether it
// was forwarded.
func (f *fakePath) packet(id uint64, rule uint16, octets uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	up := func(at uint64) uint64 { return (at + granule - 1) / granule }
	if f.shares(id, rule) {
		f.endShares(id, rule)
	}
	for _, r := range f.sessions[id].Rules {
		v := f.volumes[id][r.ID]
		if r.ID != rule || r.Action != datapath.ActionForward {
			continue
		}
		if r.Shares && f.usedUp(id, rule) || !r.Shares && r.StopAt != 0 && v.Bytes/granule >= up(r.StopAt) {
			if !v.sentStop {
				v.sentStop = true
				f.events <- datapath.Event{Session: id, Rule: rule, Kind: datapath.EventStop}
			}
			return false
		}
		if r.NotifyAt != 0 && v.Bytes/granule >= up(r.NotifyAt) && !v.sentNotify {
			v.sentNotify = true
			f.events <- datapath.Event{Session: id, Rule: rule, Kind: datapath.EventNotify}
		}
		v.Packets++
		v.Bytes += octets
		return true
	}
	return false
}

// refuse has QoS enforcement drop a packet.
func (f *fakePath) refuse(id uint64, rule uint16, octets uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.volumes[id][rule]
	for i := range f.sessions[id].Rules {
		r := &f.sessions[id].Rules[i]
		if r.ID != rule || !r.Shares && r.StopAt != 0 && v.Bytes/granule >= (r.StopAt+granule-1)/granule || f.usedUp(id, rule) {
			continue
		}
		v.refused.Packets++
		v.refused.Bytes += octets
		if r.RefusedNotifyAt != 0 && v.refused.Bytes >= r.RefusedNotifyAt && !v.sentRefused {
			v.sentRefused = true
			f.events <- datapath.Event{Session: id, Rule: rule, Kind: datapath.EventNotify}
		}
	}
}

// smf takes reports, or does not.
type smf struct {
	mu      sync.Mutex
	reports []session.Report
	answer  error
	silent  bool
	waiting []func(error)
	paths   []string

	noNodeReports bool
}

func (s *smf) Report(r session.Report, done func(error)) {
	s.mu.Lock()
	s.reports = append(s.reports, r)
	answer, silent := s.answer, s.silent
	if silent {
		s.waiting = append(s.waiting, done)
	}
	s.mu.Unlock()
	if !silent {
		done(answer)
	}
}

func (s *smf) path(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, text)
}

// take returns the reports since the last time.
func (s *smf) take() []session.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.reports
	s.reports = nil
	return out
}

// usageOf are the usage reports since the last time.
func (s *smf) usage() []session.UsageReport {
	var out []session.UsageReport
	for _, r := range s.take() {
		out = append(out, r.Usage...)
	}
	return out
}

// world is a UPF on a fake data path, with a clock that the test moves.
type world struct {
	*UPF
	t      *testing.T
	path   *fakePath
	smf    *smf
	passed atomic.Int64 // since the beginning, in ns
	dir    string
}

// at is the time.
func (w *world) at() time.Time { return time.Unix(1_800_000_000, w.passed.Load()) }

type pfcpSide struct{ *smf }

func (r pfcpSide) PathFailure(a netip.Addr, smfs []string, refused func(string)) {
	r.path(fmt.Sprintf("down %s %s", a, smfs))
	for _, smf := range smfs {
		if r.noNodeReports {
			refused(smf)
		}
	}
}

func (r pfcpSide) PathRecovery(a netip.Addr, smfs []string) {
	r.path(fmt.Sprintf("up %s %s", a, smfs))
}

var _ pfcp.Reporter = pfcpSide{}

// IsSMF knows one that comes by the loopback interface.
func (r pfcpSide) IsSMF(from netip.Addr, in int) bool {
	return in == 1 && from == netip.MustParseAddr("127.91.0.9")
}

func newWorld(t *testing.T, options ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, path: newFakePath(), smf: &smf{}, dir: t.TempDir()}
	w.open(options...)
	return w
}

func (w *world) open(options ...func(*Options)) {
	w.t.Helper()
	o := Options{DataPath: w.path, Journal: w.dir, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.at() }}
	for _, f := range options {
		f(&o)
	}
	u, err := New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.UPF = u
	u.Start(pfcpSide{w.smf})
	if len(w.path.sessions) == 0 {
		u.Restore() // of nothing
	}
	w.t.Cleanup(func() { _ = u.Close() })
}

// remove deletes a session, and waits for its last usage.
func (w *world) remove(seid uint64) (reports []session.UsageReport, err error) {
	s := w.Session(seid)
	if s == nil {
		return nil, noSession(seid)
	}
	done := make(chan struct{})
	w.Delete(s, func(last []session.UsageReport, e error) {
		reports, err = last, e
		close(done)
	})
	<-done
	return reports, err
}

// restart is a kill: nothing is said to the old one.
func (w *world) restart(options ...func(*Options)) {
	w.t.Helper()
	w.path.mu.Lock()
	w.path.teids = map[uint32]bool{}
	w.path.mu.Unlock()
	w.smf = &smf{}
	w.open(options...)
	w.Restore()
}

// pass lets time pass, in ticks, and handles what happens.
func (w *world) pass(d time.Duration) {
	for end := w.at().Add(d); w.at().Before(end); {
		w.passed.Add(int64(wheel.Tick))
		w.settle()
	}
}

// settle handles what the data path reported, and what is due.
func (w *world) settle() {
	for {
		select {
		case e := <-w.path.events:
			w.reports.check(w.store.Entry(e.Session))
			continue
		default:
		}
		due := w.reports.wheel.Take(w.at())
		for _, e := range due {
			w.reports.check(e)
		}
		if len(due) == 0 {
			return
		}
	}
}

func (w *world) establish(s *session.Session) {
	w.t.Helper()
	if err := w.Establish(s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) modify(from, to *session.Session, how session.Modification) []session.UsageReport {
	w.t.Helper()
	reports, err := w.Modify(from, to, how)
	if err != nil {
		w.t.Fatal(err)
	}
	return reports
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// granule is what the data path counts limits in.
const granule = 256

// Without entries of n4_session the data path answers nothing.
func (*fakePath) Turn(uint64, *datapath.Rule, *datapath.Rule) (t datapath.Turn, ok bool) {
	return t, false
}
func (*fakePath) Out(uint32) uint64                                        { return 0 }
func (*fakePath) LeadsTo(uint64) (gnb netip.Addr, teid uint32, ok bool)    { return }
func (*fakePath) EndMarkers(ctx context.Context, _ func(out uint64)) error { return nil }
func (*fakePath) RecoverTurn(uint16, netip.Addr, uint32) (bool, error)     { return false, nil }
func (*fakePath) OwnerOf(uint32) (session uint64)                          { return 0 }
