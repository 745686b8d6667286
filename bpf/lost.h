/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames that were redirected to a device and did not leave: it lost its carrier, is down,
 * or has no room. Their journey ended before, so that `outcomes` has them as forwarded. */
#ifndef CULVERT_LOST_H
#define CULVERT_LOST_H

#include "lib/bytes.h"
#include "lib/kernel.h"
#include "maps.h"
#include <bpf/bpf_tracing.h>

INLINE void count_lost(struct lost *lost, __u64 frames)
{
	__sync_fetch_and_add(&lost->frames, frames);
}

/* The kernel calls this for each bulk of frames to any device: first what rules out most. */
INLINE int count_refused(const struct net_device *to, int drops)
{
	__u32 ifindex;
	struct lost *lost;

	if (drops <= 0)
		return 0;
	ifindex = to->ifindex;
	lost = bpf_map_lookup_elem(&lost_by_device, &ifindex);
	if (lost && lost->netns == to->nd_net.net->ns.inum)
		count_lost(lost, drops);
	return 0;
}

/* A frame that the kernel did not hand to the device: it is down, or the frame too long. The
 * index is that of the map's entry, which is an ifindex in `device`. A program of another
 * type than the data path's must not name that map: the entry has its id. */
INLINE int count_unsent(__u32 map_id, __u32 ifindex)
{
	struct lost *lost = bpf_map_lookup_elem(&lost_by_device, &ifindex);

	if (lost && lost->device == map_id)
		count_lost(lost, 1);
	return 0;
}

#endif
