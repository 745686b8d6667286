/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The headers that a tunnel pushes: planned before the next hop is looked up,
 * written once the room is made. */
#ifndef CULVERT_PUSH_H
#define CULVERT_PUSH_H

#include "payload.h"

/* ---- SRv6 ---- */

/* The first word of a policy, as it was at one moment. */
struct policy_state {
	__u32 count;
	__u16 behavior;
	__u8 down, first;
} ALIGNED;

/* The number of the lowest bit of eight. */
INLINE __u32 lowest_of(__u32 bits)
{
	bits &= -bits;
	return !!(bits & 0xaa) | !!(bits & 0xcc) << 1 | !!(bits & 0xf0) << 2;
}

/* A bit for each list in use. */
INLINE __u32 used_lists(struct policy_state *now)
{
	__u32 first = now->first & (MAX_SEGMENT_LISTS - 1);

	return ((1u << (now->count & 31)) - 1) >> first << first;
}

/* The place of the list in use that a hash falls to. Without branches, of which the verifier
 * would go both ways. */
INLINE __u32 place_of(struct sr_policy *policy, struct policy_state *now, __u32 hash)
{
	__u32 i, bits = 0;

#pragma unroll
	for (i = 0; i < MAX_SEGMENT_LISTS; i++) {
		__u64 beyond = policy->list[i].threshold;

		opaque(beyond);
		bits |= (__u32)((hash - beyond - 1) >> 63) << i;
	}
	return lowest_of(bits & used_lists(now));
}

/* The first list in use from place `i` on, in a circle, that is up; that at `i` where none is. */
INLINE __u32 next_up(struct policy_state *now, __u32 i)
{
	__u32 up = used_lists(now) & ~now->down, from = up >> i << i;

	return up ? lowest_of(from ?: up) : i;
}

/* The list of a flow of policy `index`, some of whose lists are down, or which uses those that
 * protect it. For a flow whose own list is down another hash chooses, so that the lists that
 * are up share such flows by weight, and keep theirs. 0: there is none. */
GLOBAL int other_list(__u32 index, __u32 hash)
{
	struct sr_policy *policy = bpf_map_lookup_elem(&sr_policy, &index);
	struct policy_state now;
	__u32 i;

	if (!policy)
		return 0;
	st64(&now, *(volatile __u64 *)policy);
	i = place_of(policy, &now, hash);
	if (now.down >> i & 1)
		i = next_up(&now, place_of(policy, &now, flow_again(hash)));
	return policy->list[i & (MAX_SEGMENT_LISTS - 1)].list;
}

/* The list that the flow takes. */
INLINE __u32 choose_list(struct sr_policy *policy, __u32 index, __u32 hash)
{
	__u32 i;

	if (policy->count == 1)
		return policy->list[0].list;
	if (policy->down | policy->first)
		return other_list(index, hash);
	for (i = 0; i < MAX_SEGMENT_LISTS && i < policy->count; i++)
		if (hash <= policy->list[i].threshold)
			return policy->list[i].list;
	return 0;
}

INLINE int is_reduced(__u16 behavior)
{
	return behavior == H_ENCAPS_RED || behavior == H_ENCAPS_L2_RED;
}

/* The list of a policy that a flow takes. */
struct chosen_list {
	struct segment_list *list;
	__u32 index;
	__u32 srh_segments; /* those that the policy puts into an SRH */
	__u64 last; /* list->segment[last] is the first destination */
};

/* Of policy `index`, for `extra` segments behind the list's. 0, or a reason. */
INLINE int find_list(__u32 index, __u32 hash, __u32 extra, struct chosen_list *c)
{
	struct sr_policy *policy = bpf_map_lookup_elem(&sr_policy, &index);

	if (!policy || !policy->count)
		return REASON_NO_SEGMENT_LIST;
	c->index = index = choose_list(policy, index, hash);
	c->list = bpf_map_lookup_elem(&segment_list, &index);
	if (!c->list)
		return REASON_NO_SEGMENT_LIST;
	c->last = c->list->count - 1u;
	opaque(c->last);
	if (c->last >= MAX_SEGMENTS)
		return REASON_NO_SEGMENT_LIST;
	c->srh_segments = c->last + 1 + extra - is_reduced(policy->behavior);
	return 0;
}

/* Plans the push of policy `index`, p->plan.extra, p->plan.last, p->plan.args_at and p->plan.tag
 * given: source, destination, lengths, adjacency. 0, or a reason. */
INLINE int plan_policy(struct xdp_md *ctx, struct packet *p, __u32 index, int keep_source)
{
	struct chosen_list c;
	int reason = find_list(index, p->plan.hash, p->plan.extra, &c);

	if (reason)
		return reason;
	p->found.policy = index;
	p->found.list = c.index;
	copy16(&p->plan.dst, &c.list->segment[c.last]);
	if (!c.last && p->plan.args_at)
		args_mob_write(&p->plan.dst, p->plan.args, p->plan.args_at);
	if (!keep_source)
		copy16(&p->plan.src, &c.list->source);
	p->plan.adjacency = c.list->adjacency;
	p->plan.segments = c.last + 1 + p->plan.extra;
	p->plan.srh_segments = c.srh_segments;
	return 0;
}

/* The list is known: what it takes. */
INLINE void plan_srv6(struct packet *p)
{
	p->plan.push = PUSH_SRV6;
	p->plan.own = 1;
	p->plan.family = 6;
	p->plan.table = MAIN_TABLE;
	if (p->plan.tag && !p->plan.srh_segments)
		p->plan.srh_segments = p->plan.segments;
	p->plan.push_length = srv6_length(p->plan.srh_segments);
	p->plan.length = p->plan.push_length + p->plan.keep_length;
}

/* An SRH that begins with the word `first`, with the segment `last` (or NULL) before the
 * list's. The list's last segment, where the SRH has it, gets `args`, which are 0 or have their
 * bit offset before them. 0 or -1. */
INLINE int write_srh(void *to, void *end, struct segment_list *list, __u64 first,
		     struct words *last, __u64 args)
{
	__u32 i, n = srh_segments(first);

	if (to + SRH_LEN + SEGMENT_LEN > end)
		return -1;
	opaque(n);
	st64(to, first);
	to += SRH_LEN;
	if (last) {
		copy16(to, last);
		to += SEGMENT_LEN;
		n--;
	}
	for (i = 0; i < MAX_SEGMENTS && i < n; i++) {
		if (to + SEGMENT_LEN > end)
			return -1;
		copy16(to, &list->segment[i]);
		if (!i && args)
			args_mob_write(to, args, args >> ARGS_MOB_BITS);
		to += SEGMENT_LEN;
	}
	return 0;
}

/* Beside arguments: how many VLAN tags there are before the IPv6 header. */
#define SRH_TAGS_SHIFT 48

/* The same, behind the IPv6 header. */
GLOBAL int push_srh(struct xdp_md *ctx, struct segment_list *list, __u64 first, struct words *last,
		    __u64 args)
{
	__u64 l3 = ETH_LEN + (args >> SRH_TAGS_SHIFT & 3) * VLAN_LEN;

	return !list || write_srh((void *)(long)ctx->data + l3 + IPV6_LEN,
				  (void *)(long)ctx->data_end, list, first, last,
				  args & ((1ull << SRH_TAGS_SHIFT) - 1))
		       ? -1
		       : 0;
}

/* ... and its arguments. */
INLINE __u64 srh_args(__u64 args, __u8 args_at)
{
	return args_at ? args | (__u64)args_at << ARGS_MOB_BITS : 0;
}

INLINE int push_ipv6(struct xdp_md *ctx, struct packet *p, __u8 next_header)
{
	void *ip = at(ctx, ETH_LEN, IPV6_LEN);

	if (!ip)
		return -1;
	write_ipv6(ip, ipv6_first_word(p->plan.class, p->plan.hash),
		   ipv6_second_word(next_header, p->plan.hop_limit), p->plan.length - IPV6_LEN,
		   &p->plan.src,
		   p->plan.extra && p->plan.segments == 1 ? &p->plan.last : &p->plan.dst);
	return 0;
}

INLINE int push_srv6(struct xdp_md *ctx, struct packet *p)
{
	__u32 index = p->found.list;

	if (!p->plan.srh_segments)
		return push_ipv6(ctx, p, p->plan.next_header);
	return push_ipv6(ctx, p, NH_ROUTING) ||
	       push_srh(ctx, bpf_map_lookup_elem(&segment_list, &index),
			srh_first_word(p->plan.next_header, p->plan.srh_segments,
				       p->plan.segments - 1, p->plan.tag),
			p->plan.extra ? &p->plan.last : 0, srh_args(p->plan.args, p->plan.args_at));
}

/* ---- GTP-U ---- */

/* p->plan.src, p->plan.dst, p->gtpu.teid, p->gtpu.qfi, p->gtpu.rqi, p->gtpu.message,
 * p->plan.container given. A packet that already has its GTP-U header (p->gtpu.message 0) gets UDP
 * only. */
INLINE void plan_gtpu(struct packet *p, __u8 family)
{
	p->plan.push = family == 4 ? PUSH_GTPU4 : PUSH_GTPU6;
	p->plan.own = 1;
	p->plan.family = family;
	p->plan.table = MAIN_TABLE;
	p->plan.push_length = (family == 4 ? IPV4_LEN : IPV6_LEN) +
			      (p->gtpu.message ? gtpu_length(p->plan.container) : UDP_LEN);
	if (p->gtpu.message && p->plan.with_sequence && !p->plan.container)
		p->plan.push_length += GTPU_OPTIONS_LEN;
	p->plan.length = p->plan.push_length + p->plan.keep_length;
}

/* The header at `gtpu`; adds it to the sum. -1 where there is no room. */
INLINE int push_gtpu(struct xdp_md *ctx, struct packet *p, void *gtpu, __u64 *sum)
{
	__u32 container =
		container_word(p->plan.container, p->gtpu.qfi | (p->gtpu.rqi ? CONTAINER_RQI : 0));
	__u8 options = (container ? GTPU_FLAG_E : 0) | (p->plan.with_sequence ? GTPU_FLAG_S : 0);
	__u32 before = (p->plan.family == 4 ? IPV4_LEN : IPV6_LEN) + UDP_LEN + GTPU_LEN;

	return write_gtpu(gtpu, (void *)(long)ctx->data_end,
			  gtpu_first_word(options, p->gtpu.message, p->plan.length - before),
			  p->gtpu.teid, p->plan.with_sequence ? be16(p->gtpu.sequence) : 0,
			  container, sum);
}

/* The sum over what is kept, which starts behind the pushed headers. */
INLINE __u32 kept_sum(struct xdp_md *ctx, struct packet *p)
{
	__u32 offset = ETH_LEN + p->plan.push_length, header = 0;

	if (p->gtpu.message == GTPU_G_PDU)
		return sum_fold(
			payload_sum(ctx, offset, p->plan.keep_length, p->plan.keep_version));
	if (!p->plan.pdu_version)
		return sum_octets(ctx, offset, p->plan.keep_length);
	header = p->plan.pdu_offset; /* a multiple of 4 */
	return sum_octets(ctx, offset, header) +
	       sum_fold(payload_sum(ctx, offset + header, p->plan.keep_length - header,
				    p->plan.pdu_version));
}

/* From UDP on; a message is answered to the port that it came from. */
INLINE __u32 ports_of(struct packet *p)
{
	return gtpu_ports(p->gtpu.message && p->gtpu.message != GTPU_G_PDU
				  ? GTPU_PORT
				  : flow_port(p->plan.hash));
}

INLINE int push_gtpu4(struct xdp_md *ctx, struct packet *p)
{
	void *ip = at(ctx, ETH_LEN, IPV4_LEN + UDP_LEN);
	__u64 sum = 0;

	if (!ip)
		return -1;
	write_ipv4_udp(ip, p->plan.class, p->plan.hop_limit, ld32(&p->plan.src), ld32(&p->plan.dst),
		       p->plan.length, ports_of(p));
	return p->gtpu.message ? push_gtpu(ctx, p, ip + IPV4_LEN + UDP_LEN, &sum) : 0;
}

INLINE int push_gtpu6(struct xdp_md *ctx, struct packet *p)
{
	__u64 sum = address_sum(&p->plan.src) + address_sum(&p->plan.dst);
	void *udp;

	if (push_ipv6(ctx, p, NH_UDP))
		return -1;
	udp = at(ctx, ETH_LEN + IPV6_LEN, UDP_LEN);
	if (!udp || (p->gtpu.message && push_gtpu(ctx, p, udp + UDP_LEN, &sum)))
		return -1;
	sum += kept_sum(ctx, p);
	udp = at(ctx, ETH_LEN + IPV6_LEN, UDP_LEN);
	if (!udp)
		return -1;
	write_udp6(udp, ports_of(p), p->plan.length - IPV6_LEN, sum);
	return 0;
}

#endif
