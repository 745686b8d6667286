// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* What the data path reads in PFCP messages: for each message on the standard input,
 * which comes behind its length of two octets, an octet that says whether it is read, and
 * struct n4_message. internal/pfcp compares with what the daemon reads, with the same key of
 * hashes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skb.h"

static __u8 message[65536];
static __u16 length;
static const __u64 key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };

static void describe(void)
{
	__u32 i;

	for (i = 0; i < length; i++)
		fprintf(stderr, "%02x", message[i]);
	fputc('\n', stderr);
}

int main(void)
{

	make_buffer();
	MAKE_MAP(journey_state, 1); /* which place() voids */
	while (fread(&length, sizeof(length), 1, stdin) == 1) {
		struct xdp_md ctx = {};
		struct n4_message m = {};
		__u8 read;

		must(fread(message, 1, length, stdin) == length, "a message of %u octets", length);
		if (length > MAX_FRAME)
			length = MAX_FRAME;
		place(&ctx, message, length, HEADROOM);
		read = read_message(&ctx, &m, 0, length, key);
		fwrite(&read, sizeof(read), 1, stdout);
		fwrite(&m, sizeof(m), 1, stdout);
	}
	return 0;
}

#pragma clang attribute pop
