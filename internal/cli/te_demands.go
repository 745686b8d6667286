package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/te"
	"github.com/culvert-net/culvert/internal/te/demand"
)

// measured is what `culvert te demands` prints. Demands are as the file of a network has them.
type measured struct {
	Demands []netfile.Demand `json:"demands"`
	// Unknown are policies without a rate: HEADEND:ENDPOINT[:COLOR].
	Unknown []string `json:"unknown,omitempty"`
	// LeftOut are policies that are no demand of the network, and why.
	LeftOut []string `json:"left_out,omitempty"`
	// Failed are headends that did not answer, and why not.
	Failed []string `json:"failed,omitempty"`
}

func teDemands(a *app) *cobra.Command {
	var nodes map[string]string
	every, length := 10*time.Second, 30*time.Second
	c := a.printing(&cobra.Command{
		Use:   "demands FILE [--node NAME=ADDRESS]...",
		Short: "Measure demands by the counters of the headends' policies",
		Long: `Reads the counters of policies from each node that has an api, again and again, and prints their
rates as demands for FILE. FILE has the nodes: a policy's endpoint is the node whose SID
or locator has that address. A rate is the larger one of the moving average and what the
policy sends at most for 95 % of the time, or, from four readings on, what it will be at
engine.horizon if it goes on rising; then MEASURED is less. It exits with 3 if a node does not answer or
a rate is unknown.`,
		Example: "  culvert te demands network.yaml --node r1=192.0.2.1:7443 --node r2=192.0.2.2:7443 --token-file token\n  culvert te demands network.yaml --node r1=/run/culvert/culvert.sock -o yaml",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			file, n, left, err := a.readNetwork(c, args[0], nil)
			if err != nil {
				return err
			}
			for _, l := range left {
				fmt.Fprintln(c.ErrOrStderr(), l)
			}
			switch {
			case every <= 0:
				return cmdline.Usagef("--every: give more than 0")
			case length < every:
				return cmdline.Usagef("--for: give %s or more, the time between two readings", every)
			}
			headends, err := a.headends(file, nodes)
			if err != nil {
				return err
			}
			m := measure(c.Context(), n.Topology, headends, demand.Options{Period: every, Horizon: time.Duration(*file.Engine.Horizon)}, progressOn(c, int(length/every)+1, "readings"), int(length/every)+1)
			if err := a.print(c, m, func(g *printer.Grid) { m.table(g) }); err != nil {
				return err
			}
			return m.judge(len(headends))
		},
	})
	nodeFlag(c, &nodes)
	c.Flags().DurationVar(&every, "every", every, "`time` between two readings")
	c.Flags().DurationVar(&length, "for", length, "`time` from the first reading to the last")
	return c
}

// headends are the clients of a file's nodes that have an api, and of --node, which is preferred.
func (a *app) headends(file *netfile.Network, nodes map[string]string) (map[string]headend.Headend, error) {
	addresses, names := map[string]string{}, map[string]string{}
	for _, n := range file.Nodes {
		addresses[n.Name], names[n.Name] = n.API, n.TLSName
	}
	for name, address := range nodes {
		if _, known := addresses[name]; !known {
			return nil, cmdline.Usagef("--node: no node is called %q", name)
		}
		addresses[name] = address
	}
	clients := map[string]headend.Headend{}
	for name, address := range addresses {
		if address == "" {
			continue
		}
		e := a.endpoint
		e.ServerName = names[name]
		if e.Address = address; strings.HasPrefix(address, "/") {
			e.Address, e.Socket = "", address
		}
		client, err := api.NewClient(e)
		if err != nil {
			return nil, cmdline.Usagef("node %s: %w", name, err)
		}
		clients[name] = remote{client}
	}
	if len(clients) == 0 {
		return nil, cmdline.Usagef("no node has an address: give nodes their api in the file, or --node r1=192.0.2.1:7443, or engine.agents.port with --topology kubernetes")
	}
	return a.cluster.writers(file.Engine, clients)
}

// measure reads all headends so many times, or until the context ends.
func measure(ctx context.Context, t te.Topology, headends map[string]headend.Headend, o demand.Options, progress func(done int), times int) measured {
	matrix, last := demand.New(o), []headend.Reading(nil)
	ticker := time.NewTicker(o.Period)
	defer ticker.Stop()
	for i := range times {
		readings := headend.Read(ctx, headends)
		if ctx.Err() != nil {
			break
		}
		last = readings
		for _, r := range readings {
			for key, n := range headend.Find(t, []headend.Reading{r}).Octets {
				matrix.Read(key, r.At, n)
			}
		}
		if progress != nil {
			progress(i + 1)
		}
		if i+1 == times {
			break
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return measurement(t, matrix, last)
}

// measurement is what the readings gave.
func measurement(t te.Topology, matrix *demand.Matrix, last []headend.Reading) measured {
	m := measured{Demands: []netfile.Demand{}}
	known, unknown := matrix.At(time.Now())
	for _, d := range known {
		m.Demands = append(m.Demands, netfile.Demand{Headend: d.Headend, Endpoint: d.Endpoint, Color: d.Color, Rate: netfile.Rate(d.Rate), Measured: netfile.Rate(d.Measured)})
	}
	slices.SortStableFunc(m.Demands, func(x, y netfile.Demand) int { return cmp.Compare(y.Rate, x.Rate) })
	for _, key := range unknown {
		m.Unknown = append(m.Unknown, key.Name())
	}
	for _, r := range last {
		if r.Err != nil {
			m.Failed = append(m.Failed, fmt.Sprintf("%s: %v", r.Headend, r.Err))
		}
	}
	for _, l := range headend.Find(t, last).LeftOut {
		m.LeftOut = append(m.LeftOut, l.String())
	}
	return m
}

func (m measured) table(g *printer.Grid) {
	for _, part := range []struct {
		title string
		words []string
	}{{"no answer", m.Failed}, {"rate unknown", m.Unknown}, {"left out", m.LeftOut}} {
		for _, w := range part.words {
			g.Row(part.title, w)
		}
	}
	g.Gap()
	g.Row("DEMAND", "RATE", "MEASURED")
	for _, d := range m.Demands {
		g.Row(te.Key{Headend: d.Headend, Endpoint: d.Endpoint, Color: d.Color}.Name(), d.Rate, cmp.Or(d.Measured, d.Rate))
	}
}

// judge finds what keeps the demands from being all that there are.
func (m measured) judge(headends int) error {
	var errs []error
	if n := len(m.Failed); n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d headends did not answer the last reading", n, headends))
	}
	if n := len(m.Unknown); n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d demands have no rate: read for longer (--for)", n, n+len(m.Demands)))
	}
	if len(errs) == 0 {
		return nil
	}
	return cmdline.WithCode(cmdline.ExitCheckFailed, errors.Join(errs...))
}

// nodeFlag adds --node.
func nodeFlag(c *cobra.Command, nodes *map[string]string) {
	c.Flags().StringToStringVar(nodes, "node", nil, "where the daemon of a node is, in place of its api in FILE: `NAME=ADDRESS`, host:port or the path of a socket")
	c.Flags().Lookup("node").DefValue = "" // the help would say (default [])
	if err := c.RegisterFlagCompletionFunc("node", nodeNames); err != nil {
		panic(err) // the flag is above
	}
}

// nodeNames completes --node.
func nodeNames(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	n, err := netfile.Load(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, v := range n.Nodes {
		words = append(words, v.Name+"=")
	}
	return words, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}
