package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/stats"
	"github.com/culvert-net/culvert/internal/cmdline"
)

// reportFile is what report.Draw leaves for a reader.
const reportFile = "report.html"

// Commands are list, run and suite.
func (l *Library) Commands() []*cobra.Command {
	return []*cobra.Command{l.listCommand(), l.runCommand(), l.suiteCommand()}
}

// flags adds those that every experiment has.
func (c *choices) flags(f *pflag.FlagSet) {
	f.StringVar(&c.dir, "dir", "", "`folder` for the run (default: one below ./culvert-bench)")
	f.StringVar(&c.resume, "resume", "", "`folder` of a run to continue where it stopped")
	f.IntVar(&c.rounds, "rounds", 0, "`number` of times that each point is measured (default: what the experiment says)")
	f.Uint64Var(&c.seed, "seed", 0, "`number` that decides everything random (default: what the experiment says)")
	f.BoolVar(&c.quick, "quick", false, "run for seconds only: shows whether it works, not how fast it is")
	f.StringVar(&c.culvert, "culvert", "", "culvert `binary` to measure (default: the one beside this program, or in PATH)")
	f.StringVar(&c.bpffs, "bpffs", "/sys/fs/bpf", "bpffs `directory` for the pins")
	f.IntVar(&c.cpu, "cpu", -1, "`CPU` to measure on (default: the last that may be used)")
	// what --rounds was called at first
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "repeat" {
			name = "rounds"
		}
		return pflag.NormalizedName(name)
	})
}

func (c *choices) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.output, "output", "o", "table", "`format`: table or json")
	cmdline.Complete(cmd, "output", []string{"table", "json"})
}

// check refuses flags that contradict each other. Those of a run that is taken
// up again are in its folder.
func (c *choices) check(flags *pflag.FlagSet) error {
	if c.output != "" && c.output != "table" && c.output != "json" {
		return fmt.Errorf("--output %q: give table or json", c.output)
	}
	if c.rounds < 0 || c.rounds > mostRounds {
		return fmt.Errorf("--rounds %d: give 1 to %d", c.rounds, mostRounds)
	}
	if c.resume == "" {
		return nil
	}
	var wrong []string
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"resume", "output", "culvert", "bpffs", "cpu"}, f.Name) {
			wrong = append(wrong, "--"+f.Name)
		}
	})
	if len(wrong) > 0 {
		return fmt.Errorf("--resume goes on as the run was begun: leave out %s", strings.Join(wrong, ", "))
	}
	return nil
}

// Printer writes a run of a file in one of the formats.
type Printer func(w io.Writer, f *File, run *result.Run) error

// Command is that of the built-in experiment of one name, with flags for its
// parameters.
func (l *Library) Command(name string, c *cobra.Command, printTable, printJSON Printer) *cobra.Command {
	var o choices
	f, err := l.Builtin(name)
	if err != nil {
		panic(err) // the file is built in
	}
	c.Use, c.Args = name, cobra.NoArgs
	f.With.Flags(c.Flags())
	o.flags(c.Flags())
	o.outputFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.check(c.Flags()); err != nil {
			return err
		}
		o.apply(f)
		if err := f.Validate(); err != nil {
			return asFlags(err)
		}
		return l.execute(c, f, &o, commandLine(c, name), printTable, printJSON)
	}
	return c
}

// asFlags names flags where problems name fields of a file that the user does
// not see.
func asFlags(err error) error {
	list, ok := errors.AsType[Problems](err)
	if !ok {
		return err
	}
	list = slices.Clone(list)
	for i := range list {
		field, _, _ := strings.Cut(strings.TrimPrefix(list[i].Field, "with."), "[")
		list[i].Field = "--" + strings.ReplaceAll(field, "_", "-")
	}
	return list
}

// commandLine is what repeats a run: less where it went, and how it was shown.
func commandLine(c *cobra.Command, words ...string) string {
	line := append([]string{"culvert", "bench"}, words...)
	c.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"resume", "output", "dir", "culvert", "bpffs"}, f.Name) {
			line = append(line, fmt.Sprintf("--%s=%s", f.Name, strings.Trim(f.Value.String(), "[]")))
		}
	})
	return strings.Join(line, " ")
}

// execute runs a file as the flags say, and shows what it found.
func (l *Library) execute(c *cobra.Command, f *File, o *choices, command string, printTable, printJSON Printer) (err error) {
	dir := o.dir
	if dir == "" {
		dir = folder(f.Name)
	}
	if o.resume != "" {
		dir = o.resume
		if f, err = LoadFolder(dir, l.Kinds); err != nil {
			return err
		}
	}
	run, err := l.run(c.Context(), f, o, dir, command, o.resume != "", c.ErrOrStderr())
	if run == nil {
		return err
	}
	printer := printTable
	if o.output == "json" {
		printer = printJSON
	}
	if err2 := printer(c.OutOrStdout(), f, run); err == nil {
		err = err2
	}
	report := filepath.Join(dir, reportFile)
	if _, none := os.Stat(report); none == nil { // a full disk may have left no room
		fmt.Fprintln(c.ErrOrStderr(), "report:", report)
	}
	return err
}

// PrintJSON writes all of a run.
func PrintJSON(w io.Writer, _ *File, run *result.Run) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(run)
}

// WriteJSON writes a report, indented.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// PrintTable writes a line for each measurement, and what the run makes of them.
func PrintTable(w io.Writer, _ *File, run *result.Run) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tof\tmedian\tunit\tn\tto baseline")
	for _, m := range run.Measurements {
		beside := "-"
		if len(m.Baseline) > 0 {
			beside = m.Estimate(result.ToBaseline).String()
		}
		var of []string
		for _, k := range slices.Sorted(maps.Keys(m.Labels)) {
			of = append(of, k+"="+m.Labels[k])
		}
		fmt.Fprintf(t, "%s\t%s\t%.6g\t%s\t%d\t%s\n", m.Metric, strings.Join(of, " "), stats.Median(m.Samples), m.Unit, len(m.Samples), beside)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := append(slices.Concat(run.Claims, run.Warnings), run.Environment.String())
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (l *Library) runCommand() *cobra.Command {
	var o choices
	c := &cobra.Command{
		Use:   "run NAME|FILE.yaml",
		Short: "Run an experiment: a built-in one, or one of your own",
		Long: `Runs an experiment: a built-in one (culvert bench list), or one in a YAML file:
copy a built-in one with culvert bench list --show NAME, and change it.
It says how long it will take. A run that is stopped keeps its measurements, and
--resume continues it.`,
		Example: "  culvert bench list --show functions > mine.yaml\n  culvert bench run mine.yaml --dir mine\n  culvert bench run --resume mine",
		Args: func(c *cobra.Command, args []string) error {
			if o.resume != "" {
				return cobra.NoArgs(c, args)
			}
			return cobra.ExactArgs(1)(c, args)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return l.Names, cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(c.Flags()); err != nil {
				return err
			}
			f := &File{}
			if len(args) == 1 {
				load := l.Builtin
				if strings.ContainsAny(args[0], "./") {
					load = func(path string) (*File, error) { return Load(path, l.Kinds) }
				}
				var err error
				if f, err = load(args[0]); err != nil {
					return err
				}
				o.apply(f)
			}
			return l.execute(c, f, &o, commandLine(c, append([]string{"run"}, args...)...), PrintTable, PrintJSON)
		},
	}
	o.flags(c.Flags())
	o.outputFlag(c)
	return c
}

func (l *Library) suiteCommand() *cobra.Command {
	var o choices
	var names []string
	c := &cobra.Command{
		Use:   "suite",
		Short: "Run built-in experiments, with one report",
		Long: `Runs built-in experiments, each into a folder of its own below one, and draws one
report of all: those of the four papers, tables as they grow, devices, disruptions and
traffic engineering, which take an hour and a half together, unless --experiments names
others. The last line of its output is the report's path.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c.Flags()); err != nil {
				return err
			}
			dir, resume := o.dir, o.resume != ""
			switch {
			case resume:
				dir = o.resume
			case dir == "":
				dir = folder("suite")
			}
			err := l.suite(c.Context(), names, &o, dir, resume, c.ErrOrStderr())
			fmt.Fprintln(c.OutOrStdout(), filepath.Join(dir, reportFile))
			return err
		},
	}
	c.Flags().StringSliceVar(&names, "experiments", l.Suite, "`names` of those to run")
	cmdline.Complete(c, "experiments", l.Names)
	o.flags(c.Flags())
	return c
}

// listing is a line of the list.
type listing struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Title   string `json:"title"`
	Seconds int    `json:"seconds"` // that a run takes, about
	Rounds  int    `json:"rounds"`
}

func (l *Library) listCommand() *cobra.Command {
	var o choices
	show := ""
	c := &cobra.Command{
		Use:   "list",
		Short: "List the experiments and how long they take",
		Long:  "Lists the built-in experiments. culvert bench run NAME runs one; those that have a\ncommand of their own (culvert bench --help) take its flags there.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(c.Flags()); err != nil {
				return err
			}
			if show != "" {
				text, err := l.text(show)
				if err != nil {
					return err
				}
				_, err = c.OutOrStdout().Write(text)
				return err
			}
			return l.list(c.OutOrStdout(), o.output)
		},
	}
	c.Flags().StringVar(&show, "show", "", "print the file of the built-in experiment with this `name`, to be copied and changed")
	cmdline.Complete(c, "show", l.Names)
	o.outputFlag(c)
	return c
}

// list writes what there is to be run.
func (l *Library) list(w io.Writer, format string) error {
	var list []listing
	for _, name := range l.Names {
		f, err := l.Builtin(name)
		if err != nil {
			return err
		}
		plan, err := f.With.Plan()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, listing{f.Name, f.Kind, f.Title, int(plan.Takes(f.Rounds).Seconds()), f.Rounds})
	}
	if format == "json" {
		return WriteJSON(w, list)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\ttakes\twhat is measured")
	for _, e := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\n", e.Name, time.Duration(e.Seconds)*time.Second, e.Title)
	}
	return t.Flush()
}
