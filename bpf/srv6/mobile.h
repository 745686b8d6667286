/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The SRv6 mobile user plane (RFC 9433): translation between GTP-U and SRv6 by
 * what the addresses carry, without state. */
#ifndef CULVERT_SRV6_MOBILE_H
#define CULVERT_SRV6_MOBILE_H

#include "../gtpu.h"
#include "end.h"

/* SRH.tag of the messages that are no G-PDU
 * (draft-murakami-dmm-user-plane-message-encoding). */
enum message_tag {
	TAG_END_MARKER = 1,
	TAG_ERROR_INDICATION = 2,
	TAG_ECHO_REQUEST = 4,
	TAG_ECHO_RESPONSE = 8,
};

/* Information elements of an Error Indication. */
#define GTPU_IE_TEID 16
#define GTPU_IE_PEER 133
#define GTPU_INDICATION6_LEN 24 /* both, with an IPv6 address */

INLINE __u16 message_tag(__u8 message)
{
	switch (message) {
	case GTPU_END_MARKER:
		return TAG_END_MARKER;
	case GTPU_ERROR_INDICATION:
		return TAG_ERROR_INDICATION;
	case GTPU_ECHO_REQUEST:
		return TAG_ECHO_REQUEST;
	case GTPU_ECHO_RESPONSE:
		return TAG_ECHO_RESPONSE;
	}
	return 0;
}

/* Any other bit says that the tag is of a group of packets (RFC 8754 section 2). */
INLINE __u8 tagged_message(__u16 tag)
{
	switch (tag) {
	case TAG_END_MARKER:
		return GTPU_END_MARKER;
	case TAG_ERROR_INDICATION:
		return GTPU_ERROR_INDICATION;
	case TAG_ECHO_REQUEST:
		return GTPU_ECHO_REQUEST;
	case TAG_ECHO_RESPONSE:
		return GTPU_ECHO_RESPONSE;
	}
	return GTPU_G_PDU;
}

/* ---- what addresses carry ---- */

/* LOC:FUNC of a translated prefix, the IPv4 destination, and the arguments (section 6.6). */
INLINE struct u128 gtp4_sid(struct mobile *m, __be32 dst, __u64 args)
{
	struct u128 carried = { (__u64)be32(dst) << 32 | args >> 8, args << 56 };

	return or128(ld128(&m->target), shr128(carried, m->target_length & 127));
}

/* The IPv4 source in the IPv6 one. */
INLINE struct u128 gtp4_source(struct mobile *m, __be32 src)
{
	__u32 bit = m->source_length & 127;

	return place128(clear128(ld128(&m->source), bit, 32), be32(src), bit, 32);
}

/* What both say. */
struct gtp4 {
	__be32 src, dst;
	__u64 args;
};

INLINE struct gtp4 read_gtp4(struct local_sid *sid, struct mobile *m, struct ipv6 *ip)
{
	struct u128 carried = shl128(ld128(&ip->dst), sid->length & 127);

	return (struct gtp4){
		.src = be32(bits128(ld128(&ip->src), m->source_length & 127, 32)),
		.dst = be32(carried.hi >> 32),
		.args = (carried.hi & 0xffffffff) << 8 | carried.lo >> 56,
	};
}

/* ---- GTP-U to SRv6 ---- */

/* Whether the T-PDU is a jumbogram, or pretends to be one: its length is not known. */
INLINE int is_jumbo(struct xdp_md *ctx, struct packet *p)
{
	struct ipv6 *ip;

	if (p->plan.keep_version != 6 || p->plan.keep_length != IPV6_LEN)
		return 0;
	ip = at(ctx, p->plan.keep, IPV6_LEN);
	return ip && ip->next_header != NH_NONE;
}

/* What GTP-U carried becomes the payload of the SRv6 packet: next header,
 * Args, hash. 0, or a reason. */
INLINE int take_pdu(struct xdp_md *ctx, struct packet *p, __u8 pdu_type)
{
	int reason;

	p->plan.tag = 0;
	if (p->gtpu.message != GTPU_G_PDU) {
		p->plan.tag = message_tag(p->gtpu.message);
		if (!p->plan.tag)
			return REASON_GTPU_MESSAGE;
		if (p->gtpu.message == GTPU_END_MARKER)
			p->plan.keep_length = 0;
		p->plan.keep_version = 0;
		p->plan.next_header = NH_ETHERNET;
		p->plan.args = args_mob(0, 0,
					p->gtpu.message == GTPU_END_MARKER
						? p->gtpu.teid
						: (__u32)p->gtpu.sequence << 16);
		p->plan.hash = 0;
		return 0;
	}
	p->plan.args = args_mob(p->gtpu.qfi, p->gtpu.rqi, p->gtpu.teid);
	if (pdu_type >= PDU_ETHERNET) {
		if (pdu_type == PDU_ETHERNET && p->plan.keep_length < ETH_LEN)
			return REASON_INNER_MALFORMED;
		p->plan.keep_version = 0;
		p->plan.next_header = NH_ETHERNET;
	} else {
		reason = take_payload(ctx, p, p->plan.keep_length,
				      pdu_type == PDU_IPV4   ? 4
				      : pdu_type == PDU_IPV6 ? 6
							     : 0,
				      REASON_PDU_TYPE);
		if (reason)
			return reason;
		if (is_jumbo(ctx, p))
			return REASON_INNER_MALFORMED;
		p->plan.next_header = p->plan.keep_version == 4 ? NH_IPV4 : NH_IPV6;
	}
	p->plan.gateway = !!p->plan.keep_version;
	p->plan.hash = payload_hash(ctx, p);
	return 0;
}

INLINE void plan_translation(struct packet *p, __u8 hop_limit, __u8 class)
{
	p->plan.edit = EDIT_NONE;
	p->plan.hop_limit = hop_limit - 1;
	p->plan.class = class;
	p->plan.quote = p->in.l3;
	p->plan.quote_length = p->in.l3_length;
	p->plan.hashed = 1;
}

/* H.M.GTP4.D; p->in.l3 is UDP over IPv4 to port 2152 and not a fragment. */
INLINE int h_m_gtp4_d(struct xdp_md *ctx, struct packet *p, struct mobile *m, __u32 udp)
{
	struct ipv4 *ip = at(ctx, p->in.l3, IPV4_LEN);
	int reason;

	if (!ip)
		return REASON_IPV4_MALFORMED;
	if (ip->ttl <= 1)
		return hop_limit_spent(p, p->in.l3);
	plan_translation(p, ip->ttl, ip->tos);
	reason = read_gtpu(ctx, p, udp, p->in.l3 + p->in.l3_length - udp);
	if (!reason)
		reason = take_pdu(ctx, p, m->pdu_type);
	if (reason)
		return reason;
	ip = at(ctx, p->in.l3, IPV4_LEN);
	if (!ip)
		return REASON_IPV4_MALFORMED;
	st128(&p->plan.last, gtp4_sid(m, ld32(&ip->dst), p->plan.args));
	st128(&p->plan.src, gtp4_source(m, ld32(&ip->src)));
	p->plan.extra = 1;
	if (m->policy) {
		reason = plan_policy(ctx, p, m->policy, 1);
		if (reason)
			return reason;
	} else {
		/* the route is that of the SID without its argument, so that all of its
		 * sessions share one cached lookup; push_ipv6 writes p->plan.last */
		st128(&p->plan.dst, gtp4_sid(m, ld32(&ip->dst), 0));
		p->plan.adjacency = m->adjacency;
		p->plan.segments = 1;
		p->plan.srh_segments = 0;
	}
	plan_srv6(p);
	return CONTINUE;
}

/* End.M.GTP6.D and End.M.GTP6.D.Di. */
INLINE int end_m_gtp6_d(struct xdp_md *ctx, struct packet *p, struct local_sid *sid,
			struct ipv6 *ip)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	__u8 hop_limit = ip->hop_limit, class = ipv6_class(ip);
	struct udp *udp;
	int reason = find_upper(ctx, p, ip->next_header, 0);

	if (reason != CONTINUE)
		return reason;
	if (p->in.segments_left)
		return bad_segments_left(p);
	if (p->in.upper_type == NH_FRAGMENT)
		return reassemble(p);
	udp = at(ctx, p->in.upper, UDP_LEN);
	if (p->in.upper_type != NH_UDP)
		return upper_layer(p, sid);
	if (!udp || p->in.upper + UDP_LEN > p->in.l3 + p->in.l3_length)
		return REASON_UDP_MALFORMED;
	if (ld16(&udp->dst) != be16(GTPU_PORT))
		return upper_layer(p, sid);
	if (hop_limit <= 1)
		return hop_limit_spent(p, p->in.l3);
	plan_translation(p, hop_limit, class);
	reason = read_gtpu(ctx, p, p->in.upper, p->in.l3 + p->in.l3_length - p->in.upper);
	if (!m)
		return REASON_NO_SEGMENT_LIST;
	if (!reason)
		reason = take_pdu(ctx, p, m->pdu_type);
	if (reason)
		return reason;
	copy16(&p->plan.src, &m->source);
	p->plan.args_at = m->args_offset;
	if (sid->behavior == END_M_GTP6_D_DI) {
		ip = at(ctx, p->in.l3, IPV6_LEN);
		if (!ip)
			return REASON_IPV6_MALFORMED;
		copy16(&p->plan.last, &ip->dst);
		p->plan.extra = 1;
	}
	reason = plan_policy(ctx, p, sid->policy, 1);
	if (reason)
		return reason;
	plan_srv6(p);
	return CONTINUE;
}

/* ---- SRv6 to GTP-U ---- */

/* Whether the payload at p->plan.keep looks like what p->gtpu.message has behind its header, and no
 * Ethernet frame does: nothing, or less than a frame's header, or an Error Indication's
 * TEID and IPv6 address of the peer (TS 29.281 section 7.3.1). */
INLINE int looks_like_message(struct xdp_md *ctx, struct packet *p)
{
	__u8 *ie;

	if (p->gtpu.message == GTPU_END_MARKER)
		return !p->plan.keep_length;
	if (p->plan.keep_length < ETH_LEN)
		return 1;
	ie = at(ctx, p->plan.keep, GTPU_INDICATION6_LEN);
	return p->gtpu.message == GTPU_ERROR_INDICATION &&
	       p->plan.keep_length == GTPU_INDICATION6_LEN && ie && ie[0] == GTPU_IE_TEID &&
	       ie[5] == GTPU_IE_PEER && !ie[6] && ie[7] == 16;
}

/* The payload of the SRv6 packet becomes the T-PDU, or a message by its tag. */
INLINE int take_upper(struct xdp_md *ctx, struct packet *p, struct local_sid *sid)
{
	struct srh *srh;

	p->plan.keep = p->in.upper;
	p->plan.keep_length = p->in.l3 + p->in.l3_length - p->in.upper;
	p->gtpu.message = GTPU_G_PDU;
	p->plan.with_sequence = 0;
	if (p->in.upper_type == NH_IPV4 || p->in.upper_type == NH_IPV6) {
		int reason =
			take_payload(ctx, p, p->plan.keep_length,
				     p->in.upper_type == NH_IPV4 ? 4 : 6, REASON_INNER_MALFORMED);

		return reason || !is_jumbo(ctx, p) ? reason : REASON_INNER_MALFORMED;
	}
	if (p->in.upper_type != NH_ETHERNET)
		return upper_layer(p, sid);
	p->plan.keep_version = 0;
	if (p->in.srh && !(sid->flags & SID_IGNORE_TAG)) {
		srh = at(ctx, p->in.srh, SRH_LEN);
		if (!srh)
			return REASON_SRH_MALFORMED;
		p->gtpu.message = tagged_message(be16(ld16(&srh->tag)));
		if (p->gtpu.message != GTPU_G_PDU && !looks_like_message(ctx, p))
			p->gtpu.message = GTPU_G_PDU;
	}
	return 0;
}

INLINE void plan_message(struct packet *p, struct mobile *m, __u64 args)
{
	p->gtpu.teid = args_mob_session(args);
	p->plan.pdu_version = 0;
	p->gtpu.qfi = args_mob_qfi(args);
	p->gtpu.rqi = args_mob_r(args);
	p->plan.container = p->gtpu.message == GTPU_G_PDU ? m->container : CONTAINER_NONE;
	if (p->gtpu.message != GTPU_G_PDU && p->gtpu.message != GTPU_END_MARKER) {
		p->plan.with_sequence = 1;
		p->gtpu.sequence = p->gtpu.teid >> 16;
		p->gtpu.teid = 0;
	}
	if (p->gtpu.message == GTPU_END_MARKER)
		p->plan.keep_length = 0;
}

/* End.M.GTP4.E and End.M.GTP6.E. */
INLINE int end_m_gtp_e(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	__u8 hop_limit = ip->hop_limit, class = ipv6_class(ip);
	int last = sid->behavior == END_M_GTP4_E;
	int reason = find_upper(ctx, p, ip->next_header, 0);

	if (reason != CONTINUE)
		return reason;
	if (!last && !p->in.srh)
		return p->in.upper_type == NH_FRAGMENT ? reassemble(p) : upper_layer(p, sid);
	if (p->in.segments_left != (last ? 0 : 1))
		return bad_segments_left(p);
	if (p->in.upper_type == NH_FRAGMENT)
		return reassemble(p);
	if (!last) {
		reason = next_segment(ctx, p); /* p->plan.dst = Segment List[0] */
		if (reason != CONTINUE)
			return reason;
	}
	reason = take_upper(ctx, p, sid);
	if (reason)
		return reason;
	if (hop_limit <= 1)
		return hop_limit_spent(p, p->in.l3);
	plan_translation(p, hop_limit, class);
	p->plan.hash = p->gtpu.message == GTPU_G_PDU ? payload_hash(ctx, p) : 0;
	ip = at(ctx, p->in.l3, IPV6_LEN);
	if (!ip || !m)
		return REASON_IPV6_MALFORMED;
	p->plan.adjacency = 0;
	if (last) {
		struct gtp4 to = read_gtp4(sid, m, ip);

		plan_message(p, m, to.args);
		st32(&p->plan.dst, to.dst);
		st32(&p->plan.src, to.src);
		plan_gtpu(p, 4);
	} else {
		plan_message(p, m, args_mob_read(&ip->dst, sid->length));
		copy16(&p->plan.src, &m->source);
		plan_gtpu(p, 6);
	}
	p->plan.gateway = !!p->plan.keep_version;
	p->plan.own = 0; /* the sender has chosen the addresses */
	return CONTINUE;
}

/* ---- End.MAP, End.Limit ---- */

/* The layer-4 checksum covers the address that changes: where it is found
 * directly behind the IPv6 header it is kept right. */
INLINE void map_checksum(struct ipv6 *ip, void *end, __u32 length, const void *to)
{
	__u8 next_header = ip->next_header;
	__u64 sum, field = next_header == NH_TCP ? TCP_CHECKSUM : next_header == NH_UDP ? 6 : 2;
	void *checksum;

	if (next_header != NH_TCP && next_header != NH_UDP && next_header != NH_ICMPV6)
		return;
	opaque(field);
	checksum = (void *)ip + IPV6_LEN + field;
	if (checksum + 2 > end || length < IPV6_LEN + field + 2)
		return;
	if (next_header == NH_UDP && !ld16(checksum))
		return;
	sum = (__u64)(__u16)~ld16(checksum) + (__u16)~sum_fold(address_sum(&ip->dst)) +
	      sum_fold(address_sum(to));
	sum = (__u16)~sum_fold(sum);
	st16(checksum, !sum && next_header == NH_UDP ? 0xffff : sum);
}

INLINE int end_map(struct xdp_md *ctx, struct packet *p, struct local_sid *sid, struct ipv6 *ip)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);

	if (ip->hop_limit <= 1)
		return hop_limit_spent(p, p->in.l3);
	if (!m)
		return REASON_NO_ROUTE;
	p->in.srh = 0;
	copy16(&p->plan.dst, &m->target);
	plan_endpoint(p, sid, ip);
	p->plan.adjacency = m->adjacency;
	p->plan.map_checksum = 1;
	return CONTINUE;
}

#define LIMIT_BURST_MIN (8ull * 2 * 1514) /* bits */
#define LIMIT_PAYOUT_MIN 1000

INLINE __u64 limit_burst(__u64 rate)
{
	return rate / 10 > LIMIT_BURST_MIN ? rate / 10 : LIMIT_BURST_MIN;
}

/* Pays for the time that went: of several CPUs the one that moves the clock on.
 * Less than LIMIT_PAYOUT_MIN waits: of each payment a part of a bit is lost. */
INLINE void limit_pay(struct limit *limit, __u64 rate)
{
	__u64 from = *(volatile __u64 *)&limit->time;
	__u64 now = bpf_ktime_get_ns(); /* after the bucket's, see meter_pay */
	__u64 age = now - from > NS ? NS : now - from;
	__s64 earned = age / 1000 * rate / 1000000, room;

	if (now <= from || earned < LIMIT_PAYOUT_MIN ||
	    __sync_val_compare_and_swap(&limit->time, from, now) != from)
		return;
	room = limit_burst(rate) - *(volatile __u64 *)&limit->tokens;
	__sync_fetch_and_add(&limit->tokens, earned < room ? earned : room);
}

/* A bucket of `rate` bit/s holds 100 ms; 1 where the packet may go. It is below 0
 * after packets that went on several CPUs at once. */
INLINE int limit_allows(struct limit *limit, __u64 rate, __u64 bits)
{
	limit_pay(limit, rate);
	if ((__s64) * (volatile __u64 *)&limit->tokens < (__s64)bits)
		return 0;
	__sync_fetch_and_sub(&limit->tokens, bits);
	return 1;
}

/* p->found.sid `sid`'s argument, `length` bits into the destination at `l3`, says the
 * group and its rate. CONTINUE, or REASON_LIMITED. */
GLOBAL int end_limit(struct xdp_md *ctx, __u32 sid, __u32 l3, __u32 mobile_index, __u32 length)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &mobile_index);
	struct limit_key key = {};
	struct ipv6 *ip;
	struct limit *bucket;
	struct u128 dst;
	__u64 rate, octets;

	if (!m)
		return REASON_LIMITED;
	ip = at(ctx, l3, IPV6_LEN);
	if (!ip)
		return REASON_IPV6_MALFORMED;
	dst = ld128(&ip->dst);
	octets = IPV6_LEN + be16(ld16(&ip->payload_length));
	if (!m->rate_bits)
		return CONTINUE;
	rate = bits128(dst, (length + m->group_bits) & 127, m->rate_bits & 63) * m->rate_unit;
	if (!rate)
		return CONTINUE;
	key.sid = sid;
	key.group = m->group_bits ? bits128(dst, length & 127, m->group_bits & 63) : 0;
	bucket = bpf_map_lookup_elem(&limit_by_group, &key);
	if (!bucket) {
		struct limit fresh = { .time = bpf_ktime_get_ns(), .tokens = limit_burst(rate) };

		bpf_map_update_elem(&limit_by_group, &key, &fresh, BPF_NOEXIST);
		bucket = bpf_map_lookup_elem(&limit_by_group, &key);
		if (!bucket)
			return REASON_LIMITED;
	}
	return limit_allows(bucket, rate, 8ull * octets) ? CONTINUE : REASON_LIMITED;
}

#endif
