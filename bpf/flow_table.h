/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* netpol_flow: the flows of all pods, in buckets of FLOW_WAYS. A new flow that finds its
 * bucket full takes the room of one that is over. If none is, the pod with the most flows
 * in the bucket gives up the one without packets for the longest time: a pod that opens
 * very many flows displaces its own. */
#ifndef CULVERT_FLOW_TABLE_H
#define CULVERT_FLOW_TABLE_H

#include "skb.h"

INLINE __u64 flow_mix(__u64 x)
{
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 32;
}

INLINE __u64 flow_hash_of(struct pod_flow_key *key)
{
	__u64 hash = flow_mix(ld64(&key->remote));

	hash = flow_mix(hash ^ ld64(&key->remote.b[8]));
	hash = flow_mix(hash ^ ((__u64)ld32(&key->local_port) << 32 | key->pod));
	return flow_mix(hash ^ key->protocol);
}

/* Never 0. */
INLINE __u32 flow_tag(__u64 hash)
{
	return hash >> 32 | 1;
}

INLINE struct pod_flow_bucket *flow_bucket(__u64 hash)
{
	__u32 index = hash & (node_settings.flow_buckets - 1);

	return bpf_map_lookup_elem(&netpol_flow, &index);
}

INLINE int is_flow(struct pod_flow *flow, struct pod_flow_key *key)
{
	__u64 differs = (ld64(&flow->key.remote) ^ ld64(&key->remote)) |
			(ld64(&flow->key.remote.b[8]) ^ ld64(&key->remote.b[8])) |
			(ld32(&flow->key.local_port) ^ ld32(&key->local_port)) |
			(flow->key.pod ^ key->pod) | (flow->key.protocol ^ key->protocol);

	return !differs;
}

INLINE struct pod_flow *find_flow(struct pod_flow_key *key)
{
	__u64 hash = flow_hash_of(key);
	struct pod_flow_bucket *b = flow_bucket(hash);
	__u32 i, tag = flow_tag(hash);
	int same;

	if (!b)
		return 0;
#pragma unroll
	for (i = 0; i < FLOW_WAYS; i++) {
		volatile __u32 *at = &b->tag[i];

		if (*at != tag)
			continue;
		same = is_flow(&b->flow[i], key);
		opaque(same); /* before the tag is read again: another flow may have the room */
		if (same && *at == tag)
			return &b->flow[i];
	}
	return 0;
}

/* What follows has few branches: the verifier goes every way through it. */

INLINE __u64 top_bit(__u64 x)
{
	x >>= 63;
	opaque(x); /* or a comparison would be made of it */
	return x;
}

/* 1 or 0. */
INLINE __u64 is_equal(__u32 a, __u32 b)
{
	return top_bit((__u64)(a ^ b) - 1);
}

/* 1: the flow is over. Clocks of CPUs, and those that are read coarsely, may be behind what
 * was seen. */
INLINE __u64 is_over(struct pod_flow *flow, __u32 now)
{
	__u64 tcp = is_equal(flow->key.protocol, NH_TCP), closing = flow->closing & tcp;
	__u64 for_s = FLOW_LASTS + tcp * (FLOW_LASTS_TCP - FLOW_LASTS) -
		      closing * (FLOW_LASTS_TCP - FLOW_LASTS_CLOSING);
	__s64 age = (__s32)(now - flow->seen);

	return top_bit(for_s - age);
}

/* How many flows of the pod are in the bucket. */
INLINE __u64 flows_of(struct pod_flow_bucket *b, __u32 pod)
{
	__u64 n = 0;
	__u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < FLOW_WAYS; i++)
		n += is_equal(b->flow[i].key.pod, pod);
	return n;
}

#define ROOM_IS_FREE (1ull << 62)

/* Who gives up its room: the flow with the highest number. Of those that are equally old, in
 * seconds, the one that was written first. */
INLINE __u64 gives_way(struct pod_flow_bucket *b, __u32 i, struct pod_flow *fresh)
{
	struct pod_flow *flow = &b->flow[i];
	__u32 pod = flow->key.pod, age = fresh->seen - flow->seen + 1;
	__u64 is_free = is_equal(b->tag[i], 0) | is_over(flow, fresh->seen);
	__u64 flows = flows_of(b, pod) + is_equal(pod, fresh->key.pod);
	__u64 written = (b->next - 1 - i) % FLOW_WAYS;

	return is_free * ROOM_IS_FREE | flows << 40 | (__u64)age << 3 | written;
}

/* Which room a new flow gets. *displaced: another flow had it, and lasts. */
INLINE __u32 room_for(struct pod_flow_bucket *b, struct pod_flow *fresh, int *displaced)
{
	__u64 most = 0, best = 0, score, more;
	__u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < FLOW_WAYS; i++) {
		score = gives_way(b, i, fresh);
		more = -top_bit(most - score);
		most ^= (most ^ score) & more;
		best ^= (best ^ i) & more;
	}
	*displaced = most < ROOM_IS_FREE;
	return best;
}

/* A flow that find_flow does not find. Whether one that lasts had to make room. */
GLOBAL int put_flow(struct pod_flow *fresh)
{
	struct pod_flow_bucket *b;
	int displaced = 0;
	__u32 room, tag;
	__u64 hash;

	if (!fresh)
		return 0;
	hash = flow_hash_of(&fresh->key);
	tag = flow_tag(hash);
	b = flow_bucket(hash);
	if (!b)
		return 0;
	bpf_spin_lock(&b->lock);
	room = room_for(b, fresh, &displaced) % FLOW_WAYS;
	__sync_lock_test_and_set(&b->tag[room], 0);
	b->flow[room] = *fresh;
	b->next = room + 1;
	__sync_lock_test_and_set(&b->tag[room], tag);
	bpf_spin_unlock(&b->lock);
	return displaced;
}

#endif
