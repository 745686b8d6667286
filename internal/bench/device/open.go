package device

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
)

// deviceBench is a run of `culvert bench device`.
type deviceBench struct {
	node.Undo
	*Experiment
	experiment.Setting
	cpus   proc.Pair
	points map[string]point
	nodes  map[string]*Node // by built-in device
}

// ErrOneCPU says that the machine is too small for a built-in device.
var ErrOneCPU = errors.New("there is one CPU: a built-in device would share it with the generator, which waits for it, so that nothing is ever lost; " +
	"measure CPU time instead: culvert bench functions")

// Open makes the built-in devices; the user's is there.
func (d *Experiment) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &deviceBench{Experiment: d, Setting: s, points: map[string]point{}, nodes: map[string]*Node{}}
	defer b.OnError(&err)
	if b.cpus, err = proc.PickPair(s.CPU); err != nil {
		return nil, err
	}
	for _, p := range d.points() {
		b.points[p.id()] = p
		if p.target.Device != "device" && b.nodes[p.target.Device] == nil {
			if b.cpus.Generator == b.cpus.Device {
				return nil, ErrOneCPU
			}
			n, err := OpenNode(ctx, s, p.target.Device, b.cpus.Device)
			if err != nil {
				return nil, fmt.Errorf("set up %s: %w", p.target.Device, err)
			}
			b.nodes[p.target.Device] = n
			b.Later(n.Close)
		}
	}
	if d.own() { // are the user's interfaces of use, before anything is measured?
		pair, err := traffic.Open(ctx, traffic.Options{TX: b.tx(), RX: b.rx(), CPU: b.cpus.Generator, Method: traffic.Method(b.Method)})
		if err != nil {
			return nil, err
		}
		return b, pair.Close()
	}
	return b, nil
}

// Environment is of Culvert where it is among the devices; the generator's limit is
// that of the first point's packets.
func (b *deviceBench) Environment(ctx context.Context) (e result.Environment, err error) {
	if n := b.nodes[CulvertDevice]; n != nil {
		if e, err = n.Daemon.Environment(ctx); err != nil {
			return e, err
		}
	}
	sent, o, err := b.packets(b.Experiment.points()[0])
	if err != nil {
		return e, err
	}
	pair, err := traffic.Open(ctx, o)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, pair.Close()) }()
	err = pair.Describe(ctx, sent, &e)
	return e, err
}

// Node is a built-in device in namespaces of its own, whose packets are received
// by a thread on a CPU of its own: so it can be too slow. Close deletes it.
type Node struct {
	node.Undo
	Net    *node.Network
	Daemon *node.Daemon
	TX, RX traffic.Port
}

// OpenNode makes a built-in device; its packets are received on one CPU.
func OpenNode(ctx context.Context, s experiment.Setting, device string, cpu int) (_ *Node, err error) {
	n, err := NewNode(device)
	if err != nil {
		return nil, err
	}
	defer n.OnError(&err)
	switch device {
	case KernelDevice:
		err = n.kernel()
	case CulvertDevice:
		return n, n.Start(ctx, s, Configuration(), cpu)
	case Veth:
		n.RX = traffic.Port{Namespace: n.Net.Node.Path(), Interface: node.PortIn}
		err = n.gro()
	}
	if err != nil {
		return nil, err
	}
	return n, n.thread(cpu)
}

// NewNode makes the namespaces. The longest frame gets through with a tunnel around it.
func NewNode(name string) (_ *Node, err error) {
	n := &Node{}
	defer n.OnError(&err)
	if n.Net, err = node.NewNetwork(node.RunName()+"-"+name, 1); err != nil {
		return nil, err
	}
	n.Later(n.Net.Close)
	n.TX = traffic.Port{Namespace: n.Net.Around.Path(), Interface: "g0"}
	n.RX = traffic.Port{Namespace: n.Net.Around.Path(), Interface: "s0"}
	if err := n.Net.Around.Script("link set g0 mtu 1600", "link set s0 mtu 1600"); err != nil {
		return nil, err
	}
	return n, n.Net.Node.Script("link set in0 mtu 1600", "link set out0 mtu 1600")
}

func (n *Node) thread(cpu int) error {
	threads, err := napi.Start(n.Net.Node.Path(), node.PortIn, cpu)
	if err == nil {
		n.Later(threads.Stop)
	}
	return err
}

// gro makes the interface receive by NAPI, which network cards do: live frames
// need it where there is no XDP program.
func (n *Node) gro() error {
	return n.Net.Node.Do(func() error {
		if out, err := exec.Command("ethtool", "-K", node.PortIn, "gro", "on").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool -K %s gro on: %w: %s", node.PortIn, err, out)
		}
		return nil
	})
}

func (n *Node) kernel() error {
	// What the tunnel's end would say of its own to its neighbours is no traffic.
	if err := n.Net.Node.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
		return err
	}
	for _, f := range Forwarders() {
		if len(f.routes) == 0 {
			continue
		}
		if err := n.Net.Node.Script(f.routes...); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return n.gro()
}

// Configuration is for all that Culvert is measured at.
func Configuration() *config.Config {
	c := catalog.Configuration(nil, 1)
	for _, f := range Forwarders() {
		if f.Put != nil {
			f.Put(c)
		}
	}
	return c
}

// Start runs Culvert on the node.
func (n *Node) Start(ctx context.Context, s experiment.Setting, c *config.Config, cpu int) (err error) {
	n.Daemon, err = node.Start(ctx, s.Culvert, filepath.Join(s.BPFFS, n.Net.Node.Name), n.Net.Node, c)
	if err != nil {
		return err
	}
	n.Later(n.Daemon.Close)
	return n.thread(cpu)
}
