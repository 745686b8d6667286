/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The translators of RFC 9433. */
#ifndef CULVERT_EXPRESS_MOBILE_H
#define CULVERT_EXPRESS_MOBILE_H

#include "endpoint.h"

/* ---- SRv6 to GTP-U ---- */

/* The container to send. */
INLINE __u32 express_args_container(struct mobile *m, __u64 args)
{
	return container_word(m->container,
			      args_mob_qfi(args) | (args_mob_r(args) ? CONTAINER_RQI : 0));
}

/* The MSS of SYN packets in the T-PDU at `l3` is for the journey to see. */
INLINE int express_gateway_syn(struct xdp_md *ctx, struct express *x, __u32 l3)
{
	return x->cfg->mss_clamp & MSS_OF_GATEWAY && find_syn(ctx, l3);
}

/* Room for addresses that are in no table: the stack has none. NULL: cannot be. */
INLINE struct plan *express_room(void)
{
	struct packet *p = journey_packet();

	return p ? &p->plan : 0;
}

/* End.M.GTP6.E, behind the one SRH with one segment left. */
INLINE int express_gtp6_e(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
			  struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct srh *srh = (void *)ip + IPV6_LEN;
	struct express_gtpu6_header h = {};
	struct plan *room = express_room();
	__u32 popped, length;
	__u64 skip, args;
	void *inner;

	if (!m || !room || ip->next_header != NH_ROUTING ||
	    (void *)srh + SRH_LEN + SEGMENT_LEN > end || ld16(&srh->type) != (SRH_TYPE | 1 << 8) ||
	    ip->hop_limit <= 1 || /* Segments Left 1 */
	    !holds_segments(srh))
		return not_taken();
	skip = srh->length;
	opaque(skip);
	if (skip > 2ULL * MAX_SEGMENTS)
		return not_taken();
	inner = (void *)srh + SRH_LEN + 8ULL * skip;
	popped = IPV6_LEN + SRH_LEN + 8 * skip;
	opaque(popped);
	length = x->length - popped;
	if (srh->next_header == NH_IPV4 && express_ipv4(inner, length, end, x->port_flags)) {
		h.hash = express_hash4(inner);
		h.sum = vouched_sum4(inner, length);
	} else if (srh->next_header == NH_IPV6 && express_ipv6(inner, length, end, x->port_flags)) {
		h.hash = express_hash6(inner);
		h.sum = vouched_sum6(inner, length);
	}
	if (!h.sum)
		return not_taken();
	if (express_gateway_syn(ctx, x, express_l3(x) + popped))
		return not_taken();
	args = args_mob_read(&ip->dst, sid->length);
	h.teid = args_mob_session(args);
	h.container = express_args_container(m, args);
	h.class = ipv6_class(ip);
	h.hop_limit = ip->hop_limit - 1;
	copy16(&room->last, (void *)srh + SRH_LEN);
	h.src = &m->source;
	h.dst = &room->last;
	x->hop =
		express_route(ctx, x, room->last.hi, room->last.lo, MAIN_TABLE,
			      length + IPV6_LEN + gtpu_length(h.container), express_l3(x) + popped);
	if (!x->hop)
		return not_taken();
	return express_push_gtpu6(ctx, x, &h, popped);
}

/* End.M.GTP4.E. */
INLINE int express_gtp4_e(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
			  struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct express_gtpu_header h = {};
	struct gtp4 to;
	__u8 type = 0;
	void *inner = express_upper(x, ip, end, &type);
	__u32 popped = inner - (void *)ip, length;

	if (!m || !inner || ip->hop_limit <= 1)
		return not_taken();
	opaque(popped);
	length = x->length - popped;
	if (type == NH_IPV4 && express_ipv4(inner, length, end, x->port_flags))
		h.hash = express_hash4(inner);
	else if (type == NH_IPV6 && express_ipv6(inner, length, end, x->port_flags))
		h.hash = express_hash6(inner);
	else
		return not_taken();
	if (express_gateway_syn(ctx, x, express_l3(x) + popped))
		return not_taken();
	to = read_gtp4(sid, m, ip);
	h.dst = to.dst;
	h.src = to.src;
	h.teid = args_mob_session(to.args);
	h.container = express_args_container(m, to.args);
	opaque(h.src); /* these take less of the stack than what they are computed from */
	opaque(h.teid);
	h.tos = ipv6_class(ip);
	h.ttl = ip->hop_limit - 1;
	x->hop = express_route4(ctx, x, h.dst, MAIN_TABLE,
				length + IPV4_LEN + gtpu_length(h.container),
				express_l3(x) + popped);
	if (!x->hop)
		return not_taken();
	return express_push_gtpu4(ctx, x, &h, popped);
}

/* ---- GTP-U to SRv6 ---- */

/* A G-PDU in the `length` octets from `udp` on, with one container of 4 octets at most: the T-PDU,
 * or NULL. The container's octets go to `container` (0: there is none). A sequence number is
 * passed over. */
INLINE void *express_gpdu(struct express *x, struct udp *udp, __u32 length, void *end, __u32 *teid,
			  __u32 *container)
{
	struct gtpu *gtpu = (void *)udp + UDP_LEN;
	void *options = (void *)gtpu + GTPU_LEN;
	__u64 first, extended, optional;

	if (options + 8 > end)
		return 0;
	first = ld32(gtpu);
	extended = express_bit(x, first & GTPU_FLAG_E);
	if (be16(ld16(&udp->length)) != length ||
	    be16(first >> 16) != length - UDP_LEN - GTPU_LEN ||
	    (first & 0xffff & ~GTPU_OPTIONS) != (GTPU_VERSION1 | GTPU_G_PDU << 8))
		return 0;
	*teid = be32(ld32(&gtpu->teid));
	*container = extended ? ld32(options + GTPU_OPTIONS_LEN) : 0;
	if (extended && (ld32(options) >> 24 != GTPU_EXT_CONTAINER || (*container & 0xff) != 1 ||
			 *container >> 24))
		return 0;
	optional = express_bit(x, first & GTPU_OPTIONS);
	return options + GTPU_OPTIONS_LEN * (optional + extended);
}

/* Args.Mob.Session of a G-PDU with `container`. */
INLINE __u64 express_put_args(__u32 container, __u32 teid)
{
	return args_mob(container_qfi(container), container_rqi(container), teid);
}

INLINE int express_takes4(struct mobile *m)
{
	return m->pdu_type == PDU_IPV4 || m->pdu_type == PDU_IPV4V6;
}

INLINE int express_takes6(struct mobile *m)
{
	return m->pdu_type == PDU_IPV6 || m->pdu_type == PDU_IPV4V6;
}

/* Whether the T-PDU may be one of `m`. */
INLINE int express_take_pdu(struct express *x, struct mobile *m, void *inner, __u32 length,
			    void *end, struct express_ipv6_header *h)
{
	if (express_takes4(m) && express_ipv4(inner, length, end, x->port_flags)) {
		h->hash = express_hash4(inner);
		h->next_header = NH_IPV4;
	} else if (express_takes6(m) && express_ipv6(inner, length, end, x->port_flags)) {
		h->hash = express_hash6(inner);
		h->next_header = NH_IPV6;
	}
	return h->next_header;
}

/* End.M.GTP6.D, and End.M.GTP6.D.Di, which keeps the destination as the last segment. */
INLINE int express_gtp6_d(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
			  struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct udp *udp = (void *)ip + IPV6_LEN;
	struct express_ipv6_header h = {};
	__u32 teid = 0, container = 0, popped;
	struct plan *room = express_room();
	void *inner;

	if (!m || !room || ip->next_header != NH_UDP || (void *)udp + UDP_LEN > end ||
	    ip->hop_limit <= 1 || ld16(&udp->dst) != be16(GTPU_PORT))
		return not_taken();
	inner = express_gpdu(x, udp, x->length - IPV6_LEN, end, &teid, &container);
	if (!inner)
		return not_taken();
	popped = inner - (void *)ip;
	if (!express_take_pdu(x, m, inner, x->length - popped, end, &h))
		return not_taken();
	h.args = srh_args(express_put_args(container, teid), m->args_offset);
	if (sid->behavior == END_M_GTP6_D_DI) {
		h.last = &room->last;
		copy16(h.last, &ip->dst);
	}
	if (express_gateway_syn(ctx, x, express_l3(x) + popped) ||
	    express_encaps(ctx, x, sid->policy, &h, popped) == NOT_TAKEN)
		return not_taken();
	h.src = &m->source;
	h.class = ipv6_class(ip);
	h.hop_limit = ip->hop_limit - 1;
	return express_push6(ctx, x, &h, popped);
}

/* The route is that of the SID without its argument. It is the same for all that
 * is steered like this packet, and kept with what steered it. */
INLINE struct next_hop *express_sid_route(struct xdp_md *ctx, struct express *x, struct mobile *m,
					  struct cached *to, __be32 dst, __u32 length, __u32 l3)
{
	struct cached *slot;
	struct words sid;

	if (m->adjacency)
		return express_adjacency(m->adjacency, length);
	if (to->lo == CACHE_NO_ROUTE) {
		st128(&sid, gtp4_sid(m, dst, 0));
		slot = express_cached(x, sid.hi, sid.lo, MAIN_TABLE);
		if (!slot || !slot->index)
			return slot ? express_hop(ctx, slot, sid.hi, sid.lo, MAIN_TABLE, length, l3)
				    : 0;
		to->lo = slot->index;
	}
	return express_adjacency(to->lo, length);
}

/* H.M.GTP4.D. */
INLINE int express_gtp4_d(struct xdp_md *ctx, struct express *x, struct cached *to, struct ipv4 *ip,
			  void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &to->index);
	struct express_ipv6_header h = {};
	__u32 teid = 0, container = 0, popped;
	struct plan *room = express_room();
	void *inner;

	inner = express_gpdu(x, (void *)ip + IPV4_LEN, x->length - IPV4_LEN, end, &teid,
			     &container);
	if (!m || !room || !inner)
		return not_taken();
	popped = inner - (void *)ip;
	if (!express_take_pdu(x, m, inner, x->length - popped, end, &h) ||
	    express_gateway_syn(ctx, x, express_l3(x) + popped))
		return not_taken();
	st128(&room->src, gtp4_source(m, ld32(&ip->src)));
	st128(&room->last, gtp4_sid(m, ld32(&ip->dst), express_put_args(container, teid)));
	h.dst = &room->last;
	if (m->policy) {
		h.last = &room->last;
		if (express_encaps(ctx, x, m->policy, &h, popped) == NOT_TAKEN)
			return not_taken();
	} else {
		x->hop = express_sid_route(ctx, x, m, to, ld32(&ip->dst),
					   x->length - popped + IPV6_LEN, express_l3(x) + popped);
		if (!x->hop)
			return not_taken();
	}
	h.src = &room->src;
	h.class = ip->tos;
	h.hop_limit = ip->ttl - 1;
	return express_push6(ctx, x, &h, popped);
}

#endif
