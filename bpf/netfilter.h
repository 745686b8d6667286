/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* culvert_forward: what the kernel forwards, where Services are translated already and
 * senders are not yet. So NetworkPolicies see both ends of what is from pods and to them, and
 * nobody reaches SIDs by a Service. What the node itself sends and receives does not pass
 * here, which Kubernetes wants: kubelets probe their pods. It is attached while a pod of this node
 * is isolated; for IPv6, also while SIDs are to be guarded. */
#ifndef CULVERT_NETFILTER_H
#define CULVERT_NETFILTER_H

#include <bpf/bpf_core_read.h>

#include "flow.h"
#include "lib/kernel.h"
#include "netpol.h"

#define NF_DROP 0
#define NF_ACCEPT 1
#define NFPROTO_IPV4 2

/* skb->_nfct: a pointer that ends in enum ip_conntrack_info. Of 0 and IS_REPLY, packets have gone in both
 * directions. From IS_REPLY on, the packet goes to who began its flow, unless conntrack does not
 * track it. */
#define CONNTRACK_INFO 7
#define IS_REPLY 3
#define UNTRACKED 7

/* Of the kernel's, what is read: the loader finds the fields. */
struct nf_hook_state {
	__u8 pf;
	struct net_device *in, *out;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned int len, data_len;
	unsigned char *data;
	unsigned long _nfct;
	__u16 tc_index;
} __attribute__((preserve_access_index));

/* 16 octets. What bpf_rdonly_cast() says is one is read without a call. */
struct in6_addr {
	__u8 of[16];
};

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *packet) __ksym;
extern void *bpf_rdonly_cast(const void *of, __u32 type) __ksym;

/* The pod whose veth it is; 0: none's. */
INLINE __u32 pod_at(struct net_device *device)
{
	__u32 ifindex = device ? device->ifindex : 0;
	struct port *at = bpf_map_lookup_elem(&port, &ifindex);

	return at ? at->pod : 0;
}

/* The pod, if policies isolate it; 0 is none's. */
INLINE struct pod *isolated_pod(__u32 index)
{
	struct pod *p = index ? bpf_map_lookup_elem(&pod, &index) : 0;

	return p && is_isolated(p) ? p : 0;
}

/* Whether conntrack has seen packets of the connection in both directions. Policies were asked about
 * its first packet then, with the addresses that its packets have here. */
INLINE int is_established(struct sk_buff *skb)
{
	unsigned long info;

	if (!bpf_core_field_exists(skb->_nfct) || skb->_nfct <= CONNTRACK_INFO)
		return 0;
	info = skb->_nfct & CONNTRACK_INFO;
	return !info || info == IS_REPLY;
}

/* Whether culvert_pod has said that nothing is to be asked about the sender. It does not know whom the
 * kernel sends the packet to: SENDER_ALLOWED is about the destination that the sender sees. */
INLINE int is_sender_known(struct sk_buff *skb)
{
	__u32 said;

	if (!bpf_core_field_exists(skb->tc_index))
		return 0;
	said = skb->tc_index ^ sender_mark();
	return said == SENDER_OPEN || (said == SENDER_ALLOWED && is_established(skb));
}

/* Whether conntrack says that the packet goes to who began its TCP connection: then it has one of these
 * flags. Of other protocols, which have none, either end may begin a flow with the same ports. */
INLINE int is_answer(struct sk_buff *skb, struct upper *upper)
{
	unsigned long info;

	if (!(upper->flags & (TCP_ACK | TCP_RST)) || !bpf_core_field_exists(skb->_nfct))
		return 0;
	info = skb->_nfct & CONNTRACK_INFO;
	return info >= IS_REPLY && info != UNTRACKED;
}

/* What counts of a layer 4. */
#define FORWARDED_L4 (TCP_FLAGS + 1)

/* A packet, and the pods that it comes from and goes to; 0 is none's. */
struct forwarded {
	struct sk_buff *skb;
	__u32 from, to;
	struct pod *sender, *receiver; /* if policies isolate them */
	__u8 version;
	__u8 octets[IPV6_LEN + FORWARDED_L4] ALIGNED; /* headers */
};

INLINE void read_l4(const __u8 *l4, struct inner *in, struct upper *upper)
{
	if (in->protocol == NH_TCP)
		upper->flags = l4[TCP_FLAGS];
	if (flow_has_ports(in->protocol))
		in->ports = ld32(l4);
	upper->type = l4[0];
	upper->id = ld16(l4 + 4);
}

/* The IP header at `at`, of so many octets. 1: what counts behind it is there, too; 0; or -1. */
INLINE int load_headers(const struct bpf_dynptr *packet, __u32 at, __u8 *to, __u32 length)
{
	if (!bpf_dynptr_read(to, length + FORWARDED_L4, packet, at, 0))
		return 1;
	return bpf_dynptr_read(to, length, packet, at, 0) ? -1 : 0;
}

/* The packet at `at`, and what counts of its layer 4, as far as it is there. 0 or -1. */
INLINE int read_any(struct forwarded *f, __u32 at, struct inner *in, struct upper *upper)
{
	__u8 *l4 = f->octets + IPV6_LEN;
	struct bpf_dynptr packet;
	int has_l4;

	if (bpf_dynptr_from_skb((struct __sk_buff *)f->skb, 0, &packet))
		return -1;
	has_l4 = f->version == 4 ? load_headers(&packet, at, l4 - IPV4_LEN, IPV4_LEN)
				 : load_headers(&packet, at, f->octets, IPV6_LEN);
	if (has_l4 < 0)
		return -1;
	if (f->version == 4)
		inner_of4((void *)(l4 - IPV4_LEN), at, in);
	else
		inner_of6((void *)f->octets, at, in);
	if (in->l4 < at + IPV4_LEN)
		return -1;
	if (in->fragment)
		return 0;
	if (!has_l4 || in->l4 != at + (f->version == 4 ? IPV4_LEN : IPV6_LEN)) {
		__builtin_memset(l4, 0, FORWARDED_L4);
		if (bpf_dynptr_read(l4, FORWARDED_L4, &packet, in->l4, 0) &&
		    bpf_dynptr_read(l4, 8, &packet, in->l4, 0))
			return 0;
	}
	read_l4(l4, in, upper);
	return 0;
}

/* 16 octets of the kernel's memory. */
INLINE void copy_octets(__u8 *to, const unsigned char *from)
{
	copy16(to, bpf_rdonly_cast(from, bpf_core_type_id_kernel(struct in6_addr)));
}

/* read_any() at 0, where the headers are in one piece and have no options; else -1. It takes no
 * calls, of which the other takes several. */
INLINE int read_linear(struct sk_buff *skb, __u8 version, struct inner *in, struct upper *upper)
{
	__u8 octets[IPV6_LEN + 16] ALIGNED;
	const unsigned char *data = skb->data;

	if (skb->len - skb->data_len < (version == 4 ? IPV6_LEN : sizeof(octets)))
		return -1;
	copy_octets(octets, data);
	copy_octets(octets + 16, data + 16);
	copy_octets(octets + 24, data + 24);
	if (version == 4) {
		if ((octets[0] & 0xf) * 4 != IPV4_LEN)
			return -1;
		inner_of4((void *)octets, 0, in);
		if (!in->fragment)
			read_l4(octets + IPV4_LEN, in, upper);
	} else {
		copy_octets(octets + IPV6_LEN, data + IPV6_LEN);
		inner_of6((void *)octets, 0, in);
		if (!in->fragment)
			read_l4(octets + IPV6_LEN, in, upper);
	}
	return 0;
}

/* Whether the packet is an ICMP error about a flow of a pod that is known. */
INLINE int forward_is_about(struct forwarded *f, struct inner *in, struct upper *upper, __u32 index,
			    __u32 direction)
{
	struct inner about = {};
	struct upper told = {};

	return is_icmp(in->protocol) && !in->fragment && is_icmp_error(in->protocol, upper->type) &&
	       !read_any(f, in->l4 + ICMP_ABOUT, &about, &told) &&
	       is_about_flow(&about, &told, index, direction);
}

/* What the policies of an isolated pod say. 0, or a reason. */
INLINE int forward_policies(struct forwarded *f, struct inner *in, struct upper *upper,
			    struct pod *p, __u32 index, __u32 direction)
{
	in->hash = inner_hash(in, in->ports);
	if (is_allowed_lately(in, upper->flags, p, direction) ||
	    forward_is_about(f, in, upper, index, direction))
		return 0;
	upper->answers = is_answer(f->skb, upper);
	return learn_policies(in, upper, p, index, direction);
}

/* What kube-proxy translates none of: a tunnel on its way through this node, whose sender
 * need not be a member, and what ICMP says of one. */
INLINE int is_transit(__u8 protocol)
{
	return protocol == NH_IPV4 || protocol == NH_IPV6 || protocol == NH_ROUTING ||
	       protocol == NH_ETHERNET || protocol == NH_ICMPV6;
}

/* Whoever owns a namespace chooses the addresses behind its Services. What comes from a pod
 * for a SID has such an address: without translation it ends at the pod's veth. Of what comes
 * by an uplink to a NodePort that is said where the sender is no member. Of IPv6. 0, or a reason. */
GLOBAL int forward_edge(struct inner *in, __u32 from, __u32 to)
{
	if (!in || to || (!from && is_transit(in->protocol)))
		return 0;
	if (!is_sid(&in->dst) || (!from && is_inside(&in->src)))
		return 0;
	return REASON_SR_DOMAIN_EDGE;
}

/* 0, or a reason. Of a packet that passes there is a record at the veth. */
INLINE int forward_decide(struct forwarded *f)
{
	struct inner in = {};
	struct upper upper = {};
	int reason = 0;

	if (read_linear(f->skb, f->version, &in, &upper) && read_any(f, 0, &in, &upper))
		return REASON_INNER_MALFORMED;
	if (f->version == 6)
		reason = forward_edge(&in, f->from, f->to);
	if (!reason && f->sender)
		reason = forward_policies(f, &in, &upper, f->sender, f->from, EGRESS);
	if (!reason && f->receiver)
		reason = forward_policies(f, &in, &upper, f->receiver, f->to, INGRESS);
	if (reason)
		flow_note(&in, reason == REASON_POLICY_INGRESS ? f->to : f->from, FLOW_FORWARDED,
			  reason, 1);
	return reason;
}

INLINE int forward_input(struct bpf_nf_ctx *ctx)
{
	struct forwarded f = { .skb = ctx->skb,
			       .to = pod_at(ctx->state->out),
			       .version = ctx->state->pf == NFPROTO_IPV4 ? 4 : 6 };
	int known = is_sender_known(ctx->skb), reason;
	int asks = f.version == 6 && !f.to; /* where no pod is, a SID may be */

	opaque(known);
	opaque(asks);
	if (known && !asks && !f.to)
		return NF_ACCEPT;
	f.from = pod_at(ctx->state->in);
	if (f.from != f.to) { /* a pod reaches itself, by a Service */
		f.sender = known ? 0 : isolated_pod(f.from);
		f.receiver = isolated_pod(f.to);
	}
	if (f.sender)
		asks = 1;
	opaque(asks);
	if (!asks && !f.receiver)
		return NF_ACCEPT;
	reason = forward_decide(&f);
	if (!reason)
		return NF_ACCEPT;
	count_packets(&outcomes, reason, 1, ctx->skb->len);
	return NF_DROP;
}

#endif
