/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sessions (docs/reference/semantics.md section 7): the rule that a packet is for, and
 * whether it may go. What is then done with it is in upf.h. */
#ifndef CULVERT_SESSION_H
#define CULVERT_SESSION_H

#include "filter.h"
#include "lookup.h"
#include "meter.h"
#include "quota.h"

#define MAX_METERS 4 /* in a chain */

/* ---- whose ---- */

/* The rule that a TEID leads to, or the first of several; 0: none. A TEID whose low 24 bits are no
 * index folds: fewer bits are one. */
INLINE __u32 pdr_of_teid(struct settings *cfg, __u32 teid)
{
	__u32 rest = teid >> 24, slot = teid & 0xffffff, folds = 0, *index;
	struct pdr *rule;

	if (!cfg->pdr_slots)
		return 0;
	if (slot >= cfg->pdr_slots) {
		rest = teid >> (cfg->teid_fold & 31);
		slot = teid - (rest << (cfg->teid_fold & 31));
		folds = PDR_BY_TEID;
	}
	rule = bpf_map_lookup_elem(&pdr, &slot);
	if (rule && rule->action && (rule->flags & PDR_BY_TEID) != folds &&
	    rule->generation == rest)
		return slot;
	index = bpf_map_lookup_elem(&pdr_by_teid, &teid);
	return index ? *index : 0;
}

/* The rule of a UE outside of the pools. */
INLINE __u32 pdr_of_ue(struct settings *cfg, __u64 hi, __u64 lo)
{
	struct words key = { hi, lo };
	__u32 *index = cfg->ues ? bpf_map_lookup_elem(&pdr_by_ue, &key) : 0;

	return index ? *index : 0;
}

/* The same for an IPv4 UE, by the hash. A function: packets ask it only where a bucket was full. */
GLOBAL __u32 pdr_of_hashed4(__u32 address)
{
	return pdr_of_ue(&node_settings, 0, (__u64)address << 32 | 0xffff0000);
}

/* What a bucket leads an address to; 0: nothing. Without branches, of which the verifier would go both
 * ways. */
INLINE __u32 find_in_bucket(struct ue_bucket *bucket, __u64 address)
{
	__u64 found = 0;
	__u32 i;

#pragma unroll
	for (i = 0; i < UE_SLOTS; i++) {
		__u64 slot = *(volatile __u64 *)&bucket->slot[i], differs = slot >> 32 ^ address;

		opaque(differs);
		found |= slot & -((differs - 1) >> 63);
	}
	return found;
}

/* The same by its bucket. */
INLINE __u32 pdr_of_ue4(struct settings *cfg, __be32 address)
{
	__u32 number = address * (__u32)UE_HASH >> (cfg->ues & 31), found;
	struct ue_bucket *bucket;

	if (!cfg->ues)
		return 0;
	bucket = bpf_map_lookup_elem(&ue_bucket, &number);
	if (!bucket)
		return 0;
	found = find_in_bucket(bucket, address);
	return found || !bucket->more ? found : pdr_of_hashed4(address);
}

INLINE __u32 pdr_of_ue6(struct settings *cfg, __u64 hi)
{
	return pdr_of_ue(cfg, hi, 0);
}

/* What leads to rules at a SID of a slice, by `what` (enum at_sid), or 0. `hi` is in
 * network order. */
INLINE __u32 pdr_at_sid(__u64 slice, __u64 what, __u64 hi)
{
	struct words key = { hi, be64((__u64)AT_SID << 56 | what << 48 | slice) };
	__u32 *index = bpf_map_lookup_elem(&pdr_by_ue, &key);

	return index ? *index : 0;
}

/* Whether the rules that `index` leads to are an Ethernet session's. */
INLINE int leads_to_frames(__u32 index)
{
	struct pdr *rule = bpf_map_lookup_elem(&pdr, &index);

	return rule && rule->qfi & PDR_FRAMES;
}

/* ---- which rule ---- */

/* A T-PDU of a UE with known addresses comes from one of them; of one with an
 * IPv6 prefix also from a link-local address. */
INLINE int source_allowed(struct xdp_md *ctx, struct packet *p, struct pdr *head)
{
	__u8 flags = p->found.rule.flags; /* of the word that says which filters are asked */

	if (!(flags & (PDR_SOURCE4 | PDR_SOURCE6)))
		return 1;
	if (p->plan.keep_version == 4) {
		struct ipv4 *ip = at(ctx, p->plan.keep, IPV4_LEN);

		return ip && flags & PDR_SOURCE4 && ld32(&ip->src) == head->source4;
	}
	struct ipv6 *ip = at(ctx, p->plan.keep, IPV6_LEN);

	if (!ip || !(flags & PDR_SOURCE6))
		return 0;
	return ld64(&ip->src) == head->source6 || is_link_local(ip->src.b);
}

INLINE __u32 rule_of_frame(struct xdp_md *ctx, struct packet *p)
{
	return look_at_both(ctx, p, sought_uplink(&p->found.rule))
		       ? 0
		       : find_frame_rule(p, p->found.rule.more);
}

/* The rule for the packet at p->plan.keep that TEID or address led to `index` with;
 * then in p->found.pdr. 0, or a reason. */
GLOBAL int choose_rule(struct xdp_md *ctx, struct packet *p, __u32 index, __u32 receive)
{
	struct pdr *entry = bpf_map_lookup_elem(&pdr, &index);

	if (!p || !entry)
		return REASON_NO_PDR;
	read_rule(&p->found.rule, entry);
	if (!p->found.rule.action)
		return REASON_NO_PDR;
	if (receive && !p->plan.frames && !source_allowed(ctx, p, entry))
		return REASON_UE_SOURCE;
	p->found.pdr = index;
	if (p->found.rule.action != PDR_FILTERS)
		return 0;
	index = p->plan.frames ? rule_of_frame(ctx, p)
			       : find_rule(ctx, index, sought_at(p->plan.keep, p->plan.keep_length),
					   p->gtpu.qfi, act_word(&p->found.rule));
	p->found.pdr = index;
	entry = bpf_map_lookup_elem(&pdr, &index);
	if (!index || !entry)
		return REASON_NO_PDR;
	read_rule(&p->found.rule, entry);
	return 0;
}

/* ---- may it go ---- */

/* `mark` becomes `told`; whoever does that tells the daemon. */
INLINE void tell_once(__u32 *mark, __u32 index, __u32 kind, __u32 told)
{
	struct session_event event = { .pdr = index, .kind = kind };
	__u32 now = *(volatile __u32 *)mark;

	if (now != told && __sync_val_compare_and_swap(mark, now, told) == now)
		bpf_ringbuf_output(&session_events, &event, sizeof(event), 0);
}

GLOBAL int tell_usage(__u32 index, __u32 kind, __u32 told)
{
	struct pdr *rule = bpf_map_lookup_elem(&pdr, &index);

	if (rule)
		tell_once(&rule->notify, index, kind, told);
	return 0;
}

/* QoS enforcement refuses `octets` by rule `index`, whose quotas have something left, for `reason`.
 * URRs that measure before it count them (TS 29.244 section 8.2.68, MBQE). Where the daemon wants to
 * know of them, the rule's share of a quota is over. */
GLOBAL int refuse(__u32 index, __u32 octets, __u32 reason)
{
	struct pdr *rule = bpf_map_lookup_elem(&pdr, &index);
	struct refused *r = bpf_map_lookup_elem(&refused, &index);

	if (!rule || !r)
		return reason;
	volume_add(&r->volume, octets);
	if (usage_reached(usage_units(&r->volume), r->notify)) {
		tell_once(&r->notify, index, SESSION_REFUSED, 0);
		if (r->quota)
			quota_end_share(rule, r, r->quota);
	}
	return reason;
}

/* The meters that a rule shares with others, all of them in order. */
GLOBAL int meters_take(__u32 index, __u32 octets)
{
	struct meter *m;
	__u32 i;

	for (i = 0; i < MAX_METERS && index; i++) {
		m = bpf_map_lookup_elem(&meter, &index);
		if (!m)
			return 1;
		if (!meter_takes(m, octets))
			return 0;
		index = m->next;
	}
	return 1;
}

INLINE __u32 slice_index(struct forwarding *f, struct rule *rule)
{
	return f->slice ? 2 * f->slice + !!(rule->flags & PDR_DOWNLINK) : 0;
}

INLINE int slice_takes(__u32 index, __u32 octets)
{
	struct meter *m = index ? bpf_map_lookup_elem(&slice_meter, &index) : 0;

	return !m || meter_takes(m, octets);
}

/* Takes from every rate that the rule has. 0, or a reason: that is the end of the
 * packet, for those before the one that refused have taken. */
INLINE int take_rates(struct pdr *entry, struct rule *rule, __u32 slice, __u32 octets)
{
	if (entry->rate && !meter_allows(&entry->bucket, entry->volume.word, entry->rate))
		return REASON_RATE;
	if (rule->flags & PDR_METERS && !meters_take(rule->more, octets))
		return REASON_RATE;
	return slice_takes(slice, octets) ? 0 : REASON_SLICE_RATE;
}

/* A kept packet that the daemon sends in again while the rule still keeps what
 * comes: so that nothing overtakes what was kept. */
INLINE int was_kept(struct xdp_md *ctx)
{
	return has_mark(ctx, KEPT_MARK);
}

/* Whether a packet of a rule that buffers is to be handed up, which counts it. Otherwise the
 * rule forwards by now. */
INLINE int hold(__u32 index)
{
	struct refused *r = bpf_map_lookup_elem(&refused, &index);

	if (!r)
		return 1;
	if (*(volatile __u32 *)&r->held & HELD_OPEN)
		return 0;
	if (!(__sync_fetch_and_add(&r->held, 1) & HELD_OPEN))
		return 1;
	__sync_fetch_and_add(&r->held, -1);
	return 0;
}

INLINE int give_to_buffer(struct packet *p)
{
	p->end.punt = PUNT_BUFFER;
	p->error.info = p->found.pdr;
	p->error.l3 = p->plan.keep;
	return REASON_SLOW_PATH;
}

/* Whether the packet at p->plan.keep may go by the rule p->found.pdr; then p->found.slice is what
 * counts it too. 0, or a reason. */
GLOBAL int admit(struct xdp_md *ctx, struct packet *p)
{
	struct forwarding *f;
	struct rule *rule;
	struct pdr *entry;
	__u32 index;
	int reason;

	if (!p)
		return REASON_NO_PDR;
	index = p->found.pdr;
	entry = bpf_map_lookup_elem(&pdr, &index);
	if (!entry)
		return REASON_NO_PDR;
	rule = &p->found.rule;
	switch (rule->action) {
	case PDR_BUFFER:
		if (was_kept(ctx))
			break;
		if (hold(index))
			return give_to_buffer(p);
		read_rule(rule, entry); /* it says where to since before it opened */
		break;
	case PDR_GATE:
		return quota_ended(entry, index)
			       ? REASON_GATE_CLOSED
			       : refuse(index, p->plan.keep_length, REASON_GATE_CLOSED);
	case PDR_FORWARD:
		break;
	case PDR_FULL:
		if (was_kept(ctx))
			break;
		return REASON_BUFFER_FULL;
	default:
		return REASON_FAR_DROP;
	}
	index = rule->forwarding;
	f = bpf_map_lookup_elem(&forwarding, &index);
	if (!index || !f)
		return REASON_FAR_DROP;
	if (quota_ended(entry, p->found.pdr)) {
		tell_usage(p->found.pdr, SESSION_STOP, USAGE_TOLD);
		return REASON_QUOTA;
	}
	p->found.slice = slice_index(f, rule);
	reason = take_rates(entry, rule, p->found.slice, p->plan.keep_length);
	if (reason)
		return refuse(p->found.pdr, p->plan.keep_length, reason);
	if (usage_reached(usage_units(&entry->volume), entry->notify))
		tell_usage(p->found.pdr, SESSION_NOTIFY, 0);
	if (rule->flags & PDR_DUPLICATE) {
		p->error.info = p->found.pdr;
		p->error.l3 = p->plan.keep;
		hand_up(ctx, p, PUNT_DUPLICATE);
	}
	return 0;
}

#endif
