package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/frame"
	"github.com/culvert-net/culvert/internal/printer"
)

func traceCommand(a *app) *cobra.Command {
	var count int
	var limit time.Duration
	c := &cobra.Command{
		Use: "trace [FILTER]", Short: "Show packets: what each one matched, how it left, or why it was dropped",
		Long: "Show packets as they pass: what was matched at each step, what went out, or why\nit was dropped. " +
			"It ends on an interrupt, after --count packets, or after --time.\nWith -o json there is one line for each packet.\n\n" + filterGrammar,
		Example: "  culvert trace src 2001:db8::/32 and drops\n  culvert trace teid 0x1001 --count 10",
		RunE: func(c *cobra.Command, args []string) error {
			filter, err := parseFilter(args)
			if err != nil {
				return cmdline.Usagef("%w: see culvert trace --help", err)
			}
			client, err := api.NewClient(a.endpoint)
			if err != nil {
				return cmdline.Usage(err)
			}
			ctx := c.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return a.follow(ctx, c, client, filter, count)
		},
	}
	c.Flags().IntVar(&count, "count", 0, "end after this `number` of packets")
	c.Flags().DurationVar(&limit, "time", 0, "end after this `time`, such as 10s")
	a.outputFlag(c)
	return c
}

// errEnough ends a trace that has shown as many packets as the user requested.
var errEnough = errors.New("enough")

func (a *app) follow(ctx context.Context, c *cobra.Command, client *api.Client, filter agent.TraceFilter, count int) error {
	out, shown := c.OutOrStdout(), 0
	started := func() { fmt.Fprintln(c.ErrOrStderr(), "tracing; interrupt to end") }
	err := client.Trace(ctx, filter, started, func(e agent.TraceEvent) error {
		if err := a.printEvent(out, e); err != nil {
			return err
		}
		if shown++; shown == count {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// tracedPacket adds to a record what its frames say.
type tracedPacket struct {
	agent.TraceEvent
	InText  []string `json:"in_text"`
	OutText []string `json:"out_text,omitempty"`
}

func (a *app) printEvent(out io.Writer, e agent.TraceEvent) error {
	switch a.format {
	case printer.JSON:
		return json.NewEncoder(out).Encode(tracedPacket{e, frame.Decode(e.In).Layers, frame.Decode(e.Out).Layers})
	case printer.YAML:
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
		return printer.WriteYAML(out, tracedPacket{e, frame.Decode(e.In).Layers, frame.Decode(e.Out).Layers})
	}
	_, err := io.WriteString(out, describe(e))
	return err
}

// describe is one packet's journey, a line for each step.
func describe(e agent.TraceEvent) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, text)
		}
	}
	fmt.Fprintf(&b, "%s %s", e.Time.Format("15:04:05.000000"), e.Interface)
	if e.Egress != "" {
		fmt.Fprintf(&b, " -> %s", e.Egress)
	}
	fmt.Fprintf(&b, "  %s\n", e.Reason)
	line("in", fmt.Sprintf("%d bytes: %s", e.InLength, frame.Decode(e.In)))
	line("sid", prefixOrNone(e))
	if e.Session != 0 {
		line("session", fmt.Sprintf("%#x PDR %d", e.Session, e.PDR))
	}
	line("steered", e.Target)
	line("tunnel", e.Tunnel)
	if e.Policy != "" {
		line("policy", fmt.Sprintf("%s [%s]", e.Policy, strings.Join(namesOf(e.SegmentList), ", ")))
	}
	line("next hop", e.Adjacency)
	if len(e.Out) > 0 && !e.Drop {
		line("out", fmt.Sprintf("%d bytes: %s", e.OutLength, frame.Decode(e.Out)))
	}
	if e.Drop {
		line("dropped", e.Text)
	}
	return b.String() + "\n"
}

func prefixOrNone(e agent.TraceEvent) string { return valid(e.SID) }
