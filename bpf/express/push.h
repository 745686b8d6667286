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
				h->args | express_hop_tags(x->hop) << SRH_TAGS_SHIFT);
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
	ip = express_push(ctx, x, popped, pushed);
	if (!ip)
		return XDP_DROP;
	if (ip + IPV6_LEN > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: it was pushed */
	write_ipv6(ip, first, second, x->list_length - IPV6_LEN, h->src, h->dst);
	if (h->args && express_at_last(h))
		args_mob_write(ip + 24, h->args, h->args >> ARGS_MOB_BITS);
	if (h->srh && express_push_srh(ctx, x, h, ip + IPV6_LEN))
		return XDP_ABORTED; /* cannot be: it was pushed */
	return express_out(ctx, x, TYPE_IPV6);
}

/* IPv4, UDP, GTP-U, with or without a container. */
struct express_gtpu_header {
	__u32 src, dst, teid, hash;
	__u32 container; /* express_container */
	__u8 tos, ttl;
	__u8 pad[2];
};

/* The PDU Session Container to push, of enum container, as a word of it; 0: none.
 * `octet` is its second one. */
INLINE __u32 express_container(__u8 container, __u8 octet)
{
	return container ? 1 | (container == CONTAINER_UPLINK ? 0x1000 : 0) | (__u32)octet << 16
			 : 0;
}

INLINE __u32 express_gtpu_length(__u32 container)
{
	return UDP_LEN + GTPU_LEN + (container ? 8 : 0);
}

/* GTP-U's header before `length` octets, its container among them; the sum. */
INLINE __u64 express_write_gtpu(void *gtpu, __u32 length, __u32 teid, __u32 container)
{
	__u32 first = GTPU_VERSION1 | GTPU_G_PDU << 8 | (__u32)be16(length) << 16;
	__u64 sum = be32(teid);

	if (container) {
		first |= GTPU_FLAG_E;
		st32(gtpu + 8, (__u32)GTPU_EXT_CONTAINER << 24);
		st32(gtpu + 12, container);
		sum += ((__u64)GTPU_EXT_CONTAINER << 24) + container;
	}
	st32(gtpu, first);
	st32(gtpu + 4, be32(teid));
	return sum + first;
}

/* The words of IPv4 and UDP, and the header's sum at once. `length` is that of
 * all of it. */
INLINE void express_write_ipv4(void *ip, struct express_gtpu_header *h, __u32 length)
{
	__u64 sum;

	st32(ip, 0x45 | (__u32)h->tos << 8 | (__u32)be16(length) << 16);
	st32(ip + 4, be32(IPV4_DF));
	st32(ip + 12, h->src);
	st32(ip + 16, h->dst);
	sum = (__u64)ld32(ip) + be32(IPV4_DF) + (h->ttl | NH_UDP << 8) + h->src + h->dst;
	st32(ip + 8, h->ttl | NH_UDP << 8 | (__u32)(__u16)~sum_fold(sum) << 16);
	st32(ip + 20, be16(flow_port(h->hash)) | (__u32)be16(GTPU_PORT) << 16);
	st32(ip + 24, be16(length - IPV4_LEN)); /* no checksum */
}

INLINE int express_push_gtpu4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *h,
			      __u32 popped)
{
	__u32 pushed = IPV4_LEN + express_gtpu_length(h->container),
	      length = x->length - popped + pushed;
	void *ip = express_push(ctx, x, popped, pushed);

	if (!ip)
		return XDP_DROP;
	if (ip + IPV4_LEN + UDP_LEN + GTPU_LEN + 8 > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: an IP packet follows */
	express_write_ipv4(ip, h, length);
	express_write_gtpu(ip + IPV4_LEN + UDP_LEN, length - IPV4_LEN - UDP_LEN - GTPU_LEN, h->teid,
			   h->container);
	return express_out(ctx, x, TYPE_IPV4);
}

/* IPv6, UDP, GTP-U. */
struct express_gtpu6_header {
	const void *src, *dst; /* not in the packet */
	__u64 sum; /* of the T-PDU */
	__u32 teid, hash;
	__u32 container; /* express_container */
	__u8 class, hop_limit;
	__u8 pad[2];
};

INLINE int express_push_gtpu6(struct xdp_md *ctx, struct express *x, struct express_gtpu6_header *h,
			      __u32 popped)
{
	__u32 pushed = express_gtpu_length(h->container), length = x->length - popped + pushed;
	__u32 first = ipv6_first_word(h->class, h->hash);
	__u32 second = ipv6_second_word(NH_UDP, h->hop_limit);
	__u32 ports = be16(flow_port(h->hash)) | (__u32)be16(GTPU_PORT) << 16;
	const void *src = h->src, *dst = h->dst;
	__u64 sum;
	void *ip;

	opaque(src); /* or of the words that are copied halves would be made */
	opaque(dst);
	sum = h->sum + address_sum(src) + address_sum(dst) + ports;
	opaque(sum); /* these take less of the stack than what they are computed from */
	opaque(first);
	ip = express_push(ctx, x, popped, IPV6_LEN + pushed);
	if (!ip)
		return XDP_DROP;
	if (ip + IPV6_LEN + UDP_LEN + GTPU_LEN + 8 > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: an IP packet follows */
	write_ipv6(ip, first, second, length, src, dst);
	st32(ip + 40, ports);
	sum += express_write_gtpu(ip + 48, length - UDP_LEN - GTPU_LEN, h->teid, h->container);
	sum += (__u64)be16(length) + pseudo_tail(length, NH_UDP);
	sum = (__u16)~sum_fold(sum);
	st32(ip + 44, be16(length) | (sum ? sum : 0xffff) << 16);
	return express_out(ctx, x, TYPE_IPV6);
}

/* Into a policy, with the segment h->last behind its list's if there is one; h->hash and
 * h->args are given. */
INLINE int express_encaps(struct xdp_md *ctx, struct express *x, __u32 policy,
			  struct express_ipv6_header *h, __u32 popped)
{
	struct chosen_list c;

	if (find_list(policy, h->hash, !!h->last, &c))
		return NOT_TAKEN;
	x->hop = express_shared(c.list->adjacency, h->hash,
				x->length - popped + srv6_length(c.srh_segments));
	if (!x->hop)
		return NOT_TAKEN;
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
