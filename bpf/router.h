/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One packet's journey: whose it is, what is done with it, and out
 * (docs/reference/semantics.md section 2). */
#ifndef CULVERT_ROUTER_H
#define CULVERT_ROUTER_H

#include "forward.h"
#include "again.h"
#include "trace.h"
#include "ethernet.h"
#include "leave.h"
#include "vpn.h"

/* ---- SIDs ---- */

/* A packet that met the rules of its session, with what they said: it leaves, behind a NAT by
 * another address or into a VPN, or is for another UE. */
INLINE int follow_rules(struct xdp_md *ctx, struct packet *p, int reason)
{
	if (reason == CONTINUE && p->plan.guarded && p->plan.keep_version == 4 &&
	    node_settings.nats)
		reason = translate_out(ctx, p);
	if (reason == CONTINUE_TO_VPN)
		return enter_vpn(ctx, p);
	return reason == CONTINUE_TO_UE ? send_to_ue(ctx, p, p->found.ue) : reason;
}

/* What a SID of a slice took out meets the rules of its session. */
INLINE int of_session(struct xdp_md *ctx, struct packet *p, struct local_sid *sid)
{
	if (p->in.upper_type == NH_ETHERNET)
		return receive_sid_frame(ctx, p, sid->slice, sid->length);
	return follow_rules(ctx, p, receive_at_sid(ctx, p, sid->slice, sid->length));
}

INLINE int behave(struct xdp_md *ctx, struct packet *p, struct settings *cfg, struct local_sid *sid,
		  struct ipv6 *ip)
{
	int reason;

	switch (sid->behavior) {
	case END_LIMIT:
		reason = end_limit(ctx, p->found.sid, p->in.l3, sid->mobile, sid->length);
		if (reason != CONTINUE)
			return reason;
		ip = at(ctx, p->in.l3, IPV6_LEN);
		if (!ip)
			return REASON_IPV6_MALFORMED;
		/* fall through */
	case END:
	case END_X:
	case END_T:
		return end(ctx, p, sid, ip);
	case END_DX2:
	case END_DX4:
	case END_DX6:
	case END_DT4:
	case END_DT6:
	case END_DT46:
		reason = end_d(ctx, p, sid, ip);
		if (reason == CONTINUE && sid->flags & SID_SESSIONS)
			return of_session(ctx, p, sid);
		return reason;
	case END_M_GTP6_D:
	case END_M_GTP6_D_DI:
		return end_m_gtp6_d(ctx, p, sid, ip);
	case END_M_GTP6_E:
	case END_M_GTP4_E:
		return end_m_gtp_e(ctx, p, sid, ip);
	case END_B6_ENCAPS:
	case END_B6_ENCAPS_RED:
		return end_b6(ctx, p, sid, ip, cfg->hop_limit);
	case END_MAP:
		return end_map(ctx, p, sid, ip);
	}
	return REASON_PASSED;
}

/* ---- steering ---- */

/* By p->plan.dst. The journey has no stack left for the keys. */
static __attribute__((noinline)) struct cached *steered_packet(struct packet *p)
{
	__u64 hi = p->plan.family == 4 ? ld32(&p->plan.dst) : p->plan.dst.hi;

	return steered_from(&node_settings, hi, p->plan.family == 4 ? ~0ull : p->plan.dst.lo,
			    p->plan.family == 4 ? CACHE_IPV4 : 0, p->port.table);
}

/* Whether the checksum of the IPv4 header at `l3`, whose length is right, says that it is as it was sent. */
GLOBAL int is_ipv4_intact(struct xdp_md *ctx, __u32 l3)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u32 header, offset;
	__u64 sum;
	void *word;

	if (!ip)
		return 0;
	sum = ipv4_sum(ip);
	header = (ip->version_ihl & 0xf) * 4u;
	for (offset = IPV4_LEN; offset < header; offset += 4) {
		word = at(ctx, l3 + offset, 4);
		if (!word)
			return 0;
		sum += ld32(word);
	}
	return ipv4_holds(sum);
}

/* The IP packet at p->in.l3 is to be encapsulated: 0, or why not. */
GLOBAL int take_steered(struct xdp_md *ctx, struct packet *p)
{
	if (!p)
		return REASON_INNER_MALFORMED;
	p->plan.keep = p->in.l3;
	if (take_payload(ctx, p, p->in.frame - p->in.l3, p->in.version, REASON_INNER_MALFORMED))
		return p->in.version == 4 ? REASON_IPV4_MALFORMED : REASON_IPV6_MALFORMED;
	if (p->in.version == 4 && !is_ipv4_intact(ctx, p->in.l3))
		return REASON_IPV4_MALFORMED;
	p->in.l3_length = p->plan.keep_length;
	return refuse_martian(ctx, p);
}

/* The policy of the IP packet at p->in.l3 by its class, or by best effort; 0: it is dropped. */
GLOBAL __u32 policy_of_class(struct xdp_md *ctx, struct packet *p, __u32 row)
{
	__u32 from, tos, offset;
	__u64 hi, lo = 0;
	struct class_way *way;
	struct ipv6 *ip;
	__u8 *tag;

	if (!p)
		return 0;
	from = p->port.ifindex;
	offset = p->in.l3;
	tag = at(ctx, ETH_LEN, VLAN_LEN);
	if (tag && offset > ETH_LEN)
		from |= (be16(ld16(tag)) & 0xfffu) << CLASS_VLAN_SHIFT;
	if (p->in.version == 4) {
		struct ipv4 *four = at(ctx, offset, IPV4_LEN);

		if (!four)
			return 0;
		from |= CLASS_IPV4;
		tos = four->tos;
		hi = ld32(&four->src);
	} else {
		ip = at(ctx, offset, IPV6_LEN);
		if (!ip)
			return 0;
		tos = ipv6_class(ip);
		hi = ld64(&ip->src);
		lo = ld64(&ip->src.b[8]);
	}
	way = class_way_from(from, tos, row, hi, lo);
	if (!way)
		return 0;
	p->found.class_index = way->class;
	return way->policy;
}

/* The IP packet at p->in.l3 goes to `to`. CONTINUE, or a reason. */
INLINE int steer(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 kind,
		 __u32 index)
{
	int reason;

	if (kind == TARGET_NONE || kind == TARGET_PASS)
		return REASON_PASSED;
	p->found.target_kind = kind;
	reason = take_steered(ctx, p);
	if (reason)
		return reason;
	if (kind == TARGET_TUNNEL)
		return send_tunnel(ctx, p, cfg, index);
	if (kind == TARGET_PDR)
		return send_to_ue(ctx, p, index);
	if (kind == TARGET_CLASSES) {
		index = policy_of_class(ctx, p, index);
		if (!index)
			return REASON_NO_CLASS_POLICY;
	}
	return h_encaps(ctx, p, index, cfg->hop_limit);
}

/* By interface and tags; 0: nothing there. */
INLINE struct target *steered_port(struct packet *p, __u16 outer, __u16 inner)
{
	struct port_key key = { .ifindex = p->port.ifindex,
				.outer_vlan = outer,
				.inner_vlan = inner };

	return p->port.flags & PORT_STEERED ? bpf_map_lookup_elem(&target_by_port, &key) : 0;
}

INLINE int is_l2(struct target *t)
{
	__u32 index = t->index;
	struct sr_policy *policy = bpf_map_lookup_elem(&sr_policy, &index);

	return t->kind == TARGET_POLICY && policy && policy->behavior >= H_ENCAPS_L2;
}

INLINE int takes_frames(struct target *t)
{
	return t && (t->kind == TARGET_LINK || is_l2(t));
}

/* ---- IPv6 ---- */

INLINE int gtpu_input(struct xdp_md *ctx, struct packet *p, struct settings *cfg, __u32 l4,
		      __u8 hops, __u8 class)
{
	int reason = read_gtpu(ctx, p, l4, p->in.l3 + p->in.l3_length - l4);
	__u32 index;

	if (reason)
		return reason;
	switch (p->gtpu.message) {
	case GTPU_G_PDU:
	case GTPU_END_MARKER:
		index = pdr_of_teid(cfg, p->gtpu.teid);
		if (!index)
			return receive(ctx, p, cfg, hops, class);
		if (leads_to_frames(index))
			return receive_frame(ctx, p, index, hops, class);
		return follow_rules(ctx, p, receive_session(ctx, p, index, hops, class));
	case GTPU_ECHO_REQUEST:
		return answer_echo(ctx, p, cfg, l4);
	}
	return REASON_PASSED;
}

/* Fills in l3_length; whether the header can be believed. */
INLINE int ipv6_sound(struct packet *p, struct ipv6 *ip)
{
	__u32 length = IPV6_LEN + be16(ld16(&ip->payload_length));

	p->in.l3_length = length;
	return p->in.l3 + length <= p->in.frame;
}

INLINE int gtpu6(struct xdp_md *ctx, struct packet *p, struct settings *cfg, struct ipv6 *ip)
{
	int refused = refuse_gtpu6(p->port.flags, p->port.access, &ip->src);
	struct udp *udp;

	if (ip->next_header == NH_FRAGMENT)
		return refused ? refused : reassemble(p);
	udp = at(ctx, p->in.l3 + IPV6_LEN, UDP_LEN);
	if (ip->next_header != NH_UDP || !udp || ld16(&udp->dst) != be16(GTPU_PORT))
		return REASON_PASSED;
	if (refused)
		return refused;
	if (!ipv6_sound(p, ip))
		return REASON_IPV6_MALFORMED;
	copy16(&p->plan.src, &ip->src);
	copy16(&p->plan.dst, &ip->dst);
	return gtpu_input(ctx, p, cfg, p->in.l3 + IPV6_LEN, ip->hop_limit, ipv6_class(ip));
}

INLINE int ipv6_input(struct xdp_md *ctx, struct packet *p, struct settings *cfg,
		      struct target *port)
{
	struct ipv6 *ip = at(ctx, p->in.l3, IPV6_LEN);
	struct local_sid *sid;
	struct cached *to;
	__u32 index;
	int refused;

	if (!ip || be32(ld32(ip)) >> 28 != 6)
		return REASON_PASSED;
	p->in.version = 6;
	if (p->in.group)
		return REASON_PASSED;
	sid = find_sid(cfg, &ip->dst, &index);
	refused = refuse6(cfg, p->port.flags, p->port.access, sid, ip);
	if (refused)
		return refused;
	if (sid) {
		p->found.sid = index;
		if (!ipv6_sound(p, ip))
			return REASON_IPV6_MALFORMED;
		p->found.sid_length = p->in.l3_length;
		return behave(ctx, p, cfg, sid, ip);
	}
	if (is_gtpu6(cfg, &ip->dst))
		return gtpu6(ctx, p, cfg, ip);
	refused = refuse_ue6(cfg, p->port.flags, ip);
	if (refused == REASON_UE_SOURCE) {
		refused = return_from_n6_by6(p, ip);
		ip = at(ctx, p->in.l3, IPV6_LEN);
	}
	if (refused || !ip)
		return refused ? refused : REASON_IPV6_MALFORMED;
	index = pool6_index(cfg, &ip->dst);
	if (index) {
		struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);

		if (t && t->action)
			return steer(ctx, p, cfg, TARGET_TUNNEL, index);
		p->port.table = 0; /* a pool's addresses are the same for all ports */
	}
	p->plan.family = 6;
	copy16(&p->plan.dst, &ip->dst);
	index = cfg->pdr_slots && is_n6(p->port.flags) ? pdr_of_destination(p) : 0;
	if (index)
		return steer(ctx, p, cfg, TARGET_PDR, index);
	to = steered_packet(p);
	if (to && to->kind && !may_steer(p->port.flags, to->kind) && !of_pool6(cfg, p))
		return REASON_ROLE;
	if (to && to->kind)
		return steer(ctx, p, cfg, to->kind, to->index);
	if (!port || is_local6(&p->plan.dst))
		return REASON_PASSED;
	if (!may_steer(p->port.flags, port->kind))
		return REASON_ROLE;
	return steer(ctx, p, cfg, port->kind, port->index);
}

/* ---- IPv4 ---- */

/* Fills in l3_length; whether the header can be believed. */
GLOBAL int is_ipv4_sound(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip = p ? at(ctx, p->in.l3, IPV4_LEN) : 0;
	__u32 header;

	if (!ip)
		return 0;
	header = (ip->version_ihl & 0xf) * 4u;
	p->in.l3_length = be16(ld16(&ip->length));
	return header >= IPV4_LEN && p->in.l3_length >= header &&
	       p->in.l3 + p->in.l3_length <= p->in.frame && is_ipv4_intact(ctx, p->in.l3);
}

/* UDP to port 2152 of our own, or to a translated prefix (`m`). */
INLINE int gtpu4(struct xdp_md *ctx, struct packet *p, struct settings *cfg, struct ipv4 *ip,
		 struct mobile *m)
{
	__u32 l4 = p->in.l3 + (ip->version_ihl & 0xf) * 4u;
	int refused = refuse_gtpu4(p->port.flags, p->port.access, ld32(&ip->src));
	struct udp *udp;

	if (ip->protocol != NH_UDP)
		return REASON_PASSED;
	if (be16(ld16(&ip->fragment)) & IPV4_FRAGMENT_MASK) {
		if (refused)
			return refused;
		return is_ipv4_sound(ctx, p) ? reassemble(p) : REASON_IPV4_MALFORMED;
	}
	udp = at(ctx, l4, UDP_LEN);
	if (!udp || ld16(&udp->dst) != be16(GTPU_PORT))
		return REASON_PASSED;
	if (refused)
		return refused;
	if (!is_ipv4_sound(ctx, p))
		return REASON_IPV4_MALFORMED;
	if (m)
		return h_m_gtp4_d(ctx, p, m, l4);
	ip = at(ctx, p->in.l3, IPV4_LEN);
	if (!ip)
		return REASON_IPV4_MALFORMED;
	st32(&p->plan.src, ld32(&ip->src));
	st32(&p->plan.dst, ld32(&ip->dst));
	return gtpu_input(ctx, p, cfg, l4, ip->ttl, ip->tos);
}

/* The IPv4 packet at p->in.l3 comes from outside of a NAT: CONTINUE, with its UE's address if it
 * was for a public one, or a reason. */
GLOBAL int nat_input(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip;
	__u32 which;
	int reason;

	if (!p)
		return REASON_NAT_PROTOCOL;
	ip = at(ctx, p->in.l3, IPV4_LEN);
	if (!ip)
		return REASON_IPV4_MALFORMED;
	which = nat_of_address(ld32(&ip->dst));
	if (nat_of_address(ld32(&ip->src)))
		return REASON_UE_SOURCE;
	if (nat_of_ue(ld32(&ip->dst)))
		return has_mark(ctx, OWN_MARK) ? CONTINUE : REASON_NAT_BEHIND;
	if (!which)
		return CONTINUE;
	if (!is_ipv4_sound(ctx, p))
		return REASON_IPV4_MALFORMED;
	ip = at(ctx, p->in.l3, IPV4_LEN);
	if (!ip || be16(ld16(&ip->fragment)) & IPV4_FRAGMENT_MASK)
		return reassemble(p);
	if (p->port.flags & PORT_PARTIAL_CHECKSUM)
		complete_checksum(ctx, p->in.l3, p->in.l3_length, 4);
	p->nat.l3 = p->in.l3;
	reason = nat_destination(ctx, p, which);
	return reason ? reason : CONTINUE;
}

INLINE int ipv4_input(struct xdp_md *ctx, struct packet *p, struct settings *cfg,
		      struct target *port)
{
	struct ipv4 *ip = at(ctx, p->in.l3, IPV4_LEN);
	struct cached *to;
	__u32 index, dst;
	int refused;

	if (!ip || ip->version_ihl >> 4 != 4)
		return REASON_PASSED;
	p->in.version = 4;
	if (p->in.group)
		return REASON_PASSED;
	if (is_gtpu4(cfg, ld32(&ip->dst)))
		return gtpu4(ctx, p, cfg, ip, 0);
	refused = refuse_ue4(cfg, p->port.flags, ip);
	if (refused == REASON_UE_SOURCE) {
		refused = return_from_n6_by4(p, ip);
		ip = at(ctx, p->in.l3, IPV4_LEN);
	}
	if (refused || !ip)
		return refused ? refused : REASON_IPV4_MALFORMED;
	if (cfg->nats && is_n6(p->port.flags)) {
		refused = nat_input(ctx, p);
		ip = at(ctx, p->in.l3, IPV4_LEN);
		if (refused != CONTINUE || !ip)
			return refused;
	}
	dst = be32(ld32(&ip->dst));
	index = pool4_index(cfg, dst);
	if (index) {
		struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);

		if (t && t->action)
			return steer(ctx, p, cfg, TARGET_TUNNEL, index);
		p->port.table = 0; /* a pool's addresses are the same for all ports */
	}
	p->plan.family = 4;
	st32(&p->plan.dst, ld32(&ip->dst));
	index = cfg->pdr_slots && is_n6(p->port.flags) ? pdr_of_destination(p) : 0;
	if (index)
		return steer(ctx, p, cfg, TARGET_PDR, index);
	to = steered_packet(p);
	if (to && to->kind && !may_steer(p->port.flags, to->kind) && !of_pool4(cfg, p))
		return REASON_ROLE;
	if (to && to->kind == TARGET_GTP4D) {
		struct mobile *m;

		index = to->index;
		m = bpf_map_lookup_elem(&mobile, &index);
		p->found.target_kind = TARGET_GTP4D;
		return m ? gtpu4(ctx, p, cfg, ip, m) : REASON_PASSED;
	}
	if (to && to->kind)
		return steer(ctx, p, cfg, to->kind, to->index);
	if (!port || is_local4(dst))
		return REASON_PASSED;
	if (!may_steer(p->port.flags, port->kind))
		return REASON_ROLE;
	return steer(ctx, p, cfg, port->kind, port->index);
}

/* ---- the frame ---- */

/* The stack holds one rule at a time. */
INLINE int frame_input(struct xdp_md *ctx, struct packet *p, __u32 link)
{
	int reason = link_input(ctx, p, link);

	return reason == CONTINUE_TO_UE ? send_frame(ctx, p, p->found.ue) : reason;
}

/* The target of whole frames of a port with these VLAN tags, which are `tags` octets, or NULL. Where
 * none is for all of the tags, one for the first tag or for none takes the frame. *matched: octets of
 * the tags that it is for, which the frame loses. */
INLINE struct target *target_of_frame(__u32 ifindex, __u16 outer, __u16 inner, __u16 tags,
				      __u16 *matched)
{
	struct port_key key = { .ifindex = ifindex, .outer_vlan = outer, .inner_vlan = inner };
	struct target *t = bpf_map_lookup_elem(&target_by_port, &key);

	*matched = tags;
	if (!t && outer && inner) {
		*matched = VLAN_LEN;
		key.inner_vlan = 0;
		t = bpf_map_lookup_elem(&target_by_port, &key);
		t = takes_frames(t) ? t : 0;
	}
	if (!t && (outer || inner)) {
		*matched = 0;
		key.outer_vlan = key.inner_vlan = 0;
		t = bpf_map_lookup_elem(&target_by_port, &key);
	}
	return takes_frames(t) ? t : 0;
}

/* A frame of a port that has entries in steering_by_port. NOT_TAKEN: nothing takes this one. */
GLOBAL int steer_frame(struct xdp_md *ctx, struct packet *p, __u32 outer, __u32 inner,
		       __u32 hop_limit)
{
	struct target *t;
	__u16 matched;

	if (!p)
		return NOT_TAKEN;
	t = target_of_frame(p->port.ifindex, outer, inner, p->in.l3 - ETH_LEN, &matched);
	if (!t)
		return NOT_TAKEN;
	p->found.target_kind = t->kind;
	if (!may_steer(p->port.flags, t->kind))
		return REASON_ROLE;
	return t->kind == TARGET_LINK ? frame_input(ctx, p, t->index)
				      : h_encaps_l2(ctx, p, t->index, matched, hop_limit);
}

/* The EtherType behind at most two tags, in network order; *l3 is behind it. -1: the frame is
 * too short. */
INLINE int frame_type(struct xdp_md *ctx, __u16 *l3, __u16 vlan[2])
{
	__u8 *eth = at(ctx, 0, ETH_LEN);
	__u16 type;
	__u32 i;

	if (!eth)
		return -1;
	*l3 = ETH_LEN;
	type = ld16(eth + 12);
	for (i = 0; i < 2 && is_vlan(type); i++) {
		__u8 *tag = at(ctx, *l3, VLAN_LEN);

		if (!tag)
			return -1;
		vlan[i] = be16(ld16(tag)) & 0xfff;
		type = ld16(tag + 2);
		*l3 += VLAN_LEN;
	}
	return type;
}

/* Whose it is and what becomes of it: CONTINUE with a plan, or how it ends. */
INLINE int decide(struct xdp_md *ctx, struct packet *p, struct settings *cfg)
{
	struct target *steered;
	__u16 vlan[2] = {};
	int reason, type;
	__u8 *eth;

	type = frame_type(ctx, &p->in.l3, vlan);
	if (type < 0)
		return REASON_PASSED;
	p->port.table = vlan[0] || vlan[1] ? 0 : p->port.flags >> PORT_TABLE_SHIFT;
	if (p->port.flags & PORT_STEERED) {
		reason = steer_frame(ctx, p, vlan[0], vlan[1], cfg->hop_limit);
		if (reason != NOT_TAKEN)
			return reason;
	}
	steered = steered_port(p, vlan[0], vlan[1]);
	eth = at(ctx, 0, ETH_LEN);
	if (!eth)
		return REASON_PASSED;
	if (!is_for_port(p->port.mac, eth))
		p->in.group = eth[0] & 1 ? FOR_GROUP : FOR_OTHER;
	if (type == be16(TYPE_IPV6))
		return guard_kernel(ctx, p, ipv6_input(ctx, p, cfg, steered));
	if (type == be16(TYPE_IPV4))
		return guard_kernel(ctx, p, ipv4_input(ctx, p, cfg, steered));
	/* the kernel takes all tags off, and then `host` means nothing */
	return is_vlan(type) && p->port.flags & PORT_ROLES ? REASON_TAGS : REASON_PASSED;
}

#endif
