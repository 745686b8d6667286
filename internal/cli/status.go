package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube/operator"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/printer"
)

func statusCommand(a *app) *cobra.Command {
	var cluster bool
	var where operator.Options
	c := &cobra.Command{
		Use: "status", Short: "Show the state of the daemon, or of all daemons of a cluster", Args: cmdline.NoArgs,
		Long: `Shows the state of the daemon. --cluster reads the list of nodes from the
Kubernetes API and asks the agent in each node's pod, as kubectl exec does.

The exit code is 0 if the daemon is ready and the data path is in the desired state,
3 if something is not as it should be (the lines say what), and 1 if the daemon does
not answer or is not ready. With --cluster it is 0 if each node is ready, and 3 if one
is not, or its agent does not answer; 1 if the Kubernetes API does not answer.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if cluster {
				client, err := operator.New(where)
				if err != nil {
					return err
				}
				members, err := askMembers(c.Context(), client)
				if err != nil {
					return err
				}
				return verdictOn(members, a.print(c, members, func(g *printer.Grid) { a.membersTable(g, members) }))
			}
			s, err := ask(a, c, readTimeout, nodeStatusOf)
			if err == nil {
				err = a.print(c, s, func(g *printer.Grid) { a.statusTable(g, s.Status, s.SMFs) })
			}
			if n := len(faults(&s.Status)); err == nil && n > 0 {
				err = cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("not as they should be: %d of these", n))
			}
			return err
		},
	}
	c.Flags().BoolVar(&cluster, "cluster", false, "all nodes of a Kubernetes cluster")
	a.agentFlags(c, &where)
	return a.printing(c)
}

// nodeStatus is what `status` shows of a node.
type nodeStatus struct {
	agent.Status
	// SMFs are those that have an association with its UPF.
	SMFs []agent.AssociationStatus `json:"smfs,omitempty"`
}

func nodeStatusOf(client *api.Client, ctx context.Context) (s nodeStatus, err error) {
	if s.Status, err = client.Status(ctx); err == nil && s.UPF != nil {
		s.SMFs, err = client.Associations(ctx, "")
	}
	return s, err
}

// verdictOn is the exit code of what is shown of a cluster.
func verdictOn(members []member, err error) error {
	n := 0
	for _, m := range members {
		if m.state() != ready {
			n++
		}
	}
	if err == nil && n > 0 {
		err = cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("not as they should be: %d of %d nodes", n, len(members)))
	}
	return err
}

// faults are what is not as it should be.
func faults(s *agent.Status) []string {
	list := slices.Clone(s.Problems)
	for _, in := range s.Interfaces {
		if strings.HasPrefix(in.Attached, "not attached") {
			list = append(list, in.Name+" is "+in.Attached)
		}
		if problem := in.Link.Problem(); problem != "" {
			list = append(list, in.Name+" "+problem)
		}
	}
	if s.UPF != nil && s.UPF.Journal != "" {
		list = append(list, "the journal takes no sessions: "+s.UPF.Journal)
	}
	if o := s.Overlay; o != nil {
		if o.Problem != "" {
			list = append(list, o.Problem)
		}
		list = append(list, o.Problems...)
	}
	if s.Spread != nil && s.Spread.Problem != "" {
		list = append(list, s.Spread.Problem)
	}
	return list
}

// overlayRows are of a member of a cluster.
func overlayRows(g *printer.Grid, o *agent.OverlayStatus) {
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
	g.Row("pods", fmt.Sprintf("%d, MTU %d, in %s", o.Pods, o.MTU, strings.Join(namesOf(o.Self.Prefixes), ", ")))
	if o.BGPSessions > 0 {
		g.Row("BGP sessions", fmt.Sprintf("%d of %d established", o.BGPEstablished, o.BGPSessions))
	}
	g.Row("NetworkPolicy", policyText(o))
	for _, p := range o.Problems {
		g.Row("problem", p)
	}
}

// policyText is what becomes of NetworkPolicies on a node.
func policyText(o *agent.OverlayStatus) string {
	text := o.NetworkPolicy
	if o.Isolated > 0 {
		text += fmt.Sprintf(", %d of %d pods isolated", o.Isolated, o.Pods)
	}
	if o.Closed > 0 {
		text += fmt.Sprintf(", %d closed until the Kubernetes API reports them", o.Closed)
	}
	return text
}

// upfRows are of a user plane function.
func upfRows(g *printer.Grid, u *agent.UPFStatus, smfs []agent.AssociationStatus) {
	g.Row("N4", textsOf(u.N4))
	g.Row("Node ID", u.NodeID)
	associations := fmt.Sprint(u.Associations)
	if silent := u.Associations - u.AssociationsUp; silent > 0 {
		associations += fmt.Sprintf(", %d without heartbeats", silent)
	}
	g.Row("associations", associations)
	for _, smf := range smfs {
		name := smf.Node
		if addrs := textsOf(smf.Addrs); addrs != name {
			name += " at " + addrs
		}
		g.Row("SMF", fmt.Sprintf("%s, %s, %s", name, heartbeats(smf), plural.Of(smf.Sessions, "session")))
	}
	g.Row("sessions", fmt.Sprintf("%d of %d", u.Sessions, u.MaxSessions))
	if len(u.Slices) > 0 {
		g.Row("slices", strings.Join(u.Slices, ", "))
	}
	if u.Journal != "" {
		g.Row("journal", "takes no sessions: "+u.Journal)
	}
	if n := u.N4Fast; n != nil {
		g.Row("PFCP", fmt.Sprintf("the data path answered %d heartbeats, %d modifications; %d messages left to the daemon",
			n.Heartbeats, n.Modifications+n.Repeated, n.Left))
	}
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
	peers := fmt.Sprint(len(u.Peers))
	if len(down) > 0 {
		peers += ", no answer from " + strings.Join(down, ", ")
	}
	g.Row("GTP-U peers", peers)
}

// spreadRows are of a node whose packets are spread over CPUs.
func spreadRows(g *printer.Grid, s *agent.SpreadStatus) {
	if len(s.Cards) > 0 {
		g.Row("spread", fmt.Sprintf("by %s, by the cards of %s", s.By, strings.Join(s.Cards, ", ")))
		return
	}
	split := ""
	if s.Split > 0 {
		split = fmt.Sprintf(", %d heavy UEs by flow", s.Split)
	}
	g.Row("spread", fmt.Sprintf("by %s, %d moves%s", s.By, s.Moves, split))
	for _, c := range s.CPUs {
		full := ""
		if c.Full > 0 {
			full = fmt.Sprintf(", %d dropped: queue full", c.Full)
		}
		g.Row(fmt.Sprintf("CPU %d", c.CPU), fmt.Sprintf("%d packets/s (%.0f %%) in %d buckets, load %.0f %%, %d queued, %d moves here%s",
			c.Rate, 100*c.Share, c.Buckets, 100*c.Load, c.Queued, c.Moves, full))
	}
	if s.Lost > 0 {
		g.Row("lost", fmt.Sprintf("%d packets between CPUs", s.Lost))
	}
	if s.Problem != "" {
		g.Row("problem", s.Problem)
	}
}

func (a *app) statusTable(g *printer.Grid, s agent.Status, smfs []agent.AssociationStatus) {
	g.Row("version", s.Version)
	g.Row("up", a.since(s.Started))
	g.Row("data path", s.DataPath)
	g.Row("pins", s.PinPath)
	g.Row("locators", s.Resources[desired.KindLocator])
	g.Row("SIDs", s.Resources[desired.KindSID])
	g.Row("policies", s.Resources[desired.KindPolicy])
	g.Row("steering", s.Resources[desired.KindSteering])
	g.Row("tunnels", s.Resources[desired.KindTunnel])
	if s.Overlay != nil {
		overlayRows(g, s.Overlay)
	}
	if s.UPF != nil {
		upfRows(g, s.UPF, smfs)
	}
	if s.Spread != nil {
		spreadRows(g, s.Spread)
	}
	for _, p := range s.Problems {
		g.Row("problem", p)
	}
	all, drops := totals(s.Outcomes)
	g.Row("packets", fmt.Sprintf("%d, %d dropped", all, drops))
	if len(s.Interfaces) == 0 { // of a member of a cluster they are its uplinks
		return
	}
	g.Line("")
	g.Row(interfaces.header...)
	for _, in := range s.Interfaces {
		g.Row(interfaces.row(in)...)
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
func totals(outcomes []agent.Outcome) (all, drops uint64) {
	for _, o := range outcomes {
		all += o.Packets
		if o.Drop {
			drops += o.Packets
		}
	}
	return all, drops
}

// member is a node of a cluster, and the status of its agent.
type member struct {
	Node    string        `json:"node"`
	Problem string        `json:"problem,omitempty"` // of the node, or why there is no status
	Status  *agent.Status `json:"status,omitempty"`
}

// agents finds the agents of a cluster and runs commands in their containers.
type agents interface {
	Agents(ctx context.Context) ([]connectivity.Node, error)
	Exec(ctx context.Context, in connectivity.Container, stdin io.Reader, command ...string) ([]byte, error)
}

// How many agents the command asks at a time, and how long it waits for each.
const (
	askedAtOnce = 16
	askLimit    = 15 * time.Second
)

// askMembers asks each agent what culvert status shows.
func askMembers(ctx context.Context, from agents) ([]member, error) {
	nodes, err := from.Agents(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(nodes, func(a, b connectivity.Node) int { return strings.Compare(a.Name, b.Name) })
	members := make([]member, len(nodes))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, n := range nodes {
		group.Go(func() error {
			members[i] = askMember(ctx, from, n)
			return nil
		})
	}
	return members, group.Wait()
}

func askMember(ctx context.Context, from agents, n connectivity.Node) member {
	m := member{Node: n.Name, Problem: n.Problem}
	if n.Agent.Pod == "" {
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	text, err := from.Exec(ctx, n.Agent, nil, connectivity.Program, "status", "-o", "json")
	var s agent.Status
	bad := json.Unmarshal(text, &s)
	if bad == nil { // also where the command fails, because of something in it
		m.Status = &s
		return m
	}
	if m.Problem == "" {
		m.Problem = cmp.Or(err, bad).Error()
	}
	return m
}

// ready is the state of a member with which nothing is wrong.
const ready = "ready"

// state is what is wrong with a member, or that it is ready.
func (m member) state() string {
	wrong := []string{}
	if m.Problem != "" {
		wrong = append(wrong, m.Problem)
	}
	if m.Status != nil {
		if m.Status.Overlay == nil {
			wrong = append(wrong, "it is no member of a cluster: its configuration has no overlay")
		}
		wrong = append(wrong, faults(m.Status)...)
	}
	if len(wrong) == 0 {
		return ready
	}
	return strings.Join(wrong, "; ")
}

func (a *app) membersTable(g *printer.Grid, members []member) {
	policy := map[string][]string{} // nodes
	g.Row("NODE", "ADDRESS", "LOCATOR", "VERSION", "UP", "NODES", "PODS", "MTU", "SIDS", "POLICIES", "BGP", "DROPPED", "STATE")
	for _, m := range members {
		g.Row(a.memberRow(m)...)
		if m.Status != nil && m.Status.Overlay != nil {
			state := m.Status.Overlay.NetworkPolicy
			policy[state] = append(policy[state], m.Node)
		}
	}
	if len(policy) > 0 {
		g.Line("")
	}
	for _, state := range slices.Sorted(maps.Keys(policy)) {
		where := ""
		if len(policy) > 1 {
			where = " on " + strings.Join(policy[state], ", ")
		}
		g.Row("NetworkPolicy is " + state + where + ".")
	}
}

func (a *app) memberRow(m member) []any {
	if m.Status == nil || m.Status.Overlay == nil {
		return []any{m.Node, "", "", "", "", "", "", "", "", "", "", "", m.state()}
	}
	s, o := m.Status, m.Status.Overlay
	bgp := ""
	if o.BGPSessions > 0 {
		bgp = fmt.Sprintf("%d/%d", o.BGPEstablished, o.BGPSessions)
	}
	_, drops := totals(s.Outcomes)
	return []any{m.Node, valid(o.Self.Address), valid(o.Self.Locator), s.Version, a.since(s.Started), o.Nodes, o.Pods, o.MTU,
		s.Resources[desired.KindSID], s.Resources[desired.KindPolicy], bgp, drops, m.state()}
}
