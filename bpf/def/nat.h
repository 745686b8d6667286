/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NAT44 of UEs: what a packet needs to know, and the ports that are in use. */
#ifndef CULVERT_DEF_NAT_H
#define CULVERT_DEF_NAT_H

#include "types.h"

#define MAX_NATS 8

/* Network address and port translation of a pool's UEs (NAT44). The UE at position i of the
 * prefix has address i / blocks of the public ones, and there block i % blocks of the ports
 * from NAT_FIRST_PORT on. Addresses are in host order, times in units of 2^30 ns. */
struct nat {
	__u32 prefix, mask; /* of the UEs */
	__u32 address, address_mask; /* of the public addresses */
	__u32 buckets;       /* index of the first in nat_bucket */
	__u32 blocks;        /* of an address: as many UEs share it */
	__u32 block_buckets; /* of a block, of NAT_SLOTS ports each */
	__u32 udp, icmp, tcp, tcp_transitory; /* how long a mapping stays without packets */
	__u32 pad;
};

enum nat_limits {
	NAT_FIRST_PORT = 1024,
	NAT_SLOTS = 8,
	NAT_BUCKETS = (65536 - NAT_FIRST_PORT) / NAT_SLOTS, /* of an address and protocol */
	NAT_TIME_SHIFT = 30,
};

/* Protocols with ports of their own, in this order in nat_bucket. */
enum nat_protocol { NAT_UDP, NAT_TCP, NAT_ICMP, NAT_PROTOCOLS };

/* nat_bucket[index]: NAT_SLOTS external ports, one after another: index = buckets +
 * (protocol * public addresses + address) * NAT_BUCKETS + (port - NAT_FIRST_PORT) / NAT_SLOTS.
 * A slot is the UE's port << 48, NAT_* flags, and when the UE last sent by it; 0: free. */
#define NAT_USED (1ull << 40)
#define NAT_ESTABLISHED (1ull << 41) /* TCP: it carries data */
#define NAT_ENDED (1ull << 42) /* TCP: after a FIN or RST of the UE's the UE has sent no data */

struct nat_slots {
	__u64 slot[NAT_SLOTS];
};

#endif
