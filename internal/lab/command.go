package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
	"github.com/culvert-net/culvert/internal/printer"
)

// options are the flags that all commands on an instance have.
type options struct {
	as        string
	culvert   string
	upgradeTo string
	n9        string
	mode      string
	checks    string
	core      string
	smf       string
	packages  string
	before    string
	only      *regexp.Regexp // of checks
	keep      bool
}

// Command returns `culvert lab`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Small networks on this machine: namespaces, SRv6 routers, checks with real traffic",
		Long: `Labs are networks of namespaces on this machine: hosts, SRv6 routers (the
kernel's own, or FRR), culvert nodes and SMFs. They need root, leave nothing behind,
and never touch a namespace that they did not make.`,
	}
	cmd.AddCommand(listCommand(), upCommand(&o), runCommand(&o), downCommand(&o), execCommand(&o), graphCommand(), endpointCommand())
	cmd.AddCommand(&cobra.Command{ // what a node of kind kubelet runs as
		Use: "kubelet FILE", Short: "Be the first process of a node of a cluster", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return kubelet.Init(cmd.Context(), args[0]) },
	})
	return cmd
}

func listCommand() *cobra.Command {
	format, core := printer.Table, ""
	cmd := &cobra.Command{
		Use: "list", Short: "List the labs, and which of them are up", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := coreFolder(core); err != nil {
				return err
			}
			labs, err := topology.List()
			if err != nil {
				return err
			}
			up, err := instance.Up()
			if err != nil {
				return err
			}
			var list []listing
			for _, t := range labs {
				if cmd.Flags().Changed("core") && topology.OfOthers(t) && daemon.HavePrograms(t, core) != nil {
					continue
				}
				list = append(list, listing{t.Name, t.Summary, len(t.Nodes), len(t.Links), len(t.Checks), instancesOf(up[t.Name])})
			}
			return format.Print(cmd.OutOrStdout(), list, func(g *printer.Grid) {
				g.Row("NAME", "UP", "NODES", "CHECKS", "SUMMARY")
				for _, l := range list {
					g.Row(l.Name, strings.Join(l.Up, ","), l.Nodes, l.Checks, l.Summary)
				}
			})
		},
	}
	cmd.Flags().VarP(&format, "output", "o", "`format`: table, json or yaml")
	cmd.Flags().StringVar(&core, "core", "", "only labs whose programs of others are in this `folder`, or installed")
	return cmd
}

// downOf is the command that takes an instance down.
func downOf(in *instance.Instance) string {
	command := "culvert lab down " + in.Topology.Name
	if in.Name != in.Topology.Name {
		command += " --as " + in.Name
	}
	return command
}

func upCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "up NAME", Short: "Build a lab and leave it running", Args: cobra.ExactArgs(1), ValidArgsFunction: completeName,
		RunE: o.on(func(ctx context.Context, _ *cobra.Command, in *instance.Instance, p *report.Progress) error {
			variants, err := o.variants(in.Topology, p)
			if err != nil {
				return err
			}
			if err := up(ctx, in, variants[0], p); err != nil {
				return err
			}
			for _, n := range in.Nodes {
				p.Say("%-8s %-8s %s", n.Name, n.Kind, way(in, n))
			}
			for line := range strings.Lines(in.Topology.Notes) {
				p.Say("%s", strings.ReplaceAll(strings.TrimRight(line, "\n"), "{lab}", in.Name))
			}
			return nil
		}),
	}
	instanceFlags(cmd, o)
	coreFlag(cmd, o)
	packageFlags(cmd, o)
	cmd.Flags().StringVar(&o.smf, "smf", "", "`address` of an SMF of yours, that the UPF obeys too (lab core)")
	variantFlags(cmd, o, "to begin with, in a lab that has several (default: its first)")
	return cmd
}

func runCommand(o *options) *cobra.Command {
	format := printer.Table
	cmd := &cobra.Command{
		Use: "run NAME", Short: "Build a lab, check it with real traffic, take it down", Args: cobra.ExactArgs(1), ValidArgsFunction: completeName,
		Long: `Builds the lab, runs its checks, takes it down, and prints a table of the
checks with what was sent, received and lost (TCP: in KiB). The exit status is
not 0 if a check fails. A lab that is up already is checked as it is, and is taken
down, too, unless --keep is given.`,
		RunE: o.on(func(ctx context.Context, cmd *cobra.Command, in *instance.Instance, p *report.Progress) error {
			variants, err := o.variants(in.Topology, p)
			if err != nil {
				return err
			}
			if err := o.chooseChecks(in.Topology, variants); err != nil {
				return err
			}
			if err := precede(); err != nil {
				return err
			}
			if err := up(ctx, in, variants[0], p); err != nil {
				return err
			}
			summary, err := runChecks(ctx, &disturb.Runner{Instance: in, UpgradeTo: o.upgradeTo}, variants, o.only, p)
			if o.keep {
				p.Say("%s is kept: `%s` takes it down", in.Name, downOf(in))
			} else {
				err = errors.Join(err, in.Down(p))
			}
			if summary == nil {
				return err
			}
			if err := errors.Join(err, report.Write(cmd.OutOrStdout(), summary, format)); err != nil {
				return err
			}
			if !summary.Pass {
				cmd.SilenceUsage = true
				return fmt.Errorf("lab %s: a check failed", summary.Lab)
			}
			return nil
		}),
	}
	instanceFlags(cmd, o)
	coreFlag(cmd, o)
	packageFlags(cmd, o)
	cmd.Flags().VarP(&format, "output", "o", "`format`: table, json or yaml")
	variantFlags(cmd, o, "in a lab that has several (default: all of them, one after another)")
	cmd.Flags().StringVar(&o.checks, "checks", "", "only those checks whose names match this regular expression, a `text`")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "leave the lab up")
	cmd.Flags().StringVar(&o.upgradeTo, "upgrade-to", "", "culvert `binary` that upgrades go to (default: a copy of the same, with another build of the data path)")
	return cmd
}

func downCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "down NAME", Short: "Take a lab down", Args: cobra.ExactArgs(1), ValidArgsFunction: completeName,
		RunE: o.on(func(_ context.Context, _ *cobra.Command, in *instance.Instance, p *report.Progress) error {
			return in.Down(p)
		}),
	}
	instanceFlags(cmd, o)
	return cmd
}

// named is the lab of that name.
func named(name string) (*topology.Topology, error) {
	t, err := topology.Load(name)
	if !errors.Is(err, topology.ErrUnknown) {
		return t, err
	}
	names, err := topology.Names()
	if err != nil {
		return nil, err
	}
	return nil, cmdline.UnknownName("lab", name, names, "culvert lab list")
}

func graphCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "graph NAME", Short: "Draw a lab", Args: cobra.ExactArgs(1), ValidArgsFunction: completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := named(args[0])
			if err != nil {
				return err
			}
			return topology.WriteGraph(cmd.OutOrStdout(), t, format)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "`format`: text, dot, mermaid, table, json or yaml")
	return cmd
}

func instanceFlags(cmd *cobra.Command, o *options) {
	cmd.Flags().StringVar(&o.as, "as", "", "`name` of this instance of the lab (default: the lab's), to have several at once")
	cmd.Flags().StringVar(&o.culvert, "culvert", "", "culvert `binary` that the nodes run (default: the one beside this program, or in PATH)")
}

func coreFlag(cmd *cobra.Command, o *options) {
	cmd.Flags().StringVar(&o.core, "core", "", "`folder` with the programs of others that a lab with a mobile core runs")
	_ = cmd.MarkFlagDirname("core") // fails only for a flag that is not there
}

func packageFlags(cmd *cobra.Command, o *options) {
	cmd.Flags().StringVar(&o.packages, "packages", "", "`folder` with the packages that lab install installs (default: packages, beside this program)")
	cmd.Flags().StringVar(&o.before, "packages-before", "", "`folder` with older packages, from which lab install upgrades (default: copies of the same, with another build of the data path)")
	for _, flag := range []string{"packages", "packages-before"} {
		_ = cmd.MarkFlagDirname(flag) // fails only for a flag that is not there
	}
}

func variantFlags(cmd *cobra.Command, o *options, about string) {
	cmd.Flags().StringVar(&o.n9, "n9", "", "`name` of the transport of N9, "+about)
	cmd.Flags().StringVar(&o.mode, "mode", "", "`name` of the control plane of the overlay, "+about)
	for _, flag := range []string{"n9", "mode"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeVariant(flag)) // fails only for a flag that is not there
	}
}

// variants are those that the flags choose. Without a flag those are left out
// whose programs are not there.
func (o *options) variants(t *topology.Topology, p *report.Progress) ([]string, error) {
	if o.mode != "" {
		list, err := t.ChosenVariants("mode", o.mode)
		return list, cmdline.Usage(err)
	}
	list, err := t.ChosenVariants("n9", o.n9)
	if i := slices.Index(list, topology.KubeMode); err == nil && i >= 0 {
		if missing := cluster.HavePrograms(cluster.EtcdProcess, cluster.APIServerProcess, cluster.ProxyProcess); missing != nil {
			p.Say("%s: mode %s is left out: %v", t.Name, topology.KubeMode, missing)
			list = slices.Delete(slices.Clone(list), i, i+1)
		}
	}
	return list, cmdline.Usage(err)
}

// chooseChecks reads --checks, before anything is built or taken down.
func (o *options) chooseChecks(t *topology.Topology, variants []string) (err error) {
	if o.only, err = regexp.Compile(o.checks); err != nil {
		return cmdline.Usagef("--checks: %w", err)
	}
	all := t.Plan(variants, nil)
	if len(all) > 0 && len(t.Plan(variants, o.only)) == 0 {
		return cmdline.Usagef("--checks: no check of lab %s matches %q: a name is such as %q", t.Name, o.only, all[0].Title())
	}
	return nil
}

// completeVariant proposes the variants of the lab that is named already.
func completeVariant(flag string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		t, err := topology.Load(args[0])
		if err != nil || len(t.VariantNames()) == 0 || t.VariantWord() != flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return append(t.VariantNames(), topology.AllVariants), cobra.ShellCompDirectiveNoFileComp
	}
}

// on runs a command that calls f with the locked instance. An interrupt ends f's
// context, so that what is up is taken down.
func (o *options) on(f func(context.Context, *cobra.Command, *instance.Instance, *report.Progress) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, err := named(args[0])
		if err != nil {
			return err
		}
		if o.smf != "" {
			smf, err := netip.ParseAddr(o.smf)
			if err != nil {
				return cmdline.Usagef("--smf: %q is not an address such as 203.0.113.7", o.smf)
			}
			if err := topology.UseSMF(t, smf); err != nil {
				return cmdline.Usage(err)
			}
		}
		core, err := coreFolder(o.core)
		if err != nil {
			return err
		}
		if o.upgradeTo != "" {
			if o.upgradeTo, err = programPath("--upgrade-to", o.upgradeTo); err != nil {
				return err
			}
		}
		culvert, err := programPath("--culvert", o.culvert)
		if runs := o.culvert != "" || slices.ContainsFunc(t.Nodes, (*topology.Node).Culvert); err != nil && runs {
			return err
		}
		in, err := instance.Open(t, o.as, culvert)
		if err != nil {
			return err
		}
		in.Core, in.Packages, in.PackagesBefore = core, o.packages, o.before
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		err = f(ctx, cmd, in, &report.Progress{W: cmd.ErrOrStderr()})
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("lab %s: interrupted", in.Name)
		}
		return errors.Join(err, in.Close())
	}
}

// programPath is the absolute path of the culvert binary that a flag names, or of
// the one that belongs to this program.
func programPath(flag, path string) (string, error) {
	if path == "" {
		return cmdline.Program("culvert")
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", cmdline.Usagef("%s: %w: give the path of a culvert binary", flag, err)
	}
	return filepath.Abs(path)
}

// coreFolder is the absolute path of the folder that --core names, if it names one.
func coreFolder(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return "", cmdline.Usagef("--core: %s is no folder: give the one with the programs", path)
	}
	return filepath.Abs(path)
}

func completeName(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	list, err := topology.List()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, t := range list {
		names = append(names, t.Name+"\t"+t.Summary)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// endpointCommand is what a node's GTP-U endpoint runs as.
func endpointCommand() *cobra.Command {
	var links, control string
	cmd := &cobra.Command{
		Use: "endpoint", Short: "Be a GTP-U endpoint in this network namespace", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := os.ReadFile(links)
			if err != nil {
				return err
			}
			var list []gtpulink.Link
			if err := json.Unmarshal(text, &list); err != nil {
				return fmt.Errorf("%s: %w", links, err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return gtpulink.Serve(ctx, list, control)
		},
	}
	cmd.Flags().StringVar(&links, "links", "", "JSON file with the links")
	cmd.Flags().StringVar(&control, "control", "", "path of the control socket")
	return cmd
}

// listing is a lab in `culvert lab list`.
type listing struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
	Nodes   int    `json:"nodes"`
	Links   int    `json:"links"`
	Checks  int    `json:"checks"`
	// Up are the instances that are there.
	Up []string `json:"up,omitempty"`
}

// instancesOf says which instances of a lab are there, and which of them not in full.
func instancesOf(list []instance.State) (out []string) {
	for _, s := range list {
		text := s.Instance
		switch {
		case !s.Ready:
			text += " (not complete)"
		case s.Instance == s.Lab:
			text = "yes"
		}
		out = append(out, text)
	}
	return out
}
