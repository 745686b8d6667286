// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The traffic of `culvert bench`: a generator that live frames run through, and
 * a receiver for what comes out of a device. No part of the data path: it is an
 * object of its own (docs/adr/0012-traffic.md). */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "lib/bytes.h"

#define TRAFFIC_FRAME 2048   /* octets that a frame may have */
#define TRAFFIC_COMPARED 320 /* octets of headers that are compared */
#define TRAFFIC_WORDS (TRAFFIC_COMPARED / 8)
#define TRAFFIC_SIZES 4
#define TRAFFIC_SLOTS 48
#define TRAFFIC_PLACES 8
#define TRAFFIC_KEYS 3
#define TRAFFIC_STREAMS 32
#define TRAFFIC_WINDOW 65536 /* sequence numbers of a stream that are known apart */
#define TRAFFIC_LINE 16      /* of which in a cache line */
#define TRAFFIC_BUCKETS 1728 /* of the histogram: 128, and 64 for each power of two up to 2^32 */
#define TRAFFIC_FAULTS 16    /* wrong frames that each CPU shows */
#define TRAFFIC_TAG \
	0xc7c7   /* the Internet checksum's sum over each tag: the same in either byte order */
#define NOT_TIMED_MASK 63    /* without a time in the tags, the clock is read this seldom */

#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define TYPE_VLAN 0x8100
#define PROTO_ICMPV6 58
#define ETHERNET_LENGTH 14
#define VLAN_LENGTH 4
#define MULTICAST 1 /* in the first octet of an Ethernet address */
#define PATIENCE 5000000000ull /* ns that even a short trial may be paused */
#define MANY_OVERRUNS 64
#define SHORTEST 60 /* a frame is padded to it */

/* What a frame was found to be. */
enum traffic_wrong {
	TRAFFIC_RIGHT,
	TRAFFIC_LENGTH, /* of the frame */
	TRAFFIC_HEADER,
	TRAFFIC_NUMBER,     /* a TEID, address or port is that of another packet */
	TRAFFIC_UNREADABLE, /* right headers, but no right tag */
	TRAFFIC_UNEXPECTED,
};

/* The last 12 octets of the IP packet, in network byte order. */
struct traffic_tag {
	__u8 trial, stream;
	__u16 check; /* makes the sum TRAFFIC_TAG */
	__u32 sequence;
	__u32 time; /* low bits of CLOCK_MONOTONIC in ns */
};

/* How many numbers there are, and their order. */
struct traffic_key {
	__u32 count;
	__u32 random;
	__u32 lead; /* its number names the stream */
	__u32 salt;
};

/* Where a number stands: the 32 bits at `offset` are base + (number << shift).
 * The checksums that follow it are told by their offsets; 0: none. */
struct traffic_place {
	__u32 offset, base, key, shift;
	__u32 ip_checksum, udp_checksum;
	__u32 outer_checksum; /* of a UDP header around, over all that changes */
	__u32 outer_adds;     /* 1: what changes inside is taken from the sum, not added */
};

/* Written before a trial. */
struct traffic_job {
	__u64 duration; /* ns */
	__u64 interval; /* 2^-16 ns between packets; 0: as fast as possible */
	__u64 depth;    /* 2^-16 ns that may be caught up */
	__u32 trial, stream_bits;
	__u32 places, slots;
	__u32 timed; /* tags hold the time */
	__u32 device, netns; /* the sending interface, and the inode of its network namespace */
	__u32 turns; /* every second packet is made by the other object */
	struct traffic_key key[TRAFFIC_KEYS];
	struct traffic_place place[TRAFFIC_PLACES];
	__u8 slot[TRAFFIC_SLOTS]; /* index into traffic_frame */
};

/* Written by the generator alone. */
struct traffic_state {
	__u64 begin, last; /* ns */
	__u64 next;        /* when the next packet is due, 2^-16 ns after begin */
	__u64 paused;      /* for how long nothing was sent, 2^-16 ns */
	__u64 sent, octets;
	__u64 refused; /* of sent, by the interface; written by its CPU too */
	__u32 stream, sequence, slot;
	__u32 over, failed;
	__u32 overruns; /* packets that were later than depth, though none had been too early since the one before */
	__u32 turn; /* 1: the other object made the last packet */
	__u32 idle; /* 1: it was too early for a packet since the last */
};

struct traffic_frame {
	__u32 length;
	__u8 data[TRAFFIC_FRAME];
};

/* What comes out of the device, if it is right. */
struct traffic_expect {
	__u32 words, places;
	__u32 every; /* packets to one that is shown, less 1; a power of two less 1 */
	__u32 pad;
	__u32 length[TRAFFIC_SIZES];
	__u64 want[TRAFFIC_WORDS], mask[TRAFFIC_WORDS];
	struct traffic_place place[TRAFFIC_PLACES];
};

struct traffic_counts {
	__u64 received, octets, duplicated, reordered;
	__u64 wrong[TRAFFIC_UNEXPECTED + 1]; /* by enum traffic_wrong */
	__u64 returned; /* unexpected, and at the sending interface */
	__u64 stale; /* of an earlier trial */
	__u64 not_shown; /* no room to show a frame */
	__u64 shown; /* wrong ones */
};

struct traffic_stream {
	__u32 next; /* the highest sequence number that came, and 1 */
	__u32 pad[15]; /* a cache line for each */
};

/* The receiver's latest packet, and the longest time between two; ns. */
struct traffic_arrival {
	__u64 last, gap;
};

/* A frame for user space to look at. */
struct traffic_shown {
	__u32 wrong; /* enum traffic_wrong */
	__u32 returned;
	__u32 length, size; /* size: index into traffic_frame */
	__u32 stream, sequence;
	__u8 data[TRAFFIC_FRAME];
};

/* Programs of another loaded object of this kind: what is not this one's is the
 * other's, where they receive at the same interface, and they take turns to
 * send. */
enum traffic_call {
	TRAFFIC_CALL_RECEIVE,
	TRAFFIC_CALL_WATCH,
	TRAFFIC_CALL_SEND,
	TRAFFIC_CALLS,
};

const enum traffic_wrong *const btf_traffic_wrong __attribute__((section("btf_types"))) = 0;
const enum traffic_call *const btf_traffic_call __attribute__((section("btf_types"))) = 0;
const struct traffic_shown *const btf_traffic_shown __attribute__((section("btf_types"))) = 0;

#define ONE(kind, name, struct_name)               \
	struct {                                   \
		__uint(type, kind);                \
		__type(key, __u32);                \
		__type(value, struct struct_name); \
		__uint(max_entries, 1);            \
	} name SEC(".maps")

ONE(BPF_MAP_TYPE_ARRAY, traffic_job, traffic_job);
ONE(BPF_MAP_TYPE_ARRAY, traffic_state, traffic_state);
ONE(BPF_MAP_TYPE_ARRAY, traffic_expect, traffic_expect);
ONE(BPF_MAP_TYPE_PERCPU_ARRAY, traffic_counts, traffic_counts);
ONE(BPF_MAP_TYPE_ARRAY, traffic_arrival,
    traffic_arrival); /* of all CPUs: packets may change theirs */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct traffic_frame);
	__uint(max_entries, TRAFFIC_SIZES);
} traffic_frame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct traffic_stream);
	__uint(max_entries, TRAFFIC_STREAMS);
} traffic_stream SEC(".maps");

/* Each sequence number's place holds, and 1, the one that came last of those
 * that share it. One exchange tells whether it came before, on any number of
 * CPUs and with nothing to clear as the window moves on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u32[TRAFFIC_LINE]);
	__uint(max_entries, TRAFFIC_STREAMS *(TRAFFIC_WINDOW / TRAFFIC_LINE));
} traffic_window SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, TRAFFIC_BUCKETS);
} traffic_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} traffic_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, TRAFFIC_CALLS);
} traffic_other SEC(".maps");

/* the sending interface */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} traffic_device SEC(".maps");

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

INLINE __u32 frame_length(struct xdp_md *ctx)
{
	long length = (long)ctx->data_end - (long)ctx->data;

	return length;
}

INLINE __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

INLINE __u32 halves(__u32 word)
{
	return (word & 0xffff) + (word >> 16);
}

/* the Internet checksum's sum over a tag */
INLINE __u32 tag_sum(const struct traffic_tag *tag)
{
	return fold(halves(ld32(tag)) + halves(tag->sequence) + halves(tag->time));
}

INLINE __u32 mixed(__u32 x)
{
	x ^= x >> 16;
	x *= 0x85ebca6b;
	x ^= x >> 13;
	x *= 0xc2b2ae35;
	return x ^ x >> 16;
}

/* The number of a key that a packet has. The lead's are shared out among the
 * streams, so that packets of one flow are of one stream. */
INLINE __u32 number(const struct traffic_job *job, const struct traffic_key *key, __u32 stream,
		    __u32 sequence)
{
	__u32 bits = job->stream_bits & 31, count = key->count, at;

	if (count <= 1)
		return 0;
	at = key->lead ? sequence : sequence << bits | stream;
	if (key->random)
		at = mixed(at ^ key->salt);
	if (!key->lead)
		return key->random ? (__u64)at * count >> 32 : at % count;
	count = ((count - 1 - stream) >> bits) + 1;
	at = key->random ? (__u64)mixed(at + stream) * count >> 32 : at % count;
	return stream + (at << bits);
}

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

INLINE void find_numbers(const struct traffic_job *job, __u32 stream, __u32 sequence,
			 __u32 *numbers)
{
	for (int i = 0; i < TRAFFIC_KEYS; i++)
		numbers[i] = number(job, &job->key[i], stream, sequence);
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
	__u64 since, late;

	if (!state->begin)
		state->begin = now;
	since = now - state->begin;
	if (since >= longest(job, state) || (state->next - state->paused) >> 16 >= job->duration) {
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
	state->next += job->interval;
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
	if (job->turns) {
		state->turn = !state->turn;
		if (state->turn)
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

/* The kernel's structs, as far as they are read. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

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

/* Where the IP packet begins and, at *length, how long it says that it is; all
 * of the frame where it is no IP. */
INLINE __u32 find_packet(struct xdp_md *ctx, __u16 *type, __u32 *length)
{
	__u32 at = ETHERNET_LENGTH;
	__u8 *eth = octets(ctx, 0, ETHERNET_LENGTH + VLAN_LENGTH + 8);

	*type = 0;
	*length = frame_length(ctx) - at;
	if (!eth)
		return at;
	*type = be16(ld16(eth + 12));
	if (*type == TYPE_VLAN) {
		*type = be16(ld16(eth + 16));
		eth += VLAN_LENGTH;
		at += VLAN_LENGTH;
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

/* What every network says of its own: not IP, multicast, neighbour discovery
 * and multicast listeners. */
INLINE int background(struct xdp_md *ctx, __u16 type, __u32 at)
{
	__u8 *eth = octets(ctx, 0, ETHERNET_LENGTH), *ip, kind;

	if (!eth || eth[0] & MULTICAST || (type != TYPE_IPV4 && type != TYPE_IPV6))
		return 1;
	ip = octets(ctx, at, 41);
	if (type != TYPE_IPV6 || !ip || ip[6] != PROTO_ICMPV6)
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
	if (read_tag(ctx, at + length, &tag) || tag.stream >> (job->stream_bits & 31) ||
	    tag.stream >= TRAFFIC_STREAMS)
		return no_tag(ctx, c, job, type, at, returned);
	if (tag.trial != (__u8)job->trial) {
		bpf_tail_call(ctx, &traffic_other,
			      returned ? TRAFFIC_CALL_WATCH : TRAFFIC_CALL_RECEIVE);
		c->stale++;
		return XDP_DROP;
	}
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

char _license[] SEC("license") = "Dual BSD/GPL";
