/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Internet checksum (RFC 1071, 1624). Sums are of 16-bit words as loaded:
 * byte order does not matter to a one's complement sum. */
#ifndef CULVERT_LIB_CSUM_H
#define CULVERT_LIB_CSUM_H

#include "headers.h"

/* `sum` is less than 2^48. */
INLINE __u16 sum_fold(__u64 sum)
{
	sum = (__u32)sum + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* RFC 1624 equation 3: what `checksum` covers changed by `change`, a sum of words that went,
 * each inverted, and of those that came. */
INLINE __u16 checksum_change(__u16 checksum, __u64 change)
{
	return ~sum_fold((__u64)(__u16)~checksum + change);
}

/* A word covered by `checksum` became another. */
INLINE __u16 checksum_update(__u16 checksum, __u16 from, __u16 to)
{
	return checksum_change(checksum, (__u64)(__u16)~from + to);
}

/* Of the 20 octets of an IPv4 header, its checksum field included. */
INLINE __u64 ipv4_sum(const struct ipv4 *ip)
{
	const void *p = ip;

	return (__u64)ld32(p) + ld32(p + 4) + ld32(p + 8) + ld32(p + 12) + ld32(p + 16);
}

/* Whether a sum can be one that folds to `field`: they are equal modulo 65535,
 * whose inverse modulo 2^64 tells multiples. Both zeros are taken for each
 * other. `sum` is less than 2^63. */
INLINE int sum_may_be(__u64 sum, __u16 field)
{
	return (sum + 0xffff - field) * 0xfffefffefffeffffull <= ~0ull / 0xffff;
}

/* Whether the sum of an IPv4 header says that it is as it was sent. */
INLINE int ipv4_holds(__u64 sum)
{
	return sum_may_be(sum, 0xffff);
}

/* Halves of words: no carry to take care of. Added up here and now: the compiler
 * would keep all of them for where the sum is needed. */
INLINE __u64 address_sum(const void *address)
{
	__u64 sum =
		(__u64)ld32(address) + ld32(address + 4) + ld32(address + 8) + ld32(address + 12);

	opaque(sum);
	return sum;
}

/* The pseudo-header without the addresses: length in host order, of 16 bits. */
INLINE __u64 pseudo_tail(__u32 length, __u8 protocol)
{
	return (__u64)be16(length) + ((__u64)protocol << 8);
}

/* Whether layer 4 has a checksum of its own over all its octets, so that their sum is known. The
 * frame has at least UDP_LEN of them. */
INLINE int vouches(const void *l4, __u32 length, __u8 protocol, __u8 icmp)
{
	if (length < UDP_LEN)
		return 0;
	if (protocol == NH_UDP)
		return ld16(l4 + 6) && be16(ld16(l4 + 4)) == length;
	return protocol == NH_TCP ? length >= TCP_LEN : protocol == icmp;
}

/* The sum over a packet, whose IP header sums to `header` without the addresses: what layer 4's
 * checksum covers sums to the complement of the pseudo-header, which has them as well. */
INLINE __u64 vouched_sum(__u64 header, __u32 length, __u8 protocol)
{
	return header + 2ULL * 0xffff - pseudo_tail(length, protocol); /* modulo 65535 */
}

/* Of an IPv4 packet without options, which is no fragment. What ICMP's covers sums to 0. 0: nothing
 * vouches. */
INLINE __u64 vouched_sum4(const struct ipv4 *ip, __u32 length)
{
	if (!vouches((void *)ip + IPV4_LEN, length - IPV4_LEN, ip->protocol, NH_ICMP))
		return 0;
	if (ip->protocol == NH_ICMP)
		return ipv4_sum(ip);
	return vouched_sum((__u64)ld32(ip) + ld32(&ip->id) + ld32(&ip->ttl), length - IPV4_LEN,
			   ip->protocol);
}

INLINE __u64 vouched_sum6(const struct ipv6 *ip, __u32 length)
{
	if (!vouches((void *)ip + IPV6_LEN, length - IPV6_LEN, ip->next_header, NH_ICMPV6))
		return 0;
	return vouched_sum((__u64)ld32(ip) + ld32(&ip->payload_length), length - IPV6_LEN,
			   ip->next_header);
}

/* IPv4: TTL and TOS change with the header checksum. The word that TTL is the
 * first octet of becomes less by one: equation 3 is an addition of one. */
INLINE void ipv4_spend(struct ipv4 *ip)
{
	__u32 checksum = ld16(&ip->checksum) + 1u;

	st16(&ip->checksum, checksum + (checksum >= 0xffff));
	ip->ttl--;
}

INLINE void ipv4_set_ecn(struct ipv4 *ip, __u8 ecn)
{
	__u16 from = ld16(ip);
	__u16 to = (from & ~0x0300) | (__u16)ecn << 8;

	st16(&ip->checksum, checksum_update(ld16(&ip->checksum), from, to));
	st16(ip, to);
}

INLINE void ipv6_set_ecn(struct ipv6 *ip, __u8 ecn)
{
	__u16 word = be16(ld16(ip));

	st16(ip, be16((word & ~0x30) | (__u16)ecn << 4));
}

/* What an inner packet's ECN becomes at decapsulation (RFC 6040 figure 4): 0..3, or -1 where the
 * packet must be dropped. The number is a table: an octet for each outer mark, from 0 in the lowest
 * one on, and in it two bits for each inner mark. */
INLINE int ecn_decapsulate(__u8 outer, __u8 inner)
{
	__u32 n = (outer & 3) << 2 | (inner & 3);

	return n == 3 << 2 ? -1 : (int)(0xfce4d4e4u >> 2 * n & 3);
}

/* Whether that is what it was. */
INLINE int ecn_stays(__u8 outer, __u8 inner)
{
	return !(outer & 3) || ecn_decapsulate(outer, inner) == (inner & 3);
}

#endif
