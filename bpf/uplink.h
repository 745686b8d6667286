/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* culvert_uplink: what comes out of tunnels of other nodes. End.DT4, End.DT6 and
 * End.DT46, also behind End of this node; the packet goes into its pod, or to
 * the kernel. And binding SIDs: into a policy. */
#ifndef CULVERT_UPLINK_H
#define CULVERT_UPLINK_H

#include "pod.h"

/* Newer (Linux 6.4) than headers that are in use. */
#ifndef BPF_F_ADJ_ROOM_DECAP_L3_MASK
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ull << 7)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ull << 8)
#endif

#define DECAP_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

/* The outer header, and what is behind it. */
struct outer {
	struct local_sid *sid, *node_sid; /* node_sid: End before it, or NULL */
	__u32 index, node_index;
	__u32 upper; /* offset */
	__u32 srh;   /* its length; 0: none */
	__u8 type, left, class, hops;
	__u8 shifted; /* NEXT-C-SID: `next` is the destination then */
	__u8 chain;   /* what is wrong behind the IPv6 header, or 0 */
	__u8 pad[2];
	struct in6 next ALIGNED;
};

/* 0, or a reason. */
INLINE int read_outer(struct __sk_buff *skb, struct ipv6 *ip, struct outer *o)
{
	__u32 end = ETH_LEN + IPV6_LEN + be16(ld16(&ip->payload_length));
	struct srh *srh;

	o->class = ipv6_class(ip);
	o->hops = ip->hop_limit;
	o->upper = ETH_LEN + IPV6_LEN;
	o->type = ip->next_header;
	if (end > skb->len)
		return REASON_IPV6_MALFORMED;
	if (o->type != NH_ROUTING)
		return is_extension(o->type) ? REASON_EXTENSION_CHAIN : 0;
	srh = skb_at(skb, o->upper, SRH_LEN);
	if (!srh || o->upper + SRH_LEN > end)
		return REASON_EXTENSION_CHAIN;
	if (srh->type != SRH_TYPE)
		return REASON_ROUTING_TYPE;
	if (o->upper + SRH_LEN + 8u * srh->length > end)
		return REASON_SRH_MALFORMED;
	o->left = srh->segments_left;
	o->type = srh->next_header;
	o->srh = SRH_LEN + 8u * srh->length;
	o->upper += o->srh;
	return !o->left && is_extension(o->type) ? REASON_EXTENSION_CHAIN : 0;
}

/* The kernel gets what is inside as if it had come in by culvert0: from there it
 * would send the answer. */
INLINE int to_kernel(struct __sk_buff *skb, __u8 version)
{
	__u32 zero = 0;
	struct overlay *o = bpf_map_lookup_elem(&overlay, &zero);
	__u8 *eth = skb_at(skb, 0, ETH_LEN);

	if (!o || !eth)
		return REASON_NO_ROUTE;
	if (!o->entry) {
		st16(eth + 12, be16(version == 4 ? TYPE_IPV4 : TYPE_IPV6));
		return REASON_PASSED;
	}
	if (write_ethernet(skb, o->mac, version) ||
	    bpf_redirect(o->entry, BPF_F_INGRESS) != TC_REDIRECT)
		return REASON_NO_ROUTE;
	return REASON_FORWARDED;
}

INLINE int set_ecn(struct __sk_buff *skb, __u32 offset, struct inner *in, int ecn)
{
	if (ecn == (in->class & 3))
		return 0;
	if (in->version == 4) {
		struct ipv4 *ip = skb_at(skb, offset, IPV4_LEN);

		if (!ip)
			return -1;
		ipv4_set_ecn(ip, ecn);
	} else {
		struct ipv6 *ip = skb_at(skb, offset, IPV6_LEN);
		__u16 from;

		if (!ip)
			return -1;
		from = ld16(ip);
		ipv6_set_ecn(ip, ecn);
		bpf_csum_update(skb, (__u16)~from + (__u32)ld16(ip));
	}
	return 0;
}

/* The outer headers go. */
INLINE int pop_outer(struct __sk_buff *skb, __u32 length, __u8 version)
{
	__u64 flags = version == 4 ? DECAP_FLAGS | BPF_F_ADJ_ROOM_DECAP_L3_IPV4
				   : DECAP_FLAGS | BPF_F_ADJ_ROOM_DECAP_L3_IPV6;

	return bpf_skb_adjust_room(skb, -(__s32)length, BPF_ADJ_ROOM_MAC, flags);
}

INLINE int decapsulates(struct local_sid *sid)
{
	return sid->behavior == END_DT4 || sid->behavior == END_DT6 || sid->behavior == END_DT46;
}

/* By another table than main, which holds no pods: by the kernel's answer. 0 with
 * `fib` filled in, or a reason. */
GLOBAL int ask_table(struct __sk_buff *skb, struct inner *in, __u32 table,
		     struct bpf_fib_lookup *fib)
{
	long answer;

	if (!in || !fib)
		return REASON_NO_ROUTE;
	if (in->hops <= 1)
		return REASON_HOP_LIMIT;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = skb->ifindex;
	fib->tot_len = fib_length(largest(skb, in));
	fib->tbid = table;
	if (in->version == 4) {
		fib->family = AF_INET4;
		fib->ipv4_src = in->src.hi;
		fib->ipv4_dst = in->dst.hi;
	} else {
		fib->family = AF_INET6;
		copy16_by4(fib->ipv6_src, &in->src);
		copy16_by4(fib->ipv6_dst, &in->dst);
	}
	answer =
		bpf_fib_lookup(skb, fib, sizeof(*fib), BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID);
	if (answer == BPF_FIB_LKUP_RET_NO_NEIGH)
		__builtin_memset(fib->dmac, 0, 6);
	return way_of(answer);
}

/* The kernel resolves the neighbour that it named, where it has to. */
INLINE int leave_by_table(struct __sk_buff *skb, struct bpf_fib_lookup *fib, __u8 version)
{
	struct bpf_redir_neigh next = { .nh_family = fib->family };
	struct next_hop hop ALIGNED;
	__u8 *eth;
	long verdict;

	__builtin_memcpy(hop.dst, fib->dmac, 6);
	__builtin_memcpy(hop.src, fib->smac, 6);
	eth = skb_at(skb, 0, ETH_LEN);
	if (!eth)
		return REASON_NO_ROUTE;
	write_addresses(eth, &hop);
	st16(eth + 12, be16(version == 4 ? TYPE_IPV4 : TYPE_IPV6));
	if (ld32(hop.dst) | ld16(hop.dst + 4)) {
		verdict = bpf_redirect(fib->ifindex, 0);
	} else {
		copy16_by4(next.ipv6_nh, fib->ipv6_dst);
		verdict = bpf_redirect_neigh(fib->ifindex, &next, sizeof(next), 0);
	}
	return verdict == TC_REDIRECT ? REASON_FORWARDED : REASON_NO_ROUTE;
}

/* On the stack of its caller there is no room for what it needs. */
static __attribute__((noinline)) int decapsulate_by_table(struct __sk_buff *skb, struct outer *o,
							  struct inner *in, int ecn)
{
	struct bpf_fib_lookup fib;
	__u32 upper = o->upper;
	int reason = ask_table(skb, in, o->sid->table, &fib);

	if (reason)
		return reason;
	if (set_ecn(skb, upper, in, ecn) || spend_hop(skb, upper, in->version) ||
	    pop_outer(skb, upper - ETH_LEN, in->version))
		return REASON_HEADROOM;
	return leave_by_table(skb, &fib, in->version);
}

/* `index` becomes that of the pod which the packet is for; 0: no pod of this node. */
INLINE int deliver_inner(struct __sk_buff *skb, struct settings *cfg, struct outer *o,
			 struct inner *in, __u32 *index)
{
	__u8 version = o->type == NH_IPV4 ? 4 : 6;
	__u32 upper = o->upper;
	struct pod *to = 0;
	struct cached *found;
	int ecn;

	if (read_inner(skb, upper, version, in))
		return REASON_INNER_MALFORMED;
	flow_choose(skb, in);
	ecn = ecn_decapsulate(o->class, in->class);
	if (ecn < 0)
		return REASON_ECN;
	if (o->sid->flags & SID_TENANT)
		in->tenant = o->sid->table;
	else if (decapsulates(o->sid) && o->sid->table != MAIN_TABLE)
		return decapsulate_by_table(skb, o, in, ecn);
	found = inner_target(cfg, in);
	if (found && found->kind == TARGET_POD) {
		*index = found->index;
		to = bpf_map_lookup_elem(&pod, index);
		if (in->hops <= 1 || (!in->tenant && to && kernel_translates(skb, in, to, INGRESS)))
			to = 0;
	}
	if (in->tenant && !to) /* which the kernel knows nothing of */
		return in->hops > 1 ? REASON_TENANT : REASON_HOP_LIMIT;
	if (to) {
		int reason = skb_policies(skb, in, to, *index, INGRESS);

		if (reason == REASON_PASSED)
			to = 0; /* a fragment */
		else if (reason)
			return reason;
	}
	if (set_ecn(skb, upper, in, ecn) || (to && spend_hop(skb, upper, version)) ||
	    pop_outer(skb, upper - ETH_LEN, version))
		return REASON_HEADROOM;
	return to ? to_pod(skb, to, version) : to_kernel(skb, version);
}

INLINE int skb_decapsulate(struct __sk_buff *skb, struct settings *cfg, struct outer *o)
{
	__u32 index = 0, packets = skb_packets(skb);
	struct inner in = {};
	int reason = deliver_inner(skb, cfg, o, &in, &index);

	flow_note(&in, index, FLOW_FROM_TUNNEL, reason, packets);
	return reason;
}

INLINE int uplink_end_d(struct __sk_buff *skb, struct settings *cfg, struct outer *o)
{
	if (o->chain)
		return o->chain;
	if (o->left)
		return REASON_SEGMENTS_LEFT;
	if (is_extension(o->type)) /* behind segments that were left before End */
		return REASON_EXTENSION_CHAIN;
	if (o->type == NH_FRAGMENT)
		return REASON_FRAGMENT;
	if (!takes(o->sid, o->type))
		return o->sid->flags & SID_ALLOW_UPPER_LAYER ? REASON_PASSED : REASON_UPPER_LAYER;
	return skb_decapsulate(skb, cfg, o);
}

/* PSP, USP. 0 or -1. */
INLINE int pop_srh(struct __sk_buff *skb, struct outer *o)
{
	struct ipv6 *ip = skb_at(skb, ETH_LEN, IPV6_LEN);
	__u8 change[4] ALIGNED;

	if (!ip)
		return -1;
	st16(change, be16(be16(ld16(&ip->payload_length)) - o->srh));
	change[2] = o->type;
	change[3] = ip->hop_limit;
	return bpf_skb_store_bytes(skb, ETH_LEN + 4, change, sizeof(change),
				   BPF_F_RECOMPUTE_CSUM) ||
			       bpf_skb_adjust_room(skb, -(__s32)o->srh, BPF_ADJ_ROOM_NET,
						   DECAP_FLAGS)
		       ? -1
		       : 0;
}

/* o->next, and Segments Left without it. 0, or a reason. */
INLINE int next_of_list(struct __sk_buff *skb, struct outer *o)
{
	__u32 at = ETH_LEN + IPV6_LEN + SRH_LEN + SEGMENT_LEN * (__u32)(__u8)(o->left - 1);
	struct srh *srh;
	void *found;

	skb_need(skb, at + SEGMENT_LEN);
	srh = skb_at(skb, ETH_LEN + IPV6_LEN, SRH_LEN);
	if (!srh)
		return REASON_SRH_MALFORMED;
	if (2 * (srh->last_entry + 1u) > srh->length || o->left > srh->last_entry + 1u)
		return REASON_SEGMENTS_LEFT;
	found = skb_at(skb, at, SEGMENT_LEN);
	if (!found)
		return REASON_SRH_MALFORMED;
	copy16(&o->next, found);
	o->left--;
	return 0;
}

/* The next segment: of this node, or by the kernel's routes. */
INLINE int uplink_end(struct __sk_buff *skb, struct settings *cfg, struct outer *o)
{
	struct local_sid *next;
	__u32 index;
	int reason;

	if (o->hops <= 1)
		return REASON_HOP_LIMIT;
	reason = o->shifted ? 0 : next_of_list(skb, o);
	if (reason)
		return reason;
	next = find_sid(cfg, &o->next, &index);
	if (next && decapsulates(next)) {
		o->node_sid = o->sid;
		o->node_index = o->index;
		o->sid = next;
		o->index = index;
		return uplink_end_d(skb, cfg, o);
	}
	if (bpf_skb_store_bytes(skb, ETH_LEN + 24, &o->next, SEGMENT_LEN, BPF_F_RECOMPUTE_CSUM))
		return REASON_HEADROOM;
	if (o->shifted)
		return REASON_PASSED;
	if (o->sid->flavors & FLAVOR_PSP && !o->left)
		return pop_srh(skb, o) ? REASON_HEADROOM : REASON_PASSED;
	return bpf_skb_store_bytes(skb, ETH_LEN + IPV6_LEN + 3, &o->left, 1, BPF_F_RECOMPUTE_CSUM)
		       ? REASON_HEADROOM
		       : REASON_PASSED;
}

/* An ordinary packet to the node, whose address is a SID too (`sids: double`). */
INLINE int is_for_node(struct outer *o)
{
	return o->sid->behavior == END && !o->left && !o->shifted && o->type != NH_IPV4 &&
	       o->type != NH_IPV6;
}

/* Whether the fragment behind the IPv6 header is of layer 4: of no tunnel, and with no other extension
 * header, where a routing header may hide. A function of its own, for the verifier's sake. */
GLOBAL int is_fragment_of_layer4(struct __sk_buff *skb)
{
	__u8 *next = skb_at(skb, ETH_LEN + IPV6_LEN, 1);

	return next && *next != NH_IPV4 && *next != NH_IPV6 && !is_extension(*next);
}

/* Of an ordinary packet to the node. */
INLINE int is_fragment_for_node(struct __sk_buff *skb, struct outer *o)
{
	return is_for_node(o) && !o->srh && o->sid->flags & SID_ALLOW_UPPER_LAYER &&
	       is_fragment_of_layer4(skb);
}

/* End where it is the last segment. */
INLINE int uplink_last(struct __sk_buff *skb, struct settings *cfg, struct outer *o)
{
	if (o->type == NH_FRAGMENT)
		return is_fragment_for_node(skb, o) ? REASON_PASSED : REASON_FRAGMENT;
	if (o->sid->flavors & FLAVOR_USD && (o->type == NH_IPV4 || o->type == NH_IPV6))
		return skb_decapsulate(skb, cfg, o);
	if (!(o->sid->flags & SID_ALLOW_UPPER_LAYER))
		return REASON_UPPER_LAYER;
	if (o->sid->flavors & FLAVOR_USP && o->srh && pop_srh(skb, o))
		return REASON_HEADROOM;
	return REASON_PASSED;
}

/* The next segment, and the policy's headers around all of it. `in` is the caller's: there is no room
 * for it on the stack of this. */
GLOBAL int encapsulate_next(struct __sk_buff *skb, __u32 policy, struct in6 *next, __u32 left,
			    struct inner *in)
{
	struct settings *cfg = &node_settings;
	__u8 segments_left = left;

	if (!next || !in || read_inner(skb, ETH_LEN, 6, in))
		return REASON_IPV6_MALFORMED;
	if (bpf_skb_store_bytes(skb, ETH_LEN + 24, next, SEGMENT_LEN, BPF_F_RECOMPUTE_CSUM) ||
	    bpf_skb_store_bytes(skb, ETH_LEN + IPV6_LEN + 3, &segments_left, 1,
				BPF_F_RECOMPUTE_CSUM))
		return REASON_HEADROOM;
	return encapsulate(skb, cfg, policy, in);
}

INLINE int binds(struct local_sid *sid)
{
	return sid->behavior == END_B6_ENCAPS || sid->behavior == END_B6_ENCAPS_RED;
}

/* End.B6.Encaps, End.B6.Encaps.Red. */
INLINE int uplink_bind(struct __sk_buff *skb, struct outer *o)
{
	struct inner in = {};
	int reason;

	if (o->hops <= 1)
		return REASON_HOP_LIMIT;
	reason = next_of_list(skb, o);
	return reason ? reason : encapsulate_next(skb, o->sid->policy, &o->next, o->left, &in);
}

INLINE int uplink_behave(struct __sk_buff *skb, struct settings *cfg, struct ipv6 *ip,
			 struct outer *o)
{
	struct words src;

	copy16(&src, &ip->src);
	o->shifted = o->sid->behavior == END && o->sid->flavors & FLAVOR_NEXT_C_SID &&
		     next_csid(o->sid, ip, &o->next);
	o->chain = read_outer(skb, ip, o);
	if (o->chain && (!o->shifted || o->chain == REASON_IPV6_MALFORMED))
		return o->chain;
	if (!is_for_node(o) && !is_inside(&src))
		return REASON_SR_DOMAIN_EDGE;
	if (decapsulates(o->sid))
		return uplink_end_d(skb, cfg, o);
	if (!o->left && !o->shifted)
		return uplink_last(skb, cfg, o);
	return binds(o->sid) ? uplink_bind(skb, o) : uplink_end(skb, cfg, o);
}

INLINE int uplink_decide(struct __sk_buff *skb, struct settings *cfg, __u32 outside)
{
	__u32 packets = skb_packets(skb), bytes = skb->len - ETH_LEN;
	struct outer o = {};
	struct ipv6 *ip;
	int reason;

	if (skb->protocol != be16(TYPE_IPV6) || skb->pkt_type != HOST_PACKET || skb->vlan_present)
		return REASON_PASSED;
	ip = skb_at(skb, ETH_LEN, IPV6_LEN);
	if (!ip || !is_ipv6(ip))
		return REASON_PASSED;
	if (outside && (in_domain(cfg, &ip->dst) || in_domain(cfg, &ip->src)))
		return REASON_SR_DOMAIN_EDGE;
	o.sid = find_sid(cfg, &ip->dst, &o.index);
	if (!o.sid || (!decapsulates(o.sid) && !binds(o.sid) && o.sid->behavior != END))
		return REASON_PASSED;
	reason = uplink_behave(skb, cfg, ip, &o);
	if (reason == REASON_FORWARDED || reason == REASON_PASSED) {
		count_packets(&sid_counter, o.index, packets, bytes);
		if (o.node_sid)
			count_packets(&sid_counter, o.node_index, packets, bytes);
	}
	return reason;
}

INLINE int uplink_input(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, packets = skb_packets(skb), bytes = skb->len;
	struct settings *cfg = &node_settings;
	struct port *in = bpf_map_lookup_elem(&port, &ifindex);

	if (!in)
		return TC_NEXT;
	skb_need(skb, ETH_LEN + IPV6_LEN + SRH_LEN);
	return skb_finish(uplink_decide(skb, cfg, in->flags & PORT_EDGE), packets, bytes);
}

#endif
