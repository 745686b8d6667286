package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/api/watch"
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
		Example: "  culvert trace src 2001:db8::/32 and drops\n  culvert trace ue 10.45.0.1\n  culvert trace teid 0x1001 --count 10",
		RunE: func(c *cobra.Command, args []string) error {
			filter, err := parseFilter(args)
			if err != nil {
				return cmdline.Usagef("%w: see culvert trace --help", err)
			}
			started := func() { fmt.Fprintln(c.ErrOrStderr(), "tracing; interrupt to end") }
			_, err = ask(a, c, limit, func(client *api.Client, ctx context.Context) (shown int, err error) {
				return shown, client.Trace(ctx, filter, started, func(e agent.TraceEvent) error {
					if err := a.printEvent(c.OutOrStdout(), e); err != nil {
						return err
					}
					if shown++; shown == count {
						return errEnough
					}
					return nil
				})
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().IntVar(&count, "count", 0, "end after this `number` of packets")
	c.Flags().DurationVar(&limit, "time", 0, "end after this `time`, such as 10s")
	return a.printing(c)
}

// errEnough ends a trace that has shown as many packets as the user requested.
var errEnough = errors.New("enough")

// tracedPacket adds to a record what its frames say.
type tracedPacket struct {
	agent.TraceEvent
	InText  []string `json:"in_text"`
	OutText []string `json:"out_text,omitempty"`
}

func (a *app) printEvent(out io.Writer, e agent.TraceEvent) error {
	packet := tracedPacket{e, frame.Decode(e.In).Layers, frame.Decode(e.Out).Layers}
	switch a.format {
	case printer.JSON:
		return json.NewEncoder(out).Encode(packet)
	case printer.YAML:
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
		return printer.WriteYAML(out, packet)
	}
	_, err := io.WriteString(out, describe(e))
	return err
}

// describe is one packet's journey, a line for each step.
func describe(e agent.TraceEvent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Time.Format("15:04:05.000000"), e.Interface)
	if e.Egress != "" {
		fmt.Fprintf(&b, " -> %s", e.Egress)
	}
	fmt.Fprintf(&b, "  %s\n", e.Reason)
	for _, s := range watch.Steps(e) {
		fmt.Fprintf(&b, "  %-10s %s\n", s.Name, s.Text)
	}
	return b.String() + "\n"
}

const filterGrammar = `FILTER is any of these, joined by "and":

  src PREFIX        the outer source is in PREFIX (an address is one of its own)
  dst PREFIX        the outer destination is in PREFIX
  interface NAME    received on that interface
  sid PREFIX        the local SID that was met is in PREFIX
  teid N            a GTP-U header, received or sent, has this TEID (0x: hexadecimal)
  ue ADDRESS        of the session of the UE with this address; or no session had it,
                    and the address is in a header of it, outer or inner
  user ID           of a session of this subscriber, as the SMF names it: imsi-001010000000001
  seid N            of the session with this SEID of this node (0x: hexadecimal)
  drops             dropped packets only

Without a FILTER every packet is shown.`

// parseFilter reads a filter; "and" may be left out.
func parseFilter(args []string) (agent.TraceFilter, error) {
	var f agent.TraceFilter
	tokens := strings.Fields(strings.Join(args, " "))
	seen := map[string]bool{}
	for i := 0; i < len(tokens); i++ {
		name := strings.ToLower(tokens[i])
		if name == "and" {
			if i == 0 || i == len(tokens)-1 {
				return f, fmt.Errorf(`"and" stands between two conditions`)
			}
			continue
		}
		if seen[name] {
			return f, fmt.Errorf("%s is given twice: a packet has only one", name)
		}
		seen[name] = true
		if name == "drops" {
			f.Drops = true
			continue
		}
		if _, known := conditions[name]; !known {
			return f, fmt.Errorf("%q is not a condition: give src, dst, interface, sid, teid, ue, user, seid or drops", tokens[i])
		}
		if i+1 == len(tokens) || tokens[i+1] == "and" {
			return f, fmt.Errorf("%s needs a value", name)
		}
		i++
		if err := conditions[name](&f, tokens[i]); err != nil {
			return f, fmt.Errorf("%s: %w", name, err)
		}
	}
	return f, nil
}

// conditions are those that have a value.
var conditions = map[string]func(f *agent.TraceFilter, value string) error{
	"src":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.Source, v) },
	"dst":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.Destination, v) },
	"sid":       func(f *agent.TraceFilter, v string) error { return setPrefix(&f.SID, v) },
	"interface": func(f *agent.TraceFilter, v string) error { f.Interface = v; return nil },
	"user":      func(f *agent.TraceFilter, v string) error { f.User = v; return nil },
	"ue": func(f *agent.TraceFilter, v string) (err error) {
		if f.UE, err = netip.ParseAddr(v); err != nil || f.UE.Zone() != "" {
			return fmt.Errorf("%q is not an address of a UE, such as 10.45.0.1 or 2001:db8:45::1", v)
		}
		return nil
	},
	"seid": func(f *agent.TraceFilter, v string) error {
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			return fmt.Errorf("%q is not a SEID: give a number, or hexadecimal as 0x1a2b", v)
		}
		f.SEID = &n
		return nil
	},
	"teid": func(f *agent.TraceFilter, v string) error {
		n, err := strconv.ParseUint(v, 0, 32)
		if err != nil {
			return fmt.Errorf("%q is not a TEID: give 0 to 4294967295, or hexadecimal as 0x1a2b", v)
		}
		teid := uint32(n)
		f.TEID = &teid
		return nil
	},
}

func setPrefix(p *netip.Prefix, text string) error {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		*p = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	parsed, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("%q is neither a prefix such as 2001:db8::/32 nor an address", text)
	}
	*p = parsed.Masked()
	return nil
}
