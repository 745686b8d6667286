/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Headers as they are on the wire: offsets and numbers. */
#ifndef CULVERT_LIB_HEADERS_H
#define CULVERT_LIB_HEADERS_H

#include "bytes.h"

#define ETH_LEN 14
#define VLAN_LEN 4
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_ARP 0x0806
#define TYPE_VLAN 0x8100
#define TYPE_QINQ 0x88a8

#define IPV4_LEN 20
#define IPV6_LEN 40
#define UDP_LEN 8
#define GTPU_LEN 8
#define GTPU_OPTIONS_LEN 4
#define SRH_LEN 8
#define SEGMENT_LEN 16

#define GTPU_PORT 2152

enum next_header {
	NH_HOP_BY_HOP = 0,
	NH_ICMP = 1,
	NH_IGMP = 2,
	NH_IPV4 = 4,
	NH_TCP = 6,
	NH_UDP = 17,
	NH_IPV6 = 41,
	NH_ROUTING = 43,
	NH_FRAGMENT = 44,
	NH_NONE = 59,
	NH_ESP = 50,
	NH_AH = 51,
	NH_ICMPV6 = 58,
	NH_DESTINATION = 60,
	NH_SCTP = 132,
	NH_ETHERNET = 143,
};

struct ipv4 {
	__u8 version_ihl, tos;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u32 src, dst;
};

struct ipv6 {
	__u32 version_class_flow;
	__u16 payload_length;
	__u8 next_header, hop_limit;
	struct in6 src, dst;
};

struct udp {
	__u16 src, dst, length, checksum;
};

#define TCP_LEN 20
#define TCP_DATA_OFFSET 12
#define TCP_FLAGS 13
#define TCP_CHECKSUM 16
#define TCP_FIN 1
#define TCP_SYN 2
#define TCP_RST 4
#define TCP_ACK 0x10
enum tcp_option { TCP_OPTION_END, TCP_OPTION_NOP, TCP_OPTION_MSS };

struct gtpu {
	__u8 flags, type;
	__u16 length;
	__u32 teid;
};

struct srh {
	__u8 next_header, length, type, segments_left, last_entry, flags;
	__u16 tag;
};

#define SRH_TYPE 4
#define IPV4_DF 0x4000
#define IPV4_FRAGMENT_MASK 0x3fff /* MF and offset */
#define IPV4_OFFSET_MASK 0x1fff
#define IPV6_OFFSET_MASK 0xfff8 /* behind the fragment header's first two octets */
#define FRAGMENT_LEN 8

enum gtpu_type {
	GTPU_ECHO_REQUEST = 1,
	GTPU_ECHO_RESPONSE = 2,
	GTPU_ERROR_INDICATION = 26,
	GTPU_END_MARKER = 254,
	GTPU_G_PDU = 255,
};

#define GTPU_FLAG_PN 1
#define GTPU_FLAG_S 2
#define GTPU_FLAG_E 4
#define GTPU_OPTIONS 7
#define GTPU_VERSION1 0x30 /* version 1, PT 1 */
#define GTPU_EXT_CONTAINER 0x85

/* Of an IP header. */
INLINE int is_ipv6(const void *ip)
{
	return (*(const __u8 *)ip & 0xf0) == 0x60;
}

INLINE __u8 ipv6_class(const struct ipv6 *ip)
{
	return be32(ld32(&ip->version_class_flow)) >> 20;
}

INLINE __u32 ipv6_flow(const struct ipv6 *ip)
{
	return be32(ld32(&ip->version_class_flow)) & 0xfffff;
}

INLINE __u32 ipv6_first_word(__u8 class, __u32 flow)
{
	return be32(6u << 28 | (__u32) class << 20 | (flow & 0xfffff));
}

/* What the second word has behind the payload's length. */
INLINE __u32 ipv6_second_word(__u8 next_header, __u8 hop_limit)
{
	return (__u32)next_header << 16 | (__u32)hop_limit << 24;
}

/* A header with `payload` octets behind it, and the rest of its first two words. */
INLINE void write_ipv6(void *ip, __u32 first, __u32 second, __u16 payload, const void *src,
		       const void *dst)
{
	st32(ip, first);
	st32(ip + 4, second | be16(payload));
	copy16(ip + 8, src);
	copy16(ip + 24, dst);
}

/* IPv6, and an SRH of so many segments; 0: without one. */
INLINE __u32 srv6_length(__u32 srh_segments)
{
	return IPV6_LEN + (srh_segments ? SRH_LEN + SEGMENT_LEN * srh_segments : 0);
}

/* An SRH's octets before its n segments, and how many these are. */
INLINE __u64 srh_first_word(__u8 next_header, __u32 n, __u32 segments_left, __u16 tag)
{
	return next_header | 2 * n << 8 | SRH_TYPE << 16 | segments_left << 24 |
	       (__u64)(n - 1) << 32 | (__u64)be16(tag) << 48;
}

INLINE __u32 srh_segments(__u64 first_word)
{
	return (first_word >> 32 & 0xff) + 1;
}

#endif
