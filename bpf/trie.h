/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the longest prefix that has an address says: of routes, of steering by destination, and of
 * what UEs may reach. */
#ifndef CULVERT_TRIE_H
#define CULVERT_TRIE_H

#include "cache.h"

_Static_assert((__u32)TRIE_IPV4 == CACHE_IPV4, "tables are named alike");

/* Where the first block of a table is, if its place is not another one's. */
INLINE __u32 trie_slot(__u32 table)
{
	return (table ^ table >> 22) % TRIE_ROOTS;
}

/* The leaf of an address, of which `octets` are the first, in network order. */
INLINE __u32 walk_trie(__u64 octets, __u32 table)
{
	__u32 leaf, index = trie_slot(table);
	struct trie_root *root = bpf_map_lookup_elem(&trie_root, &index);
	struct trie_block *block;
	__u64 word = root ? ld64(root) : 0; /* whole */
	int i;

	if ((__u32)word != table)
		return LEAF_ASK;
	leaf = word >> 32;
#pragma unroll
	for (i = 0; i < TRIE_OCTETS; i++) {
		if (!(leaf & LEAF_MORE))
			return leaf;
		index = leaf & ~LEAF_MORE;
		block = bpf_map_lookup_elem(&trie_block, &index);
		if (!block)
			return LEAF_ASK;
		leaf = *(volatile __u32 *)&block->leaf[octets >> 8 * i & 0xff];
	}
	return leaf & LEAF_MORE ? LEAF_ASK : leaf;
}

/* What a table of steering says of a destination, as struct target; NULL: nothing. The key of IPv4
 * is the first part of that of IPv6. */
INLINE struct target *find_target(__u64 hi, __u64 lo, __u32 family, __u32 table)
{
	struct lpm6_key key ALIGNED = { .prefixlen = family ? 64 : 160, .table = table };

	st64(&key.addr, hi);
	st64(&key.addr.b[8], lo);
	return family ? bpf_map_lookup_elem(&target_by_dst4, &key)
		      : bpf_map_lookup_elem(&target_by_dst6, &key);
}

/* The same by the trie: kind << 32 | index, 0: nothing. A function: mostly the cache holds it. */
GLOBAL __u64 target_of(__u64 hi, __u64 lo, __u32 family, __u32 table)
{
	__u32 leaf = walk_trie(hi, TRIE_TARGETS | family | table);
	__u64 kind = leaf >> LEAF_KIND_SHIFT;
	struct target *to;

	if (leaf != LEAF_ASK)
		return kind << 32 | (leaf & ((1u << LEAF_KIND_SHIFT) - 1));
	to = find_target(hi, lo, family, table);
	return to ? (__u64)to->kind << 32 | to->index : 0;
}

#endif
