/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The receiver: it compares, counts and shows what arrives. */
#ifndef CULVERT_TRAFFIC_RECEIVE_H
#define CULVERT_TRAFFIC_RECEIVE_H

#include "traffic/packet.h"

/* Where the IP packet begins and, at *length, how long it says that it is; all
 * of the frame where it is no IP. */
INLINE __u32 find_packet(struct xdp_md *ctx, __u16 *type, __u32 *length)
{
	__u32 at = ETH_LEN;
	__u8 *eth = octets(ctx, 0, ETH_LEN + VLAN_LEN + 8);

	*type = 0;
	*length = frame_length(ctx) - at;
	if (!eth)
		return at;
	*type = be16(ld16(eth + 12));
	if (*type == TYPE_VLAN) {
		*type = be16(ld16(eth + 16));
		eth += VLAN_LEN;
		at += VLAN_LEN;
	}
	if (*type == TYPE_IPV4)
		*length = be16(ld16(eth + 16));
	else if (*type == TYPE_IPV6)
		*length = 40 + be16(ld16(eth + 18));
	else
		*length = frame_length(ctx) - at;
	return at;
}

/* Says in *tag what stands at the packet's end; 0 if it is a tag. */
INLINE int read_tag(struct xdp_md *ctx, __u32 end, struct traffic_tag *tag)
{
	if (end < sizeof(*tag) || end > frame_length(ctx) ||
	    bpf_xdp_load_bytes(ctx, end - sizeof(*tag), tag, sizeof(*tag)))
		return -1;
	return tag_sum(tag) == TRAFFIC_TAG ? 0 : -1;
}

INLINE int same_headers(struct xdp_md *ctx, const struct traffic_expect *expect)
{
	for (__u32 i = 0; i < TRAFFIC_WORDS; i++) {
		__u8 *at;

		if (i >= expect->words)
			break;
		at = octets(ctx, 8 * i, 8);
		if (!at || (ld64(at) ^ expect->want[i]) & expect->mask[i])
			return 0;
	}
	return 1;
}

INLINE int same_numbers(struct xdp_md *ctx, const struct traffic_expect *expect,
			const __u32 *numbers)
{
	for (__u32 i = 0; i < TRAFFIC_PLACES; i++) {
		const struct traffic_place *place = &expect->place[i];
		__u32 key = place->key;
		__u8 *at;

		if (i >= expect->places)
			break;
		opaque(key);
		at = octets(ctx, place->offset, 4);
		if (key >= TRAFFIC_KEYS || !at ||
		    be32(ld32(at)) != place->base + (numbers[key] << (place->shift & 31)))
			return 0;
	}
	return 1;
}

/* The size that the packet with this tag was made of. */
INLINE __u32 size_of(const struct traffic_job *job, const struct traffic_tag *tag)
{
	__u64 index = (__u64)be32(tag->sequence) << (job->stream_bits & 31) | tag->stream;
	__u32 slot = job->slots > 1 ? index % job->slots : 0;

	opaque(slot);
	return slot < TRAFFIC_SLOTS ? job->slot[slot] & (TRAFFIC_SIZES - 1) : 0;
}

INLINE enum traffic_wrong compare(struct xdp_md *ctx, const struct traffic_job *job,
				  const struct traffic_tag *tag)
{
	__u32 zero = 0, numbers[TRAFFIC_KEYS], length;
	struct traffic_expect *expect = bpf_map_lookup_elem(&traffic_expect, &zero);

	if (!expect)
		return TRAFFIC_RIGHT;
	length = expect->length[size_of(job, tag)];
	if (frame_length(ctx) != (length < SHORTEST ? SHORTEST : length) &&
	    frame_length(ctx) != length)
		return TRAFFIC_LENGTH;
	if (!same_headers(ctx, expect))
		return TRAFFIC_HEADER;
	find_numbers(job, tag->stream, be32(tag->sequence), numbers);
	return same_numbers(ctx, expect, numbers) ? TRAFFIC_RIGHT : TRAFFIC_NUMBER;
}

/* Whether UDP at `at` is GTP-U's Echo Request or Response (TS 29.281), which peers exchange
 * about their path. */
INLINE int is_echo(struct xdp_md *ctx, __u32 at)
{
	__u8 *udp = octets(ctx, at, 16);

	return udp && be16(ld16(udp + 2)) == GTPU_PORT &&
	       (udp[9] == GTPU_ECHO_REQUEST || udp[9] == GTPU_ECHO_RESPONSE);
}

/* What every network says of its own: not IP, multicast, neighbour discovery,
 * multicast listeners, Echo of GTP-U. */
INLINE int background(struct xdp_md *ctx, __u16 type, __u32 at)
{
	__u8 *eth = octets(ctx, 0, ETH_LEN), *ip, kind;

	if (!eth || eth[0] & MULTICAST || (type != TYPE_IPV4 && type != TYPE_IPV6))
		return 1;
	ip = octets(ctx, at, IPV4_LEN);
	if (ip && type == TYPE_IPV4)
		return ip[9] == NH_UDP && is_echo(ctx, at + IPV4_LEN);
	ip = octets(ctx, at, 41);
	if (ip && ip[6] == NH_UDP)
		return is_echo(ctx, at + IPV6_LEN);
	if (!ip || ip[6] != NH_ICMPV6)
		return 0;
	kind = ip[40];
	return (kind >= 130 && kind <= 137) || kind == 143;
}

INLINE __u32 bucket(__u32 value)
{
	__u32 top = 7, v = value >> 7;

	if (value < 128)
		return value;
	for (int step = 16; step; step >>= 1) {
		if (v >> step) {
			v >>= step;
			top += step;
		}
	}
	return 128 + (top - 7) * 64 + (value >> (top - 6) & 63);
}

INLINE void count_latency(__u32 ns)
{
	__u32 at = bucket(ns);
	__u64 *count = bpf_map_lookup_elem(&traffic_latency, &at);

	if (count)
		++*count;
}

/* Raises the stream's highest number; 1 if a later packet came before this. */
INLINE int overtaken(__u32 stream, __u32 sequence)
{
	struct traffic_stream *s = bpf_map_lookup_elem(&traffic_stream, &stream);
	__u32 next = sequence + 1, had;

	if (!s)
		return 0;
	had = *(volatile __u32 *)&s->next;
	for (int tries = 0; tries < 16; tries++) {
		__u32 found;

		if (had > next)
			return 1;
		found = __sync_val_compare_and_swap(&s->next, had, next);
		if (found == had)
			return 0;
		had = found;
	}
	return 0;
}

INLINE void count_gap(__u64 now)
{
	__u32 zero = 0;
	struct traffic_arrival *a = bpf_map_lookup_elem(&traffic_arrival, &zero);

	if (!a)
		return;
	if (a->last && now > a->last && now - a->last > a->gap)
		a->gap = now - a->last;
	a->last = now;
}

/* Counts a packet once; its copies apart. */
INLINE void count(struct traffic_counts *c, const struct traffic_job *job,
		  const struct traffic_tag *tag, __u32 length, __u64 now)
{
	__u32 sequence = be32(tag->sequence), mark = sequence + 1, had;
	__u32 line = tag->stream * (TRAFFIC_WINDOW / TRAFFIC_LINE) +
		     sequence % TRAFFIC_WINDOW / TRAFFIC_LINE;
	__u32 *window = bpf_map_lookup_elem(&traffic_window, &line);

	if (!window)
		return;
	had = __sync_lock_test_and_set(&window[sequence % TRAFFIC_LINE], mark);
	if (had == mark) {
		c->duplicated++;
		return;
	}
	if (had > mark) /* so late that its place is another's by now */
		__sync_lock_test_and_set(&window[sequence % TRAFFIC_LINE], had);
	c->received++;
	c->octets += length;
	c->reordered += overtaken(tag->stream, sequence);
	count_gap(now);
	if (job->timed)
		count_latency((__u32)now - be32(tag->time));
}

/* Shows a frame to user space. */
INLINE void show(struct xdp_md *ctx, struct traffic_counts *c, const struct traffic_job *job,
		 const struct traffic_tag *tag, enum traffic_wrong wrong, int returned)
{
	struct traffic_shown *shown = bpf_ringbuf_reserve(&traffic_ring, sizeof(*shown), 0);
	__u64 length = frame_length(ctx);

	if (!shown) {
		c->not_shown++;
		return;
	}
	shown->wrong = wrong;
	shown->returned = returned;
	shown->length = length;
	shown->size = size_of(job, tag);
	shown->stream = tag->stream;
	shown->sequence = be32(tag->sequence);
	if (length > TRAFFIC_FRAME)
		length = TRAFFIC_FRAME;
	opaque(length);
	if (length < 1 || length > TRAFFIC_FRAME || bpf_xdp_load_bytes(ctx, 0, shown->data, length))
		shown->length = 0;
	bpf_ringbuf_submit(shown, BPF_RB_NO_WAKEUP);
}

INLINE void count_wrong(struct xdp_md *ctx, struct traffic_counts *c, const struct traffic_job *job,
			const struct traffic_tag *tag, enum traffic_wrong wrong, int returned)
{
	c->wrong[wrong]++;
	c->returned += returned;
	if (c->shown++ < TRAFFIC_FAULTS)
		show(ctx, c, job, tag, wrong, returned);
}

/* A packet without a right tag: one of ours that was hurt, somebody else's, or
 * what every network has. */
INLINE int no_tag(struct xdp_md *ctx, struct traffic_counts *c, const struct traffic_job *job,
		  __u16 type, __u32 at, int returned)
{
	__u32 zero = 0;
	struct traffic_expect *expect = bpf_map_lookup_elem(&traffic_expect, &zero);
	struct traffic_tag none = {};

	if (expect && expect->words && !returned && same_headers(ctx, expect)) {
		count_wrong(ctx, c, job, &none, TRAFFIC_UNREADABLE, 0);
		return XDP_DROP;
	}
	if (!background(ctx, type, at))
		count_wrong(ctx, c, job, &none, TRAFFIC_UNEXPECTED, returned);
	return XDP_PASS;
}

INLINE int arrived(struct xdp_md *ctx, int returned)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0, length, at;
	struct traffic_counts *c = bpf_map_lookup_elem(&traffic_counts, &zero);
	struct traffic_job *job = bpf_map_lookup_elem(&traffic_job, &zero);
	struct traffic_expect *expect = bpf_map_lookup_elem(&traffic_expect, &zero);
	struct traffic_tag tag = {};
	enum traffic_wrong wrong;
	__u16 type;

	if (!c || !job || !expect)
		return XDP_PASS;
	at = find_packet(ctx, &type, &length);
	if (read_tag(ctx, at + length, &tag) || tag.stream >= TRAFFIC_STREAMS)
		return no_tag(ctx, c, job, type, at, returned);
	if (tag.trial != (__u8)job->trial) {
		bpf_tail_call(ctx, &traffic_other,
			      returned ? TRAFFIC_CALL_WATCH : TRAFFIC_CALL_RECEIVE);
		c->stale++;
		return XDP_DROP;
	}
	if (tag.stream >> (job->stream_bits & 31))
		return no_tag(ctx, c, job, type, at, returned);
	if (returned) {
		count_wrong(ctx, c, job, &tag, TRAFFIC_UNEXPECTED, 1);
		return XDP_DROP;
	}
	count(c, job, &tag, frame_length(ctx), now);
	wrong = compare(ctx, job, &tag);
	if (wrong != TRAFFIC_RIGHT)
		count_wrong(ctx, c, job, &tag, wrong, 0);
	else if (!(be32(tag.sequence) & expect->every))
		show(ctx, c, job, &tag, TRAFFIC_RIGHT, 0);
	return XDP_DROP;
}

SEC("xdp")
int traffic_receive(struct xdp_md *ctx)
{
	return arrived(ctx, 0);
}

/* At the sending interface: what the device answers. */
SEC("xdp")
int traffic_watch(struct xdp_md *ctx)
{
	return arrived(ctx, 1);
}

#endif
