/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* End, End.X, End.T with their flavors (RFC 8986 sections 4.1 to 4.3, 4.16; RFC
 * 9800 section 4), End.B6.Encaps (4.13), End.Limit (RFC 9433 section 6.8). */
#ifndef CULVERT_SRV6_END_H
#define CULVERT_SRV6_END_H

#include "decap.h"
#include "../push.h"

/* The outer IPv6 packet goes on to p->dst. */
INLINE int plan_endpoint(struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	p->edit = EDIT_ENDPOINT;
	p->family = 6;
	p->keep = p->l3;
	p->keep_length = p->l3_length;
	p->keep_version = 0; /* no inner packet comes to light */
	p->length = p->l3_length;
	p->quote = p->l3;
	p->quote_length = p->l3_length;
	plan_way(p, sid);
	p->hash = flow_again(ipv6_flow(ip));
	p->hashed = 1;
	copy16(&p->src, &ip->src);
	return CONTINUE;
}

/* NEXT-C-SID: the destination whose next compressed SID moved up behind the
 * locator block. 0: the argument is used up. */
INLINE int next_csid(struct local_sid *sid, struct ipv6 *ip, void *to)
{
	struct u128 v = ld128(&ip->dst);
	struct u128 argument = shl128(v, sid->length & 127);

	if (sid->length > 127 || !(argument.hi | argument.lo))
		return 0;
	v = or128(head128(v, sid->block_length & 127), shr128(argument, sid->block_length & 127));
	st128(to, v);
	return 1;
}

/* Segments Left is 0: USD, USP, or the upper layer. */
INLINE int end_of_path(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, __u8 class)
{
	if (p->upper_type == NH_FRAGMENT)
		return reassemble(p);
	if (sid->flavors & FLAVOR_USD && (p->upper_type == NH_IPV4 || p->upper_type == NH_IPV6)) {
		plan_way(p, sid);
		return decapsulate(ctx, p, class);
	}
	if (sid->flavors & FLAVOR_USP && p->srh && sid->flags & SID_ALLOW_UPPER_LAYER) {
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

	p->srh = 0;
	if (sid->flavors & FLAVOR_NEXT_C_SID && next_csid(sid, ip, &p->dst)) {
		if (hop_limit <= 1)
			return hop_limit_spent(p, p->l3);
		return plan_endpoint(p, sid, ip);
	}
	reason = find_upper(ctx, p, ip->next_header, 1);
	if (reason != CONTINUE)
		return reason;
	if (!p->segments_left)
		return end_of_path(ctx, p, sid, class);
	if (hop_limit <= 1)
		return hop_limit_spent(p, p->l3);
	reason = next_segment(ctx, p);
	if (reason != CONTINUE)
		return reason;
	ip = at(ctx, p->l3, IPV6_LEN);
	srh = at(ctx, p->srh, SRH_LEN);
	if (!ip || !srh)
		return REASON_SRH_MALFORMED;
	plan_endpoint(p, sid, ip);
	if (sid->flavors & FLAVOR_PSP && p->segments_left == 1) {
		p->pop_srh = 1;
		p->keep_length -= SRH_LEN + 8 * (__u32)srh->length;
		p->length = p->keep_length;
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
	if (!p->segments_left)
		return p->upper_type == NH_FRAGMENT ? reassemble(p) : upper_layer(p, sid);
	ip = at(ctx, p->l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	if (ip->hop_limit <= 1)
		return hop_limit_spent(p, p->l3);
	reason = next_segment(ctx, p);
	if (reason != CONTINUE)
		return reason;
	ip = at(ctx, p->l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	p->edit = EDIT_ENDPOINT;
	p->keep = p->l3;
	p->keep_length = p->l3_length;
	p->keep_version = 6;
	p->quote = p->l3;
	p->quote_length = p->l3_length;
	p->class = ipv6_class(ip);
	p->hop_limit = fresh;
	p->next_header = NH_IPV6;
	p->hash = payload_hash(ctx, p);
	p->hashed = 1;
	p->keep_version = 0;
	copy16(&p->last, &p->dst);
	reason = plan_policy(ctx, p, sid->policy, 0);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

#endif
