/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What culvert_pod and culvert_uplink have in common: packets that a stack has
 * made, or GRO has put together, and that have to stay whole. What is unusual is
 * left to the kernel, which knows how, or says why not. */
#ifndef CULVERT_SKB_H
#define CULVERT_SKB_H

#include "router.h"

#define TC_NEXT -1 /* TCX_NEXT: other programs, then the stack */
#define TC_DROP 2
#define TC_REDIRECT 7

/* skb->pkt_type: by the Ethernet address. */
#define HOST_PACKET 0
#define OTHERHOST_PACKET 3

/* A pod's packet. */
struct inner {
	struct words src, dst; /* IPv4: the first 4 octets, lo is ~0 */
	__u32 ports, hash;
	__u32 length; /* of layer 3, as it is: perhaps of many packets together */
	__u32 l4;     /* offset of layer 4 */
	__u8 version, protocol, class, hops;
	__u8 fragment;
	__u8 class_index; /* class_counter; 0: none */
	__u16 l3; /* offset of layer 3 */
	__u32 tenant; /* its table; 0: the node's */
	__u8 flow;    /* enum flow_kind: whether it has a record */
	__u8 tcp_flags; /* as far as records of flows are wanted */
	__u16 list;     /* segment_list that it leaves by; 0: none */
	/* look_flow_up(): the serial of the pod whose flow it is, the flow's fingerprint, and the
	 * state of its entry in flow_cache; 0: it has none. */
	__u32 known_of;
	__u64 print, known;
};

/* IPv4-mapped for IPv4. */
INLINE void put_inner_address(struct in6 *to, struct words *from, __u8 version)
{
	if (version == 4) {
		st64(to, 0);
		st32(&to->b[8], be32(0xffff));
		st32(&to->b[12], from->hi);
	} else {
		copy16(to, from);
	}
}

/* `size` octets at `offset`, or NULL. */
INLINE void *skb_at(struct __sk_buff *skb, __u32 offset, __u32 size)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;

	opaque(data);
	opaque(offset);
	if (offset > MAX_OFFSET)
		return 0;
	data += offset;
	if (data + size > end)
		return 0;
	return data;
}

/* Has the first `length` octets, or all if there are fewer, in one piece. Payload
 * that comes along costs a copy, and the receiver's stack its joining of packets:
 * nothing behind the headers is asked for. */
INLINE void skb_need(struct __sk_buff *skb, __u32 length)
{
	void *data = (void *)(long)skb->data;

	opaque(data);
	if (length > skb->len)
		length = skb->len;
	opaque(length);
	if (length <= MAX_OFFSET && data + length > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, length);
}

/* Coarse time, in ticks (TICK_SHIFT). It takes no call to read it. */
INLINE __u32 tick(void)
{
	return bpf_jiffies64() >> TICK_SHIFT;
}

/* How many packets it is on the wire. */
INLINE __u32 skb_packets(struct __sk_buff *skb)
{
	__u32 n = skb->gso_segs;

	return n ? n : 1;
}

INLINE void count_packets(void *map, __u32 index, __u32 packets, __u32 bytes)
{
	struct counter *c = bpf_map_lookup_elem(map, &index);

	if (c) {
		c->packets += packets;
		c->bytes += bytes;
	}
}

/* The one way out: a verdict that is not the stack's or a drop is given as it
 * is. */
INLINE int skb_finish(__u32 reason, __u32 packets, __u32 bytes)
{
	count_packets(&outcomes, reason, packets, bytes);
	if (reason == REASON_FORWARDED)
		return TC_REDIRECT;
	return reason == REASON_PASSED ? TC_NEXT : TC_DROP;
}

/* To the length that the header tells, unless that cannot be told there. 0 or -1. */
INLINE int shorten(struct inner *in, __u32 length)
{
	if (length > in->length)
		return -1;
	if (in->length <= 0xffff)
		in->length = length;
	return 0;
}

/* What an IPv4 header says of its packet. */
INLINE void inner_of4(struct ipv4 *ip, __u32 offset, struct inner *in)
{
	in->src = (struct words){ .hi = ld32(&ip->src), .lo = ~0ull };
	in->dst = (struct words){ .hi = ld32(&ip->dst), .lo = ~0ull };
	in->version = 4;
	in->protocol = ip->protocol;
	in->class = ip->tos;
	in->hops = ip->ttl;
	in->fragment = !!(ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK));
	in->l4 = offset + (ip->version_ihl & 0xf) * 4u;
}

INLINE void inner_of6(struct ipv6 *ip, __u32 offset, struct inner *in)
{
	copy16(&in->src, &ip->src);
	copy16(&in->dst, &ip->dst);
	in->version = 6;
	in->protocol = ip->next_header;
	in->class = ipv6_class(ip);
	in->hops = ip->hop_limit;
	in->fragment = ip->next_header == NH_FRAGMENT;
	in->l4 = offset + IPV6_LEN;
}

INLINE int read_inner4(struct __sk_buff *skb, __u32 offset, struct inner *in)
{
	struct ipv4 *ip = skb_at(skb, offset, IPV4_LEN);
	__u32 header;

	if (!ip || ip->version_ihl >> 4 != 4)
		return -1;
	header = (ip->version_ihl & 0xf) * 4u;
	if (header < IPV4_LEN || shorten(in, be16(ld16(&ip->length))) || in->length < header)
		return -1;
	if (offset == ETH_LEN && header == IPV4_LEN && !ipv4_holds(ipv4_sum(ip)))
		return -1; /* as it was sent; a packet that comes out of another one is its receiver's */
	inner_of4(ip, offset, in);
	return 0;
}

INLINE int read_inner6(struct __sk_buff *skb, __u32 offset, struct inner *in)
{
	struct ipv6 *ip = skb_at(skb, offset, IPV6_LEN);

	if (!ip || !is_ipv6(ip) || shorten(in, IPV6_LEN + be16(ld16(&ip->payload_length))))
		return -1;
	inner_of6(ip, offset, in);
	return 0;
}

/* What tells the flow of the packet at in->l3 apart beside its addresses, as flow_hash(). */
INLINE __u32 inner_word(struct __sk_buff *skb, __u8 version, struct inner *in)
{
	struct ipv6 *ip = version == 6 ? skb_at(skb, in->l3, IPV6_LEN) : 0;
	__u32 label = ip ? flow_label(ip) : 0;
	void *word;

	if (in->fragment || !flow_has_word(in->protocol))
		return label;
	word = skb_at(skb, in->l4, FLOW_WORD_LEN);
	if (word && in->l4 + FLOW_WORD_LEN <= in->l3 + in->length)
		return flow_word(in->protocol, word);
	word = skb_at(skb, in->l4, 4);
	return word && in->l4 + 4 <= in->l3 + in->length ? ld32(word) : label;
}

/* The hash of a flow between two addresses; `word` tells it apart from others between them. */
INLINE __u32 inner_hash(struct inner *in, __u32 word)
{
	__u64 h = in->version == 4 ? (in->src.hi | in->dst.hi << 32) * FLOW_PRIME1
				   : in->src.hi * FLOW_PRIME1 + in->src.lo * FLOW_PRIME2 +
					     in->dst.hi * FLOW_PRIME3 + in->dst.lo * FLOW_PRIME4;

	return flow_finish(h, in->protocol, word);
}

/* The packet at `offset`, and its flow hash. 0 or -1. */
GLOBAL int read_inner(struct __sk_buff *skb, __u32 offset, __u8 version, struct inner *in)
{
	__u32 *ports;

	if (!in)
		return -1;
	in->l3 = offset;
	in->length = skb->len - offset;
	skb_need(skb, offset + (version == 4 ? IPV4_LEN : IPV6_LEN));
	if (version == 4 ? read_inner4(skb, offset, in) : read_inner6(skb, offset, in))
		return -1;
	if (!in->fragment)
		skb_need(skb, in->l4 + (in->protocol == NH_TCP ? TCP_LEN : FLOW_WORD_LEN));
	if (!in->fragment && flow_has_ports(in->protocol)) {
		ports = skb_at(skb, in->l4, 4);
		in->ports = ports ? ld32(ports) : 0;
	}
	in->hash = inner_hash(in, inner_word(skb, version, in));
	return 0;
}

/* Of a TCP packet; others have none. */
INLINE __u8 skb_tcp_flags(struct __sk_buff *skb, struct inner *in)
{
	__u8 *flags = 0;

	if (!in->fragment && in->protocol == NH_TCP)
		flags = skb_at(skb, in->l4 + TCP_FLAGS, 1);
	return flags ? *flags : 0;
}

INLINE int is_syn(__u8 flags)
{
	return (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* Of a TCP packet; others have no flags. */
INLINE int begins_or_ends(__u8 flags)
{
	return flags & (TCP_SYN | TCP_FIN | TCP_RST);
}

/* The kernel's answer to bpf_fib_lookup. 0, where a neighbour may have to be
 * resolved first (then it has no address), or a reason. */
INLINE int way_of(long answer)
{
	switch (answer) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return 0;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return REASON_TOO_BIG;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return REASON_UNREACHABLE;
	}
	return REASON_NO_ROUTE;
}

/* The table of a pod's tenant; 0: it has none. */
INLINE __u32 tenant_of(__u32 port_flags)
{
	__u32 table = port_flags >> PORT_TABLE_SHIFT;

	return table > TENANT_TABLES ? table : 0;
}

/* Whose the packet is. On the caller's stack there is no room for what this needs. */
static __attribute__((noinline)) struct cached *inner_target(struct settings *cfg, struct inner *in)
{
	__u32 family = in->version == 4 ? CACHE_IPV4 : 0;

	if (in->tenant)
		return target_in(cfg, in->dst.hi, in->dst.lo, family, in->tenant, 0);
	return steered_destination(cfg, in->dst.hi, in->dst.lo, family);
}

/* What the table of members says of an address: enum target_kind. A function of its own:
 * it is the same for all packets. */
GLOBAL __u32 member_kind(struct words *address)
{
	struct cached *to;

	if (!address)
		return TARGET_NONE;
	to = target_in(&node_settings, address->hi, address->lo, 0, MEMBER_TABLE, 0);
	return to ? to->kind : TARGET_NONE;
}

/* Whose packets SIDs take: the SR domain's. */
GLOBAL int is_inside(struct words *src)
{
	return src && (in_domain(&node_settings, src) || member_kind(src) == TARGET_MEMBER);
}

/* SIDs, and whatever else is in a locator. */
GLOBAL int is_sid(struct words *dst)
{
	return dst && (in_domain(&node_settings, dst) || member_kind(dst) == TARGET_SID);
}

/* One hop less. Of IPv4 the header checksum makes it good in the sum that a
 * device may have told. 0 or -1. */
INLINE int spend_hop(struct __sk_buff *skb, __u32 offset, __u8 version)
{
	if (version == 4) {
		struct ipv4 *ip = skb_at(skb, offset, IPV4_LEN);

		if (!ip)
			return -1;
		ipv4_spend(ip);
	} else {
		struct ipv6 *ip = skb_at(skb, offset, IPV6_LEN);

		if (!ip)
			return -1;
		ip->hop_limit--;
		bpf_csum_update(skb, ~0x0100u);
	}
	return 0;
}

/* The MAC address of pods' gateway: that of the host's end of each pod's veth. */
#define GATEWAY_MAC 0xeeeeu

INLINE int write_ethernet(struct __sk_buff *skb, const __u8 *dst, __u8 version)
{
	__u8 *eth = skb_at(skb, 0, ETH_LEN);

	if (!eth)
		return -1;
	st32(eth, ld32(dst));
	st16(eth + 4, ld16(dst + 4));
	st16(eth + 6, GATEWAY_MAC);
	st32(eth + 8, GATEWAY_MAC << 16 | GATEWAY_MAC);
	st16(eth + 12, be16(version == 4 ? TYPE_IPV4 : TYPE_IPV6));
	return 0;
}

/* Into the pod, past the queue of its veth. */
INLINE int to_pod(struct __sk_buff *skb, struct pod *to, __u8 version)
{
	if (write_ethernet(skb, to->mac, version) ||
	    bpf_redirect_peer(to->ifindex, 0) != TC_REDIRECT)
		return REASON_NO_ROUTE;
	return REASON_FORWARDED;
}

#endif
