/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Which UEs may reach each other, what leads to UEs outside of pools, and to those of a slice. */
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

/* ue_bucket[(address * UE_HASH) >> settings.ues], the address as it is in a packet: what pdr_by_ue has
 * of IPv4 UEs, so that packets find it without a call. A slot is the address << 32 | the index, or 0. */
enum ue_buckets {
	UE_SLOTS = 3,
	UE_HASH = 0x61c88647,
};

struct ue_bucket {
	__u64 slot[UE_SLOTS];
	__u64 more; /* so many others are in pdr_by_ue alone */
};

/* What leads packets at a SID of a slice to its rules. In pdr_by_ue it is the ninth octet's
 * neighbour: AT_SID, this, two octets of 0, the slice in four. The first half of the key
 * is the TEID or IPv4 address in its first four octets, or the first 64 bits of an IPv6
 * address. */
enum at_sid {
	AT_SID = 0xfe, /* in no other key of pdr_by_ue */
	AT_SID_TEID = 1, /* PDU Session ID of the argument */
	AT_SID_SOURCE4, /* uplink */
	AT_SID_SOURCE6,
	AT_SID_DESTINATION4, /* downlink */
	AT_SID_DESTINATION6,
};

#endif
