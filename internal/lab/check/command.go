package check

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/machine"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kubectl checks that a kubectl command succeeds.
func kubectl(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	text, err := cluster.RunKubectl(ctx, r.Instance, c.Kubectl)
	if err != nil {
		return err
	}
	o.Say("%s", lastLine(text))
	return nil
}

// operate runs a culvert command as the operator of the cluster.
func operate(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	cmd := exec.CommandContext(ctx, r.Culvert, c.Command...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it cleans up
	cmd.WaitDelay = instance.ReadyTime
	cmd.Env = append(os.Environ(), "KUBECONFIG="+instance.Kubeconfig(r.Instance))
	return r.Namespace(r.APIServer()).Do(func() error {
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			var failures strings.Builder // lines of the table that report one
			for line := range strings.Lines(stdout.String()) {
				if strings.Contains(line, "FAIL") {
					failures.WriteString(line)
				}
			}
			return fmt.Errorf("culvert %s: %w: %s%s", strings.Join(c.Command, " "), err, &failures, stderr.String())
		}
		o.Say("%s", lastLine(stdout.String()))
		return nil
	})
}

// programOf checks what a program of others writes: a judge of ours.
func programOf(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	var text []byte
	dir, args := filepath.Join(r.Instance.Dir(), c.From), slices.Clone(c.Program[1:])
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, topology.DirWord, dir)
	}
	err := r.Namespace(r.Node(c.From)).Do(func() (err error) {
		text, err = exec.CommandContext(ctx, c.Program[0], args...).CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Program, " "), err, text)
	}
	for _, want := range c.Expect.Says {
		if !bytes.Contains(text, []byte(want)) {
			o.Fail("%s does not say %q: %s", c.Program[0], want, text)
		}
	}
	o.Say("%s", strings.Join(c.Expect.Says, "; "))
	return nil
}

// machineScript checks what a script does in a machine, and what it writes.
func machineScript(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	text, err := machine.Run(ctx, r.Instance, r.Node(c.From), c.Script)
	if err != nil {
		return err
	}
	for _, want := range c.Expect.Says {
		if !strings.Contains(text, want) {
			o.Fail("it does not say %q: %s", want, text)
		}
	}
	o.Say("%s", lastLine(text))
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// showsCheck checks that the output of a command includes what the check expects.
func showsCheck(ctx context.Context, r *disturb.Runner, c *topology.Check, o *report.Outcome) error {
	command := c.Command
	if c.ToName != "" {
		command = append(command[:len(command):len(command)], c.To.String())
	}
	if err := observe.Shows(ctx, r.Instance, r.Node(c.From), c.Expect.Shows, command...); err != nil {
		o.Fail("%v", err)
	}
	return nil
}
