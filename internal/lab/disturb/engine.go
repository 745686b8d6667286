package disturb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/network"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// engineProcess is what a node's engine is called in the state, and engineListen where it is.
const (
	engineProcess = "te"
	engineListen  = "127.0.0.1:9474"
)

// startEngine starts the engine of a node, and waits until it answers.
func startEngine(ctx context.Context, a action) error {
	in, n := a.Instance, a.node
	text, err := yaml.Marshal(engineNetwork(in, n))
	if err != nil {
		return err
	}
	file := in.File(n, "network.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	answers := func() error {
		_, err := engineState(ctx, in, n)
		return err
	}
	return in.StartAwait(ctx, n, engineProcess, instance.ReadyTime, answers, in.Culvert, "te", "run", file, "--topology", "vtysh:"+in.File(n, "frr"))
}

// engineNetwork is what the topology says, with the sockets of the nodes that run culvert.
func engineNetwork(in *instance.Instance, n *topology.Node) map[string]any {
	var nodes []any
	list, _ := n.Engine["nodes"].([]any)
	for _, v := range list {
		node, _ := v.(map[string]any)
		name, _ := node["name"].(string)
		if of := in.Node(name); of != nil && of.Daemon() {
			node = topology.Merge(node, map[string]any{"api": daemon.Socket(in, of)}).(map[string]any) // merging mappings makes a mapping
		}
		nodes = append(nodes, node)
	}
	return topology.Merge(n.Engine, map[string]any{"nodes": nodes}).(map[string]any)
}

// stopEngine ends the engine of a node by a signal.
func stopEngine(a action, signal unix.Signal) error {
	p, ok := a.Process(a.node, engineProcess)
	if !ok || !p.Alive() {
		return errors.New("the engine does not run")
	}
	return p.Stop(signal, instance.ReadyTime)
}

// engineState is what the engine of a node found and did in its last round.
func engineState(ctx context.Context, in *instance.Instance, n *topology.Node) (state any, err error) {
	answer, err := network.Get(ctx, in, n, engineListen, "/state")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&state); err != nil {
		return nil, fmt.Errorf("the engine's state: %w", err)
	}
	return state, nil
}

// awaitChange waits until the engine has changed lists since the event began.
func awaitChange(ctx context.Context, a action) error {
	changes := func() (n float64, err error) {
		state, err := engineState(ctx, a.Instance, a.node)
		if err != nil {
			return 0, err
		}
		object, _ := state.(map[string]any)
		counts, _ := object["counts"].(map[string]any)
		n, known := counts["changes"].(float64)
		if !known {
			err = errors.New("the engine does not say how often it has changed lists")
		}
		return n, err
	}
	before, err := changes()
	if err != nil {
		return err
	}
	return instance.Await(ctx, a.event.For.Or(engineTime), func() error {
		now, err := changes()
		if err == nil && now <= before {
			err = errors.New("the engine has changed no lists")
		}
		return err
	})
}

// engineTime is how long an engine may take to see a change and to answer it, unless the event
// says so: FRR's database takes half a minute to have a new adjacency.
const engineTime = time.Minute

// awaitEngine waits until the engine's state is as the event says.
func awaitEngine(ctx context.Context, a action) error {
	return instance.Await(ctx, a.event.For.Or(engineTime), func() error {
		state, err := engineState(ctx, a.Instance, a.node)
		if err != nil {
			return err
		}
		return observe.Includes(state, a.event.Shows)
	})
}
