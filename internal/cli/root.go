package cli

import (
	"context"
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
	return newRoot(&app{version: version, format: printer.Table, now: time.Now})
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "One eBPF data path that speaks GTP-U and SRv6",
		Long: `One eBPF data path that speaks GTP-U and SRv6.

Nouns show state; verbs change it: "culvert sid" lists SIDs, "culvert sid add" adds one.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a check found problems.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cmdline.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
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
	cmdline.RefuseUnknown(root)
	return root
}

// commandTable is every command of this package; each stands in its own file.
func commandTable(a *app) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		groupDaemon: build(a, runCommand, checkCommand, applyCommand, addCommand, deleteCommand, configCommand, schemaCommand, unpinCommand),
		groupState:  build(a, interfaceCommand, locatorCommand, sidCommand, policyCommand, candidatePathCommand, steeringCommand, tunnelCommand, sliceCommand),
		groupSee: build(a, statusCommand, bgpCommand, nodeCommand, podCommand, pathCommand, sessionCommand, associationCommand,
			adjacencyCommand, countersCommand, dropsCommand, traceCommand, connectivityCommand, doctorCommand),
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

// read calls the daemon and expects its answer within readTimeout.
func (a *app) read(c *cobra.Command, f func(context.Context, *api.Client) error) error {
	return a.call(c, readTimeout, f)
}

// change calls the daemon for a change, within changeTimeout.
func (a *app) change(c *cobra.Command, f func(context.Context, *api.Client) error) error {
	return a.call(c, changeTimeout, f)
}

func (a *app) call(c *cobra.Command, timeout time.Duration, f func(context.Context, *api.Client) error) error {
	client, err := api.NewClient(a.endpoint)
	if err != nil {
		return cmdline.Usage(err)
	}
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	return f(ctx, client)
}
