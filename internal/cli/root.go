package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

// How long calls to the daemon may take: reads, and changes, which may be of a
// whole configuration.
const (
	readTimeout   = 30 * time.Second
	changeTimeout = 5 * time.Minute
)

// app is what the commands share.
type app struct {
	version  string
	endpoint api.Endpoint
	format   printer.Format
	now      func() time.Time
	cluster  engineCluster // of `culvert te`
	// runFix runs a command of `culvert doctor --fix`.
	runFix func(ctx context.Context, out io.Writer, command []string) error
}

// groups order the commands in the help.
const (
	groupDaemon = "daemon"
	groupState  = "state"
	groupSee    = "see"
	groupLab    = "lab"
	groupOther  = "other"
)

// New returns the root command of culvert.
func New(version string) *cobra.Command {
	return newRoot(&app{version: version, format: printer.Table, now: time.Now, runFix: runHere, cluster: engineCluster{version: version}})
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "One eBPF data path that speaks GTP-U and SRv6",
		Long: `One eBPF data path that speaks GTP-U and SRv6.

Nouns show state; verbs change it: "culvert sid" lists SIDs, "culvert sid add" adds one.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a check found problems; 130 ended by
Ctrl-C, 143 by SIGTERM.`,
		Version:       a.version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	v := a.versionInfo()
	root.SetVersionTemplate(strings.Join([]string{"culvert", v.Version, v.Go, v.System}, "  ") + "\n") // as `culvert version`
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cmdline.Usage(err) })
	root.AddGroup(
		&cobra.Group{ID: groupDaemon, Title: "The daemon and its configuration:"},
		&cobra.Group{ID: groupState, Title: "Configured resources (all have list and show; most have add and delete):"},
		&cobra.Group{ID: groupSee, Title: "Observe:"},
		&cobra.Group{ID: groupLab, Title: "The laboratory (the program culvert-lab):"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	flags := root.PersistentFlags()
	flags.StringVar(&a.endpoint.Socket, "socket", config.DefaultSocket, "Unix `path` of the daemon")
	flags.StringVar(&a.endpoint.Address, "address", "", "`host:port` of the daemon, instead of the socket")
	flags.StringVar(&a.endpoint.TokenFile, "token-file", "", "`file` with the token for --address")
	flags.StringVar(&a.endpoint.CA, "ca", "", "PEM `file` of the certificate to trust for --address")
	for group, commands := range commandTable(a) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	exemplify(root)
	cmdline.RefuseUnknown(root)
	return root
}

// commandTable is every command of this package.
func commandTable(a *app) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		groupDaemon: build(a, runCommand, checkCommand, applyCommand, addCommand, deleteCommand, configCommand, stateCommand, schemaCommand, unpinCommand),
		groupState: build(a, interfaces.command, locators.command, sids.command, policyCommand, candidatePaths.command,
			steerings.command, classes.command, tunnels.command, networkSlices.command),
		groupSee: build(a, statusCommand, bgpPeers.command, announcements.command, nats.command, nodes.command, localPods.command, pathCommand, verdictCommand, teCommand, sessionCommand, associations.command,
			adjacencies.command, countersCommand, dropsCommand, traceCommand, explainCommand, flowCommand, connectivityCommand, doctorCommand, supportCommand, uiCommand),
		groupLab:   laboratory(),
		groupOther: build(a, cniCommand, versionCommand),
	}
}

func build(a *app, constructors ...func(*app) *cobra.Command) []*cobra.Command {
	commands := make([]*cobra.Command, len(constructors))
	for i, construct := range constructors {
		commands[i] = construct(a)
	}
	return commands
}

// printing adds --output to a command, which prints what it has to say by print or
// show.
func (a *app) printing(c *cobra.Command) *cobra.Command {
	cmdline.OutputFlag(c, &a.format)
	return c
}

// print writes v in the format that the user chose; table writes it as a table. If
// table is nil, a table would be one long row, and print writes YAML instead.
func (a *app) print(c *cobra.Command, v any, table func(*printer.Grid)) error {
	if table == nil && a.format == printer.Table {
		return printer.WriteYAML(c.OutOrStdout(), v)
	}
	return a.format.Print(c.OutOrStdout(), v, table)
}

// show prints what f reads from the daemon.
func show[T any](a *app, c *cobra.Command, f func(*api.Client, context.Context) (T, error), table func(*printer.Grid, T)) error {
	v, err := ask(a, c, readTimeout, f)
	if err != nil {
		return err
	}
	if table == nil {
		return a.print(c, v, nil)
	}
	return a.print(c, v, func(g *printer.Grid) { table(g, v) })
}

// ask calls the daemon and expects its answer within the limit; 0 means no limit.
func ask[T any](a *app, c *cobra.Command, limit time.Duration, f func(*api.Client, context.Context) (T, error)) (answer T, err error) {
	client, err := api.NewClient(a.endpoint)
	if err != nil {
		return answer, cmdline.Usage(err)
	}
	ctx := c.Context()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if answer, err = f(client, ctx); err == nil && c.Context().Err() != nil {
		err = context.Cause(c.Context()) // a stream, which ends without an error
	}
	return answer, err
}
