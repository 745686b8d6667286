/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The pure functions of bpf/lib, each beside another way to the same result. */
#ifndef CULVERT_NATIVE_LIB_H
#define CULVERT_NATIVE_LIB_H

#include "../lib/args_mob.h"
#include "../lib/csum.h"
#include "check.h"
#include "input.h"

static unsigned __int128 whole(struct u128 v)
{
	return (unsigned __int128)v.hi << 64 | v.lo;
}

static void check_bits(struct input *in)
{
	struct u128 v = { (__u64)take32(in) << 32 | take32(in),
			  (__u64)take32(in) << 32 | take32(in) };
	__u32 n = take8(in) & 127, width = 1 + (take8(in) & 63), offset = take8(in) % (129 - width);
	unsigned __int128 all = ~(unsigned __int128)0, mask;
	__u64 value = ((__u64)take32(in) << 32 | take32(in)) >> (64 - width);
	struct u128 clear;
	__u8 bytes[17];

	must(whole(shl128(v, n)) == whole(v) << n, "<< %u", n);
	must(whole(shr128(v, n)) == whole(v) >> n, ">> %u", n);
	must(whole(without128(v, tail128(n))) == (whole(v) & ~(all >> n)), "head %u", n);
	mask = (width == 64 ? (unsigned __int128)~0ull : ((unsigned __int128)1 << width) - 1)
	       << (128 - offset - width);
	clear = clear128(v, offset, width);
	must(whole(clear) == (whole(v) & ~mask), "clear %u bits at %u", width, offset);
	must(bits128(place128(clear, value, offset, width), offset, width) == value,
	     "%u bits at %u", width, offset);
	must((whole(place128(clear, value, offset, width)) & ~mask) == (whole(v) & ~mask),
	     "beside %u at %u", width, offset);
	st128(bytes + (n & 1), v);
	must(whole(ld128(bytes + (n & 1))) == whole(v) && bytes[n & 1] == v.hi >> 56,
	     "store and load");
}

static __u16 plain_sum(const __u8 *p, __u32 n)
{
	__u32 sum = 0, i;

	for (i = 0; i < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void check_checksums(struct input *in)
{
	__u8 header[20], ecn = take8(in) & 3, class;
	struct ipv4 *ip = (struct ipv4 *)header;
	__u32 word;
	struct ipv6 six = {};

	take_octets(in, header, 20);
	header[0] = 0x45;
	header[8] |= 1;
	st16(header + 10, 0);
	must(sum_fold(ipv4_sum(ip)) == be16(plain_sum(header, 20)), "sum of a header");
	st16(header + 10, be16(~plain_sum(header, 20)));
	ipv4_spend(ip);
	must(plain_sum(header, 20) == 0xffff, "checksum after a hop");
	ipv4_set_ecn(ip, ecn);
	must(plain_sum(header, 20) == 0xffff && (header[1] & 3) == ecn,
	     "checksum after a congestion mark");
	must(sum_fold(address_sum(header)) == be16(plain_sum(header, 16)), "sum of an address");
	must(sum_may_be(ipv4_sum(ip), sum_fold(ipv4_sum(ip))), "a sum is what it folds to");
	word = take32(in) & 0xffff;
	must(sum_may_be(ipv4_sum(ip), word) == (sum_fold(ipv4_sum(ip)) % 0xffff == word % 0xffff),
	     "a sum is %x", word);

	class = take8(in);
	word = take32(in);
	st32(&six, ipv6_first_word(class, word));
	must(ipv6_class(&six) == class && ipv6_flow(&six) == (word & 0xfffff),
	     "first word of IPv6");
	ipv6_set_ecn(&six, ecn);
	must(ipv6_class(&six) == ((class & 0xfc) | ecn) && ipv6_flow(&six) == (word & 0xfffff),
	     "congestion mark");
}

/* RFC 6040 figure 4, rows by the inner mark, columns by the outer one. */
static void check_ecn(void)
{
	static const int expected[4][4] = {
		/* inner Not-ECT */ { 0, 0, 0, -1 },
		/* inner ECT(1)  */ { 1, 1, 1, 3 },
		/* inner ECT(0)  */ { 2, 1, 2, 3 },
		/* inner CE      */ { 3, 3, 3, 3 },
	};
	int inner, outer;

	for (inner = 0; inner < 4; inner++)
		for (outer = 0; outer < 4; outer++)
			must(ecn_decapsulate(outer, inner) == expected[inner][outer],
			     "outer %d, inner %d", outer, inner);
}

static void check_args(struct input *in)
{
	__u8 qfi = take8(in) & 63, r = take8(in) & 1;
	__u32 session = take32(in);
	__u64 args = args_mob(qfi, r, session);

	must(!(args >> ARGS_MOB_BITS) && !(args >> 32 & 1), "40 bits, U not set");
	must(args_mob_qfi(args) == qfi && args_mob_r(args) == r &&
		     args_mob_session(args) == session,
	     "and back");
}

static void check_lib(struct input *in)
{
	check_bits(in);
	check_checksums(in);
	check_ecn();
	check_args(in);
}

#endif
