/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that the kernel translates (Services, hostPort): conntrack knows, and
 * their answers have to pass it. */
#ifndef CULVERT_TRANSLATED_H
#define CULVERT_TRANSLATED_H

#include "flow_cache.h"

/* enum ip_conntrack_status */
#define SEEN_REPLY (1 << 1)
#define ASSURED (1 << 2)
#define DESTINATION_NAT (1 << 5)
#define NAT_DONE (1 << 4 | DESTINATION_NAT)

/* Of the kernel's, what is read: the loader finds the field. */
struct nf_conn {
	unsigned long status;
} __attribute__((preserve_access_index));

struct nf_conn___init {
	struct nf_conn ct;
} __attribute__((preserve_access_index));

/* As of Linux 6.1; the fields that came later are left out by the size. */
struct bpf_ct_opts {
	__s32 netns_id, error;
	__u8 protocol, direction, reserved[2];
};

#define CURRENT_NETNS -1

/* How long conntrack knows a flow of a pod's that passes it by, in ms, from when it was last asked:
 * that may be FLOW_CACHED_FOR before the last packet. */
#define KNOWN_FOR (1000 * (30 + FLOW_CACHED_FOR))

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					 __u32 tuple_size, struct bpf_ct_opts *options,
					 __u32 options_size) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __weak __ksym;
extern struct nf_conn___init *bpf_skb_ct_alloc(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					       __u32 tuple_size, struct bpf_ct_opts *options,
					       __u32 options_size) __weak __ksym;
extern void bpf_ct_set_timeout(struct nf_conn___init *ct, __u32 timeout) __weak __ksym;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *ct) __weak __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *ct, __u32 timeout) __weak __ksym;

INLINE int is_echo(struct __sk_buff *skb, struct inner *in)
{
	__u8 *type = skb_at(skb, in->l4, 1);

	if (!type)
		return 0;
	return in->protocol == NH_ICMP
		       ? *type == 8 || *type == 0
		       : in->protocol == NH_ICMPV6 && (*type == 128 || *type == 129);
}

/* The packet's flow, and the length of its key. */
INLINE __u32 flow_of(struct inner *in, struct bpf_sock_tuple *tuple)
{
	if (in->version == 4) {
		tuple->ipv4.saddr = in->src.hi;
		tuple->ipv4.daddr = in->dst.hi;
		tuple->ipv4.sport = in->ports;
		tuple->ipv4.dport = in->ports >> 16;
		return sizeof(tuple->ipv4);
	}
	copy16_by4(tuple->ipv6.saddr, &in->src);
	copy16_by4(tuple->ipv6.daddr, &in->dst);
	tuple->ipv6.sport = in->ports;
	tuple->ipv6.dport = in->ports >> 16;
	return sizeof(tuple->ipv6);
}

/* What conntrack knows of the packet's flow: enum ip_conntrack_status, or 0. `known_for`:
 * how much longer it is to know a flow that it does not translate; 0: as long as it likes. */
INLINE __u32 conntrack_status(struct __sk_buff *skb, struct inner *in, __u32 known_for)
{
	struct bpf_ct_opts options = { .netns_id = CURRENT_NETNS, .protocol = in->protocol };
	struct bpf_sock_tuple tuple = {};
	__u32 size = flow_of(in, &tuple), status;
	struct nf_conn *ct = bpf_skb_ct_lookup(skb, &tuple, size, &options, sizeof(options));

	if (!ct)
		return 0;
	status = ct->status;
	if (known_for && !(status & (NAT_DONE | ASSURED)) && bpf_ct_change_timeout)
		bpf_ct_change_timeout(ct, known_for);
	bpf_ct_release(ct);
	return status;
}

/* Conntrack gets to know a flow that passes it by, so that no Service's flow gets the same
 * ports. 0, or 1 where a flow that it translates has the same answers: then only the
 * kernel can give this one other ports. */
INLINE int make_known(struct __sk_buff *skb, struct inner *in)
{
	struct bpf_ct_opts options = { .netns_id = CURRENT_NETNS, .protocol = in->protocol };
	struct bpf_sock_tuple tuple = {};
	__u32 size = flow_of(in, &tuple);
	struct nf_conn___init *fresh;
	struct nf_conn *ct;

	if (!bpf_skb_ct_alloc || !bpf_ct_set_timeout || !bpf_ct_insert_entry)
		return 0;
	fresh = bpf_skb_ct_alloc(skb, &tuple, size, &options, sizeof(options));
	if (!fresh) /* the table is full */
		return 0;
	bpf_ct_set_timeout(fresh, KNOWN_FOR);
	ct = bpf_ct_insert_entry(fresh);
	if (!ct)
		return 1;
	bpf_ct_release(ct);
	return 0;
}

/* What the kernel tracks by ports. */
INLINE int is_tracked(struct inner *in)
{
	return !in->fragment && (in->protocol == NH_TCP || in->protocol == NH_UDP);
}

INLINE struct overlay *translating(void)
{
	__u32 zero = 0;
	struct overlay *o = bpf_map_lookup_elem(&overlay, &zero);

	return o && o->translates && bpf_skb_ct_lookup ? o : 0;
}

/* kernel_translates() of a flow that flow_cache does not have, or of a packet that it cannot
 * have: what has no ports may be about a translated flow, or a part of it. */
GLOBAL int ask_conntrack(struct __sk_buff *skb, struct inner *in, __u32 direction)
{
	struct overlay *o = translating();
	__u32 generation, status, sent = direction == EGRESS;

	if (!in || !o)
		return 0;
	if (!is_tracked(in))
		return in->fragment || !is_echo(skb, in);
	generation = *(volatile __u64 *)&o->generation; /* before conntrack is asked */
	status = conntrack_status(skb, in, sent ? KNOWN_FOR : 0);
	if (status & NAT_DONE || (!status && sent && make_known(skb, in)))
		return 1;
	if (in->known_of)
		learn_answer(in, FLOW_UNTRANSLATED, generation);
	return 0;
}

/* Whether the packet of a pod of this node, or for one, must pass the kernel. To ask conntrack costs
 * as much as all else that is done with a small packet, so that the answer "no" is kept, unless a
 * flow may have become translated since. */
INLINE int kernel_translates(struct __sk_buff *skb, struct inner *in, struct pod *p,
			     __u32 direction)
{
	struct overlay *o = translating();

	if (!o)
		return 0;
	if (p && is_tracked(in)) {
		look_flow_up(in, p, direction);
		if (has_answer(in, FLOW_UNTRANSLATED, *(volatile __u64 *)&o->generation))
			return 0;
	}
	return ask_conntrack(skb, in, direction);
}

/* note_kernels() of a flow that conntrack may not know for long. */
GLOBAL int note_begun(struct __sk_buff *skb, struct inner *in, __u32 syn)
{
	struct overlay *o = translating();
	__u32 status;

	if (!in || !o)
		return 0;
	status = conntrack_status(skb, in, 0);
	if (syn || !status || (status & DESTINATION_NAT && !(status & SEEN_REPLY)))
		__sync_fetch_and_add(&o->generation, 1);
	else if (in->known_of)
		learn_state(in, 1ull << FLOW_SETTLED, 1ull << FLOW_SETTLED);
	return 0;
}

/* A pod's packet is the kernel's. Where it may begin a flow that the kernel then
 * translates, what is known of answers is old. `p` is the pod, or NULL. */
INLINE void note_kernels(struct __sk_buff *skb, struct inner *in, struct pod *p)
{
	__u8 flags;

	if (!translating() || !is_tracked(in))
		return;
	flags = skb_tcp_flags(skb, in);
	if (p && !begins_or_ends(flags)) {
		look_flow_up(in, p, EGRESS);
		if (in->known & 1ull << FLOW_SETTLED)
			return;
	}
	note_begun(skb, in, is_syn(flags));
}

#endif
