package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/printer"
)

// NoArgs is a rule for commands without arguments. A parent of other commands
// proposes the nearest one.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasAvailableSubCommands() {
		return Usagef("%q takes no arguments, got %q: see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if s := nearest(c, args[0]); s != "" {
		return Usagef("%s: did you mean %q?", text, s)
	}
	return Usagef("%s: see %s --help", text, c.CommandPath())
}

// nearest is the command in c that a name probably stands for, or "".
func nearest(c *cobra.Command, name string) string {
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2; c.SuggestionsMinimumDistance++ {
		if s := c.SuggestionsFor(name); len(s) > 0 { // the nearest first
			return s[0]
		}
	}
	return ""
}

// UnknownName refuses an argument that is none of the known names of a thing, and proposes the
// nearest one; list is the command that lists them.
func UnknownName(thing, name string, known []string, list string) error {
	names := &cobra.Command{} // cobra's distance is between names of commands
	for _, k := range known {
		names.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	if s := nearest(names, name); s != "" {
		return Usagef("there is no %s %q: did you mean %q?", thing, name, s)
	}
	return Usagef("there is no %s %q: see `%s`", thing, name, list)
}

// Exactly is a rule for n arguments; what describes them, as in "one NAME".
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return Usagef("%q takes %s, got %d arguments: see %s --help", c.CommandPath(), what, len(args), c.CommandPath())
		}
		return nil
	}
}

// AtLeastOne is a rule for one argument or more; what describes them.
func AtLeastOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Usagef("%q takes %s: see %s --help", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

// RefuseUnknown makes commands that only hold others refuse an unknown one,
// where cobra would show the help and succeed; so does "help" of the root.
func RefuseUnknown(c *cobra.Command) {
	if !c.HasParent() {
		refuseUnknownHelp(c)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		RefuseUnknown(sub)
	}
}

func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil {
				return Usage(err)
			}
			if len(rest) > 0 && !c.DisableFlagParsing { // whose help another program has
				return NoArgs(c, rest)
			}
			c.InitDefaultHelpFlag() // which the help shows
			return c.Help()
		}
	}
}

// OutputFlag adds --output to a command. The flag sets format.
func OutputFlag(c *cobra.Command, format *printer.Format) {
	c.Flags().VarP(format, "output", "o", "`format`: table, json or yaml")
	Complete(c, "output", printer.Formats)
}

// Complete completes a flag from a fixed list. It panics if c has no such flag.
func Complete(c *cobra.Command, flag string, values []string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err)
	}
}

// ReadFile reads a file, or standard input for "-".
func ReadFile(c *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, errors.Unwrap(err))
	}
	return data, nil
}
