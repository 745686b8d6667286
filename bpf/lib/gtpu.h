/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* GTP-U on the wire (TS 29.281 section 5, TS 38.415 section 5.5.2). */
#ifndef CULVERT_LIB_GTPU_H
#define CULVERT_LIB_GTPU_H

#include "../def/tables.h"
#include "csum.h"

/* ---- the PDU Session Container, of 4 octets: a word as loaded, 0 for none ---- */

#define CONTAINER_LEN 4
#define CONTAINER_RQI 0x40 /* beside a QFI, downlink only */

/* The one to send. */
INLINE __u32 container_word(enum container kind, __u8 qfi)
{
	__u32 word = 0;

	if (kind == CONTAINER_UPLINK)
		word = 1 | 0x1000 | (__u32)(qfi & ~CONTAINER_RQI) << 16;
	else if (kind)
		word = 1 | (__u32)qfi << 16;
	opaque(word);
	return word;
}

/* 0: downlink, 1: uplink; others tell no QFI. */
INLINE __u32 container_type(__u32 word)
{
	return word >> 12 & 0xf;
}

INLINE __u8 container_qfi(__u32 word)
{
	return is_0(container_type(word) >> 1) * (word >> 16 & 0x3f);
}

INLINE __u8 container_rqi(__u32 word)
{
	return is_0(container_type(word)) & word >> 22;
}

/* ---- the header ---- */

/* Its first word, with `length` octets behind the first GTPU_LEN. */
INLINE __u32 gtpu_first_word(__u8 options, __u8 message, __u16 length)
{
	return GTPU_VERSION1 | options | (__u32)message << 8 | (__u32)be16(length) << 16;
}

/* Octets from UDP to the T-PDU. */
INLINE __u32 gtpu_length(__u32 container)
{
	return UDP_LEN + GTPU_LEN + (container ? GTPU_OPTIONS_LEN + CONTAINER_LEN : 0);
}

/* Writes it with what its first word says to have: a sequence number, in network order, and a
 * container. Adds it to the sum. 0, or -1 where there is no room. */
INLINE int write_gtpu(void *gtpu, void *end, __u32 first, __u32 teid, __u32 sequence,
		      __u32 container, __u64 *sum)
{
	__u32 options = sequence | (container ? (__u32)GTPU_EXT_CONTAINER << 24 : 0);

	if (gtpu + GTPU_LEN > end)
		return -1;
	st32(gtpu, first);
	st32(gtpu + 4, be32(teid));
	*sum += (__u64)first + be32(teid);
	if (!(first & GTPU_OPTIONS))
		return 0;
	if (gtpu + GTPU_LEN + GTPU_OPTIONS_LEN > end)
		return -1;
	st32(gtpu + 8, options);
	*sum += options;
	if (!container)
		return 0;
	if (gtpu + GTPU_LEN + GTPU_OPTIONS_LEN + CONTAINER_LEN > end)
		return -1;
	st32(gtpu + 12, container);
	*sum += container;
	return 0;
}

/* ---- what carries it ---- */

/* The ports of UDP to GTP-U, as a word. */
INLINE __u32 gtpu_ports(__u16 from)
{
	return be16(from) | (__u32)be16(GTPU_PORT) << 16;
}

/* IPv4 with DF, and UDP without a checksum: `length` octets with all behind it. */
INLINE void write_ipv4_udp(void *ip, __u8 tos, __u8 ttl, __be32 src, __be32 dst, __u32 length,
			   __u32 ports)
{
	__u64 sum;

	st32(ip, 0x45 | (__u32)tos << 8 | (__u32)be16(length) << 16);
	st32(ip + 4, be32(IPV4_DF)); /* ID 0 */
	st32(ip + 12, src);
	st32(ip + 16, dst);
	sum = (__u64)ld32(ip) + be32(IPV4_DF) + (ttl | NH_UDP << 8) + src + dst;
	st32(ip + 8, ttl | NH_UDP << 8 | (__u32)(__u16)~sum_fold(sum) << 16);
	st32(ip + 20, ports);
	st32(ip + 24, be16(length - IPV4_LEN));
}

/* UDP of `length` octets over IPv6. `sum` is that of the addresses, and of what is behind UDP. */
INLINE void write_udp6(void *udp, __u32 ports, __u32 length, __u64 sum)
{
	sum += (__u64)ports + be16(length) + pseudo_tail(length, NH_UDP);
	sum = (__u16)~sum_fold(sum);
	st32(udp, ports);
	st32(udp + 4, be16(length) | (sum ? sum : 0xffff) << 16);
}

#endif
