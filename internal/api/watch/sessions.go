package watch

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
)

// mostSessions is how many a viewer may follow.
const mostSessions = 100

// sessions has a cell for each session that somebody follows.
type sessions struct {
	agent agent.Service
	mu    sync.Mutex
	cells map[uint64]*followed
}

type followed struct {
	cell[*pb.WatchedSession]
	meter meter
	users int
}

// follow returns cells for sessions, and what has to be called when nobody looks any more.
func (s *sessions) follow(seids []uint64) (cells []*followed, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seid := range seids {
		f := s.cells[seid]
		if f == nil {
			f = &followed{}
			f.read = func(now time.Time) (*pb.WatchedSession, error) { return s.read(f, seid, now) }
			s.cells[seid] = f
		}
		f.users++
		cells = append(cells, f)
	}
	return cells, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, seid := range seids {
			if s.cells[seid].users--; s.cells[seid].users == 0 {
				delete(s.cells, seid)
			}
		}
	}
}

// read reads a session. One that has ended is no error.
func (s *sessions) read(f *followed, seid uint64, now time.Time) (*pb.WatchedSession, error) {
	list, _, err := s.agent.Sessions(agent.SessionFilter{SEID: &seid})
	if errors.Is(err, desired.ErrNotFound) || err == nil && len(list) == 0 {
		return &pb.WatchedSession{Gone: true, Session: &pb.SessionStatus{Seid: seid}}, nil
	}
	if err != nil {
		return nil, err
	}
	v := list[0]
	f.meter.begin(now)
	w := &pb.WatchedSession{Session: &pb.SessionStatus{}, Uplink: f.meter.rate("up", v.Uplink), Downlink: f.meter.rate("down", v.Downlink)}
	for _, p := range v.PDRs {
		rate := f.meter.rate(fmt.Sprint(p.PDR), p.Counter)
		if rate == nil {
			rate = &pb.Rate{}
		}
		w.Pdrs = append(w.Pdrs, rate)
	}
	return w, message.Encode(&v, w.Session)
}

// brief is a session of a list: without what only a session that is alone has.
func brief(w *pb.WatchedSession) *pb.WatchedSession {
	s := w.GetSession()
	return &pb.WatchedSession{Gone: w.GetGone(), Uplink: w.GetUplink(), Downlink: w.GetDownlink(), Session: &pb.SessionStatus{
		Seid: s.GetSeid(), Uplink: s.GetUplink(), Downlink: s.GetDownlink(), Buffered: s.GetBuffered(),
	}}
}
