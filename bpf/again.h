/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A finished packet that is for this node again: it takes the journey once more, as if the
 * kernel had led it back (docs/reference/semantics.md section 3, "Again"). */
#ifndef CULVERT_AGAIN_H
#define CULVERT_AGAIN_H

#include "next_hop.h"
#include "port.h"

/* What is decapsulated meets steering, unless the kernel has a longer prefix for it. */
INLINE __u32 kind_of_target(struct packet *p)
{
	struct target *to = find_target(p->plan.dst.hi, p->plan.dst.lo,
					p->plan.family == 4 ? CACHE_IPV4 : 0, 0);
	struct route *route;

	if (!to || to->kind < TARGET_POLICY || to->kind > TARGET_CLASSES ||
	    to->kind == TARGET_LINK || to->kind == TARGET_POD)
		return 0;
	route = find_route(p);
	return route && route->bits > to->bits ? 0 : to->kind;
}

/* The kind of target that p->plan.dst is in the main table: TARGET_SID for SIDs and GTP-U
 * addresses; 0: the packet leaves. */
INLINE __u32 kind_of_ours(struct packet *p)
{
	struct settings *cfg = &node_settings;
	struct pool4 *four;
	struct pool6 *six;
	__u32 index;

	if (p->plan.family == 4) {
		if (is_gtpu4(cfg, ld32(&p->plan.dst)))
			return TARGET_SID;
		four = find_pool4(cfg, be32(ld32(&p->plan.dst)));
		if (four)
			return four->sessions ? TARGET_PDR : TARGET_TUNNEL;
	} else {
		if (find_sid(cfg, &p->plan.dst, &index) || is_gtpu6(cfg, &p->plan.dst))
			return TARGET_SID;
		six = find_pool6(cfg, be64(p->plan.dst.hi));
		if (six)
			return six->sessions ? TARGET_PDR : TARGET_TUNNEL;
	}
	return cfg->steered ? kind_of_target(p) : 0;
}

/* The same by the cache, which remembers what is for us; a route is remembered by
 * choose_adjacency. */
GLOBAL __u32 kind_again(struct packet *p)
{
	__u32 now = cache_generation(&node_settings), table = MAIN_TABLE, number, kind;
	struct cached *slot;
	struct words key;

	if (!p || p->plan.guarded || p->plan.table != MAIN_TABLE)
		return 0;
	key = route_key(p, &table);
	number = cache_index(key.hi, key.lo, table);
	slot = bpf_map_lookup_elem(&lookup_cache, &number);
	if (!slot)
		return 0;
	if (cache_holds(slot, key.hi, key.lo, table, now))
		return slot->index == ADJACENCY_OURS ? slot->kind : 0;
	kind = kind_of_ours(p);
	if (!kind)
		return 0;
	cache_fill(slot, key.hi, key.lo, table, now);
	slot->index = ADJACENCY_OURS;
	slot->kind = kind;
	return kind;
}

/* Of a port, for what it has let in before: who is inside of the domain steers into policies,
 * and steering by the port was for the frame. */
INLINE __u32 flags_again(__u32 flags)
{
	if (flags & PORT_SR)
		flags |= PORT_EDGE;
	return flags & ((1 << PORT_TABLE_SHIFT) - 1) & ~PORT_STEERED;
}

/* Whether the packet with a plan, for a target of this kind, takes the journey again. What a
 * UE sends leaves by a route or not at all. What is decapsulated may enter what the port's
 * roles let in. */
GLOBAL int may_go_again(struct packet *p, __u32 kind)
{
	__u32 ifindex;
	struct port *in;

	if (!p || (p->found.pdr && !p->plan.push))
		return 0;
	if (kind == TARGET_SID)
		return 1;
	ifindex = p->port.ifindex;
	in = p->plan.decapsulated && !p->plan.push ? bpf_map_lookup_elem(&port, &ifindex) : 0;
	return in && may_steer(flags_again(in->flags), kind);
}

/* The frame is as the kernel would have it: addresses as received, no tags. */
INLINE void take_again(struct xdp_md *ctx, struct packet *p, struct port *in)
{
	p->turn++;
	p->in.frame = frame_length(ctx);
	p->port.flags = flags_again(in->flags);
	if (p->plan.own) /* as it is configured here */
		p->port.flags &= ~PORT_ROLES;
	p->port.mac = 0;
	p->in.group = 0;
}

#endif
