/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The generator: it makes packets in time, and counts what an interface refuses. */
#ifndef CULVERT_TRAFFIC_SEND_H
#define CULVERT_TRAFFIC_SEND_H

#include "lib/kernel.h"
#include "traffic/packet.h"
#include <bpf/bpf_tracing.h>

/* RFC 1624: a checksum after `from` became `to` in what it is over. A UDP
 * checksum of 0 would mean none. */
INLINE int follow(struct xdp_md *ctx, __u32 offset, __u32 from, __u32 to, int udp)
{
	__u8 *at = octets(ctx, offset, 2);
	__u16 checksum;

	if (!at)
		return -1;
	checksum = ~fold((__u16)~ld16(at) + halves(~from) + halves(to));
	st16(at, udp && !checksum ? 0xffff : checksum);
	return 0;
}

INLINE int put(struct xdp_md *ctx, const struct traffic_place *place, __u32 number)
{
	__u8 *at = octets(ctx, place->offset, 4);
	__u32 from, to = be32(place->base + (number << (place->shift & 31)));

	if (!at)
		return -1;
	from = ld32(at);
	st32(at, to);
	if (place->ip_checksum && follow(ctx, place->ip_checksum, from, to, 0))
		return -1;
	if (place->udp_checksum && follow(ctx, place->udp_checksum, from, to, 1))
		return -1;
	if (!place->outer_checksum)
		return 0;
	return place->outer_adds ? follow(ctx, place->outer_checksum, to, from, 1)
				 : follow(ctx, place->outer_checksum, from, to, 1);
}

INLINE int put_numbers(struct xdp_md *ctx, const struct traffic_job *job, const __u32 *numbers)
{
	for (__u32 i = 0; i < TRAFFIC_PLACES; i++) {
		__u32 key = job->place[i].key;

		if (i >= job->places)
			break;
		opaque(key);
		if (key >= TRAFFIC_KEYS || put(ctx, &job->place[i], numbers[key]))
			return -1;
	}
	return 0;
}

INLINE int put_tag(struct xdp_md *ctx, const struct traffic_job *job,
		   const struct traffic_state *state, __u32 length, __u64 now)
{
	struct traffic_tag tag = { .trial = job->trial, .stream = state->stream };
	__u8 *at = octets(ctx, length - sizeof(tag), sizeof(tag));

	if (!at)
		return -1;
	tag.sequence = be32(state->sequence);
	tag.time = job->timed ? be32(now) : 0;
	tag.check = fold(TRAFFIC_TAG + (__u16)~tag_sum(&tag));
	st32(at, ld32(&tag));
	st32(at + 4, tag.sequence);
	st32(at + 8, tag.time);
	return 0;
}

/* Writes the packet that is next. Pages come back as the device left them. */
INLINE int make(struct xdp_md *ctx, const struct traffic_job *job, struct traffic_state *state,
		__u64 now)
{
	__u32 slot = state->slot, size, length, numbers[TRAFFIC_KEYS];
	struct traffic_frame *frame;

	opaque(slot);
	if (slot >= TRAFFIC_SLOTS)
		return -1;
	size = job->slot[slot];
	frame = bpf_map_lookup_elem(&traffic_frame, &size);
	if (!frame)
		return -1;
	length = frame->length;
	if (length != frame_length(ctx) &&
	    bpf_xdp_adjust_tail(ctx, (int)length - (int)frame_length(ctx)))
		return -1;
	opaque(length);
	if (length < SHORTEST || length > TRAFFIC_FRAME ||
	    bpf_xdp_store_bytes(ctx, 0, frame->data, length))
		return -1;
	find_numbers(job, state->stream, state->sequence, numbers);
	if (put_numbers(ctx, job, numbers) || put_tag(ctx, job, state, length, now))
		return -1;
	state->octets += length;
	return 0;
}

/* For how long a trial may last: longer than asked for where something else had
 * the CPU, but not where packets cannot be made in time. */
INLINE __u64 longest(const struct traffic_job *job, const struct traffic_state *state)
{
	if (!job->interval || state->overruns > state->sent / 4 + MANY_OVERRUNS)
		return job->duration;
	return 2 * job->duration + PATIENCE;
}

/* Is a packet due? The token bucket's time is that since the beginning. What a
 * pause has cost beyond `depth` is not sent in a burst: the trial is longer by
 * it. */
INLINE int due(const struct traffic_job *job, struct traffic_state *state, __u64 now)
{
	__u64 since, late, done;

	if (!state->begin)
		state->begin = now;
	since = now - state->begin;
	done = (state->next - state->paused) >> 16;
	if (since >= longest(job, state) || done >= job->duration) {
		state->over = 1;
		return 0;
	}
	if (!job->interval)
		return 1;
	since <<= 16;
	if (since < state->next) {
		state->idle = 1;
		return 0;
	}
	late = since - state->next;
	if (late > job->depth) {
		state->overruns += !state->idle;
		state->paused += late - job->depth;
		state->next = since - job->depth;
	}
	state->next += done < job->half ? job->interval : job->later;
	state->idle = 0;
	return 1;
}

SEC("xdp")
int traffic_send(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct traffic_job *job = bpf_map_lookup_elem(&traffic_job, &zero);
	struct traffic_state *state = bpf_map_lookup_elem(&traffic_state, &zero);
	__u64 now = 0;

	if (!job || !state)
		return XDP_ABORTED;
	if (state->over)
		return XDP_DROP;
	if (job->timed || job->interval || !(state->sent & NOT_TIMED_MASK)) {
		now = bpf_ktime_get_ns();
		if (!due(job, state, now))
			return XDP_DROP;
		state->last = now;
	}
	if (job->turns && ++state->turn >= job->turns) {
		state->turn = 0;
		bpf_tail_call(ctx, &traffic_other, TRAFFIC_CALL_SEND);
	}
	if (make(ctx, job, state, now)) {
		state->failed++;
		return XDP_ABORTED;
	}
	state->sent++;
	if (++state->slot >= job->slots)
		state->slot = 0;
	if (++state->stream >> (job->stream_bits & 31)) {
		state->stream = 0;
		state->over = !++state->sequence;
	}
	return bpf_redirect_map(&traffic_device, 0, XDP_ABORTED);
}

/* What an interface had no room for never left: the device is not to blame. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(traffic_refused, const struct net_device *from, const struct net_device *to, int sent,
	     int drops)
{
	__u32 zero = 0;
	struct traffic_job *job = bpf_map_lookup_elem(&traffic_job, &zero);
	struct traffic_state *state = bpf_map_lookup_elem(&traffic_state, &zero);

	if (job && state && drops > 0 && to->ifindex == (int)job->device &&
	    to->nd_net.net->ns.inum == job->netns)
		__sync_fetch_and_add(&state->refused, drops);
	return 0;
}

#endif
