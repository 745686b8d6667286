package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/printer"
)

// noun is a sort of resource on the command line, with the commands list and show.
type noun[T any] struct {
	kind    desired.Kind
	aliases []string
	short   string
	keyName string // in usage: NAME, PREFIX
	fetch   func(c *api.Client, ctx context.Context, key string) ([]T, error)
	header  []any
	row     func(T) []any // the first cell is the key
	// note is a sentence about what is in a row, "" for none. Equal ones stand once below the
	// table, where they do not make a column wide.
	note func(T) string

	// section is that of the configuration. Nouns that have one also have the
	// commands add and delete.
	section string
	addName string // of the argument of add, if it is not keyName
	addKey  string // the field that this argument sets, if it is not name
	fields  []field
	example string // of add
	// finish completes the resource with what has no field of its own.
	finish func(c *config.Config, resource string, flags *pflag.FlagSet) error
	args   cobra.PositionalArgs // of add, if it does not take exactly one key
}

func (n noun[T]) command(a *app) *cobra.Command {
	list := func(c *cobra.Command, _ []string) error {
		return show(a, c, n.all, func(g *printer.Grid, all []T) {
			g.Row(n.header...)
			for _, v := range all {
				g.Row(n.row(v)...)
			}
			n.notes(g, all)
		})
	}
	c := a.printing(&cobra.Command{Use: string(n.kind), Aliases: n.aliases, Short: n.short, Args: cmdline.NoArgs, RunE: list})
	c.AddCommand(a.printing(&cobra.Command{Use: "list", Short: "List all", Args: cmdline.NoArgs, RunE: list}), a.printing(&cobra.Command{
		Use: "show " + n.keyName, Short: "Show one in full", Args: cmdline.Exactly(1, "one "+n.keyName),
		RunE: func(c *cobra.Command, args []string) error {
			return show(a, c, func(client *api.Client, ctx context.Context) (one T, err error) {
				found, err := n.fetch(client, ctx, args[0])
				if err == nil {
					one = found[0]
				}
				return one, err
			}, nil)
		},
		ValidArgsFunction: n.completeKeys(a),
	}))
	if n.section != "" {
		c.AddCommand(n.addition(a), a.printing(&cobra.Command{
			Use: "delete " + n.keyName + "...", Aliases: []string{"del", "rm"}, Args: cmdline.AtLeastOne("one " + n.keyName + " or more"),
			Short:             "Delete added resources: all those named, or none",
			RunE:              func(c *cobra.Command, keys []string) error { return a.deleteKeys(c, n.kind, keys) },
			ValidArgsFunction: n.completeKeys(a),
		}))
	}
	return c
}

// notes writes each note once, with the keys of the rows that it is about.
func (n noun[T]) notes(g *printer.Grid, all []T) {
	if n.note == nil {
		return
	}
	var order []string
	keys := map[string][]string{}
	for _, v := range all {
		if note := n.note(v); note != "" {
			if keys[note] == nil {
				order = append(order, note)
			}
			keys[note] = append(keys[note], fmt.Sprint(n.row(v)[0]))
		}
	}
	if len(order) > 0 {
		g.Gap()
	}
	const most = 3 // keys that are read
	for _, note := range order {
		of := keys[note]
		text := strings.Join(of[:min(len(of), most)], ", ")
		if more := len(of) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		g.Line(text + ": " + note)
	}
}

func (n noun[T]) all(client *api.Client, ctx context.Context) ([]T, error) {
	return n.fetch(client, ctx, "")
}

// completeKeys asks the daemon, if it runs, for the keys.
func (n noun[T]) completeKeys(a *app) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) (keys []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 || !strings.HasPrefix(c.Use, "show") {
			all, _ := ask(a, c, readTimeout, n.all)
			for _, v := range all {
				keys = append(keys, fmt.Sprint(n.row(v)[0]))
			}
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}
