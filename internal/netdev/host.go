package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RouteProtocol marks the routes that are ours (rtm_protocol, of the numbers
// that nobody has taken).
const RouteProtocol = 83

// Host changes the kernel's network, where a Watcher only looks. It stays in the
// network namespace that it was made in. Its methods may be called from any
// goroutine; each leaves things as they are where they are right.
type Host struct {
	handle  *netlink.Handle
	ethtool *ethtool.Ethtool
}

// NewHost opens its sockets in the calling thread's network namespace.
func NewHost() (*Host, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open ethtool: %w", err)
	}
	return &Host{h, e}, nil
}

// Close frees what NewHost opened.
func (h *Host) Close() {
	h.handle.Close()
	h.ethtool.Close()
}

// Pod is how the kernel reaches a pod: by the host's end of its veth.
type Pod struct {
	Name      string // of the host's end
	Ifindex   int
	MAC       net.HardwareAddr // of the pod's end
	Addresses []netip.Addr
}

// PutPod makes a host route and a permanent neighbour for each of a pod's
// addresses. ErrNoInterface is returned if there is no such interface.
func (h *Host) PutPod(p Pod) error {
	if err := h.podLink(p); err != nil {
		return err
	}
	for _, a := range p.Addresses {
		if err := h.handle.NeighSet(neighbourOf(p, a)); err != nil {
			return fmt.Errorf("make %s a neighbour on %s: %w", a, p.Name, err)
		}
		if err := h.handle.RouteReplace(routeTo(p, a)); err != nil {
			return fmt.Errorf("route %s to %s: %w", a, p.Name, err)
		}
	}
	return nil
}

// podLink returns ErrNoInterface if the host's end is not there.
func (h *Host) podLink(p Pod) error {
	link, err := h.handle.LinkByIndex(p.Ifindex)
	if isNotFound(err) || err == nil && link.Attrs().Name != p.Name {
		return fmt.Errorf("%w: %s with index %d", ErrNoInterface, p.Name, p.Ifindex)
	}
	return err
}

func isNotFound(err error) bool {
	_, not := errors.AsType[netlink.LinkNotFoundError](err)
	return not || errors.Is(err, unix.ENODEV)
}

func routeTo(p Pod, a netip.Addr) *netlink.Route {
	return &netlink.Route{
		LinkIndex: p.Ifindex, Scope: netlink.SCOPE_LINK, Protocol: RouteProtocol, Priority: metric(a),
		Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
	}
}

func neighbourOf(p Pod, a netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: p.Ifindex, IP: a.AsSlice(), HardwareAddr: p.MAC, State: netlink.NUD_PERMANENT}
}

// DeletePod takes a pod's routes, neighbours and link away, as far as they are
// there.
func (h *Host) DeletePod(p Pod) error {
	if err := h.podLink(p); errors.Is(err, ErrNoInterface) {
		return nil // which took its routes and neighbours along
	} else if err != nil {
		return err
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: p.Ifindex}}
	if err := h.handle.LinkDel(link); err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s: %w", p.Name, err)
	}
	return nil
}

// ForgetPod takes a pod's routes and neighbours away, and leaves its link.
func (h *Host) ForgetPod(p Pod) error {
	var errs []error
	for _, a := range p.Addresses {
		for _, err := range []error{h.handle.RouteDel(routeTo(p, a)), h.handle.NeighDel(neighbourOf(p, a))} {
			if !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) && !isNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// CheckPod says what differs from how PutPod leaves it.
func (h *Host) CheckPod(p Pod) ([]string, error) {
	if err := h.podLink(p); errors.Is(err, ErrNoInterface) {
		return []string{err.Error()}, nil
	} else if err != nil {
		return nil, err
	}
	known, err := stable(func() ([]netlink.Neigh, error) { return h.handle.NeighList(p.Ifindex, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list neighbours on %s: %w", p.Name, err)
	}
	var wrong []string
	for _, a := range p.Addresses {
		if routes, err := h.handle.RouteGet(a.AsSlice()); err != nil || len(routes) == 0 || routes[0].LinkIndex != p.Ifindex {
			wrong = append(wrong, fmt.Sprintf("the host has no route to %s by %s", a, p.Name))
		}
		if !slices.ContainsFunc(known, func(n netlink.Neigh) bool {
			return n.IP.Equal(a.AsSlice()) && n.State == netlink.NUD_PERMANENT && slices.Equal(n.HardwareAddr, p.MAC)
		}) {
			wrong = append(wrong, fmt.Sprintf("the host has no permanent neighbour %s at %s on %s", a, p.MAC, p.Name))
		}
	}
	return wrong, nil
}
