package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/culvert-net/culvert/internal/bench/experiment"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
)

// deviceBench is a run of `culvert bench device`.
type deviceBench struct {
	*device
	experiment.Setting
	cpus   cpuPair
	points map[string]point
	nodes  map[string]*node // by built-in device
}

var errOneCPU = errors.New("there is one CPU: a built-in device would share it with the generator, which waits for it, so that nothing is ever lost; " +
	"CPU time is what can be told here: culvert bench functions")

// Open makes the built-in devices; the user's is there.
func (d *device) Open(ctx context.Context, s experiment.Setting) (_ experiment.Bench, err error) {
	b := &deviceBench{device: d, Setting: s, points: map[string]point{}, nodes: map[string]*node{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.cpus, err = pickCPUs(s.CPU); err != nil {
		return nil, err
	}
	for _, p := range d.points() {
		b.points[p.id()] = p
		if p.target.device != "device" && b.nodes[p.target.device] == nil {
			if b.cpus.generator == b.cpus.device {
				return nil, errOneCPU
			}
			n, err := openNode(ctx, s, p.target.device, b.cpus.device)
			if err != nil {
				return nil, fmt.Errorf("set up %s: %w", p.target.device, err)
			}
			b.nodes[p.target.device] = n
		}
	}
	if d.own() {
		return b, b.probe(ctx)
	}
	return b, nil
}

// probe finds out before anything is measured whether the user's interfaces are
// of use.
func (b *deviceBench) probe(ctx context.Context) error {
	pair, err := traffic.Open(ctx, traffic.Options{TX: b.tx(), RX: b.rx(), CPU: b.cpus.generator, Method: traffic.Method(b.Method)})
	if err != nil {
		return err
	}
	return pair.Close()
}

func (b *deviceBench) Close() error {
	var errs []error
	for _, n := range b.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// Environment is of Culvert where it is among the devices; the generator's limit is
// that of the first point's packets.
func (b *deviceBench) Environment(ctx context.Context) (e result.Environment, err error) {
	if err := b.generator(ctx, &e); err != nil {
		return e, err
	}
	n := b.nodes[culvertDevice]
	if n == nil {
		return e, nil
	}
	e.Offloads = n.net.node.offloads(portIn)
	e.Version, e.DataPath, err = n.daemon.version(ctx)
	return e, err
}

// node is a built-in device in namespaces of its own, whose packets are received
// by a thread on a CPU of its own: so it can be too slow.
type node struct {
	net     *network
	daemon  *daemon
	threads *napi.Threads
	tx, rx  traffic.Port
}

func openNode(ctx context.Context, s experiment.Setting, device string, cpu int) (_ *node, err error) {
	n, err := newNode(device)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	switch device {
	case kernelDevice:
		err = n.kernel()
	case culvertDevice:
		return n, n.start(ctx, s, culvertConfig(), cpu)
	case veth:
		n.rx = traffic.Port{Namespace: n.net.node.path(), Interface: portIn}
		err = n.gro()
	}
	if err != nil {
		return nil, err
	}
	return n, n.thread(cpu)
}

// newNode makes the namespaces.
func newNode(name string) (*node, error) {
	n := &node{}
	var err error
	if n.net, err = newNetwork(runName()+"-"+name, 1); err != nil {
		return nil, err
	}
	n.tx = traffic.Port{Namespace: n.net.around.path(), Interface: "g0"}
	n.rx = traffic.Port{Namespace: n.net.around.path(), Interface: "s0"}
	if err := n.wide(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) thread(cpu int) (err error) {
	n.threads, err = napi.Start(n.net.node.path(), portIn, cpu)
	return err
}

// wide lets the longest frame through with a tunnel around it.
func (n *node) wide() error {
	if err := n.net.around.script("link set g0 mtu 1600", "link set s0 mtu 1600"); err != nil {
		return err
	}
	return n.net.node.script("link set in0 mtu 1600", "link set out0 mtu 1600")
}

// gro makes the interface receive by NAPI, which network cards do: live frames
// need it where there is no XDP program.
func (n *node) gro() error {
	return n.net.node.do(func() error {
		if out, err := exec.Command("ethtool", "-K", portIn, "gro", "on").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool -K %s gro on: %w: %s", portIn, err, out)
		}
		return nil
	})
}

func (n *node) kernel() error {
	// What the tunnel's end would say of its own to its neighbours is no traffic.
	if err := n.net.node.sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
		return err
	}
	for _, f := range forwarders() {
		if len(f.routes) == 0 {
			continue
		}
		if err := n.net.node.script(f.routes...); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return n.gro()
}

// culvertConfig is for all that Culvert is measured at.
func culvertConfig() *config.Config {
	c := configuration(nil, 1)
	for _, f := range forwarders() {
		if f.put != nil {
			f.put(c)
		}
	}
	return c
}

// start runs Culvert on the node.
func (n *node) start(ctx context.Context, s experiment.Setting, c *config.Config, cpu int) (err error) {
	n.daemon, err = startDaemon(ctx, s.Culvert, filepath.Join(s.BPFFS, n.net.node.name), n.net.node, c)
	if err != nil {
		return err
	}
	return n.thread(cpu)
}

func (n *node) close() error {
	var errs []error
	if n.threads != nil {
		errs = append(errs, n.threads.Stop())
	}
	if n.daemon != nil {
		errs = append(errs, n.daemon.stop())
	}
	if n.net != nil {
		errs = append(errs, n.net.delete())
	}
	return errors.Join(errs...)
}
