package disturb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/lab/cluster"
	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// SetVariant goes over to a variant, on one node after another.
func SetVariant(ctx context.Context, in *instance.Instance, name string) error {
	if name == topology.KubeMode {
		if err := cluster.StartAPIServer(ctx, in); err != nil {
			return err
		}
	}
	in.State.Variant = name
	if err := errors.Join(in.Save(), cluster.AnnouncePods(ctx, in)); err != nil {
		return err
	}
	for _, n := range in.Nodes {
		if !n.Daemon() || len(n.N9)+len(n.Modes) == 0 {
			continue
		}
		if err := daemon.ApplyCulvert(ctx, in, n, "", nil); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	for _, n := range in.Nodes {
		if err := cluster.Serve(ctx, in, n); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// nextVariant goes over to the lab's next variant, and back unless that one's
// turn is next anyway.
func nextVariant(ctx context.Context, a action) error {
	from, all := a.State.Variant, a.VariantNames()
	to := all[(slices.Index(all, from)+1)%len(all)]
	a.o.Say("%s to %s", from, to)
	if err := SetVariant(ctx, a.Instance, to); err != nil {
		return err
	}
	if !a.Back {
		return nil
	}
	time.Sleep(200 * time.Millisecond)
	a.o.Say("and back")
	return SetVariant(ctx, a.Instance, from)
}
