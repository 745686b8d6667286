/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets over CPUs: the CPU that receives a packet sends it to the one that its UE or
 * its flow belongs to (docs/adr/0021-packets-over-cpus.md). What is for this host, or
 * unclear, stays where it was received. */
#ifndef CULVERT_SPREAD_H
#define CULVERT_SPREAD_H

#include "port.h"

/* What a packet is told apart by. */
struct load {
	__u32 key;     /* hash of UE and direction, or of the flow */
	__u16 flow_at; /* offset of the packet that the flow is of; 0: the key will do */
	__u8 version;  /* of that packet */
};

#define STAYS -4 /* beside CONTINUE and NOT_TAKEN */

/* ---- flows ---- */

INLINE __u32 spread_flow4(struct xdp_md *ctx, __u32 l3)
{
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u8 protocol;
	__u64 h;
	void *ports;

	if (!ip)
		return 0;
	h = flow_ipv4(ip);
	protocol = ip->protocol;
	if (ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK))
		return flow_finish(h, 0, 0);
	ports = flow_has_ports(protocol) ? at(ctx, l3 + (ip->version_ihl & 0xf) * 4u, 4) : 0;
	return flow_finish(h, protocol, ports ? ld32(ports) : 0);
}

INLINE __u32 spread_flow6(struct xdp_md *ctx, __u32 l3)
{
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);
	__u8 protocol;
	__u64 h;
	void *ports;

	if (!ip)
		return 0;
	h = flow_ipv6(ip);
	protocol = ip->next_header;
	if (!flow_has_ports(protocol)) /* perhaps fragments */
		return flow_finish(h, 0, 0);
	ports = at(ctx, l3 + IPV6_LEN, 4);
	return flow_finish(h, protocol, ports ? ld32(ports) : 0);
}

GLOBAL int spread_flow(struct xdp_md *ctx, __u32 l3, __u32 version)
{
	return version == 4 ? spread_flow4(ctx, l3) : spread_flow6(ctx, l3);
}

INLINE void of_flow(struct load *l, __u32 l3, __u8 version)
{
	l->flow_at = l3;
	l->version = version;
}

/* ---- UEs ---- */

INLINE __u32 spread_hash(__u64 x)
{
	return x * FLOW_PRIME1 >> 32;
}

/* By the address of a pool's UE, else by flow. */
INLINE int of_ue4(struct xdp_md *ctx, struct load *l, __u32 l3)
{
	struct settings *cfg = &node_settings;
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	__u32 src, dst;

	if (!ip)
		return STAYS;
	src = be32(ld32(&ip->src));
	dst = be32(ld32(&ip->dst));
	of_flow(l, l3, 4);
	l->key = find_pool4(cfg, dst)   ? spread_hash(dst)
		 : find_pool4(cfg, src) ? spread_hash(src)
					: (__u32)spread_flow(ctx, l3, 4);
	return CONTINUE;
}

INLINE int of_ue6(struct xdp_md *ctx, struct load *l, __u32 l3)
{
	struct settings *cfg = &node_settings;
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);
	__u64 src, dst;

	if (!ip)
		return STAYS;
	src = be64(ld64(&ip->src));
	dst = be64(ld64(&ip->dst));
	of_flow(l, l3, 6);
	l->key = find_pool6(cfg, dst)   ? spread_hash(dst)
		 : find_pool6(cfg, src) ? spread_hash(src)
					: (__u32)spread_flow(ctx, l3, 6);
	return CONTINUE;
}

/* ---- tunnels ---- */

#define SPREAD_EXTENSIONS 4

/* Where the T-PDU of the G-PDU at `offset` begins; 0: behind more options than are
 * looked at. */
INLINE __u32 tpdu_of(struct xdp_md *ctx, __u32 offset, __u8 flags)
{
	__u32 i, type;
	__u8 *header;

	offset += GTPU_LEN;
	if (!(flags & GTPU_OPTIONS))
		return offset;
	header = at(ctx, offset, GTPU_OPTIONS_LEN);
	if (!header)
		return 0;
	type = flags & GTPU_FLAG_E ? header[3] : 0;
	offset += GTPU_OPTIONS_LEN;
	for (i = 0; i < SPREAD_EXTENSIONS && type; i++) {
		__u32 length;

		header = at(ctx, offset, 4);
		if (!header)
			return 0;
		length = 4 * (__u32)header[0];
		header = at(ctx, offset + length - 1, 1);
		if (!length || !header)
			return 0;
		type = *header;
		offset += length;
	}
	return type ? 0 : offset;
}

/* UDP at `offset`: CONTINUE; STAYS for what is no G-PDU. End Markers follow theirs. */
INLINE int of_gtpu(struct xdp_md *ctx, struct load *l, __u32 offset)
{
	struct gtpu *gtpu = at(ctx, offset + UDP_LEN, GTPU_LEN);
	__u8 *first;
	__u32 inner;

	if (!gtpu || (gtpu->type != GTPU_G_PDU && gtpu->type != GTPU_END_MARKER))
		return STAYS;
	l->key = spread_hash(be32(ld32(&gtpu->teid)));
	inner = tpdu_of(ctx, offset + UDP_LEN, gtpu->flags);
	first = inner ? at(ctx, inner, 1) : 0;
	if (first && *first >> 4 == 4)
		of_flow(l, inner, 4);
	else if (first && *first >> 4 == 6)
		of_flow(l, inner, 6);
	return CONTINUE;
}

INLINE int is_gtpu_port(struct xdp_md *ctx, __u32 offset)
{
	struct udp *udp = at(ctx, offset, UDP_LEN);

	return udp && ld16(&udp->dst) == be16(GTPU_PORT);
}

/* ---- outer headers ---- */

INLINE int load4(struct xdp_md *ctx, struct load *l, __u32 l3)
{
	struct settings *cfg = &node_settings;
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);
	struct cached *to = 0;
	__u32 dst, l4;

	if (!ip)
		return STAYS;
	dst = ld32(&ip->dst);
	l4 = l3 + (ip->version_ihl & 0xf) * 4u;
	of_flow(l, l3, 4);
	if (!is_gtpu4(cfg, dst)) {
		if (!find_pool4(cfg, be32(dst)))
			to = steered_destination(cfg, dst, ~0ull, CACHE_IPV4);
		if (is_local4(be32(dst)) || (to && to->kind == TARGET_PASS))
			return STAYS;
		if (!to || to->kind != TARGET_GTP4D)
			return of_ue4(ctx, l, l3);
	}
	if (ip->protocol != NH_UDP)
		return STAYS;
	if (ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK)) {
		l->key = spread_flow4(ctx, l3);
		return CONTINUE;
	}
	return is_gtpu_port(ctx, l4) ? of_gtpu(ctx, l, l4) : STAYS;
}

/* Of an SRv6 packet, behind its SRH. */
INLINE int of_sid(struct xdp_md *ctx, struct load *l, __u32 l4, __u8 next)
{
	if (next == NH_ROUTING) {
		__u8 *srh = at(ctx, l4, SRH_LEN);

		if (!srh)
			return STAYS;
		next = srh[0];
		l4 += 8 + 8u * srh[1];
	}
	if (next == NH_IPV4)
		return of_ue4(ctx, l, l4);
	if (next == NH_IPV6)
		return of_ue6(ctx, l, l4);
	return next == NH_UDP && is_gtpu_port(ctx, l4) ? of_gtpu(ctx, l, l4) : CONTINUE;
}

INLINE int load6(struct xdp_md *ctx, struct load *l, __u32 l3)
{
	struct settings *cfg = &node_settings;
	struct ipv6 *ip = at(ctx, l3, IPV6_LEN);
	struct words dst;
	struct cached *to;
	__u32 index;
	__u8 next;

	if (!ip)
		return STAYS;
	copy16(&dst, &ip->dst);
	next = ip->next_header;
	if (is_gtpu6(cfg, &dst))
		return next == NH_UDP && is_gtpu_port(ctx, l3 + IPV6_LEN)
			       ? of_gtpu(ctx, l, l3 + IPV6_LEN)
			       : STAYS;
	of_flow(l, l3, 6);
	if (find_sid(cfg, &dst, &index)) {
		l->key = spread_flow(ctx, l3, 6);
		return of_sid(ctx, l, l3 + IPV6_LEN, next);
	}
	to = find_pool6(cfg, be64(dst.hi)) ? 0 : steered_destination(cfg, dst.hi, dst.lo, 0);
	if (is_local6(&dst) || (to && to->kind == TARGET_PASS))
		return STAYS;
	return of_ue6(ctx, l, l3);
}

/* CONTINUE with *l, or STAYS. */
GLOBAL int find_load(struct xdp_md *ctx, struct load *l)
{
	__u32 ifindex = ctx->ingress_ifindex, l3 = ETH_LEN, i;
	struct port *in = bpf_map_lookup_elem(&port, &ifindex);
	__u8 *eth = at(ctx, 0, ETH_LEN);
	__u16 type;

	if (!l || !in || !(in->flags & PORT_ATTACHED) || !eth || !is_for_port(in->mac, eth))
		return STAYS;
	type = ld16(eth + 12);
	for (i = 0; i < 2 && is_vlan(type); i++) {
		__u8 *tag = at(ctx, l3, VLAN_LEN);

		if (!tag)
			return STAYS;
		type = ld16(tag + 2);
		l3 += VLAN_LEN;
	}
	if (type == be16(TYPE_IPV4))
		return load4(ctx, l, l3);
	return type == be16(TYPE_IPV6) ? load6(ctx, l, l3) : STAYS;
}

/* ---- buckets ---- */

#define SPREAD_COUNT ((1ull << SPREAD_PLACE_SHIFT) - 1)

/* Counts a packet in, and says where it goes. The bucket moves with the packet that
 * finds all before it received: count and place are one word, so nobody's packet slips
 * in between. SPREAD_EMPTIES beside the place: there is no room for this one. */
INLINE __u32 enter_bucket(struct spread_bucket *b)
{
	__u64 word = __sync_fetch_and_add(&b->word, 1);
	__u32 place = word >> SPREAD_PLACE_SHIFT, next = *(volatile __u32 *)&b->next;
	__u32 empties = next & SPREAD_EMPTIES;

	next &= ~SPREAD_EMPTIES;
	if (next == place)
		return place;
	if ((word & SPREAD_COUNT) != *(volatile __u64 *)&b->done)
		return place | empties;
	if (__sync_val_compare_and_swap(&b->word, word + 1,
					(__u64)next << SPREAD_PLACE_SHIFT |
						(((word & SPREAD_COUNT) + 1))) != word + 1)
		return place;
	__sync_fetch_and_add(&b->moves, 1);
	return next;
}

/* It stays, or there is no room for it. */
INLINE void leave_bucket(struct spread_bucket *b)
{
	__sync_fetch_and_add(&b->word, -1ull);
}

/* Room in a queue: the kernel's is never full, where it would drop without a word. */
INLINE int enter_queue(struct spread_queue *q, __u32 room)
{
	__u64 sent = __sync_fetch_and_add(&q->sent, 1);

	if (sent - *(volatile __u64 *)&q->seen < room)
		return 1;
	*(volatile __u64 *)&q->seen = *(volatile __u64 *)&q->received;
	if (sent - *(volatile __u64 *)&q->seen < room)
		return 1;
	__sync_fetch_and_add(&q->sent, -1ull);
	__sync_fetch_and_add(&q->full, 1);
	return 0;
}

/* Into the queue at `place`: a verdict, or STAYS. */
INLINE int send_to(struct xdp_md *ctx, struct spread *s, __u32 place, __u32 bucket, __u32 flow)
{
	__u32 cpu = place & (SPREAD_SECOND - 1), index = 2 * cpu + !!(place & SPREAD_SECOND);
	struct spread_queue *q = bpf_map_lookup_elem(&spread_queue, &index);
	struct spread_ticket *ticket;

	if (!q)
		return STAYS;
	if (!enter_queue(q, place & SPREAD_EMPTIES ? 0 : s->room)) {
		count(&outcomes, REASON_QUEUE_FULL, frame_length(ctx));
		return XDP_DROP;
	}
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ticket)))
		goto no_room;
	ticket = (void *)(long)ctx->data;
	if ((void *)(ticket + 1) > (void *)(long)ctx->data_end)
		goto no_room;
	ticket->queue = index;
	ticket->bucket = bucket;
	ticket->flow = flow;
	return place & SPREAD_SECOND ? bpf_redirect_map(&spread_cpu2, cpu, 0)
				     : bpf_redirect_map(&spread_cpu, cpu, 0);
no_room:
	__sync_fetch_and_add(&q->sent, -1ull);
	return STAYS;
}

/* A verdict, or STAYS. */
INLINE int spread(struct xdp_md *ctx)
{
	__u32 zero = 0, index, flow = 0, place;
	struct spread *s = bpf_map_lookup_elem(&spread_settings, &zero);
	struct spread_bucket *b, *f = 0;
	struct load l = {};
	int verdict;

	if (!s || s->by == SPREAD_OFF || find_load(ctx, &l) == STAYS)
		return STAYS;
	if (s->by == SPREAD_FLOW && l.flow_at)
		l.key = spread_flow(ctx, l.flow_at, l.version);
	index = l.key % SPREAD_BUCKETS;
	b = bpf_map_lookup_elem(&spread_bucket, &index);
	if (!b)
		return STAYS;
	place = enter_bucket(b);
	if ((place & ~SPREAD_EMPTIES) == SPREAD_SPLIT) {
		flow = l.flow_at ? (__u32)spread_flow(ctx, l.flow_at, l.version) : l.key;
		flow = SPREAD_BUCKETS + flow % SPREAD_FLOW_BUCKETS;
		f = bpf_map_lookup_elem(&spread_bucket, &flow);
		if (f)
			place = enter_bucket(f) | (place & SPREAD_EMPTIES);
	}
	verdict = (place & ~SPREAD_EMPTIES) == SPREAD_HERE ? STAYS
							   : send_to(ctx, s, place, index, flow);
	if (verdict == STAYS || verdict == XDP_DROP) {
		leave_bucket(b);
		if (f)
			leave_bucket(f);
	}
	return verdict;
}

/* ---- the other end ---- */

INLINE void receive_from(__u32 index)
{
	struct spread_bucket *b = bpf_map_lookup_elem(&spread_bucket, &index);

	if (b)
		__sync_fetch_and_add(&b->done, 1);
}

/* What a queue brought, as it was received: 0, or -1. */
INLINE int take_ticket(struct xdp_md *ctx)
{
	struct spread_ticket *ticket = (void *)(long)ctx->data;
	__u32 index, bucket, flow;
	struct spread_queue *q;

	if ((void *)(ticket + 1) > (void *)(long)ctx->data_end)
		return -1;
	index = ticket->queue;
	bucket = ticket->bucket;
	flow = ticket->flow;
	q = bpf_map_lookup_elem(&spread_queue, &index);
	if (q)
		__sync_fetch_and_add(&q->received, 1);
	receive_from(bucket);
	if (flow)
		receive_from(flow);
	return bpf_xdp_adjust_head(ctx, sizeof(*ticket));
}

#endif
