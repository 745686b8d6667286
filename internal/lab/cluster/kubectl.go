package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Kubectl runs kubectl as the administrator, where it reaches kube-apiserver.
func Kubectl(ctx context.Context, in *instance.Instance, input []byte, args ...string) (out []byte, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(Programs(), "kubectl"), append([]string{"--kubeconfig", instance.Kubeconfig(in)}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	err = in.Namespace(in.APIServer()).Do(func() error {
		out, err = namespace.Output(cmd)
		return err
	})
	return out, errors.Join(err, ctx.Err())
}

// RunKubectl runs a command of a topology, and returns what kubectl printed. Output that
// does not match is an error.
func RunKubectl(ctx context.Context, in *instance.Instance, c *topology.Command) (string, error) {
	input, err := list(c.Input)
	if err != nil {
		return "", err
	}
	out, err := Kubectl(ctx, in, input, c.Args...)
	text := strings.TrimSpace(string(out))
	if err == nil && !regexp.MustCompile(c.Output).MatchString(text) {
		err = fmt.Errorf("kubectl %s: %q does not match %q", strings.Join(c.Args, " "), text, c.Output)
	}
	return text, err
}

// list is objects as one for kubectl's standard input.
func list(objects []map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
}

// Create has Kubernetes create objects, or update them.
func Create(ctx context.Context, in *instance.Instance, objects []map[string]any) error {
	if len(objects) == 0 {
		return nil
	}
	text, err := list(objects)
	if err == nil {
		_, err = Kubectl(ctx, in, text, "apply", "-f", "-")
	}
	return err
}
