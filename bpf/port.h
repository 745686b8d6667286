/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What may enter by a port (docs/adr/0019-ports-have-roles.md). A guard says 0, or the
 * reason that the packet is dropped for. A port without roles has no guards. */
#ifndef CULVERT_PORT_H
#define CULVERT_PORT_H

#include "session.h"

#define PFCP_PORT 8805
#define PROBE_PORT 55862 /* of internal/liveness, from and to */
#define NO_TYPE 255 /* of ICMP */
#define EPHEMERAL 32768 /* the first port that a client's answers come to */

/* ---- who sends ---- */

INLINE int from_peer4(__u32 index, __be32 src)
{
	struct access *a = bpf_map_lookup_elem(&access, &index);
	__u64 missed = 1;
	__u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; a && i < MAX_PEERS && i < a->peers4_count; i++)
		missed &= is_not_0((src & a->peers4[i].mask) ^ a->peers4[i].address);
	return !missed;
}

/* A function of its own: few are asked, and the verifier goes through it once. */
GLOBAL int is_peer6(__u32 index, __u64 hi, __u64 lo)
{
	struct access *a = bpf_map_lookup_elem(&access, &index);
	struct u128 v = { hi, lo };

	return a && in_prefixes(a->peers6, MAX_PEERS, a->peers6_count, v);
}

INLINE int from_peer6(__u32 index, const void *src)
{
	struct u128 v = ld128(src);

	return is_peer6(index, v.hi, v.lo);
}

/* UEs are reached from the data network, where no packet has a UE's source. */
INLINE int refuse_ue4(struct settings *cfg, __u32 flags, struct ipv4 *ip)
{
	if (!(flags & PORT_ROLES))
		return 0;
	if (!(flags & PORT_N6))
		return find_pool4(cfg, be32(ld32(&ip->dst))) ? REASON_ROLE : 0;
	return find_pool4(cfg, be32(ld32(&ip->src))) || pdr_of_ue4(cfg, ld32(&ip->src))
		       ? REASON_UE_SOURCE
		       : 0;
}

INLINE int refuse_ue6(struct settings *cfg, __u32 flags, struct ipv6 *ip)
{
	if (!(flags & PORT_ROLES))
		return 0;
	if (!(flags & PORT_N6))
		return find_pool6(cfg, be64(ld64(&ip->dst))) ? REASON_ROLE : 0;
	return find_pool6(cfg, be64(ld64(&ip->src))) || pdr_of_ue6(cfg, ld64(&ip->src))
		       ? REASON_UE_SOURCE
		       : 0;
}

/* ---- what for ---- */

/* GTP-U to our addresses, and to translated prefixes. */
INLINE int refuse_gtpu4(__u32 flags, __u32 index, __be32 src)
{
	if (!(flags & PORT_ROLES))
		return 0;
	if (!(flags & PORT_N3))
		return REASON_ROLE;
	return from_peer4(index, src) ? 0 : REASON_PEER;
}

INLINE int refuse_gtpu6(__u32 flags, __u32 index, const void *src)
{
	if (!(flags & PORT_ROLES))
		return 0;
	if (!(flags & PORT_N3))
		return REASON_ROLE;
	return from_peer6(index, src) ? 0 : REASON_PEER;
}

/* RFC 8754 section 5.1: the SR domain is neither source nor destination of what comes
 * from outside, and no SRH comes from there. */
INLINE int refuse_at_edge(struct settings *cfg, __u32 flags, struct ipv6 *ip, int inside)
{
	if (!(flags & PORT_EDGE) || flags & PORT_SR)
		return 0;
	return inside || in_domain(cfg, &ip->dst) || ip->next_header == NH_ROUTING
		       ? REASON_SR_DOMAIN_EDGE
		       : 0;
}

/* Local SIDs (`sid` or NULL) are for the SR domain; those that GTP-U is sent to, for its
 * peers. */
INLINE int refuse6(struct settings *cfg, __u32 flags, __u32 index, struct local_sid *sid,
		   struct ipv6 *ip)
{
	int inside;

	if (!(flags & PORT_ROLES))
		return 0;
	inside = flags & (PORT_SR | PORT_EDGE) && in_domain(cfg, &ip->src);
	if (!sid)
		return refuse_at_edge(cfg, flags, ip, inside);
	if (flags & PORT_SR && inside)
		return 0;
	if (flags & PORT_N3 && (sid->behavior == END_M_GTP6_D || sid->behavior == END_M_GTP6_D_DI))
		return from_peer6(index, &ip->src) ? 0 : REASON_PEER;
	return flags & (PORT_SR | PORT_EDGE) ? REASON_SR_DOMAIN_EDGE : REASON_ROLE;
}

/* The role that what is steered to a target enters by. */
INLINE int may_steer(__u32 flags, __u32 kind)
{
	if (!(flags & PORT_ROLES))
		return 1;
	switch (kind) {
	case TARGET_POLICY:
	case TARGET_CLASSES:
		return flags & PORT_EDGE;
	case TARGET_GTP4D:
		return flags & PORT_N3;
	case TARGET_TUNNEL:
	case TARGET_PDR:
	case TARGET_LINK:
		return flags & PORT_N6;
	}
	return 1;
}

/* What steers the UEs of a pool may be found by prefix, too. */
INLINE int of_pool4(struct settings *cfg, struct packet *p)
{
	return p->port.flags & PORT_N6 && find_pool4(cfg, be32(ld32(&p->plan.dst)));
}

INLINE int of_pool6(struct settings *cfg, struct packet *p)
{
	return p->port.flags & PORT_N6 && find_pool6(cfg, be64(p->plan.dst.hi));
}

/* Whether packets for UEs enter. */
INLINE int is_n6(__u32 flags)
{
	return flags & PORT_N6 || !(flags & PORT_ROLES);
}

/* ---- the kernel's ---- */

/* What the host's services are told apart by. */
struct service_looks {
	__u16 source, destination; /* ports, in host order */
	__u8 protocol, version, type; /* type: of ICMP */
	__u8 answer; /* a TCP segment with ACK */
	__u8 later; /* a fragment behind the first one: no ports */
};

INLINE void look_at_service(struct xdp_md *ctx, struct service_looks *l, __u32 l4)
{
	__u8 *first = at(ctx, l4, 4), *flags = at(ctx, l4 + 13, 1);

	if (!first)
		return;
	if (l->protocol ==
	    (l->version == 4 ? NH_ICMP : NH_ICMPV6)) /* not that of the other version */
		l->type = *first;
	if (!flow_has_ports(l->protocol))
		return;
	l->source = be16(ld16(first));
	l->destination = be16(ld16(first + 2));
	l->answer = l->protocol == NH_TCP && flags && *flags & TCP_ACK;
}

/* The length of the fragment header at l4, if it is one of UDP; else 0. */
INLINE __u32 look_at_fragment(struct xdp_md *ctx, struct service_looks *l, __u32 l4)
{
	__u8 *fragment = at(ctx, l4, FRAGMENT_LEN);

	if (!fragment || *fragment != NH_UDP)
		return 0;
	l->protocol = NH_UDP;
	l->later = !!(ld16(fragment + 2) & be16(IPV6_OFFSET_MASK));
	return FRAGMENT_LEN;
}

/* Neighbour discovery, which no router forwards, and multicast listeners. */
INLINE int is_of_link(struct service_looks *l, __u8 hops)
{
	if (l->version == 4)
		return l->protocol == NH_IGMP;
	if (l->protocol != NH_ICMPV6)
		return 0;
	return (l->type >= 133 && l->type <= 137 && hops == 255) ||
	       (l->type >= 130 && l->type <= 132) || l->type == 143;
}

INLINE int is_icmp_error(__u8 protocol, __u8 type)
{
	if (protocol == NH_ICMP)
		return type == 3 || type == 11 || type == 12;
	return protocol == NH_ICMPV6 && type >= 1 && type <= 4;
}

INLINE int serves(struct service *s, struct service_looks *l)
{
	if (s->protocol != l->protocol)
		return 0;
	if (s->protocol == NH_ICMP) /* `ping` */
		return l->type == 0 || l->type == 8;
	if (s->protocol == NH_ICMPV6)
		return l->type == 128 || l->type == 129;
	return !s->port || s->port == l->destination ||
	       (s->answers && s->port == l->source && l->answer && l->destination >= EPHEMERAL);
}

INLINE int is_listed(__u32 index, struct service_looks *l)
{
	struct access *a = bpf_map_lookup_elem(&access, &index);
	__u32 i;

	for (i = 0; a && i < MAX_SERVICES && i < a->services_count; i++)
		if (serves(&a->service[i], l))
			return 1;
	return 0;
}

/* What an interface's `host` says of a packet for this host. */
INLINE int may_have(__u32 flags, __u32 index, struct service_looks *l)
{
	return flags & PORT_HOST_ANY || is_icmp_error(l->protocol, l->type) || is_listed(index, l);
}

/* Of a packet for this host. `gtpu`: whether it would be refused as GTP-U. */
GLOBAL int refuse_service(struct packet *p, struct service_looks *l, __u32 gtpu)
{
	if (!p || !l)
		return REASON_HOST;
	if (l->protocol == NH_UDP && l->destination == PFCP_PORT) {
		p->end.pfcp = !!(p->port.flags & PORT_N4);
		return p->end.pfcp ? 0 : REASON_HOST;
	}
	if (l->protocol == NH_UDP && l->later && p->port.flags & PORT_N4)
		return 0; /* of a long PFCP message, or the kernel never gets the first one */
	if (l->protocol == NH_UDP && l->destination == GTPU_PORT)
		return gtpu; /* else the daemon answers it */
	return may_have(p->port.flags, p->port.access, l) ? 0 : REASON_HOST;
}

/* What of this host the IPv4 packet at l3, whose header is `ip`, is for. */
INLINE void look_at_ipv4(struct xdp_md *ctx, struct service_looks *l, __u32 l3, struct ipv4 *ip)
{
	l->protocol = ip->protocol;
	l->later = !!(be16(ld16(&ip->fragment)) & IPV4_OFFSET_MASK);
	if (!l->later)
		look_at_service(ctx, l, l3 + (ip->version_ihl & 0xf) * 4u);
}

INLINE void look_at_ipv6(struct xdp_md *ctx, struct service_looks *l, __u32 l3, struct ipv6 *ip)
{
	__u32 l4 = l3 + IPV6_LEN;

	l->protocol = ip->next_header;
	if (l->protocol == NH_HOP_BY_HOP) { /* of multicast listeners */
		__u8 *options = at(ctx, l4, 2);

		if (options) {
			l->protocol = options[0];
			l4 += 8 + 8 * options[1];
		}
	}
	if (l->protocol == NH_FRAGMENT)
		l4 += look_at_fragment(ctx, l, l4);
	if (!l->later)
		look_at_service(ctx, l, l4);
}

/* The IPv4 packet at l3 is nobody's in the data path: may the kernel have it? `inside`: it came
 * out of another one here, and nobody on a link sent it. Then what is for others is NOT_TAKEN. */
GLOBAL int refuse_host4(struct xdp_md *ctx, struct packet *p, __u32 l3, __u32 inside)
{
	struct service_looks l = { .version = 4, .type = NO_TYPE };
	struct ipv4 *ip;
	__u32 dst, src, hops;

	if (!p)
		return REASON_HOST;
	ip = at(ctx, l3, IPV4_LEN);
	if (!ip)
		return 0;
	dst = ld32(&ip->dst);
	src = ld32(&ip->src);
	hops = ip->ttl;
	look_at_ipv4(ctx, &l, l3, ip);
	if (!inside && is_of_link(&l, hops))
		return 0;
	if (stays4(dst) || (p->in.group != FOR_OTHER && is_local4(be32(dst))))
		return refuse_service(p, &l, refuse_gtpu4(p->port.flags, p->port.access, src));
	if (inside)
		return NOT_TAKEN;
	if (p->in.group == FOR_OTHER)
		return 0; /* a bridge's or macvlan's */
	return p->port.flags & PORT_HOST_FORWARD ? 0 : REASON_ROLE;
}

GLOBAL int refuse_host6(struct xdp_md *ctx, struct packet *p, __u32 l3, __u32 inside)
{
	struct settings *cfg = &node_settings;
	struct service_looks l = { .version = 6, .type = NO_TYPE };
	struct words src, dst;
	struct ipv6 *ip;
	__u32 hops;

	if (!p)
		return REASON_HOST;
	ip = at(ctx, l3, IPV6_LEN);
	if (!ip)
		return 0;
	copy16(&src, &ip->src);
	copy16(&dst, &ip->dst);
	hops = ip->hop_limit;
	look_at_ipv6(ctx, &l, l3, ip);
	if (!inside && is_of_link(&l, hops))
		return 0;
	if (stays6(dst.hi, dst.lo) || (p->in.group != FOR_OTHER && is_local6(&dst)))
		return refuse_service(p, &l, refuse_gtpu6(p->port.flags, p->port.access, &src));
	if (inside)
		return NOT_TAKEN;
	if (p->in.group == FOR_OTHER)
		return 0; /* a bridge's or macvlan's */
	if (p->port.flags & PORT_SR && in_domain(cfg, &src) && in_domain(cfg, &dst))
		return 0; /* on its way through the domain */
	return p->port.flags & PORT_HOST_FORWARD ? 0 : REASON_ROLE;
}

/* The packet ends at a SID, which leaves its upper layer to the kernel. NOT_TAKEN: the SID is no
 * address of this host, so the kernel has no service there. Probes come back to the daemon so. */
GLOBAL int refuse_at_sid(struct xdp_md *ctx, struct packet *p)
{
	struct service_looks l = { .version = 6, .type = NO_TYPE };
	struct words src, dst;
	struct ipv6 *ip;

	if (!p)
		return REASON_HOST;
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip)
		return REASON_HOST;
	copy16(&src, &ip->src);
	copy16(&dst, &ip->dst);
	l.protocol = p->in.upper_type;
	look_at_service(ctx, &l, p->in.upper);
	if (!stays6(dst.hi, dst.lo))
		return NOT_TAKEN;
	if (l.protocol == NH_UDP && l.source == PROBE_PORT && l.destination == PROBE_PORT)
		return 0;
	return refuse_service(p, &l, refuse_gtpu6(p->port.flags, p->port.access, &src));
}

/* The finished packet behind the Ethernet header, which the kernel would have: CONTINUE if it is
 * for others or as this node is configured to send it, 0 if this host may have it, or a reason. */
INLINE int refuse_finished(struct xdp_md *ctx, struct packet *p)
{
	int refused;

	if (p->plan.own || !(p->port.flags & PORT_ROLES))
		return CONTINUE;
	refused = p->plan.family == 4 ? refuse_host4(ctx, p, ETH_LEN, 1)
				      : refuse_host6(ctx, p, ETH_LEN, 1);
	p->end.pfcp = 0; /* its answer leaves by the kernel's routes */
	return refused == NOT_TAKEN ? CONTINUE : refused;
}

#endif
