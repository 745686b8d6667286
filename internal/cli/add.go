package cli

import (
	"cmp"
	"errors"
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
	path  string   // in the resource, if it is not the name
	other bool     // no field: finish reads the flag
}

func (f field) flagName() string { return strings.ReplaceAll(f.name, "_", "-") }

// adder makes `add` of a resource out of its fields. config.Set reads what the
// flags say, with the decoder of configuration files, so that no value has a second
// meaning here.
type adder struct {
	section string // of the configuration
	keyName string // of the argument
	key     string // field that the argument sets
	fields  []field
	example string
	// finish completes the resource with what has no field of its own.
	finish func(c *config.Config, flags *pflag.FlagSet) error
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
	if file != "" {
		for _, f := range d.fields {
			if c.Flags().Changed(f.flagName()) {
				return nil, cmdline.Usagef("--%s does not go with -f: write it into the file", f.flagName())
			}
		}
		data, err := cmdline.ReadFile(c, file)
		if err != nil {
			return nil, err
		}
		return config.Decode(data)
	}
	fragment, resource := &config.Config{}, d.section+"[0]"
	errs := []error{config.Set(fragment, resource, "")}
	if len(args) > 0 {
		errs = append(errs, config.Set(fragment, resource+"."+d.key, args[0]))
	}
	for _, f := range d.fields {
		if f.other || !c.Flags().Changed(f.flagName()) {
			continue
		}
		errs = append(errs, config.Set(fragment, resource+"."+cmp.Or(f.path, f.name), textOf(values[f.name])))
	}
	if d.finish != nil {
		errs = append(errs, d.finish(fragment, c.Flags()))
	}
	var list config.Errors
	for _, err := range errs {
		if more, ok := errors.AsType[config.Errors](err); ok {
			list = append(list, more...)
		} else if err != nil {
			return nil, cmdline.Usage(err)
		}
	}
	if len(list) > 0 {
		return nil, cmdline.Usage(d.asFlags(list))
	}
	return fragment, nil
}

// textOf is what was typed for a flag, which may have been given several times.
func textOf(v pflag.Value) string {
	if list, ok := v.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return v.String()
}

// asFlags names in each error the flag or the argument that it is about.
func (d adder) asFlags(list config.Errors) error {
	for i := range list {
		name := list[i].Field[strings.LastIndex(list[i].Field, ".")+1:]
		if list[i].Field = "--" + strings.ReplaceAll(name, "_", "-"); name == d.key {
			list[i].Field = strings.Trim(d.keyName, "[]")
		}
	}
	return list
}

// addCommand also adds settings without a noun, such as gtpu.
func addCommand(a *app) *cobra.Command {
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

// deleteCommand also deletes settings without a noun, such as gtpu.
func deleteCommand(a *app) *cobra.Command {
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
