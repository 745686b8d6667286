package smf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/session"
	"github.com/culvert-net/culvert/internal/slice"
)

// Dialect is the way in which an SMF uses what TS 29.244 leaves open.
type Dialect string

// The dialects.
const (
	// Open5GS lets the UPF choose F-TEIDs, writes network instances as labels,
	// says the 3GPP interface type, and buffers downlink packets (BUFF, NOCP,
	// BAR) until the gNB's tunnel is known.
	Open5GS Dialect = "open5gs"
	// Free5GC chooses F-TEIDs itself, writes network instances as text, sends a
	// message priority and two QERs and URRs a session, repeats PDR and F-SEID
	// in modifications, and begins with a downlink FAR that forwards nowhere.
	Free5GC Dialect = "free5gc"
)

// Dialects are all of them.
func Dialects() []string { return []string{string(Open5GS), string(Free5GC)} }

func (d Dialect) check() config.Errors {
	return faults("", "", fault{!slices.Contains(Dialects(), string(d)), "dialect", oneOf(Dialects()), fmt.Sprintf("%q is no dialect", d)})
}

func oneOf(names []string) string { return "one of: " + strings.Join(names, ", ") }

// Role is the place of the UPF in a session's path.
type Role string

// The roles.
const (
	Anchor       Role = "anchor"       // N3 or N9 to N6
	Intermediate Role = "intermediate" // N3 to N9: tunnels on both sides
)

// Spec is the template of a group of sessions. Session i (from 0) has the i-th
// of whatever is a range.
type Spec struct {
	// Name of the group; "ue" unless set.
	Name  string `json:"name,omitempty"`
	Count int    `json:"count,omitempty"` // sessions; 1 unless set
	Role  Role   `json:"role,omitempty"`  // anchor unless set
	// PDNType: ipv4, ipv6, ipv4v6, ethernet or unstructured; by the UE's
	// addresses unless set.
	PDNType string `json:"pdn_type,omitempty"`
	// UE4 is the first UE's IPv4 address and the pool that it is from: session
	// i has the i-th from there on. UE6 likewise, a /64 for each.
	UE4 netip.Prefix `json:"ue4,omitzero"`
	UE6 netip.Prefix `json:"ue6,omitzero"`
	// FramedRoutes are networks behind the UE of a single session.
	FramedRoutes []netip.Prefix `json:"framed_routes,omitempty"`
	// ChooseUE lets the UPF choose the UE's addresses (CHV4, CHV6): "ipv4",
	// "ipv6" or "ipv4v6", in place of ue4 and ue6.
	ChooseUE        string       `json:"choose_ue,omitempty"`
	NetworkInstance string       `json:"network_instance,omitempty"`
	DNN             string       `json:"dnn,omitempty"`
	SNSSAI          slice.SNSSAI `json:"snssai,omitzero"`
	// Access is where downlink packets go: the gNB, or the UPF before. Core is
	// the next UPF of an intermediate one.
	Access *Tunnel `json:"access,omitempty"`
	Core   *Tunnel `json:"core,omitempty"`
	// Local are F-TEIDs of the UPF's that the SMF chooses; without it the UPF
	// does (CHOOSE).
	Local *Local `json:"local,omitempty"`
	// RemoveIPv4 has Open5GS' Outer Header Removal name GTP-U/UDP/IPv4 (0), as free5GC's does,
	// in place of GTP-U/UDP/IP (6), which not every UPF knows (TS 29.244 table 8.2.64-1).
	RemoveIPv4 bool  `json:"remove_ipv4,omitempty"`
	QFI        uint8 `json:"qfi,omitempty"`
	// MBR of the session, in kbit/s.
	MBR *session.BitRate `json:"mbr,omitempty"`
	URR *URR             `json:"urr,omitempty"`
	// Filters: each is a pair of PDRs with a precedence of its own.
	Filters []Filter `json:"filters,omitempty"`
	// CPFunction adds the rules by which a UE's router solicitations come to
	// the SMF and the answers go back, through GTP-U to and from this address.
	CPFunction netip.Addr `json:"cp_function,omitzero"`
}

// Tunnel is a peer's F-TEID, or those of several peers.
type Tunnel struct {
	Address netip.Addr `json:"address"`
	// Addresses: sessions are for this and the following addresses by turns; 1
	// unless set.
	Addresses int `json:"addresses,omitempty"`
	// TEID of session 0; session i has TEID + i.
	TEID uint32 `json:"teid"`
	// Interface: n3 or n9; access is n3, and core n9, unless set.
	Interface string `json:"interface,omitempty"`
}

// Local are F-TEIDs that the UPF shall receive on. TEIDs are session 0's;
// session i has TEID + i.
type Local struct {
	Address    netip.Addr `json:"address"`
	AccessTEID uint32     `json:"access_teid"`
	// CoreTEID is of an intermediate UPF, or of the rule that cp_function adds to an anchor:
	// the anchor chooses that unless set.
	CoreTEID uint32 `json:"core_teid,omitempty"`
}

// URR is what a session's usage is reported for. The reporting triggers are
// those of what is set.
type URR struct {
	VolumeThreshold *session.Volume `json:"volume_threshold,omitempty"` // octets
	VolumeQuota     *session.Volume `json:"volume_quota,omitempty"`
	TimeThreshold   Duration        `json:"time_threshold,omitempty"`
	TimeQuota       Duration        `json:"time_quota,omitempty"`
	Period          Duration        `json:"period,omitempty"`
	QuotaHolding    Duration        `json:"quota_holding,omitempty"`
	// Start of traffic is reported; Stop likewise.
	Start bool `json:"start,omitempty"`
	Stop  bool `json:"stop,omitempty"`
	// Packets are counted as well as octets (MNOP).
	Packets bool `json:"packets,omitempty"`
	// BeforeQoS: what gates and rates refuse is counted too (MBQE).
	BeforeQoS bool `json:"before_qos,omitempty"`
	// AsCore: URRs are as the dialect's SMF has them. With Open5GS only downlink PDRs
	// refer to one, and each filter has its own; with free5GC the first of the two
	// counts before QoS.
	AsCore bool `json:"as_core,omitempty"`
	// Hosts: MAC addresses behind an Ethernet session are reported (MACAR).
	Hosts bool `json:"hosts,omitempty"`
}

// Filter is an SDF filter, with a PDR of each direction.
type Filter struct {
	// Flow is an IPFilterRule (RFC 6733), such as
	// "permit out udp from 198.51.100.7 5001 to assigned".
	Flow string `json:"flow"`
	// Precedence: lower ones count first; 1 and up by place unless set.
	Precedence uint32           `json:"precedence,omitempty"`
	QFI        uint8            `json:"qfi,omitempty"` // the session's unless set
	MBR        *session.BitRate `json:"mbr,omitempty"` // of a QER of its own
	GBR        *session.BitRate `json:"gbr,omitempty"` // likewise
	// Closed: its gates are closed both ways.
	Closed bool `json:"closed,omitempty"`
}

// Duration is written as Go does: 500ms, 30s.
type Duration time.Duration

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 500ms or 30s", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// maxSessions bounds a group: a UPF's limit comes long before.
const maxSessions = 1 << 24

// Complete fills in what is not set, and says what makes no sense. Its error is a
// config.Errors with fields of a session group.
func (s *Spec) Complete(d Dialect) error { return asError(s.complete("", d)) }

// complete is Complete for the group that is at a path of a scenario.
func (s *Spec) complete(at string, d Dialect) config.Errors {
	s.Name, s.Count, s.Role = cmp.Or(s.Name, "ue"), cmp.Or(s.Count, 1), cmp.Or(s.Role, Anchor)
	family := "ipv4" // of the UE's addresses
	switch {
	case s.ChooseUE != "":
		family = s.ChooseUE
	case s.UE4.IsValid() && s.UE6.IsValid():
		family = "ipv4v6"
	case s.UE6.IsValid():
		family = "ipv6"
	}
	s.PDNType = cmp.Or(s.PDNType, family)
	for i := range s.Filters {
		s.Filters[i].Precedence = cmp.Or(s.Filters[i].Precedence, uint32(i+1))
	}
	problems := slices.Concat(s.checkShape(d), s.checkAddresses(), s.Access.check("access"), s.Core.check("core"), s.checkRules())
	return faults(at, "session group "+s.Name, problems...)
}

// fault is a thing that may be wrong, in the words of the user's fields.
type fault struct {
	wrong               bool
	field, fix, problem string
}

// faults are errors of what is wrong in the fields of a resource that is at a path.
func faults(at, resource string, list ...fault) (errs config.Errors) {
	for _, f := range list {
		if f.wrong {
			errs = append(errs, config.Error{Field: strings.Trim(at+"."+f.field, "."), Resource: resource, Problem: f.problem, Fix: f.fix})
		}
	}
	return errs
}

// asError is nil where nothing is wrong: nil Errors in an error would not be nil.
func asError(list config.Errors) error {
	if len(list) == 0 {
		return nil
	}
	return list
}

func (s *Spec) checkShape(d Dialect) []fault {
	l, sd := s.Local, s.SNSSAI.SD
	_, err := strconv.ParseUint(sd, 16, 24)
	return []fault{
		{s.Count < 1 || s.Count > maxSessions, "count", fmt.Sprintf("1 to %d", maxSessions), fmt.Sprintf("%d is out of range", s.Count)},
		{s.Role != Anchor && s.Role != Intermediate, "role", "anchor or intermediate", fmt.Sprintf("%q is no role", s.Role)},
		{!slices.Contains(pdnTypes, s.PDNType), "pdn_type", oneOf(pdnTypes), fmt.Sprintf("%q is no PDN type", s.PDNType)},
		{s.Core != nil && s.Role != Intermediate, "core", "say role: intermediate", "only an intermediate UPF has a tunnel towards the core"},
		{d == Free5GC && l == nil, "local", "give address and access_teid of the UPF's", "the SMF of this dialect chooses F-TEIDs itself"},
		{l != nil && !l.Address.IsValid(), "local.address", "the UPF's GTP-U address", "is missing"},
		{l != nil && l.AccessTEID == 0, "local.access_teid", "the UPF's TEID of session 0, not 0", "is missing"},
		{l != nil && s.Role == Intermediate && l.CoreTEID == 0, "local.core_teid", "the UPF's TEID of session 0 towards the core, not 0", "is missing"},
		{sd != "" && (err != nil || len(sd) != 6), "snssai.sd", "six hexadecimal digits", fmt.Sprintf("%q is no slice differentiator", sd)},
	}
}

func (s *Spec) checkAddresses() []fault {
	ip4, ip6 := s.UE4.IsValid(), s.UE6.IsValid()
	given := ip4 || ip6
	bad4 := ip4 && !s.UE4.Addr().Is4()
	bad6 := ip6 && (!s.UE6.Addr().Is6() || s.UE6.Bits() > 64)
	return []fault{
		{len(s.FramedRoutes) > 0 && s.Count > 1, "framed_routes", "say count: 1", "each network is behind one UE"},
		{s.ChooseUE != "" && given, "choose_ue", "remove it, or ue4 and ue6", "the UPF chooses the addresses, or ue4 and ue6 say them: not both"},
		{s.ChooseUE != "" && !given && !slices.Contains(ipTypes, s.ChooseUE), "choose_ue", oneOf(ipTypes), fmt.Sprintf("%q is no type of addresses", s.ChooseUE)},
		{s.ChooseUE == "" && slices.Contains(ipTypes, s.PDNType) && !given && s.Role == Anchor,
			"ue4", "give ue4, ue6 or choose_ue", "the sessions need UE addresses"},
		{bad4, "ue4", "a prefix such as 10.45.0.0/16", fmt.Sprintf("%s is not an IPv4 pool", s.UE4)},
		{ip4 && !bad4 && s.Count > 1 && !s.UE4.Contains(netip.AddrFrom4(s.ue4(s.Count-1))),
			"ue4", "a shorter prefix, or fewer sessions", fmt.Sprintf("%s does not hold %d addresses", s.UE4, s.Count)},
		{bad6, "ue6", "a prefix such as 2001:db8:45::/48", fmt.Sprintf("%s is not an IPv6 pool that holds a /64", s.UE6)},
		{ip6 && !bad6 && !s.UE6.Contains(netip.AddrFrom16(s.ue6(s.Count-1))),
			"ue6", "a shorter prefix, or fewer sessions", fmt.Sprintf("%s does not hold %d prefixes of 64 bits", s.UE6, s.Count)},
	}
}

// check says what is wrong with a tunnel, which may be nil.
func (t *Tunnel) check(name string) []fault {
	if t == nil {
		return nil
	}
	return []fault{
		{!t.Address.IsValid(), name + ".address", "the peer's GTP-U address", "is missing"},
		{t.TEID == 0, name + ".teid", "the peer's TEID of session 0, not 0", "is missing"},
		{t.Addresses < 0 || t.Addresses > 1<<16, name + ".addresses", fmt.Sprintf("1 to %d", 1<<16), fmt.Sprintf("%d is out of range", t.Addresses)},
		{!slices.Contains([]string{"", "n3", "n9"}, t.Interface), name + ".interface", "n3 or n9", fmt.Sprintf("%q is no interface of a tunnel", t.Interface)},
	}
}

func (s *Spec) checkRules() []fault {
	qfi := func(field string, qfi uint8) fault {
		return fault{qfi > 63, field, "1 to 63", fmt.Sprintf("%d is not a QFI", qfi)}
	}
	list := []fault{qfi("qfi", s.QFI)}
	for i, f := range s.Filters {
		problem := "is missing"
		_, err := session.ParseFilter(f.Flow)
		if f.Flow != "" && err != nil {
			problem = err.Error()
		}
		list = append(list, qfi(fmt.Sprintf("filters[%d].qfi", i), f.QFI),
			fault{err != nil, fmt.Sprintf("filters[%d].flow", i), `an IPFilterRule such as "permit out ip from any to assigned"`, problem})
	}
	u := s.URR
	silent := u != nil && u.VolumeThreshold == nil && u.VolumeQuota == nil && !u.Start && !u.Stop &&
		cmp.Or(u.TimeThreshold, u.TimeQuota, u.Period, u.QuotaHolding) == 0
	return append(list, fault{silent, "urr", "give a threshold, a quota, a period, start or stop", "nothing says when usage is reported"})
}

var (
	ipTypes  = []string{"ipv4", "ipv6", "ipv4v6"}
	pdnTypes = append(slices.Clone(ipTypes), "unstructured", "ethernet") // 1 to 5 in TS 29.244 section 8.2.79
)

// has4 and has6 say which addresses the UE has.
func (s *Spec) has4() bool { return s.UE4.IsValid() || s.ChooseUE == "ipv4" || s.ChooseUE == "ipv4v6" }
func (s *Spec) has6() bool { return s.UE6.IsValid() || s.ChooseUE == "ipv6" || s.ChooseUE == "ipv4v6" }

// ue4 is session i's address: the one that ue4 says is the first, or the one
// behind it where that is the network's own.
func (s *Spec) ue4(i int) [4]byte {
	if !s.UE4.IsValid() {
		return [4]byte{}
	}
	a := s.UE4.Addr().As4()
	first := binary.BigEndian.Uint32(a[:])
	if s.UE4.Bits() < 31 && s.UE4 == s.UE4.Masked() {
		first++
	}
	binary.BigEndian.PutUint32(a[:], first+uint32(i))
	return a
}

// ue6 is an address in session i's /64, with the interface identifier that ue6
// has.
func (s *Spec) ue6(i int) [16]byte {
	if !s.UE6.IsValid() {
		return [16]byte{}
	}
	a := s.UE6.Addr().As16()
	binary.BigEndian.PutUint64(a[:8], binary.BigEndian.Uint64(a[:8])+uint64(i))
	return a
}

// endpoint is one F-TEID of a peer's.
type endpoint struct {
	addr netip.Addr
	teid uint32
}

// at is session i's. t may be nil: no tunnel.
func (t *Tunnel) at(i int) endpoint {
	if t == nil {
		return endpoint{}
	}
	addr := t.Address
	if t.Addresses > 1 { // count in the last four octets
		b := addr.AsSlice()
		tail := b[len(b)-4:]
		binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+uint32(i%t.Addresses))
		addr, _ = netip.AddrFromSlice(b) // as long as it was
	}
	return endpoint{addr, t.TEID + uint32(i)}
}
