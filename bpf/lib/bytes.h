/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Loads and stores at any alignment, byte order, and 128-bit arithmetic on
 * IPv6 addresses. BPF needs the wide accesses spelled out: a struct of bytes
 * is copied byte by byte. */
#ifndef CULVERT_LIB_BYTES_H
#define CULVERT_LIB_BYTES_H

#include "../def/types.h"

#define INLINE static __attribute__((always_inline)) inline

/* Keeps the compiler from deriving a value anew, so that the verifier sees
 * the one that was checked. */
#ifdef __bpf__
#define opaque(x) asm volatile("" : "+r"(x))
#else
#define opaque(x) ((void)(x))
#endif

#ifdef __bpf__
#define DEFINE_ACCESS(bits)                        \
	INLINE __u##bits ld##bits(const void *p)   \
	{                                          \
		return *(const __u##bits *)p;      \
	}                                          \
	INLINE void st##bits(void *p, __u##bits v) \
	{                                          \
		*(__u##bits *)p = v;               \
	}
#else
#define DEFINE_ACCESS(bits)                         \
	INLINE __u##bits ld##bits(const void *p)    \
	{                                           \
		__u##bits v;                        \
		__builtin_memcpy(&v, p, sizeof(v)); \
		return v;                           \
	}                                           \
	INLINE void st##bits(void *p, __u##bits v)  \
	{                                           \
		__builtin_memcpy(p, &v, sizeof(v)); \
	}
#endif
DEFINE_ACCESS(16)
DEFINE_ACCESS(32)
DEFINE_ACCESS(64)

INLINE __u16 be16(__u16 x)
{
	return __builtin_bswap16(x);
}
INLINE __u32 be32(__u32 x)
{
	return __builtin_bswap32(x);
}
INLINE __u64 be64(__u64 x)
{
	return __builtin_bswap64(x);
}

/* 1 or 0, without a branch. */
INLINE __u64 is_not_0(__u64 x)
{
	__u64 y = x | -x;

	opaque(y); /* or a comparison would be made of it */
	return y >> 63;
}

/* 1 where a number below 2^63 is 0, without a branch: the verifier would go both ways. */
INLINE __u64 is_0(__u64 number)
{
	opaque(number);
	return (number - 1) >> 63;
}

INLINE void copy16(void *to, const void *from)
{
	st64(to, ld64(from));
	st64(to + 8, ld64(from + 8));
}

/* To a place that is only 4-aligned. */
INLINE void copy16_by4(void *to, const void *from)
{
	st32(to, ld32(from));
	st32(to + 4, ld32(from + 4));
	st32(to + 8, ld32(from + 8));
	st32(to + 12, ld32(from + 12));
}

INLINE int equal16(const void *a, const void *b)
{
	return ld64(a) == ld64(b) && ld64(a + 8) == ld64(b + 8);
}

/* An IPv6 address as a number. */
struct u128 {
	__u64 hi, lo;
};

INLINE struct u128 ld128(const void *p)
{
	return (struct u128){ be64(ld64(p)), be64(ld64(p + 8)) };
}

INLINE void st128(void *p, struct u128 v)
{
	st64(p, be64(v.hi));
	st64(p + 8, be64(v.lo));
}

/* n in 0..127. Without branches, of which the verifier would go both ways. */
INLINE struct u128 shl128(struct u128 v, __u32 n)
{
	__u64 far = -(__u64)(n >> 6 & 1);

	opaque(far);
	v.hi = (v.hi & ~far) | (v.lo & far);
	v.lo &= ~far;
	n &= 63;
	return (struct u128){ v.hi << n | v.lo >> 1 >> (63 - n), v.lo << n };
}

INLINE struct u128 shr128(struct u128 v, __u32 n)
{
	__u64 far = -(__u64)(n >> 6 & 1);

	opaque(far);
	v.lo = (v.lo & ~far) | (v.hi & far);
	v.hi &= ~far;
	n &= 63;
	return (struct u128){ v.hi >> n, v.lo >> n | v.hi << 1 << (63 - n) };
}

/* All bits but the first n, n in 0..127. */
INLINE struct u128 tail128(__u32 n)
{
	return shr128((struct u128){ ~0ull, ~0ull }, n);
}

INLINE struct u128 and128(struct u128 a, struct u128 b)
{
	return (struct u128){ a.hi & b.hi, a.lo & b.lo };
}

INLINE struct u128 or128(struct u128 a, struct u128 b)
{
	return (struct u128){ a.hi | b.hi, a.lo | b.lo };
}

/* The bits of v that `cleared` has not. */
INLINE struct u128 without128(struct u128 v, struct u128 cleared)
{
	return (struct u128){ v.hi & ~cleared.hi, v.lo & ~cleared.lo };
}

/* `width` bits from bit `offset` on; offset in 0..127, width in 1..64. */
INLINE __u64 bits128(struct u128 v, __u32 offset, __u32 width)
{
	return shl128(v, offset).hi >> ((64 - width) & 63);
}

/* Puts `value` (of `width` bits, 1..64) at bit `offset`, where v holds 0. */
INLINE struct u128 place128(struct u128 v, __u64 value, __u32 offset, __u32 width)
{
	struct u128 field = { value << ((64 - width) & 63), 0 };

	return or128(v, shr128(field, offset));
}

/* Clears `width` bits (1..64) from bit `offset` on. */
INLINE struct u128 clear128(struct u128 v, __u32 offset, __u32 width)
{
	return without128(v, shr128((struct u128){ ~0ull << ((64 - width) & 63), 0 }, offset));
}

#endif
