// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//go:build ignore

/* What the data path reads in PFCP messages: for each message on the standard input,
 * which comes behind its length of two octets, an octet that says whether it is read, and
 * struct n4_message. internal/pfcp compares with what the daemon reads, with the same key of
 * hashes. Built as a fuzzer, it finds messages that reach every branch, and writes each that
 * is read to the file N4_READ, behind its length. */
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

static void prepare(void)
{
	make_buffer();
	MAKE_MAP(journey_state, 1); /* which place() voids */
}

static __u8 read_one(struct n4_message *m)
{
	struct xdp_md ctx = {};

	if (length > MAX_FRAME)
		length = MAX_FRAME;
	place(&ctx, message, length, HEADROOM);
	return read_message(&ctx, m, 0, length, key);
}

#ifdef FUZZER
static FILE *taken;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	prepare();
	taken = fopen(getenv("N4_READ"), "w");
	must(taken != NULL, "N4_READ names no file to write");
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct n4_message m = {};

	length = size > MAX_FRAME ? MAX_FRAME : size;
	memcpy(message, data, length);
	if (read_one(&m)) {
		fwrite(&length, sizeof(length), 1, taken);
		fwrite(message, 1, length, taken);
		fflush(taken); /* libFuzzer ends without */
	}
	return 0;
}
#else
int main(void)
{
	prepare();
	while (fread(&length, sizeof(length), 1, stdin) == 1) {
		struct n4_message m = {};
		__u8 read;

		must(fread(message, 1, length, stdin) == length, "a message of %u octets", length);
		read = read_one(&m);
		fwrite(&read, sizeof(read), 1, stdout);
		fwrite(&m, sizeof(m), 1, stdout);
	}
	return 0;
}
#endif

#pragma clang attribute pop
