/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The user plane function: packets of sessions, from the UE and to it
 * (TS 29.244; docs/reference/semantics.md section 7). */
#ifndef CULVERT_UPF_H
#define CULVERT_UPF_H

#include "gtpu_path.h"
#include "nat.h"
#include "session.h"

/* ---- what may be reached from a UE ---- */

/* The rule of the UE that p->plan.dst is, or of the first of several; 0: none.
 * `of_pool`: it is in a session pool. */
GLOBAL __u32 pdr_of_destination(struct packet *p)
{
	__u32 dst, index;
	struct settings *cfg = &node_settings;
	struct cached *to;
	struct pool4 *four;
	struct pool6 *six;

	if (!p || !cfg->pdr_slots)
		return 0;
	if (p->plan.family == 4) {
		dst = be32(ld32(&p->plan.dst));
		four = find_pool4(cfg, dst);
		if (four && four->sessions)
			return four->base + (dst & ~four->mask);
		index = pdr_of_ue(cfg, 0, mapped(ld32(&p->plan.dst)).lo);
		to = index ? 0 : steered_destination(cfg, ld32(&p->plan.dst), ~0ull, CACHE_IPV4);
	} else {
		six = find_pool6(cfg, be64(p->plan.dst.hi));
		if (six && six->sessions)
			return six->base + (be64(p->plan.dst.hi) & ~six->mask);
		index = pdr_of_ue6(cfg, p->plan.dst.hi);
		to = index ? 0 : steered_destination(cfg, p->plan.dst.hi, p->plan.dst.lo, 0);
	}
	return to && to->kind == TARGET_PDR ? to->index : index;
}

/* What ue_reach says of p->plan.dst. */
INLINE __u32 reach_of(struct packet *p)
{
	struct lpm6_key key = { .prefixlen = p->plan.family == 4 ? 64 : 160,
				.table = p->plan.family };
	__u32 *found;

	if (p->plan.family == 4)
		st32(&key.addr, ld32(&p->plan.dst));
	else
		copy16(&key.addr, &p->plan.dst);
	found = bpf_map_lookup_elem(&ue_reach, &key);
	return found ? *found : REACH_NONE;
}

/* Whether the T-PDU, which is not for a UE, is for what UEs must not reach. */
INLINE int for_core(struct packet *p, struct settings *cfg)
{
	__u32 sid = 0, reach;

	reach = reach_of(p);
	if (reach == REACH_CLOSED)
		return 1;
	if (p->plan.family == 4) {
		if (is_local4(be32(ld32(&p->plan.dst))))
			return 1;
		if (reach == REACH_OPEN)
			return 0;
		return stays4(ld32(&p->plan.dst));
	}
	if (is_local6(&p->plan.dst) || in_domain(cfg, &p->plan.dst) ||
	    find_sid(cfg, &p->plan.dst, &sid))
		return 1;
	return reach == REACH_OPEN ? 0 : stays6(p->plan.dst.hi, p->plan.dst.lo);
}

GLOBAL int may_reach(struct packet *p)
{
	struct settings *cfg = &node_settings;

	if (!p || for_core(p, cfg))
		return REASON_UE_TO_CORE;
	return 0;
}

/* ---- from UE to UE ---- */

/* What leads to the rules of the UE that p->plan.src is; 0: none. */
INLINE __u32 pdr_of_source(struct packet *p)
{
	struct words dst = p->plan.dst;
	__u32 index;

	p->plan.dst = p->plan.src;
	index = pdr_of_destination(p);
	p->plan.dst = dst;
	return index;
}

/* Whether NAT keeps N6 from one of both UEs: nobody there reaches a private address. */
INLINE int is_behind_nat(struct packet *p)
{
	return p->plan.family == 4 && node_settings.nats &&
	       (nat_of_ue(ld32(&p->plan.src)) || nat_of_ue(ld32(&p->plan.dst)));
}

/* A packet of a UE of `group` from p->plan.src, for what `ue` leads to. A UE does not get its own
 * back: a router that does not know its network would send it in here again. 0, or a reason. */
GLOBAL int meet_ue(struct packet *p, __u32 ue, __u64 group)
{
	struct pdr *to = bpf_map_lookup_elem(&pdr, &ue), *from;
	__u32 own;

	if (!p || group >> UE_GROUP_SHIFT == UE_TO_UE_DROP)
		return REASON_UE_TO_UE;
	if (!to || !to->action)
		return REASON_NO_PDR;
	if (to->source6 != group)
		return REASON_OTHER_SLICE;
	own = pdr_of_source(p);
	from = own ? bpf_map_lookup_elem(&pdr, &own) : 0;
	if (from && from->source6 == group && from->source4 == to->source4)
		return REASON_UE_TO_UE;
	return group >> UE_GROUP_SHIFT == UE_TO_UE_N6 && is_behind_nat(p) ? REASON_UE_TO_UE : 0;
}

/* A packet that comes in from N6, and that a UE (p->plan.src) has sent: whether its UEs reach each
 * other that way. 0, or a reason. */
GLOBAL int return_from_n6(struct packet *p)
{
	struct pdr *from;
	__u32 ue;

	if (!p)
		return REASON_UE_SOURCE;
	ue = pdr_of_source(p);
	from = ue ? bpf_map_lookup_elem(&pdr, &ue) : 0;
	if (!from || !from->action || from->source6 >> UE_GROUP_SHIFT != UE_TO_UE_N6)
		return REASON_UE_SOURCE;
	ue = pdr_of_destination(p);
	return ue && !meet_ue(p, ue, from->source6) ? 0 : REASON_UE_SOURCE;
}

INLINE int return_from_n6_by4(struct packet *p, struct ipv4 *ip)
{
	p->plan.family = 4;
	st32(&p->plan.src, ld32(&ip->src));
	st32(&p->plan.dst, ld32(&ip->dst));
	return return_from_n6(p);
}

INLINE int return_from_n6_by6(struct packet *p, struct ipv6 *ip)
{
	p->plan.family = 6;
	copy16(&p->plan.src, &ip->src);
	copy16(&p->plan.dst, &ip->dst);
	return return_from_n6(p);
}

/* ---- out ---- */

/* A class with the forwarding's DSCP. */
INLINE __u8 marked(struct forwarding *f, __u8 class)
{
	return (class & ~f->tos_mask) | (f->tos & f->tos_mask);
}

INLINE void plan_forwarding_addresses(struct packet *p, struct forwarding *f)
{
	p->plan.adjacency = f->adjacency;
	if (f->ipv4 && f->kind == FORWARD_GTPU) {
		st32(&p->plan.dst, ld32(&f->remote.b[12]));
		st32(&p->plan.src, ld32(&f->source.b[12]));
		return;
	}
	copy16(&p->plan.dst, &f->remote);
	copy16(&p->plan.src, &f->source);
}

INLINE void plan_rule_gpdu(struct packet *p, struct rule *rule)
{
	p->gtpu.teid = rule->teid;
	p->gtpu.message = GTPU_G_PDU;
	p->plan.container = rule->flags >> PDR_CONTAINER_SHIFT;
	p->gtpu.qfi = rule->qfi & 0x3f;
	p->gtpu.rqi = rule->qfi >> 6 & 1;
	p->plan.with_sequence = 0;
}

/* By the forwarding's policy, or to its segment. QFI and session go into the last segment
 * where it has room for Args.Mob.Session (RFC 9433 section 6.1). */
INLINE int plan_rule_srv6(struct xdp_md *ctx, struct packet *p, struct forwarding *f)
{
	struct rule *rule = &p->found.rule;
	int reason;

	p->plan.args = args_mob(rule->qfi & 0x3f, rule->qfi >> 6 & 1, rule->teid);
	p->plan.args_at = f->args_at;
	if (f->kind == FORWARD_POLICY) {
		if (!f->index)
			return REASON_NO_CLASS_POLICY;
		p->found.class_index = f->class;
		reason = plan_policy(ctx, p, f->index, 0);
		if (reason)
			return reason;
	} else {
		plan_forwarding_addresses(p, f);
		if (p->plan.args_at)
			args_mob_write(&p->plan.dst, p->plan.args, p->plan.args_at);
		p->plan.segments = 1;
		p->plan.srh_segments = 0;
	}
	plan_srv6(p);
	return CONTINUE;
}

/* The packet at p->plan.keep into what its rule's forwarding pushes. What was
 * decapsulated before keeps the congestion mark that it took over there. */
INLINE int push_forwarding(struct xdp_md *ctx, struct packet *p, struct settings *cfg,
			   struct rule *rule, struct forwarding *f)
{
	__u8 decapsulated = p->plan.decapsulated, ecn = p->plan.ecn;
	int reason = plan_encapsulation(ctx, p, cfg->hop_limit);

	if (reason != CONTINUE)
		return reason;
	if (decapsulated) {
		p->plan.decapsulated = 1;
		p->plan.class = (p->plan.class & ~3) | ecn;
	}
	p->plan.class = marked(f, p->plan.class);
	if (f->kind == FORWARD_POLICY || f->kind == FORWARD_SRV6)
		return plan_rule_srv6(ctx, p, f);
	plan_forwarding_addresses(p, f);
	plan_rule_gpdu(p, rule);
	plan_gtpu(p, f->ipv4 ? 4 : 6);
	return CONTINUE;
}

/* The rule for the packet at p->plan.keep, to which `index` leads, and its forwarding,
 * once both agree that it may go; then p->found.rule. 0, or a reason. */
INLINE int meet_rule(struct xdp_md *ctx, struct packet *p, __u32 index, __u32 receive,
		     struct forwarding **f)
{
	int reason = choose_rule(ctx, p, index, receive);

	if (!reason)
		reason = admit(ctx, p);
	if (reason)
		return reason;
	index = p->found.rule.forwarding;
	*f = bpf_map_lookup_elem(&forwarding, &index);
	return *f ? 0 : REASON_FAR_DROP;
}

/* The packet at p->plan.keep is for the UE that led to rule `index`. */
GLOBAL int send_to_ue(struct xdp_md *ctx, struct packet *p, __u32 index)
{
	struct settings *cfg = &node_settings;
	struct forwarding *f = 0;
	int reason;

	if (!p)
		return REASON_NO_PDR;
	p->gtpu.qfi = 0;
	reason = meet_rule(ctx, p, index, 0, &f);
	if (reason)
		return reason;
	if (f->kind == FORWARD_NONE || f->kind == FORWARD_TABLE || f->kind == FORWARD_VPN)
		return REASON_FAR_DROP;
	p->found.tunnel_length = p->plan.keep_length;
	return push_forwarding(ctx, p, cfg, &p->found.rule, f);
}

/* A packet with a plan to go on alone leaves by the kernel's routes or by those of a VPN, or is
 * for another UE, which is the caller's: the stack holds one rule at a time. */
INLINE int leave(struct packet *p, struct forwarding *f)
{
	int reason, out = f->kind == FORWARD_VPN ? CONTINUE_TO_VPN : CONTINUE;
	__u32 ue = pdr_of_destination(p);

	reason = ue && !f->internal ? meet_ue(p, ue, f->ue_group) : 0;
	p->plan.adjacency = 0;
	p->plan.table = f->index;
	if (reason)
		return reason;
	if (ue && (f->internal || f->ue_group >> UE_GROUP_SHIFT == UE_TO_UE_ROUTE)) {
		p->found.from_pdr = p->found.pdr;
		p->found.from_slice = p->found.slice;
		p->found.ue = ue;
		return CONTINUE_TO_UE;
	}
	if (f->internal)
		return out;
	p->plan.guarded = !ue; /* no route to a UE may be found for others */
	reason = may_reach(p);
	return reason ? reason : out;
}

/* Out of the tunnel. */
INLINE int receive_out(struct xdp_md *ctx, struct packet *p, struct forwarding *f, __u8 outer)
{
	int reason = plan_inner(ctx, p, outer);

	return reason == CONTINUE ? leave(p, f) : reason;
}

/* The packet at p->plan.keep leaves the UPF by a route: by another source address, if the UE is
 * behind a NAT, and to another UE, if its destination is a public one (hairpinning). CONTINUE,
 * CONTINUE_TO_UE with p->found.ue, or a reason. */
GLOBAL int translate_out(struct xdp_md *ctx, struct packet *p)
{
	struct ipv4 *ip;
	__u32 which;
	int reason;

	if (!p)
		return REASON_NAT_PROTOCOL;
	reason = nat_source(ctx, p);
	if (reason)
		return reason;
	ip = at(ctx, p->plan.keep, IPV4_LEN);
	which = ip && p->nat.translated ? nat_of_address(ld32(&ip->dst)) : 0;
	if (!which)
		return CONTINUE;
	if (p->nat.translated & NAT_ADDRESS)
		return REASON_FRAGMENT;
	reason = nat_destination(ctx, p, which);
	if (reason)
		return reason;
	ip = at(ctx, p->plan.keep, IPV4_LEN);
	if (!ip)
		return REASON_INNER_MALFORMED;
	st32(&p->plan.dst, ld32(&ip->dst));
	p->found.from_pdr = p->found.pdr;
	p->found.from_slice = p->found.slice;
	p->found.ue = pdr_of_destination(p);
	return p->found.ue ? CONTINUE_TO_UE : REASON_NAT_NO_MAPPING;
}

/* ---- in ---- */

/* What is wrong with a packet that leaves in GTP-U as it came is its T-PDU's
 * sender's to mend; a frame has none to tell. */
INLINE void quote_tpdu(struct packet *p, __u32 offset)
{
	p->plan.quote = p->plan.frames ? 0 : offset;
	p->plan.quote_length = p->found.tunnel_length;
	p->plan.onward = 1;
}

/* The G-PDU goes on as it is, to another F-TEID. */
INLINE int receive_onward(struct xdp_md *ctx, struct packet *p, struct forwarding *f, __u32 teid,
			  __u8 hops, __u8 class)
{
	int reason = plan_switch(ctx, p, hops, class, p->plan.frames);

	if (reason != CONTINUE)
		return reason;
	if (p->found.pdr) /* and not an End Marker */
		quote_tpdu(p, p->gtpu.offset + p->plan.pdu_offset);
	p->gtpu.teid = teid;
	plan_forwarding_addresses(p, f);
	p->plan.class = marked(f, p->plan.class);
	plan_gtpu(p, f->ipv4 ? 4 : 6);
	return CONTINUE;
}

/* The T-PDU came without a container, and gets the rule's; or it came with one, and loses it,
 * for an SMF takes none. */
INLINE int receive_marked(struct xdp_md *ctx, struct packet *p, struct forwarding *f,
			  struct rule *rule, __u8 hops, __u8 class)
{
	if (hops <= 1)
		return hop_limit_spent(p, p->in.l3);
	plan_translation(p, hops, class);
	quote_tpdu(p, p->plan.keep);
	p->plan.hash = payload_hash(ctx, p);
	plan_rule_gpdu(p, rule);
	plan_forwarding_addresses(p, f);
	p->plan.class = marked(f, p->plan.class);
	plan_gtpu(p, f->ipv4 ? 4 : 6);
	return CONTINUE;
}

/* The daemon, which knows whose End Markers a session takes, gets it, and sends it in again. */
INLINE int receive_end_marker(struct xdp_md *ctx, struct packet *p, __u32 index, __u8 hops,
			      __u8 class)
{
	struct pdr *entry = bpf_map_lookup_elem(&pdr, &index);
	struct rule *rule = &p->found.rule;
	struct forwarding *f;
	struct filter *first;

	if (!entry)
		return REASON_GTPU_MESSAGE;
	read_rule(rule, entry);
	if (rule->action == PDR_FILTERS) {
		index = rule->more;
		first = bpf_map_lookup_elem(&filter, &index);
		index = first ? first->pdr : 0;
		entry = bpf_map_lookup_elem(&pdr, &index);
		if (!entry)
			return REASON_GTPU_MESSAGE;
		read_rule(rule, entry);
	}
	if (rule->action != PDR_FORWARD)
		return REASON_GTPU_MESSAGE;
	index = rule->forwarding;
	f = bpf_map_lookup_elem(&forwarding, &index);
	if (!f || f->kind != FORWARD_GTPU)
		return REASON_GTPU_MESSAGE;
	if (p->port.ifindex != OWN_PORT)
		return REASON_PASSED;
	return receive_onward(ctx, p, f, rule->teid, hops, class);
}

/* A G-PDU or End Marker for the rule that its TEID led to. */
GLOBAL int receive_session(struct xdp_md *ctx, struct packet *p, __u32 index, __u32 hops,
			   __u32 class)
{
	struct settings *cfg = &node_settings;
	__u16 length;
	struct forwarding *f;
	struct rule *rule;
	int reason;

	if (!p)
		return REASON_NO_PDR;
	if (p->gtpu.message == GTPU_END_MARKER)
		return receive_end_marker(ctx, p, index, hops, class);
	length = p->plan.keep_length;
	reason = take_payload(ctx, p, length, 0, REASON_PDU_TYPE);
	if (reason)
		return reason;
	if (nested_gtpu(ctx, p, cfg))
		return REASON_GTPU_MESSAGE;
	reason = meet_rule(ctx, p, index, 1, &f);
	if (reason)
		return reason;
	rule = &p->found.rule;
	p->found.from_ue = !(rule->flags & PDR_DOWNLINK);
	p->found.tunnel_length = p->plan.keep_length;
	switch (f->kind) {
	case FORWARD_TABLE:
	case FORWARD_VPN:
		return receive_out(ctx, p, f, class);
	case FORWARD_GTPU:
		if (p->gtpu.has_container ? f->control : rule->flags >> PDR_CONTAINER_SHIFT)
			return receive_marked(ctx, p, f, rule, hops, class);
		p->plan.keep_length = length;
		return receive_onward(ctx, p, f, rule->teid, hops, class);
	case FORWARD_SRV6:
	case FORWARD_POLICY:
		p->plan.decapsulated = 0;
		return push_forwarding(ctx, p, cfg, rule, f);
	}
	return REASON_FAR_DROP;
}

/* ---- at a SID ---- */

/* The rule that `index` leads to, or the first of several, forwards for another slice than
 * this one. */
INLINE int is_of_other_slice(__u32 index, __u32 slice)
{
	struct pdr *entry = bpf_map_lookup_elem(&pdr, &index);
	struct forwarding *f;
	struct filter *first;

	if (entry && entry->action == PDR_FILTERS) {
		index = entry->more;
		first = bpf_map_lookup_elem(&filter, &index);
		index = first ? first->pdr : 0;
		entry = bpf_map_lookup_elem(&pdr, &index);
	}
	if (!entry || entry->action != PDR_FORWARD)
		return 0;
	index = entry->forwarding;
	f = bpf_map_lookup_elem(&forwarding, &index);
	return f && f->slice && f->slice != slice;
}

/* Nothing leads from the packet at a SID of a slice to its rules: why. */
GLOBAL int why_not_at_sid(struct packet *p, __u32 slice, __u32 teid)
{
	if (!p)
		return REASON_NO_PDR;
	if (teid)
		return is_of_other_slice(pdr_of_teid(&node_settings, teid), slice)
			       ? REASON_OTHER_SLICE
			       : REASON_NO_PDR;
	if (is_of_other_slice(pdr_of_destination(p), slice))
		return REASON_OTHER_SLICE;
	copy16(&p->plan.dst, &p->plan.src);
	return is_of_other_slice(pdr_of_destination(p), slice) ? REASON_OTHER_SLICE : REASON_NO_PDR;
}

/* What the SID of a slice's VPN took out leads to p->found.ue, as at N6: by its destination, and
 * not from a UE. 0, or a reason. */
INLINE int find_in_vpn(struct packet *p, __u32 slice)
{
	struct settings *cfg = &node_settings;
	__u32 ue = pdr_of_destination(p);
	struct pdr *to = ue ? bpf_map_lookup_elem(&pdr, &ue) : 0;

	p->gtpu.qfi = 0;
	p->found.ue = ue;
	if (!to || !to->action)
		return REASON_NO_PDR;
	if ((to->source6 >> UE_SLICE_SHIFT & UE_SLICE_MASK) != slice)
		return REASON_OTHER_SLICE;
	if (p->plan.family == 4)
		return find_pool4(cfg, be32(ld32(&p->plan.src))) ||
				       pdr_of_ue4(cfg, ld32(&p->plan.src))
			       ? REASON_UE_SOURCE
			       : 0;
	return find_pool6(cfg, be64(p->plan.src.hi)) || pdr_of_ue6(cfg, p->plan.src.hi)
		       ? REASON_UE_SOURCE
		       : 0;
}

/* What a SID of a slice took out leads to p->found.ue: by the argument `args_at` bits into the
 * SID, where it names a PDU Session (p->gtpu.teid), else by the UE's address. 0, or a reason. */
GLOBAL int find_at_sid(struct xdp_md *ctx, struct packet *p, __u32 slice, __u32 args_at)
{
	__u32 teid, up, down, four;
	struct ipv6 *ip = p ? at(ctx, p->in.l3, IPV6_LEN) : 0;
	__u64 args;

	if (!ip)
		return REASON_NO_PDR;
	if (slice & SLICE_VPN)
		return find_in_vpn(p, slice & ~SLICE_VPN);
	args = args_mob_read(&ip->dst, args_at);
	teid = args_mob_session(args);
	p->gtpu.teid = teid;
	if (teid) {
		p->gtpu.qfi = args_mob_qfi(args);
		p->found.ue = pdr_at_sid(slice, AT_SID_TEID, be32(teid));
		return p->found.ue ? 0 : REASON_NO_PDR;
	}
	p->gtpu.qfi = 0;
	four = p->plan.family == 4;
	up = pdr_at_sid(slice, four ? AT_SID_SOURCE4 : AT_SID_SOURCE6,
			four ? ld32(&p->plan.src) : p->plan.src.hi);
	down = pdr_at_sid(slice, four ? AT_SID_DESTINATION4 : AT_SID_DESTINATION6,
			  four ? ld32(&p->plan.dst) : p->plan.dst.hi);
	if (up && down)
		return REASON_UE_TO_UE;
	p->found.ue = up | down;
	return p->found.ue ? 0 : REASON_NO_PDR;
}

/* An IP packet that a SID of a slice took out, with a plan to go on alone. */
GLOBAL int receive_at_sid(struct xdp_md *ctx, struct packet *p, __u32 slice, __u32 args_at)
{
	struct settings *cfg = &node_settings;
	struct forwarding *f = 0;
	int reason = find_at_sid(ctx, p, slice, args_at);

	if (!p)
		return REASON_NO_PDR;
	if (reason == REASON_NO_PDR && !(slice & SLICE_VPN))
		reason = why_not_at_sid(p, slice, p->gtpu.teid);
	if (!reason && leads_to_frames(p->found.ue))
		reason = REASON_NO_PDR;
	if (!reason)
		reason = meet_rule(ctx, p, p->found.ue, 1, &f);
	if (reason)
		return reason;
	p->found.from_ue = !(p->found.rule.flags & PDR_DOWNLINK);
	p->found.tunnel_length = p->plan.keep_length;
	switch (f->kind) {
	case FORWARD_TABLE:
	case FORWARD_VPN:
		return p->found.from_ue ? leave(p, f) : REASON_FAR_DROP;
	case FORWARD_GTPU:
	case FORWARD_SRV6:
	case FORWARD_POLICY:
		return push_forwarding(ctx, p, cfg, &p->found.rule, f);
	}
	return REASON_FAR_DROP;
}

#endif
