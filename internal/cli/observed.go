package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/pods"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

var bgpPeers = noun[agent.BGPPeerStatus]{
	kind: "bgp", keyName: "PEER",
	short:  "BGP sessions, which carry candidate paths of SR policies",
	fetch:  (*api.Client).BGPPeers,
	header: []any{"PEER", "ASN", "ROUTER ID", "STATE", "UP FOR", "PATHS", "INTRUDING", "WENT DOWN BECAUSE"},
	row: func(s agent.BGPPeerStatus) []any {
		up := ""
		if s.Since > 0 {
			up = s.Since.Round(time.Second).String()
		}
		return []any{s.Address, s.ASN, valid(s.RouterID), s.State, up, s.Received, s.Intruding, s.Reason}
	},
}

var announcements = noun[agent.AnnouncementStatus]{
	kind: "announcement", aliases: []string{"announcements"}, keyName: "PREFIX",
	short:  "UE prefixes that BGP announces, or why it does not",
	fetch:  (*api.Client).Announcements,
	header: []any{"PREFIX", "NETWORK INSTANCE", "OF", "NEXT HOP", "STATE", "SINCE", "BECAUSE"},
	row: func(s agent.AnnouncementStatus) []any {
		of := map[bool]string{true: "session", false: "pool"}[s.Framed]
		since := ""
		if !s.Since.IsZero() {
			since = s.Since.UTC().Format(time.DateTime)
		}
		return []any{s.Prefix, s.NetworkInstance, of, valid(s.NextHop), s.State, since, s.Reason}
	},
}

var nats = noun[agent.NATStatus]{
	kind: "nat", keyName: "POOL|UE|ADDRESS:PORT",
	short:  "NATs of UE pools, and who has which public address and port",
	fetch:  (*api.Client).NATs,
	header: []any{"POOL", "NETWORK INSTANCE", "PUBLIC ADDRESSES", "PORTS PER UE", "UES PER ADDRESS", "UDP", "TCP", "ICMP"},
	row: func(s agent.NATStatus) []any {
		return []any{s.Pool, s.NetworkInstance, s.Addresses, s.PortsPerUE, s.UEsPerAddress, s.UDP, s.TCP, s.ICMP}
	},
}

var nodes = noun[agent.NodeStatus]{
	kind: "node", keyName: "NODE",
	short:  "The other nodes of the cluster, and the policies that lead to them",
	fetch:  (*api.Client).Nodes,
	header: []any{"NODE", "FROM", "ADDRESS", "PODS", "POLICIES", "STATE", "NOT USED"},
	row: func(s agent.NodeStatus) []any {
		return []any{s.Key(), s.Origin, s.Address, textsOf(s.Prefixes), strings.Join(s.Policies, ","), s.State, strings.Join(s.Problems, "; ")}
	},
}

var localPods = noun[pods.Status]{
	kind: "pod", aliases: []string{"pods"}, keyName: "NAMESPACE/NAME",
	short:  "Pods on this node, with their addresses",
	fetch:  (*api.Client).Pods,
	header: []any{"POD", "TENANT", "INTERFACE", "ADDRESSES", "MAC", "HOST INTERFACE", "PROBLEM"},
	row: func(s pods.Status) []any {
		return []any{s.Key(), s.Tenant, s.Interface, textsOf(s.Addresses), s.MAC, s.HostInterface, s.Problem}
	},
}

var associations = noun[agent.AssociationStatus]{
	kind: "association", aliases: []string{"associations"}, keyName: "NODE",
	short:  "PFCP associations with SMFs",
	fetch:  (*api.Client).Associations,
	header: []any{"NODE", "ADDRESSES", "STATE", "SESSIONS", "SINCE", "SMF STARTED"},
	row: func(s agent.AssociationStatus) []any {
		return []any{s.Node, textsOf(s.Addrs), heartbeats(s), s.Sessions, s.Since.UTC().Format(time.DateTime), s.Recovery.UTC().Format(time.DateTime)}
	},
}

// heartbeats says whether an SMF answers them.
func heartbeats(s agent.AssociationStatus) string {
	if s.Up {
		return "up"
	}
	return "no heartbeats"
}

var adjacencies = noun[agent.AdjacencyStatus]{
	kind: "adjacency", aliases: []string{"adjacencies"}, keyName: "KEY",
	short:  "Next hops, and whether each is ready",
	fetch:  (*api.Client).Adjacencies,
	header: []any{"KEY", "STATE", "INTERFACE", "MAC", "VLANS", "MTU"},
	row: func(s agent.AdjacencyStatus) []any {
		vlans := strings.Trim(strings.ReplaceAll(fmt.Sprint(s.VLANs), " ", "."), "[]")
		state, _, _ := strings.Cut(s.State, ": ")
		return []any{s.Key, state, s.Interface, s.MAC, vlans, s.MTU}
	},
	note: func(s agent.AdjacencyStatus) string {
		_, why, _ := strings.Cut(s.State, ": ")
		return why
	},
}

func dropsCommand(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "drops", Short: "Show why packets were dropped", Args: cmdline.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			drops := func(client *api.Client, ctx context.Context) ([]agent.Outcome, error) {
				outcomes, err := client.Outcomes(ctx, "")
				return slices.DeleteFunc(outcomes, func(o agent.Outcome) bool { return !o.Drop || !all && o.Packets == 0 }), err
			}
			return show(a, c, drops, func(g *printer.Grid, drops []agent.Outcome) {
				g.Row("REASON", "PACKETS", "BYTES", "MEANING")
				for _, o := range drops {
					g.Row(o.Reason, o.Packets, o.Bytes, o.Text)
				}
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "reasons that never happened too")
	return a.printing(c)
}

// sessionCommand is not a noun[T] because a node may have a million sessions.
func sessionCommand(a *app) *cobra.Command {
	c := sessionListCommand(a, "session")
	c.Aliases = []string{"sessions"}
	c.Short = "PFCP sessions of a user plane function"
	c.AddCommand(sessionListCommand(a, "list"), a.printing(&cobra.Command{
		Use: "show SEID", Short: "Show one: its rules in words, usage and buffered packets", Args: cmdline.Exactly(1, "one SEID"),
		Long: `Show one session: each PDR as a sentence with what it forwarded, the usage of each URR,
and buffered packets. -o yaml and -o json have all rules as the SMF sent them, too.`,
		Example: "  culvert session show 0x1a2b3c4d5e6f7\n  culvert session show 0x1a2b3c4d5e6f7 -o yaml",
		RunE: func(c *cobra.Command, args []string) error {
			seid, err := strconv.ParseUint(args[0], 0, 64)
			if err != nil {
				return cmdline.Usagef("%q is not a SEID: give a number, or hexadecimal as 0x1a2b3c4d5e6f7", args[0])
			}
			return show(a, c, func(client *api.Client, ctx context.Context) (s agent.SessionStatus, err error) {
				list, _, err := client.Sessions(ctx, agent.SessionFilter{SEID: &seid})
				if err == nil {
					s = list[0]
				}
				return s, err
			}, sessionTable)
		},
		ValidArgsFunction: cobra.NoFileCompletions, // there may be a million
	}))
	return c
}

// sessionTable is one session in words.
func sessionTable(g *printer.Grid, s agent.SessionStatus) {
	g.Row("SEID", fmt.Sprintf("%#x", s.SEID))
	g.Row("SMF", fmt.Sprintf("%s, SEID %#x", s.Association, s.CPSEID))
	g.Row("UE", textsOf(s.UE))
	g.Row("slice", cmp.Or(s.Slice, "none"))
	g.Row("DNN", s.DNN)
	g.Row("buffered", fmt.Sprintf("%d packets, %d that came when the buffer was full", s.Buffered, s.BufferFull))
	g.Gap()
	g.Row("PDR", "PACKETS", "BYTES", "RULE")
	for _, p := range s.PDRs {
		g.Row(p.PDR, p.Counter.Packets, p.Counter.Bytes, p.Words)
	}
	sessionPolicies(g, s.PDRs)
	if len(s.URRs) == 0 {
		return
	}
	g.Gap()
	g.Row("URR", "UR-SEQN", "UPLINK", "DOWNLINK", "QUOTA")
	for _, u := range s.URRs {
		g.Row(u.URR, u.Sequence, u.Uplink, u.Downlink, map[bool]string{true: "used up"}[u.Exhausted])
	}
}

// sessionPolicies are the SR policies that packets of PDRs take.
func sessionPolicies(g *printer.Grid, list []agent.PDRStatus) {
	begun := false
	for _, p := range list {
		if p.Policy == nil {
			continue
		}
		if !begun {
			begun = true
			g.Gap()
			g.Row("PDR", "CLASS", "SR POLICY", "COLOR", "ENDPOINT", "PATH", "STATE", "WHY")
		}
		v, class := p.Policy.Verdict, cmp.Or(p.Policy.Class, "-")
		if p.Policy.Name == "" {
			g.Row(p.PDR, class, "none: dropped")
			continue
		}
		g.Row(p.PDR, class, p.Policy.Name, p.Policy.Color, valid(p.Policy.Endpoint), cmp.Or(v.Path, "own"), pathState(v), v.Why)
	}
}

// sessionListCommand lists the sessions, as "session" and as "session list".
func sessionListCommand(a *app, name string) *cobra.Command {
	var f agent.SessionFilter
	var ue, teid string
	c := &cobra.Command{
		Use: name, Short: "List sessions, lowest SEID first", Args: cmdline.NoArgs,
		Example: "  culvert session --ue 10.45.0.1\n  culvert session --slice a --limit 10",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := setSessionFilter(&f, ue, teid); err != nil {
				return cmdline.Usage(err)
			}
			return a.listSessions(c, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&ue, "ue", "", "only the session of this UE `address`")
	flags.StringVar(&teid, "teid", "", "only the session with this local `TEID`")
	flags.StringVar(&f.Slice, "slice", "", "only sessions of the slice with this `name`")
	flags.StringVar(&f.Association, "association", "", "only sessions of the SMF with this `Node ID`")
	flags.IntVar(&f.Limit, "limit", 100, "list at most this `number`")
	return a.printing(c)
}

func setSessionFilter(f *agent.SessionFilter, ue, teid string) error {
	if f.Limit < 1 {
		return fmt.Errorf("--limit %d: give 1 or more", f.Limit)
	}
	if ue != "" {
		addr, err := netip.ParseAddr(ue)
		if err != nil {
			return fmt.Errorf("--ue: %q is not an address", ue)
		}
		f.UE = addr
	}
	if teid != "" {
		n, err := strconv.ParseUint(teid, 0, 32)
		if err != nil || n == 0 {
			return fmt.Errorf("--teid: %q is not a TEID: give 1 to 4294967295, or hexadecimal as 0x1a2b", teid)
		}
		f.TEID = uint32(n)
	}
	return nil
}

// sliceCell is the slice of a session, or why it has none.
func sliceCell(s agent.SessionStatus) string {
	if s.Slice == "" && s.SliceNote != "" {
		return "- (" + s.SliceNote + ")"
	}
	return s.Slice
}

func (a *app) listSessions(c *cobra.Command, f agent.SessionFilter) error {
	return show(a, c, func(client *api.Client, ctx context.Context) ([]agent.SessionStatus, error) {
		list, total, err := client.Sessions(ctx, f)
		if more := total - len(list); more > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "culvert: %d more, see --limit\n", more)
		}
		return list, err
	}, func(g *printer.Grid, list []agent.SessionStatus) {
		g.Row("SEID", "UE", "SLICE", "DNN", "TEID", "UP PACKETS", "UP BYTES", "DOWN PACKETS", "DOWN BYTES", "BUFFERED", "SMF")
		for _, s := range list {
			teids := make([]string, len(s.TEIDs))
			for i, t := range s.TEIDs {
				teids[i] = teid(t)
			}
			g.Row(fmt.Sprintf("%#x", s.SEID), textsOf(s.UE), sliceCell(s), s.DNN, strings.Join(teids, ","),
				s.Uplink.Packets, s.Uplink.Bytes, s.Downlink.Packets, s.Downlink.Bytes, s.Buffered, s.Association)
		}
	})
}
