/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The shapes that almost every packet has, without a plan: IP packets without
 * options or fragments, with at most one VLAN tag, to a next hop that is known.
 * Whatever is unusual is left alone and takes the whole journey (router.h). Where
 * both can take a packet, they do the same to it: golden files and fuzzers hold
 * them to one model. */
#ifndef CULVERT_EXPRESS_H
#define CULVERT_EXPRESS_H

#include "express/session.h"

/* ---- tunnels and headends ---- */

/* TEID to TEID, out over IPv4. */
INLINE int express_switch(struct xdp_md *ctx, struct express *x, struct tunnel *t, struct ipv4 *ip,
			  void *pdu, __u32 octets, void *end)
{
	struct express_gtpu_header g = {};
	__u32 key = t->source;
	struct in6 *from = bpf_map_lookup_elem(&source, &key);

	if (!t->ipv4 || !from || !express_pdu_hash(pdu, octets, end, &g.hash))
		return not_taken();
	x->hop = express_shared(t->adjacency, g.hash, x->length - express_shrinks(x));
	if (!x->hop)
		return not_taken();
	x->tunnel = &t->volume;
	x->tunnel_length = octets;
	g.src = ld32(&from->b[12]);
	g.dst = ld32(&t->remote.b[12]);
	g.teid = t->teid;
	g.tos = express_class(x, ip);
	g.ttl = express_hops(x, ip) - 1;
	return express_onward4(ctx, x, &g, ip);
}

/* UDP to the GTP-U port of one of our addresses. */
INLINE int express_receive(struct xdp_md *ctx, struct express *x)
{
	void *ip = (void *)(long)ctx->data + express_l3(x), *end = packet_end(ctx);
	__u64 header;
	__u32 teid = 0, container = 0, slot, popped;
	struct tunnel *t;
	struct ipv4 *inner;

	if (ip + IPV4_LEN + UDP_LEN + GTPU_LEN > end)
		return not_taken();
	x->is6 = express_bit(x, *(__u8 *)ip & 0x20);
	header = express_header(x);
	inner = express_gpdu(x, ip + header, x->length - header, end, &teid, &container);
	if (!inner || (void *)inner + IPV4_LEN > end)
		return not_taken();
	slot = pdr_of_teid(x->cfg, teid);
	if (slot)
		return express_session(ctx, x, slot, ip, inner, container);
	slot = teid & 0xffffff;
	t = bpf_map_lookup_elem(&tunnel, &slot);
	if (slot >= x->cfg->teid_slots || !t || t->key != teid)
		return not_taken();
	popped = (void *)inner - ip;
	opaque(popped);
	if (t->action == TUNNEL_SWITCH)
		return express_switch(ctx, x, t, ip, inner, x->length - popped, end);
	if (t->action != TUNNEL_DECAP)
		return not_taken();
	x->tunnel = &t->volume;
	x->tunnel_length = x->length - popped;
	if (inner->version_ihl == 0x45)
		return express_nested4(x, inner, end)
			       ? not_taken()
			       : express_decap4(ctx, x, inner, end, express_class(x, ip), popped,
						t->adjacency, t->index);
	if (is_ipv6(inner) && (void *)inner + IPV6_LEN <= end && !express_nested6(x, (void *)inner))
		return express_decap6(ctx, x, (void *)inner, end, express_class(x, ip), popped,
				      t->adjacency, t->index);
	return not_taken();
}

/* Into a tunnel's one segment. */
INLINE int express_send_srv6(struct xdp_md *ctx, struct express *x, struct tunnel *t,
			     struct in6 *from, struct ipv4 *ip, void *end)
{
	struct express_ipv6_header h = {};
	__u32 key = t->index;

	h.hash = express_hash4(ip);
	x->hop = express_shared(t->adjacency, h.hash, x->length + IPV6_LEN);
	if (!x->hop)
		return not_taken();
	x->list = key ? bpf_map_lookup_elem(&list_counter, &key) : 0;
	h.src = from;
	h.dst = &t->remote;
	h.class = ip->tos;
	h.hop_limit = x->cfg->hop_limit;
	h.next_header = NH_IPV4;
	ipv4_spend(ip);
	return express_push6(ctx, x, &h, 0);
}

INLINE int express_send_gtpu6(struct xdp_md *ctx, struct express *x, struct tunnel *t,
			      struct in6 *from, struct ipv4 *ip, void *end)
{
	struct express_gtpu6_header h = { .container = container_word(t->container, t->qfi) };

	h.hash = express_hash4(ip);
	x->hop = express_shared(t->adjacency, h.hash,
				x->length + IPV6_LEN + gtpu_length(h.container));
	if (!x->hop)
		return not_taken();
	h.teid = t->teid;
	h.class = ip->tos;
	h.hop_limit = x->cfg->hop_limit;
	h.sum = vouched_sum4(ip, x->length);
	if (!h.sum)
		return not_taken();
	h.src = from;
	h.dst = &t->remote;
	ipv4_spend(ip);
	return express_push_gtpu6(ctx, x, &h, 0);
}

INLINE int express_send_gtpu4(struct xdp_md *ctx, struct express *x, struct tunnel *t,
			      struct in6 *from, struct ipv4 *ip, void *end)
{
	struct express_gtpu_header g = { .container = container_word(t->container, t->qfi) };

	g.hash = express_hash4(ip);
	x->hop = express_shared(t->adjacency, g.hash,
				x->length + IPV4_LEN + gtpu_length(g.container));
	if (!x->hop)
		return not_taken();
	g.src = ld32(&from->b[12]);
	g.dst = ld32(&t->remote.b[12]);
	g.teid = t->teid;
	g.tos = ip->tos;
	g.ttl = x->cfg->hop_limit;
	ipv4_spend(ip);
	return express_push_gtpu4(ctx, x, &g, 0);
}

/* A packet that express_ipv4 let through. */
INLINE int express_steer4(struct xdp_md *ctx, struct express *x, __u32 policy, struct ipv4 *ip)
{
	struct express_ipv6_header h = {};

	h.hash = express_hash4(ip);
	if (express_encaps(ctx, x, policy, &h, 0) == NOT_TAKEN)
		return not_taken();
	h.class = ip->tos;
	h.next_header = NH_IPV4;
	ipv4_spend(ip);
	return express_push6(ctx, x, &h, 0);
}

/* An IPv4 packet to a UE of a pool. */
INLINE int express_send(struct xdp_md *ctx, struct express *x, __u32 index, struct ipv4 *ip,
			void *end)
{
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);
	struct in6 *from;
	__u32 key;

	if (!t)
		return not_taken();
	x->tunnel = &t->volume;
	x->tunnel_length = x->length;
	if (t->action == TUNNEL_LIST)
		return express_steer4(ctx, x, t->index, ip);
	key = t->source;
	from = bpf_map_lookup_elem(&source, &key);
	if (!from)
		return not_taken();
	if (t->action == TUNNEL_SRV6)
		return express_send_srv6(ctx, x, t, from, ip, end);
	if (t->action != TUNNEL_GTPU)
		return not_taken();
	return t->ipv4 ? express_send_gtpu4(ctx, x, t, from, ip, end)
		       : express_send_gtpu6(ctx, x, t, from, ip, end);
}

INLINE int express_steer6(struct xdp_md *ctx, struct express *x, __u32 policy, struct ipv6 *ip,
			  void *end)
{
	struct express_ipv6_header h = {};

	if (ip->hop_limit <= 1 || !express_payload6(ip, x->length, end, x->port_flags) ||
	    is_martian_source6(&ip->src) || is_martian_source6(&ip->dst))
		return not_taken();
	h.hash = express_hash6(ip);
	if (express_encaps(ctx, x, policy, &h, 0) == NOT_TAKEN)
		return not_taken();
	h.class = ipv6_class(ip);
	h.next_header = NH_IPV6;
	ip->hop_limit--;
	return express_push6(ctx, x, &h, 0);
}

/* The table of class_by_source of what arrived. */
INLINE __u32 express_from(struct xdp_md *ctx, struct express *x, void *l3)
{
	__u32 vlan = be16(ld16(l3 - VLAN_LEN)) & 0xfff;

	return ctx->ingress_ifindex |
	       (x->port_flags & EXPRESS_TAGGED ? vlan << CLASS_VLAN_SHIFT : 0);
}

/* The policy to a destination with classes. What counts the class stands where a slice does. */
INLINE __u32 express_classes4(struct xdp_md *ctx, struct express *x, __u32 row, struct ipv4 *ip)
{
	struct class_way *way = class_way_from(express_from(ctx, x, ip) | CLASS_IPV4, ip->tos, row,
					       ld32(&ip->src), 0);
	__u32 class;

	if (!way)
		return 0;
	class = way->class;
	if (class)
		x->slice = bpf_map_lookup_elem(&class_counter, &class);
	return way->policy;
}

/* The policy that takes frames of a steered port as they are. 0: none does, though one may take
 * packets that have no other way; NOT_TAKEN: the lane leaves this one, which is traced, loses a tag,
 * or is a link's. */
GLOBAL int express_policy(struct xdp_md *ctx)
{
	__u16 vlan[2] = {}, l3 = 0, matched = 0;
	struct target *t;

	if (node_settings.trace && is_traced(ctx, ctx->ingress_ifindex))
		return not_taken();
	if (frame_type(ctx, &l3, vlan) < 0)
		return not_taken();
	t = target_of_frame(ctx->ingress_ifindex, vlan[0], vlan[1], l3 - ETH_LEN, &matched);
	if (!t)
		return 0;
	return t->kind == TARGET_POLICY && !matched ? (int)t->index : not_taken();
}

/* A whole frame into a policy. */
INLINE int express_frame(struct xdp_md *ctx, struct express *x, __u32 policy)
{
	void *eth = (void *)(long)ctx->data;
	struct express_ipv6_header h = {};

	if (eth + ETH_LEN > packet_end(ctx))
		return not_taken();
	h.hash = flow_ethernet(eth);
	x->length = frame_length(ctx) - ETH_LEN;
	if (!may_steer(x->port_flags, TARGET_POLICY) ||
	    express_encaps(ctx, x, policy, &h, -ETH_LEN) == NOT_TAKEN)
		return not_taken();
	h.next_header = NH_ETHERNET;
	return express_push6(ctx, x, &h, -ETH_LEN);
}

/* ---- whose ---- */

/* What leads to a destination outside of the pools, or NULL: then the journey has to look. Networks
 * behind UEs come before a table of the port, and only the journey looks for them. The table
 * steers packets without a VLAN only, and only the journey reads a tag's VLAN. */
INLINE struct cached *express_target(struct express *x, __u64 hi, __u64 lo, __u32 family)
{
	__u32 port = x->port_flags >> PORT_TABLE_SHIFT, table = cache_table(port) | family;
	struct cached *to = cache_slot(hi, lo, table);

	if (port && x->port_flags & EXPRESS_TAGGED)
		return 0;
	if (!to || cache_holds(to, hi, lo, table, cache_generation(x->cfg)))
		return to;
	return port || remember_steered(hi, lo, family) ? 0 : to;
}

/* Of what receives, and of it alone: express_receive() comes next, once for both versions. */
#define RECEIVES -7

/* An IPv6 packet to no SID. */
INLINE int express_destination6(struct xdp_md *ctx, struct express *x, struct ipv6 *ip, void *end)
{
	__u64 hi = ld64(&ip->dst);
	struct pool6 *pool = find_pool6(x->cfg, be64(hi));
	struct cached *to;
	__u32 index;

	if (pool)
		return pool->sessions ? express_to_ue(ctx, x, pool->base + (be64(hi) & ~pool->mask))
				      : not_taken();
	index = is_n6(x->port_flags) ? pdr_of_ue6(x->cfg, hi) : 0;
	if (index)
		return express_to_ue(ctx, x, index);
	to = express_target(x, hi, ld64(&ip->dst.b[8]), 0);
	if (!to || !may_steer(x->port_flags, to->kind))
		return not_taken();
	if (to->kind == TARGET_PDR)
		return express_to_ue(ctx, x, to->index);
	return to->kind == TARGET_POLICY ? express_steer6(ctx, x, to->index, ip, end) : not_taken();
}

/* End.DX2, DX4, DX6, DT4, DT6, DT46. */
INLINE int express_end_d(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
			 __u32 counter, struct ipv6 *ip, void *end)
{
	__u8 type = 0, class = ipv6_class(ip);
	void *inner = express_upper(x, ip, end, &type);
	__u32 adj = sid->adjacency, table = adj ? 0 : sid->table, popped = inner - (void *)ip;

	if (!inner || !takes(sid, type))
		return not_taken();
	opaque(popped);
	if (sid->flags & SID_SESSIONS)
		return express_sid_sessions(ctx, x, sid, counter, ip, inner, type, end);
	if (type == NH_IPV4)
		return express_decap4(ctx, x, inner, end, class, popped, adj, table);
	if (type == NH_IPV6)
		return express_decap6(ctx, x, inner, end, class, popped, adj, table);
	return express_decap_frame(ctx, x, popped, adj);
}

INLINE int express_input6(struct xdp_md *ctx, struct express *x, struct ipv6 *ip, void *end)
{
	__u32 index;
	struct local_sid *sid;
	void *inner = (void *)ip + IPV6_LEN;

	x->length = IPV6_LEN + be16(ld16(&ip->payload_length));
	if (!is_ipv6(ip) || !express_complete(ctx, x, ip, end))
		return not_taken();
	sid = find_sid(x->cfg, &ip->dst, &index);
	if (refuse6(x->cfg, x->port_flags, x->access, sid, ip))
		return not_taken();
	if (!sid && is_gtpu6(x->cfg, &ip->dst))
		return ip->next_header == NH_UDP && ip->hop_limit > 1 && inner + UDP_LEN <= end &&
				       ld16(inner + 2) == be16(GTPU_PORT) &&
				       !refuse_gtpu6(x->port_flags, x->access, &ip->src)
			       ? RECEIVES
			       : not_taken();
	if (!sid)
		return refuse_ue6(x->cfg, x->port_flags, ip)
			       ? not_taken()
			       : express_destination6(ctx, x, ip, end);
	x->sid = bpf_map_lookup_elem(&sid_counter, &index);
	if (!x->sid)
		return not_taken();
	switch (sid->behavior) {
	case END:
	case END_X:
	case END_T:
		return express_end(ctx, x, sid, ip, end);
	case END_DX2:
	case END_DX4:
	case END_DX6:
	case END_DT4:
	case END_DT6:
	case END_DT46:
		return express_end_d(ctx, x, sid, index, ip, end);
	case END_M_GTP4_E:
		return express_gtp4_e(ctx, x, sid, ip, end);
	case END_M_GTP6_E:
		return express_gtp6_e(ctx, x, sid, ip, end);
	case END_B6_ENCAPS:
	case END_B6_ENCAPS_RED:
		return express_b6(ctx, x, sid, ip, end);
	case END_MAP:
		return express_map(ctx, x, sid, ip, end);
	case END_M_GTP6_D:
	case END_M_GTP6_D_DI:
		return express_gtp6_d(ctx, x, sid, ip, end);
	}
	return not_taken();
}

INLINE int express_input4(struct xdp_md *ctx, struct express *x, struct ipv4 *ip, void *end)
{
	struct udp *udp = (void *)ip + IPV4_LEN;
	__u32 dst = ld32(&ip->dst), which, index, kind = TARGET_TUNNEL;
	struct pool4 *pool;
	struct cached *to;

	if (ip->version_ihl != 0x45 || ip->ttl <= 1 || (void *)udp + UDP_LEN > end ||
	    ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK))
		return not_taken();
	x->length = be16(ld16(&ip->length));
	if (!express_complete(ctx, x, ip, end))
		return not_taken();
	if (!ipv4_holds(ipv4_sum(ip)))
		return not_taken();
	if (is_gtpu4(x->cfg, dst))
		return ip->protocol == NH_UDP && ld16(&udp->dst) == be16(GTPU_PORT) &&
				       !refuse_gtpu4(x->port_flags, x->access, ld32(&ip->src))
			       ? RECEIVES
			       : not_taken();
	if (refuse_ue4(x->cfg, x->port_flags, ip))
		return not_taken();
	if (x->cfg->nats && is_n6(x->port_flags)) {
		which = nat_from_n6(ld32(&ip->src), dst);
		if (which == NAT_OTHER)
			return not_taken();
		if (which)
			return express_to_nat(ctx, x, ip, end, which);
	}
	pool = find_pool4(x->cfg, be32(dst));
	index = pool ? pool->base + (be32(dst) & ~pool->mask) : 0;
	if (pool && pool->sessions)
		return express_to_ue(ctx, x, index);
	if (!pool) {
		which = is_n6(x->port_flags) ? pdr_of_ue4(x->cfg, dst) : 0;
		if (which)
			return express_to_ue(ctx, x, which);
		to = express_target(x, dst, ~0ull, CACHE_IPV4);
		if (!to || !may_steer(x->port_flags, to->kind))
			return not_taken();
		index = to->index;
		kind = to->kind;
		if (kind == TARGET_PDR)
			return express_to_ue(ctx, x, index);
		if (kind == TARGET_GTP4D && ip->protocol == NH_UDP &&
		    ld16(&udp->dst) == be16(GTPU_PORT) &&
		    !refuse_gtpu4(x->port_flags, x->access, ld32(&ip->src)))
			return express_gtp4_d(ctx, x, to, ip, end);
		if (kind == TARGET_CLASSES)
			index = express_classes4(ctx, x, index, ip);
		if (!index || is_martian_source4(dst))
			return not_taken();
	}
	if (!express_payload4(ip, x->length, end, x->port_flags) ||
	    is_martian_source4(ld32(&ip->src)))
		return not_taken();
	if (kind == TARGET_TUNNEL)
		return express_send(ctx, x, index, ip, end);
	return kind == TARGET_POLICY || kind == TARGET_CLASSES ? express_steer4(ctx, x, index, ip)
							       : not_taken();
}

/* Where the IP header is, behind one VLAN tag at most. */
INLINE void *express_tags(struct express *x, void *data)
{
	__u64 tag;

	if (is_vlan(ld16(data + ETH_LEN - 2)))
		x->port_flags ^= EXPRESS_TAGGED;
	tag = x->port_flags >> EXPRESS_TAGGED_SHIFT & 1;
	opaque(tag);
	return data + ETH_LEN + tag * VLAN_LEN;
}

/* Whether the trace asks for the packet: then the journey takes and records it. */
INLINE int express_asked_for(struct xdp_md *ctx, void *ip, int is6)
{
	__u32 zero = 0;
	struct trace_filter *filter = bpf_map_lookup_elem(&trace_filter, &zero);
	struct ipv4 *four = ip;
	struct ipv6 *six = ip;

	return filter && asks_for(filter, ctx->ingress_ifindex,
				  is6 ? words_at(&six->src) : mapped(ld32(&four->src)),
				  is6 ? words_at(&six->dst) : mapped(ld32(&four->dst)));
}

INLINE int express_traced(struct xdp_md *ctx, struct express *x, void *ip, int is6)
{
	return x->cfg->trace && express_asked_for(ctx, ip, is6);
}

/* The verdict, or NOT_TAKEN with the frame as it was. */
INLINE int express(struct xdp_md *ctx)
{
	void *data, *end, *l3;
	struct port *in = port_of(ctx);
	struct express x = { .cfg = &node_settings };
	int policy = 0, verdict = NOT_TAKEN;
	__u16 type;

	if (!in)
		return XDP_PASS;
	x.port_flags = in->flags;
	x.access = in->access;
	if (!(x.port_flags & PORT_ATTACHED))
		return XDP_PASS;
	if (x.port_flags & PORT_STEERED) {
		policy = express_policy(ctx);
		if (policy)
			return policy > 0 ? express_frame(ctx, &x, policy) : not_taken();
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETH_LEN + VLAN_LEN > end || !is_for_port(in->mac, data))
		return not_taken();
	l3 = express_tags(&x, data);
	opaque(l3); /* from here on addresses start here, and not at the frame */
	if (l3 + IPV6_LEN > end)
		return not_taken();
	type = ld16(l3 - 2);
	if (type == be16(TYPE_IPV6) && !express_traced(ctx, &x, l3, 1))
		verdict = express_input6(ctx, &x, l3, end);
	else if (type == be16(TYPE_IPV4) && !express_traced(ctx, &x, l3, 0))
		verdict = express_input4(ctx, &x, l3, end);
	if (verdict == RECEIVES)
		verdict = express_receive(ctx, &x);
	if (verdict == XDP_REDIRECT && express_cut_behind(ctx, &x, 0))
		return XDP_ABORTED; /* cannot be: that many octets were behind the packet */
	return verdict;
}

#endif
