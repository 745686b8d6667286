/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* culvert_pod: what a pod sends, at the host's end of its veth, and what the
 * kernel sends to pods of other nodes, at the far end of culvert0. To a pod of
 * this node, into a policy, or left to the kernel (docs/ARCHITECTURE.md, "A
 * pod's packet"). */
#ifndef CULVERT_POD_H
#define CULVERT_POD_H

#include "flow.h"
#include "netpol.h"
#include "pod_guard.h"
#include "translated.h"

#define ENCAP_FLAGS (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6)

/* The largest packet that it is on the wire, without what is pushed. Of packets
 * that have no one size (SCTP) the kernel says 65535, and so they fit nowhere. */
INLINE __u32 largest(struct __sk_buff *skb, struct inner *in)
{
	__u32 header = UDP_LEN;
	__u8 *offset;

	if (!skb->gso_size)
		return in->length;
	if (in->protocol == NH_TCP) {
		offset = skb_at(skb, in->l4 + TCP_DATA_OFFSET, 1);
		header = offset ? *offset >> 4 << 2 : TCP_LEN;
	}
	return in->l4 - in->l3 + header + skb->gso_size;
}

INLINE __u16 fib_length(__u32 length)
{
	return length > 0xffff ? 0xffff : length;
}

/* Where no adjacency is ready the kernel is asked; a neighbour that it has to
 * resolve first leaves the hop without addresses. 0, or a reason. */
GLOBAL int ask_way(struct __sk_buff *skb, __u32 index, __u32 length, struct next_hop *hop)
{
	struct segment_list *list = bpf_map_lookup_elem(&segment_list, &index);
	struct bpf_fib_lookup fib = { .family = AF_INET6 };
	__u32 last;
	long answer;

	if (!hop || !list)
		return REASON_NO_ROUTE;
	last = list->count - 1;
	if (last >= MAX_SEGMENTS)
		return REASON_NO_ROUTE;
	fib.ifindex = skb->ifindex;
	fib.tot_len = fib_length(length);
	copy16_by4(fib.ipv6_src, &list->source);
	copy16_by4(fib.ipv6_dst, &list->segment[last]);
	answer = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
	__builtin_memset(hop, 0, sizeof(*hop));
	hop->ifindex = fib.ifindex;
	if (answer == BPF_FIB_LKUP_RET_SUCCESS) {
		hop->flags = NEXT_HOP_READY;
		__builtin_memcpy(hop->dst, fib.dmac, 6);
		__builtin_memcpy(hop->src, fib.smac, 6);
	}
	return way_of(answer);
}

/* To a device that XDP cannot send to the stack can. */
INLINE int is_known(struct next_hop *hop)
{
	return hop->flags == NEXT_HOP_READY || hop->flags & NEXT_HOP_KNOWN;
}

/* 0, or a reason. */
INLINE int find_way(struct __sk_buff *skb, struct chosen_list *c, __u32 hash, __u32 length,
		    struct next_hop *hop)
{
	__u32 index = c->list->adjacency;
	struct adjacency *adj = bpf_map_lookup_elem(&adjacency, &index);

	if (adj && adj->half[adj->current & 1].flags == NEXT_HOP_SHARED) {
		index = shared_adjacency(index, hash);
		adj = bpf_map_lookup_elem(&adjacency, &index);
	}
	if (adj) {
		*hop = adj->half[adj->current & 1];
		if (is_known(hop))
			return hop->mtu && length > hop->mtu ? REASON_TOO_BIG : 0;
	}
	return ask_way(skb, c->index, length, hop);
}

/* IPv6 and the SRH, `length` octets. */
INLINE int write_tunnel(struct __sk_buff *skb, struct settings *cfg, struct chosen_list *c,
			__u32 length, struct inner *in, struct next_hop *hop)
{
	__u32 payload = in->length + length - IPV6_LEN;
	__u8 next_header = in->version == 4 ? NH_IPV4 : NH_IPV6;
	void *eth = skb_at(skb, 0, ETH_LEN + IPV6_LEN), *ip = eth + ETH_LEN;

	if (!eth)
		return -1;
	write_addresses(eth, hop);
	st16(eth + 12, be16(TYPE_IPV6));
	/* the length of many packets is only theirs that are made of them */
	write_ipv6(ip, ipv6_first_word(in->class, in->hash),
		   ipv6_second_word(c->srh_segments ? NH_ROUTING : next_header, cfg->hop_limit),
		   payload > 0xffff ? 0xffff : payload, &c->list->source,
		   &c->list->segment[c->last]);
	return c->srh_segments
		       ? write_srh(ip + IPV6_LEN, (void *)(long)skb->data_end, c->list,
				   srh_first_word(next_header, c->srh_segments, c->last, 0), 0, 0)
		       : 0;
}

INLINE int push_vlans(struct __sk_buff *skb, struct next_hop *hop)
{
	if (hop->tags > 1 && bpf_skb_vlan_push(skb, be16(hop->tpid[1]), hop->vlan[1]))
		return -1;
	return hop->tags && bpf_skb_vlan_push(skb, be16(hop->tpid[0]), hop->vlan[0]);
}

INLINE int leave_by(struct __sk_buff *skb, struct next_hop *hop)
{
	long verdict;

	if (push_vlans(skb, hop))
		return REASON_HEADROOM;
	verdict = hop->flags & NEXT_HOP_READY ? bpf_redirect(hop->ifindex, 0)
					      : bpf_redirect_neigh(hop->ifindex, 0, 0, 0);
	return verdict == TC_REDIRECT ? REASON_FORWARDED : REASON_NO_ROUTE;
}

/* Where the kernel knows the packet as one in a tunnel already, of a pod or of
 * somebody else on this machine, it keeps the inner one as it has it. */
INLINE int make_room(struct __sk_buff *skb, __u32 length)
{
	return bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS) &&
	       bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/* Of such a packet the kernel goes on to say what is inside, and could not cut it
 * up: with a tag that comes and goes it reads what there is. */
INLINE int tell_protocol(struct __sk_buff *skb)
{
	if (skb->protocol == be16(TYPE_IPV6))
		return 0;
	return bpf_skb_vlan_push(skb, be16(TYPE_VLAN), 0) ||
	       bpf_skb_vlan_push(skb, be16(TYPE_VLAN), 0) || bpf_skb_vlan_pop(skb) ||
	       bpf_skb_vlan_pop(skb);
}

/* H.Encaps, H.Encaps.Red. */
INLINE int encapsulate(struct __sk_buff *skb, struct settings *cfg, __u32 policy, struct inner *in)
{
	__u32 packets = skb_packets(skb), length;
	struct next_hop hop ALIGNED;
	struct chosen_list c;
	int reason = find_list(policy, in->hash, 0, &c);

	if (reason)
		return reason;
	length = srv6_length(c.srh_segments);
	reason = find_way(skb, &c, in->hash, largest(skb, in) + length, &hop);
	if (reason)
		return reason;
	if (spend_hop(skb, ETH_LEN, in->version) || make_room(skb, length) ||
	    write_tunnel(skb, cfg, &c, length, in, &hop) || tell_protocol(skb))
		return REASON_HEADROOM;
	reason = leave_by(skb, &hop);
	in->list = c.index;
	if (reason == REASON_FORWARDED) {
		count_packets(&list_counter, c.index, packets, in->length + packets * length);
		if (in->class_index)
			count_packets(&class_counter, in->class_index, packets,
				      in->length + packets * length);
	}
	return reason;
}

/* To the edge of the SR domain pods are outside of it; the kernel's own packets
 * at culvert0 are not. */
INLINE int crosses_edge(struct settings *cfg, struct inner *in)
{
	return in->version == 6 && (in_domain(cfg, &in->dst) || in_domain(cfg, &in->src));
}

/* SIDs have no target: a pod's packets to them would be the kernel's. */
INLINE int is_for_sid(struct inner *in)
{
	return in->version == 6 && member_kind(&in->dst) == TARGET_SID;
}

/* Its class's policy, or best effort's; 0: it is dropped. */
INLINE __u32 pod_policy_of_class(struct __sk_buff *skb, struct inner *in, __u32 row)
{
	__u32 from = skb->ifindex | (in->version == 4 ? CLASS_IPV4 : 0);
	struct class_way *way = class_way_from(from, in->class, row, in->src.hi, in->src.lo);

	if (!way)
		return 0;
	in->class_index = way->class;
	return way->policy;
}

/* What the policies of the sender say, and of a receiver on this node (each may be NULL): 0, or a
 * reason. What goes by the kernel culvert_forward asks about. */
INLINE int may_send(struct __sk_buff *skb, struct inner *in, struct pod *sender, __u32 from,
		    struct pod *receiver, __u32 to)
{
	int reason = 0;

	if (from == to) /* a pod reaches itself */
		return 0;
	if (sender)
		reason = skb_policies(skb, in, sender, from, EGRESS);
	if (!reason && receiver)
		reason = skb_policies(skb, in, receiver, to, INGRESS);
	return reason;
}

/* 0 or -1. */
INLINE int read_frame(struct __sk_buff *skb, struct inner *in)
{
	if (skb->protocol != be16(TYPE_IPV4) && skb->protocol != be16(TYPE_IPV6))
		return -1;
	return read_inner(skb, ETH_LEN, skb->protocol == be16(TYPE_IPV4) ? 4 : 6, in);
}

/* `flags` are those of the port, `from` the pod behind it. What the overlay does not take is
 * the kernel's; a tenant's pods have none: pod_input drops it. */
INLINE int pod_decide(struct __sk_buff *skb, struct settings *cfg, __u32 flags, __u32 from,
		      struct inner *in)
{
	__u32 index, tenant = in->tenant, outside = flags & PORT_EDGE;
	int reason;
	struct pod *sender, *receiver;
	struct cached *to;

	/* the kernel asks for no neighbours on culvert0, and addresses what it sends to itself */
	if ((skb->pkt_type != HOST_PACKET && (outside || skb->pkt_type != OTHERHOST_PACKET)) ||
	    skb->vlan_present || read_frame(skb, in))
		return REASON_PASSED;
	flow_choose(skb, in);
	if (outside && crosses_edge(cfg, in))
		return REASON_SR_DOMAIN_EDGE;
	sender = from ? bpf_map_lookup_elem(&pod, &from) : 0;
	to = flags & PORT_TO_KERNEL ? 0 : inner_target(cfg, in);
	if (!to ||
	    (to->kind != TARGET_POD && to->kind != TARGET_POLICY && to->kind != TARGET_CLASSES)) {
		if (outside && is_for_sid(in))
			return REASON_SR_DOMAIN_EDGE;
		if (outside && !tenant) {
			note_kernels(skb, in, sender);
			skb->tc_index = say_sender(in, sender);
		}
		return REASON_PASSED;
	}
	if (in->hops <= 1)
		return tenant ? REASON_HOP_LIMIT : REASON_PASSED;
	index = to->index;
	if (to->kind != TARGET_POD) {
		int classes = to->kind == TARGET_CLASSES;

		if (outside && !tenant && kernel_translates(skb, in, sender, EGRESS))
			return REASON_PASSED;
		reason = may_send(skb, in, sender, from, 0, 0);
		if (reason)
			return reason;
		if (classes)
			index = pod_policy_of_class(skb, in, index);
		if (!index)
			return REASON_NO_CLASS_POLICY;
		reason = encapsulate(skb, cfg, index, in);
		/* the kernel tells the sender, or cuts it up */
		return outside && !tenant && reason == REASON_TOO_BIG ? REASON_PASSED : reason;
	}
	receiver = bpf_map_lookup_elem(&pod, &index);
	if (!receiver || (outside && !tenant && kernel_translates(skb, in, sender, EGRESS)))
		return REASON_PASSED;
	reason = may_send(skb, in, sender, from, receiver, index);
	if (reason)
		return reason;
	if (spend_hop(skb, ETH_LEN, in->version))
		return REASON_PASSED;
	return to_pod(skb, receiver, in->version);
}

INLINE int pod_input(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, packets = skb_packets(skb), bytes = skb->len;
	struct settings *cfg = &node_settings;
	struct port *at = bpf_map_lookup_elem(&port, &ifindex);
	struct inner in = {};
	int reason = 0;

	skb->tc_index = 0; /* the pod may have set one */
	if (!at)
		return TC_NEXT;
	in.tenant = tenant_of(at->flags);
	if (at->pod)
		reason = guard_pod(skb, at->pod);
	if (!reason)
		reason = pod_decide(skb, cfg, at->flags, at->pod, &in);
	else if (cfg->flow_sampling)
		read_frame(skb, &in);
	if (reason == REASON_PASSED && in.tenant)
		reason = REASON_TENANT;
	flow_note(&in, at->pod, at->pod ? FLOW_FROM_POD : FLOW_FROM_KERNEL, reason, packets);
	return skb_finish(reason, packets, bytes);
}

#endif
