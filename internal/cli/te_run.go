package cli

import (
	"cmp"
	"context"
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
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// remote is a headend by its management API.
type remote struct{ *api.Client }

// Policies are all that the node has.
func (r remote) Policies(ctx context.Context) ([]headend.Policy, error) {
	all, err := r.Client.Policies(ctx, "")
	list := make([]headend.Policy, 0, len(all))
	for _, p := range all {
		list = append(list, headend.Policy{Name: p.Name, Color: p.Color, Endpoint: p.Endpoint, Octets: p.Counter.Bytes, Lists: p.SegmentLists, Paths: p.Paths})
	}
	return list, err
}

// Put adds or replaces candidate paths.
func (r remote) Put(ctx context.Context, paths []srpolicy.CandidatePath) error {
	_, err := r.Add(ctx, &config.Config{CandidatePaths: paths})
	return err
}

func teRun(a *app) *cobra.Command {
	var nodes map[string]string
	c := &cobra.Command{
		Use:   "run FILE [--node NAME=ADDRESS]...",
		Short: "Keep links from filling up: measure, plan, and change lists, round after round",
		Long: `Reads FILE and the counters of all policies each engine.every, 10 seconds, plans, and, if
engine.apply is true, changes lists step by step. FILE is read anew in each round. Its nodes
have an api: where their daemons are.

The engine writes candidate paths whose names begin with engine.name, at engine.preference,
150: by each node's api, or, if engine.write is bgp, as a BGP speaker (engine.bgp). Paths of
others that are preferred stay in use. When the engine ends, its paths stay, those by BGP for
engine.bgp.restart; when it starts again, it goes on from there. "culvert te withdraw" removes
them.`,
		Example: "  culvert te run network.yaml --token-file token\n  culvert te run network.yaml --topology vtysh\n  culvert te run network.yaml --topology bgp-ls",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE:    func(c *cobra.Command, args []string) error { return a.runEngine(c, args[0], nodes) },
	}
	nodeFlag(c, &nodes)
	return c
}

// runEngine does rounds until the context ends.
func (a *app) runEngine(c *cobra.Command, path string, nodes map[string]string) error {
	file, source, err := readFile(c, path)
	if err != nil {
		return err
	}
	if source != sourceBGP { // it takes its time
		_, _, _, err = readNetwork(c, path)
	}
	if _, headendsErr := a.headends(file, nodes); err != nil || headendsErr != nil {
		return cmp.Or(err, headendsErr)
	}
	log := newLogger(c.ErrOrStderr(), config.Log{}, &slog.LevelVar{})
	speaker, paths, err := a.startEngine(c.Context(), file, nodes, source, log)
	if err != nil {
		return err
	}
	if speaker != nil {
		defer speaker.Stop()
	}
	write := file.Engine.Write
	e := loop.New(func(context.Context) (loop.Input, error) { return a.input(c, path, nodes, write, speaker, paths) }, log)
	group, ctx := errgroup.WithContext(c.Context())
	group.Go(func() error { return e.Run(ctx) })
	group.Go(func() error { return monitor.Serve(ctx, e, file.Engine.Listen) })
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("ended; lists stay")
	return nil
}

// input reads what a round begins with.
func (a *app) input(c *cobra.Command, path string, nodes map[string]string, write string, s *teSpeaker, paths *advertiser) (loop.Input, error) {
	file, n, left, err := readNetworkBy(c, path, s)
	if err != nil {
		return loop.Input{}, err
	}
	headends, err := a.headends(file, nodes)
	e := file.Engine
	if err == nil && e.Write != write {
		err = fmt.Errorf("engine.write has changed from %s to %s (fix: end the engine, withdraw its paths, and start it again)", write, e.Write)
	}
	return loop.Input{Network: n, LeftOut: left, Headends: written(file, headends, paths), Settings: loop.Settings{
		Apply: e.Apply, Every: time.Duration(e.Every), Horizon: time.Duration(*e.Horizon), Hold: time.Duration(e.Hold), Target: *e.Target / 100,
		Changes: e.Changes, Preference: e.Preference, Name: e.Name,
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
	if !s.Apply {
		mode = "changes nothing: engine.apply is false"
	}
	g.Row("mode", mode)
	g.Row("since start", fmt.Sprintf("%d rounds, %d of them failed; lists of demands changed %d times", s.Counts.Rounds, s.Counts.Failed, s.Counts.Changes))
	for _, v := range s.Failed {
		g.Row("no answer", v)
	}
	for _, key := range s.Unknown {
		g.Row("rate unknown", keyWords(key))
	}
	for _, v := range s.LeftOut {
		g.Row("left out", v)
	}
	for _, v := range s.Held {
		g.Row("keeps its lists", fmt.Sprintf("%s: %s", keyWords(v.Key), v.Why))
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
		Long:    "Removes the candidate paths whose names begin with engine.name. Policies then take the best of\ntheir other paths. End the engine first: it would write them again.",
		Example: "  culvert te withdraw network.yaml --token-file token",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			file, _, err := readFile(c, args[0])
			if err != nil {
				return err
			}
			headends, err := a.headends(file, nodes)
			if err != nil {
				return err
			}
			headends, had, end, err := forget(c.Context(), file, headends)
			if err != nil {
				return err
			}
			defer end()
			failed := 0
			for _, n := range file.Nodes {
				h, has := headends[n.Name]
				if !has {
					continue
				}
				removed, err := h.(withdrawer).withdraw(c.Context(), file.Engine.Name+":")
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
