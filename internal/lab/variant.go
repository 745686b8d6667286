package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// goOver goes over to a variant, if it is another one. Nodes that are kubelets
// are made anew for it: it is what their pods run in.
func goOver(ctx context.Context, in *instance.Instance, variant string, progress *report.Progress) error {
	switch {
	case in.State.Variant == variant:
		return nil
	case len(in.Kubelets()) > 0:
		return upAnew(ctx, in, variant, progress)
	}
	return setVariant(ctx, in, variant)
}

// setVariant goes over to a variant, on one node after another.
func setVariant(ctx context.Context, in *instance.Instance, name string) error {
	if name == topology.KubeMode {
		if err := startAPIServer(ctx, in); err != nil {
			return err
		}
	}
	in.State.Variant = name
	if err := in.Save(); err != nil {
		return err
	}
	for _, n := range in.Nodes {
		if !n.Daemon() || len(n.N9)+len(n.Modes) == 0 {
			continue
		}
		if err := applyCulvert(ctx, in, n, ""); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	for _, n := range in.Nodes {
		if err := serve(ctx, in, n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// nextVariant goes over to the lab's next variant, and back unless that one's
// turn is next anyway.
func (r *runner) nextVariant(ctx context.Context, _ *topology.Event, o *report.Outcome) error {
	from, all := r.State.Variant, r.VariantNames()
	to := all[(slices.Index(all, from)+1)%len(all)]
	o.Say("%s to %s", from, to)
	if err := setVariant(ctx, r.Instance, to); err != nil {
		return err
	}
	if !r.back {
		return nil
	}
	time.Sleep(200 * time.Millisecond)
	o.Say("and back")
	return setVariant(ctx, r.Instance, from)
}
