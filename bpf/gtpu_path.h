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

#define GTPU_RECOVERY0 be16(14 << 8) /* the information element Recovery, whose counter is 0 */
#define ECHO_LENGTH (UDP_LEN + GTPU_LEN + GTPU_OPTIONS_LEN + 2)

/* Whether the request comes from ourselves, or from nobody. */
INLINE int echo_source_bad(struct settings *cfg, struct packet *p)
{
	if (p->in.version == 4) {
		__u8 first = ld32(&p->plan.src);

		return !ld32(&p->plan.src) || (first & 0xf0) == 0xe0 || first == 0xff ||
		       is_gtpu4(cfg, ld32(&p->plan.src));
	}
	return (__u8)p->plan.src.hi == 0xff || !(p->plan.src.hi | p->plan.src.lo) ||
	       is_gtpu6(cfg, &p->plan.src);
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

/* Echo Response in place of the request. */
GLOBAL int write_echo(struct xdp_md *ctx, struct packet *p, __u32 at_udp, __u32 hop_limit)
{
	__u32 ip_length, tail, udp, options, ports;
	__u64 sum = 0;
	void *ip, *u;
	__u8 *eth;

	if (!p)
		return -1;
	ip_length = p->in.version == 4 ? IPV4_LEN : IPV6_LEN;
	udp = p->in.l3 + ip_length;
	options = at_udp - udp;
	if (options && remove_octets(ctx, udp, options))
		return -1;
	tail = udp + ECHO_LENGTH + options;
	if (tail != p->in.frame && bpf_xdp_adjust_tail(ctx, (int)tail - (int)p->in.frame))
		return -1;
	eth = at(ctx, 0, ETH_LEN);
	u = at(ctx, udp, ECHO_LENGTH);
	if (!eth || !u)
		return -1;
	swap_macs(eth);
	ports = be16(GTPU_PORT) | (__u32)ld16(u) << 16;
	if (write_gtpu(u + UDP_LEN, (void *)(long)ctx->data_end,
		       gtpu_first_word(GTPU_FLAG_S, GTPU_ECHO_RESPONSE,
				       ECHO_LENGTH - UDP_LEN - GTPU_LEN),
		       0, be16(p->gtpu.sequence), 0, &sum))
		return -1;
	st16(u + ECHO_LENGTH - 2, GTPU_RECOVERY0);
	if (p->in.version == 4) {
		ip = at(ctx, p->in.l3, IPV4_LEN + UDP_LEN);
		if (!ip)
			return -1;
		write_ipv4_udp(ip, ((struct ipv4 *)ip)->tos, hop_limit, ld32(&p->plan.dst),
			       ld32(&p->plan.src), IPV4_LEN + ECHO_LENGTH, ports);
		return 0;
	}
	write_udp6(u, ports, ECHO_LENGTH,
		   sum + GTPU_RECOVERY0 + address_sum(&p->plan.src) + address_sum(&p->plan.dst));
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip)
		return -1;
	write_ipv6(ip, ld32(ip), ipv6_second_word(NH_UDP, hop_limit), ECHO_LENGTH, &p->plan.dst,
		   &p->plan.src);
	return 0;
}

/* The answer is for who sent the request inside of another packet: by the routes, since the link
 * need not lead there. */
INLINE int plan_echo(struct xdp_md *ctx, struct packet *p)
{
	struct words from = p->plan.src;
	__u8 *eth = at(ctx, 0, ETH_LEN);

	if (!eth)
		return REASON_HEADROOM;
	swap_macs(eth);
	p->plan.src = p->plan.dst;
	p->plan.dst = from;
	p->plan.family = p->in.version;
	p->plan.keep = p->plan.quote = p->in.l3;
	p->plan.length = (p->in.version == 4 ? IPV4_LEN : IPV6_LEN) + ECHO_LENGTH;
	p->plan.keep_length = p->plan.quote_length = p->plan.length;
	p->plan.keep_version = 0;
	p->in.frame = p->in.l3 + p->plan.length;
	p->plan.own = 1;
	p->plan.hash = 0;
	p->plan.hashed = 1;
	return CONTINUE;
}

INLINE int answer_echo(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 udp)
{
	if (echo_source_bad(cfg, p))
		return REASON_ECHO_FROM_SELF;
	if (p->port.flags & PORT_SILENT && !p->turn)
		return REASON_PASSED;
	if (write_echo(ctx, p, udp, cfg->hop_limit))
		return REASON_HEADROOM;
	return p->turn ? plan_echo(ctx, p) : REASON_REPLIED;
}

/* ---- receive ---- */

/* A T-PDU to our own GTP-U port would come round again. */
INLINE int nested_gtpu(struct xdp_md *ctx, struct packet *p, struct settings *cfg)
{
	__u32 l4 = p->plan.keep + IPV6_LEN;
	struct udp *udp;

	if (p->plan.keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->plan.keep, IPV4_LEN);

		if (!ip || ip->protocol != NH_UDP || !is_gtpu4(cfg, ld32(&ip->dst)))
			return 0;
		l4 = p->plan.keep + (ip->version_ihl & 0xf) * 4;
	} else {
		struct ipv6 *ip = at(ctx, p->plan.keep, IPV6_LEN);

		if (!ip || ip->next_header != NH_UDP || !is_gtpu6(cfg, &ip->dst))
			return 0;
	}
	udp = at(ctx, l4, UDP_LEN);
	return udp && l4 + UDP_LEN <= p->plan.keep + p->plan.keep_length &&
	       ld16(&udp->dst) == be16(GTPU_PORT);
}

INLINE int receive_decapsulate(struct xdp_md *ctx, struct packet *p, struct settings *cfg,
			       struct tunnel *t, __u8 outer)
{
	int reason = take_payload(ctx, p, p->plan.keep_length, 0, REASON_PDU_TYPE);

	if (reason)
		return reason;
	if (nested_gtpu(ctx, p, cfg))
		return REASON_GTPU_MESSAGE;
	p->found.tunnel_length = p->plan.keep_length;
	if (t->action == TUNNEL_POLICY)
		return h_encaps(ctx, p, t->index, cfg->hop_limit);
	p->plan.adjacency = t->adjacency;
	p->plan.table = t->index;
	return plan_inner(ctx, p, outer);
}

INLINE void plan_tunnel_addresses(struct packet *p, struct tunnel *t)
{
	__u32 index = t->source;
	struct in6 *from = bpf_map_lookup_elem(&source, &index);

	p->plan.adjacency = t->adjacency;
	p->gtpu.teid = t->teid;
	if (t->ipv4) {
		st32(&p->plan.dst, ld32(&t->remote.b[12]));
		st32(&p->plan.src, from ? ld32(&from->b[12]) : 0);
		return;
	}
	copy16(&p->plan.dst, &t->remote);
	p->plan.src = (struct words){};
	if (from)
		copy16(&p->plan.src, from);
}

/* The G-PDU's header and its options stay, under new addresses; then the plan
 * wants these, and the TEID. CONTINUE, or a reason. */
INLINE int plan_switch(struct xdp_md *ctx, struct packet *p, __u8 hops, __u8 class, int frame)
{
	__u16 keep_length = p->plan.keep_length, end = p->plan.keep + keep_length;

	if (hops <= 1)
		return hop_limit_spent(p, p->in.l3);
	plan_translation(p, hops, class);
	p->plan.hash = 0;
	p->plan.pdu_version = 0;
	if (p->gtpu.message == GTPU_G_PDU && frame)
		p->plan.hash = flow_hash(ctx, p->plan.keep, keep_length, 0);
	else if (p->gtpu.message == GTPU_G_PDU &&
		 !take_payload(ctx, p, keep_length, 0, REASON_PDU_TYPE)) {
		p->plan.hash = payload_hash(ctx, p);
		p->plan.pdu_offset = p->plan.keep - p->gtpu.offset;
		if (p->plan.keep_length == keep_length)
			p->plan.pdu_version = p->plan.keep_version;
	}
	p->plan.keep = p->gtpu.offset;
	p->plan.keep_length = end - p->gtpu.offset;
	p->plan.keep_version = 0;
	p->gtpu.message = 0;
	if (!at(ctx, p->gtpu.offset, GTPU_LEN))
		return REASON_GTPU_LENGTH;
	p->plan.switch_teid = 1;
	return CONTINUE;
}

/* TEID to TEID. */
INLINE int receive_switch(struct xdp_md *ctx, struct packet *p, struct tunnel *t, __u8 hops,
			  __u8 class)
{
	int reason;

	p->found.tunnel_length = p->gtpu.message == GTPU_G_PDU ? p->plan.keep_length : 0;
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
	__u32 index = tunnel_of_teid(cfg, p->gtpu.teid);
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);

	if (!index || !t || !t->action) {
		if (p->gtpu.message == GTPU_G_PDU)
			icmp(p, p->in.l3, GTPU_ERROR_INDICATION, 0, p->gtpu.teid);
		return REASON_TEID_UNKNOWN;
	}
	p->found.tunnel = index;
	if (t->action == TUNNEL_SWITCH)
		return receive_switch(ctx, p, t, hops, class);
	if (p->gtpu.message == GTPU_END_MARKER)
		return REASON_GTPU_MESSAGE;
	return receive_decapsulate(ctx, p, cfg, t, class);
}

/* ---- send ---- */

/* The packet at p->plan.keep goes into tunnel `index`. CONTINUE, or a reason. */
INLINE int send_tunnel(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 index)
{
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);
	int reason;

	if (!t || !t->action)
		return REASON_TEID_UNKNOWN;
	p->found.tunnel = index;
	p->found.tunnel_length = p->plan.keep_length;
	if (t->action == TUNNEL_LIST)
		return h_encaps(ctx, p, t->index, cfg->hop_limit);
	reason = plan_encapsulation(ctx, p, cfg->hop_limit);
	if (reason != CONTINUE)
		return reason;
	plan_tunnel_addresses(p, t);
	if (t->action == TUNNEL_SRV6) {
		p->plan.segments = 1;
		p->plan.srh_segments = 0;
		p->found.list = t->index;
		plan_srv6(p);
		return CONTINUE;
	}
	if (t->action != TUNNEL_GTPU)
		return REASON_TEID_UNKNOWN;
	p->gtpu.message = GTPU_G_PDU;
	p->plan.container = t->container;
	p->gtpu.qfi = t->qfi;
	p->gtpu.rqi = 0;
	p->plan.with_sequence = 0;
	plan_gtpu(p, t->ipv4 ? 4 : 6);
	return CONTINUE;
}

#endif
