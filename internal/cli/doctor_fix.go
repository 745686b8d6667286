package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/api"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/printer"
)

// fixer runs the commands of findings, after it has asked.
type fixer struct {
	yes     bool // do not ask
	in      io.Reader
	out     io.Writer
	examine func() ([]api.Finding, error)
	run     func(ctx context.Context, out io.Writer, command []string) error
}

// runHere runs a command of a finding on this machine, in this network namespace.
func runHere(ctx context.Context, out io.Writer, command []string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdout, c.Stderr = out, out
	return c.Run()
}

// fix shows the command of each finding that has one, asks, runs them, and returns what is
// found after that. A command that fails does not keep the others from running.
func (f *fixer) fix(ctx context.Context, findings []api.Finding) ([]api.Finding, error) {
	findings = slices.DeleteFunc(slices.Clone(findings), func(x api.Finding) bool { return len(x.Command) == 0 })
	if len(findings) == 0 {
		fmt.Fprintln(f.out, "nothing can be fixed by a command")
		return f.examine()
	}
	sysctl := false
	for _, x := range findings {
		fmt.Fprintf(f.out, "%s: %s\n  %s\n", x.Name, x.Detail, strings.Join(x.Command, " "))
		sysctl = sysctl || x.Command[0] == "sysctl"
	}
	if ok, err := f.agreed(ctx, len(findings)); err != nil || !ok {
		return nil, err
	}
	var failed []string
	for _, x := range findings {
		line := strings.Join(x.Command, " ")
		fmt.Fprintln(f.out, "+", line)
		if err := f.run(ctx, f.out, x.Command); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			failed = append(failed, fmt.Sprintf("%s: %v", line, err))
		}
	}
	if sysctl {
		fmt.Fprintln(f.out, "sysctl's values last until the next start of the machine: write them to a file in /etc/sysctl.d to keep them")
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("%d of %d commands failed:\n  %s", len(failed), len(findings), strings.Join(failed, "\n  "))
	}
	return f.examine()
}

// agreed asks whether to run the commands. No answer is a no.
func (f *fixer) agreed(ctx context.Context, n int) (bool, error) {
	if f.yes {
		return true, nil
	}
	what := "this command"
	if n > 1 {
		what = fmt.Sprintf("these %d commands", n)
	}
	return f.confirmed(ctx, "run "+what+"?")
}

// confirmed asks a question. No answer is a no.
func (f *fixer) confirmed(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(f.out, "%s [y/N] ", question)
	answer, err := cmdline.Await(ctx, func() (string, error) {
		text, err := bufio.NewReader(f.in).ReadString('\n')
		if err == io.EOF {
			err = nil
		}
		return text, err
	})
	if err != nil {
		return false, err
	}
	if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return true, nil
	}
	fmt.Fprintln(f.out, "nothing was changed (--yes does not ask)")
	return false, nil
}

// fixFindings is `culvert doctor --fix`. With -o json the findings that are left are on standard
// output, and what is done is on standard error.
func (a *app) fixFindings(c *cobra.Command, findings []api.Finding, yes bool, examine func() ([]api.Finding, error)) error {
	f := &fixer{yes: yes, in: c.InOrStdin(), out: c.OutOrStdout(), examine: examine, run: a.runFix}
	if a.format != printer.Table {
		if f.out = c.ErrOrStderr(); !yes {
			return cmdline.Usagef("--fix asks before it changes anything: give --yes with -o %s", a.format)
		}
	}
	left, err := f.fix(c.Context(), findings)
	if err != nil || left == nil {
		return err
	}
	return a.printFindings(c, left)
}
