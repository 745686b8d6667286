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

// Key identifies the entry: its prefix, or interface[.vlan[.vlan]].
func (s Steering) Key() string {
	if s.Prefix.IsValid() {
		return s.Prefix.Masked().String()
	}
	parts := []string{s.Interface}
	for _, id := range s.VLANs {
		parts = append(parts, strconv.Itoa(int(id)))
	}
	return strings.Join(parts, ".")
}

// Policies returns the names of the policies that the entry refers to.
func (s Steering) Policies() []string {
	var all []string
	if s.Policy != "" {
		all = append(all, s.Policy)
	}
	if s.GTP4D != nil && s.GTP4D.Policy != "" {
		all = append(all, s.GTP4D.Policy)
	}
	return all
}

// Validate checks an entry. It does not look up what the entry refers to (interface,
// policy, tunnel).
func (s Steering) Validate() []srv6.FieldError {
	errs := s.checkMatch()
	errs = append(errs, s.checkVLANs()...)
	errs = append(errs, s.checkTarget()...)
	if s.GTP4D != nil {
		errs = append(errs, s.checkGTP4D()...)
	}
	return errs
}

// checkMatch requires a prefix or an interface.
func (s Steering) checkMatch() []srv6.FieldError {
	const one = "give prefix to match by destination, or interface to match by arrival"
	switch {
	case s.Prefix.IsValid() && s.Interface != "":
		return []srv6.FieldError{{Field: "interface", Problem: "stands beside prefix", Fix: one + ", not both"}}
	case s.Prefix.IsValid():
		return srv6.CheckPrefix("prefix", s.Prefix)
	case s.Interface == "":
		return []srv6.FieldError{{Field: "prefix", Problem: "nothing says which packets are meant", Fix: one}}
	}
	return nil
}

// checkVLANs requires an interface, and allows at most two tags.
func (s Steering) checkVLANs() []srv6.FieldError {
	var errs []srv6.FieldError
	if len(s.VLANs) > 0 && s.Interface == "" {
		errs = append(errs, srv6.FieldError{Field: "vlans", Problem: "are matched only with interface",
			Fix: "remove it, or give interface in place of prefix"})
	}
	if len(s.VLANs) > maxVLANs {
		errs = append(errs, srv6.FieldError{Field: "vlans", Problem: fmt.Sprintf("has %d tags", len(s.VLANs)),
			Fix: "give at most 2, the outer one first"})
	}
	for i, id := range s.VLANs {
		if id == 0 || id > maxVLAN {
			errs = append(errs, srv6.FieldError{Field: fmt.Sprintf("vlans[%d]", i), Problem: fmt.Sprintf("%d is not a VLAN id", id),
				Fix: "give 1 to 4094"})
		}
	}
	return errs
}

// checkTarget requires exactly one of policy, tunnel and h_m_gtp4_d.
func (s Steering) checkTarget() []srv6.FieldError {
	const one = "give exactly one of policy, tunnel and h_m_gtp4_d"
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
	switch len(given) {
	case 0:
		return []srv6.FieldError{{Field: "policy", Problem: "nothing says where the packets go", Fix: one}}
	case 1:
		return nil
	}
	return []srv6.FieldError{{Field: given[1], Problem: "stands beside " + given[0], Fix: one}}
}

// checkGTP4D checks the parameters of H.M.GTP4.D.
func (s Steering) checkGTP4D() []srv6.FieldError {
	const sid, source = "h_m_gtp4_d.sid_prefix", "h_m_gtp4_d.source_prefix"
	var errs []srv6.FieldError
	if s.Prefix.IsValid() && !s.Prefix.Addr().Is4() || !s.Prefix.IsValid() && s.Interface != "" {
		errs = append(errs, srv6.FieldError{Field: "h_m_gtp4_d", Problem: "takes GTP-U to an IPv4 prefix",
			Fix: "give prefix: the IPv4 prefix of the GTP-U nodes behind the far end"})
	}
	g := s.GTP4D
	if p := g.SIDPrefix; !p.IsValid() || !p.Addr().Is6() {
		errs = append(errs, srv6.FieldError{Field: sid, Problem: "is not an IPv6 prefix",
			Fix: "give LOC:FUNC of the far End.M.GTP4.E, such as 2001:db8:4e::/48"})
	} else if errs = append(errs, srv6.CheckPrefix(sid, p)...); p.Bits() > maxGTP4SIDPrefix {
		errs = append(errs, srv6.FieldError{Field: sid, Problem: fmt.Sprintf("%d bits leave no room for the IPv4 destination and Args.Mob.Session", p.Bits()),
			Fix: "give a prefix of at most 56 bits"})
	}
	// Bits behind the length are allowed: they are the last bits of the source.
	if p := g.SourcePrefix; !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() {
		errs = append(errs, srv6.FieldError{Field: source, Problem: "is not an IPv6 prefix",
			Fix: "give the source UPF prefix, such as 2001:db8:2::/64"})
	} else if p.Bits() > maxGTP4SourcePrefix {
		errs = append(errs, srv6.FieldError{Field: source, Problem: fmt.Sprintf("%d bits leave no room for the IPv4 source", p.Bits()),
			Fix: "give a prefix of at most 96 bits"})
	}
	if !slices.Contains(srv6.PDUTypes(), g.PDUType) {
		errs = append(errs, srv6.FieldError{Field: "h_m_gtp4_d.pdu_type", Problem: "is missing",
			Fix: "say what the sessions carry: ipv4, ipv6, ipv4v6, ethernet or unstructured"})
	}
	return errs
}
