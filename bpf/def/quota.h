/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the map of volume quotas that rules share: see tables.h and ../quota.h. */
#ifndef CULVERT_DEF_QUOTA_H
#define CULVERT_DEF_QUOTA_H

#include "types.h"

/* quota[index]: the volume quotas of a session, a cache line. A rule whose share is used up
 * goes on while what all rules of a quota counted, together, is below its end. */
enum quota_limits {
	QUOTA_RULES = 8,
	QUOTA_LIMITS = 4,
	/* In a limit: the bits of the end, which is a sum of octets; then bit i says that
	 * rule[i] counts; and one bit that what they refused counts, too. */
	QUOTA_OCTETS = 48,
	QUOTA_REFUSED = 56,
};

struct quota {
	__u32 rule[QUOTA_RULES]; /* index of pdr; 0: none */
	__u64 limit[QUOTA_LIMITS]; /* each changes whole; 0: none */
};

/* A stop that any volume below 2^39 octets has reached. */
#define USAGE_PAST 0xfffffffeu

#endif
