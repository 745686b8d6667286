// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Host routing by eBPF, as small as it can be: the baseline of `culvert bench overlay` that
 * leaves out the kernel's routing, as the fastest networks of pods do. At the host's end of a
 * pod's veth and at the uplink, a packet's destination says which Ethernet addresses it gets and
 * where it goes; nothing is checked or counted. A second program does the same with IP-in-IP around
 * the packets between nodes (RFC 2003, RFC 4213), for kernels that have no such device. No part of
 * the data path. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "lib/btf.h"
#include "lib/bytes.h"
#include "lib/csum.h"
#include "lib/headers.h"

#define TCX_NEXT -1 /* other programs, then the stack */

/* Newer (Linux 6.4) than headers that are in use. */
#ifndef BPF_F_ADJ_ROOM_DECAP_L3_MASK
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ull << 7)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ull << 8)
#endif

/* Where packets to an address go. */
struct host_route {
	__u32 ifindex;
	__u32 to_pod; /* into the namespace of the veth's other end */
	__u32 outer_src, outer_dst; /* of IP-in-IP, in network order; 0: none */
	__u8 dst[6], src[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct in6); /* IPv4: in the last 4 octets, behind zeros */
	__type(value, struct host_route);
	__uint(max_entries, 1024);
} host_route SEC(".maps");

/* The route of a packet that has a hop left, and one less from then on; or NULL. */
INLINE struct host_route *take_route(struct __sk_buff *skb, void *eth, void *end)
{
	struct ipv4 *ip4 = eth + ETH_LEN;
	struct ipv6 *ip6 = eth + ETH_LEN;
	struct in6 to = {};
	struct host_route *route;

	if (skb->protocol == be16(TYPE_IPV4) && (void *)(ip4 + 1) <= end && ip4->ttl > 1) {
		st32(&to.b[12], ld32(&ip4->dst));
		route = bpf_map_lookup_elem(&host_route, &to);
		if (route)
			ipv4_spend(ip4);
		return route;
	}
	if (skb->protocol == be16(TYPE_IPV6) && (void *)(ip6 + 1) <= end && ip6->hop_limit > 1) {
		copy16(&to, &ip6->dst);
		route = bpf_map_lookup_elem(&host_route, &to);
		if (route)
			ip6->hop_limit--;
		return route;
	}
	return 0;
}

INLINE int leave(void *eth, struct host_route *route)
{
	st64(eth, ld64(route->dst)); /* and the first half of src */
	st32(eth + 8, ld32(route->src + 2));
	return route->to_pod ? bpf_redirect_peer(route->ifindex, 0)
			     : bpf_redirect(route->ifindex, 0);
}

/* What has no route is the kernel's. */
SEC("tcx/ingress")
int host_route_skb(struct __sk_buff *skb)
{
	void *eth = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct host_route *route;

	if (eth + ETH_LEN > end)
		return TCX_NEXT;
	route = take_route(skb, eth, end);
	return route ? leave(eth, route) : TCX_NEXT;
}

/* The outer header of IP-in-IP goes, if there is one. 0 or -1. */
INLINE int pop_ipv4(struct __sk_buff *skb)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	void *eth = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv4 *ip = eth + ETH_LEN;

	if (skb->protocol != be16(TYPE_IPV4) || (void *)(ip + 1) > end || ip->version_ihl != 0x45)
		return 0;
	if (ip->protocol == NH_IPV4)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV4;
	else if (ip->protocol == NH_IPV6)
		flags |= BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	else
		return 0;
	return bpf_skb_adjust_room(skb, -IPV4_LEN, BPF_ADJ_ROOM_MAC, flags) ? -1 : 0;
}

/* An outer header around the packet. 0 or -1. */
INLINE int push_ipv4(struct __sk_buff *skb, struct host_route *route)
{
	struct ipv4 outer = {
		.version_ihl = 0x45,
		.length = be16(skb->len - ETH_LEN + IPV4_LEN),
		.fragment = be16(0x4000), /* DF */
		.ttl = 64,
		.protocol = skb->protocol == be16(TYPE_IPV4) ? NH_IPV4 : NH_IPV6,
		.src = route->outer_src,
		.dst = route->outer_dst,
	};

	outer.checksum = ~sum_fold(ipv4_sum(&outer));
	if (bpf_skb_adjust_room(skb, IPV4_LEN, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_LEN, &outer, sizeof(outer), 0) ? -1 : 0;
}

SEC("tcx/ingress")
int ip_in_ip_skb(struct __sk_buff *skb)
{
	struct host_route *route;
	void *eth, *end;

	if (pop_ipv4(skb))
		return TC_ACT_SHOT;
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (eth + ETH_LEN > end)
		return TCX_NEXT;
	route = take_route(skb, eth, end);
	if (!route)
		return TCX_NEXT;
	if (route->outer_dst && push_ipv4(skb, route))
		return TC_ACT_SHOT;
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (eth + ETH_LEN > end)
		return TC_ACT_SHOT;
	st16(eth + 12, skb->protocol); /* a header came or went */
	return leave(eth, route);
}

char _license[] SEC("license") = "Dual BSD/GPL";
