/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records of pods' flows: see bpf/flow.h. */
#ifndef CULVERT_DEF_FLOW_H
#define CULVERT_DEF_FLOW_H

#include "pod.h"

/* Why there is a record of a packet. */
enum flow_kind {
	FLOW_NONE,
	FLOW_EDGE,    /* TCP: SYN, FIN or RST; all of them have one */
	FLOW_SAMPLED, /* chosen at random: it stands for many */
	FLOW_DROPPED, /* all that are dropped have one */
};

/* Where it was seen. */
enum flow_where {
	FLOW_FROM_POD,    /* at a pod's veth */
	FLOW_FROM_KERNEL, /* at culvert0: the kernel's own, or one that it has translated */
	FLOW_FROM_TUNNEL, /* at an uplink */
	FLOW_FORWARDED,   /* where the kernel forwards: dropped there */
};

struct flow_record {
	__u64 time; /* ns, CLOCK_MONOTONIC */
	struct in6 src, dst; /* IPv4-mapped for IPv4 */
	__be16 src_port, dst_port;
	__u32 pod; /* whose record it is: ifindex of the host's end of its veth; 0: the node's */
	__u32 tenant; /* its table */
	__u32 packets, bytes; /* of layer 3 */
	__u32 sampling; /* of FLOW_SAMPLED: the packet is one of so many */
	__u32 list; /* segment_list by which it left; 0: none */
	__u8 kind, where, protocol, tcp_flags; /* of an ICMP Echo Reply: ACK */
	__u8 reason, class_index;
	__u8 version; /* 4, 6; 0: the packet was not read */
	__u8 pad;
	__u32 pad2;
};

enum flow_limits {
	FLOW_DIRECTIONS = 2, /* of a pod: what it sends, what tunnels bring it */
	FLOW_RECORDS = 256,  /* in a second, on each CPU, of each direction */
};

/* flow_budget: what a pod has recorded in this second, and how many records were left out. */

struct flow_budget {
	__u32 second, used;
	__u64 left_out;
};

#endif
