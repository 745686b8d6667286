/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the generator and the receiver share with user space: structs and maps. */
#ifndef CULVERT_TRAFFIC_TABLES_H
#define CULVERT_TRAFFIC_TABLES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "traffic/octets.h"

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
	__u64 half, later; /* the interval from `half` ns on */
	__u64 depth;    /* 2^-16 ns that may be caught up */
	__u32 trial, stream_bits;
	__u32 places, slots;
	__u32 timed; /* tags hold the time */
	__u32 device, netns; /* the sending interface, and the inode of its network namespace */
	__u32 turns; /* the other object makes each turns-th packet; 0: none */
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
	__u32 turn; /* packets since the other object made one */
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

#endif
