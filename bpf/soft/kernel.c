// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The kernel's side of culvert-soft: packets to its sockets, and what it asks for. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../def/reason.h"
#include "../lib/bytes.h"
#include "../lib/headers.h"
#include "call.h"

#define PFCP 8805
#define ARP 0x0806
#define PORTS 65536 /* ifindex below it */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, SOFT_PORTS *SOFT_QUEUES);
} soft_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, PORTS);
} soft_first SEC(".maps");

/* The daemon's, of maps.h: who loads this replaces them by the pinned ones. */
#define COUNTERS(name)                                   \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); \
		__type(key, __u32);                      \
		__type(value, struct counter);           \
		__uint(max_entries, 1);                  \
	} name SEC(".maps")

#define RECORDS(name)                               \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_RINGBUF); \
		__uint(max_entries, 4096);          \
	} name SEC(".maps")

COUNTERS(outcomes);
COUNTERS(sid_counter);
COUNTERS(list_counter);
COUNTERS(class_counter);
COUNTERS(slice_counter);
RECORDS(slow_path);
RECORDS(session_events);
RECORDS(trace_events);

/* the programs that the interfaces ran before */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, SOFT_PORTS);
} soft_before SEC(".maps");

/* What is the kernel's or the daemon's for sure: it takes no detour. */
INLINE int stays(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = data + ETH_LEN;
	struct ipv6 *ip6 = data + ETH_LEN;
	struct udp *udp = data + ETH_LEN + IPV4_LEN;
	__u8 *type = data + ETH_LEN + IPV6_LEN;

	if ((void *)(udp + 1) > end || ld16(data + 12) == be16(ARP))
		return 1;
	if (ld16(data + 12) == be16(TYPE_IPV4))
		return ip->version_ihl == 0x45 && ip->protocol == NH_UDP &&
		       ld16(&udp->dst) == be16(PFCP);
	return ld16(data + 12) == be16(TYPE_IPV6) && (void *)(type + 1) <= end &&
	       ip6->next_header == NH_ICMPV6 && *type >= 133 && *type <= 137;
}

/* Instead of culvert_xdp: to the socket of the queue. Where there is none, or no longer,
 * forwarding goes on in the kernel. */
SEC("xdp.frags")
int soft_receive(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, queue = ctx->rx_queue_index, slot;
	__u32 *first = bpf_map_lookup_elem(&soft_first, &ifindex);

	if (!first || !*first)
		return XDP_PASS; /* cannot be: it is there before this program is */
	slot = *first - 1 + queue;
	if (queue < SOFT_QUEUES && !stays(ctx) && bpf_map_lookup_elem(&soft_sockets, &slot))
		return bpf_redirect_map(&soft_sockets, slot, XDP_DROP);
	bpf_tail_call(ctx, &soft_before, (*first - 1) / SOFT_QUEUES);
	return XDP_PASS;
}

/* Frames that user space has for the kernel come in once more, by a live test run. */
SEC("xdp.frags")
int soft_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

/* ---- calls ---- */

#define RECORD(map, type)                                                                         \
	do {                                                                                      \
		type *record = bpf_ringbuf_reserve(map, sizeof(*record), 0);                      \
                                                                                                  \
		if (!record)                                                                      \
			return -1;                                                                \
		if (bpf_xdp_load_bytes(ctx, sizeof(struct soft_head), record, sizeof(*record))) { \
			bpf_ringbuf_discard(record, 0);                                           \
			return -1;                                                                \
		}                                                                                 \
		bpf_ringbuf_submit(record, 0);                                                    \
		return 0;                                                                         \
	} while (0)

INLINE int soft_fib(struct xdp_md *ctx, __u32 flags)
{
	struct bpf_fib_lookup fib = {};
	int answer;

	if (bpf_xdp_load_bytes(ctx, sizeof(struct soft_head), &fib, sizeof(fib)))
		return -1;
	answer = bpf_fib_lookup(ctx, &fib, sizeof(fib), flags);
	if (bpf_xdp_store_bytes(ctx, sizeof(struct soft_head), &fib, sizeof(fib)))
		return -1;
	return answer;
}

INLINE void soft_add(struct soft_count *c)
{
	__u32 index = c->index;
	struct counter *to = 0;

	if (c->table == SOFT_SIDS)
		to = bpf_map_lookup_elem(&sid_counter, &index);
	else if (c->table == SOFT_LISTS)
		to = bpf_map_lookup_elem(&list_counter, &index);
	else if (c->table == SOFT_CLASSES)
		to = bpf_map_lookup_elem(&class_counter, &index);
	else if (c->table == SOFT_SLICES)
		to = bpf_map_lookup_elem(&slice_counter, &index);
	else if (c->table == SOFT_OUTCOMES)
		to = bpf_map_lookup_elem(&outcomes, &index);
	if (!to)
		return;
	to->packets += c->counter.packets;
	to->bytes += c->counter.bytes;
}

INLINE int soft_counts(struct xdp_md *ctx, __u32 n)
{
	__u32 i;

	for (i = 0; i < SOFT_COUNTS && i < n; i++) {
		struct soft_count c;

		if (bpf_xdp_load_bytes(ctx, sizeof(struct soft_head) + i * sizeof(c), &c,
				       sizeof(c)))
			return -1;
		soft_add(&c);
	}
	return 0;
}

INLINE int soft_answer(struct xdp_md *ctx, __u32 kind, __u32 value)
{
	switch (kind) {
	case SOFT_FIB:
		return soft_fib(ctx, value);
	case SOFT_PUNT:
		RECORD(&slow_path, struct punt);
	case SOFT_EVENT:
		RECORD(&session_events, struct session_event);
	case SOFT_TRACE:
		RECORD(&trace_events, struct trace_event);
	case SOFT_COUNT:
		return soft_counts(ctx, value);
	}
	return -1;
}

SEC("xdp.frags")
int soft_call(struct xdp_md *ctx)
{
	struct soft_head head;

	if (bpf_xdp_load_bytes(ctx, 0, &head, sizeof(head)))
		return XDP_ABORTED;
	head.answer = soft_answer(ctx, head.kind, head.value);
	if (bpf_xdp_store_bytes(ctx, 0, &head, sizeof(head)))
		return XDP_ABORTED;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
