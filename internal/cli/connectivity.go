package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube/operator"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/probe"
)

// Where a connectivity test is, unless said.
const (
	defaultTestNamespace = "culvert-connectivity"
	defaultDaemonSet     = "culvert"
)

// connectivityCommand tests a cluster's network.
func connectivityCommand(a *app) *cobra.Command {
	c := &cobra.Command{Use: "connectivity", Short: "Test the network of a Kubernetes cluster, with pods on its nodes"}
	c.AddCommand(connectivityTestCommand(a), connectivityCleanCommand(a), connectivityServeCommand(), connectivityListeningCommand(), connectivityProbeCommand())
	return c
}

// testFlags say which cluster, and where in it.
func (a *app) testFlags(c *cobra.Command, o *operator.Options) {
	c.Flags().StringVar(&o.Namespace, "namespace", defaultTestNamespace, "`namespace` to create for the test's pods")
	a.agentFlags(c, o)
}

// agentFlags say which cluster, and where the agents are in it.
func (a *app) agentFlags(c *cobra.Command, o *operator.Options) {
	o.Version = a.version
	f := c.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster (default: as kubectl finds it)")
	f.StringVar(&o.System, "system-namespace", config.DefaultKubeNamespace, "`namespace` of the agents")
	f.StringVar(&o.DaemonSet, "daemonset", defaultDaemonSet, "`name` of the agents' DaemonSet")
}

func connectivityTestCommand(a *app) *cobra.Command {
	var where operator.Options
	o := connectivity.Options{Ports: connectivity.Ports{Service: 80}}
	var outside []string
	var limit time.Duration
	var verbose bool
	c := &cobra.Command{
		Use: "test", Short: "Send packets between pods, nodes and Services, and along SR policies", Args: cmdline.NoArgs,
		Long: `Starts three pods on each node, with the agents' image. They send from node to
node, pod to pod, pod to node and node to pod; to a Service by its ClusterIP and by
NodePort; packets as large as the path MTU and larger; and along an SRv6Policy that
the test creates and deletes. Each check runs in every address family of the
cluster. The test prints what was sent, received and lost (TCP: in KiB), and deletes
what it created.

Without -v the rows that passed are summed up by check. You need the rights to
create a namespace, and to run commands in it and in the agents' pods.
The exit code is 3 if a check fails.`,
		Example: `  culvert connectivity test
  culvert connectivity test --node node-1 --node node-2 --outside 2001:db8:9::1 -o json`,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, text := range outside {
				to, err := netip.ParseAddr(text)
				if err != nil {
					return cmdline.Usagef("--outside %q is not an IP address", text)
				}
				o.Outside = append(o.Outside, to)
			}
			o.Progress = c.ErrOrStderr()
			cluster, err := operator.New(where)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), limit)
			defer cancel()
			report, err := connectivity.Run(ctx, cluster, o)
			return errors.Join(a.printConnectivity(c, report, verbose), whyEnded(c, limit, err), verdictOf(report, err))
		},
	}
	a.testFlags(c, &where)
	f := c.Flags()
	f.StringArrayVar(&o.Nodes, "node", nil, "`node` to test; may be repeated (default: all)")
	f.IntVar(&o.Most, "nodes", 0, "test at most this `number` of nodes (default: all)")
	f.StringVar(&o.Image, "image", "", "`image` of the pods (default: that of the agents)")
	f.StringArrayVar(&outside, "outside", nil, "`address` outside the cluster for pods to ping; may be repeated")
	f.BoolVar(&o.Keep, "keep", false, "leave the pods there")
	f.BoolVarP(&verbose, "verbose", "v", false, "a line for each pair of nodes, not only for those that fail")
	f.DurationVar(&limit, "timeout", 10*time.Minute, "`duration` after which the test gives up")
	f.DurationVar(&o.Start, "wait", 2*time.Minute, "`duration` that pods may take to start")
	f.Uint16Var(&o.Ports.Pod, "pod-port", 8080, "`port` at which pods serve")
	f.Uint16Var(&o.Ports.Host, "host-port", 27182, "`port` at which pods in the nodes' own network serve")
	completeNodes(c, &where)
	return a.printing(c)
}

// completeNodes completes --node with the cluster's nodes.
func completeNodes(c *cobra.Command, where *operator.Options) {
	err := c.RegisterFlagCompletionFunc("node", func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		const patience = 3 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var names []string
		if cluster, err := operator.New(*where); err == nil {
			names, _ = cluster.NodeNames(ctx)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag: every test sees it
	}
}

// whyEnded says that the test was interrupted, or took too long.
func whyEnded(c *cobra.Command, limit time.Duration, err error) error {
	switch {
	case err == nil:
		return nil
	case c.Context().Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("not done within %v (--timeout): %w", limit, err)
	}
	return err
}

// verdictOf is the exit code of a test that came to its end.
func verdictOf(r *connectivity.Report, err error) error {
	if err != nil || r.Pass {
		return nil
	}
	return cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("%d of %d checks failed", count(r, connectivity.Fail), len(r.Checks)))
}

// count returns how many checks have that result.
func count(r *connectivity.Report, result connectivity.Result) (n int) {
	for _, row := range r.Checks {
		if row.Result == result {
			n++
		}
	}
	return n
}

func (a *app) printConnectivity(c *cobra.Command, r *connectivity.Report, verbose bool) error {
	if a.format == printer.Table && len(r.Checks) == 0 {
		return nil
	}
	return a.print(c, r, func(g *printer.Grid) {
		rows := r.Checks
		if !verbose {
			rows = r.Folded()
		}
		g.Row("CHECK", "FROM", "TO", "FAMILY", "SENT", "RECEIVED", "LOST", "RESULT", "DETAIL")
		for _, row := range rows {
			g.Row(row.Check, row.From, row.To, row.Family, row.Sent, row.Received, row.Lost, row.Result, row.Detail)
		}
		passed, failed := count(r, connectivity.Pass), count(r, connectivity.Fail)
		g.Gap()
		g.Line(fmt.Sprintf("%d nodes, %d checks in %.0f s: %d passed, %d failed, %d left out",
			r.Nodes, len(r.Checks), r.Seconds, passed, failed, len(r.Checks)-passed-failed))
		for _, hint := range r.Hints {
			g.Line(hint)
		}
	})
}

func connectivityCleanCommand(a *app) *cobra.Command {
	var where operator.Options
	c := &cobra.Command{
		Use: "clean", Short: "Delete what an interrupted test, or one with --keep, left behind", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cluster, err := operator.New(where)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), changeTimeout)
			defer cancel()
			removed, err := cluster.Clean(ctx)
			return errors.Join(say(c, "removed", removed), err)
		},
	}
	a.testFlags(c, &where)
	return c
}

// connectivityServeCommand is what the test's pods run.
func connectivityServeCommand() *cobra.Command {
	s := probe.Server{Name: os.Getenv("NODE_NAME")}
	c := &cobra.Command{
		Use: "serve", Short: "Be a pod of a test", Args: cmdline.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error { return s.Run(c.Context()) },
	}
	c.Flags().Uint16Var(&s.Port, "port", 8080, "`port` of TCP and UDP")
	return c
}

// connectivityListeningCommand is the readiness probe of the kubelet.
func connectivityListeningCommand() *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use: "listening", Short: "Whether this pod of a test serves", Args: cmdline.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			var d net.Dialer
			conn, err := d.DialContext(c.Context(), "tcp", net.JoinHostPort("localhost", fmt.Sprint(port)))
			if err != nil {
				return err
			}
			return conn.Close()
		},
	}
	c.Flags().Uint16Var(&port, "port", 8080, "`port` of the server")
	return c
}

// connectivityProbeCommand is what a test runs in its pods.
func connectivityProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Send what standard input lists, and write what became of it", Args: cmdline.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return connectivity.Answers(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}
