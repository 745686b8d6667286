package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/connectivity"
	"github.com/culvert-net/culvert/internal/kube/operator"
	"github.com/culvert-net/culvert/internal/printer"
)

// member is a node of a cluster, and what its agent says.
type member struct {
	Node    string        `json:"node"`
	Problem string        `json:"problem,omitempty"` // why nothing is said, or of the node
	Status  *agent.Status `json:"status,omitempty"`
}

// agents is what is asked of a cluster.
type agents interface {
	Agents(ctx context.Context) ([]connectivity.Node, error)
	Exec(ctx context.Context, in connectivity.Container, stdin io.Reader, command ...string) ([]byte, error)
}

// Agents are asked so many at a time, and each for so long.
const (
	askedAtOnce = 16
	askLimit    = 15 * time.Second
)

func (a *app) clusterStatus(c *cobra.Command, where operator.Options) error {
	where.Version = a.version
	client, err := operator.New(where)
	if err != nil {
		return err
	}
	members, err := askMembers(c.Context(), client)
	if err != nil {
		return err
	}
	return a.print(c, members, func(g *printer.Grid) { a.membersTable(g, members) })
}

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
	if err == nil {
		m.Status = &agent.Status{}
		err = json.Unmarshal(text, m.Status)
	}
	if err != nil {
		m.Status = nil
		if m.Problem == "" {
			m.Problem = err.Error()
		}
	}
	return m
}

// state is what is wrong with a member, or that it is ready.
func (m member) state() string {
	wrong := []string{}
	if m.Problem != "" {
		wrong = append(wrong, m.Problem)
	}
	if m.Status != nil {
		switch o := m.Status.Overlay; {
		case o == nil:
			wrong = append(wrong, "it is no member of a cluster: its configuration has no overlay")
		case o.Problem != "":
			wrong = append(wrong, o.Problem)
		default:
			wrong = append(wrong, o.Problems...)
		}
	}
	if len(wrong) == 0 {
		return "ready"
	}
	return strings.Join(wrong, "; ")
}

func (a *app) membersTable(g *printer.Grid, members []member) {
	policy := ""
	g.Row("NODE", "ADDRESS", "LOCATOR", "VERSION", "UP", "NODES", "PODS", "MTU", "SIDS", "POLICIES", "BGP", "DROPPED", "STATE")
	for _, m := range members {
		g.Row(a.memberRow(m)...)
		if m.Status != nil && m.Status.Overlay != nil {
			policy = m.Status.Overlay.NetworkPolicy
		}
	}
	if policy != "" {
		g.Line("")
		g.Row("NetworkPolicy is " + policy + ".")
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
	address, locator := "", ""
	if o.Self.Address.IsValid() {
		address = o.Self.Address.String()
	}
	if o.Self.Locator.IsValid() {
		locator = o.Self.Locator.String()
	}
	_, drops := totals(s.Outcomes)
	return []any{m.Node, address, locator, s.Version, a.since(s.Started), o.Nodes, o.Pods, o.MTU,
		s.Resources[agent.KindSID], s.Resources[agent.KindPolicy], bgp, drops.Packets, m.state()}
}
