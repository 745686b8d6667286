package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/te/linkstate"
)

// lsFamilies are those of BGP-LS.
var lsFamilies = []bgp.Family{bgp.RF_LS}

// Flags of a node, a delay and an End.X SID (RFC 9552, RFC 8571, RFC 9514).
const (
	flagOverload  = 0x80
	flagAnomalous = 0x80
	flagSet       = 0x40
)

// readLinkState reads an NLRI of BGP-LS and its attribute. GoBGP has refused one whose octets
// are malformed, and keeps no TLV that it has no type for: maximum SID depths (266, 267),
// capabilities (1038), End.X SIDs of LANs (1107, 1108) and locators (1162) are not to be had.
func readLinkState(n *bgp.LsAddrPrefix, attrs []bgp.PathAttributeInterface) (linkstate.Object, error) {
	var tlvs []bgp.LsTLVInterface
	for _, a := range attrs {
		if v, ok := a.(*bgp.PathAttributeLs); ok {
			tlvs = v.TLVs
		}
	}
	switch v := n.NLRI.(type) {
	case *bgp.LsNodeNLRI:
		r, err := routerOf(v.LsNLRI, v.LocalNodeDesc)
		return readNode(linkstate.Node{Protocol: linkstate.Protocol(v.ProtocolID), Router: r}, tlvs), err
	case *bgp.LsLinkNLRI:
		from, err := routerOf(v.LsNLRI, v.LocalNodeDesc)
		if err != nil {
			return nil, err
		}
		to, err := routerOf(v.LsNLRI, v.RemoteNodeDesc)
		l := linkstate.Link{Protocol: linkstate.Protocol(v.ProtocolID), From: from, To: to}
		readLinkEnds(&l, v.LinkDesc)
		readLink(&l, tlvs)
		return l, err
	case *bgp.LsPrefixV6NLRI:
		r, err := routerOf(v.LsNLRI, v.LocalNodeDesc)
		var d bgp.LsPrefixDescriptor
		d.ParseTLVs(v.PrefixDesc, true)
		if err == nil && (len(d.IPReachability) != 1 || !d.IPReachability[0].IsValid()) {
			err = fmt.Errorf("it has %d prefixes that are sound, and not 1", len(d.IPReachability))
		}
		if err != nil {
			return nil, err
		}
		return linkstate.Prefix{Protocol: linkstate.Protocol(v.ProtocolID), Router: r, Prefix: d.IPReachability[0]}, nil
	case *bgp.LsSrv6SIDNLRI:
		r, err := routerOf(v.LsNLRI, v.LocalNodeDesc)
		info, ok := v.Srv6SIDInfo.(*bgp.LsTLVSrv6SIDInfo)
		if err == nil && (!ok || len(info.SIDs) != 1) {
			err = fmt.Errorf("it has not 1 SID")
		}
		if err != nil {
			return nil, err
		}
		return readNodeSID(linkstate.SID{Protocol: linkstate.Protocol(v.ProtocolID), Router: r, SID: info.SIDs[0]}, tlvs), nil
	}
	return nil, nil // IPv4 prefixes are of no use here
}

// routerOf reads the descriptors of a node.
func routerOf(n bgp.LsNLRI, descriptor bgp.LsTLVInterface) (r linkstate.Router, err error) {
	d, ok := descriptor.(*bgp.LsTLVNodeDescriptor)
	if !ok {
		return r, fmt.Errorf("it describes no node")
	}
	r.Instance = n.Identifier
	for _, sub := range d.SubTLVs {
		switch v := sub.(type) {
		case *bgp.LsTLVAutonomousSystem:
			r.ASN = v.ASN
		case *bgp.LsTLVBgpLsID:
			r.Domain = v.BGPLsID
		case *bgp.LsTLVIgpRouterID:
			r.ID = string(v.RouterID)
		case *bgp.LsTLVBgpRouterID:
			if r.ID == "" { // that of the IGP comes first
				r.ID = string(v.RouterID.AsSlice())
			}
		}
	}
	if r.ID == "" {
		return r, fmt.Errorf("its node has no router ID")
	}
	return r, nil
}

func readNode(n linkstate.Node, tlvs []bgp.LsTLVInterface) linkstate.Node {
	for _, t := range tlvs {
		switch v := t.(type) {
		case *bgp.LsTLVNodeName:
			n.Name = v.Name
		case *bgp.LsTLVNodeFlagBits:
			n.Overloaded = v.Flags&flagOverload != 0
		}
	}
	return n
}

// readLinkEnds reads which link it is.
func readLinkEnds(l *linkstate.Link, tlvs []bgp.LsTLVInterface) {
	var d bgp.LsLinkDescriptor
	d.ParseTLVs(tlvs)
	if d.LinkLocalID != nil && d.LinkRemoteID != nil {
		l.LocalID, l.RemoteID = *d.LinkLocalID, *d.LinkRemoteID
	}
	for _, ends := range [][2]*netip.Addr{{d.InterfaceAddrIPv4, d.NeighborAddrIPv4}, {d.InterfaceAddrIPv6, d.NeighborAddrIPv6}} {
		if ends[0] != nil {
			l.Local = *ends[0]
		}
		if ends[1] != nil {
			l.Remote = *ends[1]
		}
	}
	for id := range d.MultiTopoIDs {
		l.Topologies = append(l.Topologies, id)
	}
	slices.Sort(l.Topologies)
}

// readLink reads the attribute of a link. Of a TLV that occurs again the last one counts, but of
// End.X SIDs all do.
func readLink(l *linkstate.Link, tlvs []bgp.LsTLVInterface) {
	microseconds := func(n uint32) time.Duration { return time.Duration(n) * time.Microsecond }
	for _, t := range tlvs {
		switch v := t.(type) {
		case *bgp.LsTLVIGPMetric:
			l.HasMetric, l.Metric = true, v.Metric
		case *bgp.LsTLVMaxLinkBw:
			l.Bandwidth = float64(v.Bandwidth)
		case *bgp.LsTLVAdminGroup:
			l.Affinity = v.AdminGroup
		case *bgp.LsTLVSrlg:
			l.SRLG = v.Srlgs
		case *bgp.LsTLVUnidirectionalLinkDelay:
			l.Delay = microseconds(v.Delay)
			l.Anomalous = l.Anomalous || v.Flags&flagAnomalous != 0
		case *bgp.LsTLVMinMaxUnidirectionalLinkDelay:
			l.MinDelay, l.MaxDelay = microseconds(v.MinDelay), microseconds(v.MaxDelay)
			l.Anomalous = l.Anomalous || v.Flags&flagAnomalous != 0
		case *bgp.LsTLVSrv6EndXSID:
			if len(v.SIDs) > 0 {
				l.SIDs = append(l.SIDs, linkstate.EndX{SID: v.SIDs[0], Behavior: v.EndpointBehavior, Algorithm: v.Algorithm, Set: v.Flags&flagSet != 0})
			}
		}
	}
}

func readNodeSID(s linkstate.SID, tlvs []bgp.LsTLVInterface) linkstate.SID {
	for _, t := range tlvs {
		switch v := t.(type) {
		case *bgp.LsTLVSrv6EndpointBehavior:
			s.Behavior, s.Algorithm = v.EndpointBehavior, v.Algorithm
		case *bgp.LsTLVSrv6SIDStructure:
			s.Block, s.Node = v.LocalBlock, v.LocalNode
		}
	}
	return s
}
