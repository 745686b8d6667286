/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Exact counters that all CPUs share, in the cache line of what they count,
 * for one atomic addition. internal/dataplane/counter/volume.go reads them. */
#ifndef CULVERT_USAGE_H
#define CULVERT_USAGE_H

#include "def/tables.h"
#include "lib/bytes.h"

#define VOLUME_PACKET (1ull << 40)
#define VOLUME_BYTE_HALF (1ull << 39)
#define VOLUME_PACKET_HALF (1ull << 63)

/* Once in 2^39 bytes, or 2^23 packets. */
INLINE void volume_halves(struct volume *v, __u64 turned)
{
	if (turned & VOLUME_BYTE_HALF)
		__sync_fetch_and_add(&v->byte_halves, 1);
	if (turned & VOLUME_PACKET_HALF)
		__sync_fetch_and_add(&v->packet_halves, 1);
}

/* The octets of a volume, mod 2^64. A half that turned is counted right behind it. */
INLINE __u64 volume_octets(struct volume *v)
{
	__u64 halves = *(volatile __u32 *)&v->byte_halves;
	__u64 word = *(volatile __u64 *)&v->word;

	halves += (halves ^ word / VOLUME_BYTE_HALF) & 1;
	return halves * VOLUME_BYTE_HALF + (word & (VOLUME_BYTE_HALF - 1));
}

/* One packet, of fewer than 2^32 bytes. */
INLINE void volume_add(struct volume *v, __u32 bytes)
{
	__u64 add = VOLUME_PACKET + bytes;
	__u64 from = __sync_fetch_and_add(&v->word, add);
	__u64 turned = (from ^ (from + add)) & (VOLUME_BYTE_HALF | VOLUME_PACKET_HALF);

	if (turned)
		volume_halves(v, turned);
}

#endif
