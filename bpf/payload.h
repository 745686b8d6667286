/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the packet that is kept tells about itself: its length, its flow, its
 * sum. */
#ifndef CULVERT_PAYLOAD_H
#define CULVERT_PAYLOAD_H

#include "packet.h"

/* The sum of up to MOVE_LENGTH octets from `offset` on. */
GLOBAL int sum_part(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	__u32 zero = 0, last = length & (MOVE_LENGTH - 8), i;
	struct move_buffer *scratch = bpf_map_lookup_elem(&move_scratch, &zero);
	__u64 sum = 0;

	opaque(length);
	if (!scratch || !length || length > MOVE_LENGTH)
		return 0;
	st64(scratch->b + last, 0); /* what the last words have behind the octets */
	if (bpf_xdp_load_bytes(ctx, offset, scratch->b, length))
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < MOVE_LENGTH && i < length; i += 8)
		sum += (__u64)ld32(scratch->b + i) + ld32(scratch->b + i + 4);
	return sum_fold(sum);
}

/* The sum of `length` octets from `offset` on, wherever the frame has them. */
GLOBAL int sum_octets(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	__u64 sum = 0;
	__u32 i;

#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_FRAME_LENGTH / MOVE_LENGTH && length >= MOVE_LENGTH; i++) {
		sum += sum_part(ctx, offset, MOVE_LENGTH);
		offset += MOVE_LENGTH;
		length -= MOVE_LENGTH;
	}
	return sum_fold(sum + sum_part(ctx, offset, length));
}

/* The sum over the packet at `offset`, from its own checksums where they
 * vouch for it: the cost does not depend on the length. */
INLINE __u64 payload_sum(struct xdp_md *ctx, __u32 offset, __u32 length, __u8 version)
{
	struct ipv4 *four = version == 4 ? at(ctx, offset, IPV4_LEN + UDP_LEN) : 0;
	struct ipv6 *six = version == 6 ? at(ctx, offset, IPV6_LEN + UDP_LEN) : 0;
	__u64 sum = 0;

	if (four && four->version_ihl == 0x45 &&
	    !(ld16(&four->fragment) & be16(IPV4_FRAGMENT_MASK)))
		sum = vouched_sum4(four, length);
	if (six)
		sum = vouched_sum6(six, length);
	return sum ?: sum_octets(ctx, offset, length);
}

/* A local stack may have left the layer-4 checksum to the device, with only
 * the pseudo-header summed. Such a packet is finished here. */
GLOBAL int complete_checksum(struct xdp_md *ctx, __u32 keep, __u32 keep_length, __u32 version)
{
	__u32 l4, length, offset;
	__u64 pseudo;
	__u8 protocol;
	__u16 *field, sum;

	if (version == 4) {
		struct ipv4 *ip = at(ctx, keep, IPV4_LEN);

		if (!ip || be16(ip->fragment) & IPV4_FRAGMENT_MASK)
			return 0;
		l4 = (ip->version_ihl & 0xf) * 4;
		protocol = ip->protocol;
		pseudo = (__u64)ld32(&ip->src) + ld32(&ip->dst);
	} else {
		struct ipv6 *ip = at(ctx, keep, IPV6_LEN);

		if (!ip)
			return 0;
		l4 = IPV6_LEN;
		protocol = ip->next_header;
		pseudo = address_sum(&ip->src) + address_sum(&ip->dst);
	}
	if (protocol == NH_TCP)
		offset = 16;
	else if (protocol == NH_UDP)
		offset = 6;
	else
		return 0;
	if (keep_length < l4 + offset + 2)
		return 0;
	length = keep_length - l4;
	l4 += keep;
	field = at(ctx, l4 + offset, 2);
	if (!field || ld16(field) != sum_fold(pseudo + pseudo_tail(length, protocol)))
		return 0;
	/* the field holds the pseudo-header's sum, so summing the segment adds it */
	sum = ~sum_octets(ctx, l4, length);
	field = at(ctx, l4 + offset, 2);
	if (field)
		st16(field, !sum && protocol == NH_UDP ? 0xffff : sum);
	return 0;
}

/* The flow hash of the packet at `offset`; version 0: a frame. A function of its own: it needs
 * room on the stack, and the lane reads most flows itself. */
GLOBAL __u32 flow_hash(struct xdp_md *ctx, __u32 offset, __u32 length, __u32 version)
{
	__u32 l4, label = 0;
	__u8 protocol;
	void *word;
	__u64 h;

	if (version == 4) {
		struct ipv4 *ip = at(ctx, offset, IPV4_LEN);

		if (!ip)
			return 0;
		h = flow_ipv4(ip);
		protocol = ip->protocol;
		l4 = (ip->version_ihl & 0xf) * 4;
		if (be16(ip->fragment) & IPV4_FRAGMENT_MASK)
			return flow_finish(h, protocol, 0);
	} else if (version == 6) {
		struct ipv6 *ip = at(ctx, offset, IPV6_LEN);

		if (!ip)
			return 0;
		h = flow_ipv6(ip);
		protocol = ip->next_header;
		label = flow_label(ip);
		l4 = IPV6_LEN;
	} else {
		__u8 *eth = at(ctx, offset, ETH_LEN);

		if (!eth || length < ETH_LEN)
			return 0;
		return flow_ethernet(eth);
	}
	if (!flow_has_word(protocol) || length < l4 + 4)
		return flow_finish(h, protocol, label);
	if (length >= l4 + FLOW_WORD_LEN) {
		word = at(ctx, offset + l4, FLOW_WORD_LEN);
		return flow_finish(h, protocol, word ? flow_word(protocol, word) : 0);
	}
	word = at(ctx, offset + l4, 4);
	return flow_finish(h, protocol, word ? ld32(word) : 0);
}

INLINE __u32 payload_hash(struct xdp_md *ctx, struct packet *p)
{
	return flow_hash(ctx, p->plan.keep, p->plan.keep_length, p->plan.keep_version);
}

/* The packet at p->plan.keep, of which `available` octets are there, must be whole
 * and of `version` (0: either); what is behind it is cut. 0, or the reason. */
INLINE int take_payload(struct xdp_md *ctx, struct packet *p, __u32 available, __u8 version,
			enum reason bad)
{
	__u8 *first = at(ctx, p->plan.keep, 1);
	__u32 length;

	if (!first || !available)
		return REASON_INNER_MALFORMED;
	p->plan.keep_version = *first >> 4;
	if (version && p->plan.keep_version != version)
		return bad;
	if (p->plan.keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->plan.keep, IPV4_LEN);

		if (!ip || available < IPV4_LEN)
			return REASON_INNER_MALFORMED;
		length = be16(ip->length);
		if ((ip->version_ihl & 0xf) < 5 || length < (ip->version_ihl & 0xf) * 4u)
			return REASON_INNER_MALFORMED;
	} else if (p->plan.keep_version == 6) {
		struct ipv6 *ip = at(ctx, p->plan.keep, IPV6_LEN);

		if (!ip || available < IPV6_LEN)
			return REASON_INNER_MALFORMED;
		length = IPV6_LEN + be16(ip->payload_length);
	} else {
		return bad;
	}
	if (length > available)
		return REASON_INNER_MALFORMED;
	p->plan.keep_length = length;
	return 0;
}

/* Hop limit or TTL of the packet that is kept. */
INLINE __u8 payload_hops(struct xdp_md *ctx, struct packet *p, __u8 *class)
{
	if (p->plan.keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->plan.keep, IPV4_LEN);

		*class = ip ? ip->tos : 0;
		return ip ? ip->ttl : 0;
	}
	struct ipv6 *ip = at(ctx, p->plan.keep, IPV6_LEN);

	*class = ip ? ipv6_class(ip) : 0;
	return ip ? ip->hop_limit : 0;
}

#endif
