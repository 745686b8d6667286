package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// hostMAC is that of every pod's gateways and host's end.
var hostMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

// veth is a pod's interface with its host's end.
type veth struct {
	host  string // name of the host's end
	netns string // path of the pod's network namespace
	pod   string // name of its interface there
	mac   net.HardwareAddr
}

// address is one of a pod's, and what it reaches by the gateway.
type address struct {
	addr, gateway netip.Addr
	routes        []netip.Prefix // of the family
}

// isPrimary says whether the rest of the family is reached by this address's gateway. Other
// interfaces of the pod may have the same gateway, for other destinations.
func (a address) isPrimary() bool {
	return slices.ContainsFunc(a.routes, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// kernel makes interfaces. Its methods may be repeated.
type kernel interface {
	// create makes the pair, or finds it, and returns the index of the host's end.
	create(veth) (ifindex int, err error)
	// prepare makes the host's end fit for traffic.
	prepare(veth) error
	// configure gives the pod's end its addresses and routes.
	configure(v veth, addresses []address, mtu int) error
	// remove deletes the pair by the name of its host's end, if it is there.
	remove(host string) error
	// check says what is not as configure left it.
	check(v veth, addresses []address, mtu int) ([]string, error)
}

// linux is the kernel of the network namespace that the plugin runs in.
type linux struct{ host *netlink.Handle }

func newLinux() (*linux, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &linux{h}, nil
}

// in calls f with the network namespace at a path.
func in(path string, f func(netns.NsHandle, *netlink.Handle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", path, err)
	}
	defer h.Close()
	return f(ns, h)
}

func isNotFound(err error) bool {
	_, not := errors.AsType[netlink.LinkNotFoundError](err)
	return not || errors.Is(err, unix.ENODEV)
}

func (k *linux) create(v veth) (ifindex int, err error) {
	err = in(v.netns, func(ns netns.NsHandle, pod *netlink.Handle) error {
		if ifindex, err = k.existing(v, pod); err != nil || ifindex != 0 {
			return err
		}
		pair := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: v.host, HardwareAddr: hostMAC},
			PeerName:  v.pod, PeerHardwareAddr: v.mac, PeerNamespace: netlink.NsFd(ns),
		}
		if err := k.host.LinkAdd(pair); err != nil {
			return fmt.Errorf("make %s and %s in the pod: %w", v.host, v.pod, err)
		}
		link, err := k.host.LinkByName(v.host)
		if err != nil {
			return fmt.Errorf("%s, which was just made: %w", v.host, err)
		}
		ifindex = link.Attrs().Index
		return nil
	})
	return ifindex, err
}

// existing is the index of a host's end that leads to the pod, or 0. One that
// leads elsewhere is of an ADD that was broken off.
func (k *linux) existing(v veth, pod *netlink.Handle) (int, error) {
	host, err := k.host.LinkByName(v.host)
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	end, err := pod.LinkByName(v.pod)
	if err == nil && leadsTo(host, end) && slices.Equal(end.Attrs().HardwareAddr, v.mac) {
		return host.Attrs().Index, nil
	}
	if err != nil && !isNotFound(err) {
		return 0, err
	}
	return 0, k.remove(v.host)
}

// leadsTo says that two are the ends of one pair.
func leadsTo(a, b netlink.Link) bool {
	return a.Attrs().ParentIndex == b.Attrs().Index && b.Attrs().ParentIndex == a.Attrs().Index
}

// hostSettings are of a host's end, before it is up. Packets of the pod have a
// source that leads back to it; nobody else speaks there.
var hostSettings = []struct{ name, value string }{
	{"ipv6/conf/%s/addr_gen_mode", "1"}, // no link-local address: fe80::1 is nobody's
	{"ipv6/conf/%s/accept_ra", "0"},
	{"ipv6/conf/%s/forwarding", "1"},
	{"ipv4/conf/%s/forwarding", "1"},
	{"ipv4/conf/%s/rp_filter", "1"},
}

func (k *linux) prepare(v veth) error {
	for _, s := range hostSettings {
		if err := setting(fmt.Sprintf(s.name, v.host), s.value); err != nil {
			return err
		}
	}
	link, err := k.host.LinkByName(v.host)
	if err == nil {
		err = k.host.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", v.host, err)
	}
	return nil
}

// setting writes below /proc/sys/net, of this thread's network namespace.
func setting(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0); err != nil {
		return fmt.Errorf("set to %s: %w", value, err)
	}
	return nil
}

func (k *linux) configure(v veth, addresses []address, mtu int) error {
	if _, err := setMTU(k.host, v.host, mtu); err != nil {
		return err
	}
	return in(v.netns, func(ns netns.NsHandle, h *netlink.Handle) error {
		link, err := setMTU(h, v.pod, mtu)
		if err != nil {
			return err
		}
		if err := inside(ns, func() error { return cutUp(v.pod) }); err != nil {
			return err
		}
		if slices.ContainsFunc(addresses, func(a address) bool { return a.addr.Is6() }) {
			// Some runtimes turn it off for whoever has not asked for it.
			if err := inside(ns, func() error { return setting("ipv6/conf/"+v.pod+"/disable_ipv6", "0") }); err != nil {
				return err
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", v.pod, err)
		}
		for _, a := range addresses {
			if err := putAddress(h, link, a); err != nil {
				return fmt.Errorf("%s in the pod: %w", a.addr, err)
			}
		}
		return errors.Join(settle(h, v.pod, addresses), settle(k.host, v.host, nil))
	})
}

// settle waits until the kernel sends packets by a link, which it drops until a worker
// has seen the carrier, and takes packets to addresses: for IPv6 a worker has to come by,
// also where no duplicates are looked for. There is one worker for all that changes links,
// and it is late where many pods come at once: to give up and make the pod anew would be
// more for it to do.
func settle(h *netlink.Handle, name string, addresses []address) error {
	until := time.Now().Add(patience)
	err := await(until, name+" to be up", func() (bool, error) {
		link, err := h.LinkByName(name)
		return err == nil && link.Attrs().OperState == netlink.OperUp, err
	})
	if err != nil {
		return err
	}
	for _, a := range addresses {
		err := await(until, a.addr.String()+" to be usable in the pod", func() (bool, error) {
			routes, err := h.RouteGet(a.addr.AsSlice())
			return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits until something is true, or the deadline.
func await(until time.Time, what string, isTrue func() (bool, error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		now, err := isTrue()
		switch {
		case err != nil:
			return fmt.Errorf("wait for %s: %w", what, err)
		case now:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("waited %s for %s", patience, what)
		}
		time.Sleep(pause)
	}
}

func setMTU(h *netlink.Handle, name string, mtu int) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if err == nil && link.Attrs().MTU != mtu {
		err = h.LinkSetMTU(link, mtu)
	}
	if err != nil {
		return nil, fmt.Errorf("set the MTU of %s to %d: %w", name, mtu, err)
	}
	return link, nil
}

// cutUp makes the pod segment the packets that the kernel cannot segment inside a
// tunnel of IPv6: bundled SCTP packets, and packets in the pod's own tunnels.
func cutUp(name string) error {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("open ethtool: %w", err)
	}
	defer tool.Close()
	err = tool.Change(name, map[string]bool{
		"tx-sctp-segmentation": false, "tx-ipxip4-segmentation": false,
		"tx-udp_tnl-segmentation": false, "tx-udp_tnl-csum-segmentation": false,
		"tx-gre-segmentation": false, "tx-gre-csum-segmentation": false,
	})
	if err != nil {
		return fmt.Errorf("set the offloads of %s: %w", name, err)
	}
	return nil
}

// inside calls f in another network namespace. The thread comes back, or ends with
// the goroutine.
func inside(ns netns.NsHandle, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// putAddress gives the pod an address at once, without a look for others that
// have it, and the ways by its gateway.
func putAddress(h *netlink.Handle, link netlink.Link, a address) error {
	addr := &netlink.Addr{IPNet: host(a.addr)}
	if a.addr.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrReplace(link, addr); err != nil {
		return err
	}
	index, gateway := link.Attrs().Index, a.gateway.AsSlice()
	err := h.NeighSet(&netlink.Neigh{LinkIndex: index, IP: gateway, HardwareAddr: hostMAC, State: netlink.NUD_PERMANENT})
	if err != nil {
		return fmt.Errorf("neighbour %s: %w", a.gateway, err)
	}
	var routes []*netlink.Route
	if a.isPrimary() {
		routes = append(routes, &netlink.Route{LinkIndex: index, Dst: host(a.gateway), Scope: netlink.SCOPE_LINK})
	}
	for _, p := range a.routes {
		r := &netlink.Route{LinkIndex: index, Dst: network(p), Gw: gateway}
		if !a.isPrimary() { // the route to the gateway is the primary interface's
			r.Flags = int(netlink.FLAG_ONLINK)
		}
		routes = append(routes, r)
	}
	for _, r := range routes {
		if err := h.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s: %w", r.Dst, err)
		}
	}
	return nil
}

func host(a netip.Addr) *net.IPNet { return network(netip.PrefixFrom(a, a.BitLen())) }

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (k *linux) remove(name string) error {
	link, err := k.host.LinkByName(name)
	if err == nil {
		err = k.host.LinkDel(link)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

func (k *linux) check(v veth, addresses []address, mtu int) (wrong []string, err error) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	err = in(v.netns, func(_ netns.NsHandle, h *netlink.Handle) error {
		end, err := h.LinkByName(v.pod)
		if isNotFound(err) {
			say("the pod has no interface %s", v.pod)
			return nil
		}
		if err != nil {
			return err
		}
		host, err := k.host.LinkByName(v.host)
		if err != nil && !isNotFound(err) {
			return err
		}
		if err != nil || !leadsTo(host, end) {
			say("%s does not lead to the pod's %s", v.host, v.pod)
		} else if host.Attrs().Flags&net.FlagUp == 0 {
			say("%s is down", v.host)
		}
		if end.Attrs().Flags&net.FlagUp == 0 {
			say("%s is down", v.pod)
		}
		if got := end.Attrs().HardwareAddr; !slices.Equal(got, v.mac) {
			say("%s has the MAC address %s, not %s", v.pod, got, v.mac)
		}
		if mtu > 0 && end.Attrs().MTU > mtu { // older runtimes do not keep the MTU
			say("%s has the MTU %d, and %d is the most", v.pod, end.Attrs().MTU, mtu)
		}
		return checkAddresses(h, end, addresses, say)
	})
	return wrong, err
}

func checkAddresses(h *netlink.Handle, link netlink.Link, addresses []address, say func(string, ...any)) error {
	name := link.Attrs().Name
	have, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	known, err := h.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list neighbours on %s: %w", name, err)
	}
	routes, err := h.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list routes by %s: %w", name, err)
	}
	for _, a := range addresses {
		if !slices.ContainsFunc(have, func(x netlink.Addr) bool { return x.IP.Equal(a.addr.AsSlice()) }) {
			say("%s lacks the address %s", name, a.addr)
		}
		if !slices.ContainsFunc(known, func(n netlink.Neigh) bool {
			return n.IP.Equal(a.gateway.AsSlice()) && n.State == netlink.NUD_PERMANENT && slices.Equal(n.HardwareAddr, hostMAC)
		}) {
			say("%s lacks the permanent neighbour %s", name, a.gateway)
		}
		for _, p := range a.routes {
			if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.Equal(a.gateway.AsSlice()) && leadsToAll(r, p) }) {
				say("%s lacks the route to %s by %s", name, p, a.gateway)
			}
		}
	}
	return nil
}

// leadsToAll says whether a route is to just this prefix: a default route may come without one.
func leadsToAll(r netlink.Route, p netip.Prefix) bool {
	if r.Dst == nil {
		return p.Bits() == 0
	}
	return r.Dst.String() == network(p).String()
}
