package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/culvert-net/culvert/internal/lab/daemon"
	"github.com/culvert-net/culvert/internal/lab/disturb"
	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/observe"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// Network is a lab that is up, for who sends traffic of their own through it.
type Network struct {
	in       *instance.Instance
	progress *report.Progress
}

// ErrBusy says that an instance is in use by another command at the moment.
var ErrBusy = instance.ErrBusy

// Open builds the topology called name as the instance `as`, whose nodes run the
// given binary. variant is "" for a topology without variants. Open first removes
// what an instance of that name left behind. It writes its progress to w. The
// caller must call Close.
func Open(ctx context.Context, name, as, culvert, variant string, w io.Writer) (*Network, error) {
	t, err := topology.Load(name)
	if err != nil {
		return nil, err
	}
	if variant != "" || len(t.VariantNames()) > 0 {
		if err := t.WantVariant(variant); err != nil {
			return nil, fmt.Errorf("lab %s: %w", name, err)
		}
	}
	in, err := instance.Open(t, as, culvert)
	if err != nil {
		return nil, err
	}
	n := &Network{in, &report.Progress{W: w}}
	// An instance that is whole may be of another build.
	if err = in.Down(n.progress); err == nil {
		err = up(ctx, in, variant, n.progress)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return n, nil
}

// Close takes the lab down.
func (n *Network) Close() error {
	return errors.Join(n.in.Down(n.progress), n.in.Close())
}

// Namespace is the path of a node's network namespace; of a node that is not
// there the path of none.
func (n *Network) Namespace(node string) string {
	return n.in.Namespace(&topology.Node{Name: node}).Path()
}

// Do calls f on a thread that is in a node's namespace.
func (n *Network) Do(node string, f func() error) error {
	return n.in.Namespace(&topology.Node{Name: node}).Do(f)
}

// SetN9 goes over to another transport, under traffic if there is some.
func (n *Network) SetN9(ctx context.Context, name string) error {
	if err := n.in.WantVariant(name); err != nil {
		return err
	}
	return disturb.SetVariant(ctx, n.in, name)
}

// Step has an SMF do a step of `culvert smf run`.
func (n *Network) Step(ctx context.Context, smf string, step map[string]any) error {
	_, err := daemon.Step(ctx, n.in, n.in.SMF(smf), step)
	return err
}

// Delay has the GTP-U endpoint of a node hold what a device sends and receives for a
// time, in each direction.
func (n *Network) Delay(node, device string, each time.Duration) error {
	_, err := daemon.AskEndpoint(n.in, n.in.Node(node), gtpulink.Request{Op: "Delay", Device: device, Wait: each})
	return err
}

// FTEID is what a UPF chose or was given, as "SMF/sessions/side", where side is
// access or core.
func (n *Network) FTEID(ctx context.Context, reference string) (netip.Addr, uint32, error) {
	return daemon.FTEID(ctx, n.in, reference, false)
}

// Address of a node or a pod, of IPv4 or else IPv6.
func (n *Network) Address(name string, ip4 bool) (netip.Addr, error) {
	return n.in.Address(name, map[bool]string{true: topology.IPv4, false: topology.IPv6}[ip4])
}

// Counters are the packets of a node by SID, by SR policy, and by how their journey
// ended.
type Counters struct{ SIDs, Policies, Outcomes map[string]uint64 }

// Counters of all nodes that count: those of Culvert, and kernels whose routes or
// rules say so.
func (n *Network) Counters(ctx context.Context) (map[string]Counters, error) {
	seen, err := observe.Observe(ctx, n.in, nil)
	if err != nil {
		return nil, err
	}
	all := map[string]Counters{}
	for node, view := range seen {
		all[node] = Counters{view.Packets[observe.SID], view.Packets[observe.Policy], view.Packets[observe.Outcome]}
	}
	return all, nil
}

// Socket is the path of a node's management API.
func (n *Network) Socket(node string) string { return daemon.Socket(n.in, n.in.Node(node)) }

// Apply lays something over a node's configuration, and applies it.
func (n *Network) Apply(ctx context.Context, node string, over map[string]any) error {
	return daemon.ApplyCulvert(ctx, n.in, n.in.Node(node), "", over)
}

// Daemons are the culvert processes, by node.
func (n *Network) Daemons() map[string]int { return n.processes(daemon.CulvertProcess) }

// Endpoints are the processes of GTP-U endpoints, by node.
func (n *Network) Endpoints() map[string]int { return n.processes(daemon.EndpointProcess) }

func (n *Network) processes(name string) map[string]int {
	pids := map[string]int{}
	for _, node := range n.in.Nodes {
		if p, ok := n.in.Process(node, name); ok {
			pids[node.Name] = p.PID
		}
	}
	return pids
}

// Status is the version of what the nodes run, and the hash of its data path.
func (n *Network) Status(ctx context.Context, node string) (version, dataPath string, err error) {
	s, err := daemon.Status(ctx, n.in, n.in.Node(node))
	return s.Version, s.DataPath, err
}
