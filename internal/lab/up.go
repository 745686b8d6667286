package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/kubelet"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/lab/report"
	"github.com/culvert-net/culvert/internal/lab/topology"
)

// up builds the instance. One that is whole already is left as it is; one
// that is not (a process died, an up was killed) is taken down first. What a
// failing up has made is taken down again. variant is the one to begin with, or
// empty.
func (in *instance) up(ctx context.Context, variant string, progress *report.Progress) error {
	if in.state.Ready && in.whole() {
		progress.Say("%s is up already", in.name)
		return in.goOver(ctx, variant, progress)
	}
	return in.upAnew(ctx, variant, progress)
}

// upAnew builds the instance, of which nothing is left before.
func (in *instance) upAnew(ctx context.Context, variant string, progress *report.Progress) error {
	if err := in.down(progress); err != nil {
		return err
	}
	if len(in.Kubelets()) > 0 {
		if err := haveCluster(variant); err != nil {
			return err
		}
	}
	in.state.Variant = variant
	if err := in.begin(); err != nil {
		return err
	}
	if err := in.build(ctx, progress); err != nil {
		return errors.Join(fmt.Errorf("lab %s: %w", in.name, err), in.down(progress))
	}
	in.state.Ready = true
	return in.save()
}

// whole says whether everything that was made is still there.
func (in *instance) whole() bool {
	for _, name := range in.state.Namespaces {
		if mark, ok, err := (namespace.Named{Name: name}).Mark(); err != nil || !ok || mark != in.state.Mark {
			return false
		}
	}
	for _, p := range in.state.Processes {
		if !p.alive() {
			return false
		}
	}
	return true
}

func (in *instance) build(ctx context.Context, progress *report.Progress) error {
	steps := []struct {
		text string
		each func(*topology.Node) error
	}{
		{"namespaces", func(n *topology.Node) error { return in.makeNamespace(n) }},
		{"links", nil},
		{"GTP-U endpoints", func(n *topology.Node) error { return in.startEndpoint(n) }},
		{"addresses and routes", func(n *topology.Node) error { return in.configure(n) }},
		{"FRR", func(n *topology.Node) error { return in.startFRR(n) }},
		{"kube-apiserver", func(n *topology.Node) error { return in.startFor(ctx, n) }},
		{"kubelets", func(n *topology.Node) error { return in.startKubelet(n) }},
		{"the nodes of the cluster", func(n *topology.Node) error { return in.joinCluster(ctx, n) }},
		{"culvert, by its manifest", func(n *topology.Node) error { return in.install(ctx, n) }},
		{"culvert", func(n *topology.Node) error { return in.startCulvert(ctx, n, in.culvert) }},
		{"pods", func(n *topology.Node) error { return in.attach(ctx, n) }},
		{"Services", func(n *topology.Node) error { return in.serve(ctx, n) }},
		{"SMF", func(n *topology.Node) error { return in.startSMFs(ctx, n) }},
	}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress.Say("%s: %s", in.name, s.text)
		if s.each == nil {
			if err := in.makeLinks(in.Topology.Links); err != nil {
				return err
			}
			continue
		}
		for _, n := range in.Nodes {
			if err := s.each(n); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
	}
	if err := (&runner{instance: in, progress: progress}).eventsOf(ctx, in.Topology.Setup, new(report.Outcome)); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

func (in *instance) makeNamespace(n *topology.Node) error {
	if in.IsReal(n) {
		return nil // its container runtime makes it
	}
	ns := in.namespace(n)
	// Before the state names it: a foreign one must not get in there.
	if _, ok, err := ns.Mark(); err == nil && ok {
		return fmt.Errorf("namespace %s %w: remove it with `ip netns delete %s`, or give this lab another name with --as", ns.Name, namespace.ErrForeign, ns.Name)
	}
	in.state.Namespaces = append(in.state.Namespaces, ns.Name)
	if err := in.save(); err != nil {
		return err
	}
	if err := ns.Create(in.state.Mark); err != nil {
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

// makeLinks makes the veth pairs.
func (in *instance) makeLinks(links []topology.Link) error {
	var pairs []string
	inside := map[string][]string{}
	for _, l := range links {
		mtu := l.MTU
		if mtu == 0 {
			mtu = 1500
		}
		a, b := l.Ends[0], l.Ends[1]
		pairs = append(pairs, fmt.Sprintf("link add name %s mtu %d netns %s type veth peer name %s mtu %d netns %s",
			a.Name, mtu, in.namespace(in.Node(a.Node)).Name, b.Name, mtu, in.namespace(in.Node(b.Node)).Name))
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
			if err := in.setOffloads(e); err != nil {
				return fmt.Errorf("%s: %s: %w", e.Node, e.Name, err)
			}
		}
	}
	for _, n := range in.Nodes {
		if err := in.namespace(n).Batch(inside[n.Name]); err != nil {
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
func (in *instance) setOffloads(e topology.End) error {
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
	return in.namespace(in.Node(e.Node)).Do(func() error {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer tool.Close()
		return tool.Change(e.Name, features)
	})
}

func (in *instance) configure(n *topology.Node) error {
	var addresses, routes4, routes6 []string
	for _, a := range n.Addresses {
		addresses = append(addresses, addressLine(a, "lo"))
	}
	for _, d := range n.Devices {
		addresses = append(addresses, lines(d)...)
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
		if routeIsIPv6(r) {
			routes6 = append(routes6, "route add "+r)
		} else {
			routes4 = append(routes4, "route add "+r)
		}
	}
	ns := in.namespace(n)
	return errors.Join(in.loadNFT(n, n.NFT), ns.Batch(addresses), ns.Batch(routes4, "-4"), ns.Batch(routes6, "-6"))
}

// lines make the device, for ip.
func lines(d topology.Device) []string {
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

// routeIsIPv6 tells a route's family by its prefix, or that of a default
// route by its next hop.
func routeIsIPv6(route string) bool {
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

// startEndpoint starts the node's GTP-U endpoint: this program again.
func (in *instance) startEndpoint(n *topology.Node) error {
	if len(n.GTPU) == 0 {
		return nil
	}
	text, err := json.MarshalIndent(n.GTPU, "", "  ")
	if err != nil {
		return err
	}
	file := in.file(n, "gtpu.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := in.start(n, endpointProcess, self, "lab", "endpoint", "--links", file, "--control", in.control(n)); err != nil {
		return err
	}
	p, _ := in.process(n, endpointProcess)
	ready := waitFor(5*time.Second, func() bool {
		_, err := gtpulink.Ask(in.control(n), gtpulink.Request{Op: "stats"})
		return err == nil || !p.alive()
	})
	if !ready || !p.alive() {
		return fmt.Errorf("the GTP-U endpoint did not start: %s", in.logTail(n, endpointProcess))
	}
	return nil
}

const endpointProcess = "endpoint"

// control is the path of the node's endpoint's control socket.
func (in *instance) control(n *topology.Node) string { return in.file(n, "endpoint.sock") }

// down takes away all that the state names. It is idempotent.
func (in *instance) down(progress *report.Progress) error {
	if in.state.Mark == "" {
		return nil
	}
	progress.Say("%s: taking down", in.name)
	var errs []error
	for _, p := range in.state.Processes {
		errs = append(errs, p.stop(unix.SIGTERM, 3*time.Second))
	}
	for _, dir := range slices.Concat(in.state.Pins, in.state.Disks) {
		errs = append(errs, os.RemoveAll(dir))
	}
	for _, name := range in.state.Cgroups {
		errs = append(errs, kubelet.RemoveCgroup(name))
	}
	for _, name := range in.state.Namespaces {
		err := namespace.Named{Name: name}.Delete(in.state.Mark)
		if errors.Is(err, namespace.ErrForeign) { // ours has gone, another came
			progress.Say("%v", err)
			err = nil
		}
		errs = append(errs, err)
	}
	// Not made, or in use by other instances: both are fine.
	_ = os.Remove(in.pins())
	_ = os.Remove(pinDir)
	_ = os.Remove(filepath.Join(diskDir, in.name))
	_ = os.Remove(diskDir)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lab %s: down: %w", in.name, err)
	}
	in.state = state{}
	return errors.Join(os.RemoveAll(in.dir()), os.Remove(in.stateFile()))
}
