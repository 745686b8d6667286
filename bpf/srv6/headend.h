/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* H.Encaps, H.Encaps.Red and their .L2 forms (RFC 8986 section 5). */
#ifndef CULVERT_SRV6_HEADEND_H
#define CULVERT_SRV6_HEADEND_H

#include "../push.h"

/* The IP packet at p->plan.keep is about to be encapsulated: one hop less, its
 * class goes outside. CONTINUE, or a reason. */
INLINE int plan_encapsulation(struct xdp_md *ctx, struct packet *p, __u8 hop_limit)
{
	if (payload_hops(ctx, p, &p->plan.class) <= 1)
		return hop_limit_spent(p, p->plan.keep);
	p->plan.edit = EDIT_INNER;
	p->plan.decapsulated = 0;
	p->plan.hop_limit = hop_limit;
	p->plan.next_header = p->plan.keep_version == 4 ? NH_IPV4 : NH_IPV6;
	p->plan.quote = p->plan.keep;
	p->plan.quote_length = p->plan.keep_length;
	p->plan.hash = payload_hash(ctx, p);
	p->plan.hashed = 1;
	return CONTINUE;
}

INLINE int h_encaps(struct xdp_md *ctx, struct packet *p, __u32 policy, __u8 hop_limit)
{
	int reason = plan_encapsulation(ctx, p, hop_limit);

	if (reason != CONTINUE)
		return reason;
	reason = plan_policy(ctx, p, policy, 0);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

/* The whole frame, without the tags by which it was steered: so many octets of them. */
INLINE int h_encaps_l2(struct xdp_md *ctx, struct packet *p, __u32 policy, __u16 tags,
		       __u8 hop_limit)
{
	int reason;

	if (tags) {
		__u8 *eth = at(ctx, 0, ETH_LEN), *moved = at(ctx, tags, ETH_LEN);
		__u64 first;
		__u32 last;

		if (!eth || !moved)
			return REASON_INNER_MALFORMED;
		first = ld64(eth);
		last = ld32(eth + 8);
		st64(moved, first);
		st32(moved + 8, last);
	}
	p->in.addresses = tags;
	p->plan.keep = tags;
	p->plan.keep_length = p->in.frame - tags;
	p->plan.keep_version = 0;
	p->plan.edit = EDIT_NONE;
	p->plan.class = 0;
	p->plan.hop_limit = hop_limit;
	p->plan.next_header = NH_ETHERNET;
	p->plan.quote = 0;
	p->plan.quote_length = p->plan.keep_length;
	p->plan.hash = payload_hash(ctx, p);
	p->plan.hashed = 1;
	reason = plan_policy(ctx, p, policy, 0);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

#endif
