/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 of IEs: the daemon computes the same (internal/dataplane/n4/repeat.go). Each
 * IE, with its header, is filled up with zeros to whole words. */
#ifndef CULVERT_N4_HASH_H
#define CULVERT_N4_HASH_H

#include "../packet.h"

/* A hash that is being computed. */
struct n4_sip {
	__u64 v[4];
	__u64 octets; /* so far */
};

INLINE __u64 turn_left(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

INLINE void sip_round(__u64 *v)
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = turn_left(v[1], 13) ^ v[0];
	v[3] = turn_left(v[3], 16) ^ v[2];
	v[0] = turn_left(v[0], 32) + v[3];
	v[2] += v[1];
	v[3] = turn_left(v[3], 21) ^ v[0];
	v[1] = turn_left(v[1], 17) ^ v[2];
	v[2] = turn_left(v[2], 32);
}

INLINE void sip_begin(struct n4_sip *h, const __u64 *key)
{
	h->v[0] = key[0] ^ 0x736f6d6570736575ull;
	h->v[1] = key[1] ^ 0x646f72616e646f6dull;
	h->v[2] = key[0] ^ 0x6c7967656e657261ull;
	h->v[3] = key[1] ^ 0x7465646279746573ull;
	h->octets = 0;
}

INLINE void sip_word(struct n4_sip *h, __u64 word)
{
	h->v[3] ^= word;
	sip_round(h->v);
	sip_round(h->v);
	h->v[0] ^= word;
	h->octets += sizeof(word);
}

/* Adds `length` octets from `from` on: 1; 0: they are too few or too many. */
GLOBAL int sip_add(struct xdp_md *ctx, struct n4_sip *h, __u32 from, __u32 length)
{
	__u32 i, rest = length % sizeof(__u64);
	void *words;

	if (!h || length < sizeof(__u64) || length > N4_REPEATED_OCTETS ||
	    h->octets + length > N4_REPEATED_OCTETS)
		return 0;
	for (i = 0; i < N4_REPEATED_OCTETS / sizeof(__u64) && i < length / sizeof(__u64); i++) {
		words = at(ctx, from + i * sizeof(__u64), sizeof(__u64));
		if (!words)
			return 0;
		sip_word(h, ld64(words));
	}
	words = at(ctx, from + length - sizeof(__u64), sizeof(__u64));
	if (!words)
		return 0;
	if (rest) /* the octets before them are in the word before */
		sip_word(h, ld64(words) >> (64 - 8 * rest));
	return 1;
}

/* The hash; 0: of nothing. */
INLINE __u64 sip_end(struct n4_sip *h)
{
	__u64 octets = h->octets;
	__u32 i;

	if (!octets)
		return 0;
	sip_word(h, octets << 56);
	h->v[2] ^= 0xff;
	for (i = 0; i < 4; i++)
		sip_round(h->v);
	return (h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3]) | 1;
}

#endif
