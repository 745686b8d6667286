/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Volume quotas (docs/reference/semantics.md section 7, docs/adr/0009-a-rule-is-a-cache-line.md).
 * A packet within its rule's share of a quota compares two numbers of a cache line that it has
 * anyway. Only behind the share does it look at what the other rules counted. */
#ifndef CULVERT_QUOTA_H
#define CULVERT_QUOTA_H

#include "packet.h"
#include "usage.h"

INLINE __u32 usage_units(struct volume *v)
{
	return (*(volatile __u64 *)&v->word & (VOLUME_PACKET - 1)) >> 8;
}

INLINE int usage_reached(__u32 units, __u32 at)
{
	return at && (__s32)(at - units) <= 0;
}

/* 1 where n, below 2^63, is 0; else 0: without a branch, each of which doubles what the
 * verifier goes through. */
INLINE __u64 quota_is_none(__u64 n)
{
	opaque(n);
	n -= 1;
	opaque(n);
	return n >> 63;
}

/* The share of a rule is over if its quota is `at`: its next packet looks there. So does each one
 * behind, however far behind. Where the daemon changes rule and stop meanwhile, that stays. */
INLINE void quota_end_share(struct pdr *rule, struct refused *r, __u32 at)
{
	__u32 stop = *(volatile __u32 *)&rule->stop, units = usage_units(&rule->volume);
	__u64 within = (units - stop) / USAGE_AHEAD;

	if (within * quota_is_none(*(volatile __u32 *)&r->quota ^ at))
		__sync_val_compare_and_swap(&rule->stop, stop,
					    units - (0 - USAGE_PAST) * quota_is_none(units));
}

/* What member i of a limit counted. Its share is over: it does not go on within that while
 * another uses more. */
GLOBAL __u64 quota_counted(__u32 at, __u32 which, __u32 i)
{
	struct quota *q = bpf_map_lookup_elem(&quota, &at);
	struct refused *r;
	struct pdr *rule;
	__u64 limit;
	__u32 index;

	if (!q || which >= QUOTA_LIMITS || i >= QUOTA_RULES)
		return 0;
	limit = q->limit[which];
	index = q->rule[i];
	if (!(limit >> (QUOTA_OCTETS + i) & 1))
		return 0;
	r = bpf_map_lookup_elem(&refused, &index);
	rule = bpf_map_lookup_elem(&pdr, &index);
	if (!rule || !r)
		return 0;
	quota_end_share(rule, r, at);
	return volume_octets(&rule->volume) +
	       (limit >> QUOTA_REFUSED & 1) * volume_octets(&r->volume);
}

/* A limit that rule `index` is a member of; 0: it is not. */
GLOBAL __u64 quota_limit(__u32 at, __u32 which, __u32 index)
{
	struct quota *q = bpf_map_lookup_elem(&quota, &at);
	__u64 limit, own = 0;
	__u32 i;

	if (!q || which >= QUOTA_LIMITS)
		return 0;
	limit = q->limit[which];
	for (i = 0; i < QUOTA_RULES; i++)
		own |= quota_is_none(q->rule[i] ^ index) << (QUOTA_OCTETS + i);
	return limit & own ? limit : 0;
}

/* Whether all quotas of rule `index`, whose share is used up, have something left. */
GLOBAL int quota_left(__u32 index)
{
	struct refused *r = bpf_map_lookup_elem(&refused, &index);
	__u32 at = r ? *(volatile __u32 *)&r->quota : 0, which, i;
	int found = 0, ended = 0;
	__u64 left;

	if (!at)
		return 0;
#pragma clang loop unroll(disable)
	for (which = 0; which < QUOTA_LIMITS; which++) {
		left = quota_limit(at, which, index);
		if (!left)
			continue;
		found = 1;
#pragma clang loop unroll(disable)
		for (i = 0; i < QUOTA_RULES; i++)
			left -= quota_counted(at, which, i);
		ended |= (__s64)(left << (64 - QUOTA_OCTETS)) <= 0;
	}
	return found && !ended;
}

/* Whether a rule is at its stop, and its quotas at theirs. */
INLINE int quota_ended(struct pdr *rule, __u32 index)
{
	return usage_reached(usage_units(&rule->volume), rule->stop) && !quota_left(index);
}

#endif
