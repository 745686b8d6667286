/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The GTP-U endpoint: what is sent to our own addresses, and what is steered
 * into tunnels (TS 29.281). */
#ifndef CULVERT_GTPU_PATH_H
#define CULVERT_GTPU_PATH_H

#include "lookup.h"
#include "srv6/decap.h"
#include "srv6/headend.h"
#include "srv6/mobile.h"

/* Index of the tunnel that receives `teid`; 0: none. */
INLINE __u32 tunnel_of_teid(struct settings *cfg, __u32 teid)
{
	__u32 slot = teid & 0xffffff;
	struct tunnel *t;
	__u32 *index;

	if (slot < cfg->teid_slots) {
		t = bpf_map_lookup_elem(&tunnel, &slot);
		if (t && t->action && t->key == teid)
			return slot;
	}
	index = bpf_map_lookup_elem(&tunnel_by_teid, &teid);
	return index ? *index : 0;
}

/* ---- Echo ---- */

#define ECHO_LENGTH (UDP_LEN + GTPU_LEN + GTPU_OPTIONS_LEN + 2)

/* Whether the request comes from ourselves, or from nobody. */
INLINE int echo_source_bad(struct settings *cfg, struct packet *p)
{
	if (p->version == 4) {
		__u8 first = ld32(&p->src);

		return !ld32(&p->src) || (first & 0xf0) == 0xe0 || first == 0xff ||
		       is_gtpu4(cfg, ld32(&p->src));
	}
	return (__u8)p->src.hi == 0xff || !(p->src.hi | p->src.lo) || is_gtpu6(cfg, &p->src);
}

INLINE void swap_macs(__u8 *eth)
{
	__u64 dst = ld64(eth) & 0xffffffffffff; /* 6 octets */
	__u32 src_low = ld32(eth + 6);
	__u16 src_high = ld16(eth + 10);

	st32(eth, src_low);
	st16(eth + 4, src_high);
	st32(eth + 6, dst);
	st16(eth + 10, dst >> 32);
}

INLINE void echo_ipv4(struct ipv4 *ip, struct packet *p, __u8 hop_limit)
{
	ip->version_ihl = 0x45;
	st16(&ip->length, be16(IPV4_LEN + ECHO_LENGTH));
	st32(&ip->id, be32(IPV4_DF));
	ip->ttl = hop_limit;
	st16(&ip->checksum, 0);
	st32(&ip->src, ld32(&p->dst));
	st32(&ip->dst, ld32(&p->src));
	st16(&ip->checksum, ~sum_fold(ipv4_sum(ip)));
}

INLINE void echo_ipv6(struct ipv6 *ip, struct packet *p, __u8 hop_limit)
{
	st16(&ip->payload_length, be16(ECHO_LENGTH));
	ip->hop_limit = hop_limit;
	copy16(&ip->src, &p->dst);
	copy16(&ip->dst, &p->src);
}

/* Echo Response in place of the request. */
GLOBAL int write_echo(struct xdp_md *ctx, struct packet *p, __u32 at_udp, __u32 hop_limit)
{
	__u32 ip_length, tail, udp, options;
	struct udp *u;
	__u8 *eth, *g;
	__u64 sum;
	__u16 port;

	if (!p)
		return -1;
	ip_length = p->version == 4 ? IPV4_LEN : IPV6_LEN;
	udp = p->l3 + ip_length;
	options = at_udp - udp;
	if (options && remove_octets(ctx, udp, options))
		return -1;
	tail = udp + ECHO_LENGTH + options;
	if (tail != p->frame && bpf_xdp_adjust_tail(ctx, (int)tail - (int)p->frame))
		return -1;
	eth = at(ctx, 0, ETH_LEN);
	u = at(ctx, udp, ECHO_LENGTH);
	if (!eth || !u)
		return -1;
	swap_macs(eth);
	port = ld16(&u->src);
	st16(&u->src, be16(GTPU_PORT));
	st16(&u->dst, port);
	st16(&u->length, be16(ECHO_LENGTH));
	st16(&u->checksum, 0);
	g = (__u8 *)u + UDP_LEN;
	g[0] = GTPU_VERSION1 | GTPU_FLAG_S;
	g[1] = GTPU_ECHO_RESPONSE;
	st16(g + 2, be16(6));
	st32(g + 4, 0);
	st16(g + 8, be16(p->sequence));
	st16(g + 10, 0);
	st16(g + 12, be16(14 << 8)); /* Recovery, 0 */
	if (p->version == 4) {
		struct ipv4 *ip = at(ctx, p->l3, IPV4_LEN);

		if (!ip)
			return -1;
		echo_ipv4(ip, p, hop_limit);
		return 0;
	}
	struct ipv6 *ip = at(ctx, p->l3, IPV6_LEN);

	if (!ip)
		return -1;
	echo_ipv6(ip, p, hop_limit);
	u = at(ctx, udp, ECHO_LENGTH);
	if (!u)
		return -1;
	g = (void *)u;
	sum = address_sum(&p->src) + address_sum(&p->dst) + pseudo_tail(ECHO_LENGTH, NH_UDP);
	sum += (__u64)ld32(g) + ld32(g + 4) + ld32(g + 8) + ld32(g + 12) + ld32(g + 16) +
	       ld16(g + 20);
	sum = (__u16)~sum_fold(sum);
	st16(&u->checksum, sum ? sum : 0xffff);
	return 0;
}

/* The answer is for who sent the request inside of another packet: by the routes, since the link
 * need not lead there. */
INLINE int plan_echo(struct xdp_md *ctx, struct packet *p)
{
	struct words from = p->src;
	__u8 *eth = at(ctx, 0, ETH_LEN);

	if (!eth)
		return REASON_HEADROOM;
	swap_macs(eth);
	p->src = p->dst;
	p->dst = from;
	p->family = p->version;
	p->keep = p->quote = p->l3;
	p->length = (p->version == 4 ? IPV4_LEN : IPV6_LEN) + ECHO_LENGTH;
	p->keep_length = p->quote_length = p->length;
	p->keep_version = 0;
	p->frame = p->l3 + p->length;
	p->own = 1;
	p->hash = 0;
	p->hashed = 1;
	return CONTINUE;
}

INLINE int answer_echo(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 udp)
{
	if (echo_source_bad(cfg, p))
		return REASON_ECHO_FROM_SELF;
	if (p->port_flags & PORT_SILENT && !p->turn)
		return REASON_PASSED;
	if (write_echo(ctx, p, udp, cfg->hop_limit))
		return REASON_HEADROOM;
	return p->turn ? plan_echo(ctx, p) : REASON_REPLIED;
}

/* ---- receive ---- */

/* A T-PDU to our own GTP-U port would come round again. */
INLINE int nested_gtpu(struct xdp_md *ctx, struct packet *p, struct settings *cfg)
{
	__u32 l4 = p->keep + IPV6_LEN;
	struct udp *udp;

	if (p->keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->keep, IPV4_LEN);

		if (!ip || ip->protocol != NH_UDP || !is_gtpu4(cfg, ld32(&ip->dst)))
			return 0;
		l4 = p->keep + (ip->version_ihl & 0xf) * 4;
	} else {
		struct ipv6 *ip = at(ctx, p->keep, IPV6_LEN);

		if (!ip || ip->next_header != NH_UDP || !is_gtpu6(cfg, &ip->dst))
			return 0;
	}
	udp = at(ctx, l4, UDP_LEN);
	return udp && l4 + UDP_LEN <= p->keep + p->keep_length &&
	       ld16(&udp->dst) == be16(GTPU_PORT);
}

INLINE int receive_decapsulate(struct xdp_md *ctx, struct packet *p, struct settings *cfg,
			       struct tunnel *t, __u8 outer)
{
	int reason = take_payload(ctx, p, p->keep_length, 0, REASON_PDU_TYPE);

	if (reason)
		return reason;
	if (nested_gtpu(ctx, p, cfg))
		return REASON_GTPU_MESSAGE;
	p->tunnel_length = p->keep_length;
	if (t->action == TUNNEL_POLICY)
		return h_encaps(ctx, p, t->index, cfg->hop_limit);
	p->adjacency = t->adjacency;
	p->table = t->index;
	return plan_inner(ctx, p, outer);
}

INLINE void plan_tunnel_addresses(struct packet *p, struct tunnel *t)
{
	__u32 index = t->source;
	struct in6 *from = bpf_map_lookup_elem(&source, &index);

	p->adjacency = t->adjacency;
	p->teid = t->teid;
	if (t->ipv4) {
		st32(&p->dst, ld32(&t->remote.b[12]));
		st32(&p->src, from ? ld32(&from->b[12]) : 0);
		return;
	}
	copy16(&p->dst, &t->remote);
	p->src = (struct words){};
	if (from)
		copy16(&p->src, from);
}

/* The G-PDU's header and its options stay, under new addresses; then the plan
 * wants these, and the TEID. CONTINUE, or a reason. */
INLINE int plan_switch(struct xdp_md *ctx, struct packet *p, __u8 hops, __u8 class, int frame)
{
	__u16 keep_length = p->keep_length, end = p->keep + keep_length;

	if (hops <= 1)
		return hop_limit_spent(p, p->l3);
	plan_translation(p, hops, class);
	p->hash = 0;
	p->pdu_version = 0;
	if (p->message == GTPU_G_PDU && frame)
		p->hash = flow_hash(ctx, p->keep, keep_length, 0);
	else if (p->message == GTPU_G_PDU &&
		 !take_payload(ctx, p, keep_length, 0, REASON_PDU_TYPE)) {
		p->hash = payload_hash(ctx, p);
		p->pdu_offset = p->keep - p->gtpu;
		if (p->keep_length == keep_length)
			p->pdu_version = p->keep_version;
	}
	p->keep = p->gtpu;
	p->keep_length = end - p->gtpu;
	p->keep_version = 0;
	p->message = 0;
	if (!at(ctx, p->gtpu, GTPU_LEN))
		return REASON_GTPU_LENGTH;
	p->switch_teid = 1;
	return CONTINUE;
}

/* TEID to TEID. */
INLINE int receive_switch(struct xdp_md *ctx, struct packet *p, struct tunnel *t, __u8 hops,
			  __u8 class)
{
	int reason;

	p->tunnel_length = p->message == GTPU_G_PDU ? p->keep_length : 0;
	reason = plan_switch(ctx, p, hops, class, 0);
	if (reason != CONTINUE)
		return reason;
	plan_tunnel_addresses(p, t);
	plan_gtpu(p, t->ipv4 ? 4 : 6);
	return CONTINUE;
}

INLINE int receive(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u8 hops,
		   __u8 class)
{
	__u32 index = tunnel_of_teid(cfg, p->teid);
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);

	if (!index || !t || !t->action) {
		if (p->message == GTPU_G_PDU)
			icmp(p, p->l3, GTPU_ERROR_INDICATION, 0, p->teid);
		return REASON_TEID_UNKNOWN;
	}
	p->tunnel = index;
	if (t->action == TUNNEL_SWITCH)
		return receive_switch(ctx, p, t, hops, class);
	if (p->message == GTPU_END_MARKER)
		return REASON_GTPU_MESSAGE;
	return receive_decapsulate(ctx, p, cfg, t, class);
}

/* ---- send ---- */

/* The packet at p->keep goes into tunnel `index`. CONTINUE, or a reason. */
INLINE int send_tunnel(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 index)
{
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);
	int reason;

	if (!t || !t->action)
		return REASON_TEID_UNKNOWN;
	p->tunnel = index;
	p->tunnel_length = p->keep_length;
	if (t->action == TUNNEL_LIST)
		return h_encaps(ctx, p, t->index, cfg->hop_limit);
	reason = plan_encapsulation(ctx, p, cfg->hop_limit);
	if (reason != CONTINUE)
		return reason;
	plan_tunnel_addresses(p, t);
	if (t->action == TUNNEL_SRV6) {
		p->segments = 1;
		p->srh_segments = 0;
		p->list = t->index;
		plan_srv6(p);
		return CONTINUE;
	}
	if (t->action != TUNNEL_GTPU)
		return REASON_TEID_UNKNOWN;
	p->message = GTPU_G_PDU;
	p->container = t->container;
	p->qfi = t->qfi;
	p->rqi = 0;
	p->with_sequence = 0;
	plan_gtpu(p, t->ipv4 ? 4 : 6);
	return CONTINUE;
}

#endif
