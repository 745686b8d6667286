/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The flow hash (docs/semantics.md section 3): entropy for UDP source ports and
 * flow labels, and the choice among weighted lists and next hops. */
#ifndef CULVERT_LIB_FLOW_H
#define CULVERT_LIB_FLOW_H

#include "headers.h"

#define FLOW_PRIME 0x9E3779B97F4A7C15ull

INLINE __u64 flow_mix(__u64 h, __u64 x)
{
	h = (h ^ x) * FLOW_PRIME;
	return h ^ h >> 32;
}

INLINE int flow_has_ports(__u8 protocol)
{
	return protocol == NH_TCP || protocol == NH_UDP || protocol == NH_SCTP;
}

INLINE __u32 flow_finish(__u64 h, __u8 protocol, __u32 ports)
{
	return flow_mix(h, (__u64)protocol << 32 | ports) >> 32;
}

INLINE __u64 flow_ipv4(const struct ipv4 *ip)
{
	return flow_mix(0, ld64(&ip->src));
}

INLINE __u64 flow_ipv6(const struct ipv6 *ip)
{
	__u64 h = flow_mix(0, ld64(&ip->src));

	h = flow_mix(h, ld64((void *)&ip->src + 8));
	h = flow_mix(h, ld64(&ip->dst));
	return flow_mix(h, ld64((void *)&ip->dst + 8));
}

/* Of a packet that is only switched: its own label is all there is. */
INLINE __u32 flow_of_label(__u32 label)
{
	return label * 0x9E3779B1u;
}

INLINE __u16 flow_port(__u32 hash)
{
	return 0xc000 | (hash & 0x3fff);
}

#endif
