/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* netpol_cache: flows that netpol_flow knows and rules allow, for a packet that finds its flow
 * there in one cache line. A flow stays for FLOW_CACHED_TICKS: then its next packet goes to
 * netpol_flow, which so learns that the flow goes on. Nobody misses what is displaced.
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

	return bpf_map_lookup_elem(&netpol_cache, &index);
}

/* Which way of the set is looked at first. */
INLINE __u32 flow_cache_way(__u32 hash)
{
	return hash >> 30;
}

INLINE int is_cached_way(struct cached_flow *at, __u64 print, __u32 generation, __u32 now)
{
	__u64 state = *(volatile __u64 *)&at->state;

	return (*(volatile __u64 *)&at->sum ^ state) == print && state >> 32 == generation &&
	       (__u32)state - now <= FLOW_CACHED_TICKS;
}

/* Whether the rules of this generation allow the flow. */
INLINE int is_flow_cached(struct cached_flows *set, __u32 hash, __u64 print, __u32 generation,
			  __u32 now)
{
	__u32 first = flow_cache_way(hash), i;

#pragma unroll
	for (i = 0; i < FLOW_CACHE_WAYS; i++)
		if (is_cached_way(&set->way[(first ^ i) % FLOW_CACHE_WAYS], print, generation, now))
			return 1;
	return 0;
}

/* The rules of this generation, or of a later one, allow the flow. Other CPUs may write the
 * same entry: of halves of two flows the sum is that of neither. */
INLINE void cache_flow(struct cached_flows *set, __u32 hash, __u64 print, __u32 generation,
		       __u32 now)
{
	__u64 state = (__u64)generation << 32 | (now + FLOW_CACHED_TICKS);
	__u32 first = flow_cache_way(hash), to = first, i;
	struct cached_flow *at;

#pragma unroll
	for (i = FLOW_CACHE_WAYS; i-- > 0;) {
		at = &set->way[(first ^ i) % FLOW_CACHE_WAYS];
		if ((__u32)at->state - now > FLOW_CACHED_TICKS)
			to = first ^ i;
	}
	at = &set->way[to % FLOW_CACHE_WAYS];
	*(volatile __u64 *)&at->sum = print ^ state;
	*(volatile __u64 *)&at->state = state;
}

#endif
