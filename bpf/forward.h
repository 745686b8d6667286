/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Carries out a packet's plan: next hop, MTU, edits, pushed headers, Ethernet
 * header, out. Until the MTU is known to hold nothing has been changed, so
 * that an error can quote the packet as it came. */
#ifndef CULVERT_FORWARD_H
#define CULVERT_FORWARD_H

#include "mss.h"
#include "next_hop.h"
#include "port.h"
#include "push.h"
#include "srv6/mobile.h"

/* Below that IPv6 cannot go (RFC 8200 section 5). */
#define IPV6_MIN_MTU 1280

/* The daemon cuts the IPv4 packet at `offset`, unless it must stay whole: 0, or a reason. */
INLINE int cut(struct packet *p, struct ipv4 *ip, __u32 offset, int mtu)
{
	if (ip->version_ihl >> 4 != 4 || be16(ld16(&ip->fragment)) & IPV4_DF)
		return 0;
	icmp(p, offset, 0, 0, mtu);
	p->end.punt = PUNT_FRAGMENT;
	return REASON_SLOW_PATH;
}

/* Whether the packet inside is of IPv6 and no longer than its least MTU. Nobody makes that smaller,
 * so that what this node puts around it leaves in fragments (RFC 2473 section 7.1). */
INLINE int leaves_in_fragments(struct xdp_md *ctx, struct packet *p)
{
	__u32 inside = p->plan.gateway ? p->plan.keep : p->plan.quote;
	__u32 length = p->plan.gateway ? p->plan.keep_length : p->plan.quote_length;
	__u8 *ip = at(ctx, inside, 1);

	return p->plan.push && p->out.hop.ifindex && inside >= ETH_LEN && ip && *ip >> 4 == 6 &&
	       length <= IPV6_MIN_MTU;
}

/* CONTINUE where it leaves in fragments, or a reason. */
GLOBAL int too_big(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip;
	int mtu, reason;

	if (!p)
		return REASON_TOO_BIG;
	if (leaves_in_fragments(ctx, p)) {
		p->end.punt = PUNT_FRAGMENT_OUTER;
		return CONTINUE;
	}
	if (p->plan.gateway) { /* GTP-U's sender cannot mend what its T-PDU's may */
		ip = at(ctx, p->plan.keep, IPV4_LEN);
		reason = ip ? cut(p, ip, p->plan.keep,
				  p->out.hop.mtu - (p->plan.length - p->plan.keep_length))
			    : 0;
		if (reason)
			return reason;
	}
	ip = at(ctx, p->plan.quote, IPV4_LEN);
	mtu = p->out.hop.mtu - (p->plan.length - p->plan.quote_length);
	if (!ip || p->plan.quote < ETH_LEN) /* a whole frame has no sender to tell */
		return REASON_TOO_BIG;
	if (p->plan.onward || (p->plan.quote == p->plan.keep && p->plan.edit == EDIT_INNER)) {
		reason = cut(p, ip, p->plan.quote, mtu);
		if (reason)
			return reason;
	}
	/* only the session's anchor knows the way to its sender */
	if (p->plan.onward && !p->found.from_ue)
		return REASON_TOO_BIG;
	if (ip->version_ihl >> 4 == 6 && mtu < IPV6_MIN_MTU) {
		if (p->plan.quote_length <= IPV6_MIN_MTU)
			return REASON_TOO_BIG; /* no sender makes it smaller */
		mtu = IPV6_MIN_MTU;
	}
	icmp(p, p->plan.quote, ICMP6_TOO_BIG, 0, mtu);
	return REASON_TOO_BIG;
}

/* Outer IPv6 of an endpoint: new destination, one hop and one segment less. */
INLINE int edit_endpoint(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6 *ip = at(ctx, p->in.l3, IPV6_LEN);
	struct srh *srh = p->in.srh ? at(ctx, p->in.srh, SRH_LEN) : 0;

	if (!ip || (p->in.srh && !srh))
		return -1;
	if (p->plan.map_checksum)
		map_checksum(ip, (void *)(long)ctx->data_end, p->in.l3_length, &p->plan.dst);
	advance(ip, srh, p->plan.push ? &p->plan.last : &p->plan.dst);
	return 0;
}

/* The packet that stays: one hop less, and at decapsulation the outer
 * congestion mark (RFC 6040). ecn was found to be possible. */
INLINE int edit_inner(struct xdp_md *ctx, struct packet *p)
{
	if (p->plan.keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->plan.keep, IPV4_LEN);

		if (!ip)
			return -1;
		if (p->plan.decapsulated && p->plan.ecn != (ip->tos & 3))
			ipv4_set_ecn(ip, p->plan.ecn);
		ipv4_spend(ip);
	} else {
		struct ipv6 *ip = at(ctx, p->plan.keep, IPV6_LEN);

		if (!ip)
			return -1;
		if (p->plan.decapsulated && p->plan.ecn != (ipv6_class(ip) & 3))
			ipv6_set_ecn(ip, p->plan.ecn);
		ip->hop_limit--;
	}
	return 0;
}

/* Cuts what is behind the packet, and makes the frame start so that the pushed header and an Ethernet
 * header fit before what is kept. */
INLINE int reshape(struct xdp_md *ctx, struct packet *p)
{
	int end = p->plan.keep + p->plan.keep_length, tail = end - p->in.frame;
	int head = p->plan.keep - p->plan.push_length - ETH_LEN;
	int is_padding = p->in.version && end == p->in.l3 + p->in.l3_length &&
			 may_stay_behind(-tail, p->in.received);

	if (tail && !is_padding && bpf_xdp_adjust_tail(ctx, tail))
		return -1;
	if (head && bpf_xdp_adjust_head(ctx, head))
		return -1;
	return 0;
}

/* The kernel spends a hop of its own on what it forwards for us. The frame is
 * addressed as the received one was: to this node. */
INLINE int pass_finished(struct xdp_md *ctx, struct packet *p)
{
	if (p->plan.family == 4) {
		struct ipv4 *ip = at(ctx, ETH_LEN, IPV4_LEN);
		__u16 from;

		if (!ip)
			return REASON_HEADROOM;
		from = ld16(&ip->ttl);
		if (ip->ttl == 255)
			return REASON_PASSED;
		st16(&ip->ttl, from + 1);
		st16(&ip->checksum, checksum_update(ld16(&ip->checksum), from, from + 1));
	} else {
		struct ipv6 *ip = at(ctx, ETH_LEN, IPV6_LEN);

		if (!ip)
			return REASON_HEADROOM;
		if (ip->hop_limit != 255)
			ip->hop_limit++;
	}
	return REASON_PASSED;
}

INLINE void count_rule(__u32 index, __u32 slice, __u32 octets)
{
	struct pdr *rule = bpf_map_lookup_elem(&pdr, &index);

	if (rule)
		volume_add(&rule->volume, octets);
	if (slice)
		count(&slice_counter, slice, octets);
}

GLOBAL int count_matches(struct packet *p)
{
	struct tunnel *t;
	__u32 index;

	if (!p)
		return 0;
	index = p->found.tunnel;
	if (p->found.sid)
		count(&sid_counter, p->found.sid, p->found.sid_length);
	if (p->found.list)
		count(&list_counter, p->found.list, p->plan.length);
	if (p->found.class_index)
		count(&class_counter, p->found.class_index, p->plan.length);
	if (index) {
		t = bpf_map_lookup_elem(&tunnel, &index);
		if (t)
			volume_add(&t->volume, p->found.tunnel_length);
	}
	if (p->found.pdr)
		count_rule(p->found.pdr, p->found.slice, p->found.tunnel_length);
	if (p->found.from_pdr)
		count_rule(p->found.from_pdr, p->found.from_slice, p->found.tunnel_length);
	return 0;
}

/* The frame is finished, but for its length. */
INLINE int fragment_outer(struct xdp_md *ctx, struct packet *p)
{
	count_matches(p);
	p->in.frame = frame_length(ctx);
	p->error.l3 = ETH_LEN + p->out.hop.tags * VLAN_LEN;
	p->error.info = p->out.hop.mtu;
	return REASON_SLOW_PATH;
}

INLINE int out(struct packet *p)
{
	/* also where it came from: XDP_TX does not wake the peer of a veth */
	if (bpf_redirect_map(&device, p->out.hop.ifindex, XDP_DROP) != XDP_REDIRECT)
		return REASON_NO_ROUTE;
	count_matches(p);
	return REASON_FORWARDED;
}

/* The finished packet is for the kernel: to send it on, to keep it, or to lead it back here. */
GLOBAL int give_to_kernel(struct xdp_md *ctx, struct packet *p)
{
	int reason = CONTINUE;

	if (!p)
		return REASON_HOST;
	if (!p->out.again)
		reason = refuse_finished(ctx, p);
	if (reason > 0)
		return reason;
	count_matches(p);
	if (!reason)
		return REASON_PASSED; /* one hop less than a neighbour on the link has */
	reason = pass_finished(ctx, p);
	return reason == REASON_PASSED && p->out.again ? COME_AGAIN : reason;
}

/* Ethernet header, and out. The packet starts at ETH_LEN. */
INLINE int transmit(struct xdp_md *ctx, struct packet *p)
{
	__u32 tags = p->out.hop.tags;
	__u8 *eth;

	if (tags > 2 || (tags && bpf_xdp_adjust_head(ctx, -(int)(tags * VLAN_LEN))))
		return REASON_HEADROOM;
	eth = at(ctx, 0, ETH_LEN + 2 * VLAN_LEN);
	if (!eth)
		return REASON_HEADROOM;
	write_link(eth, &p->out.hop, p->plan.family == 4 ? TYPE_IPV4 : TYPE_IPV6);
	if (p->end.punt == PUNT_FRAGMENT_OUTER)
		return fragment_outer(ctx, p);
	return p->out.to_kernel ? give_to_kernel(ctx, p) : out(p);
}

GLOBAL int push_headers(struct xdp_md *ctx, struct packet *p)
{
	if (!p)
		return -1;
	switch (p->plan.push) {
	case PUSH_SRV6:
		return push_srv6(ctx, p);
	case PUSH_GTPU4:
		return push_gtpu4(ctx, p);
	case PUSH_GTPU6:
		return push_gtpu6(ctx, p);
	}
	return 0;
}

INLINE int edit(struct xdp_md *ctx, struct packet *p)
{
	if (p->plan.switch_teid) {
		struct gtpu *gtpu = at(ctx, p->gtpu.offset, GTPU_LEN);

		if (!gtpu)
			return REASON_GTPU_LENGTH;
		st32(&gtpu->teid, be32(p->gtpu.teid));
	}
	if (p->plan.edit == EDIT_ENDPOINT) {
		if (edit_endpoint(ctx, p))
			return REASON_IPV6_MALFORMED;
		if (p->plan.pop_srh)
			return remove_srh(ctx, p);
	} else if (p->plan.edit == EDIT_INNER && edit_inner(ctx, p)) {
		return REASON_INNER_MALFORMED;
	}
	return 0;
}

/* The kernel gets the frame under the addresses that it came with. */
INLINE int keep_addresses(struct xdp_md *ctx, struct packet *p)
{
	__u8 *eth = at(ctx, p->in.addresses, ETH_LEN);

	if (!eth)
		return -1;
	st64(p->out.hop.dst, ld64(eth));
	st32(p->out.hop.src + 2, ld32(eth + 8));
	p->out.hop.tags = 0;
	return 0;
}

/* The link's tags, behind the addresses that the frame has. */
INLINE int tag_frame(struct xdp_md *ctx, struct packet *p)
{
	__u32 length = p->out.hop.tags == 1 ? VLAN_LEN : 2 * VLAN_LEN;
	__u8 *eth, *addresses, *second;
	__u64 first;
	__u32 last;

	if (bpf_xdp_adjust_head(ctx, -(int)length))
		return -1;
	eth = at(ctx, 0, 12 + VLAN_LEN);
	addresses = at(ctx, length, 12);
	second = at(ctx, 12 + VLAN_LEN, VLAN_LEN);
	if (!eth || !addresses || (p->out.hop.tags > 1 && !second))
		return -1;
	first = ld64(addresses);
	last = ld32(addresses + 8);
	st64(eth, first);
	st32(eth + 8, last);
	write_tag(eth + 12, &p->out.hop, 0);
	if (p->out.hop.tags > 1 && second)
		write_tag(second, &p->out.hop, 1);
	return 0;
}

/* The tag of a link that is a VLAN, behind those of its interface. */
INLINE void add_link_tag(struct packet *p)
{
	__u32 n = p->out.hop.tags;

	if (n > 1)
		return;
	p->out.hop.tpid[n] = TYPE_VLAN;
	p->out.hop.vlan[n] = p->plan.link_tag;
	p->out.hop.tags = n + 1;
}

/* An Ethernet frame leaves as it is, but for the link's tags (End.DX2). */
INLINE int forward_frame(struct xdp_md *ctx, struct packet *p)
{
	int tail = p->plan.keep + p->plan.keep_length - p->in.frame;

	if (p->out.hop.mtu && p->plan.keep_length > p->out.hop.mtu + ETH_LEN)
		return REASON_TOO_BIG;
	if (p->plan.link_tag)
		add_link_tag(p);
	if ((tail && bpf_xdp_adjust_tail(ctx, tail)) || bpf_xdp_adjust_head(ctx, p->plan.keep) ||
	    (p->out.hop.tags && tag_frame(ctx, p)))
		return REASON_HEADROOM;
	return out(p);
}

/* How the journey ends. */
GLOBAL int forward(struct xdp_md *ctx, struct packet *p)
{
	int reason;

	if (!p)
		return REASON_NO_ROUTE;
	reason = find_next_hop(ctx, p);
	if (p->plan.push == PUSH_FRAME)
		return reason || p->out.to_kernel ? REASON_NO_ROUTE : forward_frame(ctx, p);
	if (reason == REASON_SLOW_PATH && p->end.punt == PUNT_SEND)
		count_matches(p); /* it is on its way */
	if (reason)
		return reason;
	if (p->out.to_kernel) {
		if (keep_addresses(ctx, p))
			return REASON_HEADROOM;
	} else if (p->out.hop.mtu && p->plan.length > p->out.hop.mtu) {
		reason = too_big(ctx, p);
		if (reason != CONTINUE)
			return reason;
	}
	if (p->plan.keep_version && p->port.flags & PORT_PARTIAL_CHECKSUM)
		complete_checksum(ctx, p->plan.keep, p->plan.keep_length, p->plan.keep_version);
	if (p->mss_clamp & MSS_OF_SESSIONS && p->found.pdr && !p->plan.frames)
		clamp_mss(ctx, p, p->plan.quote, p->plan.quote_length);
	if (p->mss_clamp & MSS_OF_GATEWAY && p->plan.gateway)
		clamp_mss(ctx, p, p->plan.keep, p->plan.keep_length);
	reason = edit(ctx, p);
	if (reason)
		return reason;
	if (reshape(ctx, p) || push_headers(ctx, p))
		return REASON_HEADROOM;
	return transmit(ctx, p);
}

#endif
