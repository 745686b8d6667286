/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Octets of a frame that is generated or received. */
#ifndef CULVERT_TRAFFIC_OCTETS_H
#define CULVERT_TRAFFIC_OCTETS_H

#include <linux/bpf.h>

#include "lib/bytes.h"

#define TRAFFIC_FRAME 2048 /* octets that a frame may have */

/* `size` octets at `offset`, or NULL. */
INLINE void *octets(struct xdp_md *ctx, __u32 offset, __u32 size)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	opaque(offset);
	if (offset > TRAFFIC_FRAME)
		return 0;
	data += offset;
	return data + size > end ? 0 : data;
}

#endif
