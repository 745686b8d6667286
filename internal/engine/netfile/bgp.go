package netfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/config"
)

// What Engine.Write may be: how candidate paths reach headends.
const (
	WriteAPI        = "api"        // the default: by each headend's management API
	WriteBGP        = "bgp"        // by BGP SAFI 73 (RFC 9830)
	WriteKubernetes = "kubernetes" // as SRv6Policies
)

// BGP is the engine's own speaker: it takes the topology from its peers, and sends them candidate
// paths.
type BGP struct {
	ASN      uint32     `json:"asn"`
	RouterID netip.Addr `json:"router_id"` // an IPv4 address that no other speaker has
	// Listen are the addresses that peers connect to. Default: it only connects.
	Listen []netip.Addr `json:"listen"`
	Port   uint16       `json:"port"` // default 179
	// Restart is how long headends keep candidate paths while the engine is away (graceful
	// restart); default 120s.
	Restart Period `json:"restart"`
	// Wait is how long the engine waits for peers that have not advertised everything when it
	// starts; default 30s. Keep is how long the topology of a peer that is away counts; then
	// the network is unknown, and nothing changes. Default 5m.
	Wait Period `json:"wait"`
	Keep Period `json:"keep"`
	// Peers are the only ones that the engine speaks with.
	Peers []config.BGPPeer `json:"peers"`
}

// The families that a peer of the engine may have; without families it has both.
const (
	FamilyLinkState = "link-state" // BGP-LS
	FamilySRPolicy  = config.BGPSRPolicy
)

// IsSet says whether there is a speaker.
func (b *BGP) IsSet() bool { return b.ASN != 0 || len(b.Peers) > 0 }

// Has says whether a peer has a family.
func (b *BGP) Has(family string) bool {
	return slices.ContainsFunc(b.Peers, func(p config.BGPPeer) bool { return len(p.Families) == 0 || slices.Contains(p.Families, family) })
}

func (b *BGP) setDefaults() {
	b.Port = cmp.Or(b.Port, config.DefaultBGPPort)
	b.Restart, b.Wait, b.Keep = cmp.Or(b.Restart, Period(2*time.Minute)), cmp.Or(b.Wait, Period(30*time.Second)), cmp.Or(b.Keep, Period(5*time.Minute))
}

// checkWrite checks how candidate paths reach headends.
func (c *checker) checkWrite(n *Network) {
	switch n.Engine.Write {
	case WriteAPI, WriteKubernetes:
	case WriteBGP:
		c.want(n.Engine.Lease.Name == "", "engine.lease", "remove it", "engines that write by BGP need none, since one stands by while headends have paths of another: engine.write is bgp")
		c.want(n.Engine.BGP.Has(FamilySRPolicy), "engine.bgp.peers", "add the headends, or their route reflector", "no peer receives candidate paths: engine.write is bgp")
		for i, v := range n.Nodes {
			c.want(v.API == "" || v.RouterID.Is4(), fmt.Sprintf("nodes[%d].router_id", i), "give the bgp.router_id of the node's daemon", "is missing: candidate paths name their headend by it")
		}
		for i, v := range n.Classes {
			const fix = "remove it, and set it on the headends' policies"
			c.want(v.DelayBound == 0, fmt.Sprintf("classes[%d].delay_bound", i), fix, "BGP does not carry it: engine.write is bgp")
			c.want(!v.LowestDelay, fmt.Sprintf("classes[%d].lowest_delay", i), fix, "BGP does not carry it: engine.write is bgp")
		}
	default:
		c.add("engine.write", "give api, bgp or kubernetes", "%q is no way to write candidate paths", n.Engine.Write)
	}
}

// checkBGP checks the engine's speaker.
func (c *checker) checkBGP(b *BGP) {
	if !b.IsSet() {
		return
	}
	const at = "engine.bgp"
	c.want(b.ASN != 0, at+".asn", "give the AS number of the engine, such as 65001", "is missing")
	c.want(b.RouterID.Is4() && !b.RouterID.IsUnspecified(), at+".router_id", "give an IPv4 address that no other speaker has", "%v is no router ID", b.RouterID)
	for i, a := range b.Listen {
		c.want(a.IsValid() && !a.IsMulticast(), fmt.Sprintf("%s.listen[%d]", at, i), "give an address of this machine", "%v is none", a)
	}
	c.want(len(b.Peers) > 0, at+".peers", "give address and asn of each", "is missing: the engine speaks with nobody else")
	for i, p := range b.Peers {
		c.checkPeer(fmt.Sprintf("%s.peers[%d]", at, i), b, p)
	}
}

func (c *checker) checkPeer(at string, b *BGP, p config.BGPPeer) {
	c.want(p.Address.IsValid() && !p.Address.IsUnspecified() && !p.Address.IsMulticast(), at+".address", "give the address of a router or headend", "%v is none", p.Address)
	c.once(at, "BGP peer "+p.Address.String())
	c.want(p.ASN != 0, at+".asn", "give the peer's AS number", "is missing")
	c.want(!p.Source.IsValid() || p.Source.Is4() == p.Address.Is4(), at+".source", "give an address of the peer's family", "%v cannot connect there", p.Source)
	c.want(!p.Passive || len(b.Listen) > 0, at+".passive", "list in engine.bgp.listen where the engine takes connections, or remove it", "neither side would connect")
	c.want(p.Hops == 0 || p.ASN != b.ASN, at+".hops", "remove it: internal peers may be anywhere", "TTL security is for external peers")
	c.want(!p.Client, at+".client", "remove it", "the engine reflects nothing")
	c.want(p.HoldTime == 0 || p.HoldTime >= 3, at+".hold_time", "give 3 seconds or more, or leave it out", "is %d", p.HoldTime)
	c.want(p.PasswordFile == "" || filepath.IsAbs(p.PasswordFile), at+".password_file", "give an absolute path", "%q depends on where the engine is started", p.PasswordFile)
	for i, f := range p.Families {
		c.want(f == FamilyLinkState || f == FamilySRPolicy, fmt.Sprintf("%s.families[%d]", at, i), "give link-state or sr-policy", "%q is no family of the engine", f)
	}
}

// want adds an error where something is not so.
func (c *checker) want(so bool, field, fix, format string, args ...any) {
	if !so {
		c.add(field, fix, format, args...)
	}
}
