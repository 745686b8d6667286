/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the generator writes and the receiver compares: octets, the tag, numbers. */
#ifndef CULVERT_TRAFFIC_PACKET_H
#define CULVERT_TRAFFIC_PACKET_H

#include "traffic/tables.h"
#include "lib/headers.h"

INLINE __u32 frame_length(struct xdp_md *ctx)
{
	long length = (long)ctx->data_end - (long)ctx->data;

	return length;
}

INLINE __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

INLINE __u32 halves(__u32 word)
{
	return (word & 0xffff) + (word >> 16);
}

/* the Internet checksum's sum over a tag */
INLINE __u32 tag_sum(const struct traffic_tag *tag)
{
	return fold(halves(ld32(tag)) + halves(tag->sequence) + halves(tag->time));
}

INLINE __u32 mixed(__u32 x)
{
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

/* The number of a key that a packet has. The lead's are shared out among the
 * streams, so that packets of one flow are of one stream. */
INLINE __u32 number(const struct traffic_job *job, const struct traffic_key *key, __u32 stream,
		    __u32 sequence)
{
	__u32 bits = job->stream_bits & 31, count = key->count, at;

	if (count <= 1)
		return 0;
	at = key->lead ? sequence : sequence << bits | stream;
	if (key->random)
		at = mixed(at ^ key->salt);
	if (!key->lead)
		return key->random ? (__u64)at * count >> 32 : at % count;
	count = ((count - 1 - stream) >> bits) + 1;
	at = key->random ? (__u64)mixed(at + stream) * count >> 32 : at % count;
	return stream + (at << bits);
}

INLINE void find_numbers(const struct traffic_job *job, __u32 stream, __u32 sequence,
			 __u32 *numbers)
{
	for (int i = 0; i < TRAFFIC_KEYS; i++)
		numbers[i] = number(job, &job->key[i], stream, sequence);
}

#endif
