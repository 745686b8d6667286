/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Next hops: how a frame leaves, and which of several a flow takes. */
#ifndef CULVERT_DEF_ADJACENCY_H
#define CULVERT_DEF_ADJACENCY_H

#include "types.h"

/* adjacency[index]: two halves, of which `current` says which one is true, so
 * that a change is seen whole. flags of 0: not ready. */
enum next_hop_flags {
	NEXT_HOP_READY = 1,
	NEXT_HOP_PASS = 2, /* XDP cannot send there: the kernel does */
	NEXT_HOP_KNOWN = 4, /* with PASS: tcx can, the addresses are true */
	NEXT_HOP_SHARED = 8, /* alone: flows share several; see struct shared_hop */
};

struct next_hop {
	__u32 ifindex; /* of the device that frames leave by (a VLAN's parent) */
	__u16 mtu;     /* of layer 3 */
	__u8 flags;
	__u8 tags;     /* VLAN tags to push: 0, 1, 2 */
	__u8 dst[6];
	__u8 src[6];
	__u16 tpid[2]; /* outermost first, host order */
	__u16 vlan[2];
};

struct adjacency {
	__u32 current;
	__u32 pad;
	struct next_hop half[2];
};

/* shared_hop[index of an adjacency that flows share]: adjacencies of next hops that are
 * equally good, one for each part of the flows (flow_part). What changes are the parts of a
 * next hop that comes or goes. */
#define FLOW_PARTS 64

struct shared_hop {
	__u32 adjacency[FLOW_PARTS];
};

#endif
