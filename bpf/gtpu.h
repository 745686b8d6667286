/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading GTP-U (TS 29.281 section 5): UDP, the header with its options, the
 * chain of extension headers. */
#ifndef CULVERT_GTPU_H
#define CULVERT_GTPU_H

#include "payload.h"

#define MAX_GTPU_EXTENSIONS 8

/* Types that an endpoint need not understand to take the T-PDU. */
INLINE int may_be_skipped(__u8 type)
{
	return !(type & 0x80) || (type >= 0x81 && type <= 0x84) || type == 0xc0;
}

INLINE void read_container(struct packet *p, __u32 word)
{
	p->gtpu.has_container = 1;
	if (container_type(word) > 1)
		return; /* another one may have told a QFI */
	p->gtpu.qfi = container_qfi(word);
	p->gtpu.rqi = container_rqi(word);
}

/* Options and extension headers; p->plan.keep is behind the first 8 octets and is
 * moved behind them all. 0, or a reason. */
GLOBAL int walk_gtpu_extensions(struct xdp_md *ctx, struct packet *p, __u32 flags)
{
	__u32 i, offset, end, length;
	__u8 *header, type;

	if (!p)
		return REASON_GTPU_LENGTH;
	offset = p->plan.keep;
	end = offset + p->plan.keep_length;
	header = at(ctx, offset, GTPU_OPTIONS_LEN);
	if (!header || offset + GTPU_OPTIONS_LEN > end)
		return REASON_GTPU_LENGTH;
	p->gtpu.sequence = flags & GTPU_FLAG_S ? be16(ld16(header)) : 0;
	type = flags & GTPU_FLAG_E ? header[3] : 0;
	offset += GTPU_OPTIONS_LEN;
	for (i = 0; i < MAX_GTPU_EXTENSIONS && type; i++) {
		header = at(ctx, offset, 4);
		if (!header || offset + 4 > end)
			return REASON_GTPU_EXTENSION;
		length = 4 * (__u32)header[0];
		if (!length || offset + length > end)
			return REASON_GTPU_EXTENSION;
		if (type == GTPU_EXT_CONTAINER)
			read_container(p, ld32(header));
		else if (!may_be_skipped(type))
			return REASON_GTPU_EXTENSION;
		header = at(ctx, offset + length - 1, 1);
		if (!header)
			return REASON_GTPU_EXTENSION;
		type = *header;
		offset += length;
	}
	if (type)
		return REASON_GTPU_EXTENSION;
	p->plan.keep = offset;
	p->plan.keep_length = end - offset;
	return 0;
}

/* UDP at `offset`, `available` octets of it there. Then p->plan.keep and
 * p->plan.keep_length are what GTP-U carries. 0, or a reason. */
INLINE int read_gtpu(struct xdp_md *ctx, struct packet *p, __u32 offset, __u32 available)
{
	struct udp *udp = at(ctx, offset, UDP_LEN);
	struct gtpu *gtpu;
	__u32 length;

	if (!udp || available < UDP_LEN)
		return REASON_UDP_MALFORMED;
	length = be16(ld16(&udp->length));
	if (length < UDP_LEN || length > available)
		return REASON_UDP_MALFORMED;
	gtpu = at(ctx, offset + UDP_LEN, GTPU_LEN);
	if (!gtpu || length < UDP_LEN + GTPU_LEN)
		return REASON_GTPU_LENGTH;
	if ((gtpu->flags & 0xf0) != GTPU_VERSION1)
		return REASON_GTPU_VERSION;
	available = length - UDP_LEN - GTPU_LEN;
	length = be16(ld16(&gtpu->length));
	if (length > available)
		return REASON_GTPU_LENGTH;
	p->gtpu.message = gtpu->type;
	p->gtpu.teid = be32(ld32(&gtpu->teid));
	p->gtpu.sequence = 0;
	p->gtpu.qfi = 0;
	p->gtpu.rqi = 0;
	p->gtpu.has_container = 0;
	p->gtpu.offset = offset + UDP_LEN;
	p->plan.keep = p->gtpu.offset + GTPU_LEN;
	p->plan.keep_length = length;
	return gtpu->flags & GTPU_OPTIONS ? walk_gtpu_extensions(ctx, p, gtpu->flags) : 0;
}

#endif
