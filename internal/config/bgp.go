package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

// BGP makes the node a headend that receives candidate paths of SR policies by BGP
// (RFC 9830). In a cluster whose overlay.mode is bgp, the nodes also advertise the
// prefixes of their pods to each other; a user plane function advertises what upf.announce
// lists.
type BGP struct {
	ASN uint32 `json:"asn,omitempty"`
	// RouterID is an IPv4 address, by which Route Targets name the node. In a cluster
	// the default is the Node's IPv4 address, or one made of overlay.address.
	RouterID netip.Addr `json:"router_id,omitzero"`
	// Listen are the addresses that peers connect to. Without them the node connects to
	// its peers. In a cluster "::" stands for overlay.address.
	Listen []netip.Addr `json:"listen,omitempty"`
	Port   uint16       `json:"port,omitempty"` // 179 unless set
	// RestartTime is how long, in seconds, the node keeps what it has received while a
	// peer or the daemon itself restarts. Default 120.
	RestartTime uint16 `json:"restart_time,omitempty"`
	// StaleTime is how much longer, in seconds, the node keeps what it has received from a
	// peer that stays away, and peers keep what it has advertised (long-lived graceful
	// restart, RFC 9494). Default 86400 in a cluster whose overlay.mode is bgp; elsewhere
	// they do not.
	StaleTime uint32 `json:"stale_time,omitempty"`
	// Peers may be the same on all nodes of a cluster: each node leaves itself out.
	Peers []BGPPeer `json:"peers,omitempty"`
	// ClusterID is the cluster ID of this node as a route reflector (RFC 4456).
	// Default: router_id.
	ClusterID netip.Addr `json:"cluster_id,omitzero"`
	// Prefixes are the prefixes of the cluster's pods: the node accepts only what is
	// within them. Default: everything but default routes.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// MaxPrefixes limits the prefixes, or candidate paths, of each family that a peer
	// may advertise. A peer that exceeds it is disconnected for a minute. Default
	// 20000.
	MaxPrefixes uint32 `json:"max_prefixes,omitempty"`
	// UnicastSIDs advertises this node's prefixes with its SIDs (RFC 9252), for peers
	// without SR policies.
	UnicastSIDs bool `json:"unicast_sids,omitempty"`
	// NoLocator stops this node from advertising its locator as an IPv6 prefix, by
	// which routers and nodes on the same link reach its SIDs.
	NoLocator bool   `json:"no_locator,omitempty"`
	VPN       BGPVPN `json:"vpn,omitzero"`
}

// BGPVPN is the layer-3 VPN over SRv6 (RFC 9252) that this node's pods belong to. Distinguisher and Route Targets are "65001:100" or "192.0.2.1:100".
type BGPVPN struct {
	Distinguisher string   `json:"route_distinguisher,omitempty"` // of this node's own
	Import        []string `json:"import_targets,omitempty"`
	Export        []string `json:"export_targets,omitempty"`
}

// IsSet says whether there is a VPN.
func (p BGPVPN) IsSet() bool { return p.Distinguisher != "" || len(p.Import) > 0 || len(p.Export) > 0 }

// BGPPeer is a neighbour, or a controller that sends policies.
type BGPPeer struct {
	Address netip.Addr `json:"address"`
	ASN     uint32     `json:"asn"`
	Port    uint16     `json:"port,omitempty"`    // 179 unless set
	Source  netip.Addr `json:"source,omitzero"`   // to connect from
	Passive bool       `json:"passive,omitempty"` // it connects to this node
	// PasswordFile holds the password of TCP MD5 (RFC 2385).
	PasswordFile string `json:"password_file,omitempty" secret:"path"`
	// Hops limits the distance of an external peer (TTL security, RFC 5082). Default:
	// no limit.
	Hops     uint8  `json:"hops,omitempty"`
	HoldTime uint16 `json:"hold_time,omitempty"` // seconds, 90 unless set
	// RouteReflector says that the peer is a route reflector (RFC 4456), Client that
	// the peer is a client of this node.
	RouteReflector bool `json:"route_reflector,omitempty"`
	Client         bool `json:"client,omitempty"`
	// Families are the address families in use: sr-policy, unicast and l3vpn.
	// Default: all for an internal peer; for an external one unicast in a cluster or with
	// upf.announce, and sr-policy elsewhere. l3vpn trusts the peer's SIDs.
	Families []string `json:"families,omitempty"`
}

// The address families of BGP.
const (
	BGPSRPolicy = "sr-policy"
	BGPUnicast  = "unicast"
	BGPL3VPN    = "l3vpn"
)

// The defaults of BGP.
const (
	DefaultBGPPort        = 179
	DefaultBGPRestartTime = 120
	DefaultBGPStaleTime   = 86400
	DefaultBGPHoldTime    = 90
	DefaultBGPMaxPrefixes = 20000
)

// IsSet says whether the node speaks BGP.
func (b *BGP) IsSet() bool { return b.ASN != 0 || len(b.Peers) > 0 }

// checkBGP validates the section bgp.
func checkBGP(v *validator) {
	b := &v.BGP
	isUsed := b.IsSet() || b.RouterID.IsValid() || len(b.Listen) > 0
	v.refuse(isUsed && b.ASN == 0, "bgp.asn", "the AS number of this node, such as 65001", "is missing")
	if !b.IsSet() {
		return
	}
	inCluster := v.Overlay.Mode == OverlayBGP
	isFound := inCluster && !b.RouterID.IsValid()
	v.refuse(!isFound && (!b.RouterID.Is4() || b.RouterID.IsUnspecified()),
		"bgp.router_id", "an IPv4 address that no other speaker has, such as 192.0.2.1", "%q is not a router ID", addrText(b.RouterID))
	for i, a := range b.Listen {
		if !inCluster || a != netip.IPv6Unspecified() {
			checkSpeakerAddress(v, fmt.Sprintf("bgp.listen[%d]", i), a)
		}
	}
	const longest = 1<<12 - 1 // 12 bits (RFC 4724 section 3)
	v.refuse(b.RestartTime > longest,
		"bgp.restart_time", fmt.Sprintf("at most %d seconds", longest), "%d is too long", b.RestartTime)
	const longestStale = 1<<24 - 1 // 24 bits (RFC 9494 section 3)
	v.refuse(b.StaleTime > longestStale,
		"bgp.stale_time", fmt.Sprintf("at most %d seconds", longestStale), "%d is too long", b.StaleTime)
	checkBGPOfCluster(v)
	peers := v.unique()
	for i, p := range b.Peers {
		checkBGPPeer(v, fmt.Sprintf("bgp.peers[%d]", i), p, peers)
	}
}

func checkBGPPeer(v *validator, at string, p BGPPeer, peers unique) {
	if checkSpeakerAddress(v, at+".address", p.Address) {
		peers.check(at+".address", p.Address.String(), "give each peer once")
	}
	v.refuse(p.ASN == 0, at+".asn", "the peer's AS number", "is missing")
	v.refuse(p.Source.IsValid() && p.Source.Is4() != p.Address.Is4(),
		at+".source", fmt.Sprintf("an address of the family of %s", p.Address), "%s cannot connect there", p.Source)
	v.refuse(p.Passive && len(v.BGP.Listen) == 0,
		at+".passive", "list in bgp.listen where this node takes connections, or remove it", "neither side would connect")
	v.refuse(p.Hops > 0 && p.ASN == v.BGP.ASN,
		at+".hops", "remove it: internal peers may be anywhere", "TTL security is for external peers")
	v.refuse((p.Client || p.RouteReflector) && p.ASN != v.BGP.ASN,
		at+".route_reflector", "remove route_reflector and client: updates of external peers are not reflected", "route reflection is among internal peers")
	v.refuse(p.Client && p.RouteReflector,
		at+".client", "remove one of the two", "a route reflector's client is no reflector of its own")
	for i, f := range p.Families {
		v.oneOf(fmt.Sprintf("%s.families[%d]", at, i), f, BGPSRPolicy, BGPUnicast, BGPL3VPN)
	}
	v.refuse(p.HoldTime < 3, at+".hold_time", "3 seconds or more", "%d s is too short", p.HoldTime)
	v.refuse(p.PasswordFile != "" && !filepath.IsAbs(p.PasswordFile),
		at+".password_file", "an absolute path", "%q depends on where the daemon is started", p.PasswordFile)
}

// checkBGPOfCluster checks the fields that only nodes of a cluster have.
func checkBGPOfCluster(v *validator) {
	b := &v.BGP
	v.refuse(b.ClusterID.IsValid() && !b.ClusterID.Is4(),
		"bgp.cluster_id", "four octets as an IPv4 address, or remove it", "%s is not a cluster ID", b.ClusterID)
	checkEach(v, "bgp.prefixes", b.Prefixes, srv6.CheckPrefix)
	if !b.VPN.IsSet() {
		return
	}
	checkAdministered(v, "bgp.vpn.route_distinguisher", b.VPN.Distinguisher)
	for field, list := range map[string][]string{"import": b.VPN.Import, "export": b.VPN.Export} {
		for i, target := range list {
			checkAdministered(v, fmt.Sprintf("bgp.vpn.%s_targets[%d]", field, i), target)
		}
	}
	v.refuse(v.Overlay.SIDs == SIDsDouble,
		"bgp.vpn", "set overlay.sids: single", "a route of a VPN names one SID, and overlay.sids is double")
}

// checkAdministered checks a route distinguisher or Route Target: an AS number or an IPv4
// address, and a number (RFC 4364 section 4.2).
func checkAdministered(v *validator, at, text string) {
	administrator, number, _ := strings.Cut(text, ":")
	asn, notASN := strconv.ParseUint(administrator, 10, 32)
	a, _ := netip.ParseAddr(administrator)
	if notASN != nil && !a.Is4() {
		v.add(at, "65001:100 or 192.0.2.1:100", "%q begins with neither an AS number nor an IPv4 address", text)
		return
	}
	numberBits := 16
	if notASN == nil && asn <= 1<<16-1 {
		numberBits = 32
	}
	_, err := strconv.ParseUint(number, 10, numberBits)
	v.refuse(err != nil, at, "65001:100 or 192.0.2.1:100", "%q does not end with a number of %d bits", text, numberBits)
}

// checkSpeakerAddress checks a peer's address. It may be a loopback address, because a
// controller may run on the node.
func checkSpeakerAddress(v *validator, at string, a netip.Addr) bool {
	isUnicast := a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == ""
	v.refuse(!isUnicast, at, "an IPv4 or IPv6 unicast address, such as 2001:db8::1", "%q is not a unicast address", addrText(a))
	return isUnicast
}

func addrText(a netip.Addr) string {
	text, _ := a.MarshalText() // that of an invalid address is empty
	return string(text)
}
