package device

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/bench/catalog"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The built-in devices.
const (
	KernelDevice  = "kernel"
	CulvertDevice = "culvert"
	// Veth is no device: the receiver is at the end of the pair of interfaces that
	// leads to the others. What is lost here none of them lost.
	Veth = "veth"
)

// Target is what is measured: a device, and what it does.
type Target struct{ Device, Function string }

func (t Target) String() string {
	if t.Device == t.Function {
		return t.Device
	}
	return t.Device + " " + t.Function
}

// Forwarder is what a built-in device can do with a packet.
type Forwarder struct {
	name   string
	Sent   traffic.Template
	Expect *traffic.Template // nil: what was sent
	// routes are the kernel's, of ip(8); nil: it has no such thing.
	routes []string
	// put configures Culvert; nil: it leaves such packets to the kernel.
	Put func(*config.Config)
}

// The addresses that only the built-in devices' packets have.
var (
	toSteer    = catalog.Addr("10.128.0.1")
	toTunnel   = catalog.Addr("10.0.0.1")
	toForward  = catalog.Addr("100.66.0.1")
	sidEnd     = catalog.SIDAt(1)
	sidDT6     = catalog.SIDAt(5)
	vxlanLocal = catalog.Addr("198.51.100.1")
	vxlanPeer  = catalog.Addr("198.51.100.9")
	toVXLAN    = catalog.Addr("100.67.0.1")
)

func user4(dst netip.Addr) traffic.Inner {
	return traffic.Inner{Source: catalog.Inner4, Destination: dst}
}

// srv6Outer leaves segments[0:done] behind.
func srv6Outer(src netip.Addr, done int, segments ...netip.Addr) traffic.Outer {
	left := len(segments) - 1 - done
	return traffic.Outer{Kind: traffic.SRv6, Source: src, Segments: segments, SegmentsLeft: &left}
}

// Forwarders returns what built-in devices can do.
func Forwarders() []Forwarder {
	reduced := traffic.Outer{Kind: traffic.SRv6, Source: catalog.Source, Segments: []netip.Addr{catalog.Segment}, Reduced: true}
	sid := func(at netip.Addr, b srv6.Behavior) func(*config.Config) {
		return func(c *config.Config) {
			table := map[srv6.Behavior]uint32{srv6.EndDT6: catalog.CustomerTable}[b]
			c.SIDs = append(c.SIDs, srv6.LocalSID{SID: catalog.Prefix(at, 64), Behavior: b, Table: table})
		}
	}
	steer := func(s srpolicy.Steering) func(*config.Config) {
		return func(c *config.Config) { c.Steering = append(c.Steering, s) }
	}
	local := func(at netip.Addr, action string) []string {
		return []string{"route add " + catalog.Prefix(at, 64).String() + " encap seg6local action " + action + " dev " + node.PortOut}
	}
	return []Forwarder{
		{name: "forward", Sent: traffic.Template{Inner: user4(toForward), Flows: 256}, routes: []string{}},
		{
			name: "h_encaps_red", Sent: traffic.Template{Inner: user4(toSteer), Flows: 256}, Expect: &traffic.Template{Outer: reduced},
			Put: steer(srpolicy.Steering{Prefix: catalog.Prefix(toSteer, 16), Policy: catalog.PolicyReduced}),
			routes: []string{
				"sr tunsrc set " + catalog.Source.String(),
				"route add 10.128.0.0/16 encap seg6 mode encap.red segs " + catalog.Segment.String() + " dev " + node.PortOut,
			},
		},
		{
			name: "end", Sent: traffic.Template{Inner: user4(catalog.Dst4), Outer: srv6Outer(catalog.GNB6, 0, sidEnd, catalog.Final), Flows: 256},
			Expect: &traffic.Template{Outer: srv6Outer(catalog.GNB6, 1, sidEnd, catalog.Final)},
			Put:    sid(sidEnd, srv6.End), routes: local(sidEnd, "End"),
		},
		{
			name: "end_dt6", Expect: &traffic.Template{},
			Sent: traffic.Template{
				Inner: traffic.Inner{Source: catalog.Inner6, Destination: catalog.Dst6}, Flows: 256,
				Outer: traffic.Outer{Kind: traffic.SRv6, Source: catalog.GNB6, Segments: []netip.Addr{sidDT6}, Reduced: true},
			},
			Put: sid(sidDT6, srv6.EndDT6), routes: local(sidDT6, "End.DT6 table 100"),
		},
		{
			name: "vxlan", Sent: traffic.Template{Inner: user4(toVXLAN), Flows: 256},
			Expect: &traffic.Template{Outer: traffic.Outer{Kind: traffic.VXLAN, Source: vxlanLocal, Destination: vxlanPeer, VNI: 4096}},
			routes: []string{
				"neigh add " + vxlanPeer.String() + " lladdr " + node.MAC(4).String() + " dev " + node.PortOut + " nud permanent",
				"link add vx0 type vxlan id 4096 local " + vxlanLocal.String() + " remote " + vxlanPeer.String() + " dstport 4789 noudpcsum dev " + node.PortOut,
				"addr add 10.99.0.1/24 dev vx0", "neigh add 10.99.0.2 lladdr " + node.MAC(20).String() + " dev vx0 nud permanent",
				"link set vx0 up", "route add 100.67.0.0/16 via 10.99.0.2 dev vx0",
			},
		},
		{
			name: "gtpu_encap", Sent: traffic.Template{Inner: user4(toTunnel), Flows: 256},
			Expect: &traffic.Template{Outer: traffic.Outer{Kind: traffic.GTPU, Source: catalog.UPF, Destination: catalog.FarGTPU, TEID: 0x1234}},
			Put:    steer(srpolicy.Steering{Prefix: catalog.Prefix(toTunnel, 32), Tunnel: catalog.TunnelFar}),
		},
		{
			name: "gtpu_decap", Expect: &traffic.Template{},
			Sent: traffic.Template{
				Inner: user4(catalog.Dst4), Flows: 256, Outer: traffic.Outer{Kind: traffic.GTPU, Source: catalog.GNB, Destination: catalog.UPF, TEID: 1},
			},
			Put: func(c *config.Config) {
				c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: catalog.Name("decap", 0), LocalTEID: 1, Decapsulate: true})
			},
		},
	}
}

// chosen are the targets that a name of --against stands for.
func chosen(name string) (list []Target) {
	device, function, one := strings.Cut(name, "/")
	for _, f := range Forwarders() {
		able := device == KernelDevice && f.routes != nil || device == CulvertDevice && f.Put != nil
		if able && (!one || f.name == function) {
			list = append(list, Target{device, f.name})
		}
	}
	return list
}

// AgainstNames returns the names that --against takes.
func AgainstNames() []string {
	list := []string{KernelDevice, CulvertDevice}
	for _, device := range list[:2] {
		for _, t := range chosen(device) {
			list = append(list, t.Device+"/"+t.Function)
		}
	}
	return list
}

// ForwarderOf finds what a built-in target does.
func ForwarderOf(t Target) Forwarder {
	all := Forwarders()
	return all[slices.IndexFunc(all, func(f Forwarder) bool { return f.name == t.Function })]
}
