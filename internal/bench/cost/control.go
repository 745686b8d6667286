package cost

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/smf"
)

// PFCPRow is what a procedure of N4 takes.
type PFCPRow struct {
	Name      string  `json:"name"`
	Entries   int     `json:"entries"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// Control is the SMFs of a run.
type Control struct {
	clients map[smf.Dialect]*smf.Client
	Groups  []*smf.Group
	Rows    []PFCPRow // of the first group
}

// Group is a group of sessions, and the dialect of the SMF that sets it up.
type Group struct {
	smf.Spec
	Dialect smf.Dialect
}

// Window is how many requests are under way at once.
const Window = 256

// StartControl sets up groups of sessions in the node's UPF, with an SMF for each
// dialect.
func StartControl(ctx context.Context, in node.Namespace, groups ...Group) (_ *Control, err error) {
	c := &Control{clients: map[smf.Dialect]*smf.Client{}}
	var undo node.Undo
	undo.Later(c.Close)
	defer undo.OnError(&err)
	for _, g := range groups {
		client, err := c.client(ctx, in, g.Dialect)
		if err != nil {
			return nil, err
		}
		group, err := client.Add(g.Spec)
		if err != nil {
			return nil, err
		}
		rows, err := Perform(ctx, smf.Pace{Window: Window}, group.Establish, group.Forward)
		if err != nil {
			return nil, err
		}
		if len(c.Groups) == 0 {
			c.Rows = rows
		}
		c.Groups = append(c.Groups, group)
	}
	return c, nil
}

// client returns the SMF of a dialect, with an association.
func (c *Control) client(ctx context.Context, in node.Namespace, dialect smf.Dialect) (*smf.Client, error) {
	if client := c.clients[dialect]; client != nil {
		return client, nil
	}
	var client *smf.Client
	err := in.Do(func() (err error) {
		client, err = smf.Dial(smf.Options{
			UPF: netip.AddrPortFrom(catalog.N4UPF, smf.Port), Local: netip.AddrPortFrom(catalog.N4SMF[dialect], smf.Port), Dialect: dialect,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	c.clients[dialect] = client
	_, err = client.Associate(ctx)
	return client, err
}

// Close ends the SMFs.
func (c *Control) Close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// At a rate, which every core can stand, it is a UPF's latency that is seen; this
// many sessions are some seconds of it.
const (
	PacedRate     = 5000
	PacedSessions = 25_000
)

// Perform does something with sessions of a group, one after the other.
func Perform(ctx context.Context, pace smf.Pace, procedures ...func(context.Context, smf.Pace) (smf.Result, error)) ([]PFCPRow, error) {
	var rows []PFCPRow
	for _, do := range procedures {
		r, err := do(ctx, pace)
		if err := errors.Join(err, r.Err()); err != nil {
			return nil, err
		}
		name := r.Procedure
		if name == "forward" { // TS 29.244: the gNB's tunnel comes in a modification
			name = "modify"
		}
		rows = append(rows, PFCPRow{Name: "pfcp_" + name, Entries: r.Requests, PerSecond: r.PerSecond, P50: r.P50, P99: r.P99})
	}
	return rows, nil
}

// upfConfiguration makes the node a UPF for the sessions of the functions.
func (p Plan) upfConfiguration(c *config.Config) {
	total, rich, filtered, pairs := uint32(0), uint32(0), uint32(0), uint32(0)
	for _, g := range p.groups() {
		count := min(g.Entries(), p.tables())
		if g.Most != 0 {
			rich += count
		}
		if g.Dialect == smf.Open5GS {
			filtered += count
		}
		var spec smf.Spec
		g.Spec(&spec)
		pairs += count * uint32(len(spec.Filters))
		total = max(total, g.First(p.tables())+min(g.Entries(), p.tables())+1)
	}
	if total == 0 {
		return
	}
	pool := netip.PrefixFrom(catalog.UENet, 8)
	for bits := 9; bits <= 24 && uint32(1)<<(32-bits) >= total; bits++ {
		pool = netip.PrefixFrom(catalog.UENet, bits)
	}
	MakeUPF(c, pool)
	sessions := uint32(1) << (32 - pool.Bits())
	if slices.ContainsFunc(p.groups(), func(g *catalog.Sessions) bool { return g.UE6 }) {
		c.UPF.UEPools[0].Prefixes = append(c.UPF.UEPools[0].Prefixes, catalog.UENet6)
		sessions += 1 << (64 - catalog.UENet6.Bits())
	}
	for _, g := range p.groups() {
		if g.NAT != nil {
			c.UPF.UEPools = append(c.UPF.UEPools, g.NAT.UEPool())
		}
		if g.Slice != nil {
			c.Slices = append(c.Slices, *g.Slice)
		}
	}
	// Sessions with several filters have a meter for each direction, and a pair of PDRs for each
	// filter.
	c.Limits.Sessions = sessions + 2*rich + 2*pairs
	// Filters are in runs of four: each of the pair has one at most, and Open5GS' sessions have one for the two
	// PDRs on the uplink's F-TEID.
	c.Limits.Tunnels, c.Limits.Filters = 1024, 1<<16+4*(filtered+2*pairs)
}

// MakeUPF makes the node a UPF with a pool of UEs' addresses.
func MakeUPF(c *config.Config, pool netip.Prefix) {
	c.GTPU.Pools = nil
	// The node itself asks for heartbeats when the daemon has been killed: it is an SMF
	// without an association.
	smfs := config.Senders{netip.PrefixFrom(catalog.N4UPF, 32)}
	for _, dialect := range []smf.Dialect{smf.Free5GC, smf.Open5GS} {
		smfs = append(smfs, netip.PrefixFrom(catalog.N4SMF[dialect], 32))
	}
	c.UPF = config.UPF{
		N4: []netip.Addr{catalog.N4UPF}, SMFs: smfs,
		UEPools: []config.UEPool{{Prefixes: []netip.Prefix{pool}}}, EchoInterval: 3600,
	}
}

// groups are those of the functions that are measured, each once.
func (p Plan) groups() []*catalog.Sessions {
	var out []*catalog.Sessions
	for _, f := range p.Functions {
		if f.Sessions != nil && !slices.ContainsFunc(out, func(s *catalog.Sessions) bool { return s.ID() == f.Sessions.ID() }) {
			out = append(out, f.Sessions)
		}
	}
	return out
}
