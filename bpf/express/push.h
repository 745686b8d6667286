/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The headers that are pushed: one IPv6 header, or GTP-U over IPv4 or IPv6. */
#ifndef CULVERT_EXPRESS_PUSH_H
#define CULVERT_EXPRESS_PUSH_H

#include "lane.h"

/* The flow hash of a packet that express_ipv4/6 let through. */
INLINE __u32 express_hash4(struct ipv4 *ip, void *end)
{
	void *l4 = (void *)ip + IPV4_LEN;

	return flow_finish(flow_ipv4(ip), ip->protocol,
			   flow_has_ports(ip->protocol) && l4 + 4 <= end ? ld32(l4) : 0);
}

INLINE __u32 express_hash6(struct ipv6 *ip, void *end)
{
	void *l4 = (void *)ip + IPV6_LEN;

	return flow_finish(flow_ipv6(ip), ip->next_header,
			   flow_has_ports(ip->next_header) && l4 + 4 <= end ? ld32(l4) : 0);
}

#define ARGS_MOB_LEN (ARGS_MOB_BITS / 8)

/* One IPv6 header, no SRH: H.Encaps.Red and H.M.GTP4.D with one segment. What
 * each packet has of its own is put into the addresses at bit offsets; 0: no. */
struct express_ipv6_header {
	struct words src, dst;
	__u64 args;
	__u32 hash, src4, dst4; /* IPv4, in network order */
	__u8 class, hop_limit, next_header;
	__u8 src4_at, dst4_at, args_at;
	__u8 pad[6];
};

INLINE void express_put_args(__u8 *octets, __u64 args)
{
	octets[0] = args >> 32;
	st32(octets + 1, be32(args));
}

/* 0, or -1 where an offset is not an octet's. */
INLINE int express_fill6(struct ipv6 *ip, struct express_ipv6_header *h, void *end)
{
	void *at;

	if (h->src4_at) {
		at = express_octets(&ip->src, h->src4_at, 4, end);
		if (!at)
			return -1;
		st32(at, h->src4);
	}
	if (h->dst4_at) {
		at = express_octets(&ip->dst, h->dst4_at, 4, end);
		if (!at)
			return -1;
		st32(at, h->dst4);
	}
	if (h->args_at) {
		at = express_octets(&ip->dst, h->args_at, ARGS_MOB_LEN, end);
		if (!at)
			return -1;
		express_put_args(at, h->args);
	}
	return 0;
}

INLINE int express_push6(struct xdp_md *ctx, struct express *x, struct express_ipv6_header *h, __u32 kept)
{
	struct ipv6 *ip;

	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - kept - IPV6_LEN - ETH_LEN))) {
		count(&outcomes, REASON_HEADROOM, x->frame);
		return XDP_DROP;
	}
	ip = (void *)(long)ctx->data + ETH_LEN;
	if ((void *)ip + IPV6_LEN > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	st32(&ip->version_class_flow, ipv6_first_word(h->class, h->hash));
	st16(&ip->payload_length, be16(kept));
	ip->next_header = h->next_header;
	ip->hop_limit = h->hop_limit;
	copy16(&ip->src, &h->src);
	copy16(&ip->dst, &h->dst);
	if (express_fill6(ip, h, (void *)(long)ctx->data_end))
		return XDP_ABORTED; /* cannot be: they were looked at before */
	return express_out(ctx, x, TYPE_IPV6);
}

/* IPv4, UDP, GTP-U, with or without a container. */
struct express_gtpu_header {
	__u32 src, dst, teid, hash;
	__u8 tos, ttl, container, container_octet;
};

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

INLINE int express_push_gtpu4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *h, __u32 kept)
{
	__u32 pushed = IPV4_LEN + UDP_LEN + GTPU_LEN + (h->container ? 8 : 0);
	__u32 length = pushed + kept;
	__u8 *ip;

	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - kept - pushed - ETH_LEN))) {
		count(&outcomes, REASON_HEADROOM, x->frame);
		return XDP_DROP;
	}
	ip = (void *)(long)ctx->data + ETH_LEN;
	if ((void *)ip + IPV4_LEN + UDP_LEN + GTPU_LEN + 8 > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: an IP packet follows */
	express_write_ipv4(ip, h, length);
	st32(ip + 28, GTPU_VERSION1 | (h->container ? GTPU_FLAG_E : 0) | GTPU_G_PDU << 8 |
			      (__u32)be16(length - IPV4_LEN - UDP_LEN - GTPU_LEN) << 16);
	st32(ip + 32, be32(h->teid));
	if (h->container) {
		st32(ip + 36, (__u32)GTPU_EXT_CONTAINER << 24);
		st32(ip + 40, 1 | (h->container == CONTAINER_UPLINK ? 0x1000 : 0) |
				      (__u32)h->container_octet << 16);
	}
	return express_out(ctx, x, TYPE_IPV4);
}

/* IPv6, UDP, GTP-U. */
struct express_gtpu6_header {
	struct words src, dst;
	__u64 sum; /* of the T-PDU */
	__u32 teid, hash;
	__u8 class, hop_limit, container, container_octet;
	__u8 pad[4];
};

INLINE int express_push_gtpu6(struct xdp_md *ctx, struct express *x, struct express_gtpu6_header *h, __u32 kept)
{
	__u32 pushed = IPV6_LEN + UDP_LEN + GTPU_LEN + (h->container ? 8 : 0);
	__u32 length = pushed - IPV6_LEN + kept;
	__u64 sum = h->sum;
	__u8 *ip;

	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - kept - pushed - ETH_LEN))) {
		count(&outcomes, REASON_HEADROOM, x->frame);
		return XDP_DROP;
	}
	ip = (void *)(long)ctx->data + ETH_LEN;
	if ((void *)ip + IPV6_LEN + UDP_LEN + GTPU_LEN + 8 > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: an IP packet follows */
	st32(ip, ipv6_first_word(h->class, h->hash));
	st32(ip + 4, be16(length) | NH_UDP << 16 | (__u32)h->hop_limit << 24);
	copy16(ip + 8, &h->src);
	copy16(ip + 24, &h->dst);
	st32(ip + 40, be16(flow_port(h->hash)) | (__u32)be16(GTPU_PORT) << 16);
	st32(ip + 48, GTPU_VERSION1 | (h->container ? GTPU_FLAG_E : 0) | GTPU_G_PDU << 8 |
			      (__u32)be16(length - UDP_LEN - GTPU_LEN) << 16);
	st32(ip + 52, be32(h->teid));
	sum += (__u64)be16(flow_port(h->hash)) + be16(GTPU_PORT) + be16(length) + ld32(ip + 48) + be32(h->teid);
	if (h->container) {
		st32(ip + 56, (__u32)GTPU_EXT_CONTAINER << 24);
		st32(ip + 60, 1 | (h->container == CONTAINER_UPLINK ? 0x1000 : 0) |
				      (__u32)h->container_octet << 16);
		sum += (__u64)ld32(ip + 56) + ld32(ip + 60);
	}
	sum = sum_add64(sum + pseudo_tail(length, NH_UDP), sum_add64(address_sum(&h->src), address_sum(&h->dst)));
	sum = (__u16)~sum_fold(sum);
	st32(ip + 44, be16(length) | (sum ? sum : 0xffff) << 16);
	return express_out(ctx, x, TYPE_IPV6);
}

/* Into the one segment of a policy's one list. */
INLINE int express_encaps(struct xdp_md *ctx, struct express *x, __u32 index,
			  struct express_ipv6_header *h, __u32 kept)
{
	struct sr_policy *policy = bpf_map_lookup_elem(&sr_policy, &index);
	struct segment_list *list;

	if (!policy || policy->count != 1 || policy->behavior != H_ENCAPS_RED)
		return NOT_TAKEN;
	index = policy->list[0].list;
	x->list = bpf_map_lookup_elem(&list_counter, &index);
	x->list_length = kept + IPV6_LEN;
	list = bpf_map_lookup_elem(&segment_list, &index);
	if (!list || list->count != 1)
		return NOT_TAKEN;
	x->hop = express_adjacency(list->adjacency, kept + IPV6_LEN);
	if (!x->hop)
		return NOT_TAKEN;
	copy16(&h->src, &list->source);
	copy16(&h->dst, &list->segment[0]);
	h->hop_limit = x->cfg->hop_limit;
	return CONTINUE;
}

#endif
