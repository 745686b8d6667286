/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of a run, empty: their sizes, and how entries get into them. */
#ifndef CULVERT_NATIVE_TABLES_H
#define CULVERT_NATIVE_TABLES_H

#include "helpers.h"
#include "input.h"

#define PORTS 8       /* ifindex 1..PORTS */
#define CPUS 2
#define SIDS 64
#define POLICIES 8
#define LISTS 12
#define MOBILES 24
#define TUNNELS 24
#define ADJACENCIES 16
#define SOURCES 4
#define TEID_SLOTS 12 /* tunnel[1..12) by TEID; from 12 on by hash or prefix */
#define TABLE 100
#define PDRS 40
#define PDR_SLOTS 16 /* pdr[1..16) by TEID; then a pool of 8, and what only filters lead to */
#define FORWARDINGS 10
#define QUOTAS 4
#define FILTERS 24
#define METERS 6
#define SLICES 3
#define PODS 4
#define FLOW_BUCKETS 2
#define UE_BUCKET_BITS 1
#define CLASSIFIERS 4
#define WAYS (3 * CLASS_COLUMNS)
#define CLASSES 4
#define TRIE_BLOCKS 80 /* more than make_trie needs */

/* Links of Ethernet sessions: without a tag, and VLAN 100. */
#define LINK (3u << 12)
#define LINK_VLAN (LINK | 100)
#define FRAME_HEADS 3 /* the last entries of pdr: what comes by a link for a session */
#define FRAME_HEAD(n) (PDRS - FRAME_HEADS + (n) % FRAME_HEADS)
#define FRAME_SLOT(i) ((i) < PDR_SLOTS && (i) % 5 == 4) /* found by TEID */

static const __u8 locator_prefix[8] = { 0x20, 0x01, 0x0d, 0xb8, 0x01, 0x00 };
static const __u8 gtpu6_address[16] = { 0x20, 0x01, 0x0d, 0xb8, 0xff, [15] = 1 };
static const __u8 gtpu4_address[4] = { 192, 0, 2, 1 };

/* What frames are aimed at. */
struct aims {
	__u32 sids;
	struct in6 sid[SIDS];
	__u8 sid_length[SIDS];
};

static struct aims aims;

/* What outlives one. */
static struct {
	__u32 made;
	int disturbed;
} worlds;

#define VALUE(map, type, index) ((type *)map_of(&map)->values + (index))

static void make_maps(void)
{
	make_map_of(&node_settings, sizeof(node_settings));
	MAKE_MAP(port, PORTS + 4);
	MAKE_MAP(access, 4);
	MAKE_MAP(target_by_port, ENTRIES);
	MAKE_MAP(sid_by_prefix, ENTRIES);
	MAKE_MAP(local_sid, SIDS);
	MAKE_MAP(sid_counter, SIDS);
	MAKE_MAP(mobile, MOBILES);
	MAKE_MAP(limit_by_group, ENTRIES);
	MAKE_MAP(target_by_dst4, ENTRIES);
	MAKE_MAP(target_by_dst6, ENTRIES);
	MAKE_MAP(class_by_source, ENTRIES);
	MAKE_MAP(classifier, CLASSIFIERS);
	MAKE_MAP(class_way, WAYS);
	MAKE_MAP(class_counter, CLASSES);
	MAKE_MAP(pod, PODS);
	MAKE_MAP(overlay, 1);
	MAKE_MAP(netpol_peer, ENTRIES);
	MAKE_MAP(netpol_rule, ENTRIES);
	MAKE_MAP(netpol_flow, FLOW_BUCKETS);
	MAKE_MAP(flow_cache, FLOW_BUCKETS * (FLOW_WAYS / FLOW_CACHE_WAYS));
	MAKE_MAP(netpol_counter, PODS * NETPOL_COUNTS);
	MAKE_MAP(flow_budget, PODS * FLOW_DIRECTIONS);
	MAKE_MAP(flow_skip, 1);
	MAKE_MAP(lookup_cache, CACHE_SLOTS);
	MAKE_MAP(cached_route, CACHE_SLOTS);
	MAKE_MAP(trie_root, TRIE_ROOTS);
	MAKE_MAP(trie_block, TRIE_BLOCKS);
	MAKE_MAP(tunnel, TUNNELS);
	MAKE_MAP(tunnel_by_teid, ENTRIES);
	MAKE_MAP(pdr, PDRS);
	MAKE_MAP(refused, PDRS);
	MAKE_MAP(quota, QUOTAS);
	MAKE_MAP(pdr_by_teid, ENTRIES);
	MAKE_MAP(pdr_by_ue, ENTRIES);
	MAKE_MAP(ue_bucket, 1 << UE_BUCKET_BITS);
	MAKE_MAP(nat_bucket, NAT_PROTOCOLS * NAT_BUCKETS);
	MAKE_MAP(ue_reach, ENTRIES);
	MAKE_MAP(filter, FILTERS);
	MAKE_MAP(frame_filter, FILTERS);
	MAKE_MAP(station, ENTRIES);
	MAKE_MAP(forwarding, FORWARDINGS);
	MAKE_MAP(meter, METERS);
	MAKE_MAP(slice_counter, 2 * SLICES);
	MAKE_MAP(slice_meter, 2 * SLICES);
	MAKE_MAP(source, SOURCES);
	MAKE_MAP(sr_policy, POLICIES);
	MAKE_MAP(segment_list, LISTS);
	MAKE_MAP(list_counter, LISTS);
	MAKE_MAP(route4, ENTRIES);
	MAKE_MAP(route6, ENTRIES);
	MAKE_MAP(adjacency, ADJACENCIES);
	MAKE_MAP(shared_hop, ADJACENCIES);
	MAKE_MAP(outcomes, REASON_COUNT);
	MAKE_MAP(errors_left, 3);
	MAKE_MAP(trace_filter, 1);
	MAKE_MAP(journey_state, 1);
	MAKE_MAP(move_scratch, 1);
	MAKE_MAP(trace_scratch, 1);
	MAKE_MAP(device, PORTS + 4);
	MAKE_MAP(spread_settings, 1);
	MAKE_MAP(spread_bucket, SPREAD_BUCKETS + SPREAD_FLOW_BUCKETS);
	MAKE_MAP(spread_queue, 2 * CPUS);
	MAKE_MAP(spread_cpu, CPUS);
	MAKE_MAP(spread_cpu2, CPUS);
	MAKE_MAP(next_program, 1);
}

static void empty_maps(void)
{
	__u32 i;

	for (i = 0; i < map_count; i++) {
		struct native_map *m = maps[i];

		/* what was remembered of the world before has another generation */
		if (m == map_of(&lookup_cache) && !worlds.disturbed)
			continue;
		if (is_array(m) || m->type == BPF_MAP_TYPE_DEVMAP)
			memset(m->values, 0, m->max_entries * m->value_size);
		m->count = 0;
	}
	worlds.disturbed = 0;
	aims.sids = 0;
}

/* Into the first free place of a hash or trie. */
static void put(void *map, const void *key, const void *value)
{
	struct native_map *m = map_of(map);

	must(m->count < m->max_entries, "the map is full");
	memcpy(m->keys + m->count * m->key_size, key, m->key_size);
	memcpy(m->values + m->count++ * m->value_size, value, m->value_size);
}

static void put_target6(const void *addr, __u32 length, __u32 kind, __u32 index)
{
	struct lpm6_key key = { .prefixlen = 32 + length };
	struct target to = { kind, index, length };

	memcpy(&key.addr, addr, 16);
	put(&target_by_dst6, &key, &to);
}

static void put_target4(__u8 a, __u8 b, __u32 length, __u32 kind, __u32 index)
{
	struct lpm4_key key = { .prefixlen = 32 + length, .addr = be32((__u32)a << 24 | b << 16) };
	struct target to = { kind, index, length };

	put(&target_by_dst4, &key, &to);
}

static void any_sid_address(struct input *in, struct in6 *to)
{
	memcpy(to, locator_prefix, 8);
	to->b[6] = next_number(in) & 1;
	to->b[7] = next_number(in) % SIDS;
}

/* What a tunnel has counted before: for some, just so much that the next
 * packet turns the word's halves. */
static struct counter volume_start(__u32 index)
{
	return (struct counter){
		.packets = (index & 1) * ((1 << 23) - 1) + (index >> 1 & 1) * (1 << 23),
		.bytes = (index >> 2 & 1) * ((1ull << 39) - 1) + (index >> 3 & 1) * (1ull << 39),
	};
}

static struct volume volume_of(struct counter c)
{
	return (struct volume){
		.word = (c.packets << 40) + c.bytes,
		.byte_halves = c.bytes >> 39,
		.packet_halves = (c.packets + (c.bytes >> 40)) >> 23,
	};
}

/* The halves must agree with the word after each packet. */
static struct counter volume_count(const struct volume *v)
{
	struct counter c = { .bytes = (__u64)(v->byte_halves >> 1) << 40 |
				      (v->word & 0xffffffffff) };

	must((v->byte_halves & 1) == (v->word >> 39 & 1), "%u halves of bytes, word %llx",
	     v->byte_halves, v->word);
	must((v->packet_halves & 1) == v->word >> 63, "%u halves of packets, word %llx",
	     v->packet_halves, v->word);
	c.packets = ((__u64)(v->packet_halves >> 1) << 24 | v->word >> 40) - (c.bytes >> 40);
	return c;
}

#endif
