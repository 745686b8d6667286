package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

// noun is a sort of resource on the command line: list, show, and where add is
// given, add and delete.
type noun[T any] struct {
	kind    agent.Kind
	aliases []string
	short   string
	keyName string // in usage: NAME, PREFIX
	fetch   func(c *api.Client, ctx context.Context, key string) ([]T, error)
	key     func(T) string
	header  []any
	row     func(T) []any
	add     *adder // nil: comes and goes with others
}

func (n noun[T]) command(a *app) *cobra.Command {
	list := func(c *cobra.Command, _ []string) error { return n.list(a, c) }
	c := &cobra.Command{Use: string(n.kind), Aliases: n.aliases, Short: n.short, Args: cmdline.NoArgs, RunE: list}
	a.outputFlag(c)
	listing := &cobra.Command{Use: "list", Short: "List all", Args: cmdline.NoArgs, RunE: list}
	a.outputFlag(listing)
	show := &cobra.Command{
		Use: "show " + n.keyName, Short: "Show one in full", Args: cmdline.Exactly(1, "one "+n.keyName),
		RunE:              func(c *cobra.Command, args []string) error { return n.show(a, c, args[0]) },
		ValidArgsFunction: n.completeKeys(a),
	}
	a.outputFlag(show)
	c.AddCommand(listing, show)
	if n.add != nil {
		c.AddCommand(n.add.command(a), n.deletion(a))
	}
	return c
}

func (n noun[T]) list(a *app, c *cobra.Command) error {
	return a.read(c, func(ctx context.Context, client *api.Client) error {
		all, err := n.fetch(client, ctx, "")
		if err != nil {
			return err
		}
		return a.print(c, all, func(g *printer.Grid) {
			g.Row(n.header...)
			for _, v := range all {
				g.Row(n.row(v)...)
			}
		})
	})
}

// show prints everything about one; a table would be one long row, so it is
// YAML unless JSON is asked for.
func (n noun[T]) show(a *app, c *cobra.Command, key string) error {
	return a.read(c, func(ctx context.Context, client *api.Client) error {
		found, err := n.fetch(client, ctx, key)
		if err != nil {
			return err
		}
		if a.format == printer.JSON {
			return printer.WriteJSON(c.OutOrStdout(), found[0])
		}
		return printer.WriteYAML(c.OutOrStdout(), found[0])
	})
}

func (n noun[T]) deletion(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "delete " + n.keyName + "...", Aliases: []string{"del", "rm"}, Args: cmdline.AtLeastOne("one " + n.keyName + " or more"),
		Short: "Delete added resources: all those named, or none",
		RunE: func(c *cobra.Command, keys []string) error {
			refs := make([]agent.Ref, len(keys))
			for i, key := range keys {
				refs[i] = agent.Ref{Kind: n.kind, Key: key}
			}
			return a.deleteRefs(c, refs)
		},
		ValidArgsFunction: n.completeKeys(a),
	}
	a.outputFlag(c)
	return c
}

// completeKeys asks the daemon, if it runs, what there is.
func (n noun[T]) completeKeys(a *app) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var keys []string
		err := a.read(c, func(ctx context.Context, client *api.Client) error {
			all, err := n.fetch(client, ctx, "")
			for _, v := range all {
				keys = append(keys, n.key(v))
			}
			return err
		})
		if err != nil || len(args) > 0 && strings.HasPrefix(c.Use, "show") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) deleteRefs(c *cobra.Command, refs []agent.Ref) error {
	return a.change(c, func(ctx context.Context, client *api.Client) error {
		changes, err := client.Delete(ctx, refs)
		if err != nil {
			return err
		}
		return a.printChanges(c, changes)
	})
}

func (a *app) addFragment(c *cobra.Command, fragment *config.Config) error {
	return a.change(c, func(ctx context.Context, client *api.Client) error {
		changes, err := client.Add(ctx, fragment)
		if err != nil {
			return err
		}
		return a.printChanges(c, changes)
	})
}

// printChanges says what changed; it is all that verbs print.
func (a *app) printChanges(c *cobra.Command, changes []agent.Change) error {
	return a.print(c, changes, func(g *printer.Grid) {
		if len(changes) == 0 {
			g.Line("nothing changes")
		}
		for _, change := range changes {
			text := fmt.Sprintf("%s %s %s", change.Op, change.Kind, change.Key)
			if change.Detail != "" {
				text += ": " + change.Detail
			}
			g.Line(text)
		}
	})
}
