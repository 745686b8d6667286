/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* trie_root and trie_block, which repeat tables of prefixes as internal/dataplane/lpm does, and
 * garbage in them. */
#ifndef CULVERT_NATIVE_TRIE_H
#define CULVERT_NATIVE_TRIE_H

#include "tables.h"

/* Of which tables, and what is put into their numbers. */
static const struct repeated {
	void *map;
	__u32 kind;
} repeated[] = {
	{ &route4, TRIE_IPV4 },
	{ &route6, 0 },
	{ &target_by_dst4, TRIE_TARGETS | TRIE_IPV4 },
	{ &target_by_dst6, TRIE_TARGETS },
	{ &ue_reach, TRIE_REACH },
};

#define REPEATED (sizeof(repeated) / sizeof(*repeated))
#define BITS_IN_TRIE (8 * TRIE_OCTETS) /* longer prefixes are LEAF_ASK */
#define NO_LENGTH 129 /* of a prefix */

/* Free blocks: the first, and the end. */
static struct {
	__u32 next, end;
} blocks;

/* The key of an entry: that of IPv4 ends with the first octets of the address. */
static struct lpm6_key key_of(const struct repeated *of, __u32 entry)
{
	struct native_map *m = map_of(of->map);
	struct lpm6_key key = {};

	memcpy(&key, m->keys + entry * m->key_size, m->key_size);
	return key;
}

/* As trie_root names a table. Both families are in ue_reach, and told apart by the table. */
static __u32 trie_table(const struct repeated *of, __u32 table)
{
	if (of->kind == TRIE_REACH)
		return TRIE_REACH | (table == 4 ? TRIE_IPV4 : 0);
	return of->kind | table;
}

static __u32 leaf_of(const struct repeated *of, const void *value)
{
	const struct target *to = value;
	const struct route *r = value;

	if (of->kind == TRIE_REACH)
		return *(const __u32 *)value;
	if (of->kind & TRIE_TARGETS)
		return to->index >> LEAF_KIND_SHIFT ? LEAF_ASK
						    : to->kind << LEAF_KIND_SHIFT | to->index;
	return r->count == 1 ? r->adjacency[0] : LEAF_ASK;
}

/* The block that a leaf leads to, at first one whose leaves say the same; NULL: there is no room
 * for it. */
static struct trie_block *block_below(__u32 *leaf)
{
	struct trie_block *b;
	__u32 i;

	if (*leaf & LEAF_MORE)
		return VALUE(trie_block, struct trie_block, *leaf & ~LEAF_MORE);
	if (blocks.next >= blocks.end) {
		*leaf = LEAF_ASK;
		return 0;
	}
	b = VALUE(trie_block, struct trie_block, blocks.next);
	for (i = 0; *leaf && i < 256; i++) /* they are 0 */
		b->leaf[i] = *leaf;
	*leaf = LEAF_MORE | blocks.next++;
	return b;
}

/* Shorter prefixes are there already, and none that is longer. */
static void put_leaf(__u32 table, const __u8 *address, __u32 length, __u32 leaf)
{
	struct trie_root *root = VALUE(trie_root, struct trie_root, trie_slot(table));
	__u32 *at = &root->leaf, depth, rest, first, i;
	struct trie_block *b;

	if (root->leaf ? root->table != table : blocks.next >= blocks.end)
		return; /* its place is another one's, or there is no room */
	root->table = table;
	for (depth = 0;; depth++) {
		b = block_below(at);
		if (!b)
			return;
		if (length <= 8 * (depth + 1) || depth == TRIE_OCTETS - 1)
			break;
		at = &b->leaf[address[depth]];
	}
	rest = length < 8 * (depth + 1) ? 8 * (depth + 1) - length : 0;
	first = address[depth] >> rest << rest;
	for (i = first; i < first + (1u << rest); i++)
		b->leaf[i] = length > BITS_IN_TRIE ? LEAF_ASK : leaf;
}

/* All prefixes of a length; of the same ones a look-up finds the first. Returns the next length. */
static __u32 repeat_prefixes(const struct repeated *of, __u32 length)
{
	struct native_map *m = map_of(of->map);
	__u32 i = m->count, next = NO_LENGTH;

	while (i--) {
		struct lpm6_key key;
		__u32 other = *(__u32 *)(m->keys + i * m->key_size) - 32;

		if (other > length && other < next)
			next = other;
		if (other != length)
			continue;
		key = key_of(of, i);
		put_leaf(trie_table(of, key.table), key.addr.b, length,
			 leaf_of(of, m->values + i * m->value_size));
	}
	return next;
}

/* In some worlds there is not room for all. */
static void make_trie(struct input *in)
{
	__u32 n = next_number(in), length, next, i;

	blocks.next = 1;
	blocks.end = n & 3 ? TRIE_BLOCKS : 1 + (n >> 2) % TRIE_BLOCKS;
	for (i = 0; i < REPEATED; i++)
		for (length = 0; length < NO_LENGTH; length = next)
			next = repeat_prefixes(&repeated[i], length);
}

/* Where a table of prefixes leads an address that is near one of its own, a walk does as well, or
 * it asks the table. With garbage it must end somewhere. */
static void check_walk(struct input *in, int disturbed)
{
	const struct repeated *of = &repeated[pick(in, REPEATED)];
	struct native_map *m = map_of(of->map);
	struct lpm6_key key = key_of(of, pick(in, m->count));
	__u32 table = trie_table(of, key.table), bit = pick(in, 128), leaf;
	const void *found;

	key.addr.b[bit / 8] ^= (pick(in, 2) ? 255 : 128) >> bit % 8;
	if (table & TRIE_IPV4)
		memset(key.addr.b + 4, 0, 12);
	key.prefixlen = 32 + (table & TRIE_IPV4 ? 32 : 128);
	leaf = walk_trie(ld64(&key.addr), table);
	found = bpf_map_lookup_elem(of->map, &key);
	must(!(leaf & LEAF_MORE), "table %x leads to one block more", table);
	must(disturbed || leaf == LEAF_ASK || leaf == (found ? leaf_of(of, found) : 0),
	     "table %x says %x of %016llx", table, leaf, be64(ld64(&key.addr)));
}

/* A block may lead to one that there is not, or back to itself, from all of its leaves. */
static void disturb_trie(struct input *in)
{
	struct trie_block *b = VALUE(trie_block, struct trie_block, pick(in, TRIE_BLOCKS));
	__u32 leaf = pick(in, 2) ? LEAF_MORE | pick(in, TRIE_BLOCKS + 4) : take32(in), i;

	for (i = 0; i < 256; i++)
		b->leaf[i] = leaf;
}

#endif
