package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// kubectl runs kubectl as the administrator, where it reaches kube-apiserver.
func kubectl(ctx context.Context, in *instance.Instance, input []byte, args ...string) (out []byte, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(clusterPrograms(), "kubectl"), append([]string{"--kubeconfig", in.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	err = in.Namespace(in.APIServer()).Do(func() error {
		out, err = namespace.Output(cmd)
		return err
	})
	return out, errors.Join(err, ctx.Err())
}

func (r *runner) runCommand(ctx context.Context, c *topology.Command) (string, error) {
	input, err := manifest(c.Input)
	if err != nil {
		return "", err
	}
	out, err := kubectl(ctx, r.Instance, input, c.Args...)
	text := strings.TrimSpace(string(out))
	if err == nil && !regexp.MustCompile(c.Output).MatchString(text) {
		err = fmt.Errorf("kubectl %s: %q does not match %q", strings.Join(c.Args, " "), text, c.Output)
	}
	return text, err
}

// manifest is objects as one text.
func manifest(objects []map[string]any) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

// asks is the check that kubectl does what it is told to.
func (r *runner) asks(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	text, err := r.runCommand(ctx, c.Kubectl)
	if err != nil {
		return err
	}
	o.Say("%s", lastLine(text))
	return nil
}

// operate runs a culvert command as somebody who operates the cluster does.
func (r *runner) operate(ctx context.Context, c *topology.Check, o *report.Outcome) error {
	cmd := exec.CommandContext(ctx, r.Culvert, c.Command...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it cleans up
	cmd.WaitDelay = instance.ReadyTime
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig())
	return r.Namespace(r.APIServer()).Do(func() error {
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("culvert %s: %w: %s%s", strings.Join(c.Command, " "), err, failures(stdout.String()), stderr.String())
		}
		o.Say("%s", lastLine(stdout.String()))
		return nil
	})
}

// failures are the lines of a table that say so.
func failures(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		if strings.Contains(line, "FAIL") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (r *runner) kubectlEvent(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	_, err := r.runCommand(ctx, e.Kubectl)
	return err
}
