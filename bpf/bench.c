// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What `culvert bench` measures with: the program in front that makes every
 * frame anew, the baseline, and the sinks. No part of the data path: it is an
 * object of its own (docs/adr/0005-bench.md). */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "lib/btf.h"
#include "def/tables.h"
#include "lib/bytes.h"

#define BENCH_FRAME 256 /* what the front writes, and a sink keeps: all headers */
#define BENCH_DRAWS (1 << 20)
#define PACKET_BROADCAST 1 /* linux/if_packet.h */
#define PACKET_MULTICAST 2
#define MULTICAST 1 /* in the first octet of an Ethernet address */
#define XDP_HEADROOM 256 /* XDP_PACKET_HEADROOM */

enum bench_flags {
	BENCH_RESTORE = 1, /* runs follow each other on one buffer */
	BENCH_DRAWN = 2, /* numbers are those of bench_draw, in its order */
};

/* Where a number is put: the 32 bits at `offset` become `base` and as much. */
struct bench_place {
	__u32 offset; /* 0: nowhere */
	__u32 base;
	__u32 checksum_offset; /* of the checksum over it; 0: none */
};

/* The frame that the front makes (its headers: the kernel has filled the buffer
 * once, and no program touches what is behind them), and where it puts a random one of `keys`
 * numbers: a session is named by its TEID, and by the UE's address. A frame belongs to one of `flows`
 * flows, of which each has a port. */
struct bench_frame {
	__u32 length;
	__u32 flags;
	__u32 keys; /* 0: every frame is the same; with `cpus`, of each of them */
	__u32 cpus; /* that have numbers of their own, as bench_cpu says; 0: none has */
	struct bench_place key, twin;
	struct bench_place flow; /* of 16 bits */
	__u32 flows; /* a power of two */
	__u8 data[BENCH_FRAME];
};

/* What each CPU has for itself. */
struct bench_cpu {
	__u32 number; /* which it is of bench_frame.cpus */
	__u32 draw; /* its next of bench_draw */
};

/* Numbers of a frame, drawn at random before the run: TEIDs that a UPF has chosen cannot be
 * computed. Read one after the other they are in the cache; one at random would not be. Of n CPUs
 * with numbers of their own, each reads every n-th. */
struct bench_draw {
	__u32 key, twin;
};

/* What a sink saw, less what the kernels around say to all. The first frame is kept while length is 0. */
struct bench_sample {
	__u32 length;
	__u8 data[BENCH_FRAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bench_frame);
	__uint(max_entries, 1);
} bench_frame SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bench_draw);
	__uint(max_entries, BENCH_DRAWS);
	__uint(map_flags, BPF_F_MMAPABLE);
} bench_draw SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bench_cpu);
	__uint(max_entries, 1);
} bench_cpu SEC(".maps");

/* the program that is measured */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} bench_next SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct counter);
	__uint(max_entries, 1);
} bench_sunk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct bench_sample);
	__uint(max_entries, 1);
} bench_sample SEC(".maps");

/* the baseline's tables are as the data path's: one next hop, one device map */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct adjacency);
	__uint(max_entries, 2);
} bench_adjacency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 65536);
} bench_device SEC(".maps");

/* The kernel's struct, as far as it is read. */
struct xdp_buff {
	void *data;
	void *data_hard_start;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* `size` octets at `offset`, or NULL. */
INLINE void *octets(struct xdp_md *ctx, __u32 offset, __u32 size)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	opaque(offset);
	if (offset > BENCH_FRAME)
		return 0;
	data += offset;
	return data + size > end ? 0 : data;
}

/* Undoes what the run before did to the frame's place and length. It costs the
 * same whatever there is to undo, so that it can be subtracted. */
INLINE int restore(struct xdp_md *ctx, struct bench_frame *frame)
{
	struct xdp_buff *buff = bpf_cast_to_kern_ctx(ctx);
	long moved = (long)buff->data - (long)buff->data_hard_start - XDP_HEADROOM;
	long length;

	if (bpf_xdp_adjust_head(ctx, -(int)moved))
		return -1;
	length = (long)ctx->data_end - (long)ctx->data;
	opaque(length); /* or pointers are subtracted in 32 bits, which the verifier refuses */
	return bpf_xdp_adjust_tail(ctx, (int)frame->length - (int)length);
}

/* The checksum at `offset` follows a change (RFC 1624). */
INLINE int put_checksum(struct xdp_md *ctx, __u32 offset, __u32 from, __u32 to)
{
	__u8 *checksum;
	__u32 sum;

	if (!offset)
		return 0;
	checksum = octets(ctx, offset, 2);
	if (!checksum)
		return -1;
	sum = (__u16)~ld16(checksum) + (__u16)~from + (__u16) ~(from >> 16) + (__u16)to +
	      (to >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	st16(checksum, ~sum);
	return 0;
}

/* Writes the place's base and a number into its `width` octets, 2 or 4. */
INLINE int put(struct xdp_md *ctx, struct bench_place *place, __u32 number, __u32 width)
{
	__u8 *at = octets(ctx, place->offset, width);
	__u32 from, to = place->base + number;

	if (!at)
		return -1;
	if (width == 2) {
		from = ld16(at);
		to = be16(to);
		st16(at, to);
	} else {
		from = ld32(at);
		to = be32(to);
		st32(at, to);
	}
	return put_checksum(ctx, place->checksum_offset, from, to);
}

/* The lowest bits of `random` choose the flow. */
INLINE int put_numbers(struct xdp_md *ctx, struct bench_frame *frame, __u32 key, __u32 twin,
		       __u32 random)
{
	return put(ctx, &frame->key, key, 4) ||
	       (frame->twin.offset && put(ctx, &frame->twin, twin, 4)) ||
	       (frame->flows && put(ctx, &frame->flow, random & (frame->flows - 1), 2));
}

/* The sessions of the list are in no order: the place in it can tell the flow. */
INLINE int put_drawn(struct xdp_md *ctx, struct bench_frame *frame, struct bench_cpu *cpu)
{
	__u32 draw = cpu->draw++, index = draw * (frame->cpus ? frame->cpus : 1) + cpu->number;
	struct bench_draw *drawn;

	index %= BENCH_DRAWS;
	drawn = bpf_map_lookup_elem(&bench_draw, &index);
	return !drawn || put_numbers(ctx, frame, drawn->key, drawn->twin, draw);
}

/* The highest bits choose the number. */
INLINE int put_random(struct xdp_md *ctx, struct bench_frame *frame, struct bench_cpu *cpu)
{
	__u32 random = bpf_get_prandom_u32(), number = (__u64)random * frame->keys >> 32;

	if (frame->cpus)
		number = number * frame->cpus + cpu->number;
	return put_numbers(ctx, frame, number, number, random);
}

INLINE int put_key(struct xdp_md *ctx, struct bench_frame *frame)
{
	__u32 zero = 0;
	struct bench_cpu *cpu = bpf_map_lookup_elem(&bench_cpu, &zero);

	if (!cpu)
		return -1;
	return frame->flags & BENCH_DRAWN ? put_drawn(ctx, frame, cpu)
					  : put_random(ctx, frame, cpu);
}

SEC("xdp.frags")
int bench_front(struct xdp_md *ctx)
{
	__u32 zero = 0, written;
	struct bench_frame *frame = bpf_map_lookup_elem(&bench_frame, &zero);

	if (!frame)
		return XDP_ABORTED;
	if (frame->flags & BENCH_RESTORE && restore(ctx, frame))
		return XDP_ABORTED;
	written = frame->length;
	if (written > BENCH_FRAME)
		written = BENCH_FRAME;
	opaque(written);
	if (written < 14 || written > BENCH_FRAME ||
	    bpf_xdp_store_bytes(ctx, 0, frame->data, written))
		return XDP_ABORTED;
	if (frame->keys && put_key(ctx, frame))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &bench_next, 0);
	return XDP_ABORTED;
}

/* What every figure stands beside: the two addresses rewritten, and out. */
SEC("xdp.frags")
int l2_forward(struct xdp_md *ctx)
{
	__u32 index = 1;
	struct adjacency *adj = bpf_map_lookup_elem(&bench_adjacency, &index);
	__u8 *eth = octets(ctx, 0, 14);

	if (!adj || !eth)
		return XDP_ABORTED;
	st64(eth, ld64(adj->half[0].dst));
	st32(eth + 8, ld32(adj->half[0].src + 2));
	return bpf_redirect_map(&bench_device, adj->half[0].ifindex, XDP_DROP);
}

/* What the front itself costs. */
SEC("xdp.frags")
int bench_nothing(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* To the kernel's own forwarding. */
SEC("xdp.frags")
int bench_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

INLINE void sunk(__u32 length)
{
	__u32 zero = 0;
	struct counter *c = bpf_map_lookup_elem(&bench_sunk, &zero);

	if (c) {
		c->packets++;
		c->bytes += length;
	}
}

SEC("xdp.frags")
int bench_sink(struct xdp_md *ctx)
{
	__u32 zero = 0, length = ctx->data_end - ctx->data, kept = length;
	struct bench_sample *sample = bpf_map_lookup_elem(&bench_sample, &zero);
	__u8 *eth = octets(ctx, 0, 14);

	if (!eth || eth[0] & MULTICAST)
		return XDP_DROP;
	sunk(length);
	if (kept > BENCH_FRAME)
		kept = BENCH_FRAME;
	opaque(kept);
	if (sample && !sample->length && kept >= 14 && kept <= BENCH_FRAME &&
	    !bpf_xdp_load_bytes(ctx, 0, sample->data, kept))
		sample->length = length;
	return XDP_DROP;
}

/* For frames that the kernel forwarded: its cheapest end. */
SEC("tcx/ingress")
int bench_sink_skb(struct __sk_buff *skb)
{
	__u32 zero = 0, length = skb->len, kept = length;
	struct bench_sample *sample = bpf_map_lookup_elem(&bench_sample, &zero);

	if (skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST)
		return TC_ACT_SHOT;
	sunk(length);
	if (kept > BENCH_FRAME)
		kept = BENCH_FRAME;
	opaque(kept);
	if (sample && !sample->length && kept >= 14 && kept <= BENCH_FRAME &&
	    !bpf_skb_load_bytes(skb, 0, sample->data, kept))
		sample->length = length;
	return TC_ACT_SHOT;
}

/* What the kernel itself sends by an interface: nobody is to count that. */
SEC("tcx/egress")
int bench_silence(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
