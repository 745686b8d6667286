package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/config"
)

// field is one of a resource's fields as a flag.
type field struct {
	name  string // in the configuration; the flag has - for _
	about string
	list  bool     // of values, separated by commas
	flag  bool     // true or false
	words []string // to complete from
}

func (f field) flagName() string { return strings.ReplaceAll(f.name, "_", "-") }

// adder makes `add` of a resource out of its fields. What the flags say is
// written as the configuration file would have it and read by the same
// decoder, so that no value has a second meaning here.
type adder struct {
	section string // of the configuration
	keyName string // of the argument
	key     string // field that the argument sets; none for a setter of its own
	fields  []field
	example string
	// finish may rearrange what the flags said.
	finish func(set map[string]string, flags *pflag.FlagSet, args []string) error
	args   cobra.PositionalArgs
}

func (d adder) command(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "add " + d.keyName + " [flags] | add -f FILE",
		Short: "Add or replace one; with -f, everything in a file",
		Long: `Add one, or replace the one with that key that was added before.

Each flag is a field of the configuration file, with the same name and meaning
(see culvert schema). -f adds everything in a part of a configuration file, or
nothing if something is wrong; - is standard input.`,
		Example: d.example,
		Args: func(c *cobra.Command, args []string) error {
			if file != "" {
				return cmdline.NoArgs(c, args)
			}
			if d.args != nil {
				return d.args(c, args)
			}
			return cmdline.Exactly(1, "one "+d.keyName)(c, args)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`FILE` of resources to add, written as in the configuration")
	values := d.flags(c)
	a.outputFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		fragment, err := d.fragment(c, file, values, args)
		if err != nil {
			return err
		}
		return a.addFragment(c, fragment)
	}
	return c
}

// text is a flag's value as it was typed: the configuration's decoder judges
// it.
type text string

func (t *text) String() string     { return string(*t) }
func (t *text) Set(s string) error { *t = text(s); return nil }
func (t *text) Type() string       { return "value" }

func (d adder) flags(c *cobra.Command) map[string]pflag.Value {
	values := map[string]pflag.Value{}
	for _, f := range d.fields {
		name := f.flagName()
		switch {
		case f.flag:
			c.Flags().Bool(name, false, f.about)
		case f.list:
			c.Flags().StringArray(name, nil, f.about)
		default:
			c.Flags().Var(new(text), name, f.about)
		}
		if len(f.words) > 0 {
			cmdline.Complete(c, name, f.words)
		}
		values[f.name] = c.Flags().Lookup(name).Value
	}
	return values
}

func (d adder) fragment(c *cobra.Command, file string, values map[string]pflag.Value, args []string) (*config.Config, error) {
	set := map[string]string{} // YAML by field
	for _, f := range d.fields {
		if !c.Flags().Changed(f.flagName()) {
			continue
		}
		if file != "" {
			return nil, cmdline.Usagef("--%s does not go with -f: write it into the file", f.flagName())
		}
		set[f.name] = f.yaml(values[f.name])
	}
	if file != "" {
		data, err := cmdline.ReadFile(c, file)
		if err != nil {
			return nil, err
		}
		return config.Decode(data)
	}
	if d.key != "" {
		set[d.key] = scalar(args[0])
	}
	if d.finish != nil {
		if err := d.finish(set, c.Flags(), args); err != nil {
			return nil, err
		}
	}
	fragment, err := config.Decode([]byte(d.section + ": [" + mapping(set) + "]"))
	if err != nil {
		return nil, cmdline.Usage(d.asFlags(err))
	}
	return fragment, nil
}

// asFlags says of errors in what the flags made which flag is meant.
func (d adder) asFlags(err error) error {
	list, ok := errors.AsType[config.Errors](err)
	if !ok {
		return err
	}
	for i := range list {
		list[i].Line = 0
		name := strings.TrimPrefix(list[i].Field, d.section+"[0].")
		if list[i].Field = "--" + strings.ReplaceAll(name, "_", "-"); name == d.key {
			list[i].Field = d.keyName
		}
	}
	return list
}

func (f field) yaml(v pflag.Value) string {
	slice, ok := v.(pflag.SliceValue)
	if !ok {
		if f.flag {
			return v.String()
		}
		return scalar(v.String())
	}
	return sequence(strings.Join(slice.GetSlice(), ","))
}

var number = regexp.MustCompile(`^-?(0x[0-9a-fA-F]+|[0-9]+)$`)

// scalar is text as a YAML value: a number, or else quoted.
func scalar(text string) string {
	if number.MatchString(text) {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// sequence is values with commas between as a YAML list.
func sequence(text string) string {
	var out []string
	for v := range strings.SplitSeq(text, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, scalar(v))
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func mapping(fields map[string]string) string {
	var out []string
	for name, value := range fields {
		out = append(out, name+": "+value)
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// add adds what has no noun too: settings such as gtpu.
func (a *app) add() *cobra.Command {
	c := &cobra.Command{
		Use: "add FILE", Short: "Add or replace the resources in a part of a configuration file",
		Args: cmdline.Exactly(1, "one FILE (- for standard input)"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			fragment, err := config.Decode(data)
			if err != nil {
				return inFile(args[0], err)
			}
			return a.addFragment(c, fragment)
		},
	}
	a.outputFlag(c)
	return c
}

// delete deletes what has no noun too: settings such as gtpu.
func (a *app) delete() *cobra.Command {
	kinds := []string{
		string(agent.KindInterface), string(agent.KindLocator), string(agent.KindSID), string(agent.KindPolicy),
		string(agent.KindCandidatePath), string(agent.KindSteering), string(agent.KindTunnel), string(agent.KindSlice), string(agent.KindSettings),
	}
	c := &cobra.Command{
		Use: "delete KIND KEY...", Short: "Delete added resources of one kind, all or none",
		Long:    "Delete added resources of one kind: all those named, or none.\nKinds: " + strings.Join(kinds, ", ") + ".",
		Example: "  culvert delete settings gtpu",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cmdline.Usagef("%q takes a KIND and one KEY or more: see culvert delete --help", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var refs []agent.Ref
			for _, key := range args[1:] {
				refs = append(refs, agent.Ref{Kind: agent.Kind(args[0]), Key: key})
			}
			return a.deleteRefs(c, refs)
		},
		ValidArgs: kinds,
	}
	a.outputFlag(c)
	return c
}
