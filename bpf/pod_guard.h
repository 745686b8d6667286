/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a pod may send: packets from its own addresses, untagged, and none of the
 * messages that only routers send. Whoever is root in a pod can make any frame, so
 * that nothing here relies on the pod's stack. */
#ifndef CULVERT_POD_GUARD_H
#define CULVERT_POD_GUARD_H

#include "skb.h"

#define ND_ROUTER_ADVERTISEMENT 134
#define ND_ADVERTISEMENT 136
#define ND_REDIRECT 137
#define POD_EXTENSIONS 4 /* headers in front of layer 4 */

struct arp {
	__be16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__be16 operation;
	__u8 sender_mac[6], sender[4];
} __attribute__((packed));

INLINE int is_mac_of(struct pod *from, const __u8 *mac)
{
	return ld32(mac) == ld32(from->mac) && ld16(mac + 4) == ld16(from->mac + 4);
}

/* ARP from and about the pod; a probe (RFC 5227) has no sender's address. */
INLINE int guard_arp(struct __sk_buff *skb, struct pod *from)
{
	struct arp *arp;

	skb_need(skb, ETH_LEN + sizeof(*arp));
	arp = skb_at(skb, ETH_LEN, sizeof(*arp));
	if (!arp || !is_mac_of(from, arp->sender_mac))
		return REASON_POD_SOURCE;
	return ld32(arp->sender) && ld32(arp->sender) != from->ip4 ? REASON_POD_SOURCE : 0;
}

/* fe80::/64 with the MAC (RFC 4291 appendix A): what the kernel gives the pod's end. */
INLINE int is_link_local_of(struct pod *from, const __u8 *address)
{
	const __u8 *mac = from->mac;

	return ld64(address) == be64(0xfe80000000000000ull) &&
	       ld32(address + 8) ==
		       be32((__u32)(mac[0] ^ 2) << 24 | mac[1] << 16 | mac[2] << 8 | 0xff) &&
	       ld32(address + 12) == be32(0xfe000000u | mac[3] << 16 | mac[4] << 8 | mac[5]);
}

/* Stays on the link: ff02::/16, fe80::/10. */
INLINE int is_link_scope(const __u8 *address)
{
	return ld16(address) == be16(0xff02) || is_link_local(address);
}

INLINE int is_own6(struct pod *from, const __u8 *address)
{
	return ld64(address) | ld64(address + 8) && ld64(address) == ld64(from->ip6.b) &&
	       ld64(address + 8) == ld64(from->ip6.b + 8);
}

INLINE int guard_source6(struct pod *from, struct ipv6 *ip)
{
	const __u8 *src = (const __u8 *)&ip->src;
	int none = !(ld64(src) | ld64(src + 8));

	if (is_own6(from, src))
		return 0;
	/* no address while one is tried, and from listeners to multicast (RFC 4862, 3810) */
	return is_link_scope((const __u8 *)&ip->dst) && (none || is_link_local_of(from, src))
		       ? 0
		       : REASON_POD_SOURCE;
}

/* No message of routers, and none about others' addresses (RFC 4861). */
INLINE int guard_icmp6(struct __sk_buff *skb, struct pod *from, __u32 at)
{
	__u8 *message, *target;

	skb_need(skb, at + 24);
	message = skb_at(skb, at, 1);
	if (!message || *message == ND_ROUTER_ADVERTISEMENT || *message == ND_REDIRECT)
		return REASON_POD_FRAME;
	if (*message != ND_ADVERTISEMENT)
		return 0;
	target = skb_at(skb, at + 8, 16);
	return target && (is_own6(from, target) || is_link_local_of(from, target))
		       ? 0
		       : REASON_POD_SOURCE;
}

/* Behind the extension headers: no routing header, in no fragment either, and no message
 * of routers. */
INLINE int guard_payload6(struct __sk_buff *skb, struct pod *from, __u8 next)
{
	__u32 at = ETH_LEN + IPV6_LEN, i, length;
	__u8 *header;

	for (i = 0; i < POD_EXTENSIONS; i++) {
		if (next == NH_ROUTING)
			return REASON_SR_DOMAIN_EDGE;
		if (next != NH_HOP_BY_HOP && next != NH_DESTINATION && next != NH_FRAGMENT &&
		    next != NH_AH)
			return next == NH_ICMPV6 ? guard_icmp6(skb, from, at) : 0;
		skb_need(skb, at + 8);
		header = skb_at(skb, at, 8);
		if (!header)
			return REASON_EXTENSION_CHAIN;
		length = next == NH_FRAGMENT ? 8
			 : next == NH_AH     ? (header[1] + 2) * 4
					     : 8 + header[1] * 8;
		if (next == NH_FRAGMENT && ld16(header + 2) & be16(0xfff8)) /* not the first */
			return header[0] == NH_ROUTING ? REASON_SR_DOMAIN_EDGE : 0;
		next = header[0];
		at += length;
	}
	return REASON_EXTENSION_CHAIN;
}

INLINE int guard_ipv4(struct __sk_buff *skb, struct pod *from)
{
	struct ipv4 *ip;

	skb_need(skb, ETH_LEN + IPV4_LEN);
	ip = skb_at(skb, ETH_LEN, IPV4_LEN);
	if (!ip)
		return REASON_IPV4_MALFORMED;
	return from->ip4 && ld32(&ip->src) == from->ip4 ? 0 : REASON_POD_SOURCE;
}

INLINE int guard_ipv6(struct __sk_buff *skb, struct settings *cfg, struct pod *from)
{
	struct ipv6 *ip;
	int reason;

	skb_need(skb, ETH_LEN + IPV6_LEN);
	ip = skb_at(skb, ETH_LEN, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	if (in_domain(cfg, &ip->dst))
		return REASON_SR_DOMAIN_EDGE;
	reason = guard_source6(from, ip);
	return reason ? reason : guard_payload6(skb, from, ip->next_header);
}

/* 0, or the reason why a frame of the pod is dropped. */
GLOBAL int guard_pod(struct __sk_buff *skb, __u32 index)
{
	struct pod *from = bpf_map_lookup_elem(&pod, &index);
	__u8 *eth = skb_at(skb, 0, ETH_LEN);

	if (!from || !eth || !is_mac_of(from, eth + 6))
		return REASON_POD_SOURCE;
	if (skb->vlan_present)
		return REASON_POD_FRAME;
	switch (be16(skb->protocol)) {
	case TYPE_IPV4:
		return guard_ipv4(skb, from);
	case TYPE_IPV6:
		return guard_ipv6(skb, &node_settings, from);
	case TYPE_ARP:
		return guard_arp(skb, from);
	}
	return REASON_POD_FRAME;
}

#endif
