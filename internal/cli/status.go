package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/kube/operator"
	"github.com/culvert-net/culvert/internal/printer"
)

func statusCommand(a *app) *cobra.Command {
	var cluster bool
	var where operator.Options
	c := &cobra.Command{
		Use: "status", Short: "Show the state of the daemon, or of all daemons of a cluster", Args: cmdline.NoArgs,
		Long: `Shows the state of the daemon. --cluster reads the list of nodes from the
Kubernetes API and asks the agent in each node's pod, as kubectl exec does.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if cluster {
				return a.clusterStatus(c, where)
			}
			return a.read(c, func(ctx context.Context, client *api.Client) error {
				s, err := client.Status(ctx)
				if err != nil {
					return err
				}
				return a.print(c, s, func(g *printer.Grid) { a.statusTable(g, s) })
			})
		},
	}
	c.Flags().BoolVar(&cluster, "cluster", false, "all nodes of a Kubernetes cluster")
	a.agentFlags(c, &where)
	a.outputFlag(c)
	return c
}

// resourceRows are what is counted, in the order in which it is shown.
var resourceRows = []struct {
	kind  agent.Kind
	label string
}{
	{agent.KindLocator, "locators"}, {agent.KindSID, "SIDs"}, {agent.KindPolicy, "policies"},
	{agent.KindSteering, "steering"}, {agent.KindTunnel, "tunnels"},
}

// overlayRows are of a member of a cluster.
func overlayRows(g *printer.Grid, o *agent.OverlayStatus) {
	if o == nil {
		return
	}
	if o.Problem != "" {
		g.Row("overlay", o.Mode+", not ready: "+o.Problem)
		return
	}
	g.Row("overlay", fmt.Sprintf("%s, %d other nodes", o.Mode, o.Nodes))
	g.Row("node", fmt.Sprintf("%s %s", o.Self.Name, o.Self.Address))
	if o.Self.Locator.IsValid() {
		g.Row("locator", o.Self.Locator)
	}
	for _, sid := range o.SIDs {
		g.Row("node SID", sid)
	}
	g.Row("uplinks", strings.Join(o.Uplinks, ", "))
	prefixes := make([]string, len(o.Self.Prefixes))
	for i, p := range o.Self.Prefixes {
		prefixes[i] = p.String()
	}
	g.Row("pods", fmt.Sprintf("%d, MTU %d, in %s", o.Pods, o.MTU, strings.Join(prefixes, ", ")))
	if o.BGPSessions > 0 {
		g.Row("BGP sessions", fmt.Sprintf("%d of %d established", o.BGPEstablished, o.BGPSessions))
	}
	g.Row("NetworkPolicy", o.NetworkPolicy)
	for _, p := range o.Problems {
		g.Row("problem", p)
	}
}

// upfRows are of a user plane function.
func upfRows(g *printer.Grid, u *agent.UPFStatus) {
	if u == nil {
		return
	}
	g.Row("sessions", fmt.Sprintf("%d of %d, %d associations", u.Sessions, u.MaxSessions, u.Associations))
	g.Row("buffered", fmt.Sprintf("%d packets", u.Buffered))
	for _, p := range u.Pools {
		g.Row("UE pool", fmt.Sprintf("%s %d of %d %s", p.Prefix, p.Used, p.Size, p.NetworkInstance))
	}
	var down []string
	for _, p := range u.Peers {
		if p.Down {
			down = append(down, p.Addr.String())
		}
	}
	peers := fmt.Sprintf("%d", len(u.Peers))
	if len(down) > 0 {
		peers += ", no answer from " + strings.Join(down, ", ")
	}
	g.Row("GTP-U peers", peers)
}

func (a *app) statusTable(g *printer.Grid, s agent.Status) {
	g.Row("version", s.Version)
	g.Row("up", a.since(s.Started))
	g.Row("data path", s.DataPath)
	g.Row("pins", s.PinPath)
	for _, r := range resourceRows {
		g.Row(r.label, s.Resources[r.kind])
	}
	overlayRows(g, s.Overlay)
	upfRows(g, s.UPF)
	all, drops := totals(s.Outcomes)
	g.Row("packets", fmt.Sprintf("%d, %d dropped", all.Packets, drops.Packets))
	if len(s.Interfaces) == 0 { // of a member of a cluster they are its uplinks
		return
	}
	g.Line("")
	g.Row(interfaceHeader...)
	for _, in := range s.Interfaces {
		g.Row(interfaceRow(in)...)
	}
}

// since is how long ago that was.
func (a *app) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return a.now().Sub(t).Truncate(time.Second).String()
}

// totals are all packets, and those of them that were dropped.
func totals(outcomes []agent.Outcome) (all, drops agent.Counter) {
	for _, o := range outcomes {
		all = plus(all, o.Counter)
		if o.Drop {
			drops = plus(drops, o.Counter)
		}
	}
	return all, drops
}

func plus(a, b agent.Counter) agent.Counter {
	return agent.Counter{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes}
}
