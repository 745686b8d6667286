package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/flow"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/printer"
)

func flowCommand(a *app) *cobra.Command {
	var filter flow.Filter
	c := &cobra.Command{
		Use: "flow", Aliases: []string{"flows"}, Short: "Show flows of this node's pods: verdict, path and latency",
		Long: `Shows the flows of this node's pods in the last minutes: who talks to whom, whether
NetworkPolicies allow it, and which way packets go. It needs overlay.flows.enabled: true in
the configuration of the node.

Packets and octets are estimates: of most packets one in overlay.flows.sampling is seen. A
connection of TCP is seen from its first packet, other flows once one of their packets is
chosen. HANDSHAKE is the time from SYN to SYN/ACK as this node sees them: at the node of the
client it has the way there and back, at that of the server only the server's part.

With --follow it goes on until an interrupt, and shows each flow again when it changes; with
-o json there is one line for each then.`,
		Example: "  culvert flow --since 5m --verdict dropped\n  culvert flow --follow --namespace shop\n  culvert flow --pod shop/web-0 --port 443 -o json",
		Args:    cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkFlowFilter(&filter); err != nil {
				return err
			}
			if filter.Follow {
				_, err := ask(a, c, 0, func(client *api.Client, ctx context.Context) (any, error) {
					return nil, client.Flows(ctx, filter, func(v flow.Flow) error { return a.printFlow(c.OutOrStdout(), &v) })
				})
				return err
			}
			return show(a, c, func(client *api.Client, ctx context.Context) ([]flow.Flow, error) {
				list := []flow.Flow{}
				err := client.Flows(ctx, filter, func(v flow.Flow) error { list = append(list, v); return nil })
				return list, err
			}, func(g *printer.Grid, list []flow.Flow) {
				g.Row("LAST", "FROM", "TO", "PROTOCOL", "VERDICT", "PATH", "PACKETS", "ANSWERS", "HANDSHAKE")
				for i := range list {
					v := &list[i]
					g.Row(v.Last.UTC().Format(time.TimeOnly), v.Source, flowTo(v), v.Protocol, flowVerdict(v), flowPath(v), v.Packets+v.Drops, v.Answers, flowHandshake(v))
				}
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&filter.Follow, "follow", "f", false, "go on with flows that change, until an interrupt")
	f.DurationVar(&filter.Since, "since", 0, "flows that had packets in this `time`, such as 5m; 10m is all that is kept")
	f.StringVar(&filter.Pod, "pod", "", "flows of this `NAMESPACE/POD`, at either end")
	f.StringVar(&filter.Namespace, "namespace", "", "flows of pods of this `namespace`, at either end")
	f.StringVar(&filter.Verdict, "verdict", "", "`kind` of verdict: allowed or dropped")
	f.Uint16Var(&filter.Port, "port", 0, "flows to this `port`, of a pod or of a Service")
	completeFlow(a, c)
	return a.printing(c)
}

func checkFlowFilter(filter *flow.Filter) error {
	switch {
	case filter.Since < 0 || filter.Since > flow.DefaultKeep:
		return cmdline.Usagef("--since %s: give a time of at most %s, which is all that is kept", filter.Since, flow.DefaultKeep)
	case filter.Pod != "" && strings.Count(filter.Pod, "/") != 1:
		return cmdline.Usagef("--pod %s: give NAMESPACE/POD, such as default/web", filter.Pod)
	case !slices.Contains([]string{"", flow.Allowed, flow.Dropped}, filter.Verdict):
		return cmdline.Usagef("--verdict %s: give %s or %s", filter.Verdict, flow.Allowed, flow.Dropped)
	}
	return nil
}

func completeFlow(a *app, c *cobra.Command) {
	begun := func(list []string, with string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(list, func(s string) bool { return !strings.HasPrefix(s, with) }), cobra.ShellCompDirectiveNoFileComp
	}
	of := func(name func(key, namespace string) string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return func(c *cobra.Command, _ []string, with string) ([]string, cobra.ShellCompDirective) {
			all, _ := ask(a, c, readTimeout, localPods.all)
			var names []string
			for _, p := range all {
				if p.Name != "" {
					names = append(names, name(p.Key(), p.Namespace))
				}
			}
			slices.Sort(names)
			return begun(slices.Compact(names), with)
		}
	}
	_ = c.RegisterFlagCompletionFunc("pod", of(func(key, _ string) string { return key }))
	_ = c.RegisterFlagCompletionFunc("namespace", of(func(_, namespace string) string { return namespace }))
	_ = c.RegisterFlagCompletionFunc("verdict", func(_ *cobra.Command, _ []string, with string) ([]string, cobra.ShellCompDirective) {
		return begun([]string{flow.Allowed, flow.Dropped}, with)
	})
}

// printFlow shows one flow at once.
func (a *app) printFlow(out io.Writer, v *flow.Flow) error {
	switch a.format {
	case printer.JSON:
		return json.NewEncoder(out).Encode(v)
	case printer.YAML:
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
		return printer.WriteYAML(out, v)
	}
	line := fmt.Sprintf("%s %s -> %s %s %s by %s, %s, %s", v.Last.UTC().Format("15:04:05.000"), v.Source, flowTo(v), v.Protocol,
		flowVerdict(v), cmp.Or(flowPath(v), "-"), plural.Of(int(v.Packets+v.Drops), "packet"), plural.Of(int(v.Answers), "answer"))
	if h := flowHandshake(v); h != "" {
		line += ", handshake " + h
	}
	_, err := io.WriteString(out, line+"\n")
	return err
}

func flowTo(v *flow.Flow) string {
	if v.Service == "" {
		return v.Destination.String()
	}
	return fmt.Sprintf("%s (%s)", v.Service, v.Destination)
}

func flowVerdict(v *flow.Flow) string {
	if v.Verdict != flow.Dropped {
		return v.Verdict
	}
	if len(v.NetworkPolicies) > 0 {
		return fmt.Sprintf("dropped: %s (%s)", v.Reason, strings.Join(v.NetworkPolicies, ", "))
	}
	return "dropped: " + v.Reason
}

func flowPath(v *flow.Flow) string {
	path := v.Path
	if path == flow.PathPolicy {
		path = fmt.Sprintf("%s list %d", v.SRPolicy, v.SegmentList)
	}
	if v.Class != "" {
		path += " class " + v.Class
	}
	return path
}

func flowHandshake(v *flow.Flow) string {
	if v.Handshake == 0 {
		return ""
	}
	return (time.Duration(v.Handshake) * time.Microsecond).String()
}
