package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/engine/monitor"
	"github.com/culvert-net/culvert/internal/kube/operator"
)

// pageOf is what a page of this machine shows.
type pageOf struct {
	listen  string // host:port
	engine  string // host:port; empty: none
	cluster bool
	where   operator.Options
}

func uiCommand(a *app) *cobra.Command {
	p := pageOf{listen: "127.0.0.1:0"}
	c := &cobra.Command{
		Use: "ui [--engine ADDRESS] [--cluster]", Short: "Show a daemon, or a cluster, in a browser", Args: cmdline.NoArgs,
		Long: `Serves the web page on this machine, and prints its address, until Ctrl-C. The page reads
from the daemon that --socket or --address names, and changes nothing. Its address holds a
secret: only who has it sees the page.

--cluster shows all nodes of a cluster, and the page of each node that you choose. It asks the
agent in the node's pod, as kubectl exec does: no port is opened, and you need the right to
create pods/exec in the agents' namespace. A daemon serves the page itself if its configuration
has api.page.`,
		Example: "  culvert ui\n  culvert ui --address upf1.example.net:9419 --ca ca.pem --token-file token\n  culvert ui --engine 127.0.0.1:9474\n  culvert ui --cluster",
		RunE:    func(c *cobra.Command, _ []string) error { return a.servePage(c, p) },
	}
	c.Flags().StringVar(&p.listen, "listen", p.listen, "`host:port` of the page, on loopback; port 0: any")
	c.Flags().StringVar(&p.engine, "engine", "", "`host:port` of an engine of traffic engineering: engine.listen of its file")
	c.Flags().BoolVar(&p.cluster, "cluster", false, "all nodes of a Kubernetes cluster")
	a.agentFlags(c, &p.where)
	c.AddCommand(uiRelayCommand(a))
	return c
}

// uiRelayCommand is what a cluster's page runs in the pod of a node's agent.
func uiRelayCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "relay", Short: "Pass standard input and output on to the daemon's socket", Args: cmdline.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return api.Relay(c.Context(), a.endpoint.Socket, c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// servePage serves until the context ends.
func (a *app) servePage(c *cobra.Command, p pageOf) error {
	if host, _, err := net.SplitHostPort(p.listen); err != nil || !onLoopback(host) {
		return cmdline.Usagef("--listen %s: give host:port on loopback, such as 127.0.0.1:8080; for others set api.page in the daemon's configuration", p.listen)
	}
	calls, local, err := a.pageSource(c.Context(), p)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", p.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	secret := rand.Text()
	server := &http.Server{Handler: api.LocalPage(secret, calls, local), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return c.Context() }}
	stop := context.AfterFunc(c.Context(), func() { server.Close() })
	defer stop()
	fmt.Fprintf(c.OutOrStdout(), "http://%s/#token=%s\n", l.Addr(), secret)
	fmt.Fprintln(c.ErrOrStderr(), "Open this address in a browser on this machine. Ctrl-C ends it.")
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func onLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// pageInfo is what the page says of whom it shows.
type pageInfo struct {
	Target  string `json:"target"`
	Cluster bool   `json:"cluster"`
	Engine  bool   `json:"engine"`
}

// membersOf asks each agent of a cluster when the page does.
func membersOf(from agents) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) { return askMembers(ctx, from) }
}

// relays finds the agent of a node and runs commands beside it.
type relays interface {
	AgentOn(ctx context.Context, node string) (connectivity.Container, error)
	Dial(ctx context.Context, in connectivity.Container, command ...string) net.Conn
}

// relayOn returns what starts a relay beside a node's agent. A relay ends when ctx does.
func relayOn(ctx context.Context, from relays) func(context.Context, string) (net.Conn, error) {
	return func(starting context.Context, node string) (net.Conn, error) {
		in, err := from.AgentOn(starting, node)
		if err != nil {
			return nil, err
		}
		return from.Dial(ctx, in, connectivity.Program, "ui", "relay"), nil
	}
}

// pageSource returns what answers the page's calls, and what this command itself answers. It
// fails if there is nobody to ask.
func (a *app) pageSource(ctx context.Context, p pageOf) (calls http.Handler, local map[string]func(context.Context) (any, error), err error) {
	info := pageInfo{Target: a.endpoint.Socket, Cluster: p.cluster, Engine: p.engine != ""}
	local = map[string]func(context.Context) (any, error){"info": func(context.Context) (any, error) { return info, nil }}
	if p.engine != "" {
		local["engine"] = func(ctx context.Context) (any, error) { return monitor.Get(ctx, p.engine) }
	}
	if p.cluster {
		client, err := operator.New(p.where)
		if err != nil {
			return nil, nil, err
		}
		info.Target = "all nodes"
		local["cluster"] = membersOf(client)
		return api.DefaultRelayLimits.NewNodeProxy(relayOn(ctx, client)), local, nil
	}
	if a.endpoint.Address != "" {
		info.Target = a.endpoint.Address
	}
	client, err := api.NewClient(a.endpoint)
	if err != nil {
		return nil, nil, cmdline.Usage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, err := client.Status(ctx); err != nil {
		return nil, nil, err
	}
	calls, err = api.NewProxy(a.endpoint)
	return calls, local, err
}
