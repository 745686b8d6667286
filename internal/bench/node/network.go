package node

import (
	"fmt"
	"net"
	"os"
)

// The interfaces of a node that is measured.
const (
	PortIn     = "in0" // without a guard
	PortFrames = "in1" // whose frames are all steered, as they are
	PortOut    = "out0"
	PortN3     = "n3" // with the role of this name, as the next two
	PortN6     = "n6"
	PortSR     = "sr"
	PortEdge   = "edge" // with the roles edge, n3 and n6
	PortLong   = "long" // as PortIn, with an MTU of 9000
	// PortSteered is as PortIn, but a policy takes what nothing else takes.
	PortSteered = "steered"
)

// Ports are all of them.
var Ports = []string{PortIn, PortFrames, PortOut, PortN3, PortN6, PortSR, PortEdge, PortLong, PortSteered}

// mtu has room for a long packet in each of the tunnels. With longMTU only programs that take frames
// in several pieces run in native mode.
const (
	mtu     = 2000
	longMTU = 9000
)

// MAC are the addresses of the interfaces, by number:
//
//	sources g0 (2), g1 (6) -> in0 (1), in1 (5) [node] out0 (3) -> s0 (4) sink
//
// Those with roles have in0's, so that the same frames are for them.
func MAC(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }

// Network is a node between a source and a sink. Close deletes it.
type Network struct {
	Undo
	Node, Around Namespace
}

// NewNetwork makes the namespaces NAME-node and NAME-around, where both other
// ends are. Each veth has a queue for each of `queues` CPUs.
func NewNetwork(name string, queues int) (_ *Network, err error) {
	n := &Network{}
	defer n.OnError(&err)
	if n.Node, err = newNamespace(name+"-node", &n.Undo); err != nil {
		return nil, err
	}
	if n.Around, err = newNamespace(name+"-around", &n.Undo); err != nil {
		return nil, err
	}
	// What is around says nothing of its own: a frame of its would be counted.
	for _, which := range []string{"all", "default"} {
		if err := n.Around.Sysctl("net/ipv6/conf/"+which+"/disable_ipv6", "1"); err != nil {
			return nil, err
		}
	}
	for _, v := range []struct {
		node, other string
		mac         byte
		mtu         int
	}{
		{PortIn, "g0", 1, mtu}, {PortFrames, "g1", 5, mtu}, {PortOut, "s0", 3, mtu},
		{PortN3, "g2", 1, mtu}, {PortN6, "g3", 1, mtu}, {PortSR, "g4", 1, mtu}, {PortEdge, "g5", 1, mtu},
		{PortLong, "g6", 1, longMTU}, {PortSteered, "g7", 1, mtu},
	} {
		common := fmt.Sprintf("mtu %d numtxqueues %d numrxqueues %d", v.mtu, queues, queues)
		err := n.Node.Script(fmt.Sprintf("link add %s address %s %s type veth peer name %s address %s %s netns %s",
			v.node, MAC(v.mac), common, v.other, MAC(v.mac+1), common, n.Around.Name))
		if err != nil {
			return nil, err
		}
		if err := n.Around.Script("link set " + v.other + " up"); err != nil {
			return nil, err
		}
	}
	return n, n.configure()
}

// configure gives the node its addresses and its one next hop.
func (n *Network) configure() error {
	for path, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
		"net/ipv6/conf/in1/disable_ipv6": "1", "net/ipv6/conf/n3/disable_ipv6": "1", "net/ipv6/conf/n6/disable_ipv6": "1",
		"net/ipv6/conf/sr/disable_ipv6": "1", "net/ipv6/conf/edge/disable_ipv6": "1", "net/ipv6/conf/long/disable_ipv6": "1",
		"net/ipv6/conf/steered/disable_ipv6": "1",
		"net/ipv6/conf/all/seg6_enabled":     "1", "net/ipv6/conf/default/seg6_enabled": "1",
	} {
		if err := n.Node.Sysctl(path, value); err != nil {
			return err
		}
	}
	sink := MAC(4).String()
	lines := []string{
		"addr add 192.0.2.1/24 dev in0", "addr add 192.0.2.3/24 dev in0", "addr add 192.0.2.4/24 dev in0", "addr add 2001:db8:1::1/64 dev in0 nodad",
		"addr add 198.51.100.1/24 dev out0", "addr add 2001:db8:2::1/64 dev out0 nodad",
		"link set in0 up", "link set in1 up", "link set out0 up", "link set n3 up", "link set n6 up", "link set sr up", "link set edge up", "link set steered up",
		"neigh add 198.51.100.2 lladdr " + sink + " dev out0 nud permanent",
		"neigh add 2001:db8:2::2 lladdr " + sink + " dev out0 nud permanent",
	}
	for _, table := range []string{"main", "100"} {
		lines = append(lines, "route add default via 198.51.100.2 table "+table, "route add default via 2001:db8:2::2 table "+table)
	}
	return n.Node.Script(lines...)
}

// RunName is that of the namespaces and pins of this run.
func RunName() string { return fmt.Sprintf("culvert-bench-%d", os.Getpid()) }
