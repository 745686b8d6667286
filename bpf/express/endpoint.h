/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End, End.X, End.T, NEXT-C-SID, and decapsulation. */
#ifndef CULVERT_EXPRESS_ENDPOINT_H
#define CULVERT_EXPRESS_ENDPOINT_H

#include "push.h"

/* ---- the end of the path ---- */

/* What comes behind the IPv6 header, or behind the one SRH whose segments are used up: its type, and
 * where it starts. NULL: the journey looks for it. */
INLINE void *express_upper(struct express *x, struct ipv6 *ip, void *end, __u8 *type)
{
	void *srh = (void *)ip + IPV6_LEN;
	__u64 octets = express_zero(x);
	__u32 word;

	if (srh + SRH_LEN > end)
		return 0;
	*type = ip->next_header;
	if (*type == NH_ROUTING) {
		word = ld32(srh); /* next header, length, type, Segments Left */
		if (word >> 16 != SRH_TYPE)
			return 0;
		octets = SRH_LEN + 8 * (word >> 8 & 0xff);
		if (IPV6_LEN + octets > x->length)
			return 0;
		*type = word;
	}
	opaque(octets);
	return srh + octets;
}

/* ---- decapsulation ---- */

/* The inner packet, behind `popped` octets, goes on alone, by adjacency or by
 * table. */
INLINE int express_decap4(struct xdp_md *ctx, struct express *x, struct ipv4 *inner, void *end,
			  __u8 outer, __u32 popped, __u32 adj, __u32 table)
{
	__u32 length = x->length - popped;

	if (!express_ipv4(inner, length, end, x->port_flags) || !ecn_stays(outer, inner->tos) ||
	    is_martian_source4(ld32(&inner->src)) || (adj && is_martian_source4(ld32(&inner->dst))))
		return not_taken();
	x->hop = adj ? express_adjacency(adj, length)
		     : express_route4(ctx, x, ld32(&inner->dst), table, length,
				      express_l3(x) + popped);
	if (!x->hop)
		return not_taken();
	ipv4_spend(inner);
	return express_cut(ctx, x, popped, TYPE_IPV4);
}

INLINE int express_decap6(struct xdp_md *ctx, struct express *x, struct ipv6 *inner, void *end,
			  __u8 outer, __u32 popped, __u32 adj, __u32 table)
{
	__u32 length = x->length - popped;

	if (!express_ipv6(inner, length, end, x->port_flags) ||
	    !ecn_stays(outer, ipv6_class(inner)) || is_martian_source6(&inner->src) ||
	    is_martian_source6(&inner->dst)) /* the cache may have it for End */
		return not_taken();
	x->hop = adj ? express_adjacency(adj, length)
		     : express_route(ctx, x, ld64(&inner->dst), ld64(&inner->dst.b[8]), table,
				     length, express_l3(x) + popped);
	if (!x->hop)
		return not_taken();
	inner->hop_limit--;
	return express_cut(ctx, x, popped, TYPE_IPV6);
}

/* The Ethernet frame behind `popped` octets leaves as it is (End.DX2). What was behind the packet is
 * cut: nothing would tell the frame's receiver that it is padding. */
INLINE int express_decap_frame(struct xdp_md *ctx, struct express *x, __u32 popped, __u32 adj)
{
	__u32 frame = x->length - popped;
	int verdict;

	if (frame < ETH_LEN)
		return not_taken();
	x->hop = express_adjacency(adj, frame - ETH_LEN);
	if (!x->hop || x->hop->tags)
		return not_taken();
	if (express_cut_behind(ctx, x, 1) || bpf_xdp_adjust_head(ctx, express_l3(x) + popped))
		return leave_with(XDP_ABORTED); /* cannot be: it only shrinks */
	verdict = express_leave(x);
	x->port_flags &= ~EXPRESS_PADDED; /* there is nothing more to cut */
	return verdict;
}

/* ---- endpoints ---- */

/* The next hop of a packet that goes on to a segment. */
INLINE struct next_hop *express_way(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
				    __u64 hi, __u64 lo)
{
	return sid->adjacency ? express_adjacency(sid->adjacency, x->length)
			      : express_route(ctx, x, hi, lo, sid->table, x->length,
					      express_l3(x) | FLOW_OF_LABEL);
}

/* NEXT-C-SID: the next compressed SID moves up; no SRH is looked at. */
INLINE int express_csid(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
			struct ipv6 *ip, void *end)
{
	struct words next;

	if (ip->hop_limit <= 1 || !next_csid(sid, ip, &next))
		return not_taken();
	x->hop = express_way(ctx, x, sid, next.hi, next.lo);
	if (!x->hop)
		return not_taken();
	advance(ip, 0, &next);
	return express_cut(ctx, x, 0, TYPE_IPV6);
}

/* The next segment of the one SRH, where there is a hop to spend; or NULL. */
INLINE void *express_segment(struct express *x, struct ipv6 *ip, void *end)
{
	struct srh *srh = (void *)ip + IPV6_LEN;
	__u64 left;
	void *segment;

	if ((void *)srh + SRH_LEN > end || ip->hop_limit <= 1)
		return 0;
	left = srh->segments_left;
	opaque(left);
	if (!left || left > MAX_SEGMENTS)
		return 0;
	if (ip->next_header != NH_ROUTING || srh->type != SRH_TYPE || !holds_segments(srh) ||
	    IPV6_LEN + SRH_LEN + 8u * srh->length > x->length)
		return 0;
	segment = (void *)srh + SRH_LEN + SEGMENT_LEN * (left - 1);
	return segment + SEGMENT_LEN > end ? 0 : segment;
}

/* End, End.X, End.T. */
INLINE int express_end(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
		       struct ipv6 *ip, void *end)
{
	struct srh *srh = (void *)ip + IPV6_LEN;
	__u32 l3 = express_l3(x);
	void *segment;
	__u8 left;

	if (sid->flavors & FLAVOR_NEXT_C_SID)
		return express_csid(ctx, x, sid, ip, end);
	segment = express_segment(x, ip, end);
	if (!segment)
		return not_taken();
	left = srh->segments_left;
	x->hop = express_way(ctx, x, sid, ld64(segment), ld64(segment + 8));
	if (!x->hop)
		return not_taken();
	advance(ip, srh, segment);
	if (left == 1 && sid->flavors & FLAVOR_PSP &&
	    take_srh_out(ctx, l3, l3 + IPV6_LEN, l3 + 6) < 0)
		return express_drop(x, REASON_EXTENSION_CHAIN);
	return express_cut(ctx, x, 0, TYPE_IPV6);
}

/* End.B6.Encaps and End.B6.Encaps.Red: the next segment, and another policy around it. */
INLINE int express_b6(struct xdp_md *ctx, struct express *x, struct local_sid *sid, struct ipv6 *ip,
		      void *end)
{
	struct express_ipv6_header h = {};
	void *segment = express_segment(x, ip, end);

	if (!segment)
		return not_taken();
	h.hash = express_hash6(ip);
	if (express_encaps(ctx, x, sid->policy, &h, 0) == NOT_TAKEN)
		return not_taken();
	h.class = ipv6_class(ip);
	h.next_header = NH_IPV6;
	advance(ip, (void *)ip + IPV6_LEN, segment);
	return express_push6(ctx, x, &h, 0);
}

/* End.MAP: another SID. */
INLINE int express_map(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
		       struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);

	if (!m || ip->hop_limit <= 1)
		return not_taken();
	x->hop = m->adjacency ? express_shared(m->adjacency, flow_again(ipv6_flow(ip)), x->length)
			      : express_route(ctx, x, ld64(&m->target), ld64(&m->target.b[8]),
					      MAIN_TABLE, x->length, express_l3(x) | FLOW_OF_LABEL);
	if (!x->hop)
		return not_taken();
	map_checksum(ip, end, x->length, &m->target);
	advance(ip, 0, &m->target);
	return express_cut(ctx, x, 0, TYPE_IPV6);
}

#endif
