package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/dataplane/pin"
)

// Before filters of others, and behind the translation of destinations. The kernel takes one
// program for each number and exchanges none, so that the next build's has the other one.
const (
	beforeFilter     = -20
	beforeFilterNext = -21
)

// reassembled: fragments have no ports. The library's name for it is 0.
const reassembled link.NetfilterAttachFlags = unix.BPF_F_NETFILTER_IP_DEFRAG

var families = map[int]link.NetfilterProtocolFamily{4: link.NetfilterProtoIPv4, 6: link.NetfilterProtoIPv6}

// Netfilter has what the kernel forwards pass culvert_forward, in the network namespace of
// the caller: of both families for NetworkPolicies, and of IPv6 so that nobody reaches SIDs by
// a Service. The caller of its methods holds the data path's lock.
type Netfilter struct {
	pins *pin.Dir // nil: not pinned
	load func() (*ebpf.Program, error)
	prog *ebpf.Program
	on   map[pin.LinkName]link.Link
	// What packets pass it for. What an earlier daemon attached it for stays until somebody says.
	policies, edge bool
	// held: links stay as they are until Release; wanted: Police or Guard was called meanwhile.
	held, wanted bool
}

// NewNetfilter attaches nothing. It calls load once the program is needed.
func NewNetfilter(pins *pin.Dir, load func() (*ebpf.Program, error)) *Netfilter {
	return &Netfilter{pins: pins, load: load, on: map[pin.LinkName]link.Link{}}
}

// Police has packets of both families pass the program, or ends that.
func (n *Netfilter) Police(on bool) error {
	n.policies = on
	return n.follow()
}

// Guard has IPv6 pass the program, or ends that unless Police wants it.
func (n *Netfilter) Guard(on bool) error {
	n.edge = on
	return n.follow()
}

// follow attaches what Police and Guard were called for, and nothing else.
func (n *Netfilter) follow() (err error) {
	if n.held {
		n.wanted = true
		return nil
	}
	for family := range families {
		if n.policies || n.edge && family == 6 {
			err = errors.Join(err, n.attach(family))
		} else {
			err = errors.Join(err, n.remove(n.of(family)))
		}
	}
	return err
}

func (n *Netfilter) attach(family int) (err error) {
	if n.prog == nil {
		if n.prog, err = n.load(); err != nil {
			return err
		}
	}
	former := n.of(family)
	name, priority := pin.LinkName{Kind: "netfilter", Ifindex: family, How: "forward"}, int32(beforeFilter)
	if l := n.on[former]; l != nil {
		if n.runs(l) {
			return nil
		}
		if former == name {
			name.How, priority = "forwardnext", beforeFilterNext
		}
	}
	l, err := link.AttachNetfilter(link.NetfilterOptions{
		Program: n.prog, ProtocolFamily: families[family], Hook: link.NetfilterInetForward, Priority: priority,
		NetfilterFlags: reassembled,
	})
	if err != nil {
		return fmt.Errorf("IPv%d packets that the kernel forwards: %w (the kernel needs CONFIG_NETFILTER_BPF_LINK)", family, err)
	}
	if err := n.pins.PutLink(name, l); err != nil {
		return errors.Join(fmt.Errorf("pin the netfilter link: %w", err), l.Close())
	}
	n.on[name] = l
	return n.remove(former)
}

// of is the name of a family's link, if it has one.
func (n *Netfilter) of(family int) (name pin.LinkName) {
	for name := range n.on {
		if name.Ifindex == family {
			return name
		}
	}
	return name
}

// runs says whether the link runs the program.
func (n *Netfilter) runs(l link.Link) bool {
	of, err := l.Info()
	if err != nil {
		return false
	}
	info, err := n.prog.Info()
	if err != nil {
		return false
	}
	id, ok := info.ID()
	return ok && of.Program == id
}

func (n *Netfilter) remove(name pin.LinkName) error {
	l := n.on[name]
	if l == nil {
		return nil
	}
	if err := n.pins.RemoveLink(name); err != nil {
		return fmt.Errorf("unpin the netfilter link: %w", err)
	}
	delete(n.on, name)
	return errors.Join(l.Detach(), l.Close())
}

// Polices says whether packets of both families pass the program, for NetworkPolicies.
func (n *Netfilter) Polices() bool { return n.policies && len(n.on) == len(families) }

// TakeOver keeps the links that are pinned. They run what they ran until Police or Guard.
func (n *Netfilter) TakeOver(same func() *ebpf.Program) error {
	err := n.find()
	if err == nil && len(n.on) > 0 {
		n.prog = same()
	}
	return err
}

// find has the links that are pinned.
func (n *Netfilter) find() (err error) {
	n.on, err = n.pins.Links("netfilter")
	for name := range n.on {
		n.policies, n.edge = n.policies || name.Ifindex == 4, n.edge || name.Ifindex == 6
	}
	return err
}

// Hold keeps the links that are pinned, and what they run, until Release. The caller holds
// the lock of both.
func (n *Netfilter) Hold() error {
	n.held = true
	return n.find()
}

// Release does what Police and Guard were called for.
func (n *Netfilter) Release() error {
	if n.held = false; !n.wanted {
		return nil
	}
	return n.follow()
}

// Close lets go of the links and the program. Those that are pinned stay.
func (n *Netfilter) Close() error {
	if n == nil {
		return nil
	}
	var errs []error
	for _, l := range n.on {
		errs = append(errs, l.Close())
	}
	if n.prog != nil {
		errs = append(errs, n.prog.Close())
	}
	n.on, n.prog = nil, nil
	return errors.Join(errs...)
}
