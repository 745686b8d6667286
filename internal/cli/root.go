package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

// Exit codes.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitCheckFailed = 3
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
	groupOther  = "other"
)

// New is the command line; extra commands belong to other packages.
func New(version string, extra ...*cobra.Command) *cobra.Command {
	return newRoot(&app{version: version, format: printer.Table, now: time.Now}, extra...)
}

func newRoot(a *app, extra ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:   "culvert",
		Short: "One eBPF data path that speaks GTP-U and SRv6",
		Long: `One eBPF data path that speaks GTP-U and SRv6.

Nouns read, verbs change: "culvert sid" lists SIDs, "culvert sid add" adds one.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 what was checked is not in order.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddGroup(
		&cobra.Group{ID: groupDaemon, Title: "The daemon and its configuration:"},
		&cobra.Group{ID: groupState, Title: "What is configured (each with list, show, and most with add and delete):"},
		&cobra.Group{ID: groupSee, Title: "What is going on:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	flags := root.PersistentFlags()
	flags.StringVar(&a.endpoint.Socket, "socket", config.DefaultSocket, "Unix `path` of the daemon")
	flags.StringVar(&a.endpoint.Address, "address", "", "`host:port` of the daemon in place of the socket")
	flags.StringVar(&a.endpoint.TokenFile, "token-file", "", "`file` with the token for --address")
	flags.StringVar(&a.endpoint.CA, "ca", "", "PEM `file` of the certificate to trust for --address")
	for group, commands := range commandTable(a) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	for _, c := range extra {
		c.GroupID = groupOther
		root.AddCommand(c)
	}
	refuseUnknown(root)
	return root
}

// refuseUnknown has commands that only hold others refuse what is none of them,
// where cobra would show the help as if all were well.
func refuseUnknown(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.RunE = noArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
		refuseUnknown(c)
	}
}

// commandTable is every command of this package; each stands in its own file.
func commandTable(a *app) map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		groupDaemon: {a.run(), a.check(), a.apply(), a.add(), a.delete(), a.config(), a.schema(), a.unpin()},
		groupState:  {a.interfaces(), a.locators(), a.sids(), a.policies(), a.candidatePaths(), a.steering(), a.tunnels(), a.slices()},
		groupSee:    {a.status(), a.bgp(), a.nodes(), a.pods(), a.path(), a.sessions(), a.associations(), a.adjacencies(), a.counters(), a.drops(), a.trace(), a.connectivity(), a.doctor()},
		groupOther:  {a.cni(), a.smf(), a.versionCommand()},
	}
}

// Execute runs the command line and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitError
	switch e, ok := errors.AsType[interface {
		error
		ExitStatus() int
	}](err); {
	case ok:
		code = e.ExitStatus()
	case isCobraUsage(err):
		code = ExitUsage
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(stderr, "culvert: %s\n", text)
	}
	return code
}

// isCobraUsage knows cobra's own complaints about arguments, which have no
// type, of commands that other packages wrote.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "accepts ", "requires at least ", "required flag"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// ExitStatus is what the program ends with. Errors of other packages may have it, too.
func (e *exitError) ExitStatus() int { return e.code }

// usage says that the command line makes no sense.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{ExitUsage, err}
}

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// noArgs, exactly and atLeast are cobra's, as usage errors.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasAvailableSubCommands() {
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2; c.SuggestionsMinimumDistance++ {
			if s := c.SuggestionsFor(args[0]); len(s) > 0 { // the nearest first
				text += fmt.Sprintf(": did you mean %q?", s[0])
				break
			}
		}
		return usage(errors.New(text))
	}
	return usagef("%q takes no arguments, got %q: see %s --help", c.CommandPath(), args[0], c.CommandPath())
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%q takes %s, got %d arguments: see %s --help", c.CommandPath(), what, len(args), c.CommandPath())
		}
		return nil
	}
}

func atLeastOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%q takes %s: see %s --help", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

// read calls the daemon for what it is answered at once.
func (a *app) read(c *cobra.Command, f func(context.Context, *api.Client) error) error {
	return a.call(c, readTimeout, f)
}

// change calls the daemon for what may take a while.
func (a *app) change(c *cobra.Command, f func(context.Context, *api.Client) error) error {
	return a.call(c, changeTimeout, f)
}

func (a *app) call(c *cobra.Command, timeout time.Duration, f func(context.Context, *api.Client) error) error {
	client, err := api.NewClient(a.endpoint)
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	return f(ctx, client)
}

// readFile reads a file, or standard input for "-".
func readFile(c *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, errors.Unwrap(err))
	}
	return data, nil
}
