/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The express lane's ground: the next hop that is known already, the way out,
 * and what an inner packet must look like to be taken. */
#ifndef CULVERT_EXPRESS_LANE_H
#define CULVERT_EXPRESS_LANE_H

#include "../router.h"

/* What an express packet still needs to know when it leaves. */
struct express {
	struct settings *cfg;
	struct next_hop *hop;
	struct counter *sid;    /* what matched counts there, or NULL */
	struct counter *list;
	struct volume *tunnel;  /* or a session's rule */
	struct counter *slice;  /* of the rule; a traffic class, where there is none */
	__u32 length;        /* of the IP packet as received; padding may follow it */
	__u32 list_length, tunnel_length;
	__u32 port_flags;    /* with EXPRESS_TAGGED and EXPRESS_PADDED */
	__u32 access;
	__u32 rule; /* index, of a session */
	__u32 class; /* class_counter, of its forwarding; 0: none */
	__u32 is6; /* 1: the outer header of GTP-U is IPv6's, 0: IPv4's (express_bit) */
};

/* Bits that no port's flags have: the frame has a VLAN tag; it has octets behind the IP packet
 * (express_received). */
#define EXPRESS_TAGGED_SHIFT 15
#define EXPRESS_PADDED_SHIFT 14
#define EXPRESS_TAGGED (1 << EXPRESS_TAGGED_SHIFT)
#define EXPRESS_PADDED (1 << EXPRESS_PADDED_SHIFT)

/* 0, which the verifier does not know: PORT_NEVER is a bit that no port has. */
INLINE __u64 express_zero(struct express *x)
{
	__u64 zero = x->port_flags / PORT_NEVER & 1;

	opaque(zero);
	return zero;
}

/* 1 if `is` is not 0, else 0. A branch flips it, so that the processor can predict it, and need not
 * wait for the octets that `is` comes from. The verifier does not know its value, or it would check
 * all that follows twice. */
INLINE __u64 express_bit(struct express *x, int is)
{
	__u64 bit = express_zero(x);

	if (is) {
		bit ^= 1;
		opaque(bit);
	}
	return bit;
}

/* A verdict that few packets get, set where they leave. Else the compiler sets it before each branch
 * that may lead there, for all packets. */
INLINE int leave_with(int verdict)
{
	asm volatile("");
	return verdict;
}

INLINE int not_taken(void)
{
	return leave_with(NOT_TAKEN);
}

/* Offset of the IP header that was received. */
INLINE __u32 express_l3(struct express *x)
{
	return ETH_LEN + (x->port_flags >> EXPRESS_TAGGED_SHIFT & 1) * VLAN_LEN;
}

INLINE void *packet_end(struct xdp_md *ctx)
{
	return (void *)(long)*(volatile __u32 *)&ctx->data_end; /* to keep it takes a register */
}

/* Octets of the outer header of GTP-U, which has no options. */
INLINE __u64 express_header(struct express *x)
{
	return IPV4_LEN + x->is6 * (IPV6_LEN - IPV4_LEN);
}

/* Its TOS or traffic class. */
INLINE __u8 express_class(struct express *x, void *ip)
{
	return be16(ld16(ip)) >> 4 * x->is6;
}

/* Whether the frame has x->length octets from `l3` on. They may be in several pieces. */
INLINE int express_complete(struct xdp_md *ctx, struct express *x, void *l3, void *end)
{
	__u64 there = (long)end - (long)l3;
	struct packet *p;

	opaque(there);
	if (there != x->length) {
		p = journey_packet();
		if (!p)
			return 0;
		if (there - x->length > MAX_PADDING) /* there may be more pieces */
			there = frame_length(ctx) - express_l3(x);
		if (there < x->length)
			return 0;
		p->in.received = there + express_l3(x);
		x->port_flags ^= is_not_0(there - x->length) << EXPRESS_PADDED_SHIFT;
	}
	return 1;
}

/* Octets of the frame. */
INLINE __u32 express_received(struct express *x)
{
	struct packet *p = x->port_flags & EXPRESS_PADDED ? journey_packet() : 0;

	return p ? p->in.received : express_l3(x) + x->length;
}

/* Index 0 never is ready. */
INLINE struct next_hop *express_adjacency(__u32 index, __u32 length)
{
	struct adjacency *adj = bpf_map_lookup_elem(&adjacency, &index);
	struct next_hop *hop;

	if (!adj)
		return 0;
	hop = &adj->half[adj->current & 1];
	if (hop->flags != NEXT_HOP_READY || length > hop->mtu)
		return 0;
	return hop;
}

/* The same for a flow, which may share several next hops with others. */
INLINE struct next_hop *express_shared(__u32 index, __u32 hash, __u32 length)
{
	return express_adjacency(index, length)
		       ?: express_adjacency(shared_adjacency(index, hash), length);
}

/* What an earlier packet found, or NULL. */
INLINE struct cached *express_cached(struct express *x, __u64 hi, __u64 lo, __u32 table)
{
	struct cached *slot = cache_slot(hi, lo, table);

	return slot && cache_holds4(slot, hi, table, cache_generation(x->cfg)) && slot->lo == lo
		       ? slot
		       : 0;
}

INLINE struct cached *express_cached4(struct express *x, __be32 address, __u32 table)
{
	struct cached *slot = cache_slot(address, ~0ull, table | CACHE_IPV4);

	return slot && cache_holds4(slot, address, table | CACHE_IPV4, cache_generation(x->cfg))
		       ? slot
		       : 0;
}

/* Beside the offset of a packet that the endpoint of an SRH sends on: its label tells the flow. */
#define FLOW_OF_LABEL 0x8000

INLINE __u32 ip_length(void *ip)
{
	return (ld32(ip) >> 4 & 0xf) == 4 ? be16(ld16(ip + 2)) : IPV6_LEN + be16(ld16(ip + 4));
}

INLINE __u32 express_flow(struct xdp_md *ctx, void *ip, __u32 l3)
{
	return l3 & FLOW_OF_LABEL ? flow_again(ipv6_flow(ip))
				  : flow_hash(ctx, l3, ip_length(ip), ld32(ip) >> 4 & 0xf);
}

/* Whether a destination may be more than an address behind a router: a UE's, this node's, of the SR
 * domain, a group, or a martian. */
INLINE int is_near4(struct settings *cfg, __be32 address)
{
	return is_martian_source4(address) || is_gtpu4(cfg, address) ||
	       find_pool4(cfg, be32(address)) || pdr_of_ue4(cfg, address);
}

INLINE int is_near6(struct settings *cfg, const void *address)
{
	__u64 hi = ld64(address);
	__u32 sid;

	return is_martian_source6(address) || is_gtpu6(cfg, address) || in_domain(cfg, address) ||
	       find_sid(cfg, address, &sid) || find_pool6(cfg, be64(hi)) || pdr_of_ue6(cfg, hi);
}

/* Whether UEs' packets to an address may leave by a route, as far as prefixes say. */
INLINE int is_open(__u64 octets, __u32 family)
{
	__u32 to = walk_trie(octets, TRIE_TARGETS | family);
	__u32 kind = to >> LEAF_KIND_SHIFT, reach;

	if (to == LEAF_ASK || kind == TARGET_PASS || kind == TARGET_PDR)
		return 0;
	reach = walk_trie(octets, TRIE_REACH | family);
	return reach == REACH_NONE || reach == REACH_OPEN;
}

/* Of a UE's packet (CACHE_GUARDED in `table`): the adjacency of a destination that is nobody's here,
 * by a route with one next hop, as most of the Internet's are. LEAF_ASK: its route has to be asked
 * for. 0: whose it is has to be asked for, by calls of three functions. */
GLOBAL __u32 find_far(__u64 hi, __u64 lo, __u32 table)
{
	struct settings *cfg = &node_settings;
	struct words address = { hi, lo };
	struct cached *slot = cache_slot(hi, lo, table);
	__u32 now = cache_generation(cfg), family = table & CACHE_IPV4, index;

	if (!slot || (family ? is_near4(cfg, hi) : is_near6(cfg, &address)) || !is_open(hi, family))
		return 0;
	index = walk_trie(hi, table & ~CACHE_GUARDED);
	if (!index || index == LEAF_ASK)
		return LEAF_ASK;
	cache_fill(slot, hi, lo, table, now);
	slot->index = index;
	return index;
}

/* The adjacency of a route that the cache does not hold, or that has several next
 * hops; 0: none, or a packet, or a UE's (CACHE_GUARDED), must not go there. The flow is that
 * of the packet at `l3`, whose header is believed; FLOW_OF_LABEL may be beside that. */
GLOBAL __u32 find_adjacency(struct xdp_md *ctx, __u64 hi, __u64 lo, __u32 table, __u32 l3)
{
	__u32 zero = 0, number = cache_index(hi, lo, table), far;
	struct cached *slot = bpf_map_lookup_elem(&lookup_cache, &number);
	struct route *several = bpf_map_lookup_elem(&cached_route, &number);
	struct packet *p = bpf_map_lookup_elem(&journey_state, &zero);
	struct ipv6 *ip = at(ctx, l3 & ~FLOW_OF_LABEL, IPV4_LEN);

	if (!p || !ip || !slot || !several)
		return 0;
	p->plan.table = table & ~(CACHE_IPV4 | CACHE_GUARDED);
	if (!p->plan.table)
		return 0;
	if (!slot->index && cache_holds(slot, hi, lo, table, cache_generation(&node_settings)))
		return hop_of_flow(several, express_flow(ctx, ip, l3));
	far = table & CACHE_GUARDED ? find_far(hi, lo, table) : 0;
	if (far && far != LEAF_ASK)
		return far;
	p->plan.family = table & CACHE_IPV4 ? 4 : 6;
	p->plan.guarded = !!(table & CACHE_GUARDED);
	p->plan.dst = (struct words){ hi, lo };
	p->plan.hashed = !!(l3 & FLOW_OF_LABEL);
	if (p->plan.hashed)
		p->plan.hash = flow_again(ipv6_flow(ip));
	p->plan.keep = l3;
	p->plan.keep_length = ip_length(ip);
	p->plan.keep_version = ld32(ip) >> 4 & 0xf;
	if (p->plan.family == 4 ? is_martian4(hi) : is_martian6(&p->plan.dst))
		return 0;
	if (p->plan.guarded ? !far && (pdr_of_destination(p) || may_reach(p)) : kind_again(p))
		return 0;
	return choose_adjacency(ctx, p);
}

/* The adjacency of a route that the cache may hold. */
INLINE struct next_hop *express_hop(struct xdp_md *ctx, struct cached *slot, __u64 hi, __u64 lo,
				    __u32 table, __u32 length, __u32 l3)
{
	__u32 index = slot ? slot->index : 0;

	return express_adjacency(index ?: find_adjacency(ctx, hi, lo, table, l3), length);
}

/* Table 0 is none: it is where the cache keeps steering. */
INLINE struct next_hop *express_route(struct xdp_md *ctx, struct express *x, __u64 hi, __u64 lo,
				      __u32 table, __u32 length, __u32 l3)
{
	struct cached *slot = table ? express_cached(x, hi, lo, table) : 0;

	return express_hop(ctx, slot, hi, lo, table, length, l3);
}

INLINE struct next_hop *express_route4(struct xdp_md *ctx, struct express *x, __be32 address,
				       __u32 table, __u32 length, __u32 l3)
{
	struct cached *slot = table ? express_cached4(x, address, table) : 0;

	return express_hop(ctx, slot, address, ~0ull, table | CACHE_IPV4, length, l3);
}

/* What nobody is to hear of. */
INLINE int express_drop(struct express *x, enum reason reason)
{
	count(&outcomes, reason, express_received(x));
	return XDP_DROP;
}

/* Cuts what is behind the packet, which ends at offset `end`. Without `all` some padding may stay. 0 or
 * less. A function of its own: few packets have something behind them. */
GLOBAL int cut_behind(struct xdp_md *ctx, __u32 end, __u32 all)
{
	struct packet *p = journey_packet();
	__u32 behind;

	if (!p)
		return -1;
	behind = p->in.received - end;
	if (!all && may_stay_behind(behind, p->in.received))
		return 0;
	return bpf_xdp_adjust_tail(ctx, -(int)behind);
}

INLINE int express_cut_behind(struct xdp_md *ctx, struct express *x, __u32 all)
{
	return x->port_flags & EXPRESS_PADDED && cut_behind(ctx, express_l3(x) + x->length, all);
}

/* Out, and counters. */
INLINE int express_leave(struct express *x)
{
	if (bpf_redirect_map(&device, x->hop->ifindex, XDP_DROP) != XDP_REDIRECT)
		return express_drop(x, REASON_NO_ROUTE);
	count(&outcomes, REASON_FORWARDED, express_received(x));
	if (x->sid)
		count_at(x->sid, x->length);
	if (x->list)
		count_at(x->list, x->list_length);
	if (x->class)
		count(&class_counter, x->class, x->list_length);
	if (x->tunnel)
		volume_add(x->tunnel, x->tunnel_length);
	if (x->slice)
		count_at(x->slice, x->tunnel ? x->tunnel_length : x->list_length);
	return XDP_REDIRECT;
}

/* The first `popped` octets of layer 3 make room for `pushed`, and the Ethernet header as received
 * for the next hop's. 0, and in `l3` where layer 3 begins now; or -1. */
INLINE int express_push(struct xdp_md *ctx, struct express *x, __u32 popped, __u32 pushed,
			void **l3)
{
	__u64 header = ETH_LEN + hop_tags(x->hop) * VLAN_LEN;
	int head = express_l3(x) + popped - pushed - header;

	opaque(header);
	if (head && bpf_xdp_adjust_head(ctx, head)) {
		count(&outcomes, REASON_HEADROOM, express_received(x));
		return -1;
	}
	*l3 = (void *)(long)ctx->data + header;
	return 0;
}

/* The Ethernet header before layer 3, for which express_push() made room, and out. */
INLINE int express_out(struct xdp_md *ctx, struct express *x, __u16 type)
{
	void *eth = (void *)(long)ctx->data;

	if (eth + (ETH_LEN + 2 * VLAN_LEN) > (void *)(long)ctx->data_end)
		return leave_with(XDP_ABORTED); /* cannot be: an IP packet follows */
	write_link(eth, x->hop, type);
	return express_leave(x);
}

/* The first `popped` octets of layer 3 go, and the rest leaves. */
INLINE int express_cut(struct xdp_md *ctx, struct express *x, __u32 popped, __u16 type)
{
	void *l3;

	return express_push(ctx, x, popped, 0, &l3) ? leave_with(XDP_DROP)
						    : express_out(ctx, x, type);
}

/* ---- the inner packet ---- */

/* So much of layer 4 is there: the checksum of TCP ends here. */
#define EXPRESS_L4 (TCP_CHECKSUM + 2)

/* Whether layer 4 may have been left to the device: its checksum is then the
 * sum of the pseudo-header. */
INLINE int express_partial(void *l4, __u8 protocol, __u64 pseudo)
{
	if (protocol == NH_UDP)
		return sum_may_be(pseudo, ld16(l4 + 6));
	return protocol == NH_TCP && sum_may_be(pseudo, ld16(l4 + TCP_CHECKSUM));
}

INLINE int express_partial4(struct ipv4 *ip, __u32 length)
{
	return express_partial((void *)ip + IPV4_LEN, ip->protocol,
			       (__u64)ld32(&ip->src) + ld32(&ip->dst) +
				       pseudo_tail(length - IPV4_LEN, ip->protocol));
}

INLINE int express_partial6(struct ipv6 *ip, __u32 length)
{
	__u8 protocol = ip->next_header;

	opaque(protocol);
	return express_partial((void *)ip + IPV6_LEN, protocol,
			       address_sum(&ip->src) + address_sum(&ip->dst) +
				       pseudo_tail(length, protocol));
}

/* Some of layer 4 behind a header without options, its checksum in place. */
INLINE int express_payload4(struct ipv4 *ip, __u32 length, void *end, __u32 port_flags)
{
	if ((void *)ip + IPV4_LEN + EXPRESS_L4 > end || length < IPV4_LEN + EXPRESS_L4)
		return 0;
	return !(port_flags & PORT_PARTIAL_CHECKSUM) || !express_partial4(ip, length);
}

INLINE int express_payload6(struct ipv6 *ip, __u32 length, void *end, __u32 port_flags)
{
	if ((void *)ip + IPV6_LEN + EXPRESS_L4 > end || length < IPV6_LEN + EXPRESS_L4)
		return 0;
	return !(port_flags & PORT_PARTIAL_CHECKSUM) || !express_partial6(ip, length - IPV6_LEN);
}

/* An IPv4 packet of `length` octets without options, with hops to spend, its checksum in place,
 * and some of layer 4. */
INLINE int express_ipv4(struct ipv4 *ip, __u32 length, void *end, __u32 port_flags)
{
	return (void *)ip + IPV4_LEN <= end && ip->version_ihl == 0x45 && ip->ttl > 1 &&
	       be16(ld16(&ip->length)) == length &&
	       !(ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK)) &&
	       express_payload4(ip, length, end, port_flags);
}

INLINE int express_ipv6(struct ipv6 *ip, __u32 length, void *end, __u32 port_flags)
{
	return (void *)ip + IPV6_LEN <= end && is_ipv6(ip) && ip->hop_limit > 1 &&
	       IPV6_LEN + be16(ld16(&ip->payload_length)) == length &&
	       express_payload6(ip, length, end, port_flags);
}

#endif
