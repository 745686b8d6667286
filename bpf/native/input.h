/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The fuzzer's input as a stream of choices. When it is used up, numbers that
 * depend on the whole of it follow: short inputs make rich frames too. */
#ifndef CULVERT_NATIVE_INPUT_H
#define CULVERT_NATIVE_INPUT_H

#include "../lib/bytes.h"

struct input {
	const __u8 *p, *end;
	__u64 state;
};

static struct input input_of(const __u8 *data, size_t size)
{
	struct input in = { data, data + size, 0xcbf29ce484222325ull };
	size_t i;

	for (i = 0; i < size; i++)
		in.state = (in.state ^ data[i]) * 0x100000001b3ull;
	return in;
}

static __u32 next_number(struct input *in)
{
	in->state += 0x9E3779B97F4A7C15ull;
	__u64 z = (in->state ^ in->state >> 30) * 0xBF58476D1CE4E5B9ull;

	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z >> 32;
}

static __u8 take8(struct input *in)
{
	return in->p < in->end ? *in->p++ : next_number(in);
}
static __u16 take16(struct input *in)
{
	return take8(in) << 8 | take8(in);
}
static __u32 take32(struct input *in)
{
	return (__u32)take16(in) << 16 | take16(in);
}

/* 0..n-1; n at most 256 */
static __u32 pick(struct input *in, __u32 n)
{
	return take8(in) % n;
}

/* True in one of n. */
static int rarely(struct input *in, __u32 n)
{
	return take8(in) % n == n - 1;
}

static void take_octets(struct input *in, void *to, __u32 n)
{
	__u8 *p = to;

	while (n--)
		*p++ = take8(in);
}

#endif
