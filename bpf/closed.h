/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What enters by an interface before the data path is there (docs/adr/0033-fail-closed.md).
 * It is loaded with tables of its own, of which it reads port and access, and counts in
 * outcomes. The routes are the kernel's. */
#ifndef CULVERT_CLOSED_H
#define CULVERT_CLOSED_H

#include "router.h"

/* Whether the kernel keeps a packet, as far as it is known: where the port does not forward,
 * the kernel says nothing of its routes. `other`: the frame is for another device on the port,
 * such as a macvlan of a container, whose packets have to be known to be this host's. */
INLINE int stays_here(struct xdp_md *ctx, struct bpf_fib_lookup *to, int other)
{
	long found;

	to->ifindex = ctx->ingress_ifindex;
	found = bpf_fib_lookup(ctx, to, sizeof(*to), 0);
	return found == BPF_FIB_LKUP_RET_NOT_FWDED ||
	       (found == BPF_FIB_LKUP_RET_FWD_DISABLED && !other);
}

/* GTP-U and PFCP for this host wait for the data path, whatever `host` says. */
INLINE int refuse_closed(struct port *in, struct service_looks *l, int here, int other)
{
	if (!here)
		return other || in->flags & PORT_HOST_FORWARD ? 0 : REASON_ROLE;
	if (l->later)
		return 0; /* the kernel has no use for it without the first one */
	if (l->protocol == NH_UDP && (l->destination == PFCP_PORT || l->destination == GTPU_PORT))
		return REASON_HOST;
	return may_have(in->flags, in->access, l) ? 0 : REASON_HOST;
}

GLOBAL int closed4(struct xdp_md *ctx, struct port *in, __u32 l3, int other)
{
	struct service_looks l = { .version = 4, .type = NO_TYPE };
	struct bpf_fib_lookup to = { .family = 2 /* AF_INET */ };
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	int here;

	if (!ip || !in)
		return REASON_HOST;
	to.ipv4_src = ld32(&ip->src);
	to.ipv4_dst = ld32(&ip->dst);
	look_at_ipv4(ctx, &l, l3, ip);
	if (is_of_link(&l, 0))
		return 0;
	here = (!other && is_local4(be32(to.ipv4_dst))) || stays_here(ctx, &to, other);
	return refuse_closed(in, &l, here, other);
}

GLOBAL int closed6(struct xdp_md *ctx, struct port *in, __u32 l3, int other)
{
	struct service_looks l = { .version = 6, .type = NO_TYPE };
	struct bpf_fib_lookup to = { .family = 10 /* AF_INET6 */ };
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);
	__u32 hops;
	int here;

	if (!ip || !in)
		return REASON_HOST;
	hops = ip->hop_limit;
	copy16(to.ipv6_src, &ip->src);
	copy16(to.ipv6_dst, &ip->dst);
	look_at_ipv6(ctx, &l, l3, ip);
	if (is_of_link(&l, hops))
		return 0;
	here = (!other && is_local6(to.ipv6_dst)) || stays_here(ctx, &to, other);
	return refuse_closed(in, &l, here, other);
}

/* Other EtherTypes and LLC pass, as they do by every port; a third tag by none with roles. */
INLINE int refuse_frame(struct xdp_md *ctx, struct port *in)
{
	__u16 l3 = 0, vlan[2] = {};
	int type = frame_type(ctx, &l3, vlan), other;
	__u8 *eth = at(ctx, 0, ETH_LEN);

	if (type < 0 || !eth)
		return REASON_HOST;
	other = !is_for_port(in->mac, eth) && !(eth[0] & 1);
	if (type == be16(TYPE_IPV4))
		return closed4(ctx, in, l3, other);
	if (type == be16(TYPE_IPV6))
		return closed6(ctx, in, l3, other);
	return is_vlan(type) ? REASON_TAGS : 0;
}

INLINE int closed(struct xdp_md *ctx)
{
	struct port *in = port_of(ctx);
	int reason = in ? refuse_frame(ctx, in) : REASON_HOST;

	count(&outcomes, reason ? reason : REASON_PASSED, frame_length(ctx));
	return reason ? XDP_DROP : XDP_PASS;
}

#endif
