/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames from standard input, one by one, and what became of them to standard output:
 * how tests ask. Nothing is sent, but everything is counted. */
#ifndef CULVERT_SOFT_FRAMES_H
#define CULVERT_SOFT_FRAMES_H

#include "helpers.h"

#define FRAME_ROOM 4096
#define FRAME_HEADROOM 256
#define FRAME_SHARED 320 /* what the kernel keeps behind a frame */

struct frame_head {
	__u32 what; /* ifindex there, the verdict back */
	__u32 length;
};

/* Addresses in struct xdp_md have 32 bits. */
static __u8 *low_memory(size_t size)
{
	static __u64 next = 0x20000000;
	__u8 *p;

	for (; next + size < 0xf0000000; next += 1 << 24) {
		p = mmap((void *)next, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == (void *)next) {
			next += size;
			return p;
		}
		if (p != MAP_FAILED)
			munmap(p, size);
	}
	must(0, "no memory of %zu octets below 4 GB", size);
	return 0;
}

/* 0 at the end. */
static int read_whole(void *to, size_t n)
{
	size_t got = fread(to, 1, n, stdin);

	must(got == n || (!got && feof(stdin)), "half a frame");
	return got == n;
}

static void run_frames(void)
{
	__u8 *room = low_memory(FRAME_ROOM), *frame = room + FRAME_HEADROOM;
	struct frame_head head;

	self = new_worker();
	while (read_whole(&head, sizeof(head))) {
		struct xdp_md md = { .ingress_ifindex = head.what };

		must(head.length >= ETH_LEN &&
			     head.length <= FRAME_ROOM - FRAME_HEADROOM - FRAME_SHARED,
		     "a frame of %u octets", head.length);
		must(read_whole(frame, head.length), "a head and no frame");
		md.data = md.data_meta = (__u64)frame;
		md.data_end = md.data + head.length;
		self->epoch_ends = 0;
		begin_batch(clock_now());
		head.what = handle(&md, (__u64)room, (__u64)room + FRAME_ROOM - FRAME_SHARED);
		head.length = md.data_end - md.data;
		flush_counters();
		fwrite(&head, sizeof(head), 1, stdout);
		fwrite((void *)(long)md.data, head.length, 1, stdout);
		must(!fflush(stdout), "write");
	}
}

#endif
