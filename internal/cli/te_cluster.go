package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-net/culvert/internal/agent/observed"
	"github.com/culvert-net/culvert/internal/cmdline"
	"github.com/culvert-net/culvert/internal/engine/headend"
	"github.com/culvert-net/culvert/internal/engine/loop"
	"github.com/culvert-net/culvert/internal/engine/netfile"
	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/internal/te"
)

// engineCluster is the Kubernetes cluster of an engine.
type engineCluster struct {
	kubeconfig string
	version    string

	connection *kube.Engine
	// What the API server said last.
	members []overlay.Node
	absent  []kube.Absent
	read    time.Time
}

// engine asks the API server nothing yet.
func (k *engineCluster) engine() (*kube.Engine, error) {
	if k.connection != nil {
		return k.connection, nil
	}
	e, err := kube.NewEngine(k.kubeconfig, k.version)
	if err != nil {
		return nil, err
	}
	k.connection = e
	return e, nil
}

// paths are the candidate paths of an engine.
func (k *engineCluster) paths(name string) (kube.EnginePaths, error) {
	e, err := k.engine()
	if err != nil {
		return kube.EnginePaths{}, err
	}
	return e.Paths(name)
}

// nodes are those of the cluster, as its agents use them. What it has no IGP for, as live does not have it, has the links
// of the file. While the API server is away, nodes are those that it had last.
func (k *engineCluster) nodes(c *cobra.Command, agents netfile.Agents, live *te.Topology) (nodes []netfile.Node, left []te.LeftOut, err error) {
	e, err := k.engine()
	if err != nil {
		return nil, nil, err
	}
	members, absent, err := e.Nodes(c.Context(), agents.Namespace, kube.Trust{Pool: agents.LocatorPool, Accept: agents.Accept})
	switch {
	case err == nil:
		k.members, k.absent, k.read = members, absent, time.Now()
	case k.read.IsZero():
		return nil, nil, err
	default:
		left = append(left, te.LeftOut{What: "news of Kubernetes", Why: fmt.Sprintf("nodes are those of %s, because of %v", k.read.Format(time.TimeOnly), err)})
	}
	for _, a := range k.absent {
		what := "node " + a.Node
		if a.Part {
			what = "part of " + what
		}
		left = append(left, te.LeftOut{What: what, Why: a.Why})
	}
	for _, m := range k.members {
		n := netfile.Node{Name: m.Name, SID: m.End(), Locator: m.Locator, Addresses: addressesOf(m), Outside: true}
		if live != nil {
			n.Outside = !slices.ContainsFunc(live.Nodes, func(o te.Node) bool { return o.Name == m.Name })
		}
		nodes = append(nodes, n)
	}
	return nodes, left, nil
}

// addressesOf are what leads to a node beside its locator: its address first.
func addressesOf(m overlay.Node) []netip.Addr {
	all := []netip.Addr{m.Address}
	for _, s := range slices.Concat(m.IPv4, m.IPv6) {
		if !m.Locator.Contains(s) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// byKubernetes is a headend whose candidate paths are SRv6Policies.
type byKubernetes struct {
	headend.Headend
	node  string
	paths kube.EnginePaths
}

// PathName is what the agent calls the path of the object.
func (w byKubernetes) PathName(_ string, p headend.Policy) string {
	return w.name(headend.Path{Of: p})
}

// RepairName is what it calls the repair path.
func (w byKubernetes) RepairName(_ string, p headend.Policy) string {
	return w.name(headend.Path{Of: p, Repair: true})
}

func (w byKubernetes) name(p headend.Path) string {
	return observed.KubePathName(w.paths.PathName(w.node, enginePath(p)))
}

// Put writes the objects.
func (w byKubernetes) Put(ctx context.Context, paths []headend.Path) error {
	return w.paths.Put(ctx, w.node, enginePaths(paths))
}

// Remove deletes them.
func (w byKubernetes) Remove(ctx context.Context, paths []headend.Path) error {
	return w.paths.Remove(ctx, w.node, enginePaths(paths))
}

func enginePaths(paths []headend.Path) []kube.EnginePath {
	all := make([]kube.EnginePath, len(paths))
	for i, p := range paths {
		all[i] = enginePath(p)
	}
	return all
}

// enginePath is a candidate path as the cluster has it.
func enginePath(p headend.Path) kube.EnginePath {
	return kube.EnginePath{Advertised: srpolicy.Advertised{Color: p.Of.Color, Endpoint: p.Of.Endpoint, Preference: p.Preference, SegmentLists: p.SegmentLists},
		DelayConstraint: p.DelayConstraint, Repair: p.Repair}
}

// writers has headends write their candidate paths as engine.write says. Headends that are no
// nodes of the cluster have their management API.
func (k *engineCluster) writers(e netfile.Engine, headends map[string]headend.Headend) (map[string]headend.Headend, error) {
	if e.Write != netfile.WriteKubernetes {
		return headends, nil
	}
	paths, err := k.paths(e.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]headend.Headend{}
	for name, h := range headends {
		if out[name] = h; k.read.IsZero() || slices.ContainsFunc(k.members, func(m overlay.Node) bool { return m.Name == name }) {
			out[name] = byKubernetes{h, name, paths}
		}
	}
	return out, nil
}

// lease is a kube.Lease as the loop knows one.
type lease struct{ *kube.Lease }

// State is who has it.
func (l lease) State() loop.LeaseState { return loop.LeaseState(l.Lease.State()) }

// leaseOf is the lease of an engine: that of a flag, else that of its file; nil: it needs none.
func (k *engineCluster) leaseOf(e netfile.Engine, flag string, log *slog.Logger) (*lease, error) {
	if flag != "" {
		namespace, name, whole := strings.Cut(flag, "/")
		if e.Lease.Namespace, e.Lease.Name = namespace, name; !whole || namespace == "" || name == "" {
			return nil, cmdline.Usagef("--lease: %q is no lease: give NAMESPACE/NAME", flag)
		}
	}
	switch {
	case e.Lease.Name == "":
		return nil, nil
	case e.Write == netfile.WriteBGP:
		return nil, cmdline.Usagef("--lease: engines that write by BGP need none, since one stands by while headends have paths of another: leave it out")
	}
	engine, err := k.engine()
	if err != nil {
		return nil, err
	}
	l, err := engine.Lease(e.Lease.Namespace, e.Lease.Name, kube.LeaseFor(time.Duration(e.Lease.Duration)), log)
	return &lease{l}, err
}

// withdraw deletes the SRv6Policies of an engine.
func (k *engineCluster) withdraw(c *cobra.Command, engine string) error {
	paths, err := k.paths(engine)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), changeTimeout)
	defer cancel()
	removed, err := paths.Withdraw(ctx)
	fmt.Fprintf(c.OutOrStdout(), "%d SRv6Policies of engine %s deleted\n", len(removed), engine)
	return err
}
