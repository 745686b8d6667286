package cli

import (
	"cmp"
	"context"
	"errors"
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

// addition is the command add.
func (n noun[T]) addition(a *app) *cobra.Command {
	keyName, args, file := cmp.Or(n.addName, n.keyName), n.args, ""
	if args == nil {
		args = cmdline.Exactly(1, "one "+keyName)
	}
	c := &cobra.Command{
		Use:   "add " + keyName + " [flags] | add -f FILE",
		Short: "Add or replace one; with -f, everything in a file",
		Long: `Add one, or replace the one with that key that was added before.

Each flag is a field of the configuration file, with the same name and meaning
(see culvert schema). -f adds everything in a part of a configuration file, or
nothing if something is wrong; - is standard input.`,
		Example: n.example,
		Args: func(c *cobra.Command, given []string) error {
			if file != "" {
				return cmdline.NoArgs(c, given)
			}
			return args(c, given)
		},
		RunE: func(c *cobra.Command, args []string) error {
			fragment, err := n.fragment(c, file, args)
			if err != nil {
				return err
			}
			return a.add(c, fragment)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "`file` of resources to add, written as in the configuration")
	for _, f := range n.fields {
		switch name := f.flagName(); {
		case f.flag:
			c.Flags().Bool(name, false, f.about)
		case f.list:
			c.Flags().StringArray(name, nil, f.about)
		default:
			c.Flags().Var(new(text), name, f.about)
		}
		if len(f.words) > 0 {
			cmdline.Complete(c, f.flagName(), f.words)
		}
	}
	return a.printing(c)
}

// text is a flag's value as it was typed: the configuration's decoder judges
// it.
type text string

func (t *text) String() string     { return string(*t) }
func (t *text) Set(s string) error { *t = text(s); return nil }
func (t *text) Type() string       { return "value" }

// fragment is the configuration to add: the file's, or what the flags say.
// config.Set reads them with the decoder of configuration files, so that no value
// has a second meaning here.
func (n noun[T]) fragment(c *cobra.Command, file string, args []string) (*config.Config, error) {
	if file != "" {
		for _, f := range n.fields {
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
	fragment, resource := &config.Config{}, n.section+"[0]"
	errs := []error{config.Set(fragment, resource, "")}
	if len(args) > 0 {
		errs = append(errs, config.Set(fragment, resource+"."+cmp.Or(n.addKey, "name"), args[0]))
	}
	for _, f := range n.fields {
		flag := c.Flags().Lookup(f.flagName())
		if f.other || !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if list, ok := flag.Value.(pflag.SliceValue); ok { // the flag may be there several times
			value = strings.Join(list.GetSlice(), ",")
		}
		errs = append(errs, config.Set(fragment, resource+"."+cmp.Or(f.path, f.name), value))
	}
	if n.finish != nil {
		errs = append(errs, n.finish(fragment, resource, c.Flags()))
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
		return nil, cmdline.Usage(n.asFlags(list))
	}
	return fragment, nil
}

// asFlags names in each error the flag or the argument that it is about.
func (n noun[T]) asFlags(list config.Errors) error {
	for i := range list {
		_, path, _ := strings.Cut(list[i].Field, "].")
		name := path[strings.LastIndex(path, ".")+1:]
		for _, f := range n.fields {
			if f.path == path {
				name = f.name
			}
		}
		if list[i].Field = "--" + strings.ReplaceAll(name, "_", "-"); name == cmp.Or(n.addKey, "name") {
			list[i].Field = strings.Trim(cmp.Or(n.addName, n.keyName), "[]")
		}
	}
	return list
}

// addCommand also adds settings without a noun, such as gtpu.
func addCommand(a *app) *cobra.Command {
	return a.printing(&cobra.Command{
		Use: "add FILE", Short: "Add or replace the resources in a part of a configuration file",
		Args: cmdline.Exactly(1, "one FILE (- for standard input)"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := cmdline.ReadFile(c, args[0])
			if err != nil {
				return err
			}
			fragment, err := config.Decode(data)
			if err != nil {
				return config.InFile(args[0], err)
			}
			return a.add(c, fragment)
		},
	})
}

// deleteCommand also deletes settings without a noun, such as gtpu.
func deleteCommand(a *app) *cobra.Command {
	kinds := []string{
		string(desired.KindInterface), string(desired.KindLocator), string(desired.KindSID), string(desired.KindPolicy),
		string(desired.KindCandidatePath), string(desired.KindSteering), string(desired.KindClass), string(desired.KindTunnel), string(desired.KindSlice), string(desired.KindSettings),
	}
	return a.printing(&cobra.Command{
		Use: "delete KIND KEY...", Short: "Delete added resources of one kind, all or none",
		Long:    "Delete added resources of one kind: all those named, or none.\nKinds: " + strings.Join(kinds, ", ") + ".",
		Example: "  culvert delete settings gtpu",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cmdline.Usagef("%q takes a KIND and one KEY or more: see culvert delete --help", c.CommandPath())
			}
			return nil
		},
		RunE:      func(c *cobra.Command, args []string) error { return a.deleteKeys(c, desired.Kind(args[0]), args[1:]) },
		ValidArgs: kinds,
	})
}

func (a *app) add(c *cobra.Command, fragment *config.Config) error {
	return a.change(c, func(client *api.Client, ctx context.Context) ([]desired.Change, error) {
		return client.Add(ctx, fragment)
	})
}

func (a *app) deleteKeys(c *cobra.Command, kind desired.Kind, keys []string) error {
	refs := make([]desired.Ref, len(keys))
	for i, key := range keys {
		refs[i] = desired.Ref{Kind: kind, Key: key}
	}
	return a.change(c, func(client *api.Client, ctx context.Context) ([]desired.Change, error) {
		return client.Delete(ctx, refs)
	})
}

// change calls the daemon for a change and prints what changed. This is all that
// verbs print.
func (a *app) change(c *cobra.Command, f func(*api.Client, context.Context) ([]desired.Change, error)) error {
	changes, err := ask(a, c, changeTimeout, f)
	if err != nil {
		return err
	}
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
