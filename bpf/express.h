/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The shapes that almost every packet has, without a plan and without detours:
 * no tags, no options, one next hop that is known and whose MTU suffices.
 * Whatever is unusual is left alone and takes the whole journey (router.h),
 * which gives the same result: the golden files and the fuzzer hold both to
 * the same model. */
#ifndef CULVERT_EXPRESS_H
#define CULVERT_EXPRESS_H

#include "router.h"

#define NOT_TAKEN -2

/* What an express packet still needs to know when it leaves. */
struct express {
	struct next_hop *hop;
	__u32 sid, list, tunnel;
	__u16 frame;         /* length as received */
	__u16 sid_length, list_length, tunnel_length;
	__u8 port_flags;
};

INLINE struct next_hop *express_adjacency(__u32 index, __u32 length)
{
	struct adjacency *adj = bpf_map_lookup_elem(&adjacency, &index);
	struct next_hop *hop;

	if (!index || !adj)
		return 0;
	hop = &adj->half[adj->current & 1];
	if (hop->flags != NEXT_HOP_READY || hop->tags || length > hop->mtu)
		return 0;
	return hop;
}

/* The route that an earlier packet found. */
INLINE struct next_hop *express_route(__u64 hi, __u64 lo, __u32 table, __u32 length)
{
	struct cached *slot = cache_slot(hi, lo, table);

	if (!table || !slot || !cache_holds(slot, hi, lo, table, cache_generation()))
		return 0;
	return express_adjacency(slot->index, length);
}

/* Ethernet header, counters, out. The layer-3 packet starts at ETH_LEN. */
INLINE int express_out(struct xdp_md *ctx, struct express *x, __u16 type)
{
	__u8 *eth = (void *)(long)ctx->data;
	int verdict;

	if ((void *)eth + ETH_LEN > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: the packet is longer */
	st64(eth, ld64(x->hop->dst));
	st32(eth + 8, ld32(x->hop->src + 2));
	st16(eth + 12, be16(type));
	verdict = bpf_redirect_map(&device, x->hop->ifindex, XDP_DROP);
	if (verdict == XDP_DROP) {
		count(&outcomes, REASON_NO_ROUTE, x->frame);
		return XDP_DROP;
	}
	count(&outcomes, REASON_FORWARDED, x->frame);
	if (x->sid)
		count(&sid_counter, x->sid, x->sid_length);
	if (x->list)
		count(&list_counter, x->list, x->list_length);
	if (x->tunnel) {
		__u32 index = x->tunnel;
		struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);

		if (t) {
			__sync_fetch_and_add(&t->packets, 1);
			__sync_fetch_and_add(&t->bytes, x->tunnel_length);
		}
	}
	return verdict;
}

/* ---- the inner packet ---- */

/* Whether layer 4 may have been left to the device. */
INLINE int express_partial4(struct ipv4 *ip, __u32 length, void *end)
{
	__u32 field = ip->protocol == NH_TCP ? 16 : 6;
	void *l4 = (void *)ip + IPV4_LEN;
	__u64 pseudo = (__u64)ld32(&ip->src) + ld32(&ip->dst) + pseudo_tail(length - IPV4_LEN, ip->protocol);

	if (ip->protocol != NH_TCP && ip->protocol != NH_UDP)
		return 0;
	if (l4 + 18 > end)
		return 1;
	return ld16(l4 + field) == sum_fold(pseudo);
}

INLINE int express_partial6(struct ipv6 *ip, __u32 length, void *end)
{
	__u32 field = ip->next_header == NH_TCP ? 16 : 6;
	void *l4 = (void *)ip + IPV6_LEN;
	__u64 sum = sum_add64(address_sum(&ip->src), address_sum(&ip->dst));

	if (ip->next_header != NH_TCP && ip->next_header != NH_UDP)
		return 0;
	if (l4 + 18 > end)
		return 1;
	return ld16(l4 + field) == sum_fold(sum_add64(sum, pseudo_tail(length - IPV6_LEN, ip->next_header)));
}

/* An IPv4 packet without options that ends where the frame does, with hops to
 * spend and its checksum in place. */
INLINE int express_ipv4(struct ipv4 *ip, void *end, __u8 port_flags)
{
	if ((void *)ip + IPV4_LEN > end || ip->version_ihl != 0x45 || ip->ttl <= 1)
		return 0;
	if (be16(ld16(&ip->length)) != (long)end - (long)ip || ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK))
		return 0;
	return !(port_flags & PORT_PARTIAL_CHECKSUM) || !express_partial4(ip, be16(ld16(&ip->length)), end);
}

INLINE int express_ipv6(struct ipv6 *ip, void *end, __u8 port_flags)
{
	if ((void *)ip + IPV6_LEN > end || (be32(ld32(ip)) >> 28) != 6 || ip->hop_limit <= 1)
		return 0;
	if (IPV6_LEN + be16(ld16(&ip->payload_length)) != (long)end - (long)ip)
		return 0;
	return !(port_flags & PORT_PARTIAL_CHECKSUM) ||
	       !express_partial6(ip, IPV6_LEN + be16(ld16(&ip->payload_length)), end);
}

/* Whether decapsulation leaves the inner congestion mark as it is. */
INLINE int express_ecn(__u8 outer, __u8 inner)
{
	return ecn_decapsulate(outer, inner) == (inner & 3);
}

/* ---- decapsulation ---- */

/* The inner packet at `inner` goes on alone, by adjacency or by table. */
INLINE int express_decap4(struct xdp_md *ctx, struct express *x, struct ipv4 *inner, void *end, __u8 outer,
			  __u32 adj, __u32 table)
{
	__u32 length = (long)end - (long)inner;

	if (!express_ipv4(inner, end, x->port_flags) || !express_ecn(outer, inner->tos))
		return NOT_TAKEN;
	x->hop = adj ? express_adjacency(adj, length) : express_route(ld32(&inner->dst), ~0ull, table ? table | CACHE_IPV4 : 0, length);
	if (!x->hop)
		return NOT_TAKEN;
	ipv4_spend(inner);
	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - length - ETH_LEN)))
		return XDP_ABORTED; /* cannot be: it only shrinks */
	return express_out(ctx, x, TYPE_IPV4);
}

INLINE int express_decap6(struct xdp_md *ctx, struct express *x, struct ipv6 *inner, void *end, __u8 outer,
			  __u32 adj, __u32 table)
{
	__u32 length = (long)end - (long)inner;

	if (!express_ipv6(inner, end, x->port_flags) || !express_ecn(outer, ipv6_class(inner)))
		return NOT_TAKEN;
	x->hop = adj ? express_adjacency(adj, length)
		     : express_route(ld64(&inner->dst), ld64(&inner->dst.b[8]), table, length);
	if (!x->hop)
		return NOT_TAKEN;
	inner->hop_limit--;
	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - length - ETH_LEN)))
		return XDP_ABORTED;
	return express_out(ctx, x, TYPE_IPV6);
}

/* ---- endpoints ---- */

/* NEXT-C-SID: the next compressed SID moves up; no SRH is looked at. */
INLINE int express_csid(struct xdp_md *ctx, struct express *x, struct local_sid *sid, struct ipv6 *ip, void *end)
{
	struct u128 v = ld128(&ip->dst), argument = shl128(v, sid->length & 127);
	__u32 length = (long)end - (long)ip;

	if (sid->length > 127 || !(argument.hi | argument.lo) || ip->hop_limit <= 1)
		return NOT_TAKEN;
	v = or128(head128(v, sid->block_length & 127), shr128(argument, sid->block_length & 127));
	v.hi = be64(v.hi);
	v.lo = be64(v.lo);
	x->hop = sid->behavior == END_X ? express_adjacency(sid->adjacency, length)
					: express_route(v.hi, v.lo, sid->table, length);
	if (!x->hop)
		return NOT_TAKEN;
	st64(&ip->dst, v.hi);
	st64(&ip->dst.b[8], v.lo);
	ip->hop_limit--;
	return express_out(ctx, x, TYPE_IPV6);
}

/* End, End.X, End.T: the next segment of the one SRH. */
INLINE int express_end(struct xdp_md *ctx, struct express *x, struct local_sid *sid, struct ipv6 *ip, void *end)
{
	struct srh *srh = (void *)ip + IPV6_LEN;
	__u32 length = (long)end - (long)ip;
	__u64 left;
	void *segment;

	if (sid->flavors & FLAVOR_NEXT_CSID)
		return express_csid(ctx, x, sid, ip, end);
	if ((void *)srh + SRH_LEN > end || ip->hop_limit <= 1)
		return NOT_TAKEN;
	left = srh->segments_left;
	opaque(left);
	if (!left || left > MAX_SEGMENTS)
		return NOT_TAKEN;
	if (ip->next_header != NH_ROUTING || srh->type != SRH_TYPE || (left == 1 && sid->flavors & FLAVOR_PSP) || left > srh->last_entry + 1u ||
	    2 * (srh->last_entry + 1u) > srh->length || IPV6_LEN + SRH_LEN + 8u * srh->length > length)
		return NOT_TAKEN;
	segment = (void *)srh + SRH_LEN + SEGMENT_LEN * (left - 1);
	if (segment + SEGMENT_LEN > end)
		return NOT_TAKEN;
	x->hop = sid->behavior == END_X ? express_adjacency(sid->adjacency, length)
					: express_route(ld64(segment), ld64(segment + 8), sid->table, length);
	if (!x->hop)
		return NOT_TAKEN;
	copy16(&ip->dst, segment);
	ip->hop_limit--;
	srh->segments_left--;
	return express_out(ctx, x, TYPE_IPV6);
}

/* ---- pushing ---- */

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

/* One IPv6 header, no SRH: H.Encaps.Red and H.M.GTP4.D with one segment. */
struct express_ipv6_header {
	struct words src, dst;
	__u32 hash;
	__u8 class, hop_limit, next_header, pad;
};

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
	return express_out(ctx, x, TYPE_IPV6);
}

/* IPv4, UDP, GTP-U, with or without a container. */
struct express_gtpu_header {
	__u32 src, dst, teid, hash;
	__u8 tos, ttl, container, container_octet;
};

INLINE int express_push_gtpu4(struct xdp_md *ctx, struct express *x, struct express_gtpu_header *h, __u32 kept)
{
	__u32 pushed = IPV4_LEN + UDP_LEN + GTPU_LEN + (h->container ? 8 : 0);
	__u32 length = pushed + kept;
	__u64 sum;
	__u8 *ip;

	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - kept - pushed - ETH_LEN))) {
		count(&outcomes, REASON_HEADROOM, x->frame);
		return XDP_DROP;
	}
	ip = (void *)(long)ctx->data + ETH_LEN;
	if ((void *)ip + IPV4_LEN + UDP_LEN + GTPU_LEN + 8 > (void *)(long)ctx->data_end)
		return XDP_ABORTED; /* cannot be: an IP packet follows */
	/* the words of the IPv4 header, and their sum at once */
	st32(ip, 0x45 | (__u32)h->tos << 8 | (__u32)be16(length) << 16);
	st32(ip + 4, be32(IPV4_DF));
	st32(ip + 12, h->src);
	st32(ip + 16, h->dst);
	sum = (__u64)ld32(ip) + be32(IPV4_DF) + (h->ttl | NH_UDP << 8) + h->src + h->dst;
	st32(ip + 8, h->ttl | NH_UDP << 8 | (__u32)(__u16)~sum_fold(sum) << 16);
	st32(ip + 20, be16(flow_port(h->hash)) | (__u32)be16(GTPU_PORT) << 16);
	st32(ip + 24, be16(length - IPV4_LEN)); /* no checksum */
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

/* IPv6, UDP, GTP-U. The sum over the T-PDU is taken from its own checksum. */
struct express_gtpu6_header {
	struct words src, dst;
	__u32 teid, hash;
	__u8 class, hop_limit, container, container_octet, version;
	__u8 pad[3];
};

INLINE int express_push_gtpu6(struct xdp_md *ctx, struct express *x, struct express_gtpu6_header *h, __u32 kept)
{
	__u32 pushed = IPV6_LEN + UDP_LEN + GTPU_LEN + (h->container ? 8 : 0);
	__u32 length = pushed - IPV6_LEN + kept;
	__u64 sum;
	__u8 *ip;

	if (bpf_xdp_adjust_head(ctx, (int)(x->frame - kept - pushed - ETH_LEN))) {
		count(&outcomes, REASON_HEADROOM, x->frame);
		return XDP_DROP;
	}
	sum = sum_fold(payload_sum(ctx, ETH_LEN + pushed, kept, h->version));
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
	sum += (__u64)ld32(ip + 40) + be16(length) + ld32(ip + 48) + ld32(ip + 52);
	if (h->container) {
		st32(ip + 56, (__u32)GTPU_EXT_CONTAINER << 24);
		st32(ip + 60, 1 | (h->container == CONTAINER_UPLINK ? 0x1000 : 0) |
				      (__u32)h->container_octet << 16);
		sum += (__u64)ld32(ip + 56) + ld32(ip + 60);
	}
	sum += sum_fold(sum_add64(address_sum(ip + 8), address_sum(ip + 24))) + pseudo_tail(length, NH_UDP);
	sum = (__u16)~sum_fold(sum);
	st32(ip + 44, be16(length) | (sum ? sum : 0xffff) << 16);
	return express_out(ctx, x, TYPE_IPV6);
}

/* End.M.GTP6.E, behind the one SRH with one segment left. */
INLINE int express_gtp6_e(struct xdp_md *ctx, struct express *x, struct local_sid *sid, struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct srh *srh = (void *)ip + IPV6_LEN;
	struct express_gtpu6_header h = {};
	__u64 args, skip;
	__u32 kept;
	void *inner;

	if (!m || ip->next_header != NH_ROUTING || (void *)srh + SRH_LEN + SEGMENT_LEN > end ||
	    srh->type != SRH_TYPE || srh->segments_left != 1 || ip->hop_limit <= 1 ||
	    2 * (srh->last_entry + 1u) > srh->length)
		return NOT_TAKEN;
	skip = srh->length;
	opaque(skip);
	if (skip > 2 * MAX_SEGMENTS)
		return NOT_TAKEN;
	inner = (void *)srh + SRH_LEN + 8 * skip;
	h.version = srh->next_header == NH_IPV4 ? 4 : 6;
	if (srh->next_header == NH_IPV4 && express_ipv4(inner, end, x->port_flags))
		h.hash = express_hash4(inner, end);
	else if (srh->next_header == NH_IPV6 && express_ipv6(inner, end, x->port_flags))
		h.hash = express_hash6(inner, end);
	else
		return NOT_TAKEN;
	kept = (long)end - (long)inner;
	args = bits128(ld128(&ip->dst), sid->length & 127, ARGS_MOB_BITS);
	h.teid = args_mob_session(args);
	h.container = m->container;
	h.container_octet = args_mob_qfi(args) |
			    (m->container == CONTAINER_DOWNLINK && args_mob_r(args) ? 0x40 : 0);
	h.class = ipv6_class(ip);
	h.hop_limit = ip->hop_limit - 1;
	copy16(&h.src, &m->source);
	copy16(&h.dst, (void *)srh + SRH_LEN);
	x->hop = express_route(h.dst.hi, h.dst.lo, MAIN_TABLE,
			       kept + IPV6_LEN + UDP_LEN + GTPU_LEN + (h.container ? 8 : 0));
	if (!x->hop)
		return NOT_TAKEN;
	return express_push_gtpu6(ctx, x, &h, kept);
}

/* End.M.GTP4.E. */
INLINE int express_gtp4_e(struct xdp_md *ctx, struct express *x, struct local_sid *sid, struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct express_gtpu_header h = {};
	void *inner = (void *)ip + IPV6_LEN;
	__u32 kept = (long)end - (long)inner;
	struct u128 dst = ld128(&ip->dst);
	__u64 args;

	if (!m || ip->hop_limit <= 1 || inner + IPV4_LEN > end)
		return NOT_TAKEN;
	if (ip->next_header == NH_IPV4 && express_ipv4(inner, end, x->port_flags))
		h.hash = express_hash4(inner, end);
	else if (ip->next_header == NH_IPV6 && express_ipv6(inner, end, x->port_flags))
		h.hash = express_hash6(inner, end);
	else
		return NOT_TAKEN;
	args = bits128(dst, (sid->length + 32) & 127, ARGS_MOB_BITS);
	h.dst = be32(bits128(dst, sid->length & 127, 32));
	h.src = be32(bits128(ld128(&ip->src), m->source_length & 127, 32));
	h.teid = args_mob_session(args);
	h.container = m->container;
	h.container_octet = args_mob_qfi(args) |
			    (m->container == CONTAINER_DOWNLINK && args_mob_r(args) ? 0x40 : 0);
	h.tos = ipv6_class(ip);
	h.ttl = ip->hop_limit - 1;
	x->hop = express_route(h.dst, ~0ull, MAIN_TABLE | CACHE_IPV4,
			       kept + IPV4_LEN + UDP_LEN + GTPU_LEN + (h.container ? 8 : 0));
	if (!x->hop)
		return NOT_TAKEN;
	return express_push_gtpu4(ctx, x, &h, kept);
}

/* Into the one segment of a policy's one list. */
INLINE int express_encaps(struct xdp_md *ctx, struct express *x, struct settings *cfg, __u32 index,
			  struct express_ipv6_header *h, __u32 kept)
{
	struct sr_policy *policy = bpf_map_lookup_elem(&sr_policy, &index);
	struct segment_list *list;

	if (!policy || policy->count != 1 || policy->behavior != H_ENCAPS_RED)
		return NOT_TAKEN;
	x->list = policy->list[0].list;
	x->list_length = kept + IPV6_LEN;
	index = x->list;
	list = bpf_map_lookup_elem(&segment_list, &index);
	if (!list || list->count != 1)
		return NOT_TAKEN;
	x->hop = express_adjacency(list->adjacency, kept + IPV6_LEN);
	if (!x->hop)
		return NOT_TAKEN;
	copy16(&h->src, &list->source);
	copy16(&h->dst, &list->segment[0]);
	h->hop_limit = cfg->hop_limit;
	return CONTINUE;
}

/* ---- GTP-U in ---- */

/* A G-PDU without options, or with one container of 4 octets: the T-PDU, or
 * NULL. The container's octets go to `container` (0x80 where there is none). */
INLINE void *express_gpdu(struct udp *udp, void *end, __u32 *teid, __u32 *container)
{
	struct gtpu *gtpu = (void *)udp + UDP_LEN;
	void *pdu = (void *)gtpu + GTPU_LEN;
	__u32 first;

	if (pdu + 8 > end)
		return 0;
	first = ld32(gtpu);
	if (be16(ld16(&udp->length)) != (long)end - (long)udp ||
	    be16(first >> 16) != (long)end - (long)pdu)
		return 0;
	*teid = be32(ld32(&gtpu->teid));
	*container = 0;
	if ((first & 0xffff) == (GTPU_VERSION1 | GTPU_G_PDU << 8))
		return pdu;
	if ((first & 0xffff) != (GTPU_VERSION1 | GTPU_FLAG_E | GTPU_G_PDU << 8))
		return 0;
	*container = ld32(pdu + 4);
	if (ld32(pdu) >> 24 != GTPU_EXT_CONTAINER || (*container & 0xff) != 1 || *container >> 24)
		return 0;
	return pdu + 8;
}

/* End.M.GTP6.D into the one segment of a policy's one list. */
INLINE int express_gtp6_d(struct xdp_md *ctx, struct express *x, struct settings *cfg, struct local_sid *sid,
			  struct ipv6 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &sid->mobile);
	struct udp *udp = (void *)ip + IPV6_LEN;
	struct express_ipv6_header h = {};
	__u32 teid = 0, container = 0, kept;
	__u64 args;
	void *inner;

	if (!m || ip->next_header != NH_UDP || (void *)udp + UDP_LEN > end || ip->hop_limit <= 1 ||
	    ld16(&udp->dst) != be16(GTPU_PORT))
		return NOT_TAKEN;
	inner = express_gpdu(udp, end, &teid, &container);
	if (!inner || (container >> 12 & 0xf) > 1)
		return NOT_TAKEN;
	kept = (long)end - (long)inner;
	if (m->pdu_type == PDU_IPV4 && express_ipv4(inner, end, x->port_flags)) {
		h.hash = express_hash4(inner, end);
		h.next_header = NH_IPV4;
	} else if (m->pdu_type == PDU_IPV6 && express_ipv6(inner, end, x->port_flags)) {
		h.hash = express_hash6(inner, end);
		h.next_header = NH_IPV6;
	} else {
		return NOT_TAKEN;
	}
	if (express_encaps(ctx, x, cfg, sid->policy, &h, kept) == NOT_TAKEN)
		return NOT_TAKEN;
	args = args_mob(container >> 16 & 0x3f, !(container >> 12 & 0xf) && container >> 22 & 1, teid);
	stamp_args(&h.dst, args, m->args_offset);
	copy16(&h.src, &m->source);
	h.class = ipv6_class(ip);
	h.hop_limit = ip->hop_limit - 1;
	return express_push6(ctx, x, &h, kept);
}

/* To a GTP-U address of ours. */
INLINE int express_receive(struct xdp_md *ctx, struct express *x, struct settings *cfg, struct ipv4 *ip, void *end)
{
	__u32 teid = 0, container = 0, slot;
	struct tunnel *t;
	struct ipv4 *inner = express_gpdu((void *)ip + IPV4_LEN, end, &teid, &container);

	if (!inner || (void *)inner + IPV4_LEN > end)
		return NOT_TAKEN;
	slot = teid & 0xffffff;
	t = bpf_map_lookup_elem(&tunnel, &slot);
	if (slot >= cfg->teid_slots || !t || t->action != TUNNEL_DECAP || t->key != teid)
		return NOT_TAKEN;
	x->tunnel = slot;
	x->tunnel_length = (long)end - (long)inner;
	if (inner->version_ihl == 0x45)
		return inner->protocol == NH_UDP && is_gtpu4(cfg, ld32(&inner->dst)) ? NOT_TAKEN :
		       express_decap4(ctx, x, inner, end, ip->tos, t->adjacency, t->index);
	if (inner->version_ihl >> 4 == 6 && !cfg->gtpu6_count)
		return express_decap6(ctx, x, (void *)inner, end, ip->tos, t->adjacency, t->index);
	return NOT_TAKEN;
}

/* H.M.GTP4.D without a policy. */
INLINE int express_gtp4_d(struct xdp_md *ctx, struct express *x, __u32 index, struct ipv4 *ip, void *end)
{
	struct mobile *m = bpf_map_lookup_elem(&mobile, &index);
	struct express_ipv6_header h = {};
	__u32 teid = 0, container = 0, kept;
	struct u128 v;
	void *inner;
	__u64 args;

	inner = express_gpdu((void *)ip + IPV4_LEN, end, &teid, &container);
	if (!m || m->policy || !inner || (container >> 12 & 0xf) > 1)
		return NOT_TAKEN;
	if (m->pdu_type == PDU_IPV4 && express_ipv4(inner, end, x->port_flags)) {
		h.hash = express_hash4(inner, end);
		h.next_header = NH_IPV4;
	} else if (m->pdu_type == PDU_IPV6 && express_ipv6(inner, end, x->port_flags)) {
		h.hash = express_hash6(inner, end);
		h.next_header = NH_IPV6;
	} else {
		return NOT_TAKEN;
	}
	kept = (long)end - (long)inner;
	args = args_mob(container >> 16 & 0x3f, !(container >> 12 & 0xf) && container >> 22 & 1, teid);
	v = place128(ld128(&m->target), be32(ld32(&ip->dst)), m->target_length & 127, 32);
	v = place128(v, args, (m->target_length + 32) & 127, ARGS_MOB_BITS);
	st128(&h.dst, v);
	v = clear128(ld128(&m->source), m->source_length & 127, 32);
	st128(&h.src, place128(v, be32(ld32(&ip->src)), m->source_length & 127, 32));
	x->hop = m->adjacency ? express_adjacency(m->adjacency, kept + IPV6_LEN)
			      : express_route(h.dst.hi, h.dst.lo, MAIN_TABLE, kept + IPV6_LEN);
	if (!x->hop)
		return NOT_TAKEN;
	h.class = ip->tos;
	h.hop_limit = ip->ttl - 1;
	return express_push6(ctx, x, &h, kept);
}

/* ---- headends ---- */

/* Into a tunnel over IPv4. */
INLINE int express_send4(struct xdp_md *ctx, struct express *x, struct settings *cfg, __u32 index,
			 struct ipv4 *ip, void *end)
{
	struct tunnel *t = bpf_map_lookup_elem(&tunnel, &index);
	struct express_gtpu_header g = {};
	struct in6 *from;
	__u32 kept = (long)end - (long)ip, key;

	if (!t || t->action != TUNNEL_GTPU || !t->ipv4)
		return NOT_TAKEN;
	key = t->source;
	from = bpf_map_lookup_elem(&source, &key);
	x->hop = express_adjacency(t->adjacency,
				   kept + IPV4_LEN + UDP_LEN + GTPU_LEN + (t->container ? 8 : 0));
	if (!x->hop || !from)
		return NOT_TAKEN;
	x->tunnel = index;
	x->tunnel_length = kept;
	g.src = ld32(&from->b[12]);
	g.dst = ld32(&t->remote.b[12]);
	g.teid = t->teid;
	g.container = t->container;
	g.container_octet = t->qfi;
	g.tos = ip->tos;
	g.ttl = cfg->hop_limit;
	g.hash = express_hash4(ip, end);
	ipv4_spend(ip);
	return express_push_gtpu4(ctx, x, &g, kept);
}

INLINE int express_steer4(struct xdp_md *ctx, struct express *x, struct settings *cfg, __u32 policy,
			  struct ipv4 *ip, void *end)
{
	struct express_ipv6_header h = {};
	__u32 kept = (long)end - (long)ip;

	if (!express_ipv4(ip, end, x->port_flags) ||
	    express_encaps(ctx, x, cfg, policy, &h, kept) == NOT_TAKEN)
		return NOT_TAKEN;
	h.hash = express_hash4(ip, end);
	h.class = ip->tos;
	h.next_header = NH_IPV4;
	ipv4_spend(ip);
	return express_push6(ctx, x, &h, kept);
}

/* ---- whose ---- */

INLINE int express_input6(struct xdp_md *ctx, struct express *x, struct settings *cfg, struct ipv6 *ip, void *end)
{
	__u32 index = find_sid(cfg, &ip->dst);
	struct local_sid *sid = bpf_map_lookup_elem(&local_sid, &index);
	void *inner = (void *)ip + IPV6_LEN;
	__u32 adj;

	if (!index || !sid || be32(ld32(ip)) >> 28 != 6 ||
	    IPV6_LEN + be16(ld16(&ip->payload_length)) != (long)end - (long)ip)
		return NOT_TAKEN;
	x->sid = index;
	x->sid_length = (long)end - (long)ip;
	switch (sid->behavior) {
	case END:
	case END_X:
	case END_T:
		return express_end(ctx, x, sid, ip, end);
	case END_DX4:
	case END_DT4:
		if (ip->next_header != NH_IPV4 || sid->flags & SID_DIRECT)
			return NOT_TAKEN;
		adj = sid->behavior == END_DX4 ? sid->adjacency : 0;
		return express_decap4(ctx, x, inner, end, ipv6_class(ip), adj, adj ? 0 : sid->table);
	case END_DX6:
	case END_DT6:
		if (ip->next_header != NH_IPV6 || sid->flags & SID_DIRECT)
			return NOT_TAKEN;
		adj = sid->behavior == END_DX6 ? sid->adjacency : 0;
		return express_decap6(ctx, x, inner, end, ipv6_class(ip), adj, adj ? 0 : sid->table);
	case END_M_GTP4_E:
		return express_gtp4_e(ctx, x, sid, ip, end);
	case END_M_GTP6_E:
		return express_gtp6_e(ctx, x, sid, ip, end);
	case END_M_GTP6_D:
		return express_gtp6_d(ctx, x, cfg, sid, ip, end);
	}
	return NOT_TAKEN;
}

INLINE int express_input4(struct xdp_md *ctx, struct express *x, struct settings *cfg, struct ipv4 *ip, void *end)
{
	struct udp *udp = (void *)ip + IPV4_LEN;
	__u32 dst = ld32(&ip->dst), index;
	struct cached *to;
	int gtpu;

	if (ip->version_ihl != 0x45 || ip->ttl <= 1 || (void *)udp + UDP_LEN > end ||
	    be16(ld16(&ip->length)) != (long)end - (long)ip || ld16(&ip->fragment) & be16(IPV4_FRAGMENT_MASK))
		return NOT_TAKEN;
	gtpu = ip->protocol == NH_UDP && ld16(&udp->dst) == be16(GTPU_PORT);
	if (is_gtpu4(cfg, dst))
		return gtpu ? express_receive(ctx, x, cfg, ip, end) : NOT_TAKEN;
	index = pool4_index(cfg, be32(dst));
	if (index && express_ipv4(ip, end, x->port_flags))
		return express_send4(ctx, x, cfg, index, ip, end);
	to = cache_slot(dst, ~0ull, CACHE_IPV4);
	if (index || !to || !cache_holds(to, dst, ~0ull, CACHE_IPV4, cache_generation()))
		return NOT_TAKEN;
	if (to->kind == TARGET_GTP4D && gtpu)
		return express_gtp4_d(ctx, x, to->index, ip, end);
	if (to->kind == TARGET_POLICY)
		return express_steer4(ctx, x, cfg, to->index, ip, end);
	return NOT_TAKEN;
}

/* The verdict, or NOT_TAKEN with the frame as it was. */
GLOBAL int express(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex, zero = 0;
	struct port *in = bpf_map_lookup_elem(&port, &ifindex);
	struct settings *cfg = bpf_map_lookup_elem(&settings, &zero);
	struct express x = {};
	void *l3 = data + ETH_LEN;
	__u16 type;

	if (!cfg || !in || !(in->flags & PORT_ATTACHED))
		return XDP_PASS;
	if (in->flags & (PORT_EXTERNAL | PORT_STEERED) || cfg->trace || l3 + IPV6_LEN > end)
		return NOT_TAKEN;
	x.port_flags = in->flags;
	x.frame = (long)end - (long)data;
	type = ld16(data + 12);
	if (type == be16(TYPE_IPV6))
		return express_input6(ctx, &x, cfg, l3, end);
	if (type == be16(TYPE_IPV4))
		return express_input4(ctx, &x, cfg, l3, end);
	return NOT_TAKEN;
}

#endif
