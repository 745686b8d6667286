/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the finished packet goes: an adjacency that something matched already
 * names, the mirrored routes, or the kernel's own lookup. */
#ifndef CULVERT_NEXT_HOP_H
#define CULVERT_NEXT_HOP_H

#include "link.h"
#include "payload.h"
#include "trie.h"

/* See again.h. */
GLOBAL __u32 kind_again(struct packet *p);
GLOBAL int may_go_again(struct packet *p, __u32 kind);

#define AF_INET4 2
#define AF_INET6 10

INLINE struct route *find_route(struct packet *p)
{
	if (p->plan.family == 6) {
		struct lpm6_key key = { .prefixlen = 160, .table = p->plan.table };

		copy16(&key.addr, &p->plan.dst);
		return bpf_map_lookup_elem(&route6, &key);
	}
	struct lpm4_key key = { .prefixlen = 64,
				.table = p->plan.table,
				.addr = ld32(&p->plan.dst) };

	return bpf_map_lookup_elem(&route4, &key);
}

/* One of the next hops. */
INLINE __u32 hop_of_flow(struct route *route, __u32 hash)
{
	__u64 i = hash % route->count;

	opaque(i);
	return i < MAX_NEXT_HOPS ? route->adjacency[i] : 0;
}

GLOBAL int choose_adjacency(struct xdp_md *ctx, struct packet *p)
{
	struct words key;
	__u32 now, table, number, index;
	struct settings *cfg = &node_settings;
	struct cached *slot;
	struct route *route, *several;
	int held;

	if (!p)
		return 0;
	now = cache_generation(cfg);
	table = p->plan.table | (p->plan.guarded ? CACHE_GUARDED : 0);
	key = route_key(p, &table);
	number = cache_index(key.hi, key.lo, table);
	slot = bpf_map_lookup_elem(&lookup_cache, &number);
	several = bpf_map_lookup_elem(&cached_route, &number);
	if (!slot || !several)
		return 0;
	held = cache_holds(slot, key.hi, key.lo, table, now);
	index = slot->index;
	if (!held || index == ADJACENCY_OURS) {
		index = walk_trie(key.hi, p->plan.table | (table & CACHE_IPV4));
		route = index == LEAF_ASK ? find_route(p) : 0;
		opaque(route); /* whether there is one is asked of it alone */
		if (route)
			index = route->count == 1 ? route->adjacency[0] : 0;
		if (route ? !route->count : !index || index == LEAF_ASK)
			return 0;
		if (held) {
			several = route ?: several;
		} else {
			cache_fill(slot, key.hi, key.lo, table, now);
			slot->index = index;
			if (!index && route)
				*several = *route;
		}
	}
	if (index)
		return index;
	if (!p->plan.hashed)
		p->plan.hash =
			flow_hash(ctx, p->plan.keep, p->plan.keep_length, p->plan.keep_version);
	return hop_of_flow(several, p->plan.hash);
}

/* The next hop of a flow, of an adjacency that flows share; 0: they do not. */
GLOBAL int shared_adjacency(__u32 index, __u32 hash)
{
	struct adjacency *adj = bpf_map_lookup_elem(&adjacency, &index);
	struct shared_hop *shared = bpf_map_lookup_elem(&shared_hop, &index);

	if (!adj || !shared || adj->half[adj->current & 1].flags != NEXT_HOP_SHARED)
		return 0;
	return *(volatile __u32 *)&shared->adjacency[flow_part(hash)];
}

/* 1: p->out.hop is true. */
INLINE int use_adjacency(struct xdp_md *ctx, struct packet *p, __u32 index)
{
	struct adjacency *adj = bpf_map_lookup_elem(&adjacency, &index);
	struct next_hop *hop;

	if (!adj)
		return 0;
	hop = &adj->half[adj->current & 1];
	if (hop->flags == NEXT_HOP_SHARED) {
		if (!p->plan.hashed)
			p->plan.hash = flow_hash(ctx, p->plan.keep, p->plan.keep_length,
						 p->plan.keep_version);
		index = shared_adjacency(index, p->plan.hash);
		if (!index)
			return 0;
		p->plan.adjacency = index;
		adj = bpf_map_lookup_elem(&adjacency, &index);
		if (!adj)
			return 0;
		hop = &adj->half[adj->current & 1];
	}
	if (!(hop->flags & NEXT_HOP_READY))
		return 0;
	p->out.hop = *hop;
	p->out.to_kernel = hop->flags & NEXT_HOP_PASS;
	return 1;
}

/* Whether the kernel would not send it on: GTP-U over IPv4 comes to it from outside
 * with our own address as its source. (What quotes nothing is a frame, of which
 * the slow path could tell nobody.) */
INLINE int martian(struct packet *p)
{
	return p->plan.push == PUSH_GTPU4 && p->plan.quote;
}

/* Whether the kernel may refuse to send it on: IPv4 from a tunnel comes to it by the
 * interface of the outer packet, where a strict reverse path filter drops what it would
 * send back by another one. To a device that XDP cannot redirect to only the kernel sends. */
INLINE int filtered(struct packet *p, struct bpf_fib_lookup *fib)
{
	__u32 ifindex = fib->ifindex;

	return p->plan.family == 4 && p->plan.edit == EDIT_INNER && p->plan.keep > p->in.l3 &&
	       p->plan.quote && bpf_map_lookup_elem(&device, &ifindex);
}

/* The daemon has the neighbour resolved, and sends the frame in again, or an
 * error about what it quotes: the kernel would look into its main table, or drop
 * the packet and say nothing. */
INLINE int resolve_neighbour(struct packet *p, struct bpf_fib_lookup *fib)
{
	if (!error_allowed()) {
		p->out.to_kernel = p->plan.table == MAIN_TABLE;
		return p->out.to_kernel ? 0 : REASON_NO_NEIGHBOUR;
	}
	p->out.hop.ifindex = fib->ifindex;
	if (fib->family == AF_INET6) { /* also an IPv4 packet's (RFC 8950) */
		p->plan.family = 6;
		copy16_by4(&p->plan.dst, fib->ipv6_dst);
	} else {
		st32(&p->plan.dst, fib->ipv4_dst);
	}
	p->end.punt = PUNT_NEIGHBOUR;
	p->error.l3 = p->plan.quote;
	return REASON_SLOW_PATH;
}

/* Whether the daemon has to send it, by its socket: what a session sends to a control
 * plane that only the kernel reaches, as by an interface without XDP. */
INLINE int is_for_socket(struct packet *p)
{
	__u32 index = p->found.rule.forwarding;
	struct forwarding *f;

	if (!p->out.to_kernel || !p->found.pdr)
		return 0;
	f = bpf_map_lookup_elem(&forwarding, &index);
	return f && f->control;
}

INLINE int give_to_socket(struct packet *p)
{
	p->end.punt = PUNT_SEND;
	p->error.info = p->found.pdr;
	p->error.l3 = p->plan.quote;
	return REASON_SLOW_PATH;
}

/* What sessions, policies and tunnels send is for others: the kernel would drop it, and
 * say nothing. */
INLINE int is_for_others(struct packet *p)
{
	return p->plan.push || p->found.pdr || p->found.from_pdr;
}

/* The kernel forwards nothing, and looks nothing up: the daemon finds the route, and has the
 * neighbour resolved. */
INLINE int resolve_route(struct packet *p)
{
	if (p->out.to_kernel || p->plan.table != MAIN_TABLE || p->plan.quote < ETH_LEN ||
	    !error_allowed())
		return REASON_NO_FORWARDING;
	p->out.hop.ifindex = 0;
	p->end.punt = PUNT_NEIGHBOUR;
	p->error.l3 = p->plan.quote;
	return REASON_SLOW_PATH;
}

/* Codes of ICMP6_UNREACHABLE. */
#define NO_ROUTE_THERE 0
#define PROHIBITED 1
#define ADDRESS_UNREACHABLE 3

/* The sender hears of it, unless it is a frame's, or beyond the anchor of a session. */
INLINE int unreachable(struct packet *p, enum reason reason, __u8 code)
{
	if (p->plan.quote >= ETH_LEN && (p->found.from_ue || !p->plan.onward))
		icmp(p, p->plan.quote, ICMP6_UNREACHABLE, code, 0);
	return reason;
}

/* The kernel's answer; 0 or a reason. */
GLOBAL int ask_kernel(struct xdp_md *ctx, struct packet *p)
{
	struct bpf_fib_lookup fib = {};
	__u32 flags = 0;
	long ret;

	if (!p || !p->plan.table) /* a given adjacency that is not ready */
		return REASON_NO_NEIGHBOUR;
	if (is_for_socket(p))
		return give_to_socket(p);
	fib.ifindex = p->port.ifindex;
	fib.tot_len = p->plan.length;
	if (p->plan.family == 6) {
		fib.family = AF_INET6;
		copy16_by4(fib.ipv6_dst, &p->plan.dst);
		copy16_by4(fib.ipv6_src, &p->plan.src);
	} else {
		fib.family = AF_INET4;
		fib.ipv4_dst = ld32(&p->plan.dst);
		fib.ipv4_src = ld32(&p->plan.src);
	}
	if (p->plan.table != MAIN_TABLE) {
		fib.tbid = p->plan.table;
		flags = BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID;
	}
	ret = bpf_fib_lookup(ctx, &fib, sizeof(fib), flags);
	if (ret == BPF_FIB_LKUP_RET_NO_NEIGH &&
	    (p->plan.table != MAIN_TABLE || martian(p) || filtered(p, &fib)))
		return resolve_neighbour(p, &fib);
	if (ret == BPF_FIB_LKUP_RET_FWD_DISABLED && is_for_others(p))
		return resolve_route(p);
	if (p->out.to_kernel)
		return 0;
	__builtin_memset(&p->out.hop, 0, sizeof(p->out.hop));
	switch (ret) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		p->out.hop.ifindex = fib.ifindex;
		__builtin_memcpy(p->out.hop.dst, fib.dmac, 6);
		__builtin_memcpy(p->out.hop.src, fib.smac, 6);
		return 0;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		p->out.hop.mtu = fib.mtu_result;
		return 0;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
		return REASON_UNREACHABLE;
	case BPF_FIB_LKUP_RET_UNREACHABLE:
		return unreachable(p, REASON_UNREACHABLE, ADDRESS_UNREACHABLE);
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return unreachable(p, REASON_UNREACHABLE, PROHIBITED);
	case BPF_FIB_LKUP_RET_NOT_FWDED:
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		/* the kernel would look into its main table */
		if (p->plan.table != MAIN_TABLE && ret == BPF_FIB_LKUP_RET_NOT_FWDED)
			return unreachable(p, REASON_NO_ROUTE, NO_ROUTE_THERE);
		if (p->plan.table != MAIN_TABLE)
			return REASON_NO_NEIGHBOUR;
		p->out.to_kernel = 1;
		return 0;
	}
	return REASON_NO_ROUTE;
}

/* Fills in p->out.hop, or p->out.to_kernel, with p->out.again; 0 or a reason. */
GLOBAL int find_next_hop(struct xdp_md *ctx, struct packet *p)
{
	__u32 index, kind;

	if (!p)
		return REASON_NO_ROUTE;
	index = p->plan.adjacency;
	if (!index && p->plan.table) {
		kind = kind_again(p);
		p->out.again = kind && may_go_again(p, kind);
		index = p->out.again ? 0 : choose_adjacency(ctx, p);
	}
	p->out.to_kernel = p->out.again;
	if (p->out.again)
		return 0;
	if (index && use_adjacency(ctx, p, index)) {
		if (p->out.to_kernel && p->plan.table != MAIN_TABLE)
			return REASON_NO_NEIGHBOUR;
		if (!p->out.to_kernel)
			return 0;
	}
	kind = p->plan.adjacency ? kind_again(p) : 0;
	p->out.again = kind && may_go_again(p, kind);
	if (!p->out.again)
		return ask_kernel(ctx, p);
	p->out.to_kernel = 1;
	return 0;
}

#endif
