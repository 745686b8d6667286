/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps that are for pods: see tables.h. */
#ifndef CULVERT_DEF_POD_H
#define CULVERT_DEF_POD_H

#include <linux/bpf.h>

#include "types.h"

/* pod[index]: a pod of this node. */
#define MAX_PODS 4096

struct pod {
	__u32 ifindex; /* of the host's end of its veth */
	__u8 mac[6];   /* of the pod's end */
	__u8 enforced; /* NetworkPolicies may come: TCP connections are known from their SYN on */
	__u8 pad;
	__be32 ip4;   /* its addresses, which it may send from; 0: none */
	struct in6 ip6;
	__u32 serial; /* of this pod, and of no other before or after it */
	/* NetworkPolicies: the rules by which it takes packets, and by which it may send
	 * them; 0: it is not isolated. What the rules said before `generation` changed, flows
	 * are asked about again. */
	__u32 ingress, egress;
	__u32 generation;
	__u32 peers; /* netpol_peer's table of IPv4 addresses that the rules know, + 1 of IPv6 */
};

/* netpol_rule: what rules allow, by list, by whom the other end is, and by protocol and port,
 * of which an entry has as many bits as count. */
enum netpol_limits {
	NO_IDENTITY = 0, /* rules for everybody */
	CLOSED_LIST = 1, /* has no rules: a pod whose policies are not known yet */
	RULE_BITS_PEER = 64,
	RULE_BITS_PROTOCOL = 80,
	RULE_BITS = 96,
};

struct netpol_rule_key {
	__u32 prefixlen;
	__u32 list, identity;
	__be16 protocol, port;
};

/* A flow of a pod. Of a protocol without ports they are 0; of ICMP Echo both are its
 * identifier. */
struct pod_flow_key {
	struct in6 remote; /* the other end; IPv4-mapped for IPv4 */
	__be16 local_port, remote_port;
	__u32 pod; /* its serial */
	__u32 protocol;
};

struct pod_flow {
	struct pod_flow_key key;
	__u32 generation; /* of the pod's rules that allowed it */
	__u32 seen;       /* when it last had a packet that was not in flow_cache, in s */
	__u8 direction;   /* enum direction of its first packet */
	__u8 closing;     /* TCP: a FIN or RST was seen after the last SYN */
	__u8 pad[2];
};

/* netpol_flow: flows whose hashes agree in the bits that find the bucket; see flow_table.h. */
#define FLOW_WAYS 8

struct pod_flow_bucket {
	struct bpf_spin_lock lock; /* of who writes a flow */
	__u32 next;                /* behind the way that was written last */
	__u32 tag[FLOW_WAYS];      /* another part of the hash; 0: nothing is there */
	struct pod_flow flow[FLOW_WAYS];
};

/* Jiffies to ticks of 0.26 to 2.6 s, by the kernel's CONFIG_HZ of 1000 to 100. */
#define TICK_SHIFT 8

/* flow_cache: answers about flows; see flow_cache.h. A set is a cache line. */
#define FLOW_CACHE_WAYS 4
#define FLOW_CACHED_TICKS 8
#define FLOW_CACHED_FOR 21 /* the same in s, at most */

struct cached_flow {
	__u64 sum;   /* the flow's fingerprint ^ state */
	__u64 state; /* enum flow_answer_at */
};

struct cached_flows {
	struct cached_flow way[FLOW_CACHE_WAYS];
};

/* cached_flow.state: answers, and in the lowest 16 bits until which tick they count. An answer of 23
 * bits has FLOW_ANSWERED, and as much as there is room for of the generation of what was asked. */
enum flow_answer_at {
	FLOW_UNTRANSLATED = 16, /* conntrack does not translate it; overlay.generation */
	FLOW_ALLOWED = 39, /* the pod's rules allow it; pod.generation */
	FLOW_SETTLED = 62, /* one bit: the kernel forwards it, and conntrack knows it already */
};
#define FLOW_ANSWER_MASK 0x7fffffull
#define FLOW_ANSWERED 0x400000

enum direction {
	INGRESS, /* to the pod */
	EGRESS,
};

/* How long a flow without packets is known, in s. pod_flow.seen may be FLOW_CACHED_FOR old when
 * the last one comes. */
#define FLOW_LASTS (180 + FLOW_CACHED_FOR)
#define FLOW_LASTS_TCP (432000 + FLOW_CACHED_FOR)
#define FLOW_LASTS_CLOSING (120 + FLOW_CACHED_FOR)

/* netpol_counter: a pod's, by its index. */
enum netpol_count {
	NETPOL_INGRESS_DROPPED,
	NETPOL_EGRESS_DROPPED,
	NETPOL_INGRESS_FLOWS,
	NETPOL_EGRESS_FLOWS,
	NETPOL_DISPLACED, /* flows that lasted, and whose room a flow of this pod took */
	NETPOL_COUNTS,
};

/* One entry: how pods and this node's own stack meet. Written by the agent. */
struct overlay {
	__u32 entry; /* device by which the kernel gets what was in a tunnel; 0: the uplink */
	__u8 mac[6]; /* of that device */
	__u8 pad[2];
	__u32 translates; /* 1: the kernel may have translated flows of pods (Services) */
	__u32 pad2;
	/* another after each packet that may begin one: written by the data path */
	__u64 generation;
};

#endif
