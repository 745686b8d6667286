/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End, End.X, End.T with their flavors (RFC 8986 sections 4.1 to 4.3, 4.16; RFC
 * 9800 section 4), End.B6.Encaps (4.13), End.Limit (RFC 9433 section 6.8). */
#ifndef CULVERT_SRV6_END_H
#define CULVERT_SRV6_END_H

#include "decap.h"
#include "../push.h"

/* The outer IPv6 packet goes on to p->plan.dst. */
INLINE int plan_endpoint(struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	p->plan.edit = EDIT_ENDPOINT;
	p->plan.family = 6;
	p->plan.keep = p->in.l3;
	p->plan.keep_length = p->in.l3_length;
	p->plan.keep_version = 0; /* no inner packet comes to light */
	p->plan.length = p->in.l3_length;
	p->plan.quote = p->in.l3;
	p->plan.quote_length = p->in.l3_length;
	plan_way(p, sid);
	p->plan.hash = flow_again(ipv6_flow(ip));
	p->plan.hashed = 1;
	copy16(&p->plan.src, &ip->src);
	return CONTINUE;
}

/* NEXT-C-SID: the destination whose next compressed SID moved up behind the
 * locator block. 0: the argument is used up. */
INLINE int next_csid(struct local_sid *sid, struct ipv6 *ip, void *to)
{
	struct u128 v = ld128(&ip->dst), behind = tail128(sid->block_length & 127);
	struct u128 next = and128(shl128(v, (sid->length - sid->block_length) & 127), behind);

	st128(to, or128(without128(v, behind), next));
	return is_not_0(next.hi | next.lo) & ~(sid->length >> 7);
}

/* Segments Left is 0: USD, USP, or the upper layer. */
INLINE int end_of_path(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, __u8 class)
{
	if (p->in.upper_type == NH_FRAGMENT)
		return reassemble(p);
	if (sid->flavors & FLAVOR_USD &&
	    (p->in.upper_type == NH_IPV4 || p->in.upper_type == NH_IPV6)) {
		plan_way(p, sid);
		return decapsulate(ctx, p, class);
	}
	if (sid->flavors & FLAVOR_USP && p->in.srh && sid->flags & SID_ALLOW_UPPER_LAYER) {
		int reason = remove_srh(ctx, p);

		return reason ? reason : REASON_PASSED;
	}
	return upper_layer(p, sid);
}

INLINE int end(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	__u8 class = ipv6_class(ip), hop_limit = ip->hop_limit;
	struct srh *srh;
	int reason;

	p->in.srh = 0;
	if (sid->flavors & FLAVOR_NEXT_C_SID && next_csid(sid, ip, &p->plan.dst)) {
		if (hop_limit <= 1)
			return hop_limit_spent(p, p->in.l3);
		return plan_endpoint(p, sid, ip);
	}
	reason = find_upper(ctx, p, ip->next_header, 1);
	if (reason != CONTINUE)
		return reason;
	if (!p->in.segments_left)
		return end_of_path(ctx, p, sid, class);
	if (hop_limit <= 1)
		return hop_limit_spent(p, p->in.l3);
	reason = next_segment(ctx, p);
	if (reason != CONTINUE)
		return reason;
	ip = at(ctx, p->in.l3, IPV6_LEN);
	srh = at(ctx, p->in.srh, SRH_LEN);
	if (!ip || !srh)
		return REASON_SRH_MALFORMED;
	plan_endpoint(p, sid, ip);
	if (sid->flavors & FLAVOR_PSP && p->in.segments_left == 1) {
		p->plan.pop_srh = 1;
		p->plan.keep_length -= SRH_LEN + 8 * (__u32)srh->length;
		p->plan.length = p->plan.keep_length;
	}
	return CONTINUE;
}

/* End, and its packet into another policy. */
INLINE int end_b6(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, struct ipv6 *ip,
		  __u8 fresh)
{
	int reason = find_upper(ctx, p, ip->next_header, 1);

	if (reason != CONTINUE)
		return reason;
	if (!p->in.segments_left)
		return p->in.upper_type == NH_FRAGMENT ? reassemble(p) : upper_layer(p, sid);
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	if (ip->hop_limit <= 1)
		return hop_limit_spent(p, p->in.l3);
	reason = next_segment(ctx, p);
	if (reason != CONTINUE)
		return reason;
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	p->plan.edit = EDIT_ENDPOINT;
	p->plan.keep = p->in.l3;
	p->plan.keep_length = p->in.l3_length;
	p->plan.keep_version = 6;
	p->plan.quote = p->in.l3;
	p->plan.quote_length = p->in.l3_length;
	p->plan.class = ipv6_class(ip);
	p->plan.hop_limit = fresh;
	p->plan.next_header = NH_IPV6;
	p->plan.hash = payload_hash(ctx, p);
	p->plan.hashed = 1;
	p->plan.keep_version = 0;
	copy16(&p->plan.last, &p->plan.dst);
	reason = plan_policy(ctx, p, sid->policy, 0);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

#endif
