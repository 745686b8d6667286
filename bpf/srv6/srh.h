/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 extension headers and the SRH (RFC 8200 section 4, RFC 8754). */
#ifndef CULVERT_SRV6_SRH_H
#define CULVERT_SRV6_SRH_H

#include "../packet.h"

#define MAX_EXTENSIONS 4

INLINE int is_extension(__u8 type)
{
	return type == NH_ROUTING || type == NH_DESTINATION || type == NH_HOP_BY_HOP;
}

/* Walks from the IPv6 header at p->in.l3 to the upper layer, or, where the
 * behaviour switches by it, to an SRH with segments left. CONTINUE, or a
 * reason. */
GLOBAL int walk_extensions(struct xdp_md *ctx, struct packet *p, __u32 stop_at_srh)
{
	struct ipv6 *ip;
	__u32 offset, link, end, length, i;
	__u8 next;

	if (!p)
		return REASON_EXTENSION_CHAIN;
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	next = ip->next_header;
	link = p->in.l3 + 6;
	offset = p->in.l3 + IPV6_LEN;
	end = p->in.l3 + p->in.l3_length;
	for (i = 0; i <= MAX_EXTENSIONS; i++) {
		struct srh *header;

		if (!is_extension(next)) {
			p->in.upper = offset;
			p->in.upper_type = next;
			return CONTINUE;
		}
		if (i == MAX_EXTENSIONS)
			break;
		header = at(ctx, offset, SRH_LEN);
		if (!header || offset + SRH_LEN > end)
			break;
		length = 8 + 8 * (__u32)header->length;
		if (offset + length > end)
			return next == NH_ROUTING && header->type == SRH_TYPE
				       ? REASON_SRH_MALFORMED
				       : REASON_EXTENSION_CHAIN;
		if (next == NH_ROUTING && header->type != SRH_TYPE && header->segments_left)
			return parameter_problem(p, REASON_ROUTING_TYPE, 0, offset + 2);
		if (next == NH_ROUTING && header->type == SRH_TYPE) {
			if (p->in.srh)
				break;
			p->in.srh = offset;
			p->in.srh_link = link;
			p->in.segments_left = header->segments_left;
			if (p->in.segments_left && stop_at_srh)
				return CONTINUE;
		}
		next = header->next_header;
		link = offset;
		offset += length;
	}
	return REASON_EXTENSION_CHAIN;
}

/* The upper layer, or the SRH, of the packet at p->in.l3. */
INLINE int find_upper(struct xdp_md *ctx, struct packet *p, __u8 next_header, int stop_at_srh)
{
	p->in.srh = 0;
	p->in.segments_left = 0;
	p->in.upper = p->in.l3 + IPV6_LEN;
	p->in.upper_type = next_header;
	return is_extension(next_header) ? walk_extensions(ctx, p, stop_at_srh) : CONTINUE;
}

/* Takes the SRH at `srh` out of the packet at `l3`. Its length, or -1. */
GLOBAL int take_srh_out(struct xdp_md *ctx, __u32 l3, __u32 srh_at, __u32 link_at)
{
	struct srh *srh = at(ctx, srh_at, SRH_LEN);
	__u8 *link = at(ctx, link_at, 1);
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);
	__u32 length;

	if (!srh || !link || !ip)
		return -1;
	length = SRH_LEN + 8 * (__u32)srh->length;
	*link = srh->next_header;
	st16(&ip->payload_length, be16(be16(ld16(&ip->payload_length)) - length));
	return remove_octets(ctx, srh_at, length) ? -1 : (int)length;
}

/* 0, or a reason. */
INLINE int remove_srh(struct xdp_md *ctx, struct packet *p)
{
	int length = take_srh_out(ctx, p->in.l3, p->in.srh, p->in.srh_link);

	if (length < 0)
		return REASON_EXTENSION_CHAIN;
	p->in.frame -= length;
	p->in.l3_length -= length;
	p->in.upper -= length;
	p->in.srh = 0;
	return 0;
}

/* Segments Left must be 0 where a behaviour ends the path. */
INLINE int bad_segments_left(struct packet *p)
{
	return parameter_problem(p, REASON_SEGMENTS_LEFT, 0, p->in.srh + 3);
}

/* Whether the SRH has the segments that it says it has. */
INLINE int holds_segments(struct srh *srh)
{
	__u32 n = srh->last_entry + 1u;

	return 2 * n <= srh->length && srh->segments_left <= n;
}

/* The packet goes on to another address: one hop less, and one segment of the SRH, if that is not
 * NULL. */
INLINE void advance(struct ipv6 *ip, struct srh *srh, const void *to)
{
	copy16(&ip->dst, to);
	ip->hop_limit--;
	if (srh)
		srh->segments_left--;
}

/* Before Segments Left is counted down (RFC 8754 section 4.3.1.1); then p->plan.dst
 * is the next segment. CONTINUE, or a reason. */
INLINE int next_segment(struct xdp_md *ctx, struct packet *p)
{
	struct srh *srh = at(ctx, p->in.srh, SRH_LEN);
	struct in6 *segment;

	if (!srh)
		return REASON_SRH_MALFORMED;
	if (!holds_segments(srh))
		return bad_segments_left(p);
	segment = at(ctx, p->in.srh + SRH_LEN + SEGMENT_LEN * (__u32)(__u8)(srh->segments_left - 1),
		     SEGMENT_LEN);
	if (!segment)
		return REASON_SRH_MALFORMED;
	copy16(&p->plan.dst, segment);
	return CONTINUE;
}

/* What ends here and is not for the behaviour (RFC 8986 section 4.1.1). */
INLINE int upper_layer(struct packet *p, struct local_sid *sid)
{
	if (sid->flags & SID_ALLOW_UPPER_LAYER)
		return REASON_PASSED;
	return parameter_problem(p, REASON_UPPER_LAYER, 4, p->in.upper);
}

#endif
