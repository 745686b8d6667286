// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Host routing by eBPF, as small as it can be: the baseline of `culvert bench overlay` that
 * leaves out the kernel's routing, as the fastest networks of pods do. At the host's end of a
 * pod's veth and at the uplink, a packet's destination says which Ethernet addresses it gets and
 * where it goes; nothing is checked, counted or encapsulated. No part of the data path. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "lib/bytes.h"
#include "lib/csum.h"
#include "lib/headers.h"

#define TCX_NEXT -1 /* other programs, then the stack */

/* Where packets to an address go. */
struct host_route {
	__u32 ifindex;
	__u32 to_pod; /* into the namespace of the veth's other end */
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

/* What has no route is the kernel's. */
SEC("tcx/ingress")
int host_route_skb(struct __sk_buff *skb)
{
	void *eth = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct host_route *route;

	if (eth + ETH_LEN > end)
		return TCX_NEXT;
	route = take_route(skb, eth, end);
	if (!route)
		return TCX_NEXT;
	st64(eth, ld64(route->dst)); /* and the first half of src */
	st32(eth + 8, ld32(route->src + 2));
	return route->to_pod ? bpf_redirect_peer(route->ifindex, 0)
			     : bpf_redirect(route->ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
