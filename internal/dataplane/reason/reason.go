// Package reason names how a packet's journey ended, for people and for metrics.
package reason

import (
	"fmt"

	"github.com/culvert-net/culvert/internal/dataplane/abi"
)

// Reason says how a packet's journey ended. The numbers only grow; the names
// are those of bpf/def/reason.h.
type Reason uint32

// Passed is the outcome of packets that the kernel gets.
const Passed = Reason(abi.ReasonREASON_PASSED)

// BufferFull is of packets for idle UEs; the daemon counts some of these drops itself.
const BufferFull = Reason(abi.ReasonREASON_BUFFER_FULL)

// reasons holds, for each reason, its name and what it means to an operator.
var reasons = [abi.ReasonREASON_COUNT]struct{ name, text string }{
	abi.ReasonREASON_FORWARDED: {"forwarded", "sent on"},
	abi.ReasonREASON_PASSED:    {"passed", "left to the kernel"},
	abi.ReasonREASON_SLOW_PATH: {"slow_path", "taken over by the daemon"},
	abi.ReasonREASON_REPLIED:   {"replied", "answered in place (GTP-U Echo)"},

	abi.ReasonREASON_SR_DOMAIN_EDGE:  {"sr_domain_edge", "came in on an interface with the role edge, from or to an address inside the SR domain"},
	abi.ReasonREASON_ROLE:            {"role", "nothing that the interface's roles accept"},
	abi.ReasonREASON_PEER:            {"peer", "GTP-U from a sender that is not among the interface's peers"},
	abi.ReasonREASON_MARTIAN:         {"martian", "from or to an address that no router sends packets of: loopback, link-local, reserved"},
	abi.ReasonREASON_QUEUE_FULL:      {"queue_full", "the queue of the CPU that it belongs to was full"},
	abi.ReasonREASON_HOST:            {"host", "for this host, and the interface's host does not list it"},
	abi.ReasonREASON_HOP_LIMIT:       {"hop_limit", "hop limit or TTL was used up"},
	abi.ReasonREASON_SRH_MALFORMED:   {"srh_malformed", "segment routing header is cut short, or its lengths disagree"},
	abi.ReasonREASON_SEGMENTS_LEFT:   {"segments_left", "Segments Left is out of range, or not what the SID's behaviour wants"},
	abi.ReasonREASON_UPPER_LAYER:     {"upper_layer", "the packet ends at a SID whose behaviour does not take what it carries"},
	abi.ReasonREASON_ROUTING_TYPE:    {"routing_type", "has a routing header that is not a segment routing header"},
	abi.ReasonREASON_EXTENSION_CHAIN: {"extension_chain", "IPv6 extension headers are cut short or too many"},
	abi.ReasonREASON_IPV6MALFORMED:   {"ipv6_malformed", "IPv6 header is cut short or longer than the frame"},
	abi.ReasonREASON_IPV4MALFORMED:   {"ipv4_malformed", "IPv4 header is cut short, its lengths disagree, or its checksum is wrong"},
	abi.ReasonREASON_INNER_MALFORMED: {"inner_malformed", "the inner packet's length or version is wrong"},
	abi.ReasonREASON_ECN:             {"ecn", "congestion was marked outside, and the inner packet cannot carry the mark"},
	abi.ReasonREASON_NO_SEGMENT_LIST: {"no_segment_list", "the SR policy has no segment list"},
	abi.ReasonREASON_LIMITED:         {"limited", "above the rate of its End.Limit group"},

	abi.ReasonREASON_UDP_MALFORMED:  {"udp_malformed", "UDP header is cut short, or its length is wrong"},
	abi.ReasonREASON_GTPU_VERSION:   {"gtpu_version", "not GTP-U version 1"},
	abi.ReasonREASON_GTPU_LENGTH:    {"gtpu_length", "GTP-U header is cut short, or its length is wrong"},
	abi.ReasonREASON_GTPU_EXTENSION: {"gtpu_extension", "GTP-U extension header is malformed, or must be understood and is not"},
	abi.ReasonREASON_GTPU_MESSAGE:   {"gtpu_message", "a GTP-U message that is not for here"},
	abi.ReasonREASON_TEID_UNKNOWN:   {"teid_unknown", "no tunnel has this TEID, or the tunnel has nowhere to send to"},
	abi.ReasonREASON_ECHO_FROM_SELF: {"echo_from_self", "GTP-U Echo Request from an address of this node"},
	abi.ReasonREASON_PDU_TYPE:       {"pdu_type", "the T-PDU is not of the configured PDU type"},

	abi.ReasonREASON_NO_ROUTE:       {"no_route", "no route to the destination"},
	abi.ReasonREASON_UNREACHABLE:    {"unreachable", "the route says blackhole, unreachable or prohibit"},
	abi.ReasonREASON_TOO_BIG:        {"too_big", "larger than the MTU of the egress interface"},
	abi.ReasonREASON_HEADROOM:       {"headroom", "the driver left too little room for the headers to push"},
	abi.ReasonREASON_SLOW_PATH_FULL: {"slow_path_full", "the daemon did not keep up, or is not running"},
	abi.ReasonREASON_FRAGMENT:       {"fragment", "a fragment where none can be handled"},
	abi.ReasonREASON_NO_NEIGHBOUR:   {"no_neighbour", "the next hop's link-layer address is not known: no answer yet, only the kernel can reach it, or too many were to be asked for"},

	abi.ReasonREASON_NO_PDR:      {"no_pdr", "for a UE or a TEID of a session, but no rule takes it"},
	abi.ReasonREASON_FAR_DROP:    {"far_drop", "the rule's FAR says drop, or does not say where to yet"},
	abi.ReasonREASON_GATE_CLOSED: {"gate_closed", "a QER's gate is closed"},
	abi.ReasonREASON_UE_SOURCE:   {"ue_source", "from a tunnel under an address that is not its UE's, or from a data network under a UE's address"},
	abi.ReasonREASON_UE_TO_UE:    {"ue_to_ue", "from one UE to another, which neither ue_to_ue nor a rule allows"},
	abi.ReasonREASON_UE_TO_CORE:  {"ue_to_core", "from a UE to this node, to SIDs, SMFs, GTP-U peers or a protected prefix"},
	abi.ReasonREASON_RATE:        {"rate", "above the bit rate or packet rate of a QER"},
	abi.ReasonREASON_SLICE_RATE:  {"slice_rate", "above the rate limit of the slice"},
	abi.ReasonREASON_QUOTA:       {"quota", "the quota of a URR is used up"},

	abi.ReasonREASON_NO_CLASS_POLICY: {"no_class_policy", "its traffic class is strict, and no valid policy of its color leads there"},

	abi.ReasonREASON_OTHER_SLICE:    {"other_slice", "for a session of another slice: at a slice's SID, or from a UE of another slice or network instance"},
	abi.ReasonREASON_POLICY_INGRESS: {"policy_ingress", "to a pod whose NetworkPolicies do not allow it"},
	abi.ReasonREASON_POLICY_EGRESS:  {"policy_egress", "from a pod whose NetworkPolicies do not allow it"},

	abi.ReasonREASON_NO_VPN_ROUTE: {"no_vpn_route", "from a UE whose slice has a VPN with import_targets, and no imported route leads there"},
	abi.ReasonREASON_TENANT:       {"tenant", "of a tenant's pod, or for one, and the tenant has no pod and no prefix there"},

	abi.ReasonREASON_POD_SOURCE:  {"pod_source", "of a pod, from an address that is not its own"},
	abi.ReasonREASON_POD_FRAME:   {"pod_frame", "of a pod, with a tag, neither IP nor ARP, or a message that only routers send"},
	abi.ReasonREASON_BUFFER_FULL: {"buffer_full", "the buffer for idle UEs, of the session or of all, was full"},

	abi.ReasonREASON_NO_FORWARDING: {"no_forwarding", "only the kernel can send it on (a device without XDP, or too many next hops that are not resolved), and its forwarding is off: sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"},

	abi.ReasonREASON_NAT_PORTS:      {"nat_ports", "of a UE behind a NAT, all of whose ports that the flow could have are in use"},
	abi.ReasonREASON_NAT_PROTOCOL:   {"nat_protocol", "to or from a UE behind a NAT, and neither TCP, UDP nor ICMP that can be translated"},
	abi.ReasonREASON_NAT_NO_MAPPING: {"nat_no_mapping", "for a port of a NAT that no UE uses"},
	abi.ReasonREASON_NAT_BEHIND:     {"nat_behind", "from outside to the private address of a UE behind a NAT"},

	abi.ReasonREASON_TURNS: {"turns", "for this node again after three turns through its own SIDs, policies and tunnels"},

	abi.ReasonREASON_TAGS: {"tags", "behind more than two VLAN tags, where roles and host cannot tell what it is"},

	abi.ReasonREASON_SLOW_PATH_SIZE: {"slow_path_size", "the daemon would have to keep it or put it together, and takes frames of up to 2048 bytes"},
}

// All lists every reason, in the order of its number.
func All() []Reason {
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
func (r Reason) Drop() bool { return r > Reason(abi.ReasonREASON_REPLIED) }
