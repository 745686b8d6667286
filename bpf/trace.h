/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records for `culvert trace`. A packet pays for one test of settings.trace
 * while nobody asks. */
#ifndef CULVERT_TRACE_H
#define CULVERT_TRACE_H

#include "packet.h"

/* Up to TRACE_DATA octets of the frame; how many. */
INLINE __u16 capture(struct xdp_md *ctx, __u8 *to)
{
	__u32 length = frame_length(ctx);

	if (length > TRACE_DATA)
		length = TRACE_DATA;
	opaque(length);
	if (length < ETH_LEN || length > TRACE_DATA || bpf_xdp_load_bytes(ctx, 0, to, length))
		return 0;
	return length;
}

/* 0 where the masked address is `value`: without branches. */
INLINE __u64 differs(struct words address, const struct in6 *value, const struct in6 *mask)
{
	return ((address.hi & ld64(mask)) ^ ld64(value)) |
	       ((address.lo & ld64(&mask->b[8])) ^ ld64(&value->b[8]));
}

/* Whether a packet that enters there, with these outer addresses, is one of those asked for. */
INLINE int asks_for(struct trace_filter *filter, __u32 ifindex, struct words src, struct words dst)
{
	__u64 other = filter->ifindex ? filter->ifindex ^ ifindex : 0;

	other |= differs(src, &filter->source, &filter->source_mask) |
		 differs(dst, &filter->destination, &filter->destination_mask);
	return !other;
}

INLINE struct words mapped(__be32 address)
{
	return (struct words){ 0, (__u64)address << 32 | be32(0xffff) };
}

INLINE struct words words_at(const struct in6 *address)
{
	return (struct words){ ld64(address), ld64(&address->b[8]) };
}

/* The outer addresses, IPv4 as mapped; as they were where there are none. */
INLINE void outer_addresses(struct xdp_md *ctx, struct words *src, struct words *dst)
{
	__u8 *eth = at(ctx, 0, ETH_LEN);
	__u32 l3 = ETH_LEN, i;
	__u16 type;

	if (!eth)
		return;
	type = be16(ld16(eth + 12));
	for (i = 0; i < 2 && (type == TYPE_VLAN || type == TYPE_QINQ); i++) {
		__u8 *tag = at(ctx, l3, VLAN_LEN);

		if (!tag)
			return;
		type = be16(ld16(tag + 2));
		l3 += VLAN_LEN;
	}
	if (type == TYPE_IPV6) {
		struct ipv6 *ip = at(ctx, l3, IPV6_LEN);

		if (!ip)
			return;
		*src = words_at(&ip->src);
		*dst = words_at(&ip->dst);
		return;
	}
	struct ipv4 *ip = at(ctx, l3, IPV4_LEN);

	if (type != TYPE_IPV4 || !ip)
		return;
	*src = mapped(ld32(&ip->src));
	*dst = mapped(ld32(&ip->dst));
}

/* Whether the frame is one of those asked for. */
GLOBAL int is_traced(struct xdp_md *ctx, __u32 ifindex)
{
	__u32 zero = 0;
	struct trace_filter *filter = bpf_map_lookup_elem(&trace_filter, &zero);
	struct words src = {}, dst = {};

	outer_addresses(ctx, &src, &dst);
	return filter && asks_for(filter, ifindex, src, dst);
}

/* Keeps the frame as it came, if it is one of those asked for. */
GLOBAL int trace_begin(struct xdp_md *ctx, __u32 ifindex, __u32 length)
{
	__u32 zero = 0;
	struct trace_event *event = bpf_map_lookup_elem(&trace_scratch, &zero);

	if (!event || !is_traced(ctx, ifindex))
		return 0;
	event->ifindex = ifindex;
	event->in_length = length;
	event->in_captured = capture(ctx, event->in);
	return 1;
}

GLOBAL int trace_end(struct xdp_md *ctx, struct packet *p, __u32 verdict)
{
	__u32 zero = 0;
	struct trace_filter *filter = bpf_map_lookup_elem(&trace_filter, &zero);
	struct trace_event *event = bpf_map_lookup_elem(&trace_scratch, &zero);

	if (!p || !filter || !event ||
	    (filter->drops_only && (verdict != XDP_DROP || p->end.reason == REASON_SLOW_PATH)))
		return 0;
	event->time = bpf_ktime_get_ns();
	event->egress = 0;
	if (verdict == XDP_TX || p->end.reason == REASON_REPLIED)
		event->egress = p->port.ifindex;
	else if (verdict == XDP_REDIRECT)
		event->egress = p->out.hop.ifindex;
	event->sid = p->found.sid;
	event->policy = p->found.policy;
	event->list = p->found.list;
	event->tunnel = p->found.tunnel;
	event->pdr = p->found.pdr;
	event->target_kind = p->found.target_kind;
	event->adjacency = p->plan.adjacency;
	event->reason = p->end.reason;
	event->verdict = verdict;
	event->out_length = event->out_captured = 0;
	if (verdict != XDP_DROP) { /* of a drop nothing goes out, nor what is half done */
		event->out_length = frame_length(ctx);
		event->out_captured = capture(ctx, event->out);
	}
	bpf_ringbuf_output(&trace_events, event, sizeof(*event), 0);
	return 0;
}

#endif
