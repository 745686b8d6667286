package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const (
	culvertProcess = "culvert"
	bpffs          = "/sys/fs/bpf"
	readyTime      = 15 * time.Second
)

// startCulvert writes the node's configuration and starts the daemon.
func (in *instance) startCulvert(ctx context.Context, n *topology.Node, binary string) error {
	if !n.Daemon() {
		return nil
	}
	if err := mountBPF(); err != nil {
		return err
	}
	if err := in.makePins(); err != nil {
		return err
	}
	if pins := in.pinPath(n); !slices.Contains(in.state.Pins, pins) {
		if _, err := os.Lstat(pins); err == nil {
			return fmt.Errorf("%s is there and was not made by this lab: remove it, or give this lab another name with --as", pins)
		}
		in.state.Pins = append(in.state.Pins, pins)
	}
	if err := in.writeConfig(n, ""); err != nil {
		return err
	}
	return in.runCulvert(ctx, n, binary)
}

// writeConfig writes the node's configuration in the variant that the lab is
// in, with an overlay or none.
func (in *instance) writeConfig(n *topology.Node, overlay string) error {
	return in.writeOver(n, overlay, nil)
}

// writeOver lays something over all of it.
func (in *instance) writeOver(n *topology.Node, overlay string, over map[string]any) error {
	config := maps.Clone(n.ConfigIn(in.state.Variant, overlay))
	if over != nil {
		config = topology.Merge(config, over).(map[string]any) // merging mappings makes a mapping
	}
	if n.Kind == topology.Cluster {
		config["overlay"] = topology.Merge(in.membership(n), config["overlay"])
	}
	config["api"] = map[string]any{"socket": in.socket(n)}
	if config["metrics"] == nil {
		config["metrics"] = map[string]any{"listen": "off"}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(in.configFile(n), text, 0o644)
}

// membership is what a node's configuration says of its cluster, beside what the
// topology says.
func (in *instance) membership(n *topology.Node) map[string]any {
	if in.state.Variant == topology.KubeMode {
		return map[string]any{"node": n.Name, "kube": map[string]any{"kubeconfig": in.kubeconfig()}}
	}
	return map[string]any{"node": n.Name, "pod_prefixes": n.PodCIDRs}
}

// mountBPF mounts the BPF file system where it is expected, if it is not.
func mountBPF() error {
	var st unix.Statfs_t
	if err := unix.Statfs(bpffs, &st); err == nil && st.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount the BPF file system at %s: %w", bpffs, err)
	}
	return nil
}

func (in *instance) configFile(n *topology.Node) string { return in.file(n, "culvert.yaml") }

// socket is where the node's daemon answers.
func (in *instance) socket(n *topology.Node) string {
	if n.Kind == topology.Kubelet {
		return in.inside(n, "run/culvert/culvert.sock")
	}
	return in.file(n, "culvert.sock")
}

// runCulvert starts the daemon and waits until it answers.
func (in *instance) runCulvert(ctx context.Context, n *topology.Node, binary string) error {
	if err := in.start(n, culvertProcess, binary, "run", "--config", in.configFile(n),
		"--pin-path", in.pinPath(n), "--state", in.file(n, "state.db")); err != nil {
		return err
	}
	p, _ := in.process(n, culvertProcess)
	var last error
	ready := waitFor(readyTime, func() bool {
		_, last = in.status(ctx, n)
		return last == nil || ctx.Err() != nil || !p.alive()
	})
	if !ready || !p.alive() || last != nil {
		return fmt.Errorf("culvert did not come up: %w\n%s", errors.Join(last, ctx.Err()), in.logTail(n, culvertProcess))
	}
	return nil
}

// restartCulvert ends the daemon with the signal and starts it again, after a
// pause.
func (in *instance) restartCulvert(ctx context.Context, n *topology.Node, signal unix.Signal, pause time.Duration, binary string) error {
	p, ok := in.process(n, culvertProcess)
	if !ok || !p.alive() {
		return fmt.Errorf("culvert of %s does not run", n.Name)
	}
	if err := p.stop(signal, readyTime); err != nil {
		return err
	}
	time.Sleep(pause)
	return in.runCulvert(ctx, n, binary)
}

// applyCulvert applies the node's configuration, with an overlay or none.
func (in *instance) applyCulvert(ctx context.Context, n *topology.Node, overlay string) error {
	if err := in.writeConfig(n, overlay); err != nil {
		return err
	}
	_, err := in.ask(ctx, n, "apply", in.configFile(n))
	return err
}

func (in *instance) applyOver(ctx context.Context, n *topology.Node, over map[string]any) error {
	if err := in.writeOver(n, "", over); err != nil {
		return err
	}
	_, err := in.ask(ctx, n, "apply", in.configFile(n))
	return err
}

// ask runs a culvert command against the node's daemon.
func (in *instance) ask(ctx context.Context, n *topology.Node, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return namespace.Output(exec.CommandContext(ctx, in.culvert, append(args, "--socket", in.socket(n))...))
}

// askJSON reads what a culvert command shows.
func (in *instance) askJSON(ctx context.Context, n *topology.Node, into any, args ...string) error {
	out, err := in.ask(ctx, n, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("culvert %s: %w", args[0], err)
	}
	return nil
}

// What the commands show, as far as labs look.
type counterView struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

type outcomeView struct {
	Reason string `json:"reason"`
	Drop   bool   `json:"drop"`
	counterView
}

type statusView struct {
	Version  string `json:"version"`
	DataPath string `json:"data_path"`
}

type countersView struct {
	Outcomes []outcomeView `json:"outcomes"`
	SIDs     []struct {
		Key string `json:"key"`
		counterView
	} `json:"sids"`
	Policies []policyView `json:"policies"`
}

type policyView struct {
	Key string `json:"key"`
	counterView
	Lists []counterView `json:"lists"`
}

type sliceView struct {
	Name     string      `json:"name"`
	Uplink   counterView `json:"uplink"`
	Downlink counterView `json:"downlink"`
}

// direction is the packets of one.
func (s sliceView) direction(name string) uint64 {
	if name == "uplink" {
		return s.Uplink.Packets
	}
	return s.Downlink.Packets
}

type adjacencyView struct {
	Key       string `json:"key"`
	State     string `json:"state"`
	Interface string `json:"interface"`
}

func (in *instance) status(ctx context.Context, n *topology.Node) (s statusView, err error) {
	err = in.askJSON(ctx, n, &s, "status")
	return s, err
}
