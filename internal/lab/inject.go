package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/yaml"
)

const injectorProcess = "injector"

// inject has the node's speaker of SAFI 73 tell its peers the paths of the event,
// and no others: with none it withdraws what it told. It is `culvert policy
// inject`, which follows its file.
func (r *runner) inject(ctx context.Context, e *Event, _ *outcome) error {
	n := r.node(e.Node)
	paths := e.Paths
	if paths == nil {
		paths = []map[string]any{}
	}
	text, err := yaml.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return err
	}
	file := r.file(n, "paths.yaml")
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	if p, ok := r.process(n, injectorProcess); ok && p.alive() {
		return nil
	}
	args := []string{r.culvert, "policy", "inject", "--to", "bgp", "--file", file, "--asn", "65000", "--router-id", "192.0.2.99"}
	for _, c := range r.clusterNodes() {
		at, err := r.address(c.Name, ipv6)
		if err != nil {
			return err
		}
		args = append(args, at.String())
	}
	return r.start(n, injectorProcess, args...)
}

// object makes an object of the Kubernetes API what the event says.
func (r *runner) object(ctx context.Context, e *Event, _ *outcome) error {
	return r.applyObject(ctx, e.Object)
}

func (r *runner) dropObject(ctx context.Context, e *Event, _ *outcome) error {
	return r.deleteObject(ctx, e.Object)
}

func (r *runner) attachPod(ctx context.Context, e *Event, _ *outcome) error {
	p := r.node(e.Node)
	if r.isReal(p) {
		if err := r.create(ctx, []map[string]any{r.podObject(p)}); err != nil {
			return err
		}
	}
	if err := r.attach(ctx, p); err != nil {
		return err
	}
	return r.moved(ctx, p)
}

func (r *runner) detachPod(ctx context.Context, e *Event, _ *outcome) error {
	return r.detach(ctx, r.node(e.Node))
}

// active wants the active candidate path of a policy to have a preference, and
// waits for it: what is told takes a while to be heard.
func (r *runner) active(ctx context.Context, e *Event, _ *outcome) error {
	const limit = 10 * time.Second
	var last error
	waitFor(limit, func() bool {
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

func (r *runner) isActive(ctx context.Context, e *Event) error {
	var list []pathsView
	if err := r.askJSON(ctx, r.node(e.Node), &list, "policy"); err != nil {
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

func (t *Topology) onInject(e *Event) error {
	if n := t.node(e.Node); n == nil || n.Kind != Host {
		return fmt.Errorf("%q is no node of kind host", e.Node)
	}
	return nil
}

func (t *Topology) onObject(e *Event) error {
	if t.apiServer() == nil {
		return errors.New("the lab has no kube-apiserver")
	}
	_, err := objectPath(e.Object)
	return err
}

func (t *Topology) onPod(e *Event) error {
	if n := t.node(e.Node); n == nil || n.Kind != Pod {
		return fmt.Errorf("%q is no pod", e.Node)
	}
	return nil
}

func (t *Topology) onActive(e *Event) error {
	if e.Policy == "" || e.Preference == 0 {
		return errors.New("policy, preference: missing")
	}
	return t.wantCulvert(e.Node)
}
