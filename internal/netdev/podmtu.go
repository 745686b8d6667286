package netdev

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// SetPodMTU limits the packets that a pod sends, by the routes of its interface. The
// interface's own MTU stays, because programs in the pod may have read it. path is the
// pod's network namespace. If that is gone, SetPodMTU does nothing.
func (h *Host) SetPodMTU(path, name string, mtu int) error {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer inside.Close()
	link, err := inside.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", name, path, err)
	}
	if mtu >= link.Attrs().MTU {
		mtu = 0 // what the interface says is enough
	}
	routes, err := stable(func() ([]netlink.Route, error) { return inside.RouteList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("routes of %s in %s: %w", name, path, err)
	}
	for _, r := range routes {
		if r.Gw == nil || r.MTU == mtu {
			continue
		}
		r.MTU = mtu
		if err := inside.RouteReplace(&r); err != nil {
			return fmt.Errorf("MTU %d of the route to %s in %s: %w", mtu, r.Dst, path, err)
		}
	}
	return nil
}
