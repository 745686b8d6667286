package network

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

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
	if n.Daemon() || n.Kind == topology.Kernel || n.Kind == topology.FRR { // a router
		values["net/ipv4/conf/all/forwarding"] = "1"
		values["net/ipv6/conf/all/forwarding"] = "1"
		values["net/ipv6/conf/all/seg6_enabled"] = "1"
		values["net/ipv6/conf/default/seg6_enabled"] = "1"
	}
	maps.Copy(values, n.Sysctls)
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
		a, b, mtu := l.Ends[0], l.Ends[1], cmp.Or(l.MTU, 1500)
		pairs = append(pairs, fmt.Sprintf("link add name %s mtu %d netns %s type veth peer name %s mtu %d netns %s",
			a.Name, mtu, in.Namespace(in.Node(a.Node)).Name, b.Name, mtu, in.Namespace(in.Node(b.Node)).Name))
		for _, e := range l.Ends {
			lines := []string{fmt.Sprintf("link set dev %s up", e.Name)}
			if in.Node(e.Node).Kind == topology.Switch {
				lines = append(lines, fmt.Sprintf("link set dev %s master %s", e.Name, bridge))
			}
			inside[e.Node] = slices.Concat(inside[e.Node], lines, addressLines("add", e.Name, e.Addresses))
		}
	}
	if err := namespace.IPBatch(pairs); err != nil {
		return err
	}
	for _, l := range links {
		if l.Offloads {
			continue
		}
		for _, e := range l.Ends {
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
	return shape(in, links)
}

// shape holds links to their rates.
func shape(in *instance.Instance, links []topology.Link) error {
	for _, l := range links {
		if l.Kbits == 0 {
			continue
		}
		for _, e := range l.Ends {
			err := in.Namespace(in.Node(e.Node)).Do(func() error {
				_, err := namespace.Output(exec.Command("tc", "qdisc", "add", "dev", e.Name, "root", "tbf", "rate", fmt.Sprintf("%dkbit", l.Kbits), "burst", "4k", "latency", "50ms"))
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %s: %w", e.Node, e.Name, err)
			}
		}
	}
	return nil
}

// Queue is what a queue of a link with a rate has sent and dropped.
type Queue struct {
	Node, Device string
	Kbits        int // of the link
	Bytes        uint64
	Drops        uint64
}

// Queues are of all links with a rate.
func Queues(in *instance.Instance) (list []Queue, err error) {
	for _, l := range in.Links {
		if l.Kbits == 0 {
			continue
		}
		for _, e := range l.Ends {
			var got []struct {
				Kind  string `json:"kind"`
				Bytes uint64 `json:"bytes"`
				Drops uint64 `json:"drops"`
			}
			if err := in.Namespace(in.Node(e.Node)).JSON(&got, "tc", "-s", "-j", "qdisc", "show", "dev", e.Name, "root"); err != nil {
				return nil, err
			}
			if len(got) != 1 || got[0].Kind != "tbf" {
				return nil, fmt.Errorf("%s: %s has the queues %+v: want one of kind tbf", e.Node, e.Name, got)
			}
			list = append(list, Queue{e.Node, e.Name, l.Kbits, got[0].Bytes, got[0].Drops})
		}
	}
	return list, nil
}

// addressLines add addresses to a device, or replace them, for ip.
func addressLines(verb, device string, addresses []string) (lines []string) {
	for _, a := range addresses {
		line := fmt.Sprintf("address %s %s dev %s", verb, a, device)
		if strings.Contains(a, ":") {
			line += " nodad"
		}
		lines = append(lines, line)
	}
	return lines
}

// setOffloads makes a veth end fit for XDP at the other: every packet its own
// frame, with its tags in it, and NAPI on (which comes with GRO), without
// which XDP cannot redirect into its peer.
func setOffloads(in *instance.Instance, e topology.End) error {
	features := map[string]bool{"rx-gro": true, "tx-checksum-ip-generic": e.PartialChecksums}
	for _, off := range []string{
		"tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation",
		"tx-tcp-mangleid-segmentation", "tx-udp-segmentation",
		"tx-vlan-hw-insert", "rx-vlan-hw-parse", "tx-vlan-stag-hw-insert", "rx-vlan-stag-hw-parse",
	} {
		features[off] = false
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
	lines := addressLines("add", "lo", n.Addresses)
	for _, d := range n.Devices {
		up := "up"
		if d.MTU != 0 {
			up = fmt.Sprintf("mtu %d up", d.MTU)
		}
		lines = append(lines, fmt.Sprintf("link add name %s type %s", d.Name, d.Type), fmt.Sprintf("link set dev %s %s", d.Name, up))
		lines = append(lines, addressLines("add", d.Name, d.Addresses)...)
	}
	for _, l := range n.GTPU {
		// A queue for seconds of traffic: what an endpoint without CPU time
		// loses would be counted against the gateway.
		lines = append(lines, fmt.Sprintf("link set dev %s mtu %d txqueuelen 20000 up", l.Device, cmp.Or(l.MTU, 1400)))
		lines = append(lines, addressLines("add", l.Device, l.Addresses)...)
	}
	return errors.Join(LoadNFT(in, n, n.NFT), in.Namespace(n).Batch(lines), AddRoutes(in, n))
}

// AddRoutes adds the routes of a node, in place of those that it has already.
func AddRoutes(in *instance.Instance, n *topology.Node) error {
	var routes4, routes6 []string
	for _, r := range n.Routes {
		if RouteIsIPv6(r) {
			routes6 = append(routes6, "route replace "+r)
		} else {
			routes4 = append(routes4, "route replace "+r)
		}
	}
	ns := in.Namespace(n)
	return errors.Join(ns.Batch(routes4, "-4"), ns.Batch(routes6, "-6"))
}

// SetDown takes links of a node down, all at once.
func SetDown(in *instance.Instance, n *topology.Node, devices ...string) error {
	var lines []string
	for _, device := range devices {
		lines = append(lines, "link set dev "+device+" down")
	}
	return in.Namespace(n).Batch(lines)
}

// SetUp sets links of a node up, with their addresses: the kernel has taken those of IPv6.
func SetUp(in *instance.Instance, n *topology.Node, devices ...string) error {
	var lines []string
	for _, l := range in.LinksOf(n) {
		for _, e := range l.Ends {
			if e.Node == n.Name && slices.Contains(devices, e.Name) {
				lines = append(append(lines, "link set dev "+e.Name+" up"), addressLines("replace", e.Name, e.Addresses)...)
			}
		}
	}
	return in.Namespace(n).Batch(lines)
}

// RouteIsIPv6 reads a route's family from its prefix, or that of a default
// route from its next hop.
func RouteIsIPv6(route string) bool {
	fields := strings.Fields(route)
	if len(fields) > 1 && slices.Contains([]string{"blackhole", "unreachable", "prohibit"}, fields[0]) {
		fields = fields[1:]
	}
	if fields[0] != "default" {
		return strings.Contains(fields[0], ":")
	}
	via := slices.Index(fields, "via")
	return via >= 0 && via+1 < len(fields) && strings.Contains(fields[via+1], ":")
}

// Client is a client of servers that listen in a node's namespace.
func Client(in *instance.Instance, n *topology.Node, config *tls.Config) *http.Client {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = in.Namespace(n).Do(func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}
	return &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: config},
	}
}

// Get requests a path of an HTTP server that listens in a node's namespace.
func Get(ctx context.Context, in *instance.Instance, n *topology.Node, listen, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+path, nil)
	if err != nil {
		return nil, err
	}
	return Client(in, n, nil).Do(request)
}

// DropNamespace removes a node's namespace.
func DropNamespace(in *instance.Instance, n *topology.Node) error {
	name := in.Namespace(n).Name
	if err := (namespace.Named{Name: name}).Delete(in.State.Mark); err != nil {
		return err
	}
	in.State.Namespaces = slices.DeleteFunc(in.State.Namespaces, func(s string) bool { return s == name })
	return in.Save()
}
