/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which UEs may reach each other, and what leads to the UEs of a slice: see tables.h. */
#ifndef CULVERT_DEF_UE_H
#define CULVERT_DEF_UE_H

/* In pdr, what leads packets for a UE to its rules has no sources. source6 is there the UE's
 * group, whose UEs may reach each other, or 0: an enum ue_to_ue << UE_GROUP_SHIFT, the slice
 * << UE_SLICE_SHIFT, and below it the network instance. source4 is then the index of an entry
 * that all that leads to the UE's rules says alike, so that two of them say whether they are
 * one UE's. */
#define UE_GROUP_SHIFT 62
#define UE_SLICE_SHIFT 52
#define UE_SLICE_MASK 1023
enum ue_to_ue {
	UE_TO_UE_DROP,
	UE_TO_UE_ROUTE, /* straight to the other UE's rules */
	UE_TO_UE_N6, /* out by a table, and in again from there */
};

/* `held` of refused: packets handed up to be kept that the daemon is not done with; of
 * refused[0]: the entry of the one that it has in hand, or 0. HELD_OPEN: the rule, which may
 * still say PDR_BUFFER, forwards. Set only where nothing is handed up: so that nothing
 * overtakes. */
#define HELD_OPEN (1u << 31)

/* In `slice` of local_sid: what the data network sends to its UEs arrives there, and nothing
 * else. */
#define SLICE_VPN (1 << 15)

#endif
