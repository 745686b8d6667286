package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/netpol"
	"github.com/culvert-net/culvert/internal/printer"
)

func verdictCommand(a *app) *cobra.Command {
	var q isolation.Ask
	c := &cobra.Command{
		Use:   "policy-verdict FROM TO",
		Short: "Show whether NetworkPolicies allow packets, and which rule decides",
		Long: `Shows whether NetworkPolicies allow packets from FROM to TO, for each address family,
and which policy and rule decide: those of FROM for what it sends (egress), and those of
TO for what it takes (ingress). FROM and TO are pods of any nodes (NAMESPACE/POD, or POD
of the namespace default or of the only namespace that has one of that name), or
addresses.

--port is the port of TO, or a name that its containers give one. Without --port and
--protocol the question is about all packets: only rules without ports allow them.
Answers to packets that are allowed always pass, and so does everything between a pod
and its own node.`,
		Example: "  culvert policy-verdict shop/web shop/db --port 5432\n  culvert policy-verdict 192.0.2.7 shop/web --port http\n  culvert policy-verdict shop/web 2001:db8::53 --port 53 --protocol udp -o json",
		Args:    cmdline.Exactly(2, "where packets come from, and where to"),
		RunE: func(c *cobra.Command, args []string) error {
			q.From, q.To = args[0], args[1]
			verdicts, err := ask(a, c, readTimeout, func(client *api.Client, ctx context.Context) ([]netpol.Verdict, error) {
				return client.ExplainPolicy(ctx, q)
			})
			if err != nil {
				return err
			}
			if a.format != printer.Table {
				return a.print(c, verdicts, nil)
			}
			for _, v := range verdicts {
				if _, err := fmt.Fprint(c.OutOrStdout(), v.String()); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			all, _ := ask(a, c, readTimeout, localPods.all)
			var names []string
			for _, p := range all {
				if p.Name != "" {
					names = append(names, p.Key())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&q.Port, "port", "", "`port` of TO, by number or by name")
	c.Flags().StringVar(&q.Protocol, "protocol", "", "`name` of the protocol: tcp, udp, sctp or icmp; with --port tcp unless set")
	protocols := []string{"tcp", "udp", "sctp", "icmp"}
	_ = c.RegisterFlagCompletionFunc("protocol", func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(slices.Clone(protocols), func(p string) bool { return !strings.HasPrefix(p, begun) }), cobra.ShellCompDirectiveNoFileComp
	})
	return a.printing(c)
}
