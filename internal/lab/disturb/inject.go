package disturb

import (
	"context"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

func collectPod(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return cluster.Collect(ctx, r.Instance, r.Node(e.Node))
}

const injectorProcess = "injector"

// injectPaths has the node's speaker of SAFI 73 tell its peers the paths of the event,
// and no others: with none it withdraws what it told. It is `culvert policy
// inject`, which follows its file.
func injectPaths(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	n := r.Node(e.Node)
	paths := e.Paths
	if paths == nil {
		paths = []map[string]any{}
	}
	text, err := yaml.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return err
	}
	file := r.File(n, "paths.yaml")
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	if p, ok := r.Process(n, injectorProcess); ok && p.Alive() {
		return nil
	}
	args := []string{r.Culvert, "policy", "inject", "--to", "bgp", "--file", file, "--asn", "65000", "--router-id", "192.0.2.99"}
	for _, c := range r.ClusterNodes() {
		at, err := r.Address(c.Name, topology.IPv6)
		if err != nil {
			return err
		}
		args = append(args, at.String())
	}
	return r.Start(n, injectorProcess, args...)
}

// applyObjectEvent makes an object of the Kubernetes API what the event says.
func applyObjectEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return cluster.ApplyObject(ctx, r.Instance, e.Object)
}

func dropObject(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return cluster.DeleteObject(ctx, r.Instance, e.Object)
}

func attachEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	p := r.Node(e.Node)
	if r.IsReal(p) {
		if err := cluster.Create(ctx, r.Instance, []map[string]any{cluster.PodObject(r.Instance, p)}); err != nil {
			return err
		}
	}
	if err := cluster.Attach(ctx, r.Instance, p); err != nil {
		return err
	}
	return cluster.Moved(ctx, r.Instance, p)
}

func detachEvent(ctx context.Context, r *Runner, e *topology.Event, _ *report.Outcome) error {
	return cluster.Detach(ctx, r.Instance, r.Node(e.Node))
}
