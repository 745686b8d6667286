// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* SMFs of `culvert bench` that ask for more than sockets can: a generator of Session
 * Modification Requests that live frames run through, and a receiver of the answers. No part of
 * the data path. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "lib/csum.h"
#include "traffic/octets.h"

#define REQUEST_FRAME 128
#define REQUEST_WINDOW 65536 /* requests that are known apart */
#define REQUEST_TIMED_MASK 63 /* the clock is read this seldom */

/* Offsets in frames: Ethernet, IPv4 without options, UDP, PFCP with a SEID (TS 29.244, 7.2.2). */
#define AT_IPV4 ETH_LEN
#define AT_UDP (ETH_LEN + IPV4_LEN)
#define AT_PFCP (AT_UDP + UDP_LEN)
#define AT_SEID (AT_PFCP + 4)
#define AT_SEQUENCE (AT_PFCP + 12)
#define AT_CAUSE (AT_PFCP + 16)
#define ANSWER_LEN (AT_CAUSE + 5)

#define PFCP_MODIFICATION_RESPONSE 53
#define PFCP_FLAGS 0x21 /* version 1, with a SEID */
#define IE_CAUSE 0x00130001 /* type and length */
#define CAUSE_ACCEPTED 1

/* Written before a run. The request with sequence number n is of session n modulo their
 * number, and leads it to another gNB than the one before. */
struct request_job {
	__u64 duration; /* ns */
	__u32 sessions; /* a power of two, at most 2^24 */
	__u32 bits;     /* of it */
	__u32 first;    /* sequence number; a multiple of sessions */
	__u32 length;   /* of the frame */
	__u32 sum; /* over UDP, its pseudo-header and the message, with 0 for what requests differ in */
	__u32 at_tunnel; /* offset of the gNB's F-TEID's TEID, with its address behind it */
	__u32 gnb[2]; /* in network byte order */
	__u16 port, upf_port; /* of the SMFs, of the UPF; in network byte order */
	__u8 frame[REQUEST_FRAME];
};

struct request_session {
	__u64 up, cp; /* SEIDs, in network byte order */
	__u32 smf, teid; /* address of the SMF, TEID at the gNB; in network byte order */
};

/* Written by the generator alone. */
struct request_state {
	__u64 begin, last; /* ns */
	__u64 sent;
	__u32 over, failed;
};

/* What became of answers. */
enum request_fate {
	REQUEST_ACCEPTED,
	REQUEST_REFUSED, /* another Cause */
	REQUEST_WRONG, /* of another session, or without a Cause */
	REQUEST_AGAIN, /* answered before */
	REQUEST_FATES,
};

const enum request_fate *const btf_request_fate __attribute__((section("btf_types"))) = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct request_job);
	__uint(max_entries, 1);
} request_job SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct request_state);
	__uint(max_entries, 1);
} request_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct request_session);
	__uint(max_entries, 1); /* set before loading */
} request_session SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, REQUEST_FATES);
} request_count SEC(".maps");

/* The last request of each place that was answered, and 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, REQUEST_WINDOW);
} request_answered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} request_device SEC(".maps");

INLINE struct request_session *session_of(const struct request_job *job, __u32 number)
{
	__u32 index = number & (job->sessions - 1);

	return bpf_map_lookup_elem(&request_session, &index);
}

INLINE __u64 halves(__u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

/* Writes what the request differs in from others, and the checksums. */
INLINE int put_request(struct xdp_md *ctx, const struct request_job *job,
		       const struct request_session *s, __u32 number)
{
	__u32 sequence = be32(number << 8), gnb = job->gnb[number >> (job->bits & 31) & 1];
	__u8 *head = octets(ctx, 0, AT_SEQUENCE + 4), *tunnel = octets(ctx, job->at_tunnel, 8);
	__u16 checksum;

	if (!head || !tunnel)
		return -1;
	st32(head + AT_IPV4 + 12, s->smf);
	st16(head + AT_IPV4 + 10, 0);
	st16(head + AT_IPV4 + 10, ~sum_fold(ipv4_sum((void *)(head + AT_IPV4))));
	st64(head + AT_SEID, s->up);
	st32(head + AT_SEQUENCE, sequence);
	st32(tunnel, s->teid);
	st32(tunnel + 4, gnb);
	checksum = ~sum_fold(job->sum + halves(s->up) + s->smf + sequence + s->teid + gnb);
	st16(head + AT_UDP + 6, checksum ? checksum : 0xffff);
	return 0;
}

/* Writes the next request, which is longer than the frame. */
INLINE int make(struct xdp_md *ctx, const struct request_job *job, __u32 number)
{
	__u32 length = job->length, now = bpf_xdp_get_buff_len(ctx);
	struct request_session *s = session_of(job, number);

	opaque(length);
	if (!s || length < AT_CAUSE || length > REQUEST_FRAME)
		return -1;
	if (bpf_xdp_adjust_tail(ctx, (int)length - (int)now))
		return -1;
	if (bpf_xdp_store_bytes(ctx, 0, (void *)job->frame, length))
		return -1;
	return put_request(ctx, job, s, number);
}

SEC("xdp")
int request_send(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct request_job *job = bpf_map_lookup_elem(&request_job, &zero);
	struct request_state *state = bpf_map_lookup_elem(&request_state, &zero);

	if (!job || !state)
		return XDP_ABORTED;
	if (state->over)
		return XDP_DROP;
	if (!(state->sent & REQUEST_TIMED_MASK)) {
		state->last = bpf_ktime_get_ns();
		if (!state->begin)
			state->begin = state->last;
		if (state->last - state->begin >= job->duration) {
			state->over = 1;
			return XDP_DROP;
		}
	}
	if (make(ctx, job, (job->first + state->sent) & 0xffffff)) {
		state->failed++;
		return XDP_ABORTED;
	}
	state->sent++;
	return bpf_redirect_map(&request_device, 0, XDP_ABORTED);
}

INLINE void count(enum request_fate fate)
{
	__u32 key = fate;
	__u64 *n = bpf_map_lookup_elem(&request_count, &key);

	if (n)
		++*n;
}

/* What the answer says that begins at `pfcp`. */
INLINE enum request_fate judge(const struct request_job *job, const __u8 *pfcp)
{
	__u32 number = be32(ld32(pfcp + 12)) >> 8, place = number % REQUEST_WINDOW;
	struct request_session *s = session_of(job, number);
	__u32 *answered = bpf_map_lookup_elem(&request_answered, &place);

	if (!s || !answered || (pfcp[0] & ~2) != PFCP_FLAGS || ld64(pfcp + 4) != s->cp ||
	    be32(ld32(pfcp + 16)) != IE_CAUSE)
		return REQUEST_WRONG;
	if (__sync_lock_test_and_set(answered, number + 1) == number + 1)
		return REQUEST_AGAIN;
	return pfcp[20] == CAUSE_ACCEPTED ? REQUEST_ACCEPTED : REQUEST_REFUSED;
}

/* Takes answers to modifications; the rest is the SMFs'. */
SEC("xdp")
int request_receive(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct request_job *job = bpf_map_lookup_elem(&request_job, &zero);
	__u8 *frame = octets(ctx, 0, AT_PFCP + 2),
	     *pfcp = octets(ctx, AT_PFCP, ANSWER_LEN - AT_PFCP);

	if (!job || !frame || be16(ld16(frame + 12)) != TYPE_IPV4 || frame[AT_IPV4 + 9] != NH_UDP ||
	    !job->port || ld16(frame + AT_UDP + 2) != job->port ||
	    ld16(frame + AT_UDP) != job->upf_port ||
	    frame[AT_PFCP + 1] != PFCP_MODIFICATION_RESPONSE)
		return XDP_PASS;
	count(pfcp ? judge(job, pfcp) : REQUEST_WRONG);
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
