package netdev

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The library's route type leaves out what decides whether the data path may
// follow a route: encapsulations it does not know, nexthop object ids, source
// prefixes. So the message is read here.

// parseRoute reads an RTM_NEWROUTE. ok is false for routes that are not asked
// for: other tables, and the kernel's clones.
func parseRoute(m []byte, wanted map[uint32]bool) (r Route, ok bool, err error) {
	if len(m) < unix.SizeofRtMsg {
		return r, false, fmt.Errorf("%d bytes", len(m))
	}
	msg := nl.DeserializeRtMsg(m)
	if msg.Flags&unix.RTM_F_CLONED != 0 {
		return r, false, nil
	}
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil {
		return r, false, err
	}
	r.Table = uint32(msg.Table)
	if v := attribute(attrs, unix.RTA_TABLE); len(v) == 4 {
		r.Table = binary.NativeEndian.Uint32(v)
	}
	if !wanted[r.Table] {
		return r, false, nil
	}
	addr := netip.IPv4Unspecified()
	if msg.Family == unix.AF_INET6 {
		addr = netip.IPv6Unspecified()
	}
	if v := attribute(attrs, unix.RTA_DST); v != nil {
		if addr, ok = netip.AddrFromSlice(v); !ok {
			return r, false, fmt.Errorf("destination of %d bytes", len(v))
		}
	}
	if r.Prefix, err = addr.Prefix(int(msg.Dst_len)); err != nil {
		return r, false, err
	}
	r.Type, r.Protocol = RouteType(msg.Type), msg.Protocol
	if v := attribute(attrs, unix.RTA_PRIORITY); len(v) == 4 {
		r.Metric = binary.NativeEndian.Uint32(v)
	}
	r.Hops, r.KernelOnly = routeHops(msg, attrs)
	if r.KernelOnly == "" {
		r.KernelOnly = kernelOnly(msg, attrs)
	}
	return r, true, nil
}

// KernelSID is why only the kernel can follow a route whose destinations are SIDs of its own (seg6local).
const KernelSID = "the kernel has a SID there"

// kernelOnly says what a route has that the data path does not model.
func kernelOnly(msg *nl.RtMsg, attrs []syscall.NetlinkRouteAttr) string {
	if msg.Tos != 0 {
		return "it holds for one TOS only"
	}
	if msg.Src_len != 0 {
		return "it holds for one source prefix only"
	}
	for _, a := range attrs {
		switch a.Attr.Type & nlaTypeMask {
		case unix.RTA_ENCAP_TYPE, unix.RTA_ENCAP:
			if kind := attribute(attrs, unix.RTA_ENCAP_TYPE); len(kind) == 2 && binary.NativeEndian.Uint16(kind) == unix.LWTUNNEL_ENCAP_SEG6_LOCAL {
				return KernelSID
			}
			return "it encapsulates"
		case unix.RTA_NEWDST:
			return "it rewrites the destination"
		case unix.RTA_METRICS:
			metrics, err := nl.ParseRouteAttr(a.Value)
			if err != nil || attribute(metrics, unix.RTAX_MTU) != nil {
				return "it has an MTU of its own"
			}
		}
	}
	return ""
}

// routeHops returns the next hops, and why the kernel alone can use them.
func routeHops(msg *nl.RtMsg, attrs []syscall.NetlinkRouteAttr) ([]Hop, string) {
	if v := attribute(attrs, unix.RTA_MULTIPATH); v != nil {
		return multipath(v)
	}
	oif := attribute(attrs, unix.RTA_OIF)
	if len(oif) != 4 {
		if attribute(attrs, rtaNHID) != nil {
			return nil, "its nexthop object is not shown (net.ipv4.nexthop_compat_mode is 0)"
		}
		return nil, ""
	}
	h := Hop{
		Ifindex: int(binary.NativeEndian.Uint32(oif)), Weight: 1,
		Dead: msg.Flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0,
	}
	why := gateway(&h, attrs)
	return []Hop{h}, why
}

// gateway reads RTA_GATEWAY, or RTA_VIA: a gateway of the other family
// (RFC 8950).
func gateway(h *Hop, attrs []syscall.NetlinkRouteAttr) string {
	v := attribute(attrs, unix.RTA_GATEWAY)
	if via := attribute(attrs, unix.RTA_VIA); len(via) > 2 {
		v = via[2:]
	}
	if v == nil {
		return ""
	}
	addr, ok := netip.AddrFromSlice(v)
	if !ok {
		return "its gateway is not an IP address"
	}
	h.Gateway = addr
	return ""
}

// multipath reads RTA_MULTIPATH: struct rtnexthop and its attributes, one after
// the other.
func multipath(v []byte) ([]Hop, string) {
	var hops []Hop
	for len(v) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(v))
		if length < unix.SizeofRtNexthop || length > len(v) {
			return hops, "its list of next hops is cut short"
		}
		flags := v[2]
		h := Hop{
			Weight:  int(v[3]) + 1,
			Ifindex: int(binary.NativeEndian.Uint32(v[4:])),
			Dead:    flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0,
		}
		attrs, err := nl.ParseRouteAttr(v[unix.SizeofRtNexthop:length])
		if err != nil {
			return hops, "its list of next hops cannot be read"
		}
		if attribute(attrs, unix.RTA_ENCAP_TYPE) != nil || attribute(attrs, unix.RTA_NEWDST) != nil {
			return hops, "one of its next hops encapsulates"
		}
		if why := gateway(&h, attrs); why != "" {
			return hops, why
		}
		hops = append(hops, h)
		v = v[min((length+3)&^3, len(v)):]
	}
	return hops, ""
}
