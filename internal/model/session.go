package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/culvert-net/culvert/srv6"
)

// Session is one PFCP session's rules, ready to be looked up (section 7).
type Session struct {
	ID     uint64  `json:"id"`
	Rules  []Rule  `json:"rules"`
	Meters []Meter `json:"meters,omitempty"`
	Quotas []Quota `json:"quotas,omitempty"`
}

// Quota ends when the octets that rules counted together are `until`; with `refused` those
// that gates and rates refused are among them.
type Quota struct {
	Rules   []uint16 `json:"rules"`
	Until   uint64   `json:"until"`
	Refused bool     `json:"refused,omitempty"`
}

// Rule is a PDR with what its FAR, QERs and URRs come to.
type Rule struct {
	ID         uint16    `json:"id"`
	Precedence uint32    `json:"precedence,omitempty"` // lowest first, then lowest ID
	Direction  Direction `json:"direction"`

	// Ethernet: T-PDUs are frames. Link is where they come from without a TEID.
	Ethernet bool `json:"ethernet,omitempty"`
	Link     Link `json:"link,omitzero"`

	TEID         uint32         `json:"teid,omitempty"`         // receive side; 0: send side
	Sources      []netip.Prefix `json:"sources,omitempty"`      // of the UE, on the receive side
	Destinations []netip.Prefix `json:"destinations,omitempty"` // of the UE, on the send side
	AtSID        AtSID          `json:"at_sid,omitzero"`        // where it applies too
	Filters      []Filter       `json:"filters,omitempty"`
	QFIs         []uint8        `json:"qfis,omitempty"`

	Action    Action             `json:"action,omitempty"`
	Duplicate bool               `json:"duplicate,omitempty"`
	Forward   Forwarding         `json:"forward,omitzero"`
	QFI       uint8              `json:"qfi,omitempty"`
	RQI       bool               `json:"rqi,omitempty"`
	Container srv6.ContainerType `json:"container,omitempty"`
	// Group is that of the rule's UE: of an uplink rule that forwards by a table, and of
	// one with destinations.
	Group Group `json:"ue_group,omitzero"`

	Rate     uint64 `json:"rate,omitempty"`   // kbit/s; 0: no limit
	Meters   []int  `json:"meters,omitempty"` // places in Session.Meters
	NotifyAt uint64 `json:"notify_at,omitempty"`
	StopAt   uint64 `json:"stop_at,omitempty"`
	// Shares: at StopAt the rule has used its share of the session's quotas.
	Shares bool `json:"shares,omitempty"`
	// RefusedNotifyAt is a volume of what gates and rates refused.
	RefusedNotifyAt uint64 `json:"refused_notify_at,omitempty"`
}

// AtSID says which packets at the SIDs of a slice a rule applies to: whose argument has its
// TEID and, without an argument, those from or to these UEs.
type AtSID struct {
	Slice uint32         `json:"slice,omitempty"`
	UEs   []netip.Prefix `json:"ues,omitempty"`
}

// Group is the UEs that may reach each other, and how; without UEToUE they reach no others.
type Group struct {
	UEToUE          BetweenUEs `json:"ue_to_ue,omitempty"`
	Slice           uint32     `json:"slice,omitempty"`
	NetworkInstance string     `json:"network_instance,omitempty"`
}

// BetweenUEs is how packets get from one UE to another one.
type BetweenUEs string

// The ways.
const (
	BetweenUEsRoute BetweenUEs = "route" // straight to the other UE's rules
	BetweenUEsN6    BetweenUEs = "n6"    // by a table, and back from N6
)

// Direction is that of a rule's packets.
type Direction string

// The directions.
const (
	Uplink   Direction = "uplink"
	Downlink Direction = "downlink"
)

// Action is what becomes of a rule's packets.
type Action string

// The actions. Forward is that of a rule that says none.
const (
	ActionForward Action = ""
	ActionDrop    Action = "drop"
	ActionGate    Action = "gate"
	ActionBuffer  Action = "buffer"
	ActionFull    Action = "full" // like buffer, and there is no room
)

// Filter is an SDF filter, seen from the UE. What is not set matches anything.
type Filter struct {
	Remote      netip.Prefix `json:"remote,omitzero"`
	Local       netip.Prefix `json:"local,omitzero"`
	Protocol    *uint8       `json:"protocol,omitempty"`
	RemotePorts *[2]uint16   `json:"remote_ports,omitempty"` // inclusive
	LocalPorts  *[2]uint16   `json:"local_ports,omitempty"`
	ToS         uint8        `json:"tos,omitempty"`
	ToSMask     uint8        `json:"tos_mask,omitempty"`
	FlowLabel   *uint32      `json:"flow_label,omitempty"`
	SPI         *uint32      `json:"spi,omitempty"`
	Frame       *FrameFilter `json:"frame,omitempty"` // of Ethernet sessions
}

// Forwarding is where a rule's packets go.
type Forwarding struct {
	Kind     ForwardingKind `json:"kind,omitempty"`
	Table    uint32         `json:"table,omitempty"`
	Internal bool           `json:"internal,omitempty"`
	Remote   netip.Addr     `json:"remote,omitzero"`
	Source   netip.Addr     `json:"source,omitzero"` // the node's own unless set
	TEID     uint32         `json:"teid,omitempty"`
	Control  bool           `json:"control,omitempty"` // the remote is a control plane
	// ArgsOffset is where Args.Mob.Session stands in the last segment, in bits.
	ArgsOffset uint8  `json:"args_offset,omitempty"`
	Policy     string `json:"policy,omitempty"`
	Flow       Flow   `json:"flow,omitzero"` // may have a policy of its traffic class
	Link       Link   `json:"link,omitzero"`
	VPN        uint8  `json:"vpn,omitempty"` // the tenant whose steering has the VPN's routes
	ToS        uint8  `json:"tos,omitempty"`
	ToSMask    uint8  `json:"tos_mask,omitempty"`
	Slice      uint32 `json:"slice,omitempty"`
}

// Flow is the slice of packets that go by an SR policy, and their QFI.
type Flow struct {
	Slice string `json:"slice,omitempty"`
	QFI   *uint8 `json:"qfi,omitempty"`
}

// ForwardingKind says what is pushed.
type ForwardingKind string

// The kinds. The kernel's routes are that of a rule that says none.
const (
	ForwardTable  ForwardingKind = ""
	ForwardGTPU   ForwardingKind = "gtpu"
	ForwardSRv6   ForwardingKind = "srv6"
	ForwardPolicy ForwardingKind = "policy"
	ForwardLink   ForwardingKind = "link"
	ForwardVPN    ForwardingKind = "vpn"
)

// Meter is a rate that several rules share.
type Meter struct {
	Rate    uint64        `json:"rate,omitempty"` // kbit/s; 0: Packets in each Period
	Packets uint16        `json:"packets,omitempty"`
	Period  time.Duration `json:"period,omitempty"` // nanoseconds
}

// Slice is a slice's rate limits, in kbit/s; 0: none.
type Slice struct {
	ID   uint32 `json:"id"`
	Up   uint64 `json:"up,omitempty"`
	Down uint64 `json:"down,omitempty"`
}

// ruleState is a rule in use.
type ruleState struct {
	*Rule
	session uint64
	octets  uint64
	refused uint64
	bucket  *bucketState
	shared  []*sharedMeter
	quotas  []quotaState
	over    bool // another rule has used its share of a quota, and so this one has none
	// The events of NotifyAt, StopAt and RefusedNotifyAt that were reported.
	notified, stopped, refusedNotified bool
}

// quotaState is a quota and the rules that use it.
type quotaState struct {
	*Quota
	of []*ruleState
}

// sessions is the part of a Model that section 7 is about.
type sessions struct {
	byTEID map[uint32]ruleList
	atSID  map[atSID]ruleList
	byUE   map[netip.Prefix][]*ruleState // /32 and /64
	framed map[netip.Prefix][]*ruleState
	rules  map[ruleKey]*ruleState
	meters map[uint64][]*sharedMeter // by session
	slices map[uint32]map[Direction]*sharedMeter

	links    map[Link]bool
	byLink   map[uint64][]*ruleState // by session: what comes from its link
	stations map[station]uint64      // session
	peers    map[netip.Addr]bool     // that rules send G-PDUs to
}

// ruleList are rules in the order in which packets are asked.
type ruleList []*ruleState

// ofOtherSlice says whether the first of the rules forwards for another slice.
func (l ruleList) ofOtherSlice(slice uint32) bool {
	return len(l) > 0 && l[0].Action == ActionForward && l[0].Forward.Slice != 0 && l[0].Forward.Slice != slice
}

// atSID leads packets at a slice's SID to rules: the TEID of the argument, or the source
// or destination.
type atSID struct {
	slice     uint32
	teid      uint32
	ue        netip.Prefix
	direction Direction
}

type ruleKey struct {
	session uint64
	rule    uint16
}

// PutSession makes the model hold a session, whatever it held of it before.
// What a rule or a meter counted, and what it has left of its rate, goes on.
func (m *Model) PutSession(s Session) error {
	m.network.Sessions = append(slices.DeleteFunc(slices.Clone(m.network.Sessions),
		func(had Session) bool { return had.ID == s.ID }), s)
	m.byPrefix = slices.DeleteFunc(m.byPrefix, func(s steering) bool { return s.rules != nil })
	if err := m.addSessions(); err != nil {
		return err
	}
	m.sessions.endShares(&s)
	m.sortSteering()
	return nil
}

// endShares ends the shares of quotas where a rule of a session that is written is at its stop.
func (all *sessions) endShares(s *Session) {
	for i := range s.Rules {
		all.rules[ruleKey{s.ID, s.Rules[i].ID}].over = false
	}
	for i := range s.Rules {
		all.rules[ruleKey{s.ID, s.Rules[i].ID}].ended()
	}
}

// addSessions makes the sessions' tables, on top of what was counted so far. It
// refuses what cannot be looked up.
func (m *Model) addSessions() error {
	had := m.sessions
	m.sessions = sessions{byTEID: map[uint32]ruleList{}, atSID: map[atSID]ruleList{}, byUE: map[netip.Prefix][]*ruleState{},
		framed: map[netip.Prefix][]*ruleState{}, rules: map[ruleKey]*ruleState{}, meters: map[uint64][]*sharedMeter{},
		slices: had.slices,
		links:  map[Link]bool{}, byLink: map[uint64][]*ruleState{}, stations: had.stations, peers: map[netip.Addr]bool{}}
	if had.stations == nil {
		m.sessions.stations = map[station]uint64{}
	}
	if had.slices == nil {
		m.sessions.slices = map[uint32]map[Direction]*sharedMeter{}
		for _, s := range m.network.Slices {
			m.sessions.slices[s.ID] = map[Direction]*sharedMeter{Uplink: m.octetMeter(s.Up), Downlink: m.octetMeter(s.Down)}
		}
	}
	for i := range m.network.Sessions {
		if err := m.addSession(&m.network.Sessions[i], had); err != nil {
			return fmt.Errorf("session %d: %w", m.network.Sessions[i].ID, err)
		}
	}
	for ue := range m.sessions.byUE {
		if _, known := had.byUE[ue]; !known {
			m.forgetMappings(ue.Addr())
		}
	}
	for _, list := range m.sessions.byTEID {
		sortRules(list)
	}
	for _, list := range m.sessions.atSID {
		sortRules(list)
	}
	for _, list := range m.sessions.byUE {
		sortRules(list)
	}
	for _, list := range m.sessions.byLink {
		sortRules(list)
	}
	for p, list := range m.sessions.framed {
		sortRules(list)
		m.byPrefix = append(m.byPrefix, steering{prefix: p, rules: list})
	}
	return nil
}

func sortRules(list []*ruleState) {
	slices.SortFunc(list, func(a, b *ruleState) int {
		return cmp.Or(cmp.Compare(a.Precedence, b.Precedence), cmp.Compare(a.ID, b.ID))
	})
}

func (m *Model) addSession(s *Session, had sessions) error {
	meters := make([]*sharedMeter, len(s.Meters))
	for i, meter := range s.Meters {
		meters[i] = m.newMeter(meter)
		if old := had.meters[s.ID]; i < len(old) && (old[i].rate != 0) == (meters[i].rate != 0) {
			meters[i].used, meters[i].limit, meters[i].since = old[i].used, old[i].limit, old[i].since
			meters[i].slowDown(meters[i].used)
		}
	}
	m.sessions.meters[s.ID] = meters
	for i := range s.Rules {
		r := m.newRule(s.ID, &s.Rules[i], had.rules[ruleKey{s.ID, s.Rules[i].ID}])
		for _, at := range r.Meters {
			if at < 0 || at >= len(meters) {
				return fmt.Errorf("rule %d: meters: there is no %d", r.ID, at)
			}
			r.shared = append(r.shared, meters[at])
		}
		if r.Forward.Kind == ForwardPolicy && m.policies[r.Forward.Policy] == nil {
			return fmt.Errorf("rule %d: policy: no policy is named %q", r.ID, r.Forward.Policy)
		}
		if err := m.addRule(r); err != nil {
			return fmt.Errorf("rule %d: %w", r.ID, err)
		}
	}
	return m.addQuotas(s)
}

// addQuotas has rules use the quotas of their session.
func (m *Model) addQuotas(s *Session) error {
	for i := range s.Quotas {
		q := quotaState{Quota: &s.Quotas[i]}
		for _, id := range q.Rules {
			r := m.sessions.rules[ruleKey{s.ID, id}]
			if r == nil {
				return fmt.Errorf("quotas: there is no rule %d", id)
			}
			q.of = append(q.of, r)
		}
		for _, r := range q.of {
			r.quotas = append(r.quotas, q)
		}
	}
	return nil
}

// newRule goes on where what the session had by that ID stopped, if anything.
func (m *Model) newRule(session uint64, rule *Rule, had *ruleState) *ruleState {
	r := &ruleState{Rule: rule, session: session, bucket: m.newBucket(rule.Rate, 0, 0)}
	m.sessions.rules[ruleKey{session, rule.ID}] = r
	if had == nil {
		return r
	}
	r.octets, r.bucket.limit = had.octets, uint32(had.octets)
	r.over = had.over
	r.refused, r.refusedNotified = had.refused, had.refusedNotified && had.RefusedNotifyAt == r.RefusedNotifyAt
	r.notified, r.stopped = had.notified && had.NotifyAt == r.NotifyAt, had.stopped && had.StopAt == r.StopAt
	if had.Rate != 0 && r.Rate != 0 {
		r.bucket.limit, r.bucket.since = had.bucket.limit, had.bucket.since
		r.bucket.slowDown(uint32(r.octets))
	}
	return r
}

// addRule makes a rule found.
func (m *Model) addRule(r *ruleState) error {
	if r.Action == ActionForward && r.Forward.Kind == ForwardGTPU {
		m.sessions.peers[r.Forward.Remote] = true
	}
	for _, l := range []Link{r.Link, r.Forward.Link} {
		if l != (Link{}) {
			m.sessions.links[l] = true
		}
	}
	if r.Ethernet && r.TEID == 0 {
		m.sessions.byLink[r.session] = append(m.sessions.byLink[r.session], r)
		return nil
	}
	if at := r.AtSID; at.Slice != 0 {
		add := func(k atSID) { m.sessions.atSID[k] = append(m.sessions.atSID[k], r) }
		if r.TEID != 0 {
			add(atSID{slice: at.Slice, teid: r.TEID})
		}
		for _, ue := range at.UEs {
			add(atSID{slice: at.Slice, ue: ue.Masked(), direction: r.Direction})
		}
	}
	if r.TEID != 0 {
		if others := m.sessions.byTEID[r.TEID]; len(others) > 0 && others[0].session != r.session {
			return fmt.Errorf("TEID %#x: session %d has it", r.TEID, others[0].session)
		}
		m.sessions.byTEID[r.TEID] = append(m.sessions.byTEID[r.TEID], r)
		return nil
	}
	for _, p := range r.Destinations {
		p = p.Masked()
		if isUE(p) {
			m.sessions.byUE[p] = append(m.sessions.byUE[p], r)
		} else {
			m.sessions.framed[p] = append(m.sessions.framed[p], r)
		}
	}
	return nil
}

// isUE says whether a prefix is one UE's, which has an IPv4 address or an IPv6
// /64; others are framed routes.
func isUE(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() == 32 || p.Addr().Is6() && p.Bits() == 64
}

// ueOf is what a UE with the address has: that address, or an IPv6 /64.
func ueOf(a netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// ue are the rules for what goes to an address that is a UE's by itself: none
// where it is only in a pool. false: it is not a UE's.
func (m *Model) ue(a netip.Addr) ([]*ruleState, bool) {
	rules := m.sessions.byUE[ueOf(a)]
	return rules, rules != nil || within(m.network.UEPools, a)
}

// ueOrFramed is ue, or a framed route.
func (m *Model) ueOrFramed(a netip.Addr) ([]*ruleState, bool) {
	if rules, ok := m.ue(a); ok {
		return rules, true
	}
	s, ok := m.steered(a)
	return s.rules, ok && s.rules != nil
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
