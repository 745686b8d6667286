/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet on its way: what was found out, what is to be done with it, and
 * the ways out. A behaviour only fills in the plan; forward.h carries it out,
 * so that nothing is changed before everything is known. */
#ifndef CULVERT_PACKET_H
#define CULVERT_PACKET_H

#include "maps.h"
#include "usage.h"
#include "lib/csum.h"
#include "lib/flow.h"
#include "lib/args_mob.h"
#include "lib/gtpu.h"
#include "srv6/behaviors.h"

/* Global functions are verified once, on their own: the cost of verifying is
 * a sum over them, not a product. Packet pointers do not survive a call. */
#define GLOBAL __attribute__((noinline))

/* On the stack wide accesses must be aligned. */
#define ALIGNED __attribute__((aligned(8)))

#define MAX_OFFSET 2048 /* of anything that is looked at, from the frame's start */

/* What a function that decides returns besides a reason. */
#define CONTINUE -1
#define NOT_TAKEN -2 /* somebody else may decide */
#define CONTINUE_TO_UE -3 /* with p->found.ue */
#define CONTINUE_TO_VPN -4 /* of p->found.rule's forwarding */
#define COME_AGAIN -5 /* the finished packet takes the journey */
#define MAX_TURNS 3 /* as often as that */

enum edit {
	EDIT_NONE,
	EDIT_ENDPOINT,  /* outer IPv6: destination, hop limit, Segments Left */
	EDIT_INNER,     /* packet at `keep`: hop limit or TTL, ECN */
};

enum push {
	PUSH_NONE,
	PUSH_SRV6,
	PUSH_GTPU4,
	PUSH_GTPU6,
	PUSH_FRAME, /* the Ethernet frame at `keep` leaves as it is */
};

/* How a side of a packet is rewritten (nat.h), in p->nat.translated: of the source, and
 * << NAT_SIDE of the destination. */
#define NAT_REWRITTEN 1
#define NAT_DESTINATION 2 /* of the function, not in p->nat.translated */
#define NAT_IDENTIFIED 2 /* in p->nat.translated alone: the source's identification, too */
#define NAT_QUOTED 4 /* an ICMP error: the other side of what it quotes, too */
#define NAT_ADDRESS 8 /* a later fragment: there is no port */
#define NAT_SIDE 4

/* At most so many octets fill a frame up to the shortest length. */
#define MAX_PADDING 46
/* A frame that came with so many has room for headers and padding on any link of IPv6. */
#define MAX_PADDED 1024

/* Whether octets behind the received packet stay there: no receiver minds padding (RFC 894), and to
 * cut it takes a fifth of the time of all else. `frame` is its length. */
INLINE int may_stay_behind(__u32 octets, __u32 frame)
{
	return octets <= MAX_PADDING && frame <= MAX_PADDED;
}

/* Whom a frame is for. */
enum addressee {
	FOR_PORT,
	FOR_GROUP, /* everybody, or many */
	FOR_OTHER, /* another device, perhaps of this host */
};

/* 16 octets of an address, as two words in network order. */
struct words {
	__u64 hi, lo;
};

/* The words of a struct pdr that say what is done, each as it was at one moment:
 * the daemon changes a whole word while packets pass. */
struct rule {
	__u32 teid;
	__u32 forwarding;
	__u32 more;
	__u8 action, flags, qfi, generation;
} ALIGNED;

/* Reads what is done before where to: the daemon writes where to first. */
INLINE void read_rule(struct rule *to, struct pdr *from)
{
	st64(&to->more, *(volatile __u64 *)&from->more);
	st64(&to->teid, *(volatile __u64 *)&from->teid);
}

/* The word that says what is done. */
INLINE __u64 act_word(struct rule *rule)
{
	return ld64(&rule->more);
}

/* What filters ask a packet, seen from the UE. */
struct looks {
	struct words remote, local;
	__u64 qfi; /* one bit */
	__u32 ports; /* in host order: remote << 16 | local */
	__u32 spi;
	__u32 flow_label;
	__u8 version, protocol, tos;
	__u8 has; /* FILTER_PORTS, FILTER_SPI, FILTER_FLOW_LABEL */
	__u8 lacks; /* enum filter_flags that it cannot be asked for */
};

/* ... and a frame, beside the packet in it. */
struct frame_looks {
	__u64 source, destination; /* as numbers */
	__u16 type, c_tag, s_tag;
	__u16 has; /* FRAME_C_TAG, FRAME_S_TAG */
};

/* ---- what is known of a packet, by who writes it ----
 *
 * datapath.c writes what each part starts from. The lane (express/) keeps a few numbers here, too:
 * the stack has no room for them. */

/* The port that the frame came by. datapath.c writes it, and again.h where the packet is for this
 * node again. Guards (port.h, leave.h) and router.h read it; mss.h reads the MTU. */
struct arrival {
	__u32 ifindex;
	__u32 flags;
	__u32 table; /* that steers before the node's; 0: none. By router.h */
	__u16 access;
	__u16 mtu;
	__u64 mac;
};

/* The frame as it came, and where its headers are. router.h writes it, and behaviours write where
 * extension headers are (srv6/srh.h). All that comes after reads it. */
struct parsed {
	__u16 received; /* the frame's length as it came */
	__u16 frame; /* ... and as it is: who changes it says so here */
	__u16 l3; /* offset of the IP header */
	__u16 addresses; /* offset of the Ethernet addresses, which move if a tag goes */
	__u16 l3_length;
	__u8 version; /* of that header: 4, 6 */
	__u8 group; /* enum addressee: whom else the frame is for */
	__u16 srh; /* offset, 0: none */
	__u16 srh_link; /* offset of the next-header octet that names the SRH */
	__u16 upper; /* offset of the upper layer */
	__u8 upper_type;
	__u8 segments_left;
};

/* A GTP-U header. First the one that came: gtpu.h writes it, or upf.h and ethernet.h what the
 * argument of a SID says instead; look-ups and filters read it. Then the one to push: gtpu_path.h,
 * upf.h and srv6/mobile.h write it; push.h and forward.h put it into the packet. */
struct gtpu_fields {
	__u32 teid;
	__u16 sequence;
	__u16 offset; /* of the header that came */
	__u8 message; /* enum gtpu_type */
	__u8 qfi, rqi, has_container;
};

/* What matched; 0 is none. Who looked it up writes it: router.h, session.h, upf.h, ethernet.h,
 * gtpu_path.h, push.h. Later look-ups, counters (forward.h) and traces read it. */
struct matched {
	__u32 sid, policy, list, tunnel, target_kind, pdr;
	__u32 class_index; /* class_counter */
	__u32 from_pdr; /* the other UE's, from one UE to another */
	__u32 slice, from_slice; /* slice_counter index */
	__u32 ue; /* the rule of a UE that a T-PDU turned out to be for */
	struct looks looks; /* by filter.h, for itself */
	struct rule rule; /* of pdr */
	struct frame_looks frame_looks; /* by filter.h, for itself */
	__u16 sid_length; /* octets to count for them */
	__u16 tunnel_length;
	__u8 from_ue; /* the T-PDU's sender is a UE */
};

/* What stays, what becomes of it, what is pushed, and where it is to go. Behaviours write it
 * (srv6/, gtpu_path.h, upf.h, ethernet.h, vpn.h), and push.h what is pushed. next_hop.h and
 * forward.h carry it out. */
struct plan {
	__u16 keep; /* offset of the packet that stays */
	__u16 keep_length;
	__u16 macs; /* offset of the addresses of a frame that is kept */
	__u16 link_tag; /* VLAN id that a frame leaves with; 0: none */
	__u8 frames; /* the T-PDU is a frame */
	__u8 keep_version; /* 4, 6; 0: not an IP packet */
	__u8 edit; /* enum edit */
	__u8 ecn; /* of the outer header, for EDIT_INNER at decapsulation */
	__u8 decapsulated;
	__u8 pop_srh; /* PSP */
	__u8 push; /* enum push */
	__u8 hop_limit, class, next_header; /* of the pushed header */
	__u8 container; /* enum container */
	__u8 extra; /* one more segment behind the list's: `last` */
	__u8 segments; /* in the finished list */
	__u8 srh_segments; /* of these in the SRH; 0: no SRH */
	__u8 args_at; /* bit offset of `args` in the list's last segment; 0: none */
	__u8 with_sequence;
	__u8 switch_teid; /* the kept GTP-U header gets p->gtpu.teid */
	__u8 map_checksum; /* End.MAP: layer 4 may cover the address that changes */
	__u8 pdu_version; /* of the T-PDU behind a kept GTP-U header; 0: not known */
	__u16 pdu_offset; /* from p->plan.keep */
	__u16 tag; /* SRH.tag */
	__u16 push_length;
	__u16 length; /* of the finished layer-3 packet */
	__u16 quote; /* offset of the header that ICMP errors are about */
	__u16 quote_length;
	__u32 hash;
	__u64 args;
	struct words src, dst; /* pushed; targets, UEs and routes are found by them, too */
	struct words last; /* EDIT_ENDPOINT below a push: that header's new destination */
	__u32 adjacency, table;
	__u8 family; /* of dst: 4 (in the first 4 octets), 6 */
	__u8 hashed; /* p->plan.hash is made; else next_hop.h makes it */
	__u8 guarded; /* the route may not lead where UEs must not go */
	__u8 onward; /* a session's G-PDU leaves in GTP-U again; quote is the T-PDU */
	__u8 own; /* the outermost header is one that this node pushed, as configured */
	__u8 gateway; /* an IP T-PDU between GTP-U and SRv6, which stays at `keep` */
};

/* By which next hop it leaves. next_hop.h writes it; forward.h adds the tag of a link, and the
 * addresses of a frame for the kernel. forward.h, mss.h, hand_up() and traces read it. */
struct way_out {
	__u8 to_kernel; /* only the kernel can send it */
	__u8 again; /* the finished packet is for this data path */
	struct next_hop hop ALIGNED;
};

/* NAT44: what was rewritten, and the values before. nat.h writes it, and takes the rewriting back
 * by it; router.h writes where the header of a packet from outside is. */
struct rewritten {
	__u8 translated;
	__u16 l3;
	__u16 port[2];
	__be32 address[2];
	__u16 id;
};

/* ICMP error to send when the packet is dropped: type 0 is none. Or what the daemon is told of a
 * packet that it gets. Who refuses the packet or hands it up writes it; hand_up() reads it. */
struct error {
	__u8 type, code;
	__u16 l3;
	__u32 info;
};

/* How the journey ends. forward.h, finish(), datapath.c and traces read it. */
struct ending {
	__u8 reason; /* enum reason, by finish() */
	__u8 punt; /* enum punt_kind, by who returns REASON_SLOW_PATH */
	__u8 pfcp; /* for this host, by a port with the role n4: by port.h and leave.h */
};

struct packet {
	struct arrival port;
	struct parsed in;
	struct gtpu_fields gtpu;
	struct matched found;
	struct plan plan;
	struct way_out out;
	struct rewritten nat;
	struct error error;
	struct ending end;
	/* the journey's own: datapath.c writes it, and again.h the turn */
	__u8 turn; /* how often the packet was for this node again */
	__u8 trace;
	__u8 mss_clamp; /* of the settings */
};

#define MAIN_TABLE 254

/* Longer frames are dropped: of those that are not, 16 bits hold each length, also with what
 * is pushed. */
#define MAX_FRAME_LENGTH 0xf000

/* Octets, also of those that are not in one piece with the headers (xdp.frags). */
INLINE __u32 frame_length(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/* Functions for each, so that keys do not stay on the stack. */
INLINE struct port *port_of(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex;

	return bpf_map_lookup_elem(&port, &ifindex);
}

INLINE struct packet *journey_packet(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&journey_state, &zero);
}

/* `size` octets at `offset`, or NULL: the header cursor. */
INLINE void *at(struct xdp_md *ctx, __u32 offset, __u32 size)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	opaque(offset);
	if (offset > MAX_OFFSET)
		return 0;
	data += offset;
	if (data + size > end)
		return 0;
	return data;
}

/* Whether the daemon sent the frame with a mark before it. The mark goes, for it would go along
 * to where the frame is redirected. */
INLINE int has_mark(struct xdp_md *ctx, __u32 mark)
{
	void *meta = (void *)(long)ctx->data_meta, *data = (void *)(long)ctx->data;

	if (meta + 4 > data || ld32(meta) != mark)
		return 0;
	return !bpf_xdp_adjust_meta(ctx, 4);
}

/* Takes `length` octets out behind the first `before` ones, which move. */
INLINE int remove_octets(struct xdp_md *ctx, __u32 before, __u32 length)
{
	__u32 zero = 0;
	struct move_buffer *scratch = bpf_map_lookup_elem(&move_scratch, &zero);

	opaque(before);
	opaque(length);
	if (!scratch || before < ETH_LEN || before > MOVE_LENGTH || length > MAX_OFFSET)
		return -1;
	if (bpf_xdp_load_bytes(ctx, 0, scratch->b, before) || bpf_xdp_adjust_head(ctx, length) ||
	    bpf_xdp_store_bytes(ctx, 0, scratch->b, before))
		return -1;
	return 0;
}

INLINE void count_at(struct counter *c, __u64 bytes)
{
	c->packets++;
	c->bytes += bytes;
}

INLINE void count(void *map, __u32 index, __u64 bytes)
{
	struct counter *c = bpf_map_lookup_elem(map, &index);

	if (c)
		count_at(c, bytes);
}

INLINE void icmp(struct packet *p, __u16 l3, __u8 type, __u8 code, __u32 info)
{
	p->error.type = type;
	p->error.code = code;
	p->error.l3 = l3;
	p->error.info = info;
}

#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAMETER_PROBLEM 4

/* The daemon puts the fragments together. */
INLINE int reassemble(struct packet *p)
{
	p->end.punt = PUNT_REASSEMBLE;
	p->error.l3 = p->in.l3;
	return REASON_SLOW_PATH;
}

INLINE int hop_limit_spent(struct packet *p, __u16 l3)
{
	icmp(p, l3, ICMP6_TIME_EXCEEDED, 0, 0);
	return REASON_HOP_LIMIT;
}

/* The pointer counts from the IPv6 header that was received. */
INLINE int parameter_problem(struct packet *p, enum reason reason, __u8 code, __u32 offset)
{
	icmp(p, p->in.l3, ICMP6_PARAMETER_PROBLEM, code, offset - p->in.l3);
	return reason;
}

/* ---- the slow path ---- */

#define ERROR_BURST 64
#define NS 1000000000ull

/* Budgets, in errors_left. */
#define BUDGET_ERRORS 0
#define BUDGET_FLOODS 1
#define BUDGET_PATH_MTU 2

/* Takes one from this CPU's budget. */
INLINE int allowed(__u32 budget)
{
	struct settings *cfg = &node_settings;
	struct errors_left *left = bpf_map_lookup_elem(&errors_left, &budget);
	__u64 now, earned, rate;

	if (!left || !cfg->errors_per_second)
		return 0;
	rate = cfg->errors_per_second < NS ? cfg->errors_per_second : NS;
	now = bpf_ktime_get_ns();
	earned = (now - left->time) / (NS / rate);
	if (earned) {
		left->time = now;
		left->tokens =
			left->tokens + earned > ERROR_BURST ? ERROR_BURST : left->tokens + earned;
	}
	if (!left->tokens)
		return 0;
	left->tokens--;
	return 1;
}

INLINE int error_allowed(void)
{
	return allowed(BUDGET_ERRORS);
}

/* The next hop that ask_kernel found no neighbour for. */
INLINE void punt_neighbour(struct punt *record, struct packet *p)
{
	struct words mapped = { .lo = p->plan.dst.hi << 32 | 0xffff0000 };

	copy16(&record->address, p->plan.family == 6 ? &p->plan.dst : &mapped);
}

/* Of a packet whose journey goes on, or of which nothing but the headers matters. */
INLINE int is_copy(__u32 kind)
{
	return kind == PUNT_DUPLICATE || kind == PUNT_PATH_MTU;
}

/* What an error quotes, or a copy shows, may be cut short; the rest comes back. */
INLINE int handed_up_whole(__u32 kind)
{
	return kind != PUNT_ICMP && kind != PUNT_ERROR_INDICATION && !is_copy(kind);
}

/* What was counted as handed up to be kept is not. */
INLINE void not_held(struct packet *p)
{
	__u32 index = p->found.pdr;
	struct refused *r = bpf_map_lookup_elem(&refused, &index);

	if (p->end.punt == PUNT_BUFFER && r)
		__sync_fetch_and_add(&r->held, -1);
}

/* Of packets that an interface may bring as many of as it likes, it takes no more of the ring than
 * is free beside them: a flood by one leaves room for the others, and for each further flood. What
 * was handed up before the place that the daemon has come to waits no more. Several CPUs may count
 * at once, and lose a few. */
INLINE int interface_has_room(__u32 ifindex, __u32 to, __u32 waits, __u32 size)
{
	struct port *in = bpf_map_lookup_elem(&port, &ifindex);

	if (!in)
		return 1;
	if (to - in->handed_since >= waits) {
		in->handed_before = in->handed;
		in->handed = 0;
		in->handed_since = to;
	}
	if (in->handed_before + in->handed + size > SLOW_PATH_OCTETS - waits)
		return 0;
	in->handed += size;
	return 1;
}

/* Whether the ring has room for another record of the kind. Errors and neighbours have a budget
 * instead. Packets of sessions, which come in bursts, leave a quarter of the ring. */
INLINE int has_room(__u32 ifindex, __u32 kind)
{
	__u32 size = sizeof(struct punt) + BPF_RINGBUF_HDR_SZ;
	__u32 to = bpf_ringbuf_query(&slow_path, BPF_RB_PROD_POS);
	__u32 waits = to - (__u32)bpf_ringbuf_query(&slow_path, BPF_RB_CONS_POS);

	switch (kind) {
	case PUNT_ICMP:
	case PUNT_ERROR_INDICATION:
	case PUNT_NEIGHBOUR:
	case PUNT_PATH_MTU:
		return 1;
	case PUNT_BUFFER:
	case PUNT_DUPLICATE:
		return waits + size <= SLOW_PATH_OCTETS / 4 * 3;
	default:
		return interface_has_room(ifindex, to, waits, size);
	}
}

/* Hands the frame as it is to the daemon. 0 or -1. */
GLOBAL int hand_up(struct xdp_md *ctx, struct packet *p, __u32 kind)
{
	struct punt *record;
	__u32 length;

	if (!p)
		return -1;
	length = p->in.frame;
	if (length > PUNT_DATA) {
		/* a frame does not tell how long it was */
		if (p->plan.frames || handed_up_whole(kind))
			return -1;
		length = PUNT_DATA;
	}
	opaque(length);
	if (length < ETH_LEN || length > PUNT_DATA)
		return -1;
	if (!has_room(p->port.ifindex, kind))
		return -1;
	record = bpf_ringbuf_reserve(&slow_path, sizeof(*record), 0);
	if (!record)
		return -1;
	record->kind = kind;
	record->ifindex = p->port.ifindex;
	record->info = p->error.info;
	/* errors about what a UE sent go to the UE */
	record->table = p->found.from_ue && (kind == PUNT_ICMP || kind == PUNT_NEIGHBOUR) &&
					p->error.l3 != p->in.l3
				? SESSION_TABLE
				: p->plan.table;
	record->egress = kind != PUNT_ICMP ? p->out.hop.ifindex
			 : record->table == SESSION_TABLE
				 ? p->found.from_pdr ? p->found.from_pdr : p->found.pdr
				 : 0;
	if (kind == PUNT_NEIGHBOUR)
		punt_neighbour(record, p);
	record->l3 = p->error.l3;
	record->length = length;
	record->type = p->error.type;
	record->code = p->error.code;
	record->turn = p->turn;
	record->pad = 0;
	if (bpf_xdp_load_bytes(ctx, 0, record->data, length)) {
		bpf_ringbuf_discard(record, 0);
		return -1;
	}
	bpf_ringbuf_submit(record, 0);
	return 0;
}

/* The frame is what was received again: see nat.h. */
GLOBAL int nat_undo(struct xdp_md *ctx, struct packet *p);

/* To be cut, and for a UE: fragments that came back for a public address would be put together
 * again. */
INLINE int comes_back_translated(struct packet *p)
{
	return p->end.punt == PUNT_FRAGMENT && !(p->nat.translated & NAT_REWRITTEN);
}

/* The one way out: counts how the journey ended, and tells the sender where an
 * error was asked for. */
INLINE int finish(struct xdp_md *ctx, struct packet *p, enum reason reason)
{
	int verdict = XDP_DROP;

	if (p->nat.translated && reason != REASON_FORWARDED && reason != REASON_PASSED &&
	    !comes_back_translated(p))
		nat_undo(ctx, p);
	switch (reason) {
	case REASON_FORWARDED:
		verdict = XDP_REDIRECT;
		break;
	case REASON_PASSED:
		verdict = XDP_PASS;
		break;
	case REASON_REPLIED:
		verdict = bpf_redirect_map(&device, p->port.ifindex, XDP_TX);
		break;
	case REASON_SLOW_PATH:
		if (hand_up(ctx, p, p->end.punt)) {
			not_held(p);
			reason = p->in.frame > PUNT_DATA ? REASON_SLOW_PATH_SIZE
							 : REASON_SLOW_PATH_FULL;
		}
		break;
	default:
		if (p->error.type && error_allowed())
			hand_up(ctx, p,
				reason == REASON_TEID_UNKNOWN ? PUNT_ERROR_INDICATION : PUNT_ICMP);
	}
	p->end.reason = reason;
	count(&outcomes, reason, p->in.received);
	return verdict;
}

#endif
