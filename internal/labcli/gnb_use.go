package labcli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/gnb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/printer"
)

// changes are what a gNB saw between two looks at its counters.
func changes(sessions []gnb.Session, before, now *gtpulink.Stats) (list []seen) {
	add := func(event, namespace string, from, to uint64, format string, args ...any) {
		if n := to - from; n > 0 {
			list = append(list, seen{event, namespace, n, fmt.Sprintf(format, append([]any{n}, args...)...)})
		}
	}
	for _, s := range sessions {
		b, n := before.Links[s.Namespace], now.Links[s.Namespace]
		add("end_marker", s.Namespace, b.EndMarkers, n.EndMarkers, "%d End Markers for %s", s.Namespace)
		add("error_indication", s.Namespace, b.Refused, n.Refused,
			"%d Error Indications: the UPF does not know %s of %s: its session is gone", s.UPF, s.Namespace)
	}
	add("unknown_teid", "", before.UnknownTEID, now.UnknownTEID, "%d messages for TEIDs of no UE here, refused by Error Indications")
	return list
}

func (a *app) gnbPing() *cobra.Command {
	var f gnbFlags
	p := gnb.Ping{}
	c := &cobra.Command{
		Use: "ping TARGET", Short: "Attach UEs, ping through the UPF, detach",
		Long: `Attach UEs to a UPF, ping an address from each, and detach. If nothing comes back
the command says where packets went missing, as far as it can tell: it asks the UPF
for a GTP-U Echo Response, and for what the session has counted. The exit status is
3 if a UE got no answer.`,
		Example: `  culvert gnb ping 198.51.100.1 --upf 192.0.2.10 --n3 203.0.113.9 --ue 10.45.0.2
  culvert gnb ping 2001:db8:d::1 --upf 192.0.2.10 --n3 203.0.113.9 --ue 2001:db8:45::2 --pings 100 --interval 10ms -o json
  culvert gnb ping 198.51.100.1 --session-from smf.json`,
		Args: cmdline.Exactly(1, "one address to ping"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if p.To, err = netip.ParseAddr(args[0]); err != nil {
				return cmdline.Usagef("%q is not an address: give one such as 198.51.100.1", args[0])
			}
			if p.Count < 1 || p.Count > 1<<16 || p.Size < 0 || p.Size > 1<<16 || p.Interval < 0 || p.Wait < 0 {
				return cmdline.Usagef("--pings: give 1 to %d; --size: 0 to %d octets; --interval, --wait: 0 or more", 1<<16, 1<<16)
			}
			return f.attach(c, func(at *gnb.Attachment) error { return a.ping(c, at, p) })
		},
	}
	f.add(c)
	flags := c.Flags()
	flags.IntVar(&p.Count, "pings", 5, "`number` of packets of each UE")
	flags.DurationVar(&p.Interval, "interval", time.Second, "`duration` between two packets")
	flags.IntVar(&p.Size, "size", 56, "`octets` of data in each packet")
	flags.DurationVar(&p.Wait, "wait", 2*time.Second, "`duration` to wait for the last answer")
	cmdline.OutputFlag(c, &a.format)
	return c
}

// ping pings from each UE in turn.
func (a *app) ping(c *cobra.Command, at *gnb.Attachment, p gnb.Ping) error {
	if !at.Sessions[0].Source(p.To).IsValid() {
		return noSource(p.To)
	}
	if a.format == printer.Table {
		if err := a.printAttached(c, at); err != nil {
			return err
		}
	}
	out := &smfOutput{a: a, w: c.OutOrStdout()}
	silent := 0
	for i := range at.Sessions {
		if c.Context().Err() != nil {
			break
		}
		s := &at.Sessions[i]
		if a.format == printer.Table {
			fmt.Fprintf(out.w, "\n%s: %s to %s, %d octets of data\n", s.Namespace, s.Source(p.To), p.To, p.Size)
			p.Answered = func(sequence int, after time.Duration) {
				fmt.Fprintf(out.w, "answer from %s: sequence %d, %.3f ms\n", p.To, sequence+1, after.Seconds()*1000)
			}
		}
		r, err := at.Ping(c.Context(), s, p)
		if err != nil {
			return err
		}
		if r.Received == 0 {
			silent++
		}
		out.print(r, func(g *printer.Grid) { pingTable(g, &r) })
	}
	if silent > 0 {
		return errors.Join(out.err, cmdline.WithCode(cmdline.ExitCheckFailed, fmt.Errorf("%d of %d UEs got no answer from %s", silent, len(at.Sessions), p.To)))
	}
	return out.err
}

// noSource is about a target that the UEs cannot send to.
func noSource(to netip.Addr) error {
	return cmdline.Usagef("--ue: the UE has no address of the family of %s: give one", to)
}

// pingTable is the summary of one UE.
func pingTable(g *printer.Grid, r *gnb.PingResult) {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	lost := ""
	if r.Sent > 0 {
		lost = fmt.Sprintf(", %.0f %% lost", 100*float64(r.Sent-r.Received)/float64(r.Sent))
	}
	g.Line(fmt.Sprintf("%d sent, %d received%s", r.Sent, r.Received, lost))
	if r.Received > 0 {
		g.Line(fmt.Sprintf("round trip: %.3f ms least, %.3f ms mean, %.3f ms most", ms(r.Min), ms(r.Mean), ms(r.Max)))
	}
	for _, text := range r.Findings {
		g.Line("- " + text)
	}
}

func (a *app) gnbIperf() *cobra.Command {
	var f gnbFlags
	c := &cobra.Command{
		Use: "iperf TARGET [-- ARGUMENT...]", Short: "Attach a UE, run iperf3 through the UPF, detach",
		Long: `Attach a UE to a UPF, run iperf3 from it to a server, and detach. What follows --
goes to iperf3. The gNB is a program, not a radio: it carries some hundred Mbit/s, so
it measures rates that a session is limited to, and not what the UPF can do ("culvert
bench" does that).`,
		Example: `  culvert gnb iperf 198.51.100.1 --upf 192.0.2.10 --n3 203.0.113.9 --ue 10.45.0.2 --mbr-uplink 50000 --mbr-downlink 100000
  culvert gnb iperf 198.51.100.1 --upf 192.0.2.10 --n3 203.0.113.9 --ue 10.45.0.2 -- --reverse --time 30`,
		Args: cmdline.AtLeastOne("the address of an iperf3 server"),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := netip.ParseAddr(args[0])
			if err != nil {
				return cmdline.Usagef("%q is not an address: give that of an iperf3 server", args[0])
			}
			path, err := exec.LookPath("iperf3")
			if err != nil {
				return errors.New("iperf3 is not installed: apt-get install iperf3")
			}
			return f.attach(c, func(at *gnb.Attachment) error { return a.iperf(c, at, path, to, args[1:]) })
		},
	}
	f.add(c)
	cmdline.OutputFlag(c, &a.format)
	return c
}

// iperf runs iperf3 in the first UE's namespace.
func (a *app) iperf(c *cobra.Command, at *gnb.Attachment, path string, to netip.Addr, more []string) error {
	s := &at.Sessions[0]
	source := s.Source(to)
	if !source.IsValid() {
		return noSource(to)
	}
	args := []string{"--client", to.String(), "--bind", source.String()}
	if a.format == printer.JSON {
		args = append(args, "--json")
	} else if err := a.printAttached(c, at); err != nil {
		return err
	}
	cmd := exec.Command(path, append(args, more...)...)
	cmd.Stdout, cmd.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	err := at.Run(c.Context(), s, cmd)
	if err != nil && !errors.Is(c.Context().Err(), context.Canceled) {
		return fmt.Errorf("iperf3: %w: does an iperf3 server run at %s (iperf3 -s), and does culvert gnb ping reach it?", err, to)
	}
	return nil
}
