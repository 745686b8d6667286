package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/srv6"
)

// maxTransposed is how many bits of a SID a label holds (RFC 9252 section 4).
const maxTransposed = 20

// errNoService marks a route without an SRv6 SID.
var errNoService = errors.New("it has no SRv6 SID: its Prefix-SID attribute is missing or not one of SRv6")

// service is the content of an SRv6 L3 Service TLV (RFC 9252 section 2).
type service struct {
	SID      netip.Addr
	Behavior uint16 // IANA codepoint; a sender need not know it
	// Block, Node, Function and Argument are the lengths of the SID's parts in
	// bits; all 0: unknown.
	Block, Node, Function, Argument uint8
}

// readService reads the SID of a route. label is the label of its NLRI (20 bits);
// nil: the family has none. The error is errNoService for a route without the TLV,
// and wraps errMalformed for one with errors.
func readService(attrs []bgp.PathAttributeInterface, label *uint32) (service, error) {
	for _, attr := range attrs {
		prefixSID, ok := attr.(*bgp.PathAttributePrefixSID)
		if !ok {
			continue
		}
		for _, t := range prefixSID.TLVs {
			tlv, ok := t.(*bgp.SRv6ServiceTLV)
			if !ok || tlv.Type != bgp.TLVTypeSRv6L3Service {
				continue
			}
			for _, sub := range tlv.SubTLVs {
				if info, ok := sub.(*bgp.SRv6InformationSubTLV); ok { // the first counts (sections 2 and 3.1)
					return readSID(info, label)
				}
			}
			return service{}, malformed("its SRv6 L3 Service TLV has no SID")
		}
	}
	return service{}, errNoService
}

// readSID composes a SID (section 3.2.1): bits that were transposed into the label
// return to their place.
func readSID(info *bgp.SRv6InformationSubTLV, label *uint32) (service, error) {
	s := service{Behavior: info.EndpointBehavior}
	sid := [16]byte(info.SID)
	for _, sub := range info.SubSubTLVs {
		v, ok := sub.(*bgp.SRv6SIDStructureSubSubTLV)
		if !ok {
			continue
		}
		if err := checkStructure(v, label != nil); err != nil {
			return service{}, err
		}
		s.Block, s.Node, s.Function, s.Argument = v.LocatorBlockLength, v.LocatorNodeLength, v.FunctionLength, v.ArgumentLength
		for i := range int(v.TranspositionLength) { // the label's first bits
			bit := int(v.TranspositionOffset) + i
			mask := byte(0x80 >> (bit % 8))
			sid[bit/8] &^= mask
			if *label>>(maxTransposed-1-i)&1 == 1 {
				sid[bit/8] |= mask
			}
		}
		break // the first counts
	}
	s.SID = netip.AddrFrom16(sid)
	if errs := srv6.CheckUnicast6("sid", s.SID); len(errs) > 0 {
		return service{}, malformed("SRv6 SID: %s", errs[0].Problem)
	}
	return s, nil
}

// checkStructure checks a SID's structure by section 3.2.1 (erratum 7817) and
// section 4.
func checkStructure(v *bgp.SRv6SIDStructureSubSubTLV, labelled bool) error {
	sum := int(v.LocatorBlockLength) + int(v.LocatorNodeLength) + int(v.FunctionLength) + int(v.ArgumentLength)
	moved, end := int(v.TranspositionLength), int(v.TranspositionLength)+int(v.TranspositionOffset)
	switch {
	case sum > 128:
		return malformed("the parts of its SID take %d bits", sum)
	case moved == 0:
		return nil
	case !labelled:
		return malformed("bits of its SID are transposed, and there is no label to hold them")
	case moved > maxTransposed || moved > int(v.FunctionLength):
		return malformed("%d bits of its SID are transposed: a label holds %d, the function has %d", moved, maxTransposed, v.FunctionLength)
	case end > sum:
		return malformed("bits up to %d of its SID are transposed, and it has %d", end, sum)
	}
	return nil
}

// writeService is the reverse of readService. Nothing is transposed: the label of
// such a route is implicit NULL (section 4).
func writeService(s service) *bgp.PathAttributePrefixSID {
	var structure []bgp.PrefixSIDTLVInterface
	if s.Block > 0 {
		structure = append(structure, bgp.NewSRv6SIDStructureSubSubTLV(s.Block, s.Node, s.Function, s.Argument, 0, 0))
	}
	return bgp.NewPathAttributePrefixSID(bgp.NewSRv6ServiceTLV(bgp.TLVTypeSRv6L3Service,
		bgp.NewSRv6InformationSubTLV(s.SID, bgp.SRBehavior(s.Behavior), structure...)))
}

// labelImplicitNull is the label of a route that needs none (RFC 3032).
const labelImplicitNull = 3

// VPN is the layer-3 VPN of the node's prefixes (RFC 4364) through SRv6 (RFC 9252).
type VPN struct {
	Tenant uint8 // its id; 0: the VPN is of the node's own prefixes
	// Distinguisher is the route distinguisher of this node's routes; Import and
	// Export are Route Targets: "65001:100" or "192.0.2.1:100".
	Distinguisher  string
	Import, Export []string
}

// vpn is a VPN in encoded form.
type vpn struct {
	tenant  uint8
	rd      bgp.RouteDistinguisherInterface
	imports map[string]string // Route Targets as the configuration writes them, by their octets
	exports []bgp.ExtendedCommunityInterface
}

// id is the tenant's; 0 for nil.
func (v *vpn) id() uint8 {
	if v == nil {
		return 0
	}
	return v.tenant
}

// vpns are those of a cluster, that of the node's own prefixes first.
func (c *Cluster) vpns() []VPN {
	if c.VPN != nil {
		return append([]VPN{*c.VPN}, c.Tenants...)
	}
	return slices.Clip(c.Tenants)
}

// parseVPNs encodes VPNs.
func parseVPNs(all []VPN) (out []*vpn, err error) {
	for i := range all {
		v, err := parseVPN(&all[i])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func parseVPN(c *VPN) (*vpn, error) {
	rd, err := bgp.ParseRouteDistinguisher(c.Distinguisher)
	if err != nil {
		return nil, fmt.Errorf("vpn: route distinguisher %q: want 65001:100 or 192.0.2.1:100", c.Distinguisher)
	}
	v := &vpn{tenant: c.Tenant, rd: rd, imports: map[string]string{}}
	imports, err := parseTargets(c.Import)
	if err != nil {
		return nil, err
	}
	for i, t := range imports {
		v.imports[octetsOf(t)] = c.Import[i]
	}
	v.exports, err = parseTargets(c.Export)
	return v, err
}

func parseTargets(list []string) (out []bgp.ExtendedCommunityInterface, err error) {
	for _, text := range list {
		t, err := bgp.ParseRouteTarget(text)
		if err != nil {
			return nil, fmt.Errorf("vpn: Route Target %q: want 65001:100 or 192.0.2.1:100", text)
		}
		out = append(out, t)
	}
	return out, nil
}

// octetsOf encodes an extended community for comparison; "" if that fails.
func octetsOf(c bgp.ExtendedCommunityInterface) string {
	b, err := c.Serialize()
	if err != nil {
		return ""
	}
	return string(b)
}

// imported is the first of a route's Route Targets that is imported; "": none is.
func (v *vpn) imported(attrs []bgp.PathAttributeInterface) string {
	for _, attr := range attrs {
		list, ok := attr.(*bgp.PathAttributeExtendedCommunities)
		if !ok {
			continue
		}
		for _, c := range list.Value {
			if target := v.imports[octetsOf(c)]; target != "" {
				return target
			}
		}
	}
	return ""
}
