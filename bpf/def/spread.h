/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps that spread packets over CPUs: see spread.h and
 * docs/adr/0021-packets-over-cpus.md. */
#ifndef CULVERT_DEF_SPREAD_H
#define CULVERT_DEF_SPREAD_H

#include "types.h"

/* What is kept in order. */
enum spread_by {
	SPREAD_OFF,
	SPREAD_UE,   /* all packets of a UE in one direction */
	SPREAD_FLOW, /* those of one flow inside the tunnel */
};

/* spread_bucket[index]: the first ones by UE, the others by flow of the UEs whose bucket
 * is split. */
enum spread_limits {
	SPREAD_BUCKETS = 1024,
	SPREAD_FLOW_BUCKETS = 256,
	SPREAD_PLACE_SHIFT = 52,
};

/* Where a bucket's packets go: to a CPU's queue, which is in one of two maps, or: */
enum spread_place {
	SPREAD_SECOND = 0x800, /* this bit: in the second map */
	SPREAD_SPLIT = 0xffe,  /* where the flow's bucket says */
	SPREAD_HERE = 0xfff,   /* they stay on the CPU that received them */
	/* This bit of `next`: what comes is dropped until the bucket moves. */
	SPREAD_EMPTIES = 0x1000,
};

/* The CPUs that send write the first cache line, the one that receives the second. */
struct spread_bucket {
	__u64 word; /* enum spread_place << SPREAD_PLACE_SHIFT | packets that were sent */
	__u32 next; /* the place that the bucket moves to once `done` has caught up */
	__u32 moves;
	__u64 pad[6];
	__u64 done; /* packets of these that have been received */
	__u64 pad2[7];
};

/* spread_queue[2 * CPU + map]: the same of a queue. */
struct spread_queue {
	__u64 sent;
	__u64 seen; /* received, as a CPU that sends last saw it */
	__u64 full; /* packets that had no room */
	__u64 pad[5];
	__u64 received;
	__u64 pad2[7];
};

/* One entry. */
struct spread {
	__u32 by;   /* enum spread_by */
	__u32 room; /* packets that a queue holds */
};

/* next_program[index]: what other programs go on with. */
enum program { PROGRAM_DATA_PATH, PROGRAM_N4, PROGRAM_N4_FIRST };

/* Before a frame in a queue. */
struct spread_ticket {
	__u32 queue;
	__u16 bucket;
	__u16 flow; /* the flow's bucket; 0: none */
};

#endif
