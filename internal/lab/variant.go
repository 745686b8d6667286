package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// goOver goes over to a variant, if it is another one. Nodes that are kubelets
// are made anew for it: it is what their pods run in.
func (in *instance) goOver(ctx context.Context, variant string, progress *report.Progress) error {
	switch {
	case in.state.Variant == variant:
		return nil
	case len(in.Kubelets()) > 0:
		return in.upAnew(ctx, variant, progress)
	}
	return in.setVariant(ctx, variant)
}

// setVariant goes over to a variant, on one node after another.
func (in *instance) setVariant(ctx context.Context, name string) error {
	if name == topology.KubeMode {
		if err := in.startAPIServer(ctx); err != nil {
			return err
		}
	}
	in.state.Variant = name
	if err := in.save(); err != nil {
		return err
	}
	for _, n := range in.Nodes {
		if !n.Daemon() || len(n.N9)+len(n.Modes) == 0 {
			continue
		}
		if err := in.applyCulvert(ctx, n, ""); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	for _, n := range in.Nodes {
		if err := in.serve(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// nextVariant goes over to the lab's next variant, and back unless that one's
// turn is next anyway.
func (r *runner) nextVariant(ctx context.Context, _ *topology.Event, o *report.Outcome) error {
	from, all := r.state.Variant, r.VariantNames()
	to := all[(slices.Index(all, from)+1)%len(all)]
	o.Say("%s to %s", from, to)
	if err := r.setVariant(ctx, to); err != nil {
		return err
	}
	if !r.back {
		return nil
	}
	time.Sleep(200 * time.Millisecond)
	o.Say("and back")
	return r.setVariant(ctx, from)
}
