/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of UEs into the VPN of their slice, by the routes that it imports. */
#ifndef CULVERT_VPN_H
#define CULVERT_VPN_H

#include "upf.h"

/* The policy of a route of a VPN, where classes share the destination that of best effort: none
 * tells UEs' packets apart. 0: none. */
INLINE __u32 policy_of_route(struct cached *to)
{
	struct class_way *way;

	if (to->kind != TARGET_CLASSES)
		return to->kind == TARGET_POLICY ? to->index : 0;
	way = class_way_of(0, 0, to->index);
	return way ? way->policy : 0;
}

/* The packet at p->plan.keep, which may leave, goes to the SID of the longest route to p->plan.dst
 * of its slice's VPN. CONTINUE, or a reason. */
GLOBAL int enter_vpn(struct xdp_md *ctx, struct packet *p)
{
	struct settings *cfg = &node_settings;
	struct forwarding *f;
	struct cached *to;
	__u32 index, four;
	__u8 ecn;
	int reason;

	if (!p)
		return REASON_NO_VPN_ROUTE;
	index = p->found.rule.forwarding;
	f = bpf_map_lookup_elem(&forwarding, &index);
	if (!f)
		return REASON_FAR_DROP;
	four = p->plan.family == 4;
	to = target_in(cfg, four ? ld32(&p->plan.dst) : p->plan.dst.hi,
		       four ? ~0ull : p->plan.dst.lo, four ? CACHE_IPV4 : 0, f->index,
		       p->plan.guarded ? CACHE_GUARDED : 0);
	index = to ? policy_of_route(to) : 0;
	if (!index)
		return REASON_NO_VPN_ROUTE;
	ecn = p->plan.ecn;
	reason = plan_encapsulation(ctx, p, cfg->hop_limit);
	if (reason != CONTINUE)
		return reason;
	p->plan.guarded = 0; /* a UE has not named the SID */
	p->plan.decapsulated = 1;
	p->plan.class = (p->plan.class & ~3) | ecn;
	p->plan.class = marked(f, p->plan.class);
	reason = plan_policy(ctx, p, index, 0);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

#endif
