package srpolicy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

// The argument and IPv4 address that a GTP4 SID holds behind its prefix, and
// the IPv4 address behind the source prefix, bound the prefixes (RFC 9433
// section 6.6).
const (
	maxGTP4SIDPrefix    = 56
	maxGTP4SourcePrefix = 96
	maxVLAN             = 4094
	maxVLANs            = 2
)

// Key identifies the entry: prefix, prefix@interface, prefix@tenant/id, or
// interface[.vlan[.vlan]].
func (s Steering) Key() string {
	if s.Prefix.IsValid() {
		key := s.Prefix.Masked().String()
		if s.Interface != "" {
			key += "@" + s.Interface
		}
		if s.Tenant != 0 {
			key += "@tenant/" + strconv.Itoa(int(s.Tenant))
		}
		return key
	}
	parts := []string{s.Interface}
	for _, id := range s.VLANs {
		parts = append(parts, strconv.Itoa(int(id)))
	}
	return strings.Join(parts, ".")
}

// Validate checks an entry. It does not look up what the entry refers to (interface,
// policy, tunnel).
func (s Steering) Validate() []srv6.FieldError {
	var found faults
	switch {
	case s.Prefix.IsValid():
		found = srv6.CheckPrefix("prefix", s.Prefix)
	case s.Interface == "":
		found.add("prefix", "give prefix to match by destination, interface to match by arrival, or both", "nothing says which packets are meant")
	}
	if len(s.VLANs) > 0 && (s.Interface == "" || s.Prefix.IsValid()) {
		found.add("vlans", "remove it, or give interface in place of prefix: an interface's own prefixes are for untagged packets", "are matched only with interface")
	}
	if s.Tenant != 0 && (s.Interface != "" || !s.Prefix.IsValid() || s.Policy == "") {
		found.add("tenant", "give prefix and policy with it, and no interface", "names who sends to a prefix")
	}
	if len(s.VLANs) > maxVLANs {
		found.add("vlans", "give at most 2, the outer one first", "has %d tags", len(s.VLANs))
	}
	for i, id := range s.VLANs {
		if id == 0 || id > maxVLAN {
			found.add(fmt.Sprintf("vlans[%d]", i), "give 1 to 4094", "%d is not a VLAN id", id)
		}
	}
	const target = "give exactly one of policy, tunnel and h_m_gtp4_d"
	var given []string
	if s.Policy != "" {
		given = append(given, "policy")
	}
	if s.Tunnel != "" {
		given = append(given, "tunnel")
	}
	if s.GTP4D != nil {
		given = append(given, "h_m_gtp4_d")
	}
	switch {
	case len(given) == 0:
		found.add("policy", target, "nothing says where the packets go")
	case len(given) > 1:
		found.add(given[1], target, "stands beside %s", given[0])
	}
	if s.GTP4D != nil {
		s.checkGTP4D(&found)
	}
	return found
}

// checkGTP4D checks the parameters of H.M.GTP4.D.
func (s Steering) checkGTP4D(found *faults) {
	const sid, source = "h_m_gtp4_d.sid_prefix", "h_m_gtp4_d.source_prefix"
	if s.Prefix.IsValid() && !s.Prefix.Addr().Is4() || !s.Prefix.IsValid() && s.Interface != "" {
		found.add("h_m_gtp4_d", "give prefix: the IPv4 prefix of the GTP-U nodes behind the far end", "takes GTP-U to an IPv4 prefix")
	}
	g := s.GTP4D
	noPrefix := map[bool]string{true: "is not an IPv6 prefix", false: "is missing"}
	if p := g.SIDPrefix; !p.IsValid() || !p.Addr().Is6() {
		found.add(sid, "give LOC:FUNC of the far End.M.GTP4.E, such as 2001:db8:4e::/48", "%s", noPrefix[p.IsValid()])
	} else if *found = append(*found, srv6.CheckPrefix(sid, p)...); p.Bits() > maxGTP4SIDPrefix {
		found.add(sid, "give a prefix of at most 56 bits", "%d bits leave no room for the IPv4 destination and Args.Mob.Session", p.Bits())
	}
	// Bits behind the length are allowed: they are the last bits of the source.
	if p := g.SourcePrefix; !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() {
		found.add(source, "give the source UPF prefix, such as 2001:db8:2::/64", "%s", noPrefix[p.IsValid()])
	} else if p.Bits() > maxGTP4SourcePrefix {
		found.add(source, "give a prefix of at most 96 bits", "%d bits leave no room for the IPv4 source", p.Bits())
	}
	if !slices.Contains(srv6.PDUTypes(), g.PDUType) {
		found.add("h_m_gtp4_d.pdu_type", "say what the sessions carry: ipv4, ipv6, ipv4v6, ethernet or unstructured", "is missing")
	}
}
