package overlay

import (
	"net"
	"net/netip"

	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// nodePod is the interface of a kernel's node to its pod.
const nodePod = "pod"

// routeHosts has both nodes of a variant route by eBPF: to their own pod, and to that of the other,
// by IP-in-IP where that is the variant.
func (r *rig) routeHosts(v variant) error {
	for i, ends := range [][2]string{{"a", "b"}, {"b", "a"}} {
		own, other := v.node(1+i), v.node(2-i)
		there, err := r.link(other, uplink)
		if err != nil {
			return err
		}
		inside, err := r.link(v.pod(ends[0]), podInterface)
		if err != nil {
			return err
		}
		var outer [2]netip.Addr
		for i, node := range []string{own, other} {
			if v.name != ipInIP {
				break
			}
			if outer[i], err = r.network.Address(node, true); err != nil {
				return err
			}
		}
		if err := r.routeHost(own, v.pod(ends[0]), v.pod(ends[1]), inside.HardwareAddr, there.HardwareAddr, outer); err != nil {
			return err
		}
	}
	return nil
}

// routeHost has a node route to two pods: its own, and one behind another node.
func (r *rig) routeHost(node, own, other string, inside, there net.HardwareAddr, outer [2]netip.Addr) error {
	up, err := r.link(node, uplink)
	if err != nil {
		return err
	}
	down, err := r.link(node, nodePod)
	if err != nil {
		return err
	}
	routes, err := progrun.LoadHostRoutes()
	if err != nil {
		return err
	}
	r.Later(routes.Close)
	for pod, route := range map[string]progrun.HostRoute{
		own:   {NextHop: progrun.NextHop{Ifindex: down.Index, Dst: inside, Src: down.HardwareAddr}, ToPod: true},
		other: {NextHop: progrun.NextHop{Ifindex: up.Index, Dst: there, Src: up.HardwareAddr}, Outer: outer},
	} {
		for _, ip4 := range []bool{true, false} {
			to, err := r.network.Address(pod, ip4)
			if err != nil {
				return err
			}
			if err := routes.Put(to, route); err != nil {
				return err
			}
		}
	}
	attach := routes.Attach
	if outer[0].IsValid() {
		attach = routes.AttachIPInIP
	}
	return r.network.Do(node, func() error {
		if err := attach(uplink); err != nil {
			return err
		}
		return attach(nodePod)
	})
}

// link is an interface of a node or a pod.
func (r *rig) link(node, name string) (i *net.Interface, err error) {
	err = r.network.Do(node, func() error {
		i, err = net.InterfaceByName(name)
		return err
	})
	return i, err
}
