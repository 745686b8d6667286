package dataplane

import "fmt"

// Reason says how a packet's journey ended. The numbers only grow; the names
// are those of bpf/def/reason.h.
type Reason uint32

// reasons holds, for each reason, its name and what it means to an operator.
var reasons = [datapathReasonREASON_COUNT]struct{ name, text string }{
	datapathReasonREASON_FORWARDED: {"forwarded", "sent on"},
	datapathReasonREASON_PASSED:    {"passed", "left to the kernel"},
	datapathReasonREASON_SLOW_PATH: {"slow_path", "taken over by the daemon"},
	datapathReasonREASON_REPLIED:   {"replied", "answered in place (GTP-U Echo)"},

	datapathReasonREASON_SR_DOMAIN_EDGE:  {"sr_domain_edge", "came in on an external interface, from or to an address inside the SR domain"},
	datapathReasonREASON_HOP_LIMIT:       {"hop_limit", "hop limit or TTL was used up"},
	datapathReasonREASON_SRH_MALFORMED:   {"srh_malformed", "segment routing header is cut short, or its lengths disagree"},
	datapathReasonREASON_SEGMENTS_LEFT:   {"segments_left", "Segments Left is out of range, or not what the SID's behaviour wants"},
	datapathReasonREASON_UPPER_LAYER:     {"upper_layer", "the packet ends at a SID whose behaviour does not take what it carries"},
	datapathReasonREASON_ROUTING_TYPE:    {"routing_type", "has a routing header that is not a segment routing header"},
	datapathReasonREASON_EXTENSION_CHAIN: {"extension_chain", "IPv6 extension headers are cut short or too many"},
	datapathReasonREASON_IPV6MALFORMED:   {"ipv6_malformed", "IPv6 header is cut short or longer than the frame"},
	datapathReasonREASON_IPV4MALFORMED:   {"ipv4_malformed", "IPv4 header is cut short, or its lengths disagree"},
	datapathReasonREASON_INNER_MALFORMED: {"inner_malformed", "the inner packet's length or version is wrong"},
	datapathReasonREASON_ECN:             {"ecn", "congestion was marked outside, and the inner packet cannot carry the mark"},
	datapathReasonREASON_NO_SEGMENT_LIST: {"no_segment_list", "the SR policy has no segment list"},
	datapathReasonREASON_LIMITED:         {"limited", "above the rate of its End.Limit group"},

	datapathReasonREASON_UDP_MALFORMED:  {"udp_malformed", "UDP header is cut short, or its length is wrong"},
	datapathReasonREASON_GTPU_VERSION:   {"gtpu_version", "not GTP-U version 1"},
	datapathReasonREASON_GTPU_LENGTH:    {"gtpu_length", "GTP-U header is cut short, or its length is wrong"},
	datapathReasonREASON_GTPU_EXTENSION: {"gtpu_extension", "GTP-U extension header is malformed, or must be understood and is not"},
	datapathReasonREASON_GTPU_MESSAGE:   {"gtpu_message", "a GTP-U message that is not for here"},
	datapathReasonREASON_TEID_UNKNOWN:   {"teid_unknown", "no tunnel has this TEID, or the tunnel has nowhere to send to"},
	datapathReasonREASON_ECHO_FROM_SELF: {"echo_from_self", "GTP-U Echo Request from an address of this node"},
	datapathReasonREASON_PDU_TYPE:       {"pdu_type", "the T-PDU is not of the configured PDU type"},

	datapathReasonREASON_NO_ROUTE:       {"no_route", "no route to the destination"},
	datapathReasonREASON_UNREACHABLE:    {"unreachable", "the route says blackhole, unreachable or prohibit"},
	datapathReasonREASON_TOO_BIG:        {"too_big", "larger than the MTU of the egress interface"},
	datapathReasonREASON_HEADROOM:       {"headroom", "the driver left too little room for the headers to push"},
	datapathReasonREASON_SLOW_PATH_FULL: {"slow_path_full", "the daemon did not keep up, or is not running"},
	datapathReasonREASON_FRAGMENT:       {"fragment", "a fragment where none can be handled"},
	datapathReasonREASON_NO_NEIGHBOUR:   {"no_neighbour", "the next hop's link-layer address is not known: no answer yet, only the kernel can reach it, or too many were to be asked for"},

	datapathReasonREASON_NO_PDR:      {"no_pdr", "for a UE or a TEID of a session, but no rule takes it"},
	datapathReasonREASON_FAR_DROP:    {"far_drop", "the rule's FAR says drop, or does not say where to yet"},
	datapathReasonREASON_GATE_CLOSED: {"gate_closed", "a QER's gate is closed"},
	datapathReasonREASON_UE_SOURCE:   {"ue_source", "from a tunnel, under an address that is not its UE's"},
	datapathReasonREASON_UE_TO_UE:    {"ue_to_ue", "from one UE to another, which no rule allows"},
	datapathReasonREASON_UE_TO_CORE:  {"ue_to_core", "from a UE to this node, to SIDs, or to a protected prefix"},
	datapathReasonREASON_RATE:        {"rate", "above the bit rate or packet rate of a QER"},
	datapathReasonREASON_SLICE_RATE:  {"slice_rate", "above the rate limit of the slice"},
	datapathReasonREASON_QUOTA:       {"quota", "the quota of a URR is used up"},

	datapathReasonREASON_SLOW_PATH_SIZE: {"slow_path_size", "the daemon would have to keep it or put it together, and takes frames of up to 2048 bytes"},
}

// Reasons lists every reason, in the order of its number.
func Reasons() []Reason {
	all := make([]Reason, len(reasons))
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// String is the reason's name in lower case, such as "hop_limit".
func (r Reason) String() string {
	if int(r) >= len(reasons) {
		return fmt.Sprintf("reason_%d", uint32(r))
	}
	return reasons[r].name
}

// Text says in a few words what it means to an operator.
func (r Reason) Text() string {
	if int(r) >= len(reasons) {
		return "ended in a way that this version does not know"
	}
	return reasons[r].text
}

// Drop says whether the packet was lost: neither sent, nor answered, nor
// handed to the kernel or to the daemon.
func (r Reason) Drop() bool { return r > Reason(datapathReasonREASON_REPLIED) }
