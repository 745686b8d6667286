package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/engine/monitor"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/printer"
)

// remote is a headend by its management API.
type remote struct{ *api.Client }

// Policies are all that the node has.
func (r remote) Policies(ctx context.Context) ([]headend.Policy, error) {
	all, err := r.Client.Policies(ctx, "")
	list := make([]headend.Policy, 0, len(all))
	for _, p := range all {
		list = append(list, headend.Policy{Name: p.Name, Color: p.Color, Endpoint: p.Endpoint, Octets: p.Counter.Bytes, Lists: p.SegmentLists, Paths: p.Paths, Delays: p.DelayConstraint})
	}
	return list, err
}

// PathName begins with the engine's name.
func (r remote) PathName(engine string, p headend.Policy) string { return engine + ":" + p.Name }

// RepairName begins with the engine's name, too.
func (r remote) RepairName(engine string, p headend.Policy) string {
	return engine + ":repair:" + p.Name
}

// Remove removes candidate paths that the API has added.
func (r remote) Remove(ctx context.Context, paths []headend.Path) error {
	if len(paths) == 0 {
		return nil
	}
	refs := make([]desired.Ref, len(paths))
	for i, p := range paths {
		refs[i] = desired.Ref{Kind: desired.KindCandidatePath, Key: p.Name}
	}
	_, err := r.Delete(ctx, refs)
	return err
}

// Put adds or replaces candidate paths, all of them, or none.
func (r remote) Put(ctx context.Context, paths []headend.Path) error {
	if len(paths) == 0 {
		return nil
	}
	c := &config.Config{}
	for _, p := range paths {
		c.CandidatePaths = append(c.CandidatePaths, p.CandidatePath)
	}
	_, err := r.Add(ctx, c)
	return err
}

func teRun(a *app) *cobra.Command {
	var nodes map[string]string
	leaseName := ""
	c := &cobra.Command{
		Use:   "run FILE [--node NAME=ADDRESS]...",
		Short: "Keep links from filling up: measure, plan, and change lists, round after round",
		Long: `Reads FILE and the counters of all policies each engine.every, 10 seconds, plans, and, if
engine.apply is true, changes lists step by step. FILE is read anew in each round. Its nodes
have an api: where their daemons are.

The engine writes candidate paths whose names begin with engine.name, at engine.preference,
150: by each node's api, or, by engine.write, as a BGP speaker (bgp; engine.bgp) or as
SRv6Policies (kubernetes). Paths of others that are preferred stay in use. When the engine
ends, its paths stay, those by BGP for engine.bgp.restart; when it starts again, it goes on
from there. "culvert te withdraw" removes them.

With a lease several engines may run: the one that holds it changes headends, and the others
measure and plan, so that they can take over at once. Engines that write by BGP need none: one
stands by while headends have paths of another.`,
		Example: "  culvert te run network.yaml --token-file token\n  culvert te run network.yaml --topology vtysh\n  culvert te run network.yaml --topology bgp-ls\n  culvert te run network.yaml --topology vtysh,kubernetes --lease kube-system/culvert-te",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE:    func(c *cobra.Command, args []string) error { return a.runEngine(c, args[0], nodes, leaseName) },
	}
	nodeFlag(c, &nodes)
	c.Flags().StringVar(&leaseName, "lease", "", "`NAMESPACE/NAME` of a Lease of Kubernetes that the engine has to hold to change headends; engine.lease of FILE unless set")
	return c
}

// runEngine does rounds until the context ends.
func (a *app) runEngine(c *cobra.Command, path string, nodes map[string]string, leaseName string) error {
	file, from, err := a.readFile(c, path)
	if err != nil {
		return err
	}
	if from.links != sourceBGP { // it takes its time
		_, _, _, err = a.readNetwork(c, path, nil)
	}
	if _, headendsErr := a.headends(file, nodes); err != nil || headendsErr != nil {
		return cmp.Or(err, headendsErr)
	}
	log := newLogger(c.ErrOrStderr(), config.Log{}, &slog.LevelVar{})
	l, err := a.cluster.leaseOf(file.Engine, leaseName, log)
	if err != nil {
		return err
	}
	speaker, paths, err := a.startEngine(c.Context(), file, nodes, from.links, log)
	if err != nil {
		return err
	}
	defer speaker.stop()
	write := file.Engine.Write
	e := loop.New(func(context.Context) (loop.Input, error) { return a.input(c, path, nodes, write, speaker, paths) }, log)
	if write == netfile.WriteBGP {
		e.Under(paths.claim)
	}
	if err := runUnder(c.Context(), e, l, file.Engine.Listen); err != nil {
		return err
	}
	log.Info("ended; lists stay", "event", logevent.TEEnded)
	return nil
}

// runUnder runs an engine until ctx ends. It has its lease until it changes nothing any more.
func runUnder(ctx context.Context, e *loop.Engine, l *lease, listen string) error {
	group, ctx := errgroup.WithContext(ctx)
	if l != nil {
		e.Under(l)
		leased, end := context.WithCancel(context.WithoutCancel(ctx))
		group.Go(func() error { return l.Run(leased) })
		group.Go(func() error {
			defer end()
			return e.Run(ctx)
		})
	} else {
		group.Go(func() error { return e.Run(ctx) })
	}
	group.Go(func() error { return monitor.Serve(ctx, e, listen) })
	return group.Wait()
}

// input reads what a round begins with.
func (a *app) input(c *cobra.Command, path string, nodes map[string]string, write string, s *teSpeaker, paths *advertiser) (loop.Input, error) {
	file, n, left, err := a.readNetwork(c, path, s)
	if err = errors.Join(err, paths.yield()); err != nil {
		return loop.Input{}, err
	}
	headends, err := a.headends(file, nodes)
	e := file.Engine
	if err == nil && e.Write != write {
		err = fmt.Errorf("engine.write has changed from %s to %s (fix: end the engine, withdraw its paths, and start it again)", write, e.Write)
	}
	return loop.Input{Network: n, LeftOut: left, Headends: written(file, headends, paths), Settings: loop.Settings{
		Apply: e.Apply, Every: time.Duration(e.Every), Horizon: time.Duration(*e.Horizon), Hold: time.Duration(e.Hold), Target: *e.Target / 100,
		Changes: e.Changes, Preference: e.Preference, Name: e.Name, Repair: e.Repair,
	}}, err
}

func teStatus(a *app) *cobra.Command {
	engine := "127.0.0.1:9474"
	c := a.printing(&cobra.Command{
		Use:     "status [--engine ADDRESS]",
		Short:   "Show what the engine found and did in its last round",
		Long:    "Shows the last round of a `culvert te run`. It exits with 3 if the engine has a problem.",
		Example: "  culvert te status\n  culvert te status --engine 192.0.2.9:9474 -o json",
		Args:    cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), readTimeout)
			defer cancel()
			s, err := monitor.Get(ctx, engine)
			if err != nil {
				return err
			}
			if err := a.print(c, s, func(g *printer.Grid) { stateTable(g, s) }); err != nil {
				return err
			}
			if s.Problem != "" {
				return cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("%s", s.Problem))
			}
			return nil
		},
	})
	c.Flags().StringVar(&engine, "engine", engine, "`host:port` of the engine: engine.listen of its file")
	return c
}

func stateTable(g *printer.Grid, s loop.State) {
	g.Row("round", fmt.Sprintf("%d, at %s, in %s", s.Counts.Rounds, s.At.Format(time.DateTime), s.Took.Round(time.Millisecond)))
	g.Row("state", s.Word)
	mode := "changes headends"
	switch {
	case !s.Apply:
		mode = "changes nothing: engine.apply is false"
	case s.Lease != nil && !s.Lease.Held:
		mode = "changes nothing: this engine does not hold the lease"
	}
	g.Row("mode", mode)
	if s.Lease != nil {
		g.Row("lease", s.Lease.Whose())
	}
	g.Row("since start", fmt.Sprintf("%s, %d of them failed; lists of demands changed %s", plural.Of(int(s.Counts.Rounds), "round"), s.Counts.Failed, plural.Of(int(s.Counts.Changes), "time")))
	for _, v := range s.Failed {
		g.Row("no answer", v)
	}
	for _, key := range s.Unknown {
		g.Row("rate unknown", key.Name())
	}
	for _, v := range s.LeftOut {
		g.Row("left out", v)
	}
	for _, v := range s.Unprotected {
		g.Row("not protected", fmt.Sprintf("%s, %s", v.Name(), v.Why))
	}
	for _, v := range s.Held {
		g.Row("keeps its lists", fmt.Sprintf("%s: %s", v.Name(), v.Why))
	}
	if s.Plan != nil {
		g.Gap()
		planTable(g, s.Plan, 10)
	}
}

func teWithdraw(a *app) *cobra.Command {
	var nodes map[string]string
	c := &cobra.Command{
		Use:     "withdraw FILE [--node NAME=ADDRESS]...",
		Short:   "Remove the engine's candidate paths from all headends",
		Long:    "Removes the candidate paths whose names begin with engine.name, or with engine.write kubernetes\nthe SRv6Policies with its label. Policies then take the best of their other paths. End the\nengine first: it would write them again.",
		Example: "  culvert te withdraw network.yaml --token-file token",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			file, _, err := a.readFile(c, args[0])
			if err != nil {
				return err
			}
			inCluster := file.Engine.Write == netfile.WriteKubernetes
			if inCluster {
				if err := a.cluster.withdraw(c, file.Engine.Name); err != nil {
					return err
				}
			}
			headends, err := a.headends(file, nodes)
			if err != nil {
				if inCluster {
					return nil // there are no others
				}
				return err
			}
			headends, had, end, err := forget(c.Context(), file, headends)
			if err != nil {
				return err
			}
			defer end()
			failed := 0
			for _, n := range file.Nodes {
				h, has := headends[n.Name].(withdrawer)
				if !has {
					continue // or its paths were SRv6Policies
				}
				removed, err := h.withdraw(c.Context(), file.Engine.Name+":")
				if err != nil {
					failed++
					fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", n.Name, err)
					continue
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: %d candidate paths removed\n", n.Name, removed+had[n.Name])
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d headends have kept their paths", failed, len(headends))
			}
			return nil
		},
	}
	nodeFlag(c, &nodes)
	return c
}

// withdrawer removes the engine's paths from a headend.
type withdrawer interface {
	withdraw(ctx context.Context, prefix string) (removed int, err error)
}

// withdraw removes the candidate paths whose names begin so, and that the API added.
func (r remote) withdraw(ctx context.Context, prefix string) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	paths, err := r.CandidatePaths(ctx, "")
	if err != nil {
		return 0, err
	}
	var refs []desired.Ref
	for _, p := range paths {
		if strings.HasPrefix(p.Name, prefix) && p.Origin == desired.OriginAPI {
			refs = append(refs, desired.Ref{Kind: desired.KindCandidatePath, Key: p.Name})
		}
	}
	if len(refs) == 0 {
		return 0, nil
	}
	_, err = r.Delete(ctx, slices.Clip(refs))
	return len(refs), err
}
