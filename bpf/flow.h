/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of pods' flows, for `culvert flow`: of the first and last packets of TCP connections,
 * of packets that are dropped, and of one in many of the others. A packet pays for one test of
 * settings.flow_sampling while nothing is recorded. */
#ifndef CULVERT_FLOW_H
#define CULVERT_FLOW_H

#include "skb.h"

/* Whether one in `sampling` is this one. To ask for a random number costs more than all else
 * here: it says how many packets are skipped, 0 to 2 * sampling - 2. */
INLINE int flow_is_chosen(__u32 sampling)
{
	__u32 zero = 0, range = 2 * sampling - 1;
	__u32 *left = bpf_map_lookup_elem(&flow_skip, &zero);

	if (!left)
		return 0;
	if (*left && *left < range) {
		--*left;
		return 0;
	}
	*left = (__u64)bpf_get_prandom_u32() * range >> 32;
	return 1;
}

/* Nothing else tells who pings whom, if the first record is of an answer. */
INLINE int flow_is_echo_reply(struct __sk_buff *skb, struct inner *in)
{
	__u8 *type = in->fragment ? 0 : skb_at(skb, in->l4, 1);

	return type && ((in->protocol == NH_ICMP && *type == 0) ||
			(in->protocol == NH_ICMPV6 && *type == 129));
}

/* Whether there is a record of a packet that passes; before it changes. */
INLINE void flow_choose(struct __sk_buff *skb, struct inner *in)
{
	__u32 sampling = node_settings.flow_sampling;
	__u8 *flags;

	if (!sampling)
		return;
	if (in->protocol == NH_TCP && !in->fragment) {
		flags = skb_at(skb, in->l4 + TCP_FLAGS, 1);
		if (flags) {
			in->tcp_flags = *flags;
			if (*flags & (TCP_SYN | TCP_FIN | TCP_RST)) {
				in->flow = FLOW_EDGE;
				return;
			}
		}
	}
	if (!flow_is_chosen(sampling))
		return;
	in->flow = FLOW_SAMPLED;
	if (flow_is_echo_reply(skb, in))
		in->tcp_flags = TCP_ACK;
}

/* A pod that makes many records has no more for a while; others have theirs. */
INLINE struct flow_budget *flow_spend(__u32 index, __u32 where, __u64 now)
{
	__u32 entry = index * FLOW_DIRECTIONS + (where == FLOW_FROM_TUNNEL);
	struct flow_budget *budget = bpf_map_lookup_elem(&flow_budget, &entry);
	__u32 second = now >> 30;

	if (!budget)
		return 0;
	if (budget->second != second) {
		budget->second = second;
		budget->used = 0;
	}
	if (budget->used >= FLOW_RECORDS) {
		budget->left_out++;
		return 0;
	}
	budget->used++;
	return budget;
}

/* The record, which the pod of this index pays for. `packets`: of the wire. */
GLOBAL int flow_put(struct inner *in, __u32 index, __u32 where, __u32 reason, __u32 packets)
{
	__u64 now = bpf_ktime_get_ns();
	struct flow_budget *budget = flow_spend(index, where, now);
	struct pod *p = bpf_map_lookup_elem(&pod, &index);
	struct flow_record *r;

	if (!in || !budget)
		return 0;
	r = bpf_ringbuf_reserve(&flow_records, sizeof(*r), 0);
	if (!r) {
		budget->left_out++;
		return 0;
	}
	r->time = now;
	put_inner_address(&r->src, &in->src, in->version);
	put_inner_address(&r->dst, &in->dst, in->version);
	r->src_port = in->ports;
	r->dst_port = in->ports >> 16;
	r->pod = index && p ? p->ifindex : 0;
	r->tenant = in->tenant;
	r->packets = packets;
	r->bytes = in->length;
	r->kind = reason == REASON_FORWARDED || reason == REASON_PASSED ? in->flow : FLOW_DROPPED;
	r->sampling = r->kind == FLOW_SAMPLED ? node_settings.flow_sampling : 1;
	r->list = in->list;
	r->where = where;
	r->protocol = in->protocol;
	r->tcp_flags = in->tcp_flags;
	r->reason = reason;
	r->class_index = in->class_index;
	r->version = in->version;
	r->pad = r->pad2 = 0;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP); /* the daemon looks often enough */
	return 0;
}

/* Every packet's last word, once `reason` is known. */
INLINE void flow_note(struct inner *in, __u32 index, __u32 where, __u32 reason, __u32 packets)
{
	if (!node_settings.flow_sampling)
		return;
	if (in->flow || (reason != REASON_FORWARDED && reason != REASON_PASSED))
		flow_put(in, index, where, reason, packets);
}

#endif
