/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ethernet PDU sessions: frames from the UE, and from links to it (TS 23.501
 * section 5.6.10.2; docs/reference/semantics.md section 7, "Ethernet"). */
#ifndef CULVERT_ETHERNET_H
#define CULVERT_ETHERNET_H

#include "upf.h"

/* ---- stations ---- */

/* Whether `index` leads to the rules of that session for frames from the link. */
INLINE int is_on_link(__u32 index, __u32 link, __u64 session)
{
	struct pdr *head = bpf_map_lookup_elem(&pdr, &index);

	return head && head->action && head->qfi & PDR_FRAMES && head->source4 == link &&
	       head->source6 == session;
}

/* The link's station that `mac` is; what leads to the rules of its session, or
 * 0. */
INLINE __u32 find_station(__u32 link, const __u8 *mac)
{
	struct station_key key = { .link = link };
	struct station *s;

	st32(key.mac, ld32(mac));
	st16(key.mac + 4, ld16(mac + 4));
	s = bpf_map_lookup_elem(&station, &key);
	return s && is_on_link(s->pdr, link, s->session) ? s->pdr : 0;
}

/* The source of the frame at p->plan.keep, which the rules that `head` leads to have
 *  * let pass, is its session's. Written only where that is new, or some time ago. */
GLOBAL int learn_station(struct xdp_md *ctx, struct packet *p, __u32 head, __u32 link)
{
	struct pdr *rule = bpf_map_lookup_elem(&pdr, &head);
	struct station_key key = { .link = link };
	struct station *s, now = {};
	__u8 *eth;

	if (!p || !rule || !rule->source4)
		return 0;
	eth = at(ctx, p->plan.keep, ETH_LEN);
	if (!eth || eth[6] & 1 || !mac_of(eth + 6))
		return 0;
	st32(key.mac, ld32(eth + 6));
	st16(key.mac + 4, ld16(eth + 10));
	now.pdr = rule->source4;
	now.session = rule->source6;
	now.heard = bpf_ktime_get_ns() >> STATION_TIME_SHIFT;
	s = bpf_map_lookup_elem(&station, &key);
	if (!s || s->pdr != now.pdr || s->session != now.session)
		bpf_map_update_elem(&station, &key, &now, BPF_ANY);
	else if (s->heard != now.heard)
		s->heard = now.heard;
	return 0;
}

/* ---- into a tunnel ---- */

/* The rule's session and QFI go into the last segment, as Args.Mob.Session
 * (RFC 9433 section 6.1). */
INLINE int push_frame_srv6(struct xdp_md *ctx, struct packet *p, struct forwarding *f)
{
	p->plan.next_header = NH_ETHERNET;
	return f->args_at ? plan_rule_srv6(ctx, p, f) : REASON_FAR_DROP;
}

/* The frame at p->plan.keep into what its rule's forwarding pushes. It has no sender
 * to tell what is wrong. */
GLOBAL int push_frame(struct xdp_md *ctx, struct packet *p)
{
	struct settings *cfg = &node_settings;
	struct forwarding *f;
	__u32 index;

	if (!p)
		return REASON_FAR_DROP;
	index = p->found.rule.forwarding;
	f = bpf_map_lookup_elem(&forwarding, &index);
	if (!f)
		return REASON_FAR_DROP;
	p->found.tunnel_length = p->plan.keep_length;
	p->plan.class = 0;
	p->plan.hop_limit = cfg->hop_limit;
	p->plan.quote = 0;
	p->plan.quote_length = p->plan.keep_length;
	p->plan.hash = payload_hash(ctx, p);
	p->plan.hashed = 1;
	p->plan.class = marked(f, p->plan.class);
	if (f->kind == FORWARD_SRV6 || f->kind == FORWARD_POLICY)
		return push_frame_srv6(ctx, p, f);
	if (f->kind != FORWARD_GTPU)
		return REASON_FAR_DROP;
	plan_rule_gpdu(p, &p->found.rule);
	plan_forwarding_addresses(p, f);
	plan_gtpu(p, f->ipv4 ? 4 : 6);
	return CONTINUE;
}

/* ---- from the UE ---- */

INLINE int leave_by_link(struct packet *p, struct forwarding *f)
{
	p->plan.keep_version = 0;
	p->plan.adjacency = f->adjacency;
	p->plan.link_tag = f->index & 0xfff;
	p->plan.table = 0; /* the adjacency or nothing */
	p->plan.push = PUSH_FRAME;
	return CONTINUE;
}

/* A G-PDU or End Marker for the Ethernet session that its TEID led to, or what a
 * SID took out for it (p->gtpu.message 0). */
GLOBAL int receive_frame(struct xdp_md *ctx, struct packet *p, __u32 index, __u32 hops, __u32 class)
{
	struct forwarding *f;
	struct rule *rule;
	int reason;

	if (!p)
		return REASON_NO_PDR;
	p->plan.frames = 1;
	if (p->gtpu.message == GTPU_END_MARKER)
		return receive_end_marker(ctx, p, index, hops, class);
	if (p->plan.keep_length < ETH_LEN)
		return REASON_INNER_MALFORMED;
	p->plan.macs = p->plan.keep;
	p->plan.keep_version = 0;
	reason = meet_rule(ctx, p, index, 1, &f);
	if (reason)
		return reason;
	rule = &p->found.rule;
	p->found.tunnel_length = p->plan.keep_length;
	if (f->kind == FORWARD_SRV6 || f->kind == FORWARD_POLICY ||
	    (f->kind == FORWARD_GTPU && !p->gtpu.message))
		return push_frame(ctx, p);
	if (f->kind == FORWARD_GTPU && rule->flags >> PDR_CONTAINER_SHIFT && !p->gtpu.has_container)
		return receive_marked(ctx, p, f, rule, hops, class);
	if (f->kind == FORWARD_GTPU)
		return receive_onward(ctx, p, f, rule->teid, hops, class);
	if (f->kind != FORWARD_LINK || rule->flags & PDR_DOWNLINK)
		return REASON_FAR_DROP;
	learn_station(ctx, p, index, f->index);
	return leave_by_link(p, f);
}

/* What a SID of a slice took out is a frame: its argument says whose, as a TEID
 * does. */
GLOBAL int receive_sid_frame(struct xdp_md *ctx, struct packet *p, __u32 slice, __u32 args_at)
{
	struct ipv6 *ip = p ? at(ctx, p->in.l3, IPV6_LEN) : 0;
	__u32 index, teid;
	__u64 args;

	if (!ip)
		return REASON_NO_PDR;
	args = args_mob_read(&ip->dst, args_at);
	teid = args_mob_session(args);
	p->gtpu.qfi = args_mob_qfi(args);
	p->gtpu.message = 0;
	if (!teid) /* a frame has no UE address to look for */
		return REASON_NO_PDR;
	index = pdr_at_sid(slice, AT_SID_TEID, be32(teid));
	if (!index)
		return why_not_at_sid(p, slice, teid);
	if (!leads_to_frames(index))
		return REASON_NO_PDR;
	return receive_frame(ctx, p, index, 0, 0);
}

/* ---- to the UE ---- */

/* The session that the daemon gave with the frame, if it is of this link. What
 * said so goes, as was_kept's mark does, which may be behind it. */
INLINE __u32 given_rule(struct xdp_md *ctx, __u32 link)
{
	struct given *given = (void *)(long)ctx->data_meta;
	__u64 session;
	__u32 index;

	if ((void *)(given + 1) > (void *)(long)ctx->data || given->magic != GIVEN_MAGIC)
		return 0;
	index = given->pdr;
	session = given->session;
	if (bpf_xdp_adjust_meta(ctx, sizeof(*given)))
		return 0;
	return is_on_link(index, link, session) ? index : 0;
}

/* The tag of the link is not the frame's: its addresses move behind it. */
INLINE int take_link_tag(struct xdp_md *ctx, struct packet *p)
{
	__u8 *eth = at(ctx, 0, ETH_LEN), *moved = at(ctx, VLAN_LEN, ETH_LEN);
	__u64 first;
	__u32 last;

	if (!eth || !moved)
		return -1;
	first = ld64(eth);
	last = ld32(eth + 8);
	st64(moved, first);
	st32(moved + 8, last);
	p->in.addresses = VLAN_LEN;
	return 0;
}

/* The frame at p->plan.keep is for the session that `index` leads to. */
GLOBAL int send_frame(struct xdp_md *ctx, struct packet *p, __u32 index)
{
	struct forwarding *f = 0;
	int reason;

	if (!p)
		return REASON_NO_PDR;
	p->gtpu.qfi = 0;
	reason = meet_rule(ctx, p, index, 0, &f);
	if (reason)
		return reason;
	if (f->kind == FORWARD_NONE || f->kind == FORWARD_TABLE || f->kind == FORWARD_LINK)
		return REASON_FAR_DROP;
	if (p->plan.keep && take_link_tag(ctx, p))
		return REASON_INNER_MALFORMED;
	return push_frame(ctx, p);
}

/* The daemon gives it to every session of the link. */
INLINE int flood(struct packet *p, __u32 link)
{
	if (!allowed(BUDGET_FLOODS))
		return REASON_SLOW_PATH_FULL;
	p->end.punt = PUNT_FLOOD;
	p->error.info = link;
	p->error.l3 = p->plan.keep;
	return REASON_SLOW_PATH;
}

/* A frame that came in on a link. CONTINUE_TO_UE with p->found.ue, or a reason. */
GLOBAL int link_input(struct xdp_md *ctx, struct packet *p, __u32 link)
{
	__u32 index = given_rule(ctx, link);
	__u8 *eth = at(ctx, 0, ETH_LEN);

	if (!p || !eth)
		return REASON_INNER_MALFORMED;
	p->found.target_kind = TARGET_LINK;
	p->plan.frames = 1;
	p->plan.macs = 0;
	p->plan.keep = link & 0xfff ? VLAN_LEN : 0;
	p->plan.keep_length = p->in.frame - p->plan.keep;
	p->plan.keep_version = 0;
	if (!index && !(eth[0] & 1))
		index = find_station(link, eth);
	p->found.ue = index;
	return index ? CONTINUE_TO_UE : flood(p, link);
}

#endif
