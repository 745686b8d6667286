// Package linkstate turns what an IGP advertises by BGP-LS (RFC 9552, RFC 9514) into a topology.
// It knows no octets: who reads them makes its objects.
package linkstate

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"
)

// Object is a Node, a Link, a Prefix, a SID, or an Unreadable.
type Object interface{ object() }

// Protocol is a BGP-LS Protocol-ID.
type Protocol uint8

// The protocols of RFC 9552 section 5.2.
const (
	ISISLevel1 Protocol = 1
	ISISLevel2 Protocol = 2
	OSPFv2     Protocol = 3
	Direct     Protocol = 4
	Static     Protocol = 5
	OSPFv3     Protocol = 6
	BGP        Protocol = 7
)

// String is the protocol's name.
func (p Protocol) String() string {
	names := map[Protocol]string{
		ISISLevel1: "IS-IS level 1", ISISLevel2: "IS-IS level 2", OSPFv2: "OSPFv2", Direct: "interfaces (Direct)", Static: "a static configuration", OSPFv3: "OSPFv3", BGP: "BGP",
	}
	if name, known := names[p]; known {
		return name
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// Router is a node's identity. The levels of IS-IS and the areas of OSPF that a router is in do
// not count: it is one node. Instances do: they are networks of their own.
type Router struct {
	Instance uint64 // the NLRI's Identifier
	ASN      uint32
	Domain   uint32 // BGP-LS identifier
	// ID is the IGP router ID: 6 octets of IS-IS, 4 of OSPF; 7 and 8 of a LAN (pseudonode).
	ID string
}

// The lengths of IGP router IDs.
const (
	lenOSPF     = 4
	lenISIS     = 6
	lenISISNode = 7 // with the octet of a LAN
	lenOSPFLAN  = 8
)

// lan says whether it is a LAN.
func (r Router) lan() bool {
	return len(r.ID) == lenOSPFLAN || len(r.ID) == lenISISNode && r.ID[lenISIS] != 0
}

// router is the identity of a router whose ID may have the octet of a LAN, of 0.
func (r Router) router() Router {
	if len(r.ID) == lenISISNode && r.ID[lenISIS] == 0 {
		r.ID = r.ID[:lenISIS]
	}
	return r
}

// String is the router ID as people write it.
func (r Router) String() string {
	switch id := r.ID; len(id) {
	case lenISIS:
		return fmt.Sprintf("%x.%x.%x", id[:2], id[2:4], id[4:])
	case lenISISNode:
		return fmt.Sprintf("%x.%x.%x-%x", id[:2], id[2:4], id[4:6], id[6:])
	case lenOSPF:
		return netip.AddrFrom4([4]byte([]byte(id))).String()
	case lenOSPFLAN:
		return fmt.Sprintf("%s-%s", netip.AddrFrom4([4]byte([]byte(id[:4]))), netip.AddrFrom4([4]byte([]byte(id[4:]))))
	default:
		return hex.EncodeToString([]byte(id))
	}
}

// Node is a router or a LAN.
type Node struct {
	Protocol   Protocol
	Router     Router
	Name       string
	Overloaded bool // nothing should pass through it (the overload bit of IS-IS)
}

// Link is one direction of a link.
type Link struct {
	Protocol Protocol
	From, To Router
	// Local and Remote are the addresses of its ends, of IPv6 if it has some.
	Local, Remote     netip.Addr
	LocalID, RemoteID uint32
	Topologies        []uint16 // multi-topology IDs; none: 0
	HasMetric         bool
	Metric            uint32  // of the IGP
	Bandwidth         float64 // octets/s; 0: unknown
	Affinity          uint32
	SRLG              []uint32 // groups of links that fail together
	// Delay is the mean one; 0: unknown. Anomalous delays are above what the router is
	// configured to find usual (RFC 8571).
	Delay, MinDelay, MaxDelay time.Duration
	Anomalous                 bool
	SIDs                      []EndX
}

// EndX is an End.X SID of a link.
type EndX struct {
	SID       netip.Addr
	Behavior  uint16 // IANA's codepoint
	Algorithm uint8
	Set       bool // it leads to a set of links
}

// Prefix is one that a router advertises.
type Prefix struct {
	Protocol Protocol
	Router   Router
	Prefix   netip.Prefix
}

// SID is an SRv6 SID of a router.
type SID struct {
	Protocol  Protocol
	Router    Router
	SID       netip.Addr
	Behavior  uint16 // IANA's codepoint; 0: unknown
	Algorithm uint8
	// Block and Node are the lengths of the locator's parts, in bits; 0: unknown.
	Block, Node uint8
}

// Unreadable is one that nobody can read, and why.
type Unreadable struct{ What, Why string }

func (Node) object()       {}
func (Link) object()       {}
func (Prefix) object()     {}
func (SID) object()        {}
func (Unreadable) object() {}

// Of is the router that advertises an object: at the near end of a link.
func Of(o Object) Router {
	switch v := o.(type) {
	case Node:
		return v.Router
	case Link:
		return v.From
	case Prefix:
		return v.Router
	case SID:
		return v.Router
	}
	return Router{}
}
