/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* culvert_forward: what the kernel forwards, where Services are translated already and
 * senders are not yet. So NetworkPolicies see both ends of what is from pods and to them, and
 * nobody reaches SIDs by a Service. What the node itself sends and receives does not pass
 * here, which Kubernetes wants: kubelets probe their pods. */
#ifndef CULVERT_NETFILTER_H
#define CULVERT_NETFILTER_H

#include "flow.h"
#include "lib/kernel.h"
#include "netpol.h"

#define NF_DROP 0
#define NF_ACCEPT 1
#define NFPROTO_IPV4 2

/* Of the kernel's, what is read: the loader finds the fields. */
struct nf_hook_state {
	__u8 pf;
	struct net_device *in, *out;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned int len;
} __attribute__((preserve_access_index));

struct bpf_nf_ctx {
	const struct nf_hook_state *state;
	struct sk_buff *skb;
};

extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags,
			       struct bpf_dynptr *packet) __ksym;

/* The pod whose veth it is; 0: none's. */
INLINE __u32 pod_at(struct net_device *device)
{
	__u32 ifindex = device ? device->ifindex : 0;
	struct port *at = bpf_map_lookup_elem(&port, &ifindex);

	return at ? at->pod : 0;
}

/* As skb_policies() asks at a veth. */
INLINE int forward_asks(struct pod *p, struct inner *in, struct upper *upper)
{
	return is_isolated(p) || (p->enforced && begins_or_ends(upper->flags));
}

/* The headers of a packet without options: both in one go, because each takes several calls. */
#define FORWARDED_L4 (TCP_FLAGS + 1)

/* The IP header at `at`, `length` octets of it. Whether what is behind it is there, too; or -1. */
INLINE int read_headers(const struct bpf_dynptr *packet, __u32 at, __u8 *to, __u32 length)
{
	if (!bpf_dynptr_read(to, length + FORWARDED_L4, packet, at, 0))
		return 1;
	return bpf_dynptr_read(to, length, packet, at, 0) ? -1 : 0;
}

/* The packet at `at`, and what counts of its layer 4, as far as it is there. 0 or -1. */
INLINE int read_forwarded(const struct bpf_dynptr *packet, __u32 at, __u8 version, struct inner *in,
			  struct upper *upper)
{
	__u8 octets[IPV6_LEN + FORWARDED_L4] ALIGNED = {}, *head = octets + IPV6_LEN;
	int has_head = version == 4 ? read_headers(packet, at, head - IPV4_LEN, IPV4_LEN)
				    : read_headers(packet, at, octets, IPV6_LEN);

	if (has_head < 0)
		return -1;
	if (version == 4)
		inner_of4((void *)(head - IPV4_LEN), at, in);
	else
		inner_of6((void *)octets, at, in);
	if (in->l4 < at + IPV4_LEN)
		return -1;
	if (in->fragment)
		return 0;
	if (!has_head || in->l4 != at + (version == 4 ? IPV4_LEN : IPV6_LEN)) {
		__builtin_memset(head, 0, FORWARDED_L4);
		if (bpf_dynptr_read(head, FORWARDED_L4, packet, in->l4, 0) &&
		    bpf_dynptr_read(head, 8, packet, in->l4, 0))
			return 0;
	}
	if (in->protocol == NH_TCP)
		upper->flags = head[TCP_FLAGS];
	if (flow_has_ports(in->protocol))
		in->ports = ld32(head);
	upper->type = head[0];
	upper->id = ld16(head + 4);
	return 0;
}

/* Whether the packet is an ICMP error about a flow of a pod that is known. */
INLINE int forward_is_about(const struct bpf_dynptr *packet, struct inner *in, struct upper *upper,
			    __u32 index, __u32 direction)
{
	struct inner about = {};
	struct upper told = {};

	return is_icmp(in->protocol) && !in->fragment && is_icmp_error(in->protocol, upper->type) &&
	       !read_forwarded(packet, in->l4 + ICMP_ABOUT, in->version, &about, &told) &&
	       is_about_flow(&about, &told, index, direction);
}

/* What the policies of a pod say; 0 is none's. 0, or a reason. */
INLINE int forward_policies(const struct bpf_dynptr *packet, struct inner *in, struct upper *upper,
			    __u32 index, __u32 direction)
{
	struct pod *p = index ? bpf_map_lookup_elem(&pod, &index) : 0;

	if (!p || !forward_asks(p, in, upper))
		return 0;
	in->hash = inner_hash(in, in->ports);
	if (is_allowed_lately(in, upper->flags, p, direction) ||
	    forward_is_about(packet, in, upper, index, direction))
		return 0;
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
INLINE int forward_decide(const struct bpf_dynptr *packet, __u8 version, __u32 from, __u32 to)
{
	struct inner in = {};
	struct upper upper = {};
	int reason;

	if (read_forwarded(packet, 0, version, &in, &upper))
		return REASON_INNER_MALFORMED;
	reason = version == 6 ? forward_edge(&in, from, to) : 0;
	if (!reason && from != to) {
		reason = forward_policies(packet, &in, &upper, from, EGRESS);
		if (!reason)
			reason = forward_policies(packet, &in, &upper, to, INGRESS);
	}
	if (reason)
		flow_note(&in, reason == REASON_POLICY_INGRESS ? to : from, FLOW_FORWARDED, reason,
			  1);
	return reason;
}

INLINE int forward_input(struct bpf_nf_ctx *ctx)
{
	__u32 from = pod_at(ctx->state->in), to = pod_at(ctx->state->out);
	__u8 version = ctx->state->pf == NFPROTO_IPV4 ? 4 : 6;
	struct bpf_dynptr packet;
	int reason;

	if (from == to && (from || version == 4)) /* a pod reaches itself by a Service; no pod's */
		return NF_ACCEPT;
	if (bpf_dynptr_from_skb((struct __sk_buff *)ctx->skb, 0, &packet))
		return NF_DROP;
	reason = forward_decide(&packet, version, from, to);
	if (!reason)
		return NF_ACCEPT;
	count_packets(&outcomes, reason, 1, ctx->skb->len);
	return NF_DROP;
}

#endif
