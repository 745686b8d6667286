package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// BGP is the node as a headend that is told candidate paths of SR policies by
// BGP (RFC 9830).
type BGP struct {
	ASN      uint32     `json:"asn,omitempty"`
	RouterID netip.Addr `json:"router_id,omitzero"` // IPv4: Route Targets name the node by it
	// Listen are the addresses that peers connect to; without, the node connects.
	Listen []netip.Addr `json:"listen,omitempty"`
	Port   uint16       `json:"port,omitempty"` // 179 unless set
	// RestartTime is for how many seconds the node keeps what it was told while a
	// peer, or the daemon itself, restarts: 120 unless set.
	RestartTime uint16    `json:"restart_time,omitempty"`
	Peers       []BGPPeer `json:"peers,omitempty"`
}

// BGPPeer is a neighbour, or a controller that injects policies.
type BGPPeer struct {
	Address netip.Addr `json:"address"`
	ASN     uint32     `json:"asn"`
	Port    uint16     `json:"port,omitempty"`    // 179 unless set
	Source  netip.Addr `json:"source,omitzero"`   // to connect from
	Passive bool       `json:"passive,omitempty"` // it connects to this node
	// PasswordFile holds the password of TCP MD5 (RFC 2385).
	PasswordFile string `json:"password_file,omitempty"`
	// Hops is how far away an external peer may be (TTL security, RFC 5082);
	// anywhere unless set.
	Hops     uint8  `json:"hops,omitempty"`
	HoldTime uint16 `json:"hold_time,omitempty"` // seconds, 90 unless set
}

// What is meant where nothing is said.
const (
	DefaultBGPPort        = 179
	DefaultBGPRestartTime = 120
	DefaultBGPHoldTime    = 90
)

// IsSet says that the node speaks BGP.
func (b *BGP) IsSet() bool { return b.ASN != 0 || len(b.Peers) > 0 }

func (b *BGP) setDefaults() {
	if !b.IsSet() {
		return
	}
	setDefault(&b.Port, DefaultBGPPort)
	setDefault(&b.RestartTime, DefaultBGPRestartTime)
	for i := range b.Peers {
		setDefault(&b.Peers[i].Port, DefaultBGPPort)
		setDefault(&b.Peers[i].HoldTime, DefaultBGPHoldTime)
	}
}

func (v *validator) checkBGP() {
	b := &v.BGP
	if !b.IsSet() {
		if b.RouterID.IsValid() || len(b.Listen) > 0 {
			v.add("bgp.asn", "the AS number of this node, such as 65001", "is missing")
		}
		return
	}
	if b.ASN == 0 {
		v.add("bgp.asn", "the AS number of this node, such as 65001", "is missing")
	}
	if !b.RouterID.Is4() {
		v.add("bgp.router_id", "an IPv4 address that no other speaker has, such as 192.0.2.1", "%q is no router ID", addrText(b.RouterID))
	}
	for i, a := range b.Listen {
		v.speakerAddress(fmt.Sprintf("bgp.listen[%d]", i), a)
	}
	const longest = 1<<12 - 1 // 12 bits (RFC 4724 section 3)
	if b.RestartTime > longest {
		v.add("bgp.restart_time", fmt.Sprintf("at most %d seconds", longest), "%d is too long", b.RestartTime)
	}
	peers := v.unique()
	for i, p := range b.Peers {
		v.checkBGPPeer(fmt.Sprintf("bgp.peers[%d]", i), p, peers)
	}
}

func (v *validator) checkBGPPeer(at string, p BGPPeer, peers unique) {
	if v.speakerAddress(at+".address", p.Address) {
		peers.check(at+".address", p.Address.String(), "give each peer once")
	}
	if p.ASN == 0 {
		v.add(at+".asn", "the peer's AS number", "is missing")
	}
	if p.Source.IsValid() && p.Source.Is4() != p.Address.Is4() {
		v.add(at+".source", fmt.Sprintf("an address of the family of %s", p.Address), "%s cannot connect there", p.Source)
	}
	if p.Passive && len(v.BGP.Listen) == 0 {
		v.add(at+".passive", "list in bgp.listen where this node takes connections, or remove it", "nobody would connect")
	}
	if p.Hops > 0 && p.ASN == v.BGP.ASN {
		v.add(at+".hops", "remove it: internal peers may be anywhere", "TTL security is for external peers")
	}
	if p.HoldTime < 3 {
		v.add(at+".hold_time", "3 seconds or more", "%d s is too short", p.HoldTime)
	}
	if p.PasswordFile != "" && !filepath.IsAbs(p.PasswordFile) {
		v.add(at+".password_file", "an absolute path", "%q depends on where the daemon is started", p.PasswordFile)
	}
}

// speakerAddress may be a loopback one: a controller may run on the node.
func (v *validator) speakerAddress(at string, a netip.Addr) bool {
	if a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && a.Zone() == "" {
		return true
	}
	v.add(at, "an IPv4 or IPv6 unicast address, such as 2001:db8::1", "%q is no address of one node", addrText(a))
	return false
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
