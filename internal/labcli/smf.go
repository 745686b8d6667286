package labcli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
	"github.com/culvert-net/culvert/internal/smf"
)

// smfFlags say which UPF an SMF drives, and what it is itself.
type smfFlags struct {
	upf, local, nodeID, dialect string
	timeout                     smf.Duration
	attempts                    int
	state                       string
}

func (a *app) smf() *cobra.Command {
	c := &cobra.Command{
		Use: "smf", Short: "A small SMF for laboratories: drive any UPF over N4",
		Long: `A small SMF for laboratories and measurements. It drives any UPF over PFCP, in
the dialect of Open5GS' SMF or of free5GC's.

"culvert smf run" runs a scenario file. Each other command does one step, and keeps
the sessions and the Recovery Time Stamp in a state file for the next command. A
command fails if the UPF refuses a request or does not answer; the error names the
cause and the offending IE.`,
	}
	c.AddCommand(a.smfRun(), a.smfReplay(), a.smfResponder())
	for _, v := range smfVerbs {
		c.AddCommand(a.smfVerb(v))
	}
	return c
}

func (f *smfFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.upf, "upf", "", "`address` of the UPF, optionally with a port (default 8805)")
	flags.StringVar(&f.local, "local", "", "local `address` (default: the one on the route to the UPF)")
	flags.StringVar(&f.nodeID, "node-id", "", "Node `ID` of this SMF, an address or a name (default: the local address)")
	flags.TextVar(&f.timeout, "timeout", smf.Duration(time.Second), "`duration` after which a request is sent again")
	flags.IntVar(&f.attempts, "attempts", 3, "`number` of times that a request is sent at most")
}

// addDialect is for those who write messages themselves.
func (f *smfFlags) addDialect(c *cobra.Command) {
	c.Flags().StringVar(&f.dialect, "dialect", "", "`dialect`: open5gs or free5gc")
	cmdline.Complete(c, "dialect", smf.Dialects())
}

// over sets in a scenario what the flags say.
func (f *smfFlags) over(s *smf.Scenario, flags *pflag.FlagSet) {
	s.UPF, s.Local = cmp.Or(f.upf, s.UPF), cmp.Or(f.local, s.Local)
	s.NodeID, s.Dialect = cmp.Or(f.nodeID, s.NodeID), cmp.Or(smf.Dialect(f.dialect), s.Dialect)
	if flags.Changed("timeout") {
		s.Timeout = f.timeout
	}
	if flags.Changed("attempts") {
		s.Attempts = f.attempts
	}
}

func (a *app) smfRun() *cobra.Command {
	var f smfFlags
	var control bool
	c := &cobra.Command{
		Use: "run SCENARIO", Short: "Run a scenario file, step by step",
		Long: `Run the steps of a scenario file, one after another. The first step that fails ends
the run. -o json prints a line for each step that is done, and a line for each
report of the UPF that arrives.

--control reads more steps from standard input, as lines of JSON such as
{"do": "handover", "sessions": "a", "access": {...}} or {"do": "phase",
"phase": "move"}, and prints a line with "step", "ok" and "error" for each. The SMF
answers heartbeats and reports meanwhile. The run ends with the input.`,
		Example: "  culvert smf run scenario.yaml --upf 192.0.2.8\n  culvert smf run scenario.yaml --control -o json",
		Args:    cmdline.Exactly(1, "a scenario file"),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			scenario, err := smf.ParseScenario(text)
			if err != nil {
				return cmdline.Usage(config.InFile(args[0], err))
			}
			f.over(scenario, c.Flags())
			if scenario.UPF == "" {
				return cmdline.Usagef("--upf is missing: give the UPF's address, or write it as upf into %s", args[0])
			}
			return a.runScenario(c, scenario, control)
		},
	}
	f.add(c)
	f.addDialect(c)
	c.Flags().BoolVar(&control, "control", false, "read more steps from standard input")
	cmdline.OutputFlag(c, &a.format)
	return c
}

func (a *app) runScenario(c *cobra.Command, scenario *smf.Scenario, control bool) error {
	client, runner, err := startSMF(c, scenario, nil)
	if err != nil {
		return err
	}
	out := &smfOutput{a: a, w: c.OutOrStdout()}
	ended := out.follow(client)
	err = errors.Join(a.steps(c, runner, scenario, out, control), client.Close())
	close(ended)
	out.done.Wait()
	return errors.Join(err, out.err)
}

// startSMF makes the scenario's client, which goes on with saved sessions unless
// saved is nil.
func startSMF(c *cobra.Command, scenario *smf.Scenario, saved *smf.Saved) (*smf.Client, *smf.Runner, error) {
	options, err := scenario.Options()
	if err != nil {
		return nil, nil, cmdline.Usage(err)
	}
	if saved != nil {
		options.Started, options.Sequence = saved.Started, saved.Sequence
	}
	client, err := smf.Dial(options)
	if err != nil {
		return nil, nil, err
	}
	if saved != nil {
		err = client.Restore(saved)
	}
	var runner *smf.Runner
	if err == nil {
		runner, err = smf.NewRunner(client, scenario)
		err = cmdline.Usage(err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	runner.Progress = (&smfProgress{w: c.ErrOrStderr()}).show
	return client, runner, nil
}

// steps does the scenario's, and then those that come on standard input.
func (a *app) steps(c *cobra.Command, runner *smf.Runner, scenario *smf.Scenario, out *smfOutput, control bool) error {
	for _, step := range scenario.Steps {
		result := runner.Do(c.Context(), step)
		out.step(&result)
		if !result.OK {
			return stepError(c.Context(), &result)
		}
	}
	if !control {
		return nil
	}
	failed := 0
	lines := readLines(c.InOrStdin())
	for {
		select {
		case <-c.Context().Done():
			return nil
		case line, more := <-lines:
			if !more && failed > 0 {
				return fmt.Errorf("failed steps from standard input: %d", failed)
			}
			if !more {
				return nil
			}
			step, err := scenario.ParseStep([]byte(line))
			result := smf.StepResult{Step: step.Do, ID: step.ID}
			if err != nil {
				result.Error = err.Error()
			} else {
				result = runner.Do(c.Context(), step)
			}
			if !result.OK {
				failed++
			}
			out.step(&result)
		}
	}
}

func stepError(ctx context.Context, r *smf.StepResult) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: interrupted", r.Step)
	}
	return errors.New(r.Error)
}

// readLines reads until the end of a file; empty lines are left out.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 16<<20)
		for s.Scan() {
			if line := strings.TrimSpace(s.Text()); line != "" {
				lines <- line
			}
		}
	}()
	return lines
}

// smfResponder is the other end without a UPF.
func (a *app) smfResponder() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "responder", Short: "Accept every request of an SMF and do nothing, to measure the SMF itself",
		Args:    cmdline.NoArgs,
		Example: "  culvert smf responder --listen 127.0.0.8 &\n  culvert smf load --upf 127.0.0.8 --count 100000 --ue4 10.0.0.0/8 --access 192.0.2.1 --access-teid 1",
		RunE: func(c *cobra.Command, _ []string) error {
			address, err := smf.ParseAddr(listen)
			if err != nil {
				return cmdline.Usagef("--listen: %w", err)
			}
			r, err := smf.ListenResponder(address)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "responder on %s; interrupt to end\n", r.Addr())
			return r.Serve(c.Context())
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.8", "`address` to listen on, with a port unless that is 8805")
	return c
}

// smfProgress shows how far long steps are, to whoever watches a terminal.
type smfProgress struct {
	w    io.Writer
	bar  *progressbar.ProgressBar
	step string
}

// fewRequests are done before anybody looks.
const fewRequests = 10_000

func (p *smfProgress) show(step string, done, of int) {
	if of < fewRequests {
		return
	}
	if p.step != step {
		p.step = step
		p.bar = progressbar.NewOptions(of, progressbar.OptionSetWriter(p.w), progressbar.OptionSetVisibility(isTerminal(p.w)),
			progressbar.OptionSetDescription(step), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
	}
	_ = p.bar.Set(done) // what cannot be drawn is not drawn
	if done == of {
		p.step = ""
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// smfOutput prints results and reports as they come, whole lines each.
type smfOutput struct {
	a    *app
	w    io.Writer
	mu   sync.Mutex
	err  error // the first of writing
	done sync.WaitGroup
}

// follow prints reports until what it returns is closed, and those that are
// there then.
func (o *smfOutput) follow(client *smf.Client) chan struct{} {
	ended := make(chan struct{})
	o.done.Go(func() {
		for {
			select {
			case r := <-client.Reports():
				o.report(&r)
			case <-ended:
				for len(client.Reports()) > 0 {
					r := <-client.Reports()
					o.report(&r)
				}
				return
			}
		}
	})
	return ended
}

func (o *smfOutput) print(v any, table func(*printer.Grid)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	switch o.a.format {
	case printer.JSON:
		err = printer.WriteLine(o.w, v)
	case printer.YAML:
		if _, err = io.WriteString(o.w, "---\n"); err == nil {
			err = printer.WriteYAML(o.w, v)
		}
	default:
		err = printer.WriteTable(o.w, table)
	}
	if o.err == nil {
		o.err = err
	}
}

func (o *smfOutput) step(r *smf.StepResult) { o.print(r, func(g *printer.Grid) { stepTable(g, r) }) }
func (o *smfOutput) report(r *smf.Report) {
	o.print(r, func(g *printer.Grid) { g.Line(reportLine(r)) })
}
func stepTable(g *printer.Grid, r *smf.StepResult) {
	verdict := "ok"
	if !r.OK {
		verdict = "FAILED: " + r.Error
	}
	g.Line(fmt.Sprintf("%s: %s (%.3f s)", r.Step, verdict, r.Seconds))
	stepDetails(g, r)
}

// stepDetails are the tables of a step: procedures, sessions, usage.
func stepDetails(g *printer.Grid, r *smf.StepResult) {
	if a := r.Association; a != nil && r.OK {
		g.Row("NODE ID", "RECOVERY TIME STAMP", "FEATURES")
		g.Row(a.NodeID, a.Started.Format("2006-01-02 15:04:05"), strings.Join(a.Features, " "))
	}
	for i := range r.Steps {
		stepTable(g, &r.Steps[i])
	}
	if len(r.Results) > 0 {
		g.Gap()
		g.Row("PROCEDURE", "SESSIONS", "REQUESTS", "FAILURES", "PER SECOND", "P50 US", "P99 US", "MAX US", "SENT AGAIN", "CPU US")
	}
	for _, p := range r.Results {
		g.Row(p.Procedure, p.Group, p.Requests, p.Failures, fmt.Sprintf("%.0f", p.PerSecond), fmt.Sprintf("%.0f", p.P50),
			fmt.Sprintf("%.0f", p.P99), fmt.Sprintf("%.0f", p.Max), p.Retransmissions, fmt.Sprintf("%.1f", p.CPU))
	}
	if r.OK && r.Step == "query" && len(r.Results) == 0 {
		g.Line("no session has a URR: the UPF counts no usage")
	}
	replayTable(g, r.Replay)
	sessionTable(g, r.Sessions)
	usageTable(g, r.Results)
}

func sessionTable(g *printer.Grid, list []smf.Info) {
	if len(list) > 0 {
		g.Gap()
		g.Row("SESSION", "CP SEID", "UP SEID", "UE", "ACCESS F-TEID", "CORE F-TEID", "PEER", "NEXT UPF")
	}
	for _, s := range list {
		up := ""
		if s.Live {
			up = fmt.Sprintf("%#x", s.UPSEID)
		}
		g.Row(fmt.Sprintf("%s %d", s.Group, s.Index), fmt.Sprintf("%#x", s.CPSEID), up, addresses(s.UE4, s.UE6),
			fteid(s.Access), fteid(s.Core), fteid(s.Peer), fteid(s.Next))
	}
}

// fteid is as tshark has it: TEID and addresses.
func fteid(c *smf.Created) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%#x %s", c.TEID, addresses(c.Addr4, c.Addr6)))
}

// addresses are those that there are.
func addresses(list ...netip.Addr) string {
	var texts []string
	for _, a := range list {
		if a.IsValid() {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, " ")
}

// shownUsage is how many sessions' usage a table has: JSON has all of it.
const shownUsage = 16

func usageTable(g *printer.Grid, results []smf.GroupResult) {
	for _, r := range results {
		if len(r.Usage) == 0 {
			continue
		}
		g.Gap()
		g.Row("SESSION", "URR", "UR-SEQN", "TRIGGERS", "UPLINK", "DOWNLINK", "TOTAL", "DURATION")
		for _, u := range r.Usage[:min(len(r.Usage), shownUsage)] {
			for _, one := range u.Reports {
				duration := ""
				if one.Duration != nil {
					duration = time.Duration(*one.Duration).String()
				}
				g.Row(fmt.Sprintf("%s %d", r.Group, u.Session), one.URR, one.Sequence, strings.Join(one.Triggers, " "),
					octets(one.Uplink), octets(one.Downlink), octets(one.Total), duration)
			}
		}
		if more := len(r.Usage) - shownUsage; more > 0 {
			g.Line(fmt.Sprintf("and %d sessions more: -o json has all", more))
		}
	}
}

func octets(n *uint64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// reportLine is a report in a line of text.
func reportLine(r *smf.Report) string {
	text := "report " + string(r.Kind)
	if r.Group != "" {
		text += fmt.Sprintf(", session %s %d", r.Group, r.Session)
	}
	if len(r.DownlinkData) > 0 {
		text += fmt.Sprintf(", downlink data by PDR %v", r.DownlinkData)
	}
	for i := range r.Usage {
		u := &r.Usage[i]
		text += fmt.Sprintf(", usage of URR %d (%s): uplink %s, downlink %s, total %s octets", u.URR, strings.Join(u.Triggers, " "),
			cmp.Or(octets(u.Uplink), "-"), cmp.Or(octets(u.Downlink), "-"), cmp.Or(octets(u.Total), "-"))
	}
	for _, e := range r.ErrorIndications {
		text += ", error indication for " + fteid(&e)
	}
	if paths := slices.Concat(r.Failed, r.Recovered); len(paths) > 0 {
		text += fmt.Sprintf(", paths failed %v, recovered %v", r.Failed, r.Recovered)
	}
	if r.Problem != "" {
		text += ", " + r.Problem
	}
	return text
}
