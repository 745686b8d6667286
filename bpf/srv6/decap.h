/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End.DX2, DX4, DX6, DT4, DT6, DT46, and USD (RFC 8986 sections 4.4 to 4.8,
 * 4.16.3); the same for T-PDUs out of GTP-U. */
#ifndef CULVERT_SRV6_DECAP_H
#define CULVERT_SRV6_DECAP_H

#include "../lookup.h"
#include "../payload.h"
#include "srh.h"

/* The packet at p->plan.keep leaves a tunnel, or enters one. Takes its addresses. 0, or a
 * reason. */
GLOBAL int refuse_martian(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *four;
	struct ipv6 *six;

	if (!p)
		return REASON_MARTIAN;
	p->plan.family = p->plan.keep_version;
	if (p->plan.family == 4) {
		four = at(ctx, p->plan.keep, IPV4_LEN);
		if (!four)
			return REASON_INNER_MALFORMED;
		st32(&p->plan.dst, ld32(&four->dst));
		st32(&p->plan.src, ld32(&four->src));
		return is_martian_source4(ld32(&four->src)) || is_martian4(ld32(&four->dst))
			       ? REASON_MARTIAN
			       : 0;
	}
	six = at(ctx, p->plan.keep, IPV6_LEN);
	if (!six)
		return REASON_INNER_MALFORMED;
	copy16(&p->plan.dst, &six->dst);
	copy16(&p->plan.src, &six->src);
	return is_martian_source6(&p->plan.src) || is_martian6(&p->plan.dst) ? REASON_MARTIAN : 0;
}

/* The packet at p->plan.keep goes on alone; `outer` is the traffic class or TOS of
 * what it came in, adjacency and table are set. CONTINUE, or a reason. */
GLOBAL int plan_inner(struct xdp_md *ctx, struct packet *p, __u32 outer)
{
	int ecn, reason;
	__u8 inner;

	if (!p)
		return REASON_INNER_MALFORMED;
	reason = refuse_martian(ctx, p);
	if (reason)
		return reason;
	if (payload_hops(ctx, p, &inner) <= 1)
		return hop_limit_spent(p, p->plan.keep);
	ecn = ecn_decapsulate(outer, inner);
	if (ecn < 0)
		return REASON_ECN;
	p->plan.ecn = ecn;
	p->plan.decapsulated = 1;
	p->plan.own = 0;
	p->plan.edit = EDIT_INNER;
	p->plan.length = p->plan.keep_length;
	p->plan.quote = p->plan.keep;
	p->plan.quote_length = p->plan.keep_length;
	return CONTINUE;
}

/* The upper layer was found to be IPv4 or IPv6. */
INLINE int decapsulate(struct xdp_md *ctx, struct packet *p, __u8 outer)
{
	int reason;

	p->plan.keep = p->in.upper;
	reason = take_payload(ctx, p, p->in.l3 + p->in.l3_length - p->in.upper,
			      p->in.upper_type == NH_IPV4 ? 4 : 6, REASON_INNER_MALFORMED);
	return reason ? reason : plan_inner(ctx, p, outer);
}

INLINE int decapsulate_frame(struct packet *p)
{
	p->plan.keep = p->in.upper;
	p->plan.keep_length = p->in.l3 + p->in.l3_length - p->in.upper;
	if (p->plan.keep_length < ETH_LEN)
		return REASON_INNER_MALFORMED;
	p->plan.keep_version = 0;
	p->plan.table = 0; /* the adjacency or nothing: a frame has no destination to look up */
	p->plan.push = PUSH_FRAME;
	return CONTINUE;
}

/* Whether the behaviour takes what it has found. End.DT46 for sessions does as
 * End.DX2 with an argument does, too. */
INLINE int takes(struct local_sid *sid, __u8 type)
{
	switch (sid->behavior) {
	case END_DX2:
		return type == NH_ETHERNET;
	case END_DX4:
	case END_DT4:
		return type == NH_IPV4;
	case END_DX6:
	case END_DT6:
		return type == NH_IPV6;
	case END_DT46:
		if (type == NH_ETHERNET)
			return !!(sid->flags & SID_SESSIONS);
	}
	return type == NH_IPV4 || type == NH_IPV6;
}

/* Table 0: only the adjacency will do. */
INLINE void plan_way(struct packet *p, struct local_sid *sid)
{
	p->plan.adjacency = sid->adjacency;
	p->plan.table = sid->adjacency ? 0 : sid->table;
}

INLINE int end_d(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	__u8 class = ipv6_class(ip);
	int reason = find_upper(ctx, p, ip->next_header, 0);

	if (reason != CONTINUE)
		return reason;
	if (p->in.segments_left)
		return bad_segments_left(p);
	if (p->in.upper_type == NH_FRAGMENT)
		return reassemble(p);
	if (!takes(sid, p->in.upper_type))
		return upper_layer(p, sid);
	plan_way(p, sid);
	if (p->in.upper_type == NH_ETHERNET)
		return decapsulate_frame(p);
	return decapsulate(ctx, p, class);
}

#endif
