/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The helpers of the data path, in user space. */
#ifndef CULVERT_SOFT_HELPERS_H
#define CULVERT_SOFT_HELPERS_H

#include "calls.h"

inline void *bpf_map_lookup_elem(void *map, const void *key)
{
	return look_up(map, key);
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	struct soft_map *m = map_of(map);
	__u8 *at;

	if (m->by != BY_OWN_HASH)
		return bpf_store(m->fd, key, value, flags);
	at = own_hash_place(m, key);
	memcpy(at, value, m->value_size);
	memcpy(at + m->stride, key, m->key_size);
	return 0;
}

/* ---- the frame ---- */

#define FRAME_META 40 /* what the kernel keeps at the start of the headroom */

long bpf_xdp_adjust_head(struct xdp_md *ctx, int delta)
{
	__u32 data = ctx->data + delta;

	if (data < self->hard_start + FRAME_META || data > ctx->data_end - ETH_LEN)
		return -EINVAL;
	ctx->data = data;
	return 0;
}

long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta)
{
	__u32 end = ctx->data_end + delta;

	if (end < ctx->data + ETH_LEN || end > self->hard_end)
		return -EINVAL;
	if (delta > 0)
		memset((void *)(long)ctx->data_end, 0, delta);
	ctx->data_end = end;
	return 0;
}

/* No frame of these has any. */
long bpf_xdp_adjust_meta(struct xdp_md *ctx, int delta)
{
	(void)ctx;
	(void)delta;
	return -EINVAL;
}

#include "../native/octets.h"

/* ---- the rest ---- */

__u64 bpf_ktime_get_ns(void)
{
	return clock_now();
}

long bpf_fib_lookup(void *ctx, struct bpf_fib_lookup *fib, int size, __u32 flags)
{
	(void)ctx;
	return call_kernel(SOFT_FIB, flags, fib, size);
}

long bpf_redirect_map(void *map, __u64 key, __u64 flags)
{
	__u32 index = key, *to = look_up(map, &index);

	if (!to || !*to)
		return flags & 3;
	self->egress = *to;
	return XDP_REDIRECT;
}

void *bpf_ringbuf_reserve(void *map, __u64 size, __u64 flags)
{
	(void)map; /* slow_path, which alone is asked so */
	(void)size;
	(void)flags;
	return &self->record;
}

/* The records of one frame at a time: there is room. */
__u64 bpf_ringbuf_query(void *map, __u64 flags)
{
	(void)map;
	(void)flags;
	return 0;
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	(void)flags;
	if (call_kernel(SOFT_PUNT, 0, record, sizeof(struct punt)))
		self->result.not_handed_up++; /* its queue is full */
}

void bpf_ringbuf_discard(void *record, __u64 flags)
{
	(void)record;
	(void)flags;
}

long bpf_ringbuf_output(void *map, void *record, __u64 size, __u64 flags)
{
	(void)flags;
	return call_kernel(map == (void *)&session_events ? SOFT_EVENT : SOFT_TRACE, 0, record,
			   size);
}

/* No program follows: what it would answer is the daemon's. */
long bpf_tail_call(void *ctx, void *map, __u32 index)
{
	(void)ctx;
	(void)map;
	(void)index;
	return -ENOENT;
}

/* ---- one packet ---- */

/* The whole data path. For XDP_TX and XDP_REDIRECT self->egress is where to. */
static int handle(struct xdp_md *ctx, __u64 hard_start, __u64 hard_end)
{
	int verdict;

	self->hard_start = hard_start;
	self->hard_end = hard_end;
	self->egress = ctx->ingress_ifindex;
	verdict = culvert_xdp(ctx);
	if (verdict == XDP_TX)
		self->egress = ctx->ingress_ifindex;
	if (self->station_now)
		write_station();
	return verdict;
}

#endif
