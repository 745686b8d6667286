package bgp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/culvert-net/culvert/internal/logevent"
	"github.com/culvert-net/culvert/internal/srpolicy"
)

// Sub-TLVs of the SR Policy tunnel that GoBGP has no type for (RFC 9830 sections
// 2.4.3 and 2.4.7).
const (
	subTLVSRv6BindingSID = 20
	subTLVPolicyName     = 130
)

// flagStructure of sub-TLV 20 says that an endpoint behaviour and structure follow the
// binding SID (RFC 9830 section 2.4.2).
const flagStructure = 0x20

// lenTunnelHeader is the length of a tunnel's type and length fields.
const lenTunnelHeader = 4

// maxName is the maximal length of the name of a policy or candidate path (RFC 9830
// sections 2.4.6 and 2.4.7).
const maxName = 255

// The lengths of an SRv6 binding SID's value, without and with its structure.
const (
	lenBindingSID          = 18
	lenBindingSIDStructure = 26
)

// errMalformed marks an update that RFC 9830 section 5 treats as a withdrawal.
var errMalformed = errors.New("malformed SR policy")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// families are those of SR policies, by the endpoint's address family.
var families = []bgp.Family{bgp.RF_SR_POLICY_IPv4, bgp.RF_SR_POLICY_IPv6}

func familyOf(endpoint netip.Addr) bgp.Family {
	if endpoint.Is4() {
		return bgp.RF_SR_POLICY_IPv4
	}
	return bgp.RF_SR_POLICY_IPv6
}

// readPolicy reads an update. It is usable for this node only if a Route Target has
// one of the node's names, or if it carries NO_ADVERTISE and no Route Target (RFC
// 9830 section 4.2.1).
func readPolicy(n *bgp.SRPolicyNLRI, attrs []bgp.PathAttributeInterface, names ...netip.Addr) (a srpolicy.Advertised, usable bool, err error) {
	endpoint, ok := netip.AddrFromSlice(n.Endpoint)
	if !ok {
		return a, false, malformed("endpoint of %d octets", len(n.Endpoint))
	}
	a = srpolicy.Advertised{Distinguisher: n.Distinguisher, Color: n.Color, Endpoint: endpoint}
	usable, err = isFor(attrs, names...)
	if err != nil {
		return a, false, err
	}
	tunnel, err := tunnelOf(attrs)
	if err != nil {
		return a, false, err
	}
	if err := readSubTLVs(&a, tunnel); err != nil {
		return a, false, err
	}
	if errs := a.Validate(); len(errs) > 0 {
		return a, false, malformed("%v", errs[0])
	}
	return a, usable, nil
}

// isFor says whether an update is for the node with these names.
func isFor(attrs []bgp.PathAttributeInterface, names ...netip.Addr) (bool, error) {
	var targets []netip.Addr
	noAdvertise := false
	for _, attr := range attrs {
		switch v := attr.(type) {
		case *bgp.PathAttributeCommunities:
			noAdvertise = noAdvertise || slices.Contains(v.Value, uint32(bgp.COMMUNITY_NO_ADVERTISE))
		case *bgp.PathAttributeExtendedCommunities:
			for _, c := range v.Value {
				if rt, ok := c.(*bgp.IPv4AddressSpecificExtended); ok && rt.SubType == bgp.EC_SUBTYPE_ROUTE_TARGET {
					targets = append(targets, rt.IPv4)
				}
			}
		}
	}
	switch {
	case len(targets) > 0:
		named := func(id netip.Addr) bool { return slices.Contains(names, id) }
		return slices.ContainsFunc(targets, named), nil
	case noAdvertise:
		return true, nil
	}
	return false, malformed("it has neither a Route Target of an IPv4 address nor NO_ADVERTISE")
}

// tunnelOf finds the one tunnel of type SR Policy.
func tunnelOf(attrs []bgp.PathAttributeInterface) (*bgp.TunnelEncapTLV, error) {
	for _, attr := range attrs {
		v, ok := attr.(*bgp.PathAttributeTunnelEncap)
		if !ok {
			continue
		}
		if len(v.Value) != 1 || v.Value[0].Type != bgp.TUNNEL_TYPE_SR_POLICY {
			return nil, malformed("its Tunnel Encapsulation attribute is not one tunnel of type SR Policy")
		}
		t := v.Value[0]
		rest := int(v.Length) - lenTunnelHeader
		for _, sub := range t.Value {
			rest -= sub.Len()
		}
		if rest != 0 { // GoBGP does not read these
			return nil, malformed("%d octets are behind its last sub-TLV", rest)
		}
		return t, nil
	}
	return nil, malformed("it has no Tunnel Encapsulation attribute")
}

// readSubTLVs reads the sub-TLVs of the tunnel. If one that may occur once is
// repeated, the first counts (RFC 9830 section 2.4).
func readSubTLVs(a *srpolicy.Advertised, tunnel *bgp.TunnelEncapTLV) (err error) {
	seen := map[bgp.EncapSubTLVType]bool{}
	again := func(kind bgp.EncapSubTLVType) bool {
		defer func() { seen[kind] = true }()
		return seen[kind]
	}
	for _, sub := range tunnel.Value {
		switch v := sub.(type) {
		case *bgp.TunnelEncapSubTLVSRPreference:
			if !again(v.Type) {
				a.Preference = max(v.Preference, 1) // 0 would be the default
			}
		case *bgp.TunnelEncapSubTLVSRBSID:
			// SR-MPLS binding SIDs are ignored; sub-TLV 20 takes precedence.
			sid, ok := netip.AddrFromSlice(v.BSID.Value)
			if !again(v.Type) && ok && sid.Is6() && !a.BindingSID.IsValid() && !sid.IsUnspecified() {
				a.BindingSID = sid
			}
		case *bgp.TunnelEncapSubTLVSRCandidatePathName:
			if !again(v.Type) {
				a.Name = nameOf(v.CandidatePathName)
			}
		case *bgp.TunnelEncapSubTLVSRSegmentList:
			err = readSegmentList(a, v)
		case *bgp.TunnelEncapSubTLVUnknown:
			if !again(v.Type) {
				err = readUnknown(a, v)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nameOf cuts a name that is too long. It returns "" for a name with other than
// printable ASCII characters (RFC 9256 section 2.1): a path does not need a name.
func nameOf(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return text[:min(len(text), maxName)]
}

func readUnknown(a *srpolicy.Advertised, v *bgp.TunnelEncapSubTLVUnknown) error {
	switch v.Type {
	case subTLVPolicyName:
		if len(v.Value) < 2 {
			return malformed("policy name of %d octets", len(v.Value))
		}
		a.PolicyName = nameOf(string(v.Value[1:]))
	case subTLVSRv6BindingSID:
		want := lenBindingSID
		if len(v.Value) > 0 && v.Value[0]&flagStructure != 0 {
			want = lenBindingSIDStructure
		}
		if len(v.Value) != want {
			return malformed("SRv6 binding SID of %d octets, its flags say %d", len(v.Value), want)
		}
		if sid := netip.AddrFrom16([16]byte(v.Value[2:18])); !sid.IsUnspecified() {
			a.BindingSID = sid
		}
	}
	return nil
}

func readSegmentList(a *srpolicy.Advertised, v *bgp.TunnelEncapSubTLVSRSegmentList) error {
	var list srpolicy.SegmentList
	if v.Weight != nil {
		if list.Weight = v.Weight.Weight; list.Weight == 0 {
			return nil // weight 0 carries no traffic (RFC 9256 section 2.11)
		}
	}
	for _, s := range v.Segments {
		b, ok := s.(*bgp.SegmentTypeB)
		if !ok {
			return malformed("segment %T: this headend supports SRv6 SIDs (type B) only", s)
		}
		list.Segments = append(list.Segments, netip.AddrFrom16([16]byte(b.SID)))
	}
	a.SegmentLists = append(a.SegmentLists, list)
	return nil
}

// offer is a candidate path of one peer, with the attributes for the choice.
type offer struct {
	Path
	rank candidate
}

// observePath handles an update about a candidate path. Several peers may advertise
// one NLRI; the best usable one is reported (RFC 9830 section 4.2), so that an
// unusable one does not hide another.
func (s *Speaker) observePath(p *apiutil.Path, n *bgp.SRPolicyNLRI) {
	a, usable, err := readPolicy(n, p.Attrs, s.config.names()...)
	k := keyOf(a)
	if f := familyOf(a.Endpoint); f != p.Family { // GoBGP accepts both lengths in both families
		s.log.Warn("SR policy ignored: its endpoint is of another address family", "event", logevent.BGPPolicyRejected, "peer", p.PeerAddress, "nlri", n.String(), "family", p.Family)
		s.countMalformed(p.PeerAddress)
		return
	}
	if err != nil && !p.Withdrawal {
		s.log.Warn("SR policy rejected; treating it as withdrawn", "event", logevent.BGPPolicyRejected, "peer", p.PeerAddress, "nlri", n.String(), "error", err)
		s.countMalformed(p.PeerAddress)
	}
	if p.Withdrawal || err != nil || !usable {
		delete(s.offers[k], p.PeerAddress)
	} else {
		if s.offers[k] == nil {
			s.offers[k] = map[netip.Addr]*offer{}
		}
		rank := newCandidate(p, s.config.ASN)
		s.offers[k][p.PeerAddress] = &offer{Path{a, rank.Source, p.Stale}, rank}
	}
	s.reportPath(k)
}

// reportPath reports the best path of an NLRI if it has changed.
func (s *Speaker) reportPath(k key) {
	was, there := s.reported[k]
	if len(s.offers[k]) == 0 {
		delete(s.offers, k)
		delete(s.reported, k)
		if there && s.handler != nil {
			s.handler.Withdraw(srpolicy.Advertised{Distinguisher: k.distinguisher, Color: k.color, Endpoint: k.endpoint})
		}
		return
	}
	best := slices.MinFunc(slices.Collect(maps.Values(s.offers[k])), func(a, b *offer) int {
		n, _ := decide(&a.rank, &b.rank)
		return n
	})
	if there && reflect.DeepEqual(was, best.Path) {
		return
	}
	s.reported[k] = best.Path
	if s.handler != nil {
		s.handler.Put(best.Path)
	}
}

// writePolicy makes the NLRI and attributes of an update. It is for the headends with
// these router IDs, written as Route Targets; none: for the peer itself, written as
// NO_ADVERTISE.
func writePolicy(a srpolicy.Advertised, nextHop netip.Addr, headends []netip.Addr) (*bgp.SRPolicyNLRI, []bgp.PathAttributeInterface, error) {
	if errs := a.Validate(); len(errs) > 0 {
		return nil, nil, errs[0]
	}
	bits := uint32(4+4)*8 + uint32(a.Endpoint.BitLen())
	nlri, err := bgp.NewSRPolicy(familyOf(a.Endpoint), bits, a.Distinguisher, a.Color, a.Endpoint.AsSlice())
	if err != nil {
		return nil, nil, err
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(familyOf(a.Endpoint), []bgp.PathNLRI{{NLRI: nlri}}, nextHop)
	if err != nil {
		return nil, nil, err
	}
	var audience bgp.PathAttributeInterface = bgp.NewPathAttributeCommunities([]uint32{uint32(bgp.COMMUNITY_NO_ADVERTISE)})
	if len(headends) > 0 {
		var targets []bgp.ExtendedCommunityInterface
		for _, id := range headends {
			rt, err := bgp.NewIPv4AddressSpecificExtended(bgp.EC_SUBTYPE_ROUTE_TARGET, id, 0, true)
			if err != nil {
				return nil, nil, fmt.Errorf("headend %s: want its router ID, an IPv4 address", id)
			}
			targets = append(targets, rt)
		}
		audience = bgp.NewPathAttributeExtendedCommunities(targets)
	}
	tunnel := bgp.NewTunnelEncapTLV(bgp.TUNNEL_TYPE_SR_POLICY, subTLVs(a))
	return nlri, []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), reach, audience,
		bgp.NewPathAttributeTunnelEncap([]*bgp.TunnelEncapTLV{tunnel}),
	}, nil
}

func subTLVs(a srpolicy.Advertised) []bgp.TunnelEncapSubTLVInterface {
	list := []bgp.TunnelEncapSubTLVInterface{bgp.NewTunnelEncapSubTLVSRPreference(0, a.EffectivePreference())}
	if a.BindingSID.IsValid() {
		// GoBGP's own type writes sub-TLV 13 and loses the SID's end.
		list = append(list, subTLV(subTLVSRv6BindingSID, append([]byte{0, 0}, a.BindingSID.AsSlice()...)))
	}
	for _, l := range a.SegmentLists {
		list = append(list, segmentList(l))
	}
	if a.Name != "" {
		list = append(list, bgp.NewTunnelEncapSubTLVSRCandidatePathName(a.Name))
	}
	if a.PolicyName != "" {
		list = append(list, subTLV(subTLVPolicyName, append([]byte{0}, a.PolicyName...)))
	}
	return list
}

// subTLV makes a sub-TLV that GoBGP has no type for. It sets the length, by which
// GoBGP computes how many policies fit a message.
func subTLV(kind bgp.EncapSubTLVType, value []byte) bgp.TunnelEncapSubTLVInterface {
	t := bgp.NewTunnelEncapSubTLVUnknown(kind, value)
	t.Length = uint16(len(value))
	return t
}

func segmentList(l srpolicy.SegmentList) *bgp.TunnelEncapSubTLVSRSegmentList {
	out := &bgp.TunnelEncapSubTLVSRSegmentList{
		TunnelEncapSubTLV: bgp.TunnelEncapSubTLV{Type: bgp.ENCAP_SUBTLV_TYPE_SRSEGMENT_LIST},
		Weight: &bgp.SegmentListWeight{
			TunnelEncapSubTLV: bgp.TunnelEncapSubTLV{Type: bgp.SegmentListSubTLVWeight, Length: 6}, Weight: l.EffectiveWeight(),
		},
	}
	length := 1 + out.Weight.Len()
	for _, s := range l.Segments {
		b := &bgp.SegmentTypeB{TunnelEncapSubTLV: bgp.TunnelEncapSubTLV{Type: bgp.EncapSubTLVType(bgp.TypeB), Length: 18}, SID: s.AsSlice()}
		out.Segments = append(out.Segments, b)
		length += b.Len()
	}
	out.Length = uint16(length)
	return out
}
