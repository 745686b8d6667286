package bench

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/bench/traffic"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/srpolicy"
	"github.com/culvert-net/culvert/srv6"
)

// The built-in devices.
const (
	kernelDevice  = "kernel"
	culvertDevice = "culvert"
	// veth is no device: the receiver is at the end of the pair of interfaces that
	// leads to the others. What is lost here none of them lost.
	veth = "veth"
)

// target is what is measured: a device, and what it does.
type target struct{ device, function string }

func (t target) String() string {
	if t.device == t.function {
		return t.device
	}
	return t.device + " " + t.function
}

// forwarder is what a built-in device can do with a packet.
type forwarder struct {
	name   string
	sent   traffic.Template
	expect *traffic.Template // nil: what was sent
	// routes are the kernel's, of ip(8); nil: it has no such thing.
	routes []string
	// put configures Culvert; nil: it leaves such packets to the kernel.
	put func(*config.Config)
}

// The addresses that only the built-in devices' packets have.
var (
	toSteer    = addr("10.128.0.1")
	toTunnel   = addr("10.0.0.1")
	toForward  = addr("100.66.0.1")
	sidEnd     = sidAt(1)
	sidDT6     = sidAt(5)
	vxlanLocal = addr("198.51.100.1")
	vxlanPeer  = addr("198.51.100.9")
	toVXLAN    = addr("100.67.0.1")
)

func user4(dst netip.Addr) traffic.Inner { return traffic.Inner{Source: inner4, Destination: dst} }

// srv6Outer leaves segments[0:done] behind.
func srv6Outer(src netip.Addr, done int, segments ...netip.Addr) traffic.Outer {
	left := len(segments) - 1 - done
	return traffic.Outer{Kind: traffic.SRv6, Source: src, Segments: segments, SegmentsLeft: &left}
}

func forwarders() []forwarder {
	reduced := traffic.Outer{Kind: traffic.SRv6, Source: source, Segments: []netip.Addr{segment}, Reduced: true}
	sid := func(at netip.Addr, b srv6.Behavior) func(*config.Config) {
		return func(c *config.Config) {
			c.SIDs = append(c.SIDs, srv6.LocalSID{SID: prefix(at, 64), Behavior: b, Table: sidTable(b)})
		}
	}
	steer := func(s srpolicy.Steering) func(*config.Config) {
		return func(c *config.Config) { c.Steering = append(c.Steering, s) }
	}
	local := func(at netip.Addr, action string) []string {
		return []string{"route add " + prefix(at, 64).String() + " encap seg6local action " + action + " dev " + portOut}
	}
	return []forwarder{
		{name: "forward", sent: traffic.Template{Inner: user4(toForward), Flows: 256}, routes: []string{}},
		{
			name: "h_encaps_red", sent: traffic.Template{Inner: user4(toSteer), Flows: 256}, expect: &traffic.Template{Outer: reduced},
			put: steer(srpolicy.Steering{Prefix: prefix(toSteer, 16), Policy: policyRed}),
			routes: []string{
				"sr tunsrc set " + source.String(),
				"route add 10.128.0.0/16 encap seg6 mode encap.red segs " + segment.String() + " dev " + portOut,
			},
		},
		{
			name: "end", sent: traffic.Template{Inner: user4(dst4), Outer: srv6Outer(gnb6, 0, sidEnd, final), Flows: 256},
			expect: &traffic.Template{Outer: srv6Outer(gnb6, 1, sidEnd, final)},
			put:    sid(sidEnd, srv6.End), routes: local(sidEnd, "End"),
		},
		{
			name: "end_dt6", expect: &traffic.Template{},
			sent: traffic.Template{
				Inner: traffic.Inner{Source: inner6, Destination: dst6}, Flows: 256,
				Outer: traffic.Outer{Kind: traffic.SRv6, Source: gnb6, Segments: []netip.Addr{sidDT6}, Reduced: true},
			},
			put: sid(sidDT6, srv6.EndDT6), routes: local(sidDT6, "End.DT6 table 100"),
		},
		{
			name: "vxlan", sent: traffic.Template{Inner: user4(toVXLAN), Flows: 256},
			expect: &traffic.Template{Outer: traffic.Outer{Kind: traffic.VXLAN, Source: vxlanLocal, Destination: vxlanPeer, VNI: 4096}},
			routes: []string{
				"neigh add " + vxlanPeer.String() + " lladdr " + macOf(4).String() + " dev " + portOut + " nud permanent",
				"link add vx0 type vxlan id 4096 local " + vxlanLocal.String() + " remote " + vxlanPeer.String() + " dstport 4789 noudpcsum dev " + portOut,
				"addr add 10.99.0.1/24 dev vx0", "neigh add 10.99.0.2 lladdr " + macOf(20).String() + " dev vx0 nud permanent",
				"link set vx0 up", "route add 100.67.0.0/16 via 10.99.0.2 dev vx0",
			},
		},
		{
			name: "gtpu_encap", sent: traffic.Template{Inner: user4(toTunnel), Flows: 256},
			expect: &traffic.Template{Outer: traffic.Outer{Kind: traffic.GTPU, Source: upf, Destination: farGTPU, TEID: 0x1234}},
			put:    steer(srpolicy.Steering{Prefix: prefix(toTunnel, 32), Tunnel: tunnelFar}),
		},
		{
			name: "gtpu_decap", expect: &traffic.Template{},
			sent: traffic.Template{
				Inner: user4(dst4), Flows: 256, Outer: traffic.Outer{Kind: traffic.GTPU, Source: gnb, Destination: upf, TEID: 1},
			},
			put: func(c *config.Config) {
				c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: name("decap", 0), LocalTEID: 1, Decapsulate: true})
			},
		},
	}
}

// sidTable is the kernel table of a behaviour that has one.
func sidTable(b srv6.Behavior) uint32 {
	if b == srv6.EndDT6 {
		return customerTable
	}
	return 0
}

func (f forwarder) by(device string) bool {
	return device == kernelDevice && f.routes != nil || device == culvertDevice && f.put != nil
}

// chosen are the targets that a name of --against stands for.
func chosen(name string) (list []target) {
	device, function, one := strings.Cut(name, "/")
	for _, f := range forwarders() {
		if f.by(device) && (!one || f.name == function) {
			list = append(list, target{device, f.name})
		}
	}
	return list
}

func againstNames() []string {
	list := []string{kernelDevice, culvertDevice}
	for _, device := range list[:2] {
		for _, t := range chosen(device) {
			list = append(list, t.device+"/"+t.function)
		}
	}
	return list
}

// forwarderOf finds what a built-in target does.
func forwarderOf(t target) forwarder {
	all := forwarders()
	return all[slices.IndexFunc(all, func(f forwarder) bool { return f.name == t.function })]
}
