package upf

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/table"
	"github.com/culvert-net/culvert/internal/dataplane/target"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/upf/lan"
	"github.com/culvert-net/culvert/internal/upf/rules"
	"github.com/culvert-net/culvert/internal/upf/store"
	"github.com/culvert-net/culvert/internal/upf/usage"
)

// installer brings sessions into the data path.
type installer struct {
	dp    DataPath
	store *store.Store
	links *lan.Links
	share *sharer // nil: the data path answers no requests
	// config changes with changing locked. Whoever installs a session locks it for
	// reading, so that nothing is made of a configuration that is on its way out.
	changing sync.RWMutex
	config   atomic.Pointer[settings]
}

// plan is what a session is to become: in the data path, in its usage, and for its
// SMF.
type plan struct {
	rules   datapath.Session
	slice   uint32 // index
	usage   *usage.Usage
	reports []session.UsageReport
}

// compile plans a session with its usage, which may be nil.
func (i *installer) compile(s *session.Session, u *usage.Usage) (p plan, err error) {
	config := i.config.Load()
	m := rules.MatchSlice(config.Slices, s)
	in := config.input(m, s, u)
	p.usage, p.slice = u, in.Index
	if p.rules, err = rules.Compile(in); err == nil {
		u.Limit(s, &p.rules)
		config.matches.note(config.Slices, s, m)
	}
	return p, err
}

// input is what the rules of a session depend on, with its usage, which may be nil.
func (c *settings) input(m rules.Match, s *session.Session, u *usage.Usage) rules.Input {
	in := rules.Input{Session: u.Applied(s), UEToUE: c.UEToUE}
	if m.Slice != nil {
		in.Slice, in.Index, in.VPN = m.Slice, c.indices[m.Index], c.vpns[m.Slice.Name]
	}
	return in
}

// compileChange plans a modification. was is the usage until then, which may be nil.
func (i *installer) compileChange(was *usage.Usage, from, to *session.Session, how session.Modification, now time.Time) (plan, error) {
	u, reports := was.Change(from, to, how, now)
	if u != nil && (how.QueryAll || len(how.QueryURRs) > 0) {
		reports = append(reports, u.Query(to, how.QueryURRs, how.QueryAll, now)...)
	}
	p, err := i.compile(to, u)
	p.reports = reports
	return p, err
}

// put has the data path hold a session as it is, with its usage.
func (i *installer) put(e *store.Entry, s *session.Session) error {
	i.share.close(e, s, s)
	return i.putBack(e, s)
}

// putBack is put where the data path holds the session so already, or nearly.
func (i *installer) putBack(e *store.Entry, s *session.Session) error {
	p, err := i.compile(s, e.Usage)
	if err != nil {
		return err
	}
	e.Buffer.HoldBack(&p.rules)
	if err := known(i.dp.PutSession(p.rules)); err != nil {
		return err
	}
	i.store.Assign(e, p.slice)
	i.links.Join(p.rules)
	return nil
}

// replace takes the data path from one session to another. After an error
// everything is as it was.
func (i *installer) replace(e *store.Entry, from, to *session.Session, how session.Modification, now time.Time) (plan, error) {
	if err := i.collect(e, from, now); err != nil {
		return plan{}, err
	}
	was := e.Usage
	if was == nil && usage.Measures(to) {
		counts, err := i.dp.SessionUsage(e.SEID)
		if err != nil {
			return plan{}, err
		}
		was = usage.Counted(counts, now)
	}
	p, err := i.compileChange(was, from, to, how, now)
	if err != nil {
		return plan{}, err
	}
	if !how.DropBuffered {
		e.Buffer.HoldBack(&p.rules)
	}
	i.share.close(e, from, to)
	if err := known(i.dp.PutSession(p.rules)); err != nil {
		return plan{}, err
	}
	if !e.Usage.Loses(p.rules.Rules) {
		return p, nil
	}
	// Rules that are gone now have counted to their end. Plan again with that; only
	// limits differ.
	if err = i.collect(e, from, now); err == nil {
		p, err = i.compileChange(was, from, to, how, now)
	}
	for n := 0; err == nil && n < len(p.rules.Rules); n++ {
		if r := &p.rules.Rules[n]; r.RuleLimits != (datapath.RuleLimits{}) {
			err = i.dp.SetRuleLimits(e.SEID, r.ID, r.RuleLimits)
		}
	}
	if err == nil && len(p.rules.Quotas) > 0 {
		err = i.dp.SetQuotas(e.SEID, p.rules.Quotas)
	}
	if err != nil {
		return plan{}, errors.Join(err, i.put(e, from))
	}
	return p, nil
}

// putAgain has the data path hold a session by the configuration that applies now.
func (i *installer) putAgain(e *store.Entry, now time.Time) error {
	i.changing.RLock()
	defer i.changing.RUnlock()
	if !i.lock(e) {
		return nil
	}
	defer i.unlock(e)
	s := e.Session()
	p, err := i.replace(e, s, s, session.Modification{}, now)
	if err != nil {
		return err
	}
	e.Usage = p.usage
	i.store.Assign(e, p.slice)
	i.links.Join(p.rules)
	return nil
}

// collect adds what the data path has counted to the session's usage.
func (i *installer) collect(e *store.Entry, s *session.Session, now time.Time) error {
	if e.Usage == nil {
		return nil
	}
	counts, err := i.dp.SessionUsage(e.SEID)
	if err != nil {
		return err
	}
	e.Usage.Collect(s, counts, now)
	return nil
}

// known turns the errors of the data path that have a Cause of their own into those
// that the N4 server knows: a full table, an address or TEID that something else has,
// and rules that the tables cannot hold together.
func known(err error) error {
	if _, full := errors.AsType[*table.FullError](err); full {
		return fmt.Errorf("%w: %w", pfcp.ErrNoResources, err)
	}
	switch {
	case errors.Is(err, target.ErrTaken):
		return fmt.Errorf("%w: %w", pfcp.ErrTaken, err)
	case errors.Is(err, datapath.ErrRules):
		return fmt.Errorf("%w: %w", pfcp.ErrUnsupported, err)
	}
	return err
}
