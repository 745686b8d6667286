package network

import (
	"errors"
	"fmt"
	"strings"

	"github.com/safchain/ethtool"

	"github.com/culvert-net/culvert/internal/lab/instance"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// LoadNFT loads a ruleset in a node.
func LoadNFT(in *instance.Instance, n *topology.Node, rules string) error {
	if rules == "" {
		return nil
	}
	return in.Namespace(n).Do(func() error { return namespace.Pipe(rules, "nft", "-f", "-") })
}

// JSON reads what ip shows in a node.
func JSON(in *instance.Instance, n *topology.Node, into any, args ...string) error {
	return in.Namespace(n).JSON(into, "ip", append([]string{"-j"}, args...)...)
}

// MakeNamespace makes a node's namespace, with its settings of the kernel.
func MakeNamespace(in *instance.Instance, n *topology.Node) error {
	if in.IsReal(n) {
		return nil // its container runtime makes it
	}
	ns := in.Namespace(n)
	// Before the state names it: a foreign one must not get in there.
	if _, ok, err := ns.Mark(); err == nil && ok {
		return fmt.Errorf("namespace %s %w: remove it with `ip netns delete %s`, or give this lab another name with --as", ns.Name, namespace.ErrForeign, ns.Name)
	}
	in.State.Namespaces = append(in.State.Namespaces, ns.Name)
	if err := in.Save(); err != nil {
		return err
	}
	if err := ns.Create(in.State.Mark); err != nil {
		return err
	}
	values := map[string]string{
		// Addresses are given, not sought: no solicitations among the counted
		// packets, no waiting for duplicate address detection.
		"net/ipv6/conf/default/router_solicitations": "0",
		"net/ipv6/conf/default/accept_ra":            "0",
		"net/ipv6/conf/default/accept_dad":           "0",
		"net/ipv6/conf/default/dad_transmits":        "0",
		"net/ipv4/conf/all/rp_filter":                "0",
		"net/ipv4/conf/default/rp_filter":            "0",
		"net/ipv4/ping_group_range":                  "0 0",
		// Every error counts in a check; the kernel's own limits would hide some.
		"net/ipv4/icmp_ratelimit":            "0",
		"net/ipv4/icmp_msgs_per_sec":         "100000",
		"net/ipv6/icmp/ratelimit":            "0",
		"net/ipv4/fib_multipath_hash_policy": "1",
		"net/ipv6/fib_multipath_hash_policy": "1",
	}
	if n.Forwards() {
		values["net/ipv4/conf/all/forwarding"] = "1"
		values["net/ipv6/conf/all/forwarding"] = "1"
		values["net/ipv6/conf/all/seg6_enabled"] = "1"
		values["net/ipv6/conf/default/seg6_enabled"] = "1"
	}
	for name, value := range n.Sysctls {
		values[name] = value
	}
	for name, value := range values {
		if err := ns.Sysctl(name, value); err != nil {
			return err
		}
	}
	if n.Kind == topology.Switch {
		return ns.Batch([]string{"link add name " + bridge + " type bridge mcast_snooping 0", "link set dev " + bridge + " up"})
	}
	return nil
}

// bridge is the device of a switch.
const bridge = "br0"

// MakeLinks makes the veth pairs.
func MakeLinks(in *instance.Instance, links []topology.Link) error {
	var pairs []string
	inside := map[string][]string{}
	for _, l := range links {
		mtu := l.MTU
		if mtu == 0 {
			mtu = 1500
		}
		a, b := l.Ends[0], l.Ends[1]
		pairs = append(pairs, fmt.Sprintf("link add name %s mtu %d netns %s type veth peer name %s mtu %d netns %s",
			a.Name, mtu, in.Namespace(in.Node(a.Node)).Name, b.Name, mtu, in.Namespace(in.Node(b.Node)).Name))
		for _, e := range l.Ends {
			lines := []string{fmt.Sprintf("link set dev %s up", e.Name)}
			if in.Node(e.Node).Kind == topology.Switch {
				lines = append(lines, fmt.Sprintf("link set dev %s master %s", e.Name, bridge))
			}
			for _, a := range e.Addresses {
				lines = append(lines, addressLine(a, e.Name))
			}
			inside[e.Node] = append(inside[e.Node], lines...)
		}
	}
	if err := namespace.IPBatch(pairs); err != nil {
		return err
	}
	for _, l := range links {
		for _, e := range l.Ends {
			if l.Offloads {
				continue
			}
			if err := setOffloads(in, e); err != nil {
				return fmt.Errorf("%s: %s: %w", e.Node, e.Name, err)
			}
		}
	}
	for _, n := range in.Nodes {
		if err := in.Namespace(n).Batch(inside[n.Name]); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

func addressLine(address, device string) string {
	if strings.Contains(address, ":") {
		return fmt.Sprintf("address add %s dev %s nodad", address, device)
	}
	return fmt.Sprintf("address add %s dev %s", address, device)
}

// setOffloads makes a veth end fit for XDP at the other: every packet its own
// frame, with its tags in it, and NAPI on (which comes with GRO), without
// which XDP cannot redirect into its peer.
func setOffloads(in *instance.Instance, e topology.End) error {
	features := map[string]bool{
		"rx-gro":                       true,
		"tx-generic-segmentation":      false,
		"tx-tcp-segmentation":          false,
		"tx-tcp6-segmentation":         false,
		"tx-tcp-ecn-segmentation":      false,
		"tx-udp-segmentation":          false,
		"tx-vlan-hw-insert":            false,
		"rx-vlan-hw-parse":             false,
		"tx-vlan-stag-hw-insert":       false,
		"rx-vlan-stag-hw-parse":        false,
		"tx-checksum-ip-generic":       e.PartialChecksums,
		"tx-tcp-mangleid-segmentation": false,
	}
	return in.Namespace(in.Node(e.Node)).Do(func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		return tool.Change(e.Name, features)
	})
}

// Configure adds addresses, devices and routes, and loads the rules of nft.
func Configure(in *instance.Instance, n *topology.Node) error {
	var addresses, routes4, routes6 []string
	for _, a := range n.Addresses {
		addresses = append(addresses, addressLine(a, "lo"))
	}
	for _, d := range n.Devices {
		addresses = append(addresses, deviceLines(d)...)
	}
	for _, l := range n.GTPU {
		mtu := l.MTU
		if mtu == 0 {
			mtu = 1400
		}
		// A queue for seconds of traffic: what an endpoint without CPU time
		// loses would be counted against the gateway.
		addresses = append(addresses, fmt.Sprintf("link set dev %s mtu %d txqueuelen 20000 up", l.Device, mtu))
		for _, a := range l.Addresses {
			addresses = append(addresses, addressLine(a, l.Device))
		}
	}
	for _, r := range n.Routes {
		if RouteIsIPv6(r) {
			routes6 = append(routes6, "route add "+r)
		} else {
			routes4 = append(routes4, "route add "+r)
		}
	}
	ns := in.Namespace(n)
	return errors.Join(LoadNFT(in, n, n.NFT), ns.Batch(addresses), ns.Batch(routes4, "-4"), ns.Batch(routes6, "-6"))
}

// deviceLines make the device, for ip.
func deviceLines(d topology.Device) []string {
	up := "up"
	if d.MTU != 0 {
		up = fmt.Sprintf("mtu %d up", d.MTU)
	}
	lines := []string{fmt.Sprintf("link add name %s type %s", d.Name, d.Type), fmt.Sprintf("link set dev %s %s", d.Name, up)}
	for _, a := range d.Addresses {
		lines = append(lines, addressLine(a, d.Name))
	}
	return lines
}

// RouteIsIPv6 tells a route's family by its prefix, or that of a default
// route by its next hop.
func RouteIsIPv6(route string) bool {
	fields := strings.Fields(route)
	i := 0
	if len(fields) > 1 && (fields[0] == "blackhole" || fields[0] == "unreachable" || fields[0] == "prohibit") {
		i = 1
	}
	if fields[i] != "default" {
		return strings.Contains(fields[i], ":")
	}
	for j, f := range fields[:len(fields)-1] {
		if f == "via" {
			return strings.Contains(fields[j+1], ":")
		}
	}
	return false
}
