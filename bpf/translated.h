/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that the kernel translates (Services, hostPort): conntrack knows, and
 * their answers have to pass it. */
#ifndef CULVERT_TRANSLATED_H
#define CULVERT_TRANSLATED_H

#include "skb.h"

/* enum ip_conntrack_status */
#define SEEN_REPLY (1 << 1)
#define DESTINATION_NAT (1 << 5)
#define NAT_DONE (1 << 4 | DESTINATION_NAT)

/* Of the kernel's, what is read: the loader finds the field. */
struct nf_conn {
	unsigned long status;
} __attribute__((preserve_access_index));

/* As of Linux 6.1; the fields that came later are left out by the size. */
struct bpf_ct_opts {
	__s32 netns_id, error;
	__u8 protocol, direction, reserved[2];
};

#define CURRENT_NETNS -1

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple,
					 __u32 tuple_size, struct bpf_ct_opts *options,
					 __u32 options_size) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __weak __ksym;

INLINE int is_echo(struct __sk_buff *skb, struct inner *in)
{
	__u8 *type = skb_at(skb, in->l4, 1);

	if (!type)
		return 0;
	return in->protocol == NH_ICMP
		       ? *type == 8 || *type == 0
		       : in->protocol == NH_ICMPV6 && (*type == 128 || *type == 129);
}

/* What conntrack knows of the packet's flow: enum ip_conntrack_status, or 0. */
INLINE __u32 conntrack_status(struct __sk_buff *skb, struct inner *in)
{
	struct bpf_ct_opts options = { .netns_id = CURRENT_NETNS, .protocol = in->protocol };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *ct;
	__u32 size, status;

	if (in->version == 4) {
		tuple.ipv4.saddr = in->src.hi;
		tuple.ipv4.daddr = in->dst.hi;
		tuple.ipv4.sport = in->ports;
		tuple.ipv4.dport = in->ports >> 16;
		size = sizeof(tuple.ipv4);
	} else {
		copy16_by4(tuple.ipv6.saddr, &in->src);
		copy16_by4(tuple.ipv6.daddr, &in->dst);
		tuple.ipv6.sport = in->ports;
		tuple.ipv6.dport = in->ports >> 16;
		size = sizeof(tuple.ipv6);
	}
	ct = bpf_skb_ct_lookup(skb, &tuple, size, &options, sizeof(options));
	if (!ct)
		return 0;
	status = ct->status;
	bpf_ct_release(ct);
	return status;
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

/* To ask conntrack costs as much as all else that is done with a small packet, so
 * that the answer "no" is kept for what is left of the second, unless a flow may
 * have become translated since. */
INLINE int ask_conntrack(struct __sk_buff *skb, struct inner *in, __u64 generation)
{
	__u64 flow = (__u64)in->hash << 32 | in->ports, second = bpf_ktime_get_coarse_ns() >> 30;
	__u64 ends = (in->src.hi | in->dst.hi << 32) ^ in->src.lo * FLOW_PRIME1 ^
		     (in->dst.hi + in->dst.lo) * FLOW_PRIME2;
	__u32 zero = 0;
	struct untranslated_flows *flows = bpf_map_lookup_elem(&untranslated, &zero);
	struct untranslated *slot;

	if (!flows)
		return 1;
	slot = &flows->slot[in->hash % UNTRANSLATED_SLOTS];
	if (slot->flow == flow && slot->ends == ends && slot->generation == generation &&
	    slot->second == second)
		return 0;
	if (conntrack_status(skb, in) & NAT_DONE)
		return 1;
	slot->flow = flow;
	slot->ends = ends;
	slot->generation = generation;
	slot->second = second;
	return 0;
}

/* Whether the packet must pass the kernel; what has no ports may be about a
 * translated flow, or a part of it. A function of its own: it is the same for
 * both programs. */
GLOBAL int kernel_translates(struct __sk_buff *skb, struct inner *in)
{
	struct overlay *o = translating();

	if (!in || !o)
		return 0;
	if (!is_tracked(in))
		return in->fragment || !is_echo(skb, in);
	return ask_conntrack(skb, in, *(volatile __u64 *)&o->generation);
}

/* A pod's packet is the kernel's. Where it may begin a flow that the kernel then
 * translates, what is known of answers is old. */
GLOBAL int note_kernels(struct __sk_buff *skb, struct inner *in)
{
	struct overlay *o = translating();
	__u32 status;

	if (!in || !o || !is_tracked(in))
		return 0;
	status = conntrack_status(skb, in);
	if (!status || (status & DESTINATION_NAT && !(status & SEEN_REPLY)))
		__sync_fetch_and_add(&o->generation, 1);
	return 0;
}

#endif
