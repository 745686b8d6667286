/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow hash (docs/reference/semantics.md section 3): entropy for UDP source ports and
 * flow labels, and the choice among weighted lists and next hops. */
#ifndef CULVERT_LIB_FLOW_H
#define CULVERT_LIB_FLOW_H

#include "headers.h"

#define FLOW_PRIME1 0x9E3779B97F4A7C15ull
#define FLOW_PRIME2 0xC2B2AE3D27D4EB4Full
#define FLOW_PRIME3 0x165667B19E3779F9ull
#define FLOW_PRIME4 0xD6E8FEB86659FD93ull
#define FLOW_PRIME5 0xFF51AFD7ED558CCDull

INLINE int flow_has_ports(__u8 protocol)
{
	return protocol == NH_TCP || protocol == NH_UDP || protocol == NH_SCTP;
}

/* Whether the first octets of layer 4 tell flows apart: ports, or the SPI of ESP. */
INLINE int flow_has_word(__u8 protocol)
{
	return flow_has_ports(protocol) || protocol == NH_ESP;
}

/* What they tell: of GTP-U, whose ports are always the same, with the TEID. */
#define FLOW_WORD_LEN 16

INLINE __u32 flow_word(__u8 protocol, const void *l4)
{
	__u32 word = ld32(l4);

	return protocol == NH_UDP && word >> 16 == be16(GTPU_PORT) ? word ^ ld32(l4 + UDP_LEN + 4)
								   : word;
}

/* What IPv6 tells where layer 4 does not. */
INLINE __u32 flow_label(const struct ipv6 *ip)
{
	return ld32(ip) & be32(0xfffff);
}

/* The products do not wait for each other; h is the sum of those over the
 * addresses. */
INLINE __u32 flow_finish(__u64 h, __u8 protocol, __u32 word)
{
	h += ((__u64)protocol << 32 | word) * FLOW_PRIME5;
	h ^= h >> 32;
	return h * FLOW_PRIME1 >> 32;
}

INLINE __u64 flow_ipv4(const struct ipv4 *ip)
{
	return ld64(&ip->src) * FLOW_PRIME1;
}

INLINE __u64 flow_ipv6(const struct ipv6 *ip)
{
	return ld64(&ip->src) * FLOW_PRIME1 + ld64((void *)&ip->src + 8) * FLOW_PRIME2 +
	       ld64(&ip->dst) * FLOW_PRIME3 + ld64((void *)&ip->dst + 8) * FLOW_PRIME4;
}

INLINE __u32 flow_ethernet(const void *eth)
{
	return flow_finish(ld64(eth) * FLOW_PRIME1, 0, ld32(eth + 8));
}

/* Another hash of what has one, or a flow label. */
INLINE __u32 flow_again(__u32 hash)
{
	return hash * 0x9E3779B1u;
}

/* Which of FLOW_PARTS parts of all flows has one, whatever segment list it takes, and
 * whatever routers choose by its label. */
INLINE __u32 flow_part(__u32 hash)
{
	return hash * 0x85EBCA77u >> 26;
}

INLINE __u16 flow_port(__u32 hash)
{
	return 0xc000 | (hash & 0x3fff);
}

#endif
