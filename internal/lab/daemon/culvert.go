package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/bpffs"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// CulvertProcess is what a node's daemon is called in the state.
const CulvertProcess = "culvert"

// StartCulvert writes the node's configuration and starts the daemon.
func StartCulvert(ctx context.Context, in *instance.Instance, n *topology.Node) error {
	if err := bpffs.Mount(); err != nil {
		return err
	}
	if pins := pinFolder(in, n); !slices.Contains(in.State.Pins, pins) {
		if _, err := os.Lstat(pins); err == nil {
			return fmt.Errorf("%s is there and was not made by this lab: remove it, or give this lab another name with --as", pins)
		}
		in.State.Pins = append(in.State.Pins, pins)
	}
	var err error
	for range 5 { // another instance may be removing the directory above at the same time
		if err = os.MkdirAll(pinFolder(in, n), 0o700); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := writeConfig(in, n, "", nil); err != nil {
		return err
	}
	return RunCulvert(ctx, in, n, in.Culvert)
}

// pinFolder has all that a node's daemon pins: it has more than one directory.
func pinFolder(in *instance.Instance, n *topology.Node) string {
	return filepath.Join(in.Pins(), n.Name)
}

// writeConfig writes the node's configuration.
func writeConfig(in *instance.Instance, n *topology.Node, overlay string, over map[string]any) error {
	text, err := configText(in, n, overlay, over)
	if err != nil {
		return err
	}
	return os.WriteFile(configFile(in, n), text, 0o644)
}

// configText is the node's configuration in the variant that the lab is in, with an overlay or
// none, and with something laid over all of it.
func configText(in *instance.Instance, n *topology.Node, overlay string, over map[string]any) ([]byte, error) {
	config := maps.Clone(n.ConfigIn(in.State.Variant, overlay))
	if over != nil {
		config = topology.Merge(config, over).(map[string]any) // merging mappings makes a mapping
	}
	if n.Kind == topology.Cluster {
		config["overlay"] = topology.Merge(membership(in, n), config["overlay"])
	}
	config["api"] = map[string]any{"socket": Socket(in, n)}
	if config["metrics"] == nil {
		config["metrics"] = map[string]any{"listen": "off"}
	}
	return yaml.Marshal(config)
}

// membership is what a node's configuration says of its cluster, beside what the
// topology says.
func membership(in *instance.Instance, n *topology.Node) map[string]any {
	if in.State.Variant == topology.KubeMode {
		return map[string]any{"node": n.Name, "kube": map[string]any{"kubeconfig": instance.Kubeconfig(in)}}
	}
	return map[string]any{"node": n.Name, "pod_prefixes": n.PodCIDRs}
}

func configFile(in *instance.Instance, n *topology.Node) string { return in.File(n, "culvert.yaml") }

// Socket is where the node's daemon answers.
func Socket(in *instance.Instance, n *topology.Node) string {
	if n.Kind == topology.Kubelet {
		return in.Inside(n, "run/culvert/culvert.sock")
	}
	return in.File(n, "culvert.sock")
}

// RunCulvert starts the daemon and waits until it answers.
func RunCulvert(ctx context.Context, in *instance.Instance, n *topology.Node, binary string) error {
	answers := func() error {
		_, err := Status(ctx, in, n)
		return err
	}
	return in.StartAwait(ctx, n, CulvertProcess, instance.ReadyTime, answers, binary, "run", "--config", configFile(in, n),
		"--pin-path", filepath.Join(pinFolder(in, n), "culvert"), "--state", in.File(n, "state.db"))
}

// RestartCulvert ends the daemon with the signal and starts it again, after a
// pause.
func RestartCulvert(ctx context.Context, in *instance.Instance, n *topology.Node, signal unix.Signal, pause time.Duration, binary string) error {
	p, ok := in.Process(n, CulvertProcess)
	if !ok || !p.Alive() {
		return fmt.Errorf("culvert of %s does not run", n.Name)
	}
	if err := p.Stop(signal, instance.ReadyTime); err != nil {
		return err
	}
	time.Sleep(pause)
	return RunCulvert(ctx, in, n, binary)
}

// ApplyCulvert applies the node's configuration, with an overlay or none, and with
// something laid over all of it.
func ApplyCulvert(ctx context.Context, in *instance.Instance, n *topology.Node, overlay string, over map[string]any) error {
	if err := writeConfig(in, n, overlay, over); err != nil {
		return err
	}
	_, err := ask(ctx, in, n, "apply", configFile(in, n))
	return err
}

// ask runs a culvert command against the node's daemon.
func ask(ctx context.Context, in *instance.Instance, n *topology.Node, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return namespace.Output(exec.CommandContext(ctx, in.Culvert, append(args, "--socket", Socket(in, n))...))
}

// problemsFound is the exit code of commands that find problems, and show what they were asked for.
const problemsFound = 3

// AskJSON reads what a culvert command shows, also of a node that is not as it should be.
func AskJSON(ctx context.Context, in *instance.Instance, n *topology.Node, into any, args ...string) error {
	out, err := ask(ctx, in, n, append(args, "-o", "json")...)
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !(ended && exit.ExitCode() == problemsFound && len(out) > 0) {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("culvert %s: %w", args[0], err)
	}
	return nil
}

type statusView struct {
	Version  string `json:"version"`
	DataPath string `json:"data_path"`
}

// Status is what `culvert status` shows of a node.
func Status(ctx context.Context, in *instance.Instance, n *topology.Node) (s statusView, err error) {
	err = AskJSON(ctx, in, n, &s, "status")
	return s, err
}
