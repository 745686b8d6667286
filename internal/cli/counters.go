package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

// counters is all that is counted, by what it is counted for.
type counters struct {
	Outcomes []agent.Outcome `json:"outcomes"`
	Injected uint64          `json:"injected"` // frames that the daemon sent through the data path
	SIDs     []namedCounter  `json:"sids"`
	Policies []policyCounter `json:"policies"`
	Tunnels  []tunnelCounter `json:"tunnels"`
}

type namedCounter struct {
	Key string `json:"key"`
	agent.Counter
}

type policyCounter struct {
	namedCounter
	Lists []agent.Counter `json:"lists"`
}

type tunnelCounter struct {
	Key      string        `json:"key"`
	Received agent.Counter `json:"received"`
	Sent     agent.Counter `json:"sent"`
}

func countersCommand(a *app) *cobra.Command {
	var watch time.Duration
	c := &cobra.Command{
		Use: "counters", Short: "Show all counters: outcomes, SIDs, policies, segment lists, tunnels",
		Long: `Show all counters: outcomes of packets, SIDs, policies and their segment lists,
tunnels. --watch reads them at an interval; the table then also shows packets per
second, and JSON is one line for each reading.`,
		Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if watch == 0 {
				return show(a, c, readCounters, func(g *printer.Grid, now counters) { counterTable(g, now.rows(), nil, 0) })
			}
			if watch < 100*time.Millisecond {
				return cmdline.Usagef("--watch %s is too short: give at least 100ms", watch)
			}
			return a.watchCounters(c, watch)
		},
	}
	c.Flags().DurationVar(&watch, "watch", 0, "read again at this `interval`, such as 1s, until interrupted")
	return a.printing(c)
}

func readCounters(client *api.Client, ctx context.Context) (counters, error) {
	out := counters{SIDs: []namedCounter{}, Policies: []policyCounter{}, Tunnels: []tunnelCounter{}}
	outcomes, first := client.Outcomes(ctx, "")
	sids, second := client.SIDs(ctx, "")
	policies, third := client.Policies(ctx, "")
	tunnels, fourth := client.Tunnels(ctx, "")
	status, fifth := client.Status(ctx)
	out.Outcomes, out.Injected = outcomes, status.Injected
	for _, s := range sids {
		out.SIDs = append(out.SIDs, namedCounter{s.SID.String(), s.Counter})
	}
	for _, p := range policies {
		out.Policies = append(out.Policies, policyCounter{namedCounter{p.Name, p.Counter}, p.Lists})
	}
	for _, t := range tunnels {
		out.Tunnels = append(out.Tunnels, tunnelCounter{t.Name, t.Received, t.Sent})
	}
	return out, cmp.Or(first, second, third, fourth, fifth)
}

// counterRow is one line of the table.
type counterRow struct {
	what, key string
	agent.Counter
}

// rows leaves out outcomes that never happened: there are many.
func (s counters) rows() []counterRow {
	var out []counterRow
	for _, o := range s.Outcomes {
		if o.Packets > 0 {
			what := "outcome"
			if o.Drop {
				what = "drop"
			}
			out = append(out, counterRow{what, o.Reason, o.Counter})
		}
	}
	for _, v := range s.SIDs {
		out = append(out, counterRow{"sid", v.Key, v.Counter})
	}
	for _, v := range s.Policies {
		out = append(out, counterRow{"policy", v.Key, v.Counter})
		for i, l := range v.Lists {
			out = append(out, counterRow{"segment list", fmt.Sprintf("%s[%d]", v.Key, i), l})
		}
	}
	for _, v := range s.Tunnels {
		out = append(out, counterRow{"tunnel in", v.Key, v.Received}, counterRow{"tunnel out", v.Key, v.Sent})
	}
	return out
}

// counterTable shows rates too, where there is something before.
func counterTable(g *printer.Grid, rows []counterRow, before map[[2]string]agent.Counter, elapsed time.Duration) {
	header := []any{"OF", "KEY", "PACKETS", "BYTES"}
	if before != nil {
		header = append(header, "PACKETS/S", "BIT/S")
	}
	g.Row(header...)
	for _, r := range rows {
		row := []any{r.what, r.key, r.Packets, r.Bytes}
		if before != nil {
			was := before[[2]string{r.what, r.key}]
			row = append(row, rate(r.Packets, was.Packets, elapsed), rate(8*r.Bytes, 8*was.Bytes, elapsed))
		}
		g.Row(row...)
	}
}

// rate is per second; a counter that went back belongs to a new resource.
func rate(now, before uint64, elapsed time.Duration) string {
	if now < before || elapsed <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", float64(now-before)/elapsed.Seconds())
}

func (a *app) watchCounters(c *cobra.Command, every time.Duration) error {
	client, err := api.NewClient(a.endpoint)
	if err != nil {
		return cmdline.Usage(err)
	}
	ctx := c.Context()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var before map[[2]string]agent.Counter
	last := time.Now()
	for {
		now, err := readCounters(client, ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		read := time.Now()
		if a.format == printer.JSON {
			err = json.NewEncoder(c.OutOrStdout()).Encode(now)
		} else {
			err = a.print(c, now, func(g *printer.Grid) {
				counterTable(g, now.rows(), before, read.Sub(last))
				g.Line("")
			})
		}
		if err != nil {
			return err
		}
		before, last = map[[2]string]agent.Counter{}, read
		for _, r := range now.rows() {
			before[[2]string{r.what, r.key}] = r.Counter
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
