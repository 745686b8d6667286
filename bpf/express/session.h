/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions whose packet one rule takes, found by TEID or by UE address: a
 * cache line. What has filters, shared meters or a limit that is reached takes
 * the whole journey. */
#ifndef CULVERT_EXPRESS_SESSION_H
#define CULVERT_EXPRESS_SESSION_H

#include "mobile.h"
#include "onward.h"

/* ---- may it go ---- */

#define PACKET_TO_UE 64 /* instead of a QFI: the packet had none */

/* Behind filters the entry of the rule that takes the packet at `l3`, which then is
 * x->rule; else `entry` itself, x->rule's. `rule` is what it says, as read before and then.
 * `qfi`: PACKET_TO_UE where only what is sent to UEs leads. */
INLINE struct pdr *express_choose(struct xdp_md *ctx, struct express *x, struct pdr *entry,
				  struct rule *rule, __u32 l3, __u32 length, __u32 qfi)
{
	struct ipv4 *ip;
	__u32 index;

	if (rule->action != PDR_FILTERS)
		return entry;
	if (qfi == PACKET_TO_UE && !(rule->flags & PDR_DOWNLINK))
		return 0;
	ip = at(ctx, l3, IPV4_LEN);
	index = ip ? straight_rule(entry, x->rule, rule, ip, qfi & 63) : 0;
	if (!index)
		index = find_rule(ctx, x->rule, sought_at(l3, length), qfi, act_word(rule));
	x->rule = index;
	entry = index ? bpf_map_lookup_elem(&pdr, &index) : 0;
	if (entry)
		read_rule(rule, entry);
	return entry;
}

/* The rule's forwarding, where it forwards IP packets and nothing but rates may
 * refuse; then x->tunnel counts. */
INLINE struct forwarding *express_forwarding(struct express *x, struct pdr *entry,
					     struct rule *rule)
{
	__u32 index = rule->forwarding, units = usage_units(&entry->volume);
	struct forwarding *f;

	if (rule->action != PDR_FORWARD || rule->flags & PDR_DUPLICATE || rule->qfi & PDR_FRAMES ||
	    usage_reached(units, entry->stop) || usage_reached(units, entry->notify))
		return 0;
	f = bpf_map_lookup_elem(&forwarding, &index);
	if (!f)
		return 0;
	x->tunnel = &entry->volume;
	return f;
}

/* A rate refuses, and that is the end. */
GLOBAL int express_refuse(__u32 index, __u32 octets, __u32 reason, __u32 frame)
{
	count(&outcomes, refuse(index, octets, reason), frame);
	return XDP_DROP;
}

/* Takes from the rates, once nothing else can refuse: CONTINUE or a verdict. */
INLINE int express_rates(struct express *x, struct forwarding *f, struct pdr *entry,
			 struct rule *rule, __u32 octets)
{
	__u32 slice = slice_index(f, rule);
	int reason = take_rates(entry, rule, slice, octets);

	if (reason)
		return express_refuse(x->rule, octets, reason, express_received(x));
	x->slice = slice ? bpf_map_lookup_elem(&slice_counter, &slice) : 0;
	return CONTINUE;
}

/* The UE's address, where the head's `flags` say that it is known; else one that may be forwarded. */
INLINE int express_source4(struct pdr *head, __u8 flags, struct ipv4 *ip)
{
	if (flags & (PDR_SOURCE4 | PDR_SOURCE6))
		return flags & PDR_SOURCE4 && ld32(&ip->src) == head->source4;
	return !is_martian_source4(ld32(&ip->src));
}

INLINE int express_source6(struct pdr *head, __u8 flags, struct ipv6 *ip)
{
	if (flags & (PDR_SOURCE4 | PDR_SOURCE6))
		return flags & PDR_SOURCE6 && ld64(&ip->src) == head->source6;
	return !is_martian_source6(&ip->src);
}

/* What might be GTP-U in GTP-U is for the journey to see. */
INLINE int express_nested4(struct express *x, struct ipv4 *inner, void *end)
{
	struct udp *udp = (void *)inner + IPV4_LEN;

	return inner->protocol == NH_UDP &&
	       ((void *)udp + UDP_LEN > end || ld16(&udp->dst) == be16(GTPU_PORT)) &&
	       is_gtpu4(x->cfg, ld32(&inner->dst));
}

INLINE int express_nested6(struct express *x, struct ipv6 *inner)
{
	return inner->next_header == NH_UDP && is_gtpu6(x->cfg, &inner->dst);
}

/* The MSS of SYN packets is for the journey to see. */
INLINE int express_syn(struct xdp_md *ctx, struct express *x, __u32 l3)
{
	return x->cfg->mss_clamp & MSS_OF_SESSIONS && find_syn(ctx, l3);
}

/* ---- into a tunnel ---- */

INLINE int express_rule_gtpu4(struct xdp_md *ctx, struct express *x, struct rule *rule,
			      struct forwarding *f, __u8 class, __u32 hash, __u32 kept)
{
	struct express_gtpu_header g = {};

	g.src = ld32(&f->source.b[12]);
	g.dst = ld32(&f->remote.b[12]);
	g.teid = rule->teid;
	g.container = container_word(rule->flags >> PDR_CONTAINER_SHIFT, rule->qfi);
	g.tos = marked(f, class);
	g.ttl = x->cfg->hop_limit;
	g.hash = hash;
	return express_push_gtpu4(ctx, x, &g, x->length - kept);
}

INLINE int express_rule_gtpu6(struct xdp_md *ctx, struct express *x, struct rule *rule,
			      struct forwarding *f, __u8 class, __u32 hash, __u64 sum, __u32 kept)
{
	struct express_gtpu6_header h = {};

	h.src = &f->source;
	h.dst = &f->remote;
	h.sum = sum;
	h.teid = rule->teid;
	h.container = container_word(rule->flags >> PDR_CONTAINER_SHIFT, rule->qfi);
	h.class = marked(f, class);
	h.hop_limit = x->cfg->hop_limit;
	h.hash = hash;
	return express_push_gtpu6(ctx, x, &h, x->length - kept);
}

/* Into the forwarding's segment, or its policy. */
INLINE int express_rule_srv6(struct xdp_md *ctx, struct express *x, struct rule *rule,
			     struct forwarding *f, __u8 class, __u8 next_header,
			     struct express_ipv6_header *h, __u32 kept)
{
	if (f->kind != FORWARD_VPN)
		h->args = srh_args(args_mob(rule->qfi & 0x3f, rule->qfi >> 6 & 1, rule->teid),
				   f->args_at);
	h->class = marked(f, class);
	h->next_header = next_header;
	return express_push6(ctx, x, h, x->length - kept);
}

/* The policy to where the slice's VPN has a route for a packet from a UE, which may reach its
 * destination; 0: the journey has to look. */
INLINE __u32 express_vpn(struct express *x, struct forwarding *f, void *ip, __u8 version)
{
	__u32 table = cache_table(f->index) | CACHE_GUARDED | (version == 4 ? CACHE_IPV4 : 0);
	struct ipv4 *four = ip;
	struct ipv6 *six = ip;
	struct cached *to = express_cached(x, version == 4 ? ld32(&four->dst) : ld64(&six->dst),
					   version == 4 ? ~0ull : ld64(&six->dst.b[8]), table);

	return to && to->kind == TARGET_POLICY ? to->index : 0;
}

/* By policy `policy`, or to the forwarding's segment. */
INLINE int express_rule_segment(struct xdp_md *ctx, struct express *x, struct forwarding *f,
				__u32 policy, struct express_ipv6_header *h, __u32 kept)
{
	x->class = f->class;
	if (f->kind != FORWARD_SRV6)
		return policy && express_encaps(ctx, x, policy, h, x->length - kept) != NOT_TAKEN;
	x->hop = express_shared(f->adjacency, h->hash, kept + IPV6_LEN);
	h->src = &f->source;
	h->dst = &f->remote;
	h->hop_limit = x->cfg->hop_limit;
	return !!x->hop;
}

INLINE int express_into(struct xdp_md *ctx, struct express *x, struct pdr *entry, struct rule *rule,
			struct forwarding *f, void *ip, __u32 kept, __u8 version, __u8 class,
			__u32 hash)
{
	struct express_ipv6_header h = { .hash = hash };
	__u64 sum = 0;
	__u32 pushed =
		gtpu_length(rule->flags >> PDR_CONTAINER_SHIFT) + (f->ipv4 ? IPV4_LEN : IPV6_LEN);
	__u32 policy = f->index;
	int verdict;

	if (f->kind == FORWARD_SRV6 || f->kind == FORWARD_POLICY || f->kind == FORWARD_VPN) {
		if (f->kind == FORWARD_VPN)
			policy = rule->flags & PDR_DOWNLINK || f->internal
					 ? 0
					 : express_vpn(x, f, ip, version);
		if (!express_rule_segment(ctx, x, f, policy, &h, kept))
			return not_taken();
	} else if (f->kind == FORWARD_GTPU) {
		x->hop = express_shared(f->adjacency, hash, kept + pushed);
		if (!f->ipv4)
			sum = version == 4 ? vouched_sum4(ip, kept) : vouched_sum6(ip, kept);
		if (!x->hop || (!f->ipv4 && !sum))
			return not_taken();
	} else {
		return not_taken();
	}
	verdict = express_rates(x, f, entry, rule, kept);
	if (verdict != CONTINUE)
		return verdict;
	if (version == 4)
		ipv4_spend(ip);
	else
		((struct ipv6 *)ip)->hop_limit--;
	if (h.src)
		return express_rule_srv6(ctx, x, rule, f, class, version == 4 ? NH_IPV4 : NH_IPV6,
					 &h, kept);
	if (f->ipv4)
		return express_rule_gtpu4(ctx, x, rule, f, class, hash, kept);
	/* the hop that was spent: IPv4's own checksum makes it good */
	return express_rule_gtpu6(ctx, x, rule, f, class, hash,
				  sum + (version == 6 ? (__u16)~0x100 : 0), kept);
}

/* The packet at `where` (sought_at) by rule `index` into a tunnel; it came by SID `sid`, if that
 * is not 0. A function of its own: it is the same for all who ask, and the
 * verifier need not go through it for each. */
GLOBAL int express_send_rule(struct xdp_md *ctx, __u32 index, __u32 where, __u32 sid,
			     __u32 port_flags)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct pdr *entry = bpf_map_lookup_elem(&pdr, &index);
	struct rule rule;
	struct express x = { .cfg = &node_settings };
	struct forwarding *f;
	__u64 l3 = where & 0xffff;
	struct ipv4 *ip = data + l3;
	struct ipv6 *six = data + l3;
	__u32 kept = where >> 16, hash;
	__u8 class, version;

	if (!entry || l3 > MAX_OFFSET || (void *)ip + IPV4_LEN > end)
		return not_taken();
	x.port_flags = port_flags;
	x.length = l3 - express_l3(&x) + kept;
	if (express_ipv4(ip, kept, end, port_flags) && !is_martian_source4(ld32(&ip->src))) {
		version = 4;
		class = ip->tos;
		hash = express_hash4(ip);
	} else if (express_ipv6(six, kept, end, port_flags) && !is_martian_source6(&six->src)) {
		version = 6;
		class = ipv6_class(six);
		hash = express_hash6(six);
	} else {
		return not_taken();
	}
	x.rule = index;
	read_rule(&rule, entry);
	entry = express_choose(ctx, &x, entry, &rule, l3, kept, PACKET_TO_UE);
	f = entry ? express_forwarding(&x, entry, &rule) : 0;
	if (!entry || !f || express_syn(ctx, &x, l3))
		return not_taken();
	x.tunnel_length = kept;
	x.sid = sid ? bpf_map_lookup_elem(&sid_counter, &sid) : 0;
	return express_into(ctx, &x, entry, &rule, f, ip, kept, version, class, hash);
}

/* ---- behind a NAT ---- */

/* The IPv4 packet at `l3` of a UE behind NAT `which` leaves by a route that is known and has one
 * next hop: flows that share several are told apart by what leaves. Its port is asked for
 * last, once its rates let it go. */
INLINE int express_from_nat(struct xdp_md *ctx, struct express *x, struct pdr *entry,
			    struct rule *rule, struct forwarding *f, struct ipv4 *inner,
			    __u32 which, __u64 length)
{
	__u32 l3 = express_l3(x) + x->length - length,
	      table = f->index | CACHE_IPV4 | CACHE_GUARDED;
	struct cached *slot = express_cached4(x, ld32(&inner->dst), table);
	int read = nat_read(ctx, l3, 0), verdict;

	if (read < 0 || read & NAT_READ_QUOTED || nat_of_address(ld32(&inner->dst)))
		return not_taken();
	x->hop = express_adjacency(slot ? slot->index : find_far(ld32(&inner->dst), ~0ull, table),
				   length);
	if (!x->hop)
		return not_taken();
	verdict = express_rates(x, f, entry, rule, length);
	if (verdict != CONTINUE)
		return verdict;
	if (nat_leave(ctx, l3, which, read))
		return express_drop(x, REASON_NAT_PORTS);
	x->tunnel_length = length;
	ipv4_spend(inner);
	return express_cut(ctx, x, x->length - length, TYPE_IPV4);
}

/* ---- from the UE ---- */

/* Where the T-PDU is: its length is known. */
INLINE __u32 express_inner(struct express *x)
{
	return express_l3(x) + x->length - x->tunnel_length;
}

/* Whether what leaves for the data network gets an outer header. Into a VPN it takes congestion
 * marks of the one that it had along, which the journey sees to. */
INLINE int express_is_pushed(struct forwarding *f, __u8 outer, __u8 inner)
{
	return f->kind == FORWARD_SRV6 || f->kind == FORWARD_POLICY ||
	       (f->kind == FORWARD_VPN && ecn_stays(outer, inner));
}

/* To a destination that an earlier packet found free for UEs to reach, or into
 * an SRv6 tunnel. */
INLINE int express_from_ue4(struct xdp_md *ctx, struct express *x, struct pdr *entry,
			    struct rule *rule, struct forwarding *f, struct ipv4 *inner, __u8 outer)
{
	__u32 which, length = x->tunnel_length;
	int verdict;

	if (!express_ipv4(inner, length, packet_end(ctx), x->port_flags))
		return not_taken();
	if (express_is_pushed(f, outer, inner->tos))
		return express_nested4(x, inner, packet_end(ctx))
			       ? not_taken()
			       : express_send_rule(ctx, x->rule,
						   sought_at(express_inner(x), length), 0,
						   x->port_flags);
	if (f->kind != FORWARD_TABLE || f->internal || !ecn_stays(outer, inner->tos))
		return not_taken();
	which = x->cfg->nats ? nat_of_ue(ld32(&inner->src)) : 0;
	if (which)
		return express_from_nat(ctx, x, entry, rule, f, inner, which, length);
	x->hop = express_route4(ctx, x, ld32(&inner->dst), f->index | CACHE_GUARDED, length,
				express_inner(x));
	if (!x->hop)
		return not_taken();
	verdict = express_rates(x, f, entry, rule, length);
	if (verdict != CONTINUE)
		return verdict;
	ipv4_spend(inner);
	return express_cut(ctx, x, x->length - length, TYPE_IPV4);
}

INLINE int express_from_ue6(struct xdp_md *ctx, struct express *x, struct pdr *entry,
			    struct rule *rule, struct forwarding *f, struct ipv6 *inner, __u8 outer)
{
	__u32 length = x->tunnel_length;
	int verdict;

	if (!express_ipv6(inner, length, packet_end(ctx), x->port_flags))
		return not_taken();
	if (express_is_pushed(f, outer, ipv6_class(inner)))
		return express_nested6(x, inner)
			       ? not_taken()
			       : express_send_rule(ctx, x->rule,
						   sought_at(express_inner(x), length), 0,
						   x->port_flags);
	if (f->kind != FORWARD_TABLE || f->internal || !ecn_stays(outer, ipv6_class(inner)))
		return not_taken();
	x->hop = express_route(ctx, x, ld64(&inner->dst), ld64(&inner->dst.b[8]),
			       f->index | CACHE_GUARDED, length, express_inner(x));
	if (!x->hop)
		return not_taken();
	verdict = express_rates(x, f, entry, rule, length);
	if (verdict != CONTINUE)
		return verdict;
	inner->hop_limit--;
	return express_cut(ctx, x, x->length - length, TYPE_IPV6);
}

/* The G-PDU goes on to another F-TEID. */
INLINE int express_session_onward(struct xdp_md *ctx, struct express *x, struct pdr *entry,
				  struct rule *rule, struct forwarding *f, struct ipv4 *ip,
				  struct ipv4 *inner)
{
	struct express_gtpu_header g = {};
	int verdict;

	if (!f->ipv4 || !express_pdu_hash(inner, x->tunnel_length, packet_end(ctx), &g.hash))
		return not_taken();
	if ((void *)inner + IPV6_LEN > packet_end(ctx))
		return not_taken();
	if (inner->version_ihl == 0x45 ? express_nested4(x, inner, packet_end(ctx))
				       : express_nested6(x, (void *)inner))
		return not_taken();
	x->hop = express_shared(f->adjacency, g.hash, x->length - express_shrinks(x));
	if (!x->hop)
		return not_taken();
	verdict = express_rates(x, f, entry, rule, x->tunnel_length);
	if (verdict != CONTINUE)
		return verdict;
	g.src = ld32(&f->source.b[12]);
	g.dst = ld32(&f->remote.b[12]);
	g.teid = rule->teid;
	g.tos = marked(f, express_class(x, ip));
	g.ttl = express_hops(x, ip) - 1;
	return express_onward4(ctx, x, &g, ip);
}

/* Whether the T-PDU is an IP packet from where its TEID's may come. */
INLINE int express_source(struct xdp_md *ctx, struct pdr *head, __u8 flags, struct ipv4 *inner)
{
	if (inner->version_ihl == 0x45)
		return (void *)inner + IPV4_LEN <= packet_end(ctx) &&
		       express_source4(head, flags, inner);
	return is_ipv6(inner) && (void *)inner + IPV6_LEN <= packet_end(ctx) &&
	       express_source6(head, flags, (void *)inner);
}

/* A G-PDU for rule `index`, or for one of several that this leads to. */
INLINE int express_session(struct xdp_md *ctx, struct express *x, __u32 index, void *ip,
			   struct ipv4 *inner, __u32 container)
{
	struct pdr *head = bpf_map_lookup_elem(&pdr, &index), *entry;
	__u32 popped = (void *)inner - ip;
	struct rule rule = {};
	struct forwarding *f;

	opaque(popped);
	x->tunnel_length = x->length - popped;
	if (!head)
		return not_taken();
	read_rule(&rule, head); /* one word says what sources are asked for, and which filters */
	if (!express_source(ctx, head, rule.flags, inner))
		return not_taken();
	x->rule = index;
	entry = express_choose(ctx, x, head, &rule, express_inner(x), x->tunnel_length,
			       container_qfi(container));
	f = entry ? express_forwarding(x, entry, &rule) : 0;
	if (!entry || !f || express_syn(ctx, x, express_inner(x)))
		return not_taken();
	if (f->kind == FORWARD_GTPU && (container ? f->control : rule.flags >> PDR_CONTAINER_SHIFT))
		return not_taken(); /* it loses its container, or gets one */
	if (f->kind == FORWARD_GTPU)
		return express_session_onward(ctx, x, entry, &rule, f, ip, inner);
	if (inner->version_ihl == 0x45)
		return express_from_ue4(ctx, x, entry, &rule, f, inner, express_class(x, ip));
	return express_from_ue6(ctx, x, entry, &rule, f, (void *)inner, express_class(x, ip));
}

/* ---- to the UE ---- */

/* The packet that was received, by rule `index`. */
INLINE int express_to_ue(struct xdp_md *ctx, struct express *x, __u32 index)
{
	return express_send_rule(ctx, index, sought_at(express_l3(x), x->length), 0, x->port_flags);
}

/* The IPv4 packet `ip` is for a public address of NAT `which`: on to its UE. Where the journey
 * has to look, it gets the packet as it came. */
INLINE int express_to_nat(struct xdp_md *ctx, struct express *x, struct ipv4 *ip, void *end,
			  __u32 which)
{
	__u32 public = ld32(&ip->dst), ue, port = 0;
	struct pool4 *pool;
	int read, verdict;

	if (!express_payload4(ip, x->length, end, x->port_flags) || nat_of_address(ld32(&ip->src)))
		return not_taken();
	read = nat_read(ctx, express_l3(x), 1);
	if (read < 0 || read & NAT_READ_QUOTED)
		return not_taken();
	ue = nat_ue_of(nat_number(which), be32(public) & ~nat_number(which)->address_mask, read,
		       &port);
	pool = ue ? find_pool4(x->cfg, ue) : 0;
	if (!pool || !pool->sessions)
		return not_taken();
	nat_rewrite(ctx, express_l3(x), NAT_DESTINATION, be32(ue), port);
	verdict = express_to_ue(ctx, x, pool->base + (ue & ~pool->mask));
	if (verdict == NOT_TAKEN)
		nat_rewrite(ctx, express_l3(x), NAT_DESTINATION, public, read & 0xffff);
	return verdict;
}

/* The rule of the UE that a packet at a SID is for; 0: the journey has to look. */
INLINE __u32 express_at_sid(struct local_sid *sid, struct ipv6 *ip, __u32 six, __u64 src, __u64 dst)
{
	__u32 index;

	if (args_mob_session(args_mob_read(&ip->dst, sid->length)))
		return 0;
	index = pdr_at_sid(sid->slice, AT_SID_DESTINATION4 + six, dst);
	return index && !pdr_at_sid(sid->slice, AT_SID_SOURCE4 + six, src) ? index : 0;
}

/* What comes out of an SRv6 tunnel of a slice, to its UEs. */
INLINE int express_sid_sessions(struct xdp_md *ctx, struct express *x, struct local_sid *sid,
				__u32 counter, struct ipv6 *ip, void *inner, __u8 type, void *end)
{
	__u32 popped = inner - (void *)ip, index = 0;
	struct ipv4 *four = inner;
	struct ipv6 *six = inner;

	opaque(popped);
	if (type == NH_IPV6 && inner + IPV6_LEN <= end &&
	    ecn_stays(ipv6_class(ip), ipv6_class(six)))
		index = express_at_sid(sid, ip, 1, ld64(&six->src), ld64(&six->dst));
	if (type == NH_IPV4 && inner + IPV4_LEN <= end && ecn_stays(ipv6_class(ip), four->tos))
		index = express_at_sid(sid, ip, 0, ld32(&four->src), ld32(&four->dst));
	return index ? express_send_rule(ctx, index,
					 sought_at(express_l3(x) + popped, x->length - popped),
					 counter, x->port_flags)
		     : not_taken();
}

#endif
