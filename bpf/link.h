/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Ethernet header that a next hop asks for. */
#ifndef CULVERT_LINK_H
#define CULVERT_LINK_H

#include "def/adjacency.h"
#include "lib/headers.h"

/* VLAN tags of the link: two at most, whatever stands in the table. */
INLINE __u64 hop_tags(struct next_hop *hop)
{
	__u64 tags = hop->tags & 3;

	return tags - (tags & tags >> 1);
}

INLINE void write_addresses(void *eth, struct next_hop *hop)
{
	st64(eth, ld64(hop->dst)); /* and the first half of src */
	st32(eth + 8, ld32(hop->src + 2));
}

INLINE void write_tag(void *tag, struct next_hop *hop, int n)
{
	st16(tag, be16(hop->tpid[n]));
	st16(tag + 2, be16(hop->vlan[n]));
}

/* Addresses, the link's tags, and the type of what follows them. There is room for two tags. */
INLINE void write_link(void *eth, struct next_hop *hop, __u16 type)
{
	write_addresses(eth, hop);
	if (!hop->tags) {
		st16(eth + 12, be16(type));
	} else if (hop->tags == 1) {
		write_tag(eth + 12, hop, 0);
		st16(eth + 16, be16(type));
	} else {
		write_tag(eth + 12, hop, 0);
		write_tag(eth + 16, hop, 1);
		st16(eth + 20, be16(type));
	}
}

#endif
