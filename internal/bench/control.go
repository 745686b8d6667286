package bench

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/smf"
)

// pfcpRow is what a procedure of N4 takes.
type pfcpRow struct {
	Name      string  `json:"name"`
	Entries   int     `json:"entries"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// rowOf names the procedure as TS 29.244 does: the gNB's tunnel comes in a
// modification.
func rowOf(r smf.Result) pfcpRow {
	name := r.Procedure
	if name == "forward" {
		name = "modify"
	}
	return pfcpRow{Name: "pfcp_" + name, Entries: r.Requests, PerSecond: r.PerSecond, P50: r.P50, P99: r.P99}
}

// control is the SMF of a run.
type control struct {
	client *smf.Client
	groups []*smf.Group
	rows   []pfcpRow // of the first group
}

// sessions is how many there are.
func (c *control) sessions() (n int) {
	for _, g := range c.groups {
		n += g.Count()
	}
	return n
}

// window is how many requests are under way at once.
const window = 256

// startControl associates an SMF with the node's UPF and sets up all sessions.
func startControl(ctx context.Context, in namespace, p plan) (_ *control, err error) {
	c := &control{}
	err = in.do(func() error {
		c.client, err = smf.Dial(smf.Options{
			UPF: netip.AddrPortFrom(n4UPF, smf.Port), Local: netip.AddrPortFrom(n4SMF, smf.Port), Dialect: smf.Free5GC,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.client.Close())
		}
	}()
	if _, err := c.client.Associate(ctx); err != nil {
		return nil, err
	}
	for _, g := range p.groups() {
		group, err := c.client.Add(g.smfSpec(p.tables()))
		if err != nil {
			return nil, err
		}
		rows, err := perform(ctx, smf.Pace{Window: window}, group.Establish, group.Forward)
		if err != nil {
			return nil, err
		}
		if len(c.groups) == 0 {
			c.rows = rows
		}
		c.groups = append(c.groups, group)
	}
	return c, nil
}

// At a rate, which every core can stand, it is a UPF's latency that is seen; this
// many sessions are some seconds of it.
const (
	pacedRate     = 5000
	pacedSessions = 25_000
)

// paced sets a group that is not there up and takes it away, at a rate.
func paced(ctx context.Context, g *smf.Group) ([]pfcpRow, error) {
	pace := smf.Pace{Window: window, Rate: pacedRate, Count: min(pacedSessions, g.Count())}
	rows, err := perform(ctx, pace, g.Establish, g.Forward, g.Delete)
	for i := range rows {
		rows[i].Name += "_5k"
	}
	return rows, err
}

// perform does something with sessions of a group, one after the other.
func perform(ctx context.Context, pace smf.Pace, procedures ...func(context.Context, smf.Pace) (smf.Result, error)) ([]pfcpRow, error) {
	var rows []pfcpRow
	for _, do := range procedures {
		r, err := do(ctx, pace)
		if err := errors.Join(err, r.Err()); err != nil {
			return nil, err
		}
		rows = append(rows, rowOf(r))
	}
	return rows, nil
}

// upfConfiguration makes the node a UPF for the sessions of the functions.
func (p plan) upfConfiguration(c *config.Config) {
	total, rich := uint32(0), uint32(0)
	for _, g := range p.groups() {
		if g.most != 0 {
			rich += min(g.most, p.tables())
		}
		total = max(total, g.first(p.tables())+min(g.entries(), p.tables())+1)
	}
	if total == 0 {
		return
	}
	pool := netip.PrefixFrom(ueNet, 8)
	for bits := 9; bits <= 24 && uint32(1)<<(32-bits) >= total; bits++ {
		pool = netip.PrefixFrom(ueNet, bits)
	}
	c.GTPU.Pools = nil
	c.UPF = config.UPF{N4: []netip.Addr{n4UPF}, UEPools: []config.UEPool{{Prefixes: []netip.Prefix{pool}}}, EchoInterval: 3600}
	// Sessions with several filters have a meter for each direction.
	c.Limits.Sessions = uint32(1)<<(32-pool.Bits()) + 2*rich
	c.Limits.Tunnels, c.Limits.Filters = 1024, 1<<16
}

// groups are those of the functions that are measured, each once.
func (p plan) groups() []*sessions {
	var out []*sessions
	for _, f := range p.functions {
		if f.sessions != nil && !slices.ContainsFunc(out, func(s *sessions) bool { return s.id() == f.sessions.id() }) {
			out = append(out, f.sessions)
		}
	}
	return out
}
