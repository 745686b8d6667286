package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
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
		Use:   "demands FILE --node NAME=ADDRESS...",
		Short: "Measure demands by the counters of the headends' policies",
		Long: `Reads the counters of policies from each --node, again and again, and prints their
rates as demands for FILE. FILE has the nodes: a policy's endpoint is the node whose SID
or locator has that address. A rate is the larger one of the moving average and what the
policy sends at most for 95 % of the time. It exits with 3 if a node does not answer or
a rate is unknown.`,
		Example: "  culvert te demands network.yaml --node r1=192.0.2.1:7443 --node r2=192.0.2.2:7443 --token-file token\n  culvert te demands network.yaml --node r1=/run/culvert/culvert.sock -o yaml",
		Args:    cmdline.Exactly(1, "the file of a network"),
		RunE: func(c *cobra.Command, args []string) error {
			n, err := network(c, args)
			if err != nil {
				return err
			}
			switch {
			case every <= 0:
				return cmdline.Usagef("--every: give more than 0")
			case length < every:
				return cmdline.Usagef("--for: give %s or more, the time between two readings", every)
			}
			headends, err := a.headends(n.Topology, nodes)
			if err != nil {
				return err
			}
			m := measure(c.Context(), n.Topology, headends, every, progressOn(c, int(length/every)+1, "readings"), int(length/every)+1)
			if err := a.print(c, m, func(g *printer.Grid) { m.table(g) }); err != nil {
				return err
			}
			return m.judge(len(headends))
		},
	})
	c.Flags().StringToStringVar(&nodes, "node", nil, "a headend to read, and where its daemon is: `NAME=ADDRESS`, host:port or the path of its socket")
	if err := c.RegisterFlagCompletionFunc("node", nodeNames); err != nil {
		panic(err) // the flag is above
	}
	c.Flags().DurationVar(&every, "every", every, "`time` between two readings")
	c.Flags().DurationVar(&length, "for", length, "`time` from the first reading to the last")
	return c
}

// headends are the clients of --node.
func (a *app) headends(t te.Topology, nodes map[string]string) (map[string]*api.Client, error) {
	if len(nodes) == 0 {
		return nil, cmdline.Usagef("--node: give the headends to read, such as --node r1=192.0.2.1:7443")
	}
	clients := map[string]*api.Client{}
	for name, address := range nodes {
		if !slices.ContainsFunc(t.Nodes, func(n te.Node) bool { return n.Name == name }) {
			return nil, cmdline.Usagef("--node: no node is called %q", name)
		}
		e := a.endpoint
		if e.Address = address; strings.HasPrefix(address, "/") {
			e.Address, e.Socket = "", address
		}
		client, err := api.NewClient(e)
		if err != nil {
			return nil, cmdline.Usagef("--node %s: %w", name, err)
		}
		clients[name] = client
	}
	return clients, nil
}

// answer is what one reading of a headend found.
type answer struct {
	headend  string
	at       time.Time
	policies []agent.PolicyStatus
	err      error
}

// measure reads all headends so many times, or until the context ends.
func measure(ctx context.Context, t te.Topology, headends map[string]*api.Client, every time.Duration, progress func(done int), times int) measured {
	matrix, last := demand.New(demand.Options{Period: every}), []answer(nil)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range times {
		answers := read(ctx, headends)
		if ctx.Err() != nil {
			break
		}
		last = answers
		for _, v := range last {
			octets, _ := sent(t, v.headend, v.policies)
			for key, n := range octets {
				matrix.Read(key, v.at, n)
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

// read asks all headends at the same time. Counters are those in the middle between question
// and answer.
func read(ctx context.Context, headends map[string]*api.Client) []answer {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	answers := make([]answer, 0, len(headends))
	for _, name := range slices.Sorted(maps.Keys(headends)) {
		answers = append(answers, answer{headend: name})
	}
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			asked := time.Now()
			answers[i].policies, answers[i].err = headends[answers[i].headend].Policies(ctx, "")
			answers[i].at = asked.Add(time.Since(asked) / 2)
		})
	}
	all.Wait()
	return answers
}

// sent is how many octets a headend's policies have sent to each endpoint in each color, and
// which of them are left out.
func sent(t te.Topology, headend string, policies []agent.PolicyStatus) (octets map[te.Key]uint64, left []string) {
	octets = map[te.Key]uint64{}
	for _, p := range policies {
		endpoint, why := t.Owner(p.Endpoint), ""
		switch {
		case !p.Endpoint.IsValid():
			why = "it has no endpoint"
		case endpoint == "":
			why = fmt.Sprintf("no node has %s as its SID, or in its locator", p.Endpoint)
		case endpoint == headend:
			why = "its endpoint is the headend"
		default:
			octets[te.Key{Headend: headend, Endpoint: endpoint, Color: p.Color}] += p.Counter.Bytes
			continue
		}
		left = append(left, fmt.Sprintf("policy %s of %s: %s", p.Name, headend, why))
	}
	return octets, left
}

// measurement is what the readings gave.
func measurement(t te.Topology, matrix *demand.Matrix, last []answer) measured {
	m := measured{Demands: []netfile.Demand{}}
	known, unknown := matrix.At(time.Now())
	for _, d := range known {
		m.Demands = append(m.Demands, netfile.Demand{Headend: d.Headend, Endpoint: d.Endpoint, Color: d.Color, Rate: netfile.Rate(d.Rate)})
	}
	slices.SortStableFunc(m.Demands, func(x, y netfile.Demand) int { return cmp.Compare(y.Rate, x.Rate) })
	for _, key := range unknown {
		m.Unknown = append(m.Unknown, keyWords(key))
	}
	for _, v := range last {
		if v.err != nil {
			m.Failed = append(m.Failed, fmt.Sprintf("%s: %v", v.headend, v.err))
		}
		_, left := sent(t, v.headend, v.policies)
		m.LeftOut = append(m.LeftOut, left...)
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
	g.Row("DEMAND", "RATE")
	for _, d := range m.Demands {
		g.Row(keyWords(te.Key{Headend: d.Headend, Endpoint: d.Endpoint, Color: d.Color}), d.Rate)
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
