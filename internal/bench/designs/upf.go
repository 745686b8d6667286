package designs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/device"
	"github.com/culvert-net/culvert/internal/bench/napi"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/bench/result"
	"github.com/culvert-net/culvert/internal/bench/signalling"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/dataplane/softrun"
	"github.com/culvert-net/culvert/internal/smf"
)

// design is how a UPF uses its cores.
type design struct {
	name      string // as a parameter and in JSON
	paper     string // what paper 003 calls it, as charts and sentences do
	title     string // what it is here
	configure func(c *config.Config, cpu int)
	soft      bool   // culvert-soft handles packets
	command   string // of a foreign UPF
}

// What the paper calls its designs.
const (
	dpOffload    = "DPOffload"
	steerOffload = "SteerOffload"
	cpOffload    = "CPOffload"
	softUPF      = "SoftUPF"
)

// steer and both are the designs that can have another core at any time.
const (
	steer = "steer"
	both  = "both"
)

// steered are those designs.
func steered(design string) bool { return design == steer || design == both }

// toCore has XDP hand packets to the core of their UE.
func toCore(c *config.Config, cpu int) {
	c.Spread = config.Spread{By: config.SpreadUE, CPUs: config.CPUs{cpu}}
}

var designs = []design{
	{name: "dp", paper: dpOffload, title: "XDP does all of a packet", configure: func(*config.Config, int) {}},
	{name: steer, paper: steerOffload, title: "XDP hands packets to the core of their UE", configure: toCore},
	{name: "cp", paper: cpOffload, title: "as DPOffload, and N4 is answered in XDP", configure: func(c *config.Config, _ int) { c.UPF.N4Fast = config.On }},
	{name: both, paper: steerOffload + "+" + cpOffload, title: "as SteerOffload, and N4 is answered in XDP", configure: func(c *config.Config, cpu int) {
		toCore(c, cpu)
		c.UPF.N4Fast = config.On
	}},
	{name: "soft", paper: softUPF, title: "user space over AF_XDP", configure: func(*config.Config, int) {}, soft: true},
	{name: ideal, paper: idealCard, title: "as DPOffload, and the generator picks the queue, and thereby the core, by the UE"},
}

// Names are those of all designs.
func Names() (names []string) {
	for _, d := range designs {
		names = append(names, d.name)
	}
	return names
}

// labelDesign is the label with a design's name in the paper.
const labelDesign = "design"

// Labels are those of what is measured of a design, or of a foreign UPF.
func Labels(name string) result.Labels {
	for _, d := range designs {
		if d.name == name {
			return result.Labels{labelDesign: d.paper}
		}
	}
	return result.Labels{labelDesign: name} // a foreign UPF
}

// upf is a design in a node of its own. Close ends it.
type upf struct {
	*device.Node
	requests *signalling.Load
	foreign  *program // nil: one of ours
	has      extent
}

// extent is how much of everything a UPF has.
type extent struct {
	sessions int
	filters  int // SDF filters of each session; 0: its default rules only
	gnbs     int // whose addresses packets come from by turns
}

// smfs send handovers; window are those under way at once.
const (
	smfs   = 4
	window = 64
)

// openUPF starts a UPF with sessions, in a node of that name.
func openUPF(ctx context.Context, b *bench, name string, d design, has extent) (_ *upf, err error) {
	u := &upf{has: has}
	if u.Node, err = device.NewNode(name); err != nil {
		return nil, err
	}
	defer u.OnError(&err)
	if err := signalling.AddPort(u.Net, smfs); err != nil {
		return nil, err
	}
	if err := receive(u.Net.Around, "s0"); err != nil {
		return nil, err
	}
	if err := u.startProgram(ctx, b, d); err != nil {
		return nil, err
	}
	if !d.soft { // which polls
		threads, err := napi.Start(u.Net.Node.Path(), node.PortN3, b.cpus.Device)
		if err != nil {
			return nil, err
		}
		u.Later(threads.Stop)
	}
	spec := has.spec()
	if d.command != "" {
		spec.Local.CoreTEID, spec.RemoveIPv4 = firstCPTEID, true
	}
	if u.requests, err = signalling.DialNode(ctx, u.Net, b.cpus, has.smfs(), spec); err != nil {
		return nil, u.foreign.wrote(err)
	}
	u.Later(u.requests.Close)
	if d.soft {
		return u, u.startSoft(b)
	}
	return u, nil
}

// startProgram starts what answers N4, and handles packets where culvert-soft does not.
func (u *upf) startProgram(ctx context.Context, b *bench, d design) error {
	if d.command != "" {
		return u.startForeign(ctx, b.cpus.Device, d.command)
	}
	c := catalog.Configuration(nil, 1)
	signalling.Configure(c, u.has.sessions, false)
	allow(c, u.has.gnbs)
	d.configure(c, b.cpus.Device)
	if err := u.Start(ctx, b.Setting, c, b.cpus.Device); err != nil {
		return err
	}
	return proc.Bind(u.Daemon.Cmd.Process.Pid, b.cpus.Device)
}

// smfs are as many as have a session.
func (x extent) smfs() int { return min(smfs, x.sessions) }

// ues are the sessions: as many for each SMF.
func (x extent) ues() int { return x.sessions / x.smfs() * x.smfs() }

// spec is of the sessions.
func (x extent) spec() smf.Spec {
	s := signalling.CountedSpec(x.ues())
	if x.filters > 0 {
		catalog.Filtered(x.filters)(&s)
	}
	return s
}

// allow lets so many gNBs send on N3: whole prefixes, with some addresses around them.
func allow(c *config.Config, gnbs int) {
	last := catalog.GNB.As4()
	binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(last[:])+uint32(gnbs-1))
	all := netip.PrefixFrom(catalog.GNB, 32)
	for !all.Contains(netip.AddrFrom4(last)) {
		all = netip.PrefixFrom(catalog.GNB, all.Bits()-1).Masked()
	}
	for i := range c.Interfaces {
		if in := &c.Interfaces[i]; in.Name == node.PortN3 {
			in.Peers = config.Senders{all}
		}
	}
}

// receive has an interface receive by NAPI for good. XDP cannot send to a sink otherwise, while
// no receiver is there.
func receive(in node.Namespace, port string) error {
	return in.Do(func() error {
		if out, err := exec.Command("ethtool", "-K", port, "gro", "on").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool -K %s gro on: %w: %s", port, err, out)
		}
		return nil
	})
}

// ErrNoSoft says that culvert-soft is not built.
var ErrNoSoft = errors.New("bin/culvert-soft is missing: build it by `make soft`, or leave the design out by --designs")

// startSoft has culvert-soft handle packets, on the device's CPU.
func (u *upf) startSoft(b *bench) error {
	binary := filepath.Join(filepath.Dir(b.Culvert), "culvert-soft")
	if _, err := os.Stat(binary); err != nil {
		return ErrNoSoft
	}
	ports := []string{node.PortN3, node.PortN6, node.PortOut}
	for _, port := range ports {
		if err := napi.Defer(u.Net.Node.Path(), port); err != nil {
			return err
		}
	}
	var s *softrun.Soft
	err := u.Net.Node.Do(func() (err error) {
		s, err = softrun.Start(softrun.Options{Binary: binary, Pins: filepath.Join(b.BPFFS, u.Net.Node.Name), Interfaces: ports})
		return err
	})
	if err != nil {
		return err
	}
	u.Later(func() error {
		return u.Net.Node.Do(func() error { _, err := s.Stop(); return err })
	})
	if err := proc.Bind(s.PID(), b.cpus.Device); err != nil {
		return err
	}
	// Its threads go before the one that receives, which otherwise takes the CPU from them
	// for packets that they then have no time for.
	threads, err := procfs.AllThreads(s.PID())
	for _, t := range threads {
		err = errors.Join(err, proc.GoRealtime(t.PID, proc.Realtime+1))
	}
	return err
}
