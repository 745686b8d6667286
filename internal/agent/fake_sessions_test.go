package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/culvert-net/culvert/internal/dataplane"
	"github.com/culvert-net/culvert/internal/dataplane/counter"
	"github.com/culvert-net/culvert/internal/dataplane/ethernet"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
)

// fakeSessions are the sessions of a fake data path.
type fakeSessions struct {
	mu       sync.Mutex
	sessions map[uint64]datapath.Session
	slices   map[uint32][2]uint64
	teid     uint32
}

func (f *fakeSessions) NewTEID() (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.teid++
	return f.teid, nil
}

func (f *fakeSessions) TakeTEID(uint32) error { return nil }
func (f *fakeSessions) FreeTEID(uint32)       {}

func (f *fakeSessions) PutSession(s datapath.Session) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sessions == nil {
		f.sessions = map[uint64]datapath.Session{}
	}
	f.sessions[s.ID] = s
	return nil
}

func (f *fakeSessions) DropSession(id uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, id)
	return nil
}

func (f *fakeSessions) RemoveSession(id uint64, done func([]datapath.RuleUsage, error)) error {
	err := f.DropSession(id)
	if err == nil {
		go done(nil, nil)
	}
	return err
}

func (f *fakeSessions) SessionUsage(id uint64) ([]datapath.RuleUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []datapath.RuleUsage
	for _, r := range f.sessions[id].Rules {
		out = append(out, datapath.RuleUsage{Rule: r.ID})
	}
	return out, nil
}

func (f *fakeSessions) Stations() ([]dataplane.Station, error)                  { return nil, nil }
func (f *fakeSessions) SetQuotas(uint64, []datapath.Quota) error                { return nil }
func (f *fakeSessions) SetRuleLimits(uint64, uint16, datapath.RuleLimits) error { return nil }

func (f *fakeSessions) SessionEvents(ctx context.Context, _ func(datapath.Event)) error {
	<-ctx.Done()
	return nil
}

func (f *fakeSessions) SetSliceSID(netip.Prefix, uint32, bool) {}

func (f *fakeSessions) SetSlice(slice uint32, up, down uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slices == nil {
		f.slices = map[uint32][2]uint64{}
	}
	f.slices[slice] = [2]uint64{up, down}
	return nil
}

func (f *fakeSessions) SliceCounters(uint32) (up, down counter.Counter, err error) {
	return counter.Counter{Packets: 1, Bytes: 100}, counter.Counter{Packets: 2, Bytes: 200}, nil
}

// rules are the sessions' rules, by session and then by ID.
func (f *fakeSessions) rules() []datapath.Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []datapath.Rule
	for _, id := range slices.Sorted(maps.Keys(f.sessions)) {
		out = append(out, f.sessions[id].Rules...)
	}
	return out
}

func (f *fakeDataPath) PutSessionSID(p netip.Prefix) error {
	return f.do(func() error { f.sessionSIDs[p] = true; return nil }, "session sid %s", p)
}

func (f *fakeDataPath) DeleteSessionSID(p netip.Prefix) error {
	return f.do(func() error { delete(f.sessionSIDs, p); return nil }, "delete session sid %s", p)
}

func (f *fakeDataPath) PutLink(l ethernet.Link) error {
	return f.do(func() error { f.n6[l] = true; return nil }, "link %s", l)
}

func (f *fakeDataPath) DeleteLink(l ethernet.Link) error {
	return f.do(func() error { delete(f.n6, l); return nil }, "delete link %s", l)
}

// It answers no requests.
func (*fakeSessions) Turn(uint64, *datapath.Rule, *datapath.Rule) (t datapath.Turn, ok bool) {
	return t, false
}
func (*fakeSessions) Out(uint32) uint64                                        { return 0 }
func (*fakeSessions) LeadsTo(uint64) (gnb netip.Addr, teid uint32, ok bool)    { return }
func (*fakeSessions) EndMarkers(ctx context.Context, _ func(out uint64)) error { return nil }
func (*fakeSessions) RecoverTurn(uint16, netip.Addr, uint32) (bool, error)     { return false, nil }
func (*fakeSessions) OwnerOf(uint32) (session uint64)                          { return 0 }

// CheckSettings refuses settings without the pool that sessions have addresses of.
func (f *fakeDataPath) CheckSettings(s settings.Settings) error {
	if !f.held.IsValid() || slices.Contains(s.UEPools, f.held) {
		return nil
	}
	return &datapath.PoolError{Pool: f.held, Problem: "sessions have addresses of it", Fix: "keep the pool, or release them first"}
}

func (f *fakeDataPath) SetSettings(s settings.Settings) error {
	return f.do(func() error {
		if err := f.CheckSettings(s); err != nil {
			return err
		}
		f.settings = s
		return nil
	}, "settings")
}
