/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Routes, steering and what UEs may reach once more, for a walk of a few loads: see trie.h and
 * internal/dataplane/lpm. */
#ifndef CULVERT_DEF_TRIE_H
#define CULVERT_DEF_TRIE_H

#include "types.h"

/* Tables of prefixes as trie_root names them: a kernel table id, TRIE_TARGETS | a table of
 * steering, or TRIE_REACH; for IPv4 with TRIE_IPV4. */
enum trie_table {
	TRIE_TARGETS = 1 << 29,
	TRIE_REACH = 1 << 30,
	TRIE_IPV4 = 1u << 31,
};

/* What one octet of an address leads to. Of a route it is the index of an adjacency, of steering a
 * target: its kind << LEAF_KIND_SHIFT | its index, and of TRIE_REACH an enum reach. 0: no prefix
 * has the address. */
enum trie_leaf {
	TRIE_ROOTS = 1024,
	TRIE_OCTETS = 8, /* of an address; leaves with longer prefixes are LEAF_ASK */
	LEAF_KIND_SHIFT = 27, /* 4 bits */
	LEAF_ASK = 0x7fffffff, /* the table of prefixes itself tells */
	LEAF_MORE = 1u << 31, /* another block, with this index */
};

/* trie_root[trie_slot()]: the first block of a table. Tables without one are LEAF_ASK. */
struct trie_root {
	__u32 table;
	__u32 leaf;
};

/* trie_block[index]: a leaf for each value of an octet, each a word that changes whole. */
struct trie_block {
	__u32 leaf[256];
};

#endif
