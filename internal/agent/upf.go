package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/plan"
	"github.com/culvert-net/culvert/internal/class"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/n4"
	datapath "github.com/culvert-net/culvert/internal/dataplane/session"
	"github.com/culvert-net/culvert/internal/dataplane/settings"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/netdev"
	"github.com/culvert-net/culvert/internal/pfcp"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/internal/upf"
)

// userPlane is the node as a user plane function: the N4 server, and what holds
// its sessions.
type userPlane struct {
	upf    *upf.UPF // nil: the node is none
	config pfcp.Config
	n4Fast config.Switch // the data path answers SMFs too
	// public is for how many public addresses of NATs there is room.
	public uint64
	// signalling is that; nil: it does not.
	signalling pfcp.Signalling
	counts     func() (n4.Counts, error)
	open       func(pfcp.Config) (*pfcp.Server, error)
	early      *pfcp.Server // answers heartbeats until start; nil: nobody does
	server     *pfcp.Server // since start
	path       *sessionPath
	// collect has garbage collected as it was before the start.
	collect func()
}

// sessionPath notes that a session was put: it may lead to a next hop that
// nobody has resolved yet.
type sessionPath struct {
	upf.DataPath
	put chan struct{} // a session was put
}

func (p *sessionPath) PutSession(s datapath.Session) error {
	err := p.DataPath.PutSession(s)
	select {
	case p.put <- struct{}{}:
	default:
	}
	return err
}

// newUserPlane reads the sessions of an earlier daemon. Heartbeats are answered
// meanwhile. path.DataPath, into which
// they are put, comes later.
func newUserPlane(a *Agent, goal *plan.Goal) (u *userPlane, err error) {
	p := goal.Desired.Process
	c := p.UPF
	u = &userPlane{path: &sessionPath{put: make(chan struct{}, 1)}, open: a.open.server, collect: func() {}}
	if c.IsSet() {
		u.collect = collectSeldom()
		u.n4Fast, u.public = c.N4Fast, uint64(p.Limits.NATAddresses)
		u.config = pfcp.Config{Addresses: c.N4, NodeID: c.NodeID, Allow: c.SMFs, Connect: c.Connect, Log: a.log,
			StampFile: a.options.StatePath + ".recovery"}
		u.openEarly(goal)
		u.upf, err = upf.New(upf.Options{
			DataPath: u.path, Journal: a.options.StatePath + ".sessions", Logger: a.log,
			Sessions: int(p.Limits.Sessions),
		})
	}
	return u, err
}

// collectSeldom has garbage collected less often until the function that it returns is
// called. What a start reads stays: collections find next to nothing, while SMFs wait. The
// variable GOGC goes before.
func collectSeldom() (again func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	const seldom = 400
	percent := debug.SetGCPercent(seldom)
	return func() { debug.SetGCPercent(percent) }
}

// openEarly answers heartbeats by the interfaces of N4 as they are now. If the
// addresses are not there yet, start does.
func (u *userPlane) openEarly(goal *plan.Goal) {
	inspector, err := netdev.NewInspector()
	if err != nil {
		return
	}
	defer inspector.Close()
	links, err := inspector.Links()
	if err != nil {
		return
	}
	if u.early, err = u.open(u.config); err != nil {
		u.early = nil
		return
	}
	u.early.SetPorts(n4Ports(u.config.Addresses, listed(goal), links))
	u.early.Listen()
}

// start answers SMFs that come in by the ports, until ctx ends.
func (u *userPlane) start(ctx context.Context, group *errgroup.Group, goal *plan.Goal, ports []int) error {
	if u.upf == nil {
		return nil
	}
	if u.early == nil {
		var err error
		if u.early, err = u.open(u.config); err != nil {
			return fmt.Errorf("upf.n4: %w", err)
		}
	}
	server := u.early
	if u.signalling != nil {
		server.Share(u.signalling)
	}
	if err := server.Restore(u.upf); err != nil {
		return fmt.Errorf("upf.n4: %w", err)
	}
	u.server = server
	u.server.SetPorts(ports)
	u.warnOfAny(u.config.Allow)
	u.config.Log.Info("user plane function", "event", logevent.UPFStarted, "n4", u.config.Addresses, "node_id", u.nodeID(), "slices", sliceNames(goal), "sessions", u.upf.Len())
	u.upf.Start(server)
	group.Go(func() error { return ignoreCancel(server.Run(ctx)) })
	group.Go(func() error { return u.upf.Run(ctx) })
	return nil
}

// setSMFs changes which SMFs are obeyed.
func (u *userPlane) setSMFs(c *config.UPF) {
	u.warnOfAny(c.SMFs)
	u.server.SetSMFs(c.SMFs, c.Connect)
}

// warnOfAny tells the log that N4 is open to everybody.
func (u *userPlane) warnOfAny(smfs config.Senders) {
	if smfs.Open() {
		u.config.Log.Warn("upf.smfs allows every sender: whoever reaches N4 can set up and delete sessions", "event", logevent.UPFAnySMF, "n4", u.config.Addresses)
	}
}

func (u *userPlane) close() error {
	u.collect()
	if u.early != nil {
		u.early.Close()
	}
	if u.upf == nil {
		return nil
	}
	return u.upf.Close()
}

// validate refuses what takes another start.
func (u *userPlane) validate(c *config.UPF) error {
	refuse := func(field, fix, format string, args ...any) error {
		return fmt.Errorf("%w: %w", desired.ErrInvalid, config.Errors{{Field: field, Problem: fmt.Sprintf(format, args...), Fix: fix}})
	}
	const restart = "restart it with this configuration"
	switch {
	case u.upf == nil && c.IsSet():
		return refuse("upf", restart, "the daemon did not start as a user plane function")
	case u.upf != nil && !c.IsSet():
		return refuse("upf", restart, "the daemon is a user plane function")
	case u.upf == nil:
		return nil
	case !slices.Equal(c.N4, u.config.Addresses):
		return refuse("upf.n4", fmt.Sprintf("%s, or leave %v", restart, u.config.Addresses), "cannot change while the daemon runs")
	case c.N4Fast != u.n4Fast:
		return refuse("upf.n4_fast", restart, "the daemon started with %s", u.n4Fast)
	case c.NodeID != u.config.NodeID:
		return refuse("upf.node_id", restart+", or leave that", "SMFs know the daemon as %s", u.config.NodeID)
	}
	need := uint64(0)
	for i, p := range c.UEPools {
		if p.NAT == nil {
			continue
		}
		if need += uint64(p.NAT.Count()); need > u.public {
			return refuse(fmt.Sprintf("upf.ue_pools[%d].nat", i), restart, "the daemon started with room for %d public addresses (limits.nat_addresses), and the pools need %d", u.public, c.PublicAddresses())
		}
	}
	return nil
}

// ofPools gives what is wrong with UE pools in settings its field.
func ofPools(of func(settings.Settings) error) func(settings.Settings) error {
	return func(s settings.Settings) error {
		err := of(s)
		if e, is := errors.AsType[*datapath.PoolError](err); is {
			return config.Errors{{Field: "upf.ue_pools", Problem: fmt.Sprintf("pool %s: %s", e.Pool, e.Problem), Fix: e.Fix}}
		}
		return err
	}
}

// syncPause is the time between looks for next hops that new sessions lead to.
const syncPause = 50 * time.Millisecond

// userPlane is the user plane function, once SMFs are answered.
func (c *core) userPlane() (*userPlane, error) {
	var u *userPlane
	err := c.read(func() error {
		if u = c.upf; u.server == nil {
			return ErrNotUPF
		}
		return nil
	})
	return u, err
}

// Slices are those of the configuration, with what their sessions sent and got.
func (a *Agent) Slices() ([]SliceStatus, error) {
	var counted []upf.SliceStatus
	if u, err := a.core.userPlane(); err == nil {
		if counted, err = u.upf.Slices(); err != nil {
			return nil, err
		}
	}
	var imported map[string]int
	return each(a.core, func(r desired.Resource, v slice.Slice) (SliceStatus, error) {
		if v.Imports() && imported == nil {
			imported = a.core.goal.Imported()
		}
		s := SliceStatus{Slice: v, Origin: r.Origin, Imported: imported[v.Name]}
		if i := slices.IndexFunc(counted, func(c upf.SliceStatus) bool { return c.Name == v.Name }); i >= 0 {
			s.Sessions, s.Uplink, s.Downlink = counted[i].Sessions, counted[i].Uplink, counted[i].Downlink
		}
		return s, nil
	})
}

// Associations are those with SMFs.
func (a *Agent) Associations() ([]AssociationStatus, error) {
	u, err := a.core.userPlane()
	if err != nil {
		return nil, err
	}
	return u.server.Associations(), nil
}

// Sessions are those that the filter means, lowest SEID first.
func (a *Agent) Sessions(f SessionFilter) (list []SessionStatus, total int, err error) {
	u, err := a.core.userPlane()
	if err != nil {
		return nil, 0, err
	}
	if f.SEID != nil {
		v, there, err := u.upf.View(*f.SEID)
		if err == nil && !there {
			err = fmt.Errorf("%w: there is no session %#x", desired.ErrNotFound, *f.SEID)
		}
		if err != nil {
			return nil, 0, err
		}
		// One session comes with what the SMF said, and what each rule counted.
		one := sessionStatus(v)
		for _, p := range v.Volumes {
			one.PDRs = append(one.PDRs, PDRStatus{p.PDR, p.Volume, v.Session.Words(v.Session.PDR(p.PDR)), a.core.policyOf(v.Flows[p.PDR])})
		}
		for _, u := range v.URRs {
			one.URRs = append(one.URRs, URRStatus{u.URR, u.Sequence, u.Volume.Uplink, u.Volume.Downlink, u.Exhausted})
		}
		one.Rules, err = json.Marshal(v.Session)
		return []SessionStatus{one}, 1, err
	}
	views, total, err := u.upf.List(f.match, cmp.Or(f.Limit, 1000))
	for _, v := range views {
		list = append(list, sessionStatus(v))
	}
	return list, total, err
}

// policyOf is the policy that a flow's packets take, as they meet it; nil: they take none.
func (c *core) policyOf(f class.SessionFlow) *PDRPolicy {
	c.mu.RLock()
	defer c.mu.RUnlock()
	way := c.writer.Tables.SessionWays.Of(f)
	name := way.Policy
	p, there := c.writer.Tables.Policies[name]
	if !there && way.Class == "" {
		return nil
	}
	out := &PDRPolicy{Name: name, Class: way.Class, Color: p.Color, Endpoint: p.Endpoint}
	if verdicts := c.writer.Tables.Verdicts[name]; len(verdicts) > 0 {
		out.Verdict = verdicts[0]
	}
	return out
}

func (f SessionFilter) match(s *session.Session, name string) bool {
	if s.SEID <= f.After && f.After != 0 || f.Slice != "" && f.Slice != name || f.Association != "" && f.Association != s.Node {
		return false
	}
	ue, teid := !f.UE.IsValid(), f.TEID == 0
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		teid = teid || p.TEID == f.TEID
		for _, prefix := range slices.Concat(p.UE, p.FramedRoutes) {
			ue = ue || prefix.Contains(f.UE)
		}
	}
	return ue && teid
}

func sessionStatus(v upf.View) SessionStatus {
	s := v.Session
	out := SessionStatus{
		SEID: s.SEID, CPSEID: s.CPSEID, Association: s.Node, Slice: v.Slice, SliceNote: v.SliceNote, DNN: s.DNN, Buffered: v.Buffered, BufferFull: v.BufferFull,
	}
	for i := range s.PDRs {
		p := &s.PDRs[i].PDI
		for _, prefix := range p.UE {
			if !slices.Contains(out.UE, prefix) {
				out.UE = append(out.UE, prefix)
			}
		}
		if p.TEID != 0 && !slices.Contains(out.TEIDs, p.TEID) {
			out.TEIDs = append(out.TEIDs, p.TEID)
		}
		to := &out.Downlink
		if p.Source == session.Access {
			to = &out.Uplink
		}
		to.Add(v.Volumes[i].Volume)
	}
	return out
}

// status is nil for a node that is no user plane function, or not yet.
func (u *userPlane) status() *UPFStatus {
	if u.server == nil {
		return nil
	}
	associations := u.server.Associations()
	s := &UPFStatus{
		N4: u.config.Addresses, NodeID: u.nodeID(),
		Pools: u.upf.Pools(), Peers: u.upf.Peers(), Sessions: u.upf.Len(), MaxSessions: u.upf.Max(), Associations: len(associations),
		Buffered: int(u.upf.Stats().BufferedNow.Load()),
	}
	for _, a := range associations {
		if a.Up {
			s.AssociationsUp++
		}
	}
	if err := u.upf.Journal(); err != nil {
		s.Journal = err.Error()
	}
	s.N4Fast = u.answered()
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return a.Addr.Compare(b.Addr) })
	return s
}

// sliceNames are those of the configuration.
func sliceNames(goal *plan.Goal) (names []string) {
	for r := range goal.All() {
		if s, ok := r.Value.(slice.Slice); ok {
			names = append(names, s.Name)
		}
	}
	return names
}

// nodeID is how SMFs know the node: package pfcp has the same default.
func (u *userPlane) nodeID() string {
	return cmp.Or(u.config.NodeID, u.config.Addresses[0].String())
}

// answered is what the data path answers SMFs; nil: nothing, or that is not known.
func (u *userPlane) answered() *n4.Counts {
	if u.n4Fast != config.On {
		return nil
	}
	counts, err := u.counts()
	if err != nil {
		return nil
	}
	return &counts
}

// bufferFull counts the packets that the data path handed up, and that found no room in
// the buffer of idle UEs.
func (u *userPlane) bufferFull() Counter {
	stats := u.upf.Stats()
	return Counter{Packets: stats.BufferOverflow.Load(), Bytes: stats.BufferOverflowBytes.Load()}
}

// RateLimited is the reason of PFCP messages beyond what their senders may send in a
// second.
const RateLimited = "n4_rate_limited"

func (u *userPlane) rateLimited() Outcome {
	messages, octets := u.server.Excess()
	return Outcome{
		Reason: RateLimited, Drop: true, Text: "PFCP beyond what its sender may send in a second",
		Counter: Counter{Packets: messages, Bytes: octets},
	}
}
