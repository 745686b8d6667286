/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Keys and values of the maps, shared with Go through BTF. No unions, no
 * bitfields, no implicit padding. Addresses are in network byte order, all
 * other integers in the host's. */
#ifndef CULVERT_DEF_TABLES_H
#define CULVERT_DEF_TABLES_H

#include "adjacency.h"
#include "flow.h"
#include "nat.h"
#include "pod.h"
#include "port.h"
#include "quota.h"
#include "trie.h"
#include "ue.h"

#define MAX_SEGMENTS 12
#define MAX_SEGMENT_LISTS 8
#define MAX_LOCATORS 8
#define MAX_DOMAINS 8
#define MAX_GTPU_ADDRESSES 4
#define MAX_POOLS 8
#define FLOW_KEYS 16

/* Index 0 of local_sid, sr_policy, segment_list, mobile, tunnel and adjacency
 * is never used: 0 means "none". */

/* A locator whose SIDs are found by index: function = (hi >> shift) & mask.
 * Written by the agent. */
struct locator {
	__u64 hi;   /* first 64 bits of the prefix, host order */
	__u64 mask; /* of the prefix */
	__u32 base; /* local_sid index of function 0 */
	__u32 function_mask;
	__u8 shift;
	__u8 pad[7];
};

/* UE pool: tunnel index = base + (address - prefix), IPv6 by /64. */
struct pool4 {
	__u32 prefix; /* host order */
	__u32 mask;
	__u32 base;
	__u32 sessions; /* 1: base is in pdr, not in tunnel */
};

struct pool6 {
	__u64 hi; /* host order */
	__u64 mask;
	__u32 base;
	__u32 sessions;
};

/* One entry: what every packet needs to know. Written by the agent. */
enum mss_clamp {
	MSS_OF_SESSIONS = 1,
	MSS_OF_GATEWAY = 2, /* of T-PDUs between GTP-U and SRv6 */
};

struct settings {
	__u32 locators, domains, gtpu4_count, gtpu6_count;
	__u32 pools4, pools6;
	__u32 teid_slots; /* tunnel[1..teid_slots) is found by TEID's low bits */
	__u32 trace;      /* 1: records go to trace_events */
	__u32 sids_by_prefix;  /* entries in sid_by_prefix */
	__u32 errors_per_second; /* ICMP errors and Error Indications, per CPU */
	__u8 hop_limit; /* of what headends push */
	__u8 mss_clamp; /* of SYN packets: enum mss_clamp */
	__u16 flow_sampling; /* one in so many packets of pods has a flow_record; 0: no records */
	__u32 pdr_slots; /* pdr[1..pdr_slots) is found by TEID's low bits; 0: no sessions */
	__u32 ues;       /* 0: pdr_by_ue is empty; else see ue_bucket */
	__u32 generation; /* another after each change of a trie that lookup_cache stands for */
	__u32 nats;
	__u32 meter_burst; /* of rates in octets, in 1024 ns */
	__u32 flow_buckets; /* netpol_flow's, a power of two */
	__u32 pdr_beside; /* pdr[pdr_beside + i]: a rule behind pdr[i] (STRAIGHT_BESIDE) */
	__u32 teid_fold; /* how many low bits are the index where 24 are none: see pdr */
	__u32 steered; /* 1: target_by_dst4 or target_by_dst6 lead elsewhere than to the kernel */
	struct locator locator[MAX_LOCATORS];
	struct prefix6 domain[MAX_DOMAINS];
	__be32 gtpu4[MAX_GTPU_ADDRESSES];
	struct in6 gtpu6[MAX_GTPU_ADDRESSES];
	struct pool4 pool4[MAX_POOLS];
	struct pool6 pool6[MAX_POOLS];
	struct nat nat[MAX_NATS];
	__u64 flow_key[FLOW_KEYS]; /* of flow_cache's fingerprints: random */
};

/* local_sid[index]: published by one 64-bit write of the first word; what it
 * points at is never changed while it can be reached. */
struct local_sid {
	__u8 behavior; /* enum behavior; 0 = none */
	__u8 flavors;
	__u8 flags;
	__u8 length;   /* LOC:FUNC in bits: where the argument starts */
	__u32 mobile;  /* parameters, for behaviours that have more */
	__u32 adjacency; /* End.X, End.DX* with a next hop */
	__u32 table;     /* where there is no adjacency: kernel table id; or a tenant's */
	__u32 policy;    /* End.B6.*, End.M.GTP6.D* */
	__u8 block_length; /* NEXT-C-SID locator block in bits */
	__u8 pad;
	__u16 slice; /* SID_SESSIONS: whose sessions receive there; SLICE_VPN */
};

enum sid_flags {
	SID_ALLOW_UPPER_LAYER = 1,
	SID_SESSIONS = 4, /* End.DT*: what is inside meets the PDRs of a slice's sessions */
	SID_IGNORE_TAG = 8, /* End.M.GTP*.E: every packet is a G-PDU */
	SID_TENANT = 16, /* End.DT*: for pods of a tenant only */
};

struct counter {
	__u64 packets;
	__u64 bytes;
};

/* Both at once, for entries that several CPUs count in: see usage.h and
 * internal/dataplane/counter/volume.go. */
struct volume {
	__u64 word;          /* packets << 40 + bytes; added to atomically */
	__u32 byte_halves;   /* how often bit 39 of word turned */
	__u32 packet_halves; /* how often bit 63 turned */
};

/* mobile[index]: parameters of the RFC 9433 behaviours and H.M.GTP4.D. */
struct mobile {
	struct in6 source; /* pushed as outer source (GTP6.*); source prefix (H.M.GTP4.D) */
	struct in6 target; /* End.MAP: the SID; H.M.GTP4.D: LOC:FUNC */
	__u32 policy;
	__u32 rate_unit;     /* End.Limit: bit/s that a rate of 1 means */
	__u8 source_length;  /* bits before the IPv4 source */
	__u8 target_length;  /* bits before the IPv4 destination (H.M.GTP4.D) */
	__u8 args_offset;    /* bits before Args in the last SID of the policy */
	__u8 pdu_type;       /* enum pdu_type */
	__u8 container;      /* enum container: PDU Session Container to send */
	__u8 group_bits, rate_bits; /* End.Limit */
	__u8 pad;
	__u32 adjacency;     /* of target, when the agent could resolve it */
	__u32 pad2;
};

enum pdu_type { PDU_NONE, PDU_IPV4, PDU_IPV6, PDU_IPV4V6, PDU_ETHERNET, PDU_UNSTRUCTURED };
enum container { CONTAINER_NONE, CONTAINER_DOWNLINK, CONTAINER_UPLINK };

/* sr_policy[index]: of the lists in use, [first, count), the first one with hash <= threshold
 * is taken; its threshold is 0xffffffff for the last. What a list that is down would get goes
 * to those that are up. The lists of the active path come first, and behind them those that
 * protect it: the first word says which are in use, so that one store changes it. */
struct weighted_list {
	__u32 threshold;
	__u32 list;
};

struct sr_policy {
	__u32 count;
	__u16 behavior; /* H.Encaps, H.Encaps.Red, H.Encaps.L2, H.Encaps.L2.Red */
	__u8 down;      /* bit i: list i is down; never all in use */
	__u8 first;
	struct weighted_list list[MAX_SEGMENT_LISTS];
};

/* segment_list[index]: segments in SRH order, the last one first, so that
 * segment[count - 1] is the first destination. */
struct segment_list {
	__u32 adjacency; /* of the first destination; 0: look the route up */
	__u8 count;
	__u8 pad[3];
	struct in6 source;
	struct in6 segment[MAX_SEGMENTS];
};

/* What matched traffic is sent to. */
enum target_kind {
	TARGET_NONE,
	TARGET_PASS,   /* the kernel: the node's own addresses */
	TARGET_POLICY, /* index: sr_policy */
	TARGET_TUNNEL, /* index: tunnel */
	TARGET_GTP4D,  /* index: mobile (H.M.GTP4.D) */
	TARGET_PDR,    /* index: pdr (a framed route) */
	TARGET_LINK,   /* index: a link of Ethernet sessions, see FORWARD_LINK */
	TARGET_POD,    /* index: pod */
	TARGET_CLASSES, /* index: class_way, the first of a row */
	/* in MEMBER_TABLE */
	TARGET_MEMBER, /* a node's address, from which packets to SIDs come */
	TARGET_SID,    /* SIDs, which pods must not send to */
};

struct lpm4_key {
	__u32 prefixlen; /* 32 + prefix length when a table is matched */
	__u32 table;     /* routes: kernel table id; steering: 0, an ifindex, a tenant's;
			  * MEMBER_TABLE */
	__be32 addr;
};

struct lpm6_key {
	__u32 prefixlen;
	__u32 table;
	struct in6 addr;
};

/* ue_reach: what the longest prefix that has an address says of packets from UEs to it.
 * In the key `table` is the family, 4 or 6; an IPv4 address is in the first octets. */
enum reach {
	REACH_NONE,
	REACH_CLOSED,
	REACH_OPEN, /* also where it is one of this node's own */
};

struct sid_key {
	__u32 prefixlen;
	struct in6 addr;
};

/* route4, route6: the kernel's routes, and neighbours as host routes. More
 * than one next hop is chosen from by flow. */
#define MAX_NEXT_HOPS 7
struct route {
	__u16 count; /* 0: ask the kernel (bpf_fib_lookup) */
	__u16 bits;  /* of the prefix */
	__u32 adjacency[MAX_NEXT_HOPS];
};

struct port_key {
	__u32 ifindex;
	__u16 outer_vlan, inner_vlan; /* VLAN id, 0: no tag */
};

/* What the last lookups of routes and of steering by destination came to, on each CPU: a trie
 * costs several times as much. An entry is true while its generation is the current one. */
#define CACHE_SLOTS 8192

#define ADJACENCY_OURS 0x7fffffff /* index: this data path takes the packet again, as `kind` says */

struct cached {
	__u64 hi, lo; /* the address, in network order; IPv4: lo is ~0, or for
			   * H.M.GTP4.D an adjacency */
	__u32 table; /* kernel table id; 0: steering, or CACHE_PORT and another's number */
	__u32 generation; /* 0: never filled */
	__u32 kind; /* steering, ADJACENCY_OURS: enum target_kind */
	__u32 index; /* adjacency, or what the kind says; of a route 0: the flow
			   * chooses in cached_route */
};

/* tunnel[index]: one cache line. Found by TEID (receive side), by UE address,
 * or by index from steering4/steering6 (send side). */
enum tunnel_action {
	TUNNEL_NONE,
	TUNNEL_DECAP, /* G-PDU out, T-PDU by table */
	TUNNEL_SWITCH, /* G-PDU to G-PDU: remote, teid */
	TUNNEL_POLICY, /* T-PDU into index (sr_policy) */
	TUNNEL_GTPU, /* packet into a G-PDU: remote, teid */
	TUNNEL_SRV6, /* packet into one segment: remote; no SRH */
	TUNNEL_LIST, /* packet into index (sr_policy), from a pool */
};

struct tunnel {
	struct volume volume; /* of T-PDUs */
	__u32 key; /* receive side: the local TEID, whole */
	__u32 teid; /* send side: the remote TEID */
	struct in6 remote; /* send side; IPv4-mapped for IPv4 */
	__u32 source; /* source[] index */
	__u32 adjacency;
	__u32 index; /* sr_policy, or kernel table id */
	__u8 action;
	__u8 qfi;
	__u8 container;
	__u8 ipv4; /* 1: remote is IPv4 */
	__u64 pad; /* to a cache line: the map is mapped, so entry 0 begins one */
};

/* ---- sessions ----
 * pdr[index]: one PDR's entry, a cache line. Found by TEID (index and generation are its low 24 bits
 * and the rest, with PDR_BY_TEID; or, if that is no index, its low teid_fold bits and the rest; else
 * pdr_by_teid has it), by UE address (pool4, pool6, else pdr_by_ue, else a framed route in
 * target_by_dst*), or, where several PDRs share these, by a run of filters that the first entry
 * names. Index 0 is none. */
enum pdr_action {
	PDR_NONE,
	PDR_FILTERS, /* `forwarding` entries of filter, from `more` on */
	PDR_DROP,
	PDR_GATE,
	PDR_BUFFER,
	PDR_FORWARD,
	PDR_FULL, /* PDR_BUFFER, and the daemon has no room for more */
};

enum pdr_flags {
	PDR_BY_TEID = 1, /* the index is the low 24 bits of its TEID */
	PDR_SOURCE4 = 2, /* the T-PDU's IPv4 source must be source4 */
	PDR_SOURCE6 = 4, /* ... its IPv6 source in the /64 source6 */
	PDR_DUPLICATE = 8, /* a copy of what is forwarded goes to the daemon */
	PDR_METERS = 16, /* more: first of a chain of meters */
	PDR_DOWNLINK = 32, /* towards the UE; of all rules of a run and of what names it alike */
	PDR_CONTAINER_SHIFT = 6, /* enum container, of what is sent */
	PDR_STRAIGHT = 8, /* of PDR_FILTERS: teid holds an enum straight, source4 who it is for */
};

/* Which packets need no filter: index of the only rule that can take them, their families and QFI. It
 * changes whole, with `forwarding`. An uplink's IPv4 source is source4, or that is 0. */
enum straight {
	STRAIGHT_INDEX = (1 << 23) - 1,
	STRAIGHT_BESIDE = STRAIGHT_INDEX, /* by TEID: see settings.pdr_beside */
	STRAIGHT_ANY_QFI = 1 << 23,
	STRAIGHT_QFI_SHIFT = 24,
	STRAIGHT_IPV4 = 1 << 30,
	STRAIGHT_IPV6 = 1u << 31,
};

/* In `forwarding`, beside that: which packets need no filter either, because all filters before
 * that rule ask for what they are not. IPv4 ones: for a protocol (0: any) and a remote address with
 * these first bits. Or IPv6 ones of TCP and UDP from source6: for a protocol. */
enum apart {
	APART_LENGTH = 18, /* bits of the address at most, in the lowest bits */
	APART_LENGTH_SHIFT = 18, /* how many of them count, the highest: 5 bits */
	APART_PROTOCOL_SHIFT = 23, /* 8 bits */
	APART6 = 1 << 30, /* in place of APART; the lowest 8 bits are the protocol */
	APART = 1u << 31, /* neither: no packet is apart */
};

struct pdr {
	struct volume volume; /* of what was forwarded */
	/* where to, and what: two words that each change whole while packets pass (struct rule) */
	__u32 teid; /* the remote one; PDR_STRAIGHT */
	__u32 forwarding;
	__u32 more;
	__u8 action;
	__u8 flags;
	__u8 qfi; /* of the PDU Session Container: RQI << 6 | QFI; PDR_FRAMES */
	__u8 generation; /* of the local TEID what the index leaves out */
	__u64 bucket; /* meter.h */
	__u32 rate; /* kbit/s; 0: not limited */
	__u32 notify; /* octets of volume / 256, mod 2^32; 0: never; USAGE_TOLD */
	__u32 stop; /* the same; where it shares a quota, the end of its share */
	__be32 source4;
	__u64 source6; /* network order */
};

/* refused[index of pdr]: what QoS enforcement dropped of what the rule took, for
 * URRs that measure before it. */
struct refused {
	struct volume volume;
	__u32 notify; /* octets of volume / 256, mod 2^32; 0: never */
	__u32 held; /* ue.h */
	__u32 quota; /* that the rule shares; 0: it ends at its own stop */
	__u32 pad;
};

/* In qfi of all rules of an Ethernet session, and of what leads to them: T-PDUs
 * are frames. source4 and source6 of what leads there are then, for the uplink,
 * the index of what leads to the rules of frames from the link (0: none) and the
 * session, for these the link and the session. */
#define PDR_FRAMES 0x80

/* station[link, MAC address]: whose it is. `session` agrees with that of what
 * `pdr` leads to, or the station is gone. */
struct station_key {
	__u32 link;
	__u8 mac[6];
	__u8 pad[2];
};

struct station {
	__u32 pdr;
	__u32 heard; /* last, in units of 2^27 ns, CLOCK_MONOTONIC */
	__u64 session;
};

#define STATION_TIME_SHIFT 27

/* What the daemon puts before a frame (XDP metadata) that is for a session's
 * rules, whatever its destination. */
#define GIVEN_MAGIC 0x6376657468ull

struct given {
	__u64 magic;
	__u64 session;
	__u32 pdr;
	__u32 pad;
};

/* How far ahead of the volume `notify` and `stop` may be. */
#define USAGE_AHEAD (1u << 30)
#define USAGE_TOLD 0xffffffffu /* in notify: the daemon was told of the stop */

/* forwarding[index]: Forwarding Parameters, of many sessions alike. */
enum forwarding_kind {
	FORWARD_NONE,
	FORWARD_TABLE,
	FORWARD_GTPU,
	FORWARD_SRV6,
	FORWARD_POLICY,
	FORWARD_LINK, /* frames: index is the link, adjacency << 12 | VLAN id (0: no tag) */
	FORWARD_VPN, /* index is the table of steering with the routes of a slice's VPN */
};

struct forwarding {
	struct in6 remote; /* IPv4-mapped for IPv4 */
	struct in6 source;
	__u32 adjacency; /* of remote, or of the policy: 0 where the route is looked up */
	__u32 slice; /* slice_counter, slice_meter; 0: none */
	/* one word: of FORWARD_POLICY it changes when a policy of the class becomes valid or not */
	__u32 index; /* kernel table id, or sr_policy (0: the class is strict, and has none) */
	__u8 class; /* class_counter, of FORWARD_POLICY; 0: none */
	__u8 internal; /* 1: may reach UEs, this node, protected prefixes */
	__u8 args_at; /* bits before Args.Mob.Session in the last segment; 0: none */
	__u8 control; /* 1: to a control plane, by GTP-U without a PDU Session Container */
	__u8 kind;
	__u8 ipv4; /* 1: remote is IPv4 */
	__u8 tos, tos_mask;
	__u8 pad[4];
	__u64 ue_group; /* of the UE whose packets leave by a table (enum ue_to_ue); 0: none */
};

/* filter[index]: what a packet must be for `pdr`; a run of them is in the order
 * of precedence. Addresses and ports are seen from the UE. */
enum filter_flags {
	FILTER_PROTOCOL = 1,
	FILTER_PORTS = 2, /* and so TCP, UDP or SCTP, not a later fragment */
	FILTER_SPI = 4, /* the ports hold it */
	FILTER_FLOW_LABEL = 8,
	FILTER_REMOTE4 = 16,
	FILTER_REMOTE6 = 32,
	FILTER_LOCAL4 = 64,
	FILTER_LOCAL6 = 128,
};

#define FILTER_FRAME (1u << 31) /* in flow_label: frame_filter[index] has more */

struct filter {
	struct in6 remote, local; /* IPv4-mapped for IPv4 */
	__u64 qfis; /* bit q: QFI q; 0: any */
	__u32 pdr; /* index */
	__u16 remote_ports[2]; /* inclusive */
	__u16 local_ports[2];
	__u8 remote_length, local_length; /* of the prefixes; IPv4: 96 more */
	__u8 protocol, flags;
	__u32 flow_label; /* low 20 bits; FILTER_FRAME */
	__u8 tos, tos_mask, pad[2];
};

/* frame_filter[index]: what a frame must be beside filter[index]. */
enum frame_filter_flags {
	FRAME_SOURCE = 1,
	FRAME_DESTINATION = 2,
	FRAME_TYPE = 4,
	FRAME_C_TAG = 8,
	FRAME_S_TAG = 16,
	FRAME_IP = 32, /* an IP packet is in it, which filter[index] is about */
};

struct frame_filter {
	__u8 source[6], destination[6];
	__u8 source_to[6], destination_to[6]; /* of the ranges, inclusive */
	__u16 type, c_tag, s_tag; /* host order; VLAN ids */
	__u8 flags;
	__u8 pad;
};

/* meter[index]: a token bucket of several PDRs. */
enum meter_unit { METER_OCTETS, METER_PACKETS };

struct meter {
	__u64 used; /* octets or packets that went, free running */
	__u64 bucket;
	__u32 rate; /* kbit/s, or packets in 1000 s */
	__u32 next; /* another one that must agree; 0: none */
	__u32 unit; /* enum meter_unit */
	__u32 window; /* of packets, in 1024 ns: how much of the past counts */
};

/* Records of session_events. */
enum session_event_kind { SESSION_NOTIFY, SESSION_STOP, SESSION_REFUSED };

struct session_event {
	__u32 pdr;
	__u32 kind;
};

/* End.Limit: one bucket for each group, created by the data path. */
struct limit_key {
	__u32 sid;
	__u32 pad;
	__u64 group;
};

struct limit {
	__u64 time; /* ns of the last refill, CLOCK_MONOTONIC */
	__u64 tokens; /* bits; signed */
};

struct errors_left {
	__u64 time;
	__u64 tokens;
};

/* struct packet (packet.h), which is no table's: each build has its own. */
#define JOURNEY_STATE 512

struct journey_state {
	__u8 b[JOURNEY_STATE];
};

/* What is before an SRH that is removed, from the frame's start. */
#define MOVE_LENGTH 256

struct move_buffer {
	__u8 b[MOVE_LENGTH];
};

/* Records of slow_path: packets that XDP hands up. */
enum punt_kind {
	PUNT_NONE,
	PUNT_REASSEMBLE, /* outer fragment; comes back whole */
	PUNT_FRAGMENT, /* IPv4 without DF too big for info bytes of layer 3 */
	PUNT_ICMP, /* error to the sender of the packet at l3 */
	PUNT_ERROR_INDICATION, /* GTP-U, unknown TEID in info */
	PUNT_NEIGHBOUR, /* to be resolved: address on egress; then comes back */
	PUNT_BUFFER, /* for an idle UE: info is the pdr; the packet is at l3 */
	PUNT_DUPLICATE, /* a copy: info is the pdr; the packet is at l3 */
	PUNT_FLOOD, /* a frame for all sessions of the link info */
	PUNT_SEND, /* to a GTP-U peer that only the kernel reaches: info is the pdr; at l3 */
	PUNT_PATH_MTU, /* an error, or a copy, that says how long a packet of ours may be: info
			* is an enum vouches, the error is at l3 */
	PUNT_FRAGMENT_OUTER, /* a finished frame, whose packet at l3 is too big for info bytes */
};

/* Who sent an error, as the port that it came by says. */
enum vouches {
	VOUCHES_SR = 1, /* a source inside the SR domain, by a port with the role sr */
	VOUCHES_GTPU = 2, /* one of the port's peers, by a port with the role n3 or n9 */
};

#define PUNT_DATA 2048
/* Before a frame that was kept (XDP metadata). */
#define KEPT_MARK 0x6b657074u
/* Before a frame of the daemon's for a UE behind a NAT, by its private address. */
#define OWN_MARK 0x6f776e66u
/* The loopback interface: only what the daemon sends in itself comes by it. */
#define OWN_PORT 1
#define SESSION_TABLE 0xffffffffu

struct punt {
	__u32 kind;
	__u32 ifindex;
	__u32 info; /* ICMP: pointer or MTU; GTP-U: TEID */
	__u32 table; /* kernel table that the packet was looked up in; 0: none;
		      * SESSION_TABLE: its sender is a UE */
	struct in6 address; /* PUNT_NEIGHBOUR: next hop; IPv4-mapped for IPv4 */
	__u32 egress; /* the device to leave by; PUNT_NEIGHBOUR: 0 with a destination of the main
		       * table in place of the next hop; PUNT_ICMP to a UE: the pdr it met */
	__u16 l3; /* offset of the IP header meant */
	__u16 length; /* of data */
	__u8 type, code; /* ICMPv6 (also where the packet is IPv4) */
	__u8 turn; /* not 0: the frame has been rewritten, errors go by the routing table */
	__u8 pad;
	__u8 data[PUNT_DATA];
};

/* Records of trace_events. Indices of 0: not met. */
#define TRACE_DATA 256

struct trace_filter {
	struct in6 source, source_mask; /* IPv4: mapped */
	struct in6 destination, destination_mask;
	__u32 ifindex; /* 0: any */
	__u32 drops_only;
};

struct trace_event {
	__u64 time; /* ns, CLOCK_MONOTONIC */
	__u32 ifindex, egress;
	__u32 sid, policy, list, tunnel, target_kind, adjacency, pdr;
	__u32 reason; /* enum reason */
	__u32 verdict; /* XDP action */
	__u16 in_length, out_length; /* of the frame */
	__u16 in_captured, out_captured;
	__u32 pad;
	__u8 in[TRACE_DATA];
	__u8 out[TRACE_DATA];
};

#endif
