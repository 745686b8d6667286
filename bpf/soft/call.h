/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space asks of the kernel, by test runs of a program (kernel.c): what the
 * helpers of the data path do that no system call does. */
#ifndef CULVERT_SOFT_CALL_H
#define CULVERT_SOFT_CALL_H

#include "../def/tables.h"

enum soft_kind {
	SOFT_FIB,   /* struct bpf_fib_lookup, there and back */
	SOFT_PUNT,  /* struct punt, into slow_path */
	SOFT_EVENT, /* struct session_event, into session_events */
	SOFT_TRACE, /* struct trace_event, into trace_events */
	SOFT_COUNT, /* `value` struct soft_count, into tables of each CPU */
};

enum soft_table { SOFT_SIDS, SOFT_LISTS, SOFT_CLASSES, SOFT_SLICES, SOFT_OUTCOMES, SOFT_TABLES };

struct soft_count {
	__u32 table; /* enum soft_table */
	__u32 index;
	struct counter counter;
};

#define SOFT_COUNTS 128 /* in one call */

/* Before the record. */
struct soft_head {
	__u32 kind;
	__u32 value;  /* flags of the look-up; how many counters */
	__s32 answer; /* of the helper */
	__u32 pad;
};

/* Sockets of an interface: soft_first[ifindex] - 1, and by queue from there on. */
#define SOFT_QUEUES 64
#define SOFT_PORTS 16

#endif
