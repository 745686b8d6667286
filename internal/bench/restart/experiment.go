package restart

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/cost"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/smf"
)

// Experiment kills a user plane function and starts it again.
type Experiment struct {
	Sessions []uint `json:"sessions"`
	Kills    int    `json:"kills"` // for each number of sessions
}

// Kind is the kind "restart".
var Kind = experiment.Kind{Name: "restart", NoiseLimit: experiment.NoiseOfRates, New: func() experiment.Experiment {
	return &Experiment{Sessions: []uint{10_000, 100_000, 1_000_000}, Kills: 5}
}}

// mostSessions is how many are set up in a node.
const mostSessions = 2_000_000

// Flags offers the parameters.
func (e *Experiment) Flags(f *pflag.FlagSet) {
	f.UintSliceVar(&e.Sessions, "sessions", e.Sessions, fmt.Sprintf("`numbers` of sessions, up to %d", mostSessions))
	f.IntVar(&e.Kills, "kills", e.Kills, "`number` of times that the daemon is killed with each number of sessions")
}

// Quick makes it seconds.
func (e *Experiment) Quick() { e.Sessions, e.Kills = []uint{1000}, 1 }

// CPUs are those that it measures on: any, as the daemon may use all.
func (e *Experiment) CPUs(chosen int) ([]int, error) { return proc.One(chosen) }

// Validate says what is wrong with the parameters.
func (e *Experiment) Validate() error {
	var list experiment.Problems
	want := experiment.WantInto(&list)
	want(len(e.Sessions) > 0, "sessions", "one number at least", "there is none")
	cost.Within(want, "sessions", e.Sessions, 1, mostSessions, "")
	want(e.Kills >= 1 && e.Kills <= 100, "kills", "1 to 100", "%d is out of range", e.Kills)
	return experiment.Check(list)
}

func pointOf(sessions uint) string { return fmt.Sprintf("%d sessions", sessions) }

// killTakes is what a kill takes with so many sessions, until all are restored.
func killTakes(sessions uint) time.Duration {
	return 2*time.Second + time.Duration(sessions)*50*time.Microsecond
}

// Plan has a point for each number of sessions.
func (e *Experiment) Plan() (plan experiment.Plan, err error) {
	for _, n := range e.Sessions {
		takes := 4*time.Second + time.Duration(n)*cost.SessionTime + time.Duration(e.Kills)*killTakes(n)
		plan.Points = append(plan.Points, experiment.Point{ID: pointOf(n), Takes: takes, Rounds: 1})
	}
	return plan, nil
}

// bench sets up a node for each point.
type bench struct {
	*Experiment
	setting     experiment.Setting
	environment result.Environment
}

// Open sets up nothing: each number of sessions has a node of its own.
func (e *Experiment) Open(_ context.Context, s experiment.Setting) (experiment.Bench, error) {
	return &bench{Experiment: e, setting: s}, nil
}

// Close has nothing to end.
func (*bench) Close() error { return nil }

// Environment is that of the last node.
func (b *bench) Environment(context.Context) (result.Environment, error) { return b.environment, nil }

// Measure kills the daemon with a number of sessions.
func (b *bench) Measure(ctx context.Context, at experiment.Point, _ int) (list []experiment.Sample, err error) {
	i := slices.IndexFunc(b.Sessions, func(n uint) bool { return pointOf(n) == at.ID })
	if i < 0 {
		return nil, fmt.Errorf("there is no point %q", at.ID)
	}
	n, err := b.setUp(ctx, int(b.Sessions[i]))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if b.environment, err = n.daemon.Environment(ctx); err != nil {
		return nil, err
	}
	for range b.Kills {
		seen, err := n.kill(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, n.daemon.Tail())
		}
		list = append(list, seen.samples(b.Sessions[i])...)
	}
	return list, nil
}

// The metrics, in seconds.
const (
	metricHeartbeat = "heartbeat"    // from the start to the first answer
	metricGap       = "gap"          // the longest between two later answers
	metricModified  = "modification" // from the start to the answer about every session asked
	metricLater     = "later"        // the median of later modifications
	metricRestored  = "restored"     // from the start until all sessions are restored
)

func (n noticed) samples(sessions uint) (list []experiment.Sample) {
	var later []float64
	for _, d := range n.Later {
		later = append(later, d.Seconds())
	}
	for _, s := range []struct {
		metric string
		value  float64
	}{
		{metricHeartbeat, n.FirstHeartbeat.Seconds()}, {metricGap, n.Gap.Seconds()}, {metricModified, n.Modified.Seconds()},
		{metricLater, stats.Median(later)}, {metricRestored, n.Restored.Seconds()},
	} {
		list = append(list, experiment.Sample{Metric: s.metric, Labels: labels(sessions), Unit: "s", Value: s.value})
	}
	return list
}

func labels(sessions uint) result.Labels {
	return result.Labels{"sessions": strconv.FormatUint(uint64(sessions), 10)}
}

// upf is a node with sessions, and their SMF.
type upf struct {
	node.Undo
	net    *node.Network
	daemon *node.Daemon
	asker  *asker
}

// setUp starts a node, and sets up sessions as Open5GS does: the UPF chooses the TEIDs.
func (b *bench) setUp(ctx context.Context, sessions int) (_ *upf, err error) {
	u := &upf{}
	defer u.OnError(&err)
	if u.net, err = node.NewNetwork(node.RunName()+"-r", 1); err != nil {
		return nil, err
	}
	u.Later(u.net.Close)
	if err := signalling.AddPort(u.net, 1); err != nil {
		return nil, err
	}
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, sessions, false)
	c.Limits.Sessions = max(256, uint32(1)<<bits.Len(uint(sessions))) // no more than fit on small machines
	if u.daemon, err = node.Start(ctx, b.setting.Culvert, filepath.Join(b.setting.BPFFS, u.net.Node.Name), u.net.Node, c); err != nil {
		return nil, err
	}
	u.Later(u.daemon.Close)
	return u, u.net.Around.Do(func() error { return u.establish(ctx, sessions, b.setting.Seed) })
}

// ntpEpoch is 1900 in Unix time: Recovery Time Stamps count from there.
const ntpEpoch = 2_208_988_800

func (u *upf) establish(ctx context.Context, sessions int, seed uint64) error {
	to, smfs := signalling.Addresses(1)
	started := time.Now()
	client, err := smf.Dial(smf.Options{UPF: to, Local: smfs[0], Started: started})
	if err != nil {
		return err
	}
	u.Later(client.Close)
	if _, err := client.Associate(ctx); err != nil {
		return err
	}
	g, err := client.Add(signalling.Spec(sessions))
	if err != nil {
		return err
	}
	if _, err := cost.Perform(ctx, smf.Pace{Window: cost.Window}, g.Establish, g.Forward); err != nil {
		return err
	}
	var seids []uint64
	for i := range g.Count() {
		seids = append(seids, g.Info(i).UPSEID)
	}
	u.asker, err = newAsker(smfs[0], to, seids, uint32(started.Unix()+ntpEpoch), seed)
	if err == nil {
		u.Later(u.asker.conn.Close)
	}
	return err
}

// kill kills the daemon, starts it again, and says what the SMF noticed.
func (u *upf) kill(ctx context.Context) (noticed, error) {
	ctx, cancel := context.WithTimeout(ctx, node.StartTimeout)
	defer cancel()
	if err := u.daemon.Replace(ctx, u.daemon.Binary, unix.SIGKILL); err != nil {
		return noticed{}, err
	}
	started := time.Now() // what the kernel takes to end the other one is not ours
	restored := make(chan error, 1)
	go func() { restored <- u.daemon.Await(ctx) }()
	return u.asker.run(ctx, started, restored)
}
