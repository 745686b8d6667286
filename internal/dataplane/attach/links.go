package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"

	"github.com/culvert-net/culvert/internal/dataplane/pin"
	"github.com/culvert-net/culvert/internal/dataplane/port"
)

// links are what attaches programs of one kind to interfaces.
type links struct {
	kind string   // xdp or tcx
	pins *pin.Dir // nil: not pinned
	on   map[int]*attached
}

// attached is a program on an interface.
type attached struct {
	link.Link
	how  string // the mode of an XDP program, the hook of one for pods
	kept bool   // wanted since Open
}

// put pins a link that is attached, and keeps it.
func (x *links) put(ifindex int, how string, l link.Link) error {
	if err := x.pins.PutLink(pin.LinkName{Kind: x.kind, Ifindex: ifindex, How: how}, l); err != nil {
		return errors.Join(fmt.Errorf("interface %s: pin the link: %w", port.Name(ifindex), err), l.Close())
	}
	x.on[ifindex] = &attached{l, how, true}
	return nil
}

// remove takes a program off an interface. One that has none is not an error.
func (x *links) remove(ifindex int) error {
	a := x.on[ifindex]
	if a == nil {
		return nil
	}
	// Not by letting go of the last reference: the kernel would detach later.
	if err := a.Detach(); err != nil && pin.Alive(a) {
		return fmt.Errorf("interface %s: detach: %w", port.Name(ifindex), err)
	}
	if err := x.pins.RemoveLink(pin.LinkName{Kind: x.kind, Ifindex: ifindex, How: a.how}); err != nil {
		return fmt.Errorf("interface %s: unpin the link: %w", port.Name(ifindex), err)
	}
	delete(x.on, ifindex)
	return a.Close()
}

// takeOver keeps the links that are pinned.
func (x *links) takeOver() error {
	pinned, err := x.pins.Links(x.kind)
	for n, l := range pinned {
		x.on[n.Ifindex] = &attached{Link: l, how: n.How}
	}
	return err
}

// close lets go of the links. Those that are pinned stay.
func (x *links) close() error {
	var errs []error
	for _, a := range x.on {
		errs = append(errs, a.Close())
	}
	x.on = nil
	return errors.Join(errs...)
}
