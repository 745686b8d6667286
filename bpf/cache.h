/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tries of routes and steering, behind a small direct-mapped cache. */
#ifndef CULVERT_CACHE_H
#define CULVERT_CACHE_H

#include "packet.h"

/* Put into the table of an IPv4 address: whatever an IPv6 one looks like, it is
 * another. */
#define CACHE_IPV4 (1u << 31)
/* The same for what was found to be free for UEs to reach. */
#define CACHE_GUARDED (1u << 30)

/* The same for steering by the table of a port, whose ifindex follows. */
#define CACHE_PORT (1u << 29)

/* In lo of an IPv4 destination that is steered, before the adjacency of the route
 * that this leads to is known (express/mobile.h). */
#define CACHE_NO_ROUTE ~0ull

/* As the cache names a table of steering. */
INLINE __u32 cache_table(__u32 port)
{
	return port ? CACHE_PORT | port : 0;
}

/* The number of that slot. Neighbouring addresses, as in a pool or a network, have slots of their own:
 * the highest bits of their products with the golden ratio are far apart. So they are for addresses
 * whose distance is a small multiple of 2^16 or 2^32, as between IPv6 prefixes. */
INLINE __u32 cache_index(__u64 hi, __u64 lo, __u32 table)
{
	__u64 h = be64(hi) * 0x9E379E379E3779B1ull ^ be64(lo) * 0x9E3779B97F4A7C15ull;

	return (h / (~0ull / CACHE_SLOTS + 1) + table) % CACHE_SLOTS;
}

/* Where the answer for (address, table) is, or will be. */
INLINE struct cached *cache_slot(__u64 hi, __u64 lo, __u32 table)
{
	__u32 index = cache_index(hi, lo, table);

	return bpf_map_lookup_elem(&lookup_cache, &index);
}

/* Of IPv4 lo tells nothing. Table and generation are one word. */
INLINE int cache_holds4(struct cached *slot, __u64 hi, __u32 table, __u32 now)
{
	return slot->hi == hi && ld64(&slot->table) == ((__u64)now << 32 | table);
}

INLINE int cache_holds(struct cached *slot, __u64 hi, __u64 lo, __u32 table, __u32 now)
{
	return cache_holds4(slot, hi, table, now) && (table & CACHE_IPV4 || slot->lo == lo);
}

/* `now` was read before the trie was: a change in between makes this entry
 * old at once. */
INLINE void cache_fill(struct cached *slot, __u64 hi, __u64 lo, __u32 table, __u32 now)
{
	slot->hi = hi;
	slot->lo = lo;
	slot->table = table;
	slot->generation = now;
}

/* What the route of p->plan.dst is remembered by in a table of routes: `table` gets its family. */
INLINE struct words route_key(struct packet *p, __u32 *table)
{
	struct words key = { p->plan.dst.hi, p->plan.dst.lo };

	if (p->plan.family == 4) {
		key = (struct words){ (__u32)key.hi, ~0ull };
		*table |= CACHE_IPV4;
	}
	return key;
}

INLINE __u32 cache_generation(struct settings *cfg)
{
	return *(volatile __u32 *)&cfg->generation;
}

#endif
