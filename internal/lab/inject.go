package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

const injectorProcess = "injector"

// inject has the node's speaker of SAFI 73 tell its peers the paths of the event,
// and no others: with none it withdraws what it told. It is `culvert policy
// inject`, which follows its file.
func (r *runner) inject(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
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

// object makes an object of the Kubernetes API what the event says.
func (r *runner) object(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return applyObject(ctx, r.Instance, e.Object)
}

func (r *runner) dropObject(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return deleteObject(ctx, r.Instance, e.Object)
}

func (r *runner) attachPod(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	p := r.Node(e.Node)
	if r.IsReal(p) {
		if err := create(ctx, r.Instance, []map[string]any{podObject(r.Instance, p)}); err != nil {
			return err
		}
	}
	if err := attach(ctx, r.Instance, p); err != nil {
		return err
	}
	return moved(ctx, r.Instance, p)
}

func (r *runner) detachPod(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	return detach(ctx, r.Instance, r.Node(e.Node))
}

// active wants the active candidate path of a policy to have a preference, and
// waits for it: what is told takes a while to be heard.
func (r *runner) active(ctx context.Context, e *topology.Event, _ *report.Outcome) error {
	const limit = 10 * time.Second
	var last error
	instance.WaitFor(limit, func() bool {
		last = r.isActive(ctx, e)
		return last == nil || ctx.Err() != nil
	})
	return errors.Join(last, ctx.Err())
}

// pathsView is what `culvert policy` shows of a policy, as far as labs look.
type pathsView struct {
	Name  string `json:"name"`
	Paths []struct {
		Path       string `json:"path"`
		Preference uint32 `json:"preference"`
		Active     bool   `json:"active"`
	} `json:"paths"`
}

func (r *runner) isActive(ctx context.Context, e *topology.Event) error {
	var list []pathsView
	if err := askJSON(ctx, r.Instance, r.Node(e.Node), &list, "policy"); err != nil {
		return err
	}
	for _, p := range list {
		if p.Name != e.Policy {
			continue
		}
		for _, path := range p.Paths {
			if path.Active && path.Preference == e.Preference {
				return nil
			}
		}
		return fmt.Errorf("policy %s has %+v: want an active path of preference %d", p.Name, p.Paths, e.Preference)
	}
	return fmt.Errorf("%s has no policy %q", e.Node, e.Policy)
}
