/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's side of the data path: maps and helpers, as strict as the
 * kernel's, and stricter where that finds more. A packet always ends where a
 * page begins that nobody may read, and what is before it is poisoned. */
#ifndef CULVERT_NATIVE_HELPERS_H
#define CULVERT_NATIVE_HELPERS_H

#include <errno.h>
#include <sys/mman.h>

#include "../datapath.c"
#include "check.h"

/* From here on to the end of fuzz.c: only the data path's own branches guide
 * the fuzzer. */
#pragma clang attribute push(__attribute__((no_sanitize("coverage"))), apply_to = function)

/* ---- maps ---- */

#define ENTRIES 64 /* of a hash or trie */

/* The first member of a map's variable points at this one. */
struct native_map {
	__u32 type, key_size, value_size, max_entries;
	__u32 count; /* entries of a hash or trie */
	__u8 *keys, *values;
};

/* What a run did, for the checks after it. */
struct witness {
	int sent;               /* a redirect was allowed */
	__u32 redirected;       /* ... to this ifindex, the last one */
	int asked_next_hop;     /* the adjacencies or the kernel's routes were read */
	int fib_mtu;            /* the kernel's answer, when it had one */
	__u8 flavors, behavior; /* of the last local SID met */
	int link;               /* the last forwarding met is a link: a frame leaves */
	int stays;              /* a tail call to the data path */
	int queued;             /* in the queue of a CPU */
	__u32 punts;
	struct punt punt;
};

static struct witness witness;

#define MAX_MAPS 96
static struct native_map *maps[MAX_MAPS];
static __u32 map_count;

static struct native_map *map_of(void *map)
{
	struct native_map *m = *(struct native_map **)map;

	must(m, "a map that make_maps (world.h) does not make");
	return m;
}

static struct native_map *new_map(__u32 type, __u32 key_size, __u32 value_size, __u32 max_entries)
{
	struct native_map *m = calloc(1, sizeof(*m));

	must(m && map_count < MAX_MAPS, "make a map");
	m->type = type;
	m->key_size = key_size;
	m->value_size = value_size;
	m->max_entries = max_entries;
	maps[map_count++] = m;
	return m;
}

static void make_map(void *map, __u32 type, __u32 key_size, __u32 value_size, __u32 max_entries)
{
	struct native_map *m = new_map(type, key_size, value_size, max_entries);

	m->keys = calloc(max_entries, key_size);
	m->values = calloc(max_entries, value_size);
	must(m->keys && m->values, "make a map");
	*(struct native_map **)map = m;
}

/* A variable of the data path is a map of one entry that nobody looks up. */
static void make_map_of(void *variable, __u32 size)
{
	new_map(BPF_MAP_TYPE_ARRAY, sizeof(__u32), size, 1)->values = variable;
}

#define MAKE_MAP(name, entries)                                                                   \
	make_map(&name, sizeof(*name.type) / sizeof(int), sizeof(*name.key), sizeof(*name.value), \
		 entries)

static int is_array(const struct native_map *m)
{
	return m->type == BPF_MAP_TYPE_ARRAY || m->type == BPF_MAP_TYPE_PERCPU_ARRAY;
}

/* Whether the first `bits` bits agree. */
static int same_prefix(const __u8 *a, const __u8 *b, __u32 bits)
{
	return !memcmp(a, b, bits / 8) && (bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) &
							     (0xff00 >> (bits % 8)) & 0xff) == 0);
}

static void *lookup_trie(struct native_map *m, const void *key)
{
	__u32 i, width = 8 * (m->key_size - 4), best = 0, wanted = *(const __u32 *)key;
	void *found = 0;

	for (i = 0; i < m->count; i++) {
		__u8 *k = m->keys + i * m->key_size;
		__u32 length = *(__u32 *)k;

		if (length <= wanted && length <= width && (!found || length > best) &&
		    same_prefix(k + 4, (const __u8 *)key + 4, length)) {
			best = length;
			found = m->values + i * m->value_size;
		}
	}
	return found;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	struct native_map *m = map_of(map);
	__u32 i;

	MUST_BE_INITIALIZED(key, m->key_size);
	if (map == (void *)&adjacency)
		witness.asked_next_hop = 1;
	if (m->type == BPF_MAP_TYPE_LPM_TRIE)
		return lookup_trie(m, key);
	if (!is_array(m)) {
		for (i = 0; i < m->count; i++)
			if (!memcmp(m->keys + i * m->key_size, key, m->key_size))
				return m->values + i * m->value_size;
		return 0;
	}
	i = *(const __u32 *)key;
	if (i >= m->max_entries)
		return 0;
	if (map == (void *)&local_sid && i) {
		witness.flavors = ((struct local_sid *)m->values)[i].flavors;
		witness.behavior = ((struct local_sid *)m->values)[i].behavior;
	}
	if (map == (void *)&forwarding)
		witness.link = ((struct forwarding *)m->values)[i].kind == FORWARD_LINK;
	return m->values + i * m->value_size;
}

long bpf_map_update_elem(void *map, const void *key, const void *value, __u64 flags)
{
	struct native_map *m = map_of(map);
	void *at = bpf_map_lookup_elem(map, key);

	MUST_BE_INITIALIZED(value, m->value_size);
	if (at && flags == BPF_NOEXIST)
		return -EEXIST;
	if (!at && is_array(m))
		return -E2BIG;
	if (!at) {
		if (m->count == m->max_entries) {
			if (m->type != BPF_MAP_TYPE_LRU_HASH)
				return -E2BIG;
			m->count = 0;
		}
		memcpy(m->keys + m->count * m->key_size, key, m->key_size);
		at = m->values + m->count++ * m->value_size;
	}
	memcpy(at, value, m->value_size);
	return 0;
}

/* ---- the frame ---- */

#define BUFFER 8192
#define HEADROOM 256
#define FRAME_META 40    /* struct xdp_frame lives at the headroom's start */
#define MAX_FRAME 3520   /* a page less headroom and struct skb_shared_info */

static __u8 *buffer; /* BUFFER octets, then a page without access */
static __u32 hard_start;

/* Addresses in struct xdp_md have 32 bits. */
static void make_buffer(void)
{
	buffer = mmap(0, BUFFER + 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	must(buffer != MAP_FAILED, "map the packet buffer");
	must(!mprotect(buffer + BUFFER, 4096, PROT_NONE), "close the page behind it");
}

/* Only [data, end of the buffer) may be touched. */
static void fence(struct xdp_md *ctx)
{
	__u8 *data = (__u8 *)(long)ctx->data;

	ASAN_UNPOISON_MEMORY_REGION(data, buffer + BUFFER - data);
	ASAN_POISON_MEMORY_REGION(buffer, (data - buffer) & ~7);
	UNINITIALIZED(buffer, data - buffer);
}

static void place(struct xdp_md *ctx, const __u8 *frame, __u32 length, __u32 headroom)
{
	struct native_map *state = map_of(&journey_state);

	UNINITIALIZED(state->values, state->value_size); /* by the packet before */
	ctx->data_end = (__u32)(long)(buffer + BUFFER);
	ctx->data = ctx->data_meta = ctx->data_end - length;
	hard_start = ctx->data - headroom;
	fence(ctx);
	INITIALIZED((void *)(long)ctx->data, length);
	memcpy((void *)(long)ctx->data, frame, length);
}

long bpf_xdp_adjust_head(struct xdp_md *ctx, int delta)
{
	__u32 data = ctx->data + delta;

	if (data < hard_start + FRAME_META || data > ctx->data_end - ETH_LEN)
		return -EINVAL;
	ctx->data = data;
	fence(ctx);
	return 0;
}

/* The frame moves, so that its new end is the page's. */
long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta)
{
	__u32 length = ctx->data_end - ctx->data, kept = delta < 0 ? length + delta : length;
	__u8 *data = (__u8 *)(long)ctx->data;

	if ((int)length + delta < ETH_LEN || (int)length + delta > MAX_FRAME)
		return -EINVAL;
	ASAN_UNPOISON_MEMORY_REGION(buffer, BUFFER);
	memmove(data - delta, data, kept);
	if (delta > 0)
		memset(buffer + BUFFER - delta, 0, delta);
	ctx->data -= delta;
	hard_start -= delta;
	fence(ctx);
	return 0;
}

#include "octets.h"

/* ---- the rest ---- */

static __u64 now, begun; /* how often the clock is read differs from run to run */

__u64 bpf_ktime_get_ns(void)
{
	return now += 1000;
}

__u64 bpf_ktime_get_coarse_ns(void)
{
	return begun;
}

/* Of 4 ms each. */
__u64 bpf_jiffies64(void)
{
	return begun >> 22;
}

/* Any answer that the kernel can give, as the destination says. */
long bpf_fib_lookup(void *ctx, struct bpf_fib_lookup *fib, int size, __u32 flags)
{
	const __u8 *dst = (const __u8 *)(fib->family == AF_INET6 ? fib->ipv6_dst : &fib->ipv4_dst);
	__u32 mtu = 1280 + dst[1];

	(void)ctx;
	must(size == sizeof(*fib) && !(flags & ~(BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID)),
	     "flags %x", flags);
	must(fib->family == AF_INET4 || fib->family == AF_INET6, "family %d", fib->family);
	MUST_BE_INITIALIZED(fib, sizeof(*fib));
	witness.asked_next_hop = 1;
	if (dst[3] & 8)
		return dst[3] >> 4 & 7; /* BPF_FIB_LKUP_RET_BLACKHOLE and on */
	witness.fib_mtu = mtu;
	fib->mtu_result = mtu;
	if (fib->tot_len > mtu)
		return BPF_FIB_LKUP_RET_FRAG_NEEDED;
	fib->ifindex = 1 + dst[3] % 8;
	memset(fib->dmac, 0x0d, 6);
	memset(fib->smac, 0x05, 6);
	return BPF_FIB_LKUP_RET_SUCCESS;
}

/* No frame of these has any. */
long bpf_xdp_adjust_meta(struct xdp_md *ctx, int delta)
{
	(void)ctx;
	(void)delta;
	return -EINVAL;
}

long bpf_redirect_map(void *map, __u64 key, __u64 flags)
{
	struct native_map *m = map_of(map);

	if (m->type == BPF_MAP_TYPE_CPUMAP) {
		must(key < m->max_entries && !flags, "to CPU %llu", (unsigned long long)key);
		witness.queued = 1;
		return XDP_REDIRECT;
	}
	must(m->type == BPF_MAP_TYPE_DEVMAP, "redirect through a map of type %u", m->type);
	if (key >= m->max_entries || !((__u32 *)m->values)[key])
		return flags & 3;
	witness.sent = 1;
	witness.redirected = key;
	return XDP_REDIRECT;
}

/* Here it returns. */
long bpf_tail_call(void *ctx, void *map, __u32 index)
{
	(void)ctx;
	must(map == (void *)&next_program && index <= PROGRAM_N4_FIRST, "tail call %u", index);
	witness.stays = index == PROGRAM_DATA_PATH;
	return 0;
}

static void *reserved, *reserved_of; /* and the ring */

/* Records are not zeroed, as in the kernel. */
void *bpf_ringbuf_reserve(void *map, __u64 size, __u64 flags)
{
	must((map == (void *)&slow_path && size == sizeof(struct punt)) ||
		     (map == (void *)&flow_records && size == sizeof(struct flow_record)),
	     "reserve %llu octets", (unsigned long long)size);
	must(!flags, "flags %llx", (unsigned long long)flags);
	must(!reserved, "a second record while one is open");
	if ((begun & 0xffff) < 2000) /* full, now and then */
		return 0;
	reserved_of = map;
	reserved = malloc(size);
	return reserved;
}

/* The daemon is as far as the program, or somewhere behind it. */
__u64 bpf_ringbuf_query(void *map, __u64 flags)
{
	must(map == (void *)&slow_path && (flags == BPF_RB_PROD_POS || flags == BPF_RB_CONS_POS),
	     "ask a ring for %llu", (unsigned long long)flags);
	return flags == BPF_RB_PROD_POS ? begun * 64ull : begun * 64ull - (begun & 0x7fffff);
}

void bpf_ringbuf_submit(void *record, __u64 flags)
{
	(void)flags;
	must(record && record == reserved, "submit what was not reserved");
	if (reserved_of == &flow_records) {
		MUST_BE_INITIALIZED(record, sizeof(struct flow_record));
	} else if (!is_copy(((struct punt *)record)->kind)) {
		witness.punts++;
		witness.punt = *(struct punt *)record;
	}
	bpf_ringbuf_discard(record, 0);
}

void bpf_ringbuf_discard(void *record, __u64 flags)
{
	(void)flags;
	must(record && record == reserved, "discard what was not reserved");
	free(reserved);
	reserved = reserved_of = 0;
}

long bpf_ringbuf_output(void *map, void *record, __u64 size, __u64 flags)
{
	struct trace_event *event = record;
	struct session_event *told = record;

	if (map == (void *)&session_events) {
		must(size == sizeof(*told) && told->pdr && told->kind <= SESSION_REFUSED,
		     "an event of rule %u", told->pdr);
		return 0;
	}
	must(map == (void *)&trace_events && size == sizeof(*event) && !flags, "%llu octets",
	     (unsigned long long)size);
	must(event->in_captured <= TRACE_DATA && event->out_captured <= TRACE_DATA, "capture");
	must(event->in_captured <= event->in_length && event->out_captured <= event->out_length,
	     "capture");
	MUST_BE_INITIALIZED(event, sizeof(*event));
	return 0;
}

#endif
