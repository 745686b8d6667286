/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is left to the kernel: whether it may have it, and what the daemon is told of it. */
#ifndef CULVERT_LEAVE_H
#define CULVERT_LEAVE_H

#include "port.h"

/* Which role vouches for the sender of an ICMP error about what this node sent that was too
 * big for the path: enum vouches; 0: none, or another packet. */
GLOBAL int vouched_mtu(struct xdp_md *ctx, struct packet *p)
{
	__u32 l4, vouches = 0;
	__u8 *type;

	if (!p || p->in.group)
		return 0;
	if (p->in.version == 4) {
		struct ipv4 *ip = at(ctx, p->in.l3, IPV4_LEN);

		if (!ip || ip->protocol != NH_ICMP ||
		    be16(ld16(&ip->fragment)) & IPV4_FRAGMENT_MASK)
			return 0;
		l4 = p->in.l3 + (ip->version_ihl & 0xf) * 4u;
		if (p->port.flags & PORT_N3 && from_peer4(p->port.access, ld32(&ip->src)))
			vouches = VOUCHES_GTPU;
		type = at(ctx, l4, 4);
		return type && type[0] == 3 && type[1] == 4 ? vouches : 0;
	}
	struct ipv6 *ip = at(ctx, p->in.l3, IPV6_LEN);

	if (p->in.version != 6 || !ip || ip->next_header != NH_ICMPV6)
		return 0;
	type = at(ctx, p->in.l3 + IPV6_LEN, 4);
	if (!type || *type != ICMP6_TOO_BIG)
		return 0;
	if (p->port.flags & PORT_SR && in_domain(&node_settings, &ip->src))
		vouches = VOUCHES_SR;
	if (p->port.flags & PORT_N3 && from_peer6(p->port.access, &ip->src))
		vouches |= VOUCHES_GTPU;
	return vouches;
}

/* Whether the daemon is to look if the packet is such an error, about a tunnel of ours. */
INLINE int tells_path_mtu(struct xdp_md *ctx, struct packet *p)
{
	__u32 vouches = vouched_mtu(ctx, p);

	if (!vouches || !allowed(BUDGET_PATH_MTU))
		return 0;
	p->error.info = vouches;
	p->error.l3 = p->in.l3;
	p->end.punt = PUNT_PATH_MTU;
	return 1;
}

/* The hop that was given back for the kernel to spend, which spends none on what it keeps. */
INLINE int keep_hop_spent(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6 *six;
	struct ipv4 *four;

	if (p->in.version == 4) {
		four = at(ctx, p->in.l3, IPV4_LEN);
		if (!four)
			return REASON_IPV4_MALFORMED;
		ipv4_spend(four);
		return REASON_PASSED;
	}
	six = at(ctx, p->in.l3, IPV6_LEN);
	if (!six)
		return REASON_IPV6_MALFORMED;
	six->hop_limit--;
	return REASON_PASSED;
}

/* What the kernel must not have is dropped, also of what came out of other packets here. */
GLOBAL int guard_kernel(struct xdp_md *ctx, struct packet *p, int reason)
{
	int refused = 0;

	if (!p || reason != REASON_PASSED || !(p->port.flags & PORT_ROLES))
		return reason;
	if (p->found.sid)
		refused = refuse_at_sid(ctx, p);
	else if (p->in.version == 4)
		refused = refuse_host4(ctx, p, p->in.l3, p->turn);
	else if (p->in.version == 6)
		refused = refuse_host6(ctx, p, p->in.l3, p->turn);
	if (p->found.sid || p->turn)
		p->end.pfcp = 0; /* its answer leaves by the kernel's routes */
	if (p->turn && refused <= 0)
		return refused ? reason : keep_hop_spent(ctx, p);
	if (p->turn || p->found.sid || !tells_path_mtu(ctx, p))
		return refused > 0 ? refused : reason;
	if (refused > 0) /* for an address that packets have here, and this host has not */
		return REASON_SLOW_PATH;
	hand_up(ctx, p, PUNT_PATH_MTU); /* the kernel has it, too */
	return reason;
}

#endif
