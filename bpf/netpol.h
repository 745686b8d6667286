/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NetworkPolicies (networking.k8s.io/v1): what an isolated pod takes, and what it may send.
 * A policy allows flows by who begins them; their answers pass. */
#ifndef CULVERT_NETPOL_H
#define CULVERT_NETPOL_H

#include "flow_cache.h"
#include "flow_table.h"

#define ICMP_ABOUT 8 /* the offset of the packet that an error is about */

#define TIME_SHIFT 30 /* ns to the time of flows, nearly s */

/* What of a packet's layer 4 counts, besides its ports. */
struct upper {
	__u8 flags;   /* of TCP */
	__u8 type;    /* of ICMP */
	__be16 id;    /* of ICMP Echo */
	__u8 answers; /* 1: conntrack says that it is an answer */
};

INLINE int is_icmp(__u32 protocol)
{
	return protocol == NH_ICMP || protocol == NH_ICMPV6;
}

INLINE int is_echo_request(__u32 protocol, __u8 type)
{
	return type == (protocol == NH_ICMP ? 8 : 128);
}

INLINE int is_echo_type(__u32 protocol, __u8 type)
{
	return is_echo_request(protocol, type) || type == (protocol == NH_ICMP ? 0 : 129);
}

INLINE void flow_key_of(struct inner *in, struct upper *upper, __u32 direction, __u32 serial,
			struct pod_flow_key *key)
{
	struct words *remote = direction == INGRESS ? &in->src : &in->dst;

	put_inner_address(&key->remote, remote, in->version);
	key->local_port = direction == INGRESS ? in->ports >> 16 : in->ports;
	key->remote_port = direction == INGRESS ? in->ports : in->ports >> 16;
	if (is_icmp(in->protocol))
		key->local_port = key->remote_port =
			is_echo_type(in->protocol, upper->type) ? upper->id : 0;
	key->pod = serial;
	key->protocol = in->protocol;
}

INLINE int is_isolated(struct pod *p)
{
	return p->ingress | p->egress;
}

/* Whether the rules allow somebody this; `bits` of the key count. */
INLINE int rules_allow(__u32 list, __u32 identity, struct pod_flow_key *flow, __be16 port,
		       __u32 bits)
{
	struct netpol_rule_key key = { .prefixlen = bits,
				       .list = list,
				       .identity = identity,
				       .protocol = be16(flow->protocol),
				       .port = port };

	return !!bpf_map_lookup_elem(&netpol_rule, &key);
}

/* Whether the list allows a flow that began in this direction; the port is that of the end
 * which did not begin it. */
GLOBAL int list_allows(struct pod *p, struct pod_flow_key *flow, __u32 direction, __u32 bits)
{
	struct lpm6_key key = {};
	__u32 list, *identity;
	__be16 port;

	if (!p || !flow)
		return 0;
	list = direction == INGRESS ? p->ingress : p->egress;
	if (!list)
		return 1;
	port = direction == INGRESS ? flow->local_port : flow->remote_port;
	if (rules_allow(list, NO_IDENTITY, flow, port, bits))
		return 1;
	key.table = p->peers;
	if (ld64(&flow->remote) || ld32(&flow->remote.b[8]) != be32(0xffff)) {
		key.table++;
		key.prefixlen = 160;
		copy16(&key.addr, &flow->remote);
	} else {
		key.prefixlen = 64;
		st32(&key.addr, ld32(&flow->remote.b[12]));
	}
	identity = bpf_map_lookup_elem(&netpol_peer, &key);
	return identity && *identity && rules_allow(list, *identity, flow, port, bits);
}

/* Against the flow's direction: no answer. */
INLINE int begins_anew(struct pod_flow *flow, struct pod_flow_key *key, struct upper *upper,
		       __u32 direction)
{
	if (direction == flow->direction)
		return 0;
	if (key->protocol == NH_TCP)
		return is_syn(upper->flags);
	return is_icmp(key->protocol) && is_echo_request(key->protocol, upper->type);
}

/* Whether the flow goes on, and the pod's rules still allow it. */
INLINE int goes_on(struct pod *p, struct pod_flow *flow, struct pod_flow_key *key, __u32 generation,
		   __u32 now)
{
	if (is_over(flow, now))
		return 0;
	if (flow->generation != generation) {
		if (!list_allows(p, key, flow->direction, RULE_BITS))
			return 0;
		flow->generation = generation;
	}
	return 1;
}

/* Whether it is a packet of the other end of a TCP connection that rules do not allow to who
 * began it. It begins none: the connection would come back as one of the other direction. */
INLINE int is_cut(struct pod *p, struct pod_flow *flow, struct pod_flow_key *key,
		  struct upper *upper, __u32 direction)
{
	return key->protocol == NH_TCP && direction != flow->direction && !is_syn(upper->flags) &&
	       !list_allows(p, key, flow->direction, RULE_BITS);
}

INLINE void count_policy(__u32 index, __u32 what)
{
	count_packets(&netpol_counter, index * NETPOL_COUNTS + what, 1, 0);
}

INLINE int refused_by_policy(__u32 direction)
{
	return direction == INGRESS ? REASON_POLICY_INGRESS : REASON_POLICY_EGRESS;
}

/* A packet of a flow that goes on. A SYN with the same ports begins another connection. */
INLINE void note_packet(struct pod_flow *flow, __u8 flags, int closing, __u32 now)
{
	if (flow->seen != now)
		flow->seen = now;
	if (closing || is_syn(flags))
		flow->closing = closing;
}

/* Whether a flow is known from a packet on that is allowed. Of a pod that is not isolated these
 * are TCP connections from their SYN on. What is no request of ICMP has no answers. */
INLINE int begins_flow(struct pod *p, struct pod_flow_key *key, struct upper *upper)
{
	if (is_icmp(key->protocol))
		return is_echo_request(key->protocol, upper->type);
	return is_isolated(p) || is_syn(upper->flags);
}

/* 0, or a reason. */
GLOBAL int ask_policies(struct inner *in, struct upper *upper, __u32 index, __u32 direction,
			__u32 now)
{
	struct pod *p = bpf_map_lookup_elem(&pod, &index);
	struct pod_flow fresh ALIGNED = {}, *flow;
	struct pod_flow_key *key = &fresh.key;
	__u32 generation, began;
	int closing;

	if (!p || !in || !upper)
		return refused_by_policy(direction);
	generation = *(volatile __u32 *)&p->generation; /* before the lists: they change first */
	flow_key_of(in, upper, direction, p->serial, key);
	if (in->fragment)
		return list_allows(p, key, direction, RULE_BITS_PEER)
			       ? 0
			       : refused_by_policy(direction);
	closing = key->protocol == NH_TCP && upper->flags & (TCP_FIN | TCP_RST);
	flow = find_flow(key);
	if (flow && goes_on(p, flow, key, generation, now) &&
	    !begins_anew(flow, key, upper, direction)) {
		note_packet(flow, upper->flags, closing, now);
		return 0;
	}
	began = direction ^ (upper->answers & 1);
	if ((flow && is_cut(p, flow, key, upper, direction)) ||
	    !list_allows(p, key, began, RULE_BITS))
		return refused_by_policy(direction);
	if (!begins_flow(p, key, upper))
		return 0;
	fresh.generation = generation;
	fresh.seen = now;
	fresh.direction = began;
	fresh.closing = closing;
	if (flow && is_flow(flow, key))
		*flow = fresh;
	else if (put_flow(&fresh))
		count_policy(index, NETPOL_DISPLACED);
	count_policy(index, began == INGRESS ? NETPOL_INGRESS_FLOWS : NETPOL_EGRESS_FLOWS);
	return 0;
}

/* Whether an ICMP error is about a packet of a flow that is known: it was sent the other
 * way. */
INLINE int is_about_known_flow(struct inner *about, struct upper *upper, __u32 index,
			       __u32 direction, __u32 now)
{
	struct pod *p = bpf_map_lookup_elem(&pod, &index);
	struct pod_flow_key key ALIGNED = {};
	struct pod_flow *flow;

	if (!p || !about || !upper || about->fragment)
		return 0;
	flow_key_of(about, upper, !direction, p->serial, &key);
	flow = find_flow(&key);
	return flow && goes_on(p, flow, &key, p->generation, now);
}

/* The same, with a stack frame of its own. */
GLOBAL int is_about_flow(struct inner *about, struct upper *upper, __u32 index, __u32 direction)
{
	return is_about_known_flow(about, upper, index, direction,
				   bpf_ktime_get_ns() >> TIME_SHIFT);
}

/* ---- at a veth and an uplink ---- */

/* The packet that the error at `at` is about, as far as it is there. 0 or -1. */
INLINE int skb_about(struct __sk_buff *skb, __u32 at, __u32 version, struct inner *about,
		     struct upper *upper)
{
	__u8 ports[8] ALIGNED = {};

	skb_need(skb, at + IPV6_LEN);
	about->length = ~0u; /* what is not there does not matter */
	if (version == 4 ? read_inner4(skb, at, about) : read_inner6(skb, at, about))
		return -1;
	if (bpf_skb_load_bytes(skb, about->l4, ports, sizeof(ports)))
		return -1;
	if (flow_has_ports(about->protocol))
		about->ports = ld32(ports);
	upper->type = ports[0];
	upper->id = ld16(ports + 4);
	return 0;
}

/* Whether it is an ICMP error about a packet of a flow that is known; if not, `upper` is what
 * counts of it. */
GLOBAL int skb_is_about_flow(struct __sk_buff *skb, struct inner *in, struct upper *upper,
			     __u32 index, __u32 direction)
{
	__u32 now = bpf_ktime_get_ns() >> TIME_SHIFT;
	struct inner about = {};
	struct upper told = {};
	__u8 *head;

	if (!in || !upper)
		return 0;
	head = skb_at(skb, in->l4, 8);
	if (!head)
		return 0;
	upper->type = head[0];
	upper->id = ld16(head + 4);
	return is_icmp_error(in->protocol, upper->type) &&
	       !skb_about(skb, in->l4 + ICMP_ABOUT, in->version, &about, &told) &&
	       is_about_known_flow(&about, &told, index, direction, now);
}

/* Whether flow_cache may have the flow of a packet. Fragments, ICMP, and what begins or ends a TCP
 * connection are always asked about. */
INLINE int may_be_cached(struct inner *in, __u8 flags)
{
	return !in->fragment && !is_icmp(in->protocol) && !begins_or_ends(flags);
}

/* Whether it says that the rules allow the flow; in->hash is made. */
INLINE int is_allowed_lately(struct inner *in, __u8 flags, struct pod *p, __u32 direction)
{
	if (!may_be_cached(in, flags))
		return 0;
	look_flow_up(in, p, direction);
	return has_answer(in, FLOW_ALLOWED, *(volatile __u32 *)&p->generation);
}

/* What culvert_pod says in skb->tc_index to culvert_forward about a packet that it leaves to the
 * kernel, beside sender_mark(). Nobody else's number is one of these, except by chance. */
enum sender_said {
	SENDER_OPEN = 1, /* no policies isolate the sender */
	SENDER_ALLOWED = 2, /* they allow the flow, with the addresses that it has at the veth */
};

/* A random number of this node, with room for enum sender_said. */
INLINE __u32 sender_mark(void)
{
	return node_settings.flow_key[0] >> 48 & 0xfffc;
}

/* What skb->tc_index says of a packet of the pod `p`, or of none (NULL). Of fragments it says nothing:
 * the kernel puts them together later, with the tc_index of the first one. */
INLINE __u32 say_sender(struct inner *in, struct pod *p)
{
	if (!p || in->fragment)
		return 0;
	if (!is_isolated(p))
		return sender_mark() | SENDER_OPEN;
	if (in->known_of && has_answer(in, FLOW_ALLOWED, *(volatile __u32 *)&p->generation))
		return sender_mark() | SENDER_ALLOWED;
	return 0;
}

/* Whether the packet answers a flow that flow_cache has: netpol_flow may have lost that flow, to
 * make room for others. */
GLOBAL int is_answer_lately(struct inner *in, struct pod *p, __u32 direction)
{
	struct inner back = {};

	if (!in || !p)
		return 0;
	back.src = in->dst;
	back.dst = in->src;
	back.ports = in->ports >> 16 | in->ports << 16;
	back.version = in->version;
	back.protocol = in->protocol;
	back.hash = inner_hash(&back, back.ports);
	return is_allowed_lately(&back, 0, p, !direction);
}

/* The same as ask_policies(), and flow_cache learns of it. */
INLINE int learn_policies(struct inner *in, struct upper *upper, struct pod *p, __u32 index,
			  __u32 direction)
{
	__u32 generation = *(volatile __u32 *)&p->generation; /* before policies are asked */
	int reason = ask_policies(in, upper, index, direction, bpf_ktime_get_ns() >> TIME_SHIFT);

	if (reason && may_be_cached(in, upper->flags) && is_answer_lately(in, p, direction))
		return 0;
	if (reason)
		count_policy(index,
			     direction == INGRESS ? NETPOL_INGRESS_DROPPED : NETPOL_EGRESS_DROPPED);
	else if (may_be_cached(in, upper->flags))
		learn_answer(in, FLOW_ALLOWED, generation);
	return reason;
}

/* Asks them, where flow_cache does not tell. Fragments the kernel puts together first, except
 * those of tenants. */
GLOBAL int skb_ask_policies(struct __sk_buff *skb, struct inner *in, struct pod *p, __u32 index,
			    __u32 direction)
{
	struct upper upper = {};

	if (!in || !p)
		return REASON_INNER_MALFORMED;
	if (in->fragment && !in->tenant)
		return REASON_PASSED;
	if (!in->fragment && is_icmp(in->protocol) &&
	    skb_is_about_flow(skb, in, &upper, index, direction))
		return 0;
	upper.flags = skb_tcp_flags(skb, in);
	return learn_policies(in, &upper, p, index, direction);
}

/* Whether the policies of a pod, which has this index, let the packet pass: 0, or a reason. Of a
 * pod that is not isolated it is known who began which TCP connection until it ends, for the day
 * when it is. */
INLINE int skb_policies(struct __sk_buff *skb, struct inner *in, struct pod *p, __u32 index,
			__u32 direction)
{
	__u8 flags;

	if (!is_isolated(p) && (!p->enforced || in->protocol != NH_TCP))
		return 0;
	flags = skb_tcp_flags(skb, in);
	if (is_isolated(p) ? is_allowed_lately(in, flags, p, direction) : !begins_or_ends(flags))
		return 0;
	return skb_ask_policies(skb, in, p, index, direction);
}

#endif
