package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/internal/announce"
	"github.com/culvert-net/culvert/internal/nat"
	"github.com/culvert-net/culvert/internal/slice"
	"github.com/culvert-net/culvert/srv6"
)

// UPF makes the node a 5G user plane function: sessions come from SMFs by PFCP
// (TS 29.244), and G-PDUs arrive at gtpu.addresses.
type UPF struct {
	// NodeID is the Node ID of this UPF, an address or a domain name. Default: the
	// first address of n4.
	NodeID string `json:"node_id,omitempty"`
	// N4 are the addresses for PFCP, UDP port 8805.
	N4 []netip.Addr `json:"n4,omitempty"`
	// SMFs are the prefixes of the SMFs that this UPF obeys. It must be set: "any" stands
	// for every sender.
	SMFs Senders `json:"smfs,omitempty"`
	// Connect lists SMFs with which this UPF sets up an association. Other SMFs do that
	// themselves. Each must be in smfs.
	Connect []netip.Addr `json:"connect,omitempty"`
	// UEPools contain the UE addresses that this UPF allocates, when the SMF leaves
	// that to it. The data path finds UEs with addresses of a pool faster, whoever
	// chose them.
	UEPools []UEPool `json:"ue_pools,omitempty"`
	// FramedRoutes are the prefixes in which SMFs may claim networks behind UEs (framed routes).
	// Default: all, but not what overlaps GTP-U addresses and peers, n4, smfs, protected, BGP
	// peers, SIDs, locators, the SR domain, public addresses of a NAT, and networks that this
	// node has an address in. An entry opens such a prefix to itself, and to what is in it if it
	// is as long.
	FramedRoutes []netip.Prefix `json:"framed_routes,omitempty"`
	// Announce lists what BGP announces of the pools and of their sessions. Nothing else is
	// announced.
	Announce []announce.Entry `json:"announce,omitempty"`
	// Protected are prefixes that UEs cannot reach, in addition to this node's own
	// addresses, n4, smfs, gtpu.addresses, GTP-U peers, SIDs and the SR domain.
	Protected []netip.Prefix `json:"protected,omitempty"`
	// UEMayReach are prefixes that UEs can reach all the same, unless a longer prefix of
	// protected says no. SIDs and the SR domain stay closed.
	UEMayReach []netip.Prefix `json:"ue_may_reach,omitempty"`
	// UEToUE says what becomes of packets from one UE to another one of the same slice and
	// network instance: they are dropped (drop, the default), go straight to the other UE's
	// session (route), or leave by N6 and are accepted when they come back from there (n6).
	// Slices may say otherwise.
	UEToUE slice.UEToUE `json:"ue_to_ue,omitempty" jsonschema:"enum=drop,enum=route,enum=n6"`
	// Buffer limits the packets that are kept for idle UEs.
	Buffer Buffer `json:"buffer,omitzero"`
	// EchoInterval is the time between two Echo Requests to a GTP-U peer, in seconds.
	// Default 60.
	EchoInterval uint32 `json:"echo_interval,omitempty"`
	// MSSClamp lowers the MSS of the sessions' TCP connections to what fits the
	// interfaces that they cross, with the headers that are pushed there.
	MSSClamp bool `json:"mss_clamp,omitempty"`
	// RateBurst is how much of the past counts for rates of QERs and slices, in
	// milliseconds: after a pause as much may go at once. At most 200, which are 2 % in 10 s.
	// Default 190.
	RateBurst uint32 `json:"rate_burst,omitempty"`
	// N4Fast has the data path answer heartbeats, and requests that change where sessions
	// forward (handover, idle, active): on, the default, or off. It goes on doing so while
	// culvert is restarted. A change takes a restart of culvert.
	N4Fast Switch `json:"n4_fast,omitempty" jsonschema:"enum=on,enum=off"`
}

// Switch turns something on or off. Empty: the default. In files a truth value may stand for it.
type Switch string

// The states of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

// switchOf is the Switch that a truth value of a file stands for.
func switchOf(value string) Switch {
	if is, err := strconv.ParseBool(value); err == nil && is {
		return On
	}
	return Off
}

// UEPool is a part of the UE address space.
type UEPool struct {
	// NetworkInstance that the pool is for. Default: all.
	NetworkInstance string `json:"network_instance,omitempty"`
	// Prefixes contain IPv4 addresses and IPv6 /64s.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// NAT translates the addresses of the pool's one IPv4 prefix where packets leave by a
	// route (N6).
	NAT *nat.NAT `json:"nat,omitempty"`
}

// Buffer limits what is kept for idle UEs.
type Buffer struct {
	Packets uint32 `json:"packets,omitempty"` // of a session, unless its BAR says: 128 unless set
	Bytes   uint32 `json:"bytes,omitempty"`   // of all of them: 67108864 unless set
}

// The defaults of a UPF.
const (
	DefaultSessions      = 65536
	DefaultBufferPackets = 128
	DefaultBufferBytes   = 64 << 20
	DefaultEchoInterval  = 60
	DefaultRateBurst     = 190 // ms
	leastRateBurst       = 10
	mostRateBurst        = 200
)

// IsSet says whether the node is a user plane function.
func (u *UPF) IsSet() bool { return len(u.N4) > 0 }

func (c *Config) setUPFDefaults() {
	if c.UPF.IsSet() {
		setDefault(&c.UPF.NodeID, c.UPF.N4[0].String())
		setDefault(&c.UPF.UEToUE, slice.UEToUEDrop)
		setDefault(&c.UPF.N4Fast, On)
		setDefault(&c.UPF.Buffer.Packets, DefaultBufferPackets)
		setDefault(&c.UPF.Buffer.Bytes, DefaultBufferBytes)
		setDefault(&c.UPF.EchoInterval, DefaultEchoInterval)
		setDefault(&c.UPF.RateBurst, DefaultRateBurst)
		setDefault(&c.Limits.Sessions, DefaultSessions)
		c.UPF.Announce = announced(c.UPF.Announce)
		for i := range c.UPF.UEPools {
			if n := c.UPF.UEPools[i].NAT; n != nil {
				c.UPF.UEPools[i].NAT = new(n.WithDefaults())
			}
		}
		setDefault(&c.Limits.NATAddresses, uint32(c.UPF.PublicAddresses()))
	}
	for i := range c.Slices {
		if n9 := c.Slices[i].N9; n9 != nil && n9.Transport == slice.SRv6 && n9.Mode == "" {
			changed := *n9
			changed.Mode = slice.Traditional
			c.Slices[i].N9 = &changed
		}
	}
}

// ProtectedPrefixes returns the prefixes that UEs cannot reach because of the
// configuration. What it protects by itself, which upf.ue_may_reach can open, are N4, the
// SMFs, and the GTP-U peers of interfaces and tunnels.
func (c *Config) ProtectedPrefixes() []netip.Prefix {
	own := slices.Clone([]netip.Prefix(c.UPF.SMFs))
	for _, a := range c.UPF.N4 {
		own = append(own, host(a))
	}
	for i := range c.Interfaces {
		own = append(own, c.Interfaces[i].Peers...)
	}
	for i := range c.Tunnels {
		if a := c.Tunnels[i].Remote; a.IsValid() {
			own = append(own, host(a))
		}
	}
	out := slices.Clone(c.UPF.Protected)
	for _, p := range own {
		if p.IsValid() && p.Bits() > 0 && !covered(p, c.UPF.UEMayReach) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// covered says whether a prefix of a list has all of p.
func covered(p netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(l netip.Prefix) bool { return l.Bits() <= p.Bits() && l.Contains(p.Addr()) })
}

// Pools returns the prefixes of all pools.
func (u *UPF) Pools() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range u.UEPools {
		out = append(out, p.Prefixes...)
	}
	return out
}

// checkUPF validates the user plane function.
func checkUPF(v *validator) {
	u := &v.UPF
	if !u.IsSet() {
		v.refuse(u.NodeID != "" || len(u.SMFs)+len(u.Connect)+len(u.UEPools)+len(u.Protected)+len(u.UEMayReach)+len(u.FramedRoutes)+len(u.Announce) > 0 || u.MSSClamp || u.RateBurst != 0 || u.UEToUE != "" || u.N4Fast != "",
			"upf.n4", "the addresses of this node that SMFs reach, such as [192.0.2.10]", "no address for PFCP is given")
		v.refuse(len(v.Slices) > 0,
			"slices", "set upf.n4: slices are of a user plane function's sessions", "slices need sessions, and this node has none")
		return
	}
	addresses := v.unique()
	for i, a := range u.N4 {
		if at := fmt.Sprintf("upf.n4[%d]", i); v.fieldsAt(at, srv6.CheckUnicast(at, a)) {
			addresses.check(at, a.String(), "remove one of the two")
		}
	}
	checkPortsOfUPF(v)
	checkSMFs(v)
	v.refuse(!nodeID(u.NodeID), "upf.node_id", "an address, or a name such as upf1.example", "%q cannot be a Node ID", u.NodeID)
	because(&v.problems, "upf.n4", func() {
		v.refuse(len(v.GTPU.Addresses) == 0,
			"gtpu.addresses", "write gtpu: {addresses: [192.0.2.1]} with where this node receives GTP-U (N3, N9)", "a user plane function needs an address for G-PDUs")
	})
	v.refuse(u.RateBurst < leastRateBurst || u.RateBurst > mostRateBurst, "upf.rate_burst",
		fmt.Sprintf("%d to %d milliseconds", leastRateBurst, mostRateBurst), "%d is out of range", u.RateBurst)
	checkEach(v, "upf.protected", u.Protected, srv6.CheckPrefix)
	checkEach(v, "upf.ue_may_reach", u.UEMayReach, srv6.CheckPrefix)
	checkEach(v, "upf.framed_routes", u.FramedRoutes, srv6.CheckPrefix)
	for i, p := range u.UEMayReach {
		v.refuse(slices.Contains(u.Protected, p), fmt.Sprintf("upf.ue_may_reach[%d]", i), "remove it from one of the two", "%s is in upf.protected, too", p)
	}
	// Each UE of a pool has an entry: two for a session, IPv4 and IPv6.
	n := uint64(0)
	for _, p := range u.Pools() {
		n += 1 << min(max(0, ueBits(p)-p.Bits()), maxPoolBits)
	}
	if n > 2*uint64(v.Limits.Sessions) {
		v.add("limits.sessions", fmt.Sprintf("at least %d, or smaller pools", (n+1)/2), "%d sessions, of two addresses each, are too few for the %d addresses of the pools", v.Limits.Sessions, n)
	}
	for i, pool := range u.UEPools {
		v.refuse(len(pool.Prefixes) == 0,
			fmt.Sprintf("upf.ue_pools[%d].prefixes", i), "a prefix such as 10.45.0.0/16 or 2001:db8:45::/48", "the pool has no prefixes")
	}
	v.oneOf("upf.ue_to_ue", string(u.UEToUE), waysBetweenUEs...)
	v.oneOf("upf.n4_fast", string(u.N4Fast), string(On), string(Off))
	checkAnnounce(v)
	checkNATs(v)
}

// checkPortsOfUPF finds that no packet of a UE could arrive. Where roles are missing or unknown, that is
// the mistake.
func checkPortsOfUPF(v *validator) {
	for _, in := range v.Interfaces {
		isUnclear := len(in.Roles) == 0 || slices.ContainsFunc(in.Roles, func(r Role) bool { return !slices.Contains(Roles, r) })
		if isUnclear || in.HasRole(RoleN3, RoleN9, RoleSR, RoleAny) {
			return
		}
	}
	because(&v.problems, "upf.n4", func() {
		v.add("interfaces", "list the interface to the gNBs, such as {name: n3, roles: [n3], peers: [192.0.2.0/24]}, and the one to the data network, such as {name: n6, roles: [n6]}",
			"by no interface can packets of UEs arrive: none has the role n3, n9 or sr")
	})
}

// checkSMFs validates whom N4 obeys. Those that the UPF connects to must be named, too:
// one list says who is trusted.
func checkSMFs(v *validator) {
	u := &v.UPF
	v.refuse(len(u.SMFs) == 0, "upf.smfs", "add the line smfs: [192.0.2.20/32] with the addresses of your SMFs, or smfs: any for every sender",
		"no SMF is named that may set up sessions")
	checkEach(v, "upf.smfs", u.SMFs, srv6.CheckPrefix)
	checkEach(v, "upf.connect", u.Connect, srv6.CheckUnicast)
	for i, a := range u.Connect {
		v.refuse(len(u.SMFs) > 0 && !u.SMFs.Contain(a),
			fmt.Sprintf("upf.connect[%d]", i), fmt.Sprintf("add %s to upf.smfs", host(a)), "%s is not in upf.smfs: its answers would be ignored", a)
	}
}

// ueBits is the length of what one UE has of a pool: an IPv4 address, or a /64.
func ueBits(pool netip.Prefix) int {
	if pool.Addr().Is6() {
		return 64
	}
	return 32
}

// nodeID checks for an address or a domain name (TS 29.244 section 8.2.38).
func nodeID(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return false
		}
	}
	return len(s) <= 253
}
