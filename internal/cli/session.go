package cli

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

// sessionCommand is not a noun[T] because a node may have a million sessions.
func sessionCommand(a *app) *cobra.Command {
	c := sessionListCommand(a, "session")
	c.Aliases = []string{"sessions"}
	c.Short = "PFCP sessions of a user plane function"
	show := &cobra.Command{
		Use: "show SEID", Short: "Show one in full: its rules, usage and buffered packets", Args: cmdline.Exactly(1, "one SEID"),
		Example: "  culvert session show 0x6b022c5e00000001",
		RunE:    func(c *cobra.Command, args []string) error { return a.showSession(c, args[0]) },
	}
	a.outputFlag(show)
	c.AddCommand(sessionListCommand(a, "list"), show)
	return c
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
	a.outputFlag(c)
	return c
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

func (a *app) listSessions(c *cobra.Command, f agent.SessionFilter) error {
	return a.read(c, func(ctx context.Context, client *api.Client) error {
		list, total, err := client.Sessions(ctx, f)
		if err != nil {
			return err
		}
		if more := total - len(list); more > 0 {
			fmt.Fprintf(c.ErrOrStderr(), "culvert: %d more, see --limit\n", more)
		}
		return a.print(c, list, func(g *printer.Grid) {
			g.Row("SEID", "UE", "SLICE", "DNN", "TEID", "UP PACKETS", "UP BYTES", "DOWN PACKETS", "DOWN BYTES", "BUFFERED", "SMF")
			for _, s := range list {
				g.Row(fmt.Sprintf("%#x", s.SEID), textsOf(s.UE), s.Slice, s.DNN, hexadecimal(s.TEIDs),
					s.Uplink.Packets, s.Uplink.Bytes, s.Downlink.Packets, s.Downlink.Bytes, s.Buffered, s.Association)
			}
		})
	})
}

func (a *app) showSession(c *cobra.Command, text string) error {
	seid, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return cmdline.Usagef("%q is not a SEID: give a number, or hexadecimal as 0x6b022c5e00000001", text)
	}
	return a.read(c, func(ctx context.Context, client *api.Client) error {
		list, _, err := client.Sessions(ctx, agent.SessionFilter{SEID: &seid})
		if err != nil {
			return err
		}
		if a.format == printer.JSON {
			return printer.WriteJSON(c.OutOrStdout(), list[0])
		}
		return printer.WriteYAML(c.OutOrStdout(), list[0])
	})
}

// textsOf are values as text, with commas.
func textsOf[T fmt.Stringer](list []T) string { return strings.Join(namesOf(list), ",") }

func hexadecimal(list []uint32) string {
	var out []string
	for _, v := range list {
		out = append(out, teid(v))
	}
	return strings.Join(out, ",")
}
