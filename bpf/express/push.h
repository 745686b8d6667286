/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The headers that are pushed: IPv6 with or without an SRH, or GTP-U over IPv4 or IPv6. */
#ifndef CULVERT_EXPRESS_PUSH_H
#define CULVERT_EXPRESS_PUSH_H

#include "lane.h"

/* The flow hash of a packet that express_ipv4/6 let through. */
INLINE __u32 express_hash4(struct ipv4 *ip)
{
	return flow_finish(
		flow_ipv4(ip), ip->protocol,
		flow_has_word(ip->protocol) ? flow_word(ip->protocol, (void *)ip + IPV4_LEN) : 0);
}

INLINE __u32 express_hash6(struct ipv6 *ip)
{
	return flow_finish(flow_ipv6(ip), ip->next_header,
			   flow_has_word(ip->next_header)
				   ? flow_word(ip->next_header, (void *)ip + IPV6_LEN)
				   : flow_label(ip));
}

/* IPv6, and an SRH where there are segments for it. */
struct express_ipv6_header {
	const void *src, *dst; /* not in the packet */
	struct segment_list *list; /* of the SRH */
	struct words *last;        /* before the list's segments, or NULL */
	__u64 srh;                 /* its first word, but for the next header; 0: none */
	__u64 args;                /* srh_args: they go into the last segment of the list */
	__u32 hash;
	__u8 class, hop_limit, next_header;
	__u8 pad;
};

/* Whether the destination is the last segment of the list. */
INLINE int express_at_last(struct express_ipv6_header *h)
{
	return (h->srh >> 24 & 0xff) == !!h->last;
}

/* A call takes longer than to write some segments, but what is rare need not be verified for each
 * who asks. */
INLINE int express_push_srh(struct xdp_md *ctx, struct express *x, struct express_ipv6_header *h,
			    void *to)
{
	if (h->last || h->args)
		return push_srh(ctx, h->list, h->srh, h->last,
				h->args | hop_tags(x->hop) << SRH_TAGS_SHIFT);
	return write_srh(to, (void *)(long)ctx->data_end, h->list, h->srh, 0, 0);
}

INLINE int express_push6(struct xdp_md *ctx, struct express *x, struct express_ipv6_header *h,
			 __u32 popped)
{
	__u32 pushed = h->srh ? srv6_length(srh_segments(h->srh)) : IPV6_LEN;
	__u32 first = ipv6_first_word(h->class, h->hash);
	__u32 second = ipv6_second_word(h->srh ? NH_ROUTING : h->next_header, h->hop_limit);
	void *ip;

	if (h->srh)
		h->srh |= h->next_header;
	opaque(first); /* these take less of the stack than what they are computed from */
	opaque(second);
	x->list_length = x->length - popped + pushed;
	opaque(x->list_length);
	if (express_push(ctx, x, popped, pushed, &ip))
		return leave_with(XDP_DROP);
	if (ip + IPV6_LEN > (void *)(long)ctx->data_end)
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	write_ipv6(ip, first, second, x->list_length - IPV6_LEN, h->src, h->dst);
	if (h->args && express_at_last(h))
		args_mob_write(ip + 24, h->args, h->args >> ARGS_MOB_BITS);
	if (h->srh && express_push_srh(ctx, x, h, ip + IPV6_LEN))
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	return express_out(ctx, x, TYPE_IPV6);
}

/* IPv4, UDP, GTP-U, with or without a container. */
struct express_gtpu_header {
	__u32 src, dst, teid, hash;
	__u32 container; /* container_word */
	__u8 tos, ttl;
	__u8 pad[2];
};

/* The header of a G-PDU, with `length` octets behind UDP. Adds it to the sum. */
INLINE int express_gpdu_header(struct xdp_md *ctx, void *gtpu, __u32 length, __u32 teid,
			       __u32 container, __u64 *sum)
{
	return write_gtpu(
		gtpu, (void *)(long)ctx->data_end,
		gtpu_first_word(container ? GTPU_FLAG_E : 0, GTPU_G_PDU, length - GTPU_LEN), teid,
		0, container, sum);
}

INLINE int express_push_gtpu4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *h,
			      __u32 popped)
{
	__u32 pushed = IPV4_LEN + gtpu_length(h->container), length = x->length - popped + pushed;
	__u64 sum = 0;
	void *ip;

	if (express_push(ctx, x, popped, pushed, &ip))
		return leave_with(XDP_DROP);
	if (ip + IPV4_LEN + UDP_LEN > (void *)(long)ctx->data_end)
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	write_ipv4_udp(ip, h->tos, h->ttl, h->src, h->dst, length, gtpu_ports(flow_port(h->hash)));
	if (express_gpdu_header(ctx, ip + IPV4_LEN + UDP_LEN, length - IPV4_LEN - UDP_LEN, h->teid,
				h->container, &sum))
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	return express_out(ctx, x, TYPE_IPV4);
}

/* IPv6, UDP, GTP-U. */
struct express_gtpu6_header {
	const void *src, *dst; /* not in the packet */
	__u64 sum; /* of the T-PDU */
	__u32 teid, hash;
	__u32 container; /* container_word */
	__u8 class, hop_limit;
	__u8 pad[2];
};

INLINE int express_push_gtpu6(struct xdp_md *ctx, struct express *x, struct express_gtpu6_header *h,
			      __u32 popped)
{
	__u32 pushed = gtpu_length(h->container), length = x->length - popped + pushed;
	__u32 first = ipv6_first_word(h->class, h->hash);
	__u32 second = ipv6_second_word(NH_UDP, h->hop_limit);
	const void *src = h->src, *dst = h->dst;
	__u64 sum;
	void *ip;

	opaque(src); /* or of the words that are copied halves would be made */
	opaque(dst);
	sum = h->sum + address_sum(src) + address_sum(dst);
	opaque(sum); /* these take less of the stack than what they are computed from */
	opaque(first);
	if (express_push(ctx, x, popped, IPV6_LEN + pushed, &ip))
		return leave_with(XDP_DROP);
	if (ip + IPV6_LEN + UDP_LEN > (void *)(long)ctx->data_end)
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	write_ipv6(ip, first, second, length, src, dst);
	if (express_gpdu_header(ctx, ip + IPV6_LEN + UDP_LEN, length - UDP_LEN, h->teid,
				h->container, &sum))
		return leave_with(XDP_ABORTED); /* cannot be: it was pushed */
	/* the flow label is of the hash, too */
	write_udp6(ip + IPV6_LEN, gtpu_ports(flow_port(be32(first))), length, sum);
	return express_out(ctx, x, TYPE_IPV6);
}

/* Into a policy, with the segment h->last behind its list's if there is one; h->hash and
 * h->args are given. */
INLINE int express_encaps(struct xdp_md *ctx, struct express *x, __u32 policy,
			  struct express_ipv6_header *h, __u32 popped)
{
	struct chosen_list c;

	if (find_list(policy, h->hash, !!h->last, &c))
		return not_taken();
	x->hop = express_shared(c.list->adjacency, h->hash,
				x->length - popped + srv6_length(c.srh_segments));
	if (!x->hop)
		return not_taken();
	x->list = bpf_map_lookup_elem(&list_counter, &c.index);
	h->list = c.list;
	h->src = &c.list->source;
	h->dst = &c.list->segment[c.last];
	if (c.srh_segments)
		h->srh = srh_first_word(0, c.srh_segments, c.last + !!h->last, 0);
	h->hop_limit = x->cfg->hop_limit;
	return CONTINUE;
}

#endif
