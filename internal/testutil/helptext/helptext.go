// Package helptext judges the help of command lines: placeholders that are nouns, and
// examples that the commands take.
package helptext

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/shlex"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// placeholders are the words that stand for a flag's value in the help. They say what sort of
// thing it is: in "--attempts number" one sees that "number" is not to be typed.
var placeholders = []string{
	"action", "address", "AS number", "binary", "code", "control", "CPU", "device", "devices", "dialect", "digits", "direction", "directions",
	"directory", "duration", "durations", "families", "file", "filter", "folder", "form", "format", "formats", "frame", "graphs", "host:port", "ID", "image",
	"interface", "interval", "IPFilterRule", "kbit/s", "kind", "kinds", "list", "method", "methods", "Mpps", "name", "NAME=ADDRESS", "NAME=COMMAND", "names",
	"namespace", "NAMESPACE/NAME", "NAMESPACE/POD", "network", "node", "Node ID", "number", "numbers", "octets", "pace", "packets", "part", "parts", "path",
	"percent", "plugins", "port", "prefix", "price", "QFI", "rate", "rates", "repository", "requests", "role", "share", "source", "TEID", "text", "time", "transports",
	"type", "types", "value", "version", "watts", "weight",
}

// Placeholders returns what is wrong with the placeholders of the flags of root and of all its
// commands.
func Placeholders(root *cobra.Command) (wrong []string) {
	each(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			word, _ := pflag.UnquoteUsage(f)
			if word != "" && !slices.Contains(placeholders, word) {
				wrong = append(wrong, fmt.Sprintf("%s --%s %s: not among the placeholders", c.CommandPath(), f.Name, word))
			}
			if strings.HasPrefix(f.Value.Type(), "stringTo") && f.DefValue == "[]" {
				wrong = append(wrong, fmt.Sprintf("%s --%s: the help says (default [])", c.CommandPath(), f.Name))
			}
		})
	})
	return wrong
}

// Examples returns what is wrong with the examples of root and of all its commands: those that
// a command lacks, and those that would be refused before the command begins.
func Examples(root *cobra.Command) (wrong []string) {
	each(root, func(c *cobra.Command) {
		if c.Example == "" {
			wrong = append(wrong, c.CommandPath()+": has no example")
			return
		}
		ownName := false
		for line := range strings.Lines(strings.ReplaceAll(c.Example, "\\\n", " ")) {
			if i := strings.IndexAny(line, "|>&"); i >= 0 { // what reads it
				line = line[:i]
			}
			words, err := shlex.Split(line)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %q: %v", c.CommandPath(), line, err))
				continue
			}
			if i := slices.IndexFunc(words, func(w string) bool { return w == root.Name() }); i < 0 {
				continue // another program's line
			} else if err := Parse(root, words[i+1:]); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s: %q: %v", c.CommandPath(), strings.TrimSpace(line), err))
			}
			ownName = ownName || strings.Contains(line, strings.TrimSuffix(c.CommandPath(), " list")) // which the noun alone does, too
		}
		if !ownName {
			wrong = append(wrong, c.CommandPath()+": no example runs it")
		}
	})
	return wrong
}

// Parse finds the command that args name, and lets it judge its flags and its arguments. It runs
// nothing. root is not to be used after that: flags keep their values.
func Parse(root *cobra.Command, args []string) error {
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c.DisableFlagParsing {
		return nil // another program's command
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	if !c.Runnable() {
		return fmt.Errorf("%q runs nothing", c.CommandPath())
	}
	return c.ValidateArgs(c.Flags().Args())
}

// each calls f for a command and those below it, without cobra's own and hidden ones.
func each(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden || c.Name() == "completion" || c.Name() == "help" || c.DisableFlagParsing {
		return
	}
	f(c)
	for _, sub := range c.Commands() {
		each(sub, f)
	}
}
