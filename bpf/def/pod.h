/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Values of the maps that are for pods: see tables.h. */
#ifndef CULVERT_DEF_POD_H
#define CULVERT_DEF_POD_H

#include "types.h"

/* pod[index]: a pod of this node. */
#define MAX_PODS 4096

struct pod {
	__u32 ifindex; /* of the host's end of its veth */
	__u8 mac[6];   /* of the pod's end */
	__u8 pad[2];
	__u32 identity; /* what a NetworkPolicy will select it by; 0: none yet */
	__be32 ip4;     /* its addresses, which it may send from; 0: none */
	struct in6 ip6;
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

/* Flows that conntrack was asked about and does not translate, on each CPU. */
#define UNTRANSLATED_SLOTS 512

struct untranslated {
	__u64 flow, ends;  /* hash and ports, addresses */
	__u64 generation;
	__u64 second;      /* what is not told by the generation is soon asked again */
};

struct untranslated_flows {
	struct untranslated slot[UNTRANSLATED_SLOTS];
};

#endif
