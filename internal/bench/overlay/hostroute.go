package overlay

import (
	"net"

	"github.com/culvert-net/culvert/internal/dataplane/progrun"
)

// nodePod is the interface of a kernel's node to its pod.
const nodePod = "pod"

// routeHosts has both nodes of a variant route by eBPF: to their own pod, and to that of the other.
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
		if err := r.routeHost(own, v.pod(ends[0]), v.pod(ends[1]), inside.HardwareAddr, there.HardwareAddr); err != nil {
			return err
		}
	}
	return nil
}

// routeHost has a node route to two pods: its own, and one behind another node.
func (r *rig) routeHost(node, own, other string, inside, there net.HardwareAddr) error {
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
		other: {NextHop: progrun.NextHop{Ifindex: up.Index, Dst: there, Src: up.HardwareAddr}},
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
	return r.network.Do(node, func() error {
		if err := routes.Attach(uplink); err != nil {
			return err
		}
		return routes.Attach(nodePod)
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
