/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that the kernel translates (Services, hostPort): conntrack knows, and
 * their answers have to pass it. */
#ifndef CULVERT_TRANSLATED_H
#define CULVERT_TRANSLATED_H

#include "skb.h"

#define CONFIRMED_NAT (1 << 4 | 1 << 5) /* IPS_SRC_NAT, IPS_DST_NAT */

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

extern struct nf_conn *bpf_skb_ct_lookup(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 tuple_size,
					 struct bpf_ct_opts *options, __u32 options_size) __weak __ksym;
extern void bpf_ct_release(struct nf_conn *ct) __weak __ksym;

INLINE int is_echo(struct __sk_buff *skb, struct inner *in)
{
	__u8 *type = skb_at(skb, in->l4, 1);

	if (!type)
		return 0;
	return in->protocol == NH_ICMP ? *type == 8 || *type == 0
				       : in->protocol == NH_ICMPV6 && (*type == 128 || *type == 129);
}

/* What has no ports may be about a translated flow, or a part of it. */
INLINE int is_translated(struct __sk_buff *skb, struct inner *in)
{
	struct bpf_ct_opts options = { .netns_id = CURRENT_NETNS, .protocol = in->protocol };
	struct bpf_sock_tuple tuple = {};
	struct nf_conn *ct;
	__u32 size, status;

	if (in->fragment || (in->protocol != NH_TCP && in->protocol != NH_UDP))
		return !is_echo(skb, in);
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
	return !!(status & CONFIRMED_NAT);
}

/* A function of its own: it is the same for both programs. */
GLOBAL int kernel_translates(struct __sk_buff *skb, struct inner *in)
{
	__u32 zero = 0;
	struct overlay *o = bpf_map_lookup_elem(&overlay, &zero);

	if (!in || !o || !o->translates || !bpf_skb_ct_lookup)
		return 0;
	return is_translated(skb, in);
}

#endif
