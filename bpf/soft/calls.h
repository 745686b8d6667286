/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What only the kernel can do: look-ups of its routes, records for the daemon, exact
 * counters, and to take packets itself. */
#ifndef CULVERT_SOFT_CALLS_H
#define CULVERT_SOFT_CALLS_H

#include "call.h"
#include "tables.h"

static int call_program = -1, pass_program = -1;

/* The record goes there, and comes back. Returns what the helper did, or -1. */
static int call_kernel(__u32 kind, __u32 value, void *record, __u32 size)
{
	union {
		struct soft_head head;
		__u8 b[sizeof(struct soft_head) + sizeof(struct punt) + 1024];
	} call = { .head = { .kind = kind, .value = value, .answer = -1 } };
	union bpf_attr attr = {
		.test = { .prog_fd = call_program,
			  .data_in = (__u64)&call,
			  .data_out = (__u64)&call,
			  .data_size_in = sizeof(call.head) + size,
			  .data_size_out = sizeof(call.head) + size },
	};

	_Static_assert(sizeof(call) >= sizeof(call.head) + SOFT_COUNTS * sizeof(struct soft_count),
		       "counters of one call");
	memcpy(call.b + sizeof(call.head), record, size);
	if (bpf_system(BPF_PROG_TEST_RUN, &attr))
		return -1;
	memcpy(record, call.b + sizeof(call.head), size);
	return call.head.answer;
}

/* Gives the frame to the kernel's stack as if it had come in by the interface. 0 or -1. */
static int pass_up(const void *frame, __u32 length, __u32 ifindex)
{
	struct xdp_md md = { .data_end = length, .ingress_ifindex = ifindex };
	union bpf_attr attr = {
		.test = { .prog_fd = pass_program,
			  .data_in = (__u64)frame,
			  .data_size_in = length,
			  .repeat = 1,
			  .ctx_in = (__u64)&md,
			  .ctx_size_in = sizeof(md),
			  .flags = BPF_F_TEST_XDP_LIVE_FRAMES },
	};

	return bpf_system(BPF_PROG_TEST_RUN, &attr);
}

/* ---- counters ---- */

struct counts {
	struct soft_count c[SOFT_COUNTS];
	__u32 n;
};

static void send_counts(struct counts *counts)
{
	if (counts->n)
		must(!call_kernel(SOFT_COUNT, counts->n, counts->c,
				  counts->n * sizeof(counts->c[0])),
		     "add to the counters");
	counts->n = 0;
}

static void add_table(struct counts *counts, struct soft_map *m, __u32 table)
{
	struct own *o = &self->own[m->number];
	__u32 i;

	for (i = 0; i < o->touched_count; i++) {
		__u32 index = o->touched[i];
		struct counter *from = (void *)(o->values + (size_t)index * m->stride);

		o->is_touched[index] = 0;
		if (!from->packets)
			continue;
		counts->c[counts->n++] = (struct soft_count){ table, index, *from };
		*from = (struct counter){};
		if (counts->n == SOFT_COUNTS)
			send_counts(counts);
	}
	o->touched_count = 0;
}

/* Between packets: adds what this worker counted to the pinned tables. */
static void flush_counters(void)
{
	struct counts counts = {};

	add_table(&counts, map_of(&sid_counter), SOFT_SIDS);
	add_table(&counts, map_of(&list_counter), SOFT_LISTS);
	add_table(&counts, map_of(&class_counter), SOFT_CLASSES);
	add_table(&counts, map_of(&slice_counter), SOFT_SLICES);
	add_table(&counts, map_of(&outcomes), SOFT_OUTCOMES);
	send_counts(&counts);
}

#endif
