// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The programs. */
#include "closed.h"
#include "express.h"
#include "lost.h"
#include "netfilter.h"
#include "n4/n4.h"
#include "spread.h"
#include "uplink.h"

/* What a packet's state starts from; the rest is written before it is read. */
INLINE void begin(struct xdp_md *ctx, struct packet *p, struct port *in, __u32 frame)
{
	p->port.ifindex = ctx->ingress_ifindex;
	p->in.frame = p->in.received = frame;
	p->port.flags = in->flags;
	p->port.access = in->access;
	p->port.mtu = in->mtu;
	p->port.mac = in->mac;
	p->in.group = 0;
	p->turn = 0;
	p->plan.own = 0;
	p->trace = 0;
	p->nat.translated = 0;
}

/* ... and what it starts from each time that it is for this node again. */
INLINE void begin_turn(struct packet *p)
{
	p->found.sid = p->found.policy = p->found.list = p->found.tunnel = p->found.target_kind =
		p->found.pdr = 0;
	p->in.version = 0;
	p->found.from_pdr = p->found.slice = p->found.from_slice = 0;
	p->found.class_index = 0;
	p->found.from_ue = p->plan.guarded = p->plan.onward = 0;
	p->end.pfcp = 0;
	p->in.addresses = 0;
	p->plan.adjacency = 0;
	p->plan.table = MAIN_TABLE; /* what errors go by before a behaviour chose one */
	p->plan.edit = EDIT_NONE;
	p->plan.push = PUSH_NONE;
	p->plan.push_length = 0;
	p->plan.decapsulated = 0;
	p->plan.pop_srh = 0;
	p->plan.extra = 0;
	p->plan.args_at = 0;
	p->plan.tag = 0;
	p->in.srh = 0;
	p->plan.switch_teid = 0;
	p->plan.link_tag = 0;
	p->plan.frames = 0;
	p->plan.pdu_version = 0;
	p->plan.with_sequence = 0;
	p->plan.container = 0;
	p->plan.map_checksum = 0;
	p->plan.hashed = 0;
	p->out.to_kernel = p->out.again = p->plan.gateway = 0;
	p->end.punt = PUNT_NONE;
	p->error.type = 0;
	p->error.info = 0;
}

/* A verdict of the journey: the kernel's, unless the data path answers it. */
#define MAYBE_N4 -6

INLINE int pass(struct xdp_md *ctx)
{
	count(&outcomes, REASON_PASSED, frame_length(ctx));
	return XDP_PASS;
}

/* The whole journey; `turn` says how often it led back to this node. */
GLOBAL int journey(struct xdp_md *ctx, __u32 turn)
{
	struct settings *cfg = &node_settings;
	struct port *in = port_of(ctx);
	struct packet *p = journey_packet();
	__u32 frame = frame_length(ctx);
	int reason, verdict;

	_Static_assert(sizeof(*p) <= JOURNEY_STATE, "struct packet");
	if (!in || !p)
		return XDP_PASS;
	if (frame > MAX_FRAME_LENGTH) {
		count(&outcomes, REASON_TOO_BIG, frame);
		return XDP_DROP;
	}
	if (turn)
		take_again(ctx, p, in);
	else
		begin(ctx, p, in, frame);
	begin_turn(p);
	p->mss_clamp = cfg->mss_clamp;
	if (cfg->trace && !p->turn)
		p->trace = trace_begin(ctx, p->port.ifindex, p->in.frame);
	opaque(ctx); /* or numbers of 32 bits are taken for the frame's pointers */
	reason = decide(ctx, p, cfg);
	if (reason == CONTINUE)
		reason = forward(ctx, p);
	if (reason == COME_AGAIN) {
		if (p->turn < MAX_TURNS)
			return COME_AGAIN;
		reason = REASON_TURNS;
	}
	if (reason == REASON_PASSED && p->end.pfcp && !p->trace)
		return MAYBE_N4;
	verdict = finish(ctx, p, reason);
	if (p->trace)
		trace_end(ctx, p, verdict);
	return verdict;
}

/* The lane is part of the program itself: a call and its return cost as much
 * as a tenth of what it does. */
INLINE int data_path(struct xdp_md *ctx)
{
	int verdict = express(ctx);

	_Static_assert(MAX_TURNS == 3, "as many as follow");
	if (verdict == NOT_TAKEN)
		verdict = journey(ctx, 0);
	if (verdict == COME_AGAIN)
		verdict = journey(ctx, 1);
	if (verdict == COME_AGAIN)
		verdict = journey(ctx, 2);
	return verdict == COME_AGAIN ? journey(ctx, 3) : verdict;
}

SEC("xdp.frags")
int culvert_xdp(struct xdp_md *ctx)
{
	int verdict = data_path(ctx);

	if (verdict != MAYBE_N4)
		return verdict;
	bpf_tail_call(ctx, &next_program, PROGRAM_N4);
	return pass(ctx); /* the daemon answers all of it */
}

/* For PFCP to this host. */
SEC("xdp.frags")
int culvert_n4(struct xdp_md *ctx)
{
	struct port *in = port_of(ctx);
	struct n4_datagram d = {};
	int verdict = in ? n4(ctx, in, &d) : LEFT;

	if (verdict != LEFT)
		return verdict;
	note_left(ctx, &d);
	count_n4(N4_LEFT);
	return pass(ctx);
}

/* On interfaces that only SMFs send by: PFCP goes the short way, if it can be answered. */
SEC("xdp.frags")
int culvert_n4_port(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &next_program, PROGRAM_N4_FIRST);
	bpf_tail_call(ctx, &next_program, PROGRAM_DATA_PATH);
	return XDP_ABORTED; /* cannot be: it is there before this program is */
}

/* Before the data path, which gets all that is not answered here. */
SEC("xdp.frags")
int culvert_n4_first(struct xdp_md *ctx)
{
	struct port *in = port_of(ctx);
	struct n4_datagram d = {};
	int verdict = in && is_for_n4(ctx, in) ? n4(ctx, in, &d) : LEFT;

	if (verdict != LEFT)
		return verdict;
	bpf_tail_call(ctx, &next_program, PROGRAM_DATA_PATH);
	return XDP_ABORTED; /* cannot be, as above */
}

/* On interfaces whose packets are spread over CPUs. */
SEC("xdp.frags")
int culvert_spread(struct xdp_md *ctx)
{
	int verdict = spread(ctx);

	if (verdict == STAYS) {
		bpf_tail_call(ctx, &next_program, PROGRAM_DATA_PATH);
		return XDP_ABORTED; /* cannot be: it is there before this program is */
	}
	return verdict;
}

/* On the CPU that a packet was sent to. */
SEC("xdp.frags/cpumap")
int culvert_cpu(struct xdp_md *ctx)
{
	int verdict = take_ticket(ctx) ? XDP_ABORTED : data_path(ctx);

	return verdict == MAYBE_N4 ? pass(ctx) : verdict;
}

/* On interfaces that nothing else guards yet. */
SEC("xdp.frags")
int culvert_closed(struct xdp_md *ctx)
{
	return closed(ctx);
}

SEC("tcx/ingress")
int culvert_pod(struct __sk_buff *skb)
{
	return pod_input(skb);
}

SEC("tcx/ingress")
int culvert_uplink(struct __sk_buff *skb)
{
	return uplink_input(skb);
}

SEC("netfilter")
int culvert_forward(struct bpf_nf_ctx *ctx)
{
	return forward_input(ctx);
}

SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(culvert_refused, const struct net_device *from, const struct net_device *to, int sent,
	     int drops)
{
	return count_refused(to, drops);
}

SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(culvert_unsent, const struct net_device *from, const void *xdp, const void *to,
	     int error, int map_type, __u32 map_id, __u32 index)
{
	return count_unsent(map_id, index);
}

char _license[] SEC("license") = "Dual BSD/GPL";
