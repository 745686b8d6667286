package catalog

import (
	"slices"

	"github.com/culvert-net/culvert/gtpu"
	"github.com/culvert-net/culvert/internal/bench/node"
	"github.com/culvert-net/culvert/internal/bench/rig"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/packet"
	"github.com/culvert-net/culvert/internal/smf"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Where GTP-U goes over IPv6: the node's address, and the other end's.
var (
	upf6     = Addr("2001:db8:1::2")
	farGTPU6 = Addr("2001:db8:9::9")
)

const tunnelFar6 = "far6"

// The UEs of functions that have a pool to themselves, and of those that have none.
var (
	pool6         = Prefix(Addr("10.141.0.0"), 20)
	outsideGTPU   = Addr("100.104.0.0")
	outsideRed    = Addr("100.104.16.0")
	outsideOfUPFs = Addr("100.104.32.1")
)

// traced is the function while a trace runs that matches none of its frames.
func (f Function) traced() Function {
	f.Traced = true
	return f
}

// overIPv6 is the function with GTP-U over IPv6 in place of IPv4.
func (f Function) overIPv6() Function {
	const longer = rig.LenIPv6 - rig.LenIPv4
	behind := f.Data[rig.LenEthernet+rig.LenIPv4+rig.LenUDP:]
	f.Data = stack{packet.Payload{Data: behind}}.in(packet.IPv6{Src: GNB6, Dst: upf6}, udp(50000, gtpuPort, true)).frame()
	for _, k := range []*key{&f.Key, &f.twin, &f.flow, &f.teid} {
		if k.Offset != 0 {
			k.Offset += longer
		}
		if k.checksum != 0 {
			k.checksum += longer
		}
	}
	return f
}

// toUEs are the packets to UEs from `first` on, of which each is steered as `how` says.
func toUEs(name string, first uint32, size int, how srpolicy.Steering, w rig.Want) Function {
	return Function{
		Name: name, Size: size, Most: FewSessions, Data: packet4(Inner4, UEAt(first), size, true).frame(), Want: w,
		Key: key{Offset: rig.LenEthernet + 16, base: first, checksum: rig.LenEthernet + 10},
		put: func(c *config.Config, entries uint32) {
			for n := range entries {
				how.Prefix = Prefix(UEAt(first+n), 32)
				c.Steering = append(c.Steering, how)
			}
		},
	}
}

// encapOverIPv6 sends to a tunnel whose other end has an IPv6 address. What it needs for the UDP
// checksum is the one in the T-PDU.
func encapOverIPv6(size int) Function {
	f := toUEs("gtpu_encap@"+suffixIPv6, UENumber(pool6.Addr()), size, srpolicy.Steering{Tunnel: tunnelFar6},
		rig.WantIPv6(farGTPU6, 16, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+rig.LenIPv4+size))
	steer := f.put
	f.put = func(c *config.Config, entries uint32) {
		c.Tunnels = append(c.Tunnels, gtpu.Tunnel{Name: tunnelFar6, Remote: farGTPU6, RemoteTEID: 0x1234})
		c.GTPU.Pools = append(c.GTPU.Pools, pool6)
		c.Limits.Tunnels += 1 << (32 - pool6.Bits())
		steer(c, entries)
	}
	return f
}

func encapOutside(size int) Function {
	return toUEs("gtpu_encap@"+suffixOutside, UENumber(outsideGTPU), size, srpolicy.Steering{Tunnel: TunnelFar},
		rig.WantIPv4(FarGTPU, rig.ProtoUDP, rig.LenUDP+rig.LenGTPU+rig.LenIPv4+size))
}

func redOutside(size int) Function {
	return toUEs("h_encaps_red@"+suffixOutside, UENumber(outsideRed), size, srpolicy.Steering{Policy: PolicyReduced}, wantReduced(1, rig.LenIPv4+size))
}

// byPort is H.Encaps.Red of what is steered by the port that it comes from.
func byPort(size int) Function {
	return Function{
		Name: "h_encaps_red@" + suffixPort, Size: size, Most: 1, Port: node.PortSteered, Data: packet4(Inner4, Dst4, size, false).frame(),
		put: func(*config.Config, uint32) {}, Want: wantReduced(1, rig.LenIPv4+size),
	}
}

// steerPort steers what the port receives, if a function uses it.
func steerPort(c *config.Config, list []Function) {
	if slices.ContainsFunc(list, func(f Function) bool { return f.Port == node.PortSteered }) {
		c.Steering = append(c.Steering, srpolicy.Steering{Interface: node.PortSteered, Policy: PolicyReduced})
	}
}

// The places of the groups of sessions that few functions have.
const (
	framedPlace   = (natPlace + 1) * natUEs // behind those with a NAT
	open5gs6Place = FewGroups - 6
	free5gc6Place = FewGroups - 5
	nearPlace     = FewGroups - 4
	srv6Place     = FewGroups - 3
	outsidePlace  = FewGroups - 2
	ipv6Place     = FewGroups - 1
)

// ofOtherSessions are the function for UEs outside of the pools, and with gNBs that have IPv6
// addresses only.
func (f Function) ofOtherSessions() (out []Function) {
	usual := Sessions{Most: FewSessions, Dialect: smf.Free5GC, Spec: metered}
	outside, six := usual, usual
	outside.Place, outside.UEs = outsidePlace, outsideOfUPFs
	six.Place, six.IPv6 = ipv6Place, true
	for _, v := range []struct {
		suffix   string
		sessions Sessions
	}{{suffixOutside, outside}, {suffixIPv6, six}} {
		var g Function
		switch {
		case f.Name == "downlink":
			g = Downlink("@"+v.suffix, v.sessions, f.Size)
		case v.sessions.IPv6:
			g = Uplink("@"+v.suffix, v.sessions, f.Size).overIPv6()
		default:
			g = Uplink("@"+v.suffix, v.sessions, f.Size)
		}
		g.Size, g.Port = f.Size, f.Port
		out = append(out, g)
	}
	return out
}
