package labcli

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/smf/replay"
)

// replayFlags are what `culvert smf replay` makes of a capture.
type replayFlags struct {
	smfFlags
	settings replay.Settings
	addrs    []string // OLD=NEW
	pace     string
	reports  smf.Duration
	until    int
	hold     bool
}

func (a *app) smfReplay() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use: "replay CAPTURE", Short: "Play the SMF's part of a captured N4 conversation, and compare the answers",
		Long: `Play the SMF's part of a captured N4 conversation to a UPF, and compare its answers
with those of the UPF in the capture. CAPTURE is a file (pcap or pcapng), or one of
` + strings.Join(replay.Names(), ", ") + `, which are built in.

SEIDs, TEIDs, sequence numbers, Node IDs, Recovery Time Stamps and addresses become
those of this conversation; what the UPF chooses is taken from its answers. UE
addresses stay: let the UPF's pools hold them. --times plays each session several
times at once, with SEIDs, TEIDs and UE addresses of its own behind the capture's.
The UPF's reports are answered as in the capture.

A difference "matters" if an SMF would notice it: message type, Cause, offending IE,
created PDRs, which of them share an F-TEID, usage reports, missing IEs. Then the
exit status is 3.`,
		Example: `  culvert smf replay n4.pcap --upf 192.0.2.8
  culvert smf replay open5gs --upf 192.0.2.8 --access 192.0.2.1 --times 100
  culvert smf replay free5gc --upf 192.0.2.8 --gtpu 192.0.2.9 -o json`,
		Args: cmdline.Exactly(1, "a capture"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return replay.Names(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.settings.Capture, f.settings.Pace = args[0], replay.Pace(f.pace)
			return a.doReplay(c, &f)
		},
	}
	f.add(c)
	flags := c.Flags()
	flags.TextVar(&f.settings.From, "from", netip.Addr{}, "`address` of the SMF in the capture, if it has several")
	flags.TextVar(&f.settings.To, "to", netip.Addr{}, "`address` of the UPF in the capture, if it has several")
	flags.IntVar(&f.settings.Times, "times", 1, "`number` of times that each session is played, at once")
	flags.TextVar(&f.settings.Access, "access", netip.Addr{}, "`address` of the gNB (default: the capture's)")
	flags.TextVar(&f.settings.GTPU, "gtpu", netip.Addr{}, "`address` of the UPF for GTP-U, where the SMF chooses F-TEIDs (default: the capture's, or the one of N4 if the capture has one for both)")
	flags.StringArrayVar(&f.addrs, "map", nil, "another `address` for a tunnel of the capture, as OLD=NEW; may be repeated")
	flags.StringVar(&f.pace, "pace", string(replay.Fast), "`pace`: fast, or captured: not before a request's time in the capture")
	flags.TextVar(&f.reports, "reports", smf.Duration(0), "`duration` to wait for each Session Report Request that the capture has (default: do not wait)")
	flags.IntVar(&f.until, "until", 0, "`frame` of the capture to stop after (default: the last)")
	flags.BoolVar(&f.hold, "hold", false, "stay at the end, and answer the UPF until interrupted")
	cmdline.Complete(c, "pace", replay.Paces())
	cmdline.OutputFlag(c, &a.format)
	return c
}

// doReplay plays a capture.
func (a *app) doReplay(c *cobra.Command, f *replayFlags) error {
	if f.upf == "" {
		return cmdline.Usagef("--upf is missing: give the UPF's address")
	}
	var err error
	if f.settings.Map, err = parseMap(f.addrs); err != nil {
		return cmdline.Usage(err)
	}
	if f.until < 0 || f.reports < 0 {
		return cmdline.Usagef("--until, --reports: give no number below 0")
	}
	if err := f.settings.Complete(); err != nil {
		return cmdline.Usagef("--%w", err)
	}
	scenario := &smf.Scenario{Replay: &f.settings}
	f.over(scenario, c.Flags())
	client, runner, err := startSMF(c, scenario, nil)
	if err != nil {
		return err
	}
	out := &smfOutput{a: a, w: c.OutOrStdout()}
	ended := out.follow(client)
	result := runner.Do(c.Context(), smf.Step{Do: "replay", Until: f.until, Timeout: f.reports})
	out.step(&result)
	if f.hold && (result.OK || result.Differ) {
		fmt.Fprintln(c.ErrOrStderr(), "the capture is played; interrupt to end")
		<-c.Context().Done()
	}
	err = client.Close()
	close(ended)
	out.done.Wait()
	switch {
	case result.Differ:
		err = errors.Join(err, cmdline.WithCode(cmdline.ExitCheckFailed, errors.New(result.Error)))
	case !result.OK:
		err = errors.Join(err, stepError(c.Context(), &result))
	}
	return errors.Join(err, out.err)
}

// parseMap reads OLD=NEW.
func parseMap(list []string) (map[netip.Addr]netip.Addr, error) {
	m := map[netip.Addr]netip.Addr{}
	for _, text := range list {
		was, is, _ := strings.Cut(text, "=")
		from, err1 := netip.ParseAddr(was)
		to, err2 := netip.ParseAddr(is)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("--map: %q: give two addresses, as in 10.3.0.1=192.0.2.1", text)
		}
		m[from] = to
	}
	return m, nil
}

// replayTable is what became of a captured conversation.
func replayTable(g *printer.Grid, r *replay.Result) {
	if r == nil {
		return
	}
	g.Row("FRAME", "REQUESTS", "LEFT OUT", "REPORTS", "SESSIONS")
	g.Row(r.Frame, r.Requests, r.LeftOut, r.Reports, r.Sessions)
	if len(r.Differences) == 0 {
		return
	}
	g.Gap()
	g.Row("FRAME", "MESSAGE", "SESSION", "COPIES", "IE", "CAPTURED", "LIVE", "MATTERS")
	for _, d := range r.Differences {
		session := ""
		if d.Session > 0 {
			session = fmt.Sprintf("s%d", d.Session)
		}
		g.Row(d.Frame, d.Message, session, d.Copies, d.IE, d.Captured, d.Live, map[bool]string{true: "yes", false: "no"}[d.Matters])
	}
}
