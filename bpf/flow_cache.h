/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* flow_cache: what conntrack (translated.h) and NetworkPolicies (netpol.h) answered about a flow. A
 * packet that finds its flow there reads one cache line and asks neither. A flow stays for
 * FLOW_CACHED_TICKS: then its next packet asks them, and netpol_flow so learns that the flow goes
 * on. So does the next packet of a flow that was displaced.
 *
 * Instead of a key an entry has a fingerprint: a keyed hash (settings.flow_key) of which two
 * flows have the same one with a probability of 2^-64, whoever chooses them. The sets are
 * chosen by a hash without a key: who makes collisions there has slower packets. */
#ifndef CULVERT_FLOW_CACHE_H
#define CULVERT_FLOW_CACHE_H

#include "skb.h"

/* Of two flows the upper 32 bits are the same with a probability of 2^-32: multilinear hashing
 * modulo 2^64, with one multiplication for two halves of words. One after the other: all at once
 * need more registers than there are. */
INLINE __u64 flow_sum(const __u64 *key, struct words *remote, __u32 ports, __u32 pod, __u32 kind)
{
	__u64 sum = key[0] + (key[1] + (__u32)remote->hi) * (key[2] + (remote->hi >> 32));

	opaque(sum);
	sum += (key[3] + (__u32)remote->lo) * (key[4] + (remote->lo >> 32));
	opaque(sum);
	sum += (key[5] + ports) * (key[6] + pod);
	opaque(sum);
	return (sum + key[7] * kind) >> 32;
}

/* The same for both directions, although these are in sets of their own. `pod` is the pod's
 * serial. */
INLINE __u64 flow_print(struct inner *in, __u32 direction, __u32 pod)
{
	struct words *remote = direction == INGRESS ? &in->src : &in->dst;
	__u32 ports = direction == INGRESS ? in->ports >> 16 | in->ports << 16 : in->ports;
	__u32 kind = in->version << 8 | in->protocol;
	const __u64 *key = node_settings.flow_key;
	__u64 half = flow_sum(key, remote, ports, pod, kind);

	opaque(half);
	return half | flow_sum(key + FLOW_KEYS / 2, remote, ports, pod, kind) << 32;
}

INLINE struct cached_flows *flow_cache_set(__u32 hash)
{
	__u32 sets = node_settings.flow_buckets * (FLOW_WAYS / FLOW_CACHE_WAYS);
	__u32 index = hash & (sets - 1);

	return bpf_map_lookup_elem(&flow_cache, &index);
}

/* Which way of the set is looked at first. */
INLINE __u32 flow_cache_way(__u32 hash)
{
	return hash >> 30;
}

INLINE int is_of_flow(struct cached_flow *at, __u64 state, __u64 print)
{
	return (*(volatile __u64 *)&at->sum ^ state) == print;
}

INLINE int is_current(__u64 state, __u32 now)
{
	return (__u16)(state - now) <= FLOW_CACHED_TICKS;
}

/* in->known is what is known of the packet's flow, as one of this pod; in->hash is made. */
INLINE void look_flow_up(struct inner *in, struct pod *p, __u32 direction)
{
	__u32 first = flow_cache_way(in->hash), now = tick(), i;
	struct cached_flows *set = flow_cache_set(in->hash);
	struct cached_flow *at;
	__u64 print, state;

	if (in->known_of == p->serial)
		return;
	print = flow_print(in, direction, p->serial);
	opaque(print);
	in->known_of = p->serial;
	in->print = print;
	in->known = 0;
	if (!set)
		return;
#pragma unroll
	for (i = 0; i < FLOW_CACHE_WAYS; i++) {
		at = &set->way[(first ^ i) % FLOW_CACHE_WAYS];
		state = *(volatile __u64 *)&at->state;
		if (is_of_flow(at, state, print) && is_current(state, now)) {
			in->known = state;
			return;
		}
	}
}

INLINE __u64 flow_answer(__u32 which, __u32 generation)
{
	return ((FLOW_ANSWERED | generation) & FLOW_ANSWER_MASK) << which;
}

/* Whether in->known has this answer (enum flow_answer_at), of this generation. */
INLINE int has_answer(struct inner *in, __u32 which, __u32 generation)
{
	return (in->known & FLOW_ANSWER_MASK << which) == flow_answer(which, generation);
}

/* The way of the set that the flow gets: its own, or one whose time is over, or the first. */
INLINE __u32 way_for(struct cached_flows *set, __u32 hash, __u64 print, __u32 now)
{
	__u32 first = flow_cache_way(hash), to = first, i;
	struct cached_flow *at;

#pragma unroll
	for (i = FLOW_CACHE_WAYS; i-- > 0;) {
		at = &set->way[(first ^ i) % FLOW_CACHE_WAYS];
		if (is_of_flow(at, at->state, print))
			return (first ^ i) % FLOW_CACHE_WAYS;
		if (!is_current(at->state, now))
			to = first ^ i;
	}
	return to % FLOW_CACHE_WAYS;
}

/* The state of the flow of in->print has these bits under the mask. Other CPUs may write the same
 * entry: of halves of two flows the sum is that of neither. */
GLOBAL int learn_state(struct inner *in, __u64 mask, __u64 bits)
{
	struct cached_flows *set;
	struct cached_flow *at;
	__u32 now = tick();

	if (!in)
		return 0;
	set = flow_cache_set(in->hash);
	if (!set)
		return 0;
	if (!in->known)
		in->known = (__u16)(now + FLOW_CACHED_TICKS);
	in->known = (in->known & ~mask) | bits;
	at = &set->way[way_for(set, in->hash, in->print, now)];
	*(volatile __u64 *)&at->sum = in->print ^ in->known;
	*(volatile __u64 *)&at->state = in->known;
	return 0;
}

/* The flow got this answer of this generation, or of a later one. */
INLINE void learn_answer(struct inner *in, __u32 which, __u32 generation)
{
	learn_state(in, FLOW_ANSWER_MASK << which, flow_answer(which, generation));
}

#endif
